"""`python -m tests.chaos`: see `campaign`."""

import sys

from tests.chaos.campaign import main

if __name__ == "__main__":
    sys.exit(main())
