"""Whether a person sits at this process's terminal."""

import os
import sys


def is_interactive() -> bool:
    """Whether a person sits there who can read and be asked."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr) and not is_plain()


def is_plain() -> bool:
    """Whether nobody watches: CI, or a terminal that says it can show nothing."""
    return bool(os.environ.get("CI")) or os.environ.get("TERM") == "dumb"


def is_terminal(stream: object) -> bool:
    """Of a standard stream, which a process without a console lacks, or has closed."""
    isatty = getattr(stream, "isatty", None)
    try:
        return isatty is not None and bool(isatty())
    except ValueError:
        return False
