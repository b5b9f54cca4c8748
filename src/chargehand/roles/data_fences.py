"""Data in prompts: requests, results and notes, fenced off so that nothing in them passes for their end."""

import re
from collections.abc import Sequence
from typing import Any

from chargehand.facts.value import canonical

# Models take more than "\n" for the end of a line, and forgive a border its ornaments.
_BORDER = re.compile(
    r"(^|[\r\v\f\x1c-\x1e\x85\u2028\u2029])(?!\| )(?=[^a-zA-Z0-9\n]{0,20}(?:BEGIN|END)\b)",
    re.MULTILINE,
)

#: characters of what an earlier run was asked and answered
LONGEST_EARLIER = 30_000
#: characters of a request that is told once more
REPEATED = 4_000


def fenced(name: str, value: Any) -> str:
    """The value in words between a line BEGIN and a line END of this name."""
    border = " ".join(name.split())
    return f"BEGIN {border}\n{quoted(words_of(value))}\nEND {border}\n"


def quoted(text: str) -> str:
    """The text, with a mark before every line that could be taken for a border."""
    return _BORDER.sub(r"\1| ", text)


def words_of(value: Any) -> str:
    """A result as a model reads it: text as it is, anything else as JSON."""
    return value if isinstance(value, str) else canonical(value).decode()


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
