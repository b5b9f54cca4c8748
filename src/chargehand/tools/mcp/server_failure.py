"""What went wrong with a server, as a value: many callers may have to be told of the same thing."""

from datetime import timedelta

from msgspec import Struct

from chargehand.errors import ToolError

#: of what a server says about its own errors
LONGEST_WORDS = 1_000


class ServerFailure(Struct, frozen=True):
    """A failure and its class."""

    text: str
    kind: str = "network"
    retry_after: timedelta | None = None

    def error(self) -> ToolError:
        return ToolError(self.text, kind=self.kind, retry_after=self.retry_after)


def brief_words(text: str) -> str:
    """A server's words on one line, without the end if they are many."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"
