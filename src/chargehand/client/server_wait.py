"""Says so, once, when a server lets its client wait for longer than a second."""

import asyncio
import logging
from types import TracebackType
from typing import Self

from chargehand.presentation.plain_text import one_line

log = logging.getLogger("chargehand")

#: seconds until a wait is said
LATE = 1.0
LONGEST_WHY = 300


class ServerWait:
    """One wait for a server: `async` code begins it, and ends it when the server says something.

    `what` is waited for, and `way_out` says how the wait ends. Used with `with`, it is a wait from begin to end.
    """

    def __init__(self, url: str, what: str, way_out: str) -> None:
        self._url = url
        self._what = what
        self._way_out = way_out
        self._timer: asyncio.TimerHandle | None = None
        self._why = ""
        self._is_said = False

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        self.end()

    def begin(self, why: str = "") -> None:
        """It is waited for from now on, if it was not before. `why` names the server."""
        self._why = one_line(why or f"{self._url} has not replied", LONGEST_WHY)
        if self._timer is None and not self._is_said:
            self._timer = asyncio.get_running_loop().call_later(LATE, self._say)

    def end(self) -> None:
        """The server has said something, or nobody waits any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """The next wait is another one, of which is said again."""
        self._is_said = False

    def _say(self) -> None:
        self._timer, self._is_said = None, True
        log.warning("server_waits for=%s why=%s; %s", self._what, self._why, self._way_out)
