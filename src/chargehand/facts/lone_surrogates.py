"""Lone surrogates: halves of characters, which a Python `str` can hold but UTF-8 and journals cannot.

Models write them, mostly as escapes in JSON. In all text from models, U+FFFD replaces each of them.
"""

import re

_HALF = re.compile(r"[\ud800-\udfff]")
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
#: matches whole escapes, so that `\\ud800` (an escaped backslash and five letters) is not taken for a surrogate
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_LONE = len(r"\ud800")


def without_surrogates(text: str) -> str:
    """The text with U+FFFD in place of each lone surrogate."""
    if text.isascii():
        return text
    try:
        text.encode()  # many times faster than searching for surrogates
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text)
    return text


def without_escaped_surrogates(json: str) -> str:
    """JSON, or text with JSON in it, with U+FFFD in place of each lone surrogate, escaped or not."""
    text = without_surrogates(json)
    if _ESCAPED_HALF.search(text) is None:
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _LONE else found[0], text)
