"""The folder that a crew reads if the user names no files."""

import os
from pathlib import Path

from chargehand.errors import UsageError


def working_folder() -> Path:
    """The current directory. Raises `UsageError` if it is a home directory or the root of a disk."""
    here = Path.cwd()
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home fails without one
    if here in (home, Path(here.anchor)):
        raise UsageError(
            f"the working folder is {here}, which holds more than a crew should read unasked; "
            "say what it may read with --files PATH"
        )
    return here
