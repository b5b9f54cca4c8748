"""Checks the contents of blocks when they are created, so that the traceback of a fault shows where it was written."""

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

from chargehand.documents.figure_check import Figure
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown


def text(value: object, what: str) -> str:
    """A name or heading. Numbers, such as years on an axis, become text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Real):
        return str(value)
    raise UsageError(f"{what} is {shown(value)}, not a text; write it in quotes")


def cells(value: Any, what: str) -> Sequence[Any]:
    """A sequence of texts, numbers and figures. A single one becomes a sequence, and a generator is read to its end."""
    found = [value] if isinstance(value, str | Figure | Real | Decimal) else listed(value, what)
    for number, cell in enumerate(found, 1):
        if not isinstance(cell, str | Figure | Real | Decimal):
            raise UsageError(
                f"{what}, part {number}, is {shown(cell)}; give a text, a number or a Figure, "
                "and '' where there is nothing"
            )
    return found


def listed(value: Any, what: str) -> Sequence[Any]:
    """A sequence, which can be iterated twice: for Markdown and for HTML."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    if isinstance(value, str | bytes | Mapping | Figure) or not isinstance(value, Iterable):
        raise UsageError(f"{what} is {shown(value)}; give a list")
    return list(value)


def rows(value: Any, columns: Sequence[str], table: str) -> Sequence[Sequence[Any]]:
    """The rows of a table, each with one cell per column."""
    found = []
    for number, row in enumerate(listed(value, f"the rows of {table}"), 1):
        what = f"row {number} of {table}"
        made = cells(listed(row, what), what)
        if len(made) != len(columns):
            fill = "name a column for each" if len(made) > len(columns) else "fill it up with ''"
            raise UsageError(f"{what} has {len(made)} cells for {len(columns)} columns; {fill}")
        found.append(made)
    return found


def bars(value: Any, chart: str) -> Sequence[tuple[str, Figure]]:
    """Pairs of a label and a figure that can be drawn."""
    found = []
    for number, bar in enumerate(listed(value, f"the bars of {chart}"), 1):
        what = f"bar {number} of {chart}"
        pair = listed(bar, what)
        if len(pair) != 2:
            raise UsageError(f"{what} is {shown(bar)}; give a label and a Figure")
        label = text(pair[0], f"the label of {what}")
        found.append((label, drawable(pair[1], f"{chart}: {label!r}", "leave the bar out")))
    return found


def lines(value: Any, axis: Sequence[str], chart: str) -> Mapping[str, Sequence[Figure | None]]:
    """Lines, each with a figure or None for each point of the axis."""
    if not isinstance(value, Mapping):
        raise UsageError(f"the lines of {chart} are {shown(value)}; give a dict: name to figures")
    found: dict[str, Sequence[Figure | None]] = {}
    for key, given in value.items():
        name = text(key, f"the name of a line of {chart}")
        what = f"{chart}: line {name!r}"
        line = listed(given, what)
        if len(line) != len(axis):
            raise UsageError(
                f"{what} has {len(line)} figures for {len(axis)} points of the axis; "
                "give one for each, and None where it is missing"
            )
        for at, each in zip(axis, line, strict=True):
            if each is not None:
                drawable(each, f"{what} at {at!r}", "give None where it is missing")
        found[name] = line
    return found


def drawable(value: Any, what: str, way_out: str) -> Figure:
    """A figure that can be drawn in a chart: finite, or a text, which is shown without a bar or point."""
    if not isinstance(value, Figure):
        raise UsageError(f"{what} is {shown(value)}; give a Figure, or {way_out}")
    number = value.value
    if isinstance(number, float) and not math.isfinite(number):
        raise UsageError(f"{what}: {number} cannot be drawn; {way_out}")
    return value
