"""Logs a warning when a server does not reply within a second."""

import asyncio
import logging
from types import TracebackType
from typing import Self

from chargehand.presentation.display_text import one_line

log = logging.getLogger("chargehand")

#: seconds until a wait is logged
LATE = 1.0
LONGEST_WHY = 300


class ServerWait:
    """One wait for a server, logged once. Async code calls `begin` and, when the server replies, `end`; or uses `with`.

    `what` names what the client waits for; `way_out` says how the wait ends.
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
        """Start the wait, unless it has started already. `why` is the reason, which names the server."""
        self._why = one_line(why or f"{self._url} has not replied", LONGEST_WHY)
        if self._timer is None and not self._is_said:
            self._timer = asyncio.get_running_loop().call_later(LATE, self._say)

    def end(self) -> None:
        """End the wait: the server has replied, or the client has stopped waiting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """Log the next wait again."""
        self._is_said = False

    def _say(self) -> None:
        self._timer, self._is_said = None, True
        log.warning("server_waits for=%s why=%s; %s", self._what, self._why, self._way_out)
