"""Records a real run in a pseudo-terminal as an animated SVG: docs/terminal.svg, for the README and the docs.

`python docs/record_terminal.py` writes it. Frames are what the screen showed, with their times; it loads nothing from elsewhere.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.pseudo_terminal import Terminal, prepared_crew, terminal

OUTPUT = Path(__file__).parent / "terminal.svg"
COLUMNS, ROWS = 90, 26
#: pixels of a character
WIDE, HIGH = 7.8, 17
#: seconds between two looks at the screen, before the question is answered, and of the last frame
LOOK, THINKING, LAST = 0.25, 2.0, 4.0
#: of pyte's colours: what is drawn instead
INK = {"default": "#d7dade"}


class Shown(NamedTuple):
    """What the screen showed, and for how long."""

    seconds: float
    rows: tuple[str, ...]


def row_svg(screen: Terminal, number: int) -> str:
    """A row of the screen as SVG text, with a part for each colour."""
    row = screen.screen.buffer[number]
    parts: list[tuple[str, bool, str]] = []
    for column in range(COLUMNS):
        cell = row[column]
        style = (cell.fg, cell.bold)
        if parts and parts[-1][:2] == style:
            parts[-1] = (*style, parts[-1][2] + cell.data)
        else:
            parts.append((*style, cell.data))
    text = ""
    for colour, is_bold, words in parts:
        fill = INK.get(colour) or (f"#{colour}" if len(colour) == 6 else INK["default"])
        weight = ' font-weight="700"' if is_bold else ""
        text += f'<tspan fill="{fill}"{weight}>{escape(words)}</tspan>' if words.strip() else words
    return text.rstrip()


def recorded() -> list[Shown]:
    """The screens of one run, in order."""
    frames: list[Shown] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        args = prepared_crew(folder)
        began = time.monotonic()
        is_answered = False
        asked_at = 0.0
        with terminal(COLUMNS, ROWS, folder, *args) as shown:
            while shown.look(LOOK):
                now = time.monotonic()
                rows = tuple(row_svg(shown, number) for number in range(ROWS))
                if any(rows) and (not frames or rows != frames[-1].rows):
                    frames.append(Shown(now - began, rows))
                if "› █" in shown.shown() and not is_answered:
                    asked_at = asked_at or now
                    if now - asked_at > THINKING:
                        shown.type("2\r")
                        is_answered = True
            rows = tuple(row_svg(shown, number) for number in range(ROWS))
            frames.append(Shown(time.monotonic() - began, rows))
    return frames


def svg_of(frames: Sequence[Shown]) -> str:
    """The frames one after another, again and again. A row that stays is drawn once."""
    first = frames[0].seconds
    whole = frames[-1].seconds - first + LAST
    starts = [frame.seconds - first for frame in frames]
    ends = [*starts[1:], whole]
    body = ""
    for number in range(ROWS):
        stretches: list[tuple[float, float, str]] = []
        for start, end, frame in zip(starts, ends, frames, strict=True):
            row = frame.rows[number]
            if stretches and stretches[-1][2] == row:
                stretches[-1] = (stretches[-1][0], end, row)
            else:
                stretches.append((start, end, row))
        y = 42 + number * HIGH
        for start, end, row in stretches:
            if row:
                body += (
                    f'<text y="{y}" xml:space="preserve">{_timing(start, end, whole)}{row}</text>\n'
                )
    width, height = COLUMNS * WIDE + 28, ROWS * HIGH + 52
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="A run of chargehand in a terminal">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#15181b"/>\n'
        '<g fill="#3a4047"><circle cx="18" cy="16" r="5"/><circle cx="34" cy="16" r="5"/>'
        '<circle cx="50" cy="16" r="5"/></g>\n'
        f'<g transform="translate(14 0)" font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'
        f'DejaVu Sans Mono,monospace" font-size="13" fill="{INK["default"]}">\n{body}</g>\n</svg>\n'
    )


def _timing(start: float, end: float, whole: float) -> str:
    """Visible from start to end of each round; the last frame also where nothing is animated."""
    if end >= whole and start <= 0:
        return ""
    is_last = end >= whole
    values, times = ["hidden", "visible"], [0.0, start / whole]
    if start <= 0:
        values, times = ["visible"], [0.0]
    if not is_last:
        values.append("hidden")
        times.append(end / whole)
    told = ";".join(f"{each:.4f}" for each in times)
    return (
        f'<animate attributeName="visibility" calcMode="discrete" dur="{whole:.2f}s" '
        f'repeatCount="indefinite" values="{";".join(values)}" keyTimes="{told}"/>'
    )


if __name__ == "__main__":
    OUTPUT.write_text(svg_of(recorded()))
