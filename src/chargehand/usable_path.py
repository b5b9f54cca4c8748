"""Turns a path that a person gave into one of which anything may be asked, or says what is wrong with it."""

import errno
import os
from pathlib import Path

from chargehand.errors import UsageError

#: characters of a path that a message shows
_SHOWN = 200
_FACTS = {
    errno.ENAMETOOLONG: "it is too long",
    errno.ELOOP: "its links lead in a circle",
}


def checked_path(given: str | os.PathLike[str], what: str = "", *, home: bool = False) -> Path:
    """The path in these words; with `home`, `~` and `~user` are replaced. `what` names it in messages.

    Raises `UsageError` for what can be no path: empty, with a NUL, too long, through links that lead in a
    circle, of a user who is not known, out of reach. Whether anything is there, its reader or writer sees.
    """
    text = os.fspath(given)
    try:
        path = Path(text).expanduser() if home else Path(text)
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except RuntimeError:
        user = text.partition(os.sep)[0]
        raise _refused(text, f"the home folder of {user} is not known", what) from None
    except ValueError:
        raise _refused(
            text, "it contains a character that paths cannot have, such as NUL", what
        ) from None
    except OSError as error:
        fact = _FACTS.get(error.errno or 0, f"{error.strerror}")
        raise _refused(text, fact, what) from None
    if not text:
        raise _refused(text, "it is empty", what)
    return path


def _refused(text: str, fact: str, what: str) -> UsageError:
    shown = repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}… ({len(text):,} characters)"
    before = f"{what}: " if what else ""
    return UsageError(f"{before}{shown} cannot be used as a path: {fact}; give another one")
