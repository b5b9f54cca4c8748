"""Lone surrogates: halves of characters, which Python holds in a text and neither UTF-8 nor a journal can store.

Models write them, mostly as an escape in JSON. In all that a model writes, each is replaced by U+FFFD.
"""

import re

_HALF = re.compile(r"[\ud800-\udfff]")
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
#: each escape as a whole, so that `\\ud800`, a backslash and five letters, is not taken for one
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)",
    re.DOTALL,
)
_LONE = len(r"\ud800")


def without_surrogates(text: str) -> str:
    """The text as valid Unicode: U+FFFD stands for each lone surrogate."""
    if text.isascii():
        return text
    try:
        text.encode()  # many times faster than a search
    except UnicodeEncodeError:
        return _HALF.sub("\ufffd", text)
    return text


def without_escaped_surrogates(json: str) -> str:
    """JSON, or text with JSON in it, as valid Unicode: also where a lone surrogate is written as an escape."""
    text = without_surrogates(json)
    if _ESCAPED_HALF.search(text) is None:
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _LONE else found[0], text)
