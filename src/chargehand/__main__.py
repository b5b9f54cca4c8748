"""`python -m chargehand` is the command line."""

from chargehand.cli import main

if __name__ == "__main__":
    main()
