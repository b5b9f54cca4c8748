"""Figures in words, and tables with aligned columns, for terminals."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from chargehand.facts.outcome import Usage


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with aligned columns. Unprintable characters are left out, because names may come from a model."""
    cells = [["".join(filter(str.isprintable, cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width
        ).rstrip()
        for row in cells
    ]


def spent_in_words(usage: Usage) -> str:
    """Calls, tokens and money, without those that are 0."""
    parts = [counted(usage.calls, "call")] if usage.calls else []
    if usage.tokens_in or usage.tokens_out:
        parts.append(f"{usage.tokens_in:,} + {usage.tokens_out:,} tokens")
    if usage.money:
        places = 2 if usage.money >= 1 else 4 if usage.money >= 0.01 else 6
        parts.append(f"${usage.money:,.{places}f}")
    return ", ".join(parts)


def counted(number: int, what: str) -> str:
    """`1 attempt`, `2 attempts`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def time_in_words(length: timedelta) -> str:
    """A duration in a suitable unit, such as `350 ms`, `12.5 s` or `3 min 20 s`."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return (
        f"{minutes} min {seconds} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
    )
