"""What went wrong with a server, as a value: many callers may have to be told of the same thing."""

import re
from datetime import timedelta

from msgspec import Struct

from chargehand.errors import ToolError

#: of what a server says about its own errors
LONGEST_WORDS = 1_000
#: colours and the like of a terminal
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: box drawing and block elements, with which a program draws frames around a traceback
_FRAMES = re.compile(r"[\u2500-\u259f]")


class ServerFailure(Struct, frozen=True):
    """A failure and its class."""

    text: str
    kind: str = "network"
    retry_after: timedelta | None = None

    def error(self) -> ToolError:
        return ToolError(self.text, kind=self.kind, retry_after=self.retry_after)


def last_line(text: str) -> str:
    """The last line of this output that says something, without the frame around it; empty if none does."""
    for line in reversed(_ESCAPES.sub("", text).splitlines()):
        words = brief_words(_FRAMES.sub(" ", line).strip(" \t|+"))
        if any(each.isalnum() for each in words):
            return words
    return ""


def brief_words(text: str) -> str:
    """A server's words on one line, without the end if they are many."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"
