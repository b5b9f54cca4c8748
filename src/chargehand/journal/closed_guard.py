"""Whether a journal may be used here and now; asked by all its parts."""

from pathlib import Path

from chargehand.errors import UsageError


class Availability:
    """Shut when the journal is closed, and in a forked child, where its threads do not exist."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        #: read before every use
        self.is_usable = True
        self.is_forked = False

    def close(self) -> None:
        """Let nothing more in."""
        self.is_usable = False

    def abandon(self) -> None:
        """This is a forked child: the journal stays the parent's."""
        self.is_forked = True
        self.is_usable = False

    def refusal(self) -> UsageError:
        """Why the journal cannot be used, once it cannot."""
        if self.is_forked:
            return UsageError(
                f"{self._path} was opened before this process was forked; open it again here"
            )
        return UsageError(f"the journal {self._path} is closed; open it again")
