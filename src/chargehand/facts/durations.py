"""Durations as people write them: 90s, 5m, 1h30m."""

import re
from datetime import timedelta

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import LONGEST

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def length_of(text: str) -> timedelta:
    """The duration in a text such as 90s, 5m or 1h30m; never zero."""
    written = text.strip().lower().replace(" ", "")
    parts = _PART.findall(written)
    if not parts or "".join(number + unit for number, unit in parts) != written:
        raise UsageError(f"{text!r} is not a length of time; write 90s, 5m, 1h30m or 30d")
    try:
        length = sum((timedelta(**{_UNITS[u]: float(n)}) for n, u in parts), timedelta(0))
    except OverflowError:
        length = timedelta.max
    if not length:
        raise UsageError(f"{text!r} is no time; write 90s, 5m, 1h30m or 30d")
    if length > LONGEST:
        raise UsageError(f"{text!r} is longer than anything can take; write 90s, 5m, 1h30m or 30d")
    return length


def shown_length(length: timedelta) -> str:
    """A duration in a few characters: 0.4s, 12s, 3m05s, 2h07m, 5d."""
    seconds = length.total_seconds()
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d"
