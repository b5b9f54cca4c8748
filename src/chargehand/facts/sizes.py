"""Sizes as people write them: 500MB, 2GB, 1.5 GiB."""

import re

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import LARGEST

_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(?:(k|m|g|t)(i)?b?|b)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def size_of(text: str) -> int:
    """The bytes in a text such as 500MB, 2GB or 1.5GiB; never zero. GB is 1000³, GiB is 1024³."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a size with a unit; write 500MB, 2GB or 1.5GiB")
    number, unit, is_binary = found.groups()
    base, power = 1024 if is_binary else 1000, _POWERS[(unit or "").lower()]
    size = round(float(number) * float(base) ** power)
    if not 1 <= size <= LARGEST:
        raise UsageError(
            f"{text!r} is not a size that a journal can have; write 500MB, 2GB or 1.5GiB"
        )
    return size


def shown_size(size: int) -> str:
    """A size in a few characters: 812 B, 4.1 kB, 2.0 GB."""
    if size < 1000:
        return f"{size} B"
    shown = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        shown /= 1000
        if shown < 999.95 or unit == "TB":
            break
    return f"{shown:.1f} {unit}"
