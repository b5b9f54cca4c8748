"""Data inside prompts, fenced off: nothing in it can pass for the end of the data."""

import re
from typing import Any

from chargehand.facts.value import canonical

# Models take more than "\n" for the end of a line, and forgive a border its ornaments.
_BORDER = re.compile(
    r"(^|[\r\v\f\x1c-\x1e\x85\u2028\u2029])(?!\| )(?=[^a-zA-Z0-9\n]{0,20}(?:BEGIN|END)\b)",
    re.MULTILINE,
)


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
