"""A failure of a server, as a value, because many callers may get the same failure."""

import re
from datetime import timedelta

from msgspec import Struct

from chargehand.errors import ToolError

#: characters of a server's own error message
LONGEST_WORDS = 1_000
#: terminal escape sequences, such as colours
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
#: box drawing and block elements, with which a program draws frames around a traceback
_FRAMES = re.compile(r"[\u2500-\u259f]")


class ServerFailure(Struct, frozen=True):
    """A failure and its error class."""

    text: str
    kind: str = "network"
    retry_after: timedelta | None = None

    def error(self) -> ToolError:
        return ToolError(self.text, kind=self.kind, retry_after=self.retry_after)


def last_line(text: str) -> str:
    """The last line that contains a letter or digit, without a frame around it; empty if there is none."""
    for line in reversed(_ESCAPES.sub("", text).splitlines()):
        words = brief_words(_FRAMES.sub(" ", line).strip(" \t|+"))
        if any(each.isalnum() for each in words):
            return words
    return ""


def brief_words(text: str) -> str:
    """The text on one line, cut to `LONGEST_WORDS` characters."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"
