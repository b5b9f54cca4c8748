"""The address of an MCP server, and its settings: secrets, timeouts, restarts."""

import os
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import Span, count, duration, usually
from chargehand.tools.base import LIMIT
from chargehand.tools.mcp.server_failure import ServerFailure
from chargehand.tools.redaction import SHORTEST_SECRET, Redactor

#: the only environment variables that a server's process inherits
INHERITED = ("PATH", "HOME", "LANG")
#: longest wait before a restart
LONGEST_BACKOFF = timedelta(seconds=10)
_SECRET_NAME = re.compile(r"key|token|secret|pass|auth|credential|cookie", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server that chargehand starts, and talks to over its standard input and output."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None

    def __post_init__(self) -> None:
        if not self.command or not all(self.command):
            raise UsageError("command= is empty; give a list: the program, then its arguments")

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def server(self) -> str:
        """Empty: a program is not a known recipient; see `destination`."""
        return ""

    @property
    def destination(self) -> None:
        """None, because it is unknown: a program may send its input anywhere."""

    @property
    def environment(self) -> dict[str, str]:
        ours = {name: os.environ[name] for name in INHERITED if name in os.environ}
        return ours | dict(self.env)

    @property
    def redactor(self) -> Redactor:
        return _redactor(self.env)


@dataclass(frozen=True, slots=True)
class ServerEndpoint:
    """A server that runs elsewhere and is reached over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("url= must be an http or https address of an MCP server")
        if parts.username or parts.password:
            raise UsageError("url= holds a password; send it with headers= instead")

    @property
    def name(self) -> str:
        return self.destination

    @property
    def server(self) -> str:
        """The whole URL, because one host may have several servers."""
        return self.url

    @property
    def destination(self) -> str:
        """The host that gets the arguments of a tool call."""
        return urlsplit(self.url).hostname or ""

    @property
    def redactor(self) -> Redactor:
        return _redactor(self.headers)


def _redactor(values: Mapping[str, str]) -> Redactor:
    """A redactor for values with names of secrets; for `Bearer x`, also for x."""
    secrets: dict[str, str] = {}
    for name, value in values.items():
        if _SECRET_NAME.search(name):
            secrets |= {name: value, f"{name}*": value.partition(" ")[2]}
    return Redactor({name: v for name, v in secrets.items() if len(v) >= SHORTEST_SECRET})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTimeouts:
    """How long a server may take; numbers are seconds."""

    #: from the start until both sides have agreed on a protocol version
    connect: Span = usually(timedelta(seconds=30))
    #: to list all tools
    listing: Span = usually(timedelta(seconds=30))
    #: to run one tool
    call: Span = usually(timedelta(seconds=60))

    def __post_init__(self) -> None:
        for name in ("connect", "listing", "call"):
            object.__setattr__(self, name, duration(getattr(self, name), f"Timeouts: {name}"))

    @property
    def whole(self) -> timedelta:
        """The longest that one call may take, including the time to detect and replace a hanging server."""
        return self.listing + LONGEST_BACKOFF + self.connect + self.listing + self.call


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """Limits restarts: at most `most` in any `window`, with exponential backoff."""

    most: int = 3
    window: Span = usually(timedelta(minutes=5))
    backoff: Span = usually(timedelta(milliseconds=200))

    def __post_init__(self) -> None:
        count(self.most, "Restarts: most", most=1_000)
        object.__setattr__(self, "window", duration(self.window, "Restarts: window"))
        backoff = duration(self.backoff, "Restarts: backoff", may_be_zero=True)
        object.__setattr__(self, "backoff", backoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """The settings of a server."""

    name: str
    prefix: str = ""
    timeouts: ServerTimeouts = field(default_factory=ServerTimeouts)
    restarts: Restarts = field(default_factory=Restarts)
    trust_hints: bool = False
    limit: int = LIMIT
    #: workers may read its resources, and planners see their names
    resources: bool = False


class RestartBudget:
    """Counts the restarts of one server. All times are seconds of one monotonic clock."""

    def __init__(self, terms: Restarts) -> None:
        self._terms = terms
        self._ends: deque[float] = deque(maxlen=terms.most + 1)

    def note_end(self, at: float) -> None:
        """Record that a connection ended or could not be made."""
        self._ends.append(at)

    def delay(self, now: float) -> float:
        """How many seconds to wait before the next start."""
        recent = self._recent(now)
        if not recent:
            return 0.0
        seconds = self._terms.backoff.total_seconds() * 2.0 ** (recent - 1)
        return min(seconds, LONGEST_BACKOFF.total_seconds())

    def refusal(self, now: float, name: str) -> ServerFailure | None:
        """The failure if the server may not be started now; None if it may."""
        if self._recent(now) <= self._terms.most:
            return None
        window = self._terms.window
        wait = window - timedelta(seconds=now - self._ends[0])
        return ServerFailure(
            f"MCP server {name!r} ended {len(self._ends)} times within {window.total_seconds():g} s "
            f"and is not started again for {wait.total_seconds():.0f} s",
            retry_after=wait,
        )

    def _recent(self, now: float) -> int:
        window = self._terms.window.total_seconds()
        return sum(1 for at in self._ends if now - at < window)
