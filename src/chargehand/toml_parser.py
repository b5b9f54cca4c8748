"""Reads TOML that a person wrote: whatever is wrong with it is one line that names the file."""

import re
import tomllib
from typing import Any, TypeAlias

from chargehand.errors import UsageError

#: as many digits as Python turns into a number; tomllib names no line for more
_MOST_DIGITS = 4_300
_LONG_NUMBER = re.compile(rf"[0-9_]{{{_MOST_DIGITS + 1},}}")
#: dots in one key; tomllib takes minutes for thousands, as it looks at every beginning of a key
_MOST_DOTS = 100
_PART = r"(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')"
_LONG_KEY = re.compile(
    rf"^[ \t\[]*{_PART}(?:[ \t]*\.[ \t]*{_PART}){{{_MOST_DOTS + 1}}}", re.MULTILINE
)
#: integers that TOML promises; a larger one would fail wherever it is written out again
_LEAST, _MOST = -(2**63), 2**63 - 1


_Place: TypeAlias = "tuple[_Place, str | int] | None"


def toml_document(data: bytes, name: str) -> dict[str, Any]:
    """The document in these bytes. Raises `UsageError`, which begins with the name of the file."""
    try:
        text = data.decode("utf-8-sig")  # some editors put a mark first
        if found := _LONG_KEY.search(text):
            line = text.count("\n", 0, found.start()) + 1
            raise UsageError(f"{name}: the key in line {line} has more than {_MOST_DOTS} dots")
        document = tomllib.loads(text)
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{name} is nested too deep to be read; take brackets out of it") from None
    except ValueError:
        raise _too_large(name, _place_of_number(data)) from None
    _refuse_large_numbers(document, name)
    return document


def _refuse_large_numbers(document: dict[str, Any], name: str) -> None:
    # The keys on the way to a value, the last one first, as pairs: joined only for the one that is refused.
    open_: list[tuple[_Place, object]] = [(None, document)]
    while open_:
        place, value = open_.pop()
        match value:
            case dict():
                open_ += [((place, key), each) for key, each in value.items()]
            case list():
                open_ += [((place, number), each) for number, each in enumerate(value)]
            case int() if not _LEAST <= value <= _MOST:
                raise _too_large(name, _joined(place))


def _joined(place: "_Place") -> str:
    keys: list[str | int] = []
    while place is not None:
        place, key = place
        keys.append(key)
    first, *rest = reversed(keys)
    return str(first) + "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in rest)


def _place_of_number(data: bytes) -> str:
    found = _LONG_NUMBER.search(data.decode("utf-8", "replace"))
    return f"line {found.string.count(chr(10), 0, found.start()) + 1}" if found else "a number"


def _too_large(name: str, place: str) -> UsageError:
    return UsageError(
        f"{name}: {place} is larger than any integer of TOML (64 bits); write a smaller number"
    )
