"""How a planner is told of a request: as data, with what came before it."""

from collections.abc import Sequence
from typing import Any

from chargehand.roles.data_fences import fenced, words_of

#: characters of what an earlier run was asked and answered
LONGEST_EARLIER = 30_000
#: characters of a request that is told once more
REPEATED = 4_000


def asked(request: str, earlier: Any = None, shape: dict[str, Any] | None = None) -> str:
    """The request as data, with what came before it and the shape its answer is to have."""
    told = "" if earlier is None else fenced("earlier", cut(words_of(earlier), LONGEST_EARLIER))
    wanted = "" if shape is None else fenced("shape", shape)
    return f"{told}{wanted}{fenced('request', request)}"


def with_notes(request: str, notes: Sequence[str]) -> str:
    """The request together with what people wanted of it later."""
    return "\n\n".join([request, *(f"Added later: {note}" for note in notes)])


def request_again(request: str) -> str:
    """The request for a later turn, so that it is not lost behind what came between."""
    return fenced("request", cut(request, REPEATED))


def cut(text: str, most: int) -> str:
    """The text, or as much of its beginning as there is room for, and that it was cut."""
    return text if len(text) <= most else f"{text[:most]}… [cut, {len(text)} characters in all]"
