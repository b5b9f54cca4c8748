"""Reads TOML that a person wrote: whatever is wrong with it is one line that names the file."""

import re
import tomllib
from typing import Any

from chargehand.errors import UsageError

#: as many digits as Python turns into a number; tomllib names no line for more
_MOST_DIGITS = 4_300
_LONG_NUMBER = re.compile(rf"[0-9_]{{{_MOST_DIGITS + 1},}}")
#: integers that TOML promises; a larger one would fail wherever it is written out again
_LEAST, _MOST = -(2**63), 2**63 - 1


def toml_document(data: bytes, name: str) -> dict[str, Any]:
    """The document in these bytes. Raises `UsageError`, which begins with the name of the file."""
    try:
        text = data.decode("utf-8-sig")  # some editors put a mark first
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{name} is nested too deep to be read; take brackets out of it") from None
    except ValueError:
        raise _too_large(name, _place_of_number(data)) from None
    _refuse_large_numbers(document, name)
    return document


def _refuse_large_numbers(document: dict[str, Any], name: str) -> None:
    open_: list[tuple[str, object]] = [("", document)]
    while open_:
        place, value = open_.pop()
        match value:
            case dict():
                open_ += [(f"{place}.{key}" if place else key, each) for key, each in value.items()]
            case list():
                open_ += [(f"{place}[{number}]", each) for number, each in enumerate(value)]
            case int() if not _LEAST <= value <= _MOST:
                raise _too_large(name, place)


def _place_of_number(data: bytes) -> str:
    found = _LONG_NUMBER.search(data.decode("utf-8", "replace"))
    return f"line {found.string.count(chr(10), 0, found.start()) + 1}" if found else "a number"


def _too_large(name: str, place: str) -> UsageError:
    return UsageError(
        f"{name}: {place} is larger than any integer of TOML (64 bits); write a smaller number"
    )
