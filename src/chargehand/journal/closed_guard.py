"""Whether a journal may be used here and now; asked by all its parts."""

from pathlib import Path

from chargehand.errors import UsageError


class Availability:
    """Shut when the journal is closed, and in a forked child, where its threads do not exist."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self.is_open = True
        self.is_forked = False

    def check(self) -> None:
        """Raise `UsageError` if the gate is shut."""
        if self.is_forked:
            raise UsageError(
                f"{self._path} was opened before this process was forked; open it again here"
            )
        if not self.is_open:
            raise UsageError(f"the journal {self._path} is closed; open it again")
