"""Building blocks of SVG pictures: colours and icons of states, in light and dark, and text that fits.

A picture is self-contained and follows the reader's colour scheme. All text in it is escaped.
"""

import unicodedata
from collections.abc import Iterable
from datetime import timedelta
from html import escape

from chargehand.presentation.display_text import clean

LIGHT = {
    "bg": "#FBFBFA", "panel": "#FFFFFF", "line": "#E3E4E2", "ink": "#17191C", "ink2": "#50565E", "ink3": "#6B727B",
    "running": "#2F6FED", "retrying": "#8B4FD9", "failed": "#CF3434", "done": "#2A855A", "done-soft": "#CBE5D8",
    "done-ink": "#1B573B", "needs": "#C2500A", "on-needs": "#FFFFFF", "ready": "#8F969E", "waiting": "#B4B9BF",
    "on-solid": "#FFFFFF",
}  # fmt: skip
DARK = {
    "bg": "#121416", "panel": "#181B1E", "line": "#2A2E33", "ink": "#ECEEF0", "ink2": "#A9B0B8", "ink3": "#8A929B",
    "running": "#4C8BFF", "retrying": "#B07CF2", "failed": "#EF5B5B", "done": "#3FA876", "done-soft": "#22503B",
    "done-ink": "#B4E3CB", "needs": "#FF8A33", "on-needs": "#17191C", "ready": "#868E97", "waiting": "#4C535B",
    "on-solid": "#0E1113",
}  # fmt: skip
#: state → colours of fill, border and text; finished tasks are pale, active ones solid, waiting ones dashed
BOXES = {
    "waiting": ("panel", "waiting", "ink2"),
    "ready": ("panel", "ready", "ink"),
    "running": ("running", "", "on-solid"),
    "retrying": ("retrying", "", "on-solid"),
    "needs you": ("needs", "", "on-needs"),
    "done": ("done-soft", "", "done-ink"),
    "failed": ("failed", "", "on-solid"),
    "skipped": ("bg", "line", "ink3"),
    "cancelled": ("bg", "line", "ink3"),
}
#: state → path of its icon, in a square of ±5
_ICONS = {
    "ready": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0",
    "waiting": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0",
    "running": "M0 -4A4 4 0 0 1 4 0A4 4 0 0 1 0 4",
    "retrying": "M3.6 -1.2A4 4 0 1 1 .2 -4M-1.6 -6L.8 -4L-1.6 -2",
    "needs you": "M0 -4.5L5 4H-5Z",
    "done": "M-4 .2L-1.2 3L4 -3",
    "failed": "M-3.2 -3.2L3.2 3.2M3.2 -3.2L-3.2 3.2",
    "skipped": "M-3.5 0H3.5",
    "cancelled": "M4 0A4 4 0 1 1 -4 0A4 4 0 1 1 4 0M-2.8 2.8L2.8 -2.8",
}
_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
#: widths of character classes as a share of the font size: measured for a 12.5 px system font, rounded up
_NARROW, _USUAL, _BROAD, _DOUBLE = 0.33, 0.57, 0.8, 1.05


def svg(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """A complete picture. Its styles are bound to its class, so that they do not affect the surrounding page."""
    light = ";".join(f"--{name}:{colour}" for name, colour in LIGHT.items())
    dark = ";".join(f"--{name}:{colour}" for name, colour in DARK.items())
    style = (
        f".chargehand-svg{{{light};font-family:{_FONT};font-variant-numeric:tabular-nums}}"
        f"@media (prefers-color-scheme:dark){{.chargehand-svg{{{dark}}}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chargehand-svg" role="img" aria-label="{escaped(label)}" '
        f'width="{number(width)}" height="{number(height)}" viewBox="0 0 {number(width)} {number(height)}">'
        f'<style>{style}</style><rect width="100%" height="100%" rx="6" style="fill:var(--bg)"/>'
        f"{''.join(parts)}</svg>"
    )


def box(
    x: float, y: float, width: float, height: float, state: str, *, is_critical: bool = False
) -> str:
    """The rectangle of a task. On the critical path, it has a bold outline in the colour `ink`."""
    fill, border, _ = BOXES[state]
    stroke, weight = ("ink", 2.25) if is_critical else (border, 1.25)
    style = f"fill:var(--{fill})"
    if stroke:
        style += f";stroke:var(--{stroke});stroke-width:{weight}"
        style += ";stroke-dasharray:4 3" if state == "waiting" else ""
    radius = number(min(6, width / 2, height / 4))
    return (
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" rx="{radius}" '
        f'style="{style}"/>'
    )


def icon(x: float, y: float, state: str, colour: str, scale: float = 1) -> str:
    fill = f"var(--{colour})" if state == "needs you" else "none"
    dash = ";stroke-dasharray:.1 3.14" if state == "waiting" else ""
    return (
        f'<path transform="translate({number(x)} {number(y)}) scale({number(scale)})" d="{_ICONS[state]}" '
        f'style="fill:{fill};stroke:var(--{colour});stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round{dash}"/>'
    )


def text(
    x: float,
    y: float,
    words: str,
    colour: str,
    *,
    size: float = 11,
    is_bold: bool = False,
    anchor: str = "",
) -> str:
    """Text at its baseline. `x` is the start of the text, or its `anchor`: "end" or "middle"."""
    more = f' text-anchor="{anchor}"' if anchor else ""
    weight = ";font-weight:600" if is_bold else ""
    return (
        f'<text x="{number(x)}" y="{number(y)}" font-size="{number(size)}"{more} '
        f'style="fill:var(--{colour}){weight}">{escaped(words)}</text>'
    )


def escaped(words: str) -> str:
    """Escape text for XML, including characters that would rearrange or hide text."""
    return escape(clean(words).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd"))


def fitted(words: str, room: float, size: float = 11, *, is_bold: bool = False) -> str:
    """The words in one line of about `room` pixels, cut with an ellipsis."""
    size *= 1.17 if is_bold else 1
    line = " ".join(clean(words).split())
    if text_width(line, size) <= room:
        return line
    left = room - size * _BROAD
    for at, each in enumerate(line):
        left -= _share(each) * size
        if left < 0:
            return line[:at].rstrip() + "…" if at > 1 else ""
    return line


def text_width(words: str, size: float = 11) -> float:
    """The approximate width of a text in a system font, in pixels."""
    return size * sum(map(_share, words))


def _share(each: str) -> float:
    if each in "iljtfr.,:;'|!()[] ":
        return _NARROW
    if unicodedata.east_asian_width(each) in "WF":
        return _DOUBLE
    return _BROAD if each in "mwMW@%…" or each.isupper() else _USUAL


def duration_words(length: timedelta | float) -> str:
    """4.2 s, 38 s, 12 min, 3 h 20 min."""
    seconds = length.total_seconds() if isinstance(length, timedelta) else length
    if seconds < 0.95:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def number(value: float) -> str:
    """A number with at most one decimal, without trailing zeros."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
