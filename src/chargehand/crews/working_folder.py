"""The folder that a crew reads if the user names no files."""

from pathlib import Path

from chargehand.errors import UsageError


def working_folder() -> Path:
    """The current directory. Raises `UsageError` if it is a home directory or the root of a disk."""
    here = Path.cwd()
    if here in (Path.home().resolve(), Path(here.anchor)):
        raise UsageError(
            f"the working folder is {here}, which holds more than a crew should read unasked; "
            "say what it may read with --files PATH"
        )
    return here
