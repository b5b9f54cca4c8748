"""Bar and line charts as SVG. Each bar and point has a title, for tooltips and screen readers."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from html import escape

from chargehand.documents.block_argument_checks import drawable
from chargehand.documents.figure_check import Figure

#: label of a figure that was not found in its source
NOT_FOUND = "not found"
#: label of a point of a line without a figure
MISSING = "missing"
_WIDTH, _LABEL, _ROW = 720, 210, 26
#: height and margin of a line chart
_HEIGHT, _EDGE = 260, 56
#: number of line names per row below the chart
_NAMES = 4
#: approximate number of steps on an axis; larger values or smaller ranges get no round numbers
_STEPS, _MOST, _LEAST = 3, 1e15, 1e-9
_COLOURS = ("var(--bar)", "#2a855a", "#8b4fd9", "#c2500a", "#6b727b", "#cf3434")


#: a number in quotes, as models write it
_NUMERAL = re.compile(r"[+-]?\d{1,40}(?:\.\d{1,40})?")


def bar_chart_svg(
    title: str, bars: Sequence[tuple[str, Figure]], unfound: Collection[Figure] = ()
) -> str:
    """Draw horizontal bars from a common zero line. Figures that were not found in their sources are marked."""
    values = [_number(each, title) for _, each in bars]
    known = [each for each in values if each is not None]
    low, high = min([Fraction(0), *known]), max([Fraction(0), *known])
    scale = (_WIDTH - _LABEL - 110) / ((high - low) or Fraction(1))
    zero = float(_LABEL - low * scale)
    rows = []
    for row, ((label, figure), value) in enumerate(zip(bars, values, strict=True)):
        y = row * _ROW
        # A text instead of a number, which only models give, is shown without a bar.
        length = 0.0 if value is None else max(float(abs(value) * scale), 1.0)
        x = zero if value is None or value >= 0 else zero - length
        is_bad = figure in unfound
        words = _words(figure, unfound)
        rows.append(
            f"<g><title>{escape(label)}: {escape(words)}</title>"
            f'<text x="{_LABEL - 8}" y="{y + 17}" text-anchor="end">{escape(_short(label))}</text>'
            f'<rect x="{x:.1f}" y="{y + 4}" width="{length:.1f}" height="18" rx="3" fill="var(--{"bad" if is_bad else "bar"})"/>'
            f'<text class="{"bad" if is_bad else "soft"}" x="{x + length + 6:.1f}" y="{y + 17}">{escape(words)}</text></g>'
        )
    return _svg(title, len(bars) * _ROW, rows)


def line_chart_svg(
    title: str,
    axis: Sequence[str],
    lines: Mapping[str, Sequence[Figure | None]],
    unfound: Collection[Figure] = (),
) -> str:
    """Draw lines over one axis. A line has a gap where a figure is missing or is not a number.

    A figure that is a text is shown as this text. Figures that were not found in their sources are marked.
    """
    numbers = {
        name: {
            i: number
            for i, each in enumerate(line)
            if each is not None and (number := _number(each, title)) is not None
        }
        for name, line in lines.items()
    }
    every = [value for line in numbers.values() for value in line.values()]
    ticks = _ticks(min(every, default=Fraction(0)), max(every, default=Fraction(1)))
    low, high = min(ticks), max(ticks)
    rise = (high - low) or Fraction(1)

    def x(place: int) -> float:
        return _EDGE + place * (_WIDTH - 2 * _EDGE) / max(len(axis) - 1, 1)

    def y(value: Fraction) -> float:
        return 16 + float((high - value) / rise * (_HEIGHT - 72))

    drawn = _axes(axis, ticks, x, y)
    for place, (name, line) in enumerate(numbers.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        drawn += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
            for part in _unbroken(line)
            for points in [" ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in part)]
        ]
        for i, at in enumerate(axis):
            figure = lines[name][i]
            is_bad = figure is None or figure in unfound
            words = _words(figure, unfound)
            title_ = f"<title>{escape(f'{name}, {at}: {words}')}</title>"
            if i in line:
                drawn += _point(x(i), y(line[i]), colour, title_, is_bad=is_bad)
            else:
                drawn.append(_note(x(i), 16 + 16 * place, words, title_, is_bad=is_bad))
        row, column = divmod(place, _NAMES)
        left, top = _EDGE + column * 160, _HEIGHT - 20 + row * 20
        drawn.append(
            f'<rect x="{left}" y="{top}" width="10" height="10" rx="2" fill="{colour}"/>'
            f'<text x="{left + 16}" y="{top + 9}">{escape(_short(name, 22))}</text>'
        )
    rows_below = max(len(numbers) - 1, 0) // _NAMES
    return _svg(title, _HEIGHT + 20 * rows_below, drawn)


def _words(figure: Figure | None, unfound: Collection[Figure]) -> str:
    if figure is None:
        return MISSING
    return f"{figure}, {NOT_FOUND}" if figure in unfound else str(figure)


def _point(x: float, y: float, colour: str, title: str, *, is_bad: bool) -> list[str]:
    fill = "var(--bad)" if is_bad else colour
    point = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{fill}">{title}</circle>'
    return [point, _note(x, y - 7, NOT_FOUND, is_bad=True)] if is_bad else [point]


def _note(x: float, y: float, words: str, title: str = "", *, is_bad: bool) -> str:
    """A text in a line chart, coloured as a warning if `is_bad`; `title` is its tooltip."""
    kind = "bad" if is_bad else "soft"
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">'
        f"{escape(_short(words))}{title}</text>"
    )


def _axes(
    axis: Sequence[str],
    ticks: Mapping[Fraction, str],
    x: Callable[[int], float],
    y: Callable[[Fraction], float],
) -> list[str]:
    """The values with their grid lines, and some of the point names below."""
    drawn = [
        f'<text class="soft" x="{_EDGE - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{label}</text>'
        f'<line x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
        for value, label in ticks.items()
    ]
    every_nth = max(1, len(axis) // 8)
    drawn += [
        f'<text class="soft" x="{x(i):.1f}" y="{_HEIGHT - 36}" text-anchor="middle">{escape(_short(at, 12))}</text>'
        for i, at in enumerate(axis)
        if i % every_nth == 0
    ]
    return drawn


def _unbroken(line: Mapping[int, Fraction]) -> list[list[tuple[int, Fraction]]]:
    """The points of a line, split at missing points."""
    parts: list[list[tuple[int, Fraction]]] = []
    for i, value in line.items():
        if i - 1 in line:
            parts[-1].append((i, value))
        else:
            parts.append([(i, value)])
    return parts


def _ticks(least: Fraction, greatest: Fraction) -> dict[Fraction, str]:
    """Round numbers that enclose the values, each with its label on the axis."""
    width = (greatest - least) or abs(greatest) or Fraction(1)
    if not (least > -_MOST and greatest < _MOST and width > _LEAST):
        return {each: _rounded(each) for each in (least, greatest)}
    low, high, rough = float(least), float(greatest), float(width) / _STEPS
    places = math.floor(math.log10(rough))
    step = next(s for s in (1, 2, 5, 10) if s * 10.0**places >= rough * 0.999) * 10.0**places
    first, last = math.floor(low / step + _LEAST), math.ceil(high / step - _LEAST)
    digits = max(0, -math.floor(math.log10(step) + _LEAST))
    return {
        Fraction(n * step): f"{n * step:,.{digits}f}"
        for n in range(first, max(last, first + 1) + 1)
    }


def _rounded(value: Fraction) -> str:
    """A number with four digits; it may be too large or too small for a float."""
    quotient = Decimal(value.numerator) / Decimal(value.denominator)
    return f"{quotient.normalize(Context(prec=4)):,g}"


def _svg(title: str, height: int, drawn: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">{"".join(drawn)}</svg>'


def _number(figure: Figure, chart: str) -> Fraction | None:
    """The exact value, because a float cannot hold 10**400 and overflows in a chart of 1e-320; None for a text."""
    value = drawable(figure, f"chart {chart!r}", "leave it out").value
    if isinstance(value, str):
        return Fraction(value.strip()) if _NUMERAL.fullmatch(value.strip()) else None
    return Fraction(value) if isinstance(value, int) else Fraction(float(value))


def _short(text: str, most: int = 30) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
