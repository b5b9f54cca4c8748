"""Documents with sections, tables and charts, as Markdown and as one HTML page.

The page has no scripts and no external resources. Each figure has the number of its source; the list of sources at the
end says whether the figure was found there.
"""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.decisions.task_and_state_words import counted
from chargehand.documents import block_argument_checks as arguments
from chargehand.documents.charts import NOT_FOUND, bar_chart_svg, line_chart_svg
from chargehand.documents.figure_check import Figure, FigureCheck, shown_value
from chargehand.documents.safe_markdown import markdown_line, prose_html, prose_markdown
from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.facts.events import RunStatus
from chargehand.presentation.display_text import clean
from chargehand.result import RunResult

Cell: TypeAlias = "str | int | float | Figure"
#: in characters: longest text in a column of numbers, longest figure without line breaks, length of a long text
_MOST_WORDS, _UNBROKEN, _LONG = 16, 16, 80
_LARGEST = 10**300
_ENDINGS = (".md", ".html")


class Paragraph(Struct, frozen=True):
    """Text with figures: `Paragraph(["We spent ", total, " on energy."])`."""

    parts: Sequence[Cell]

    def __post_init__(self) -> None:
        force_setattr(self, "parts", arguments.cells(self.parts, "a Paragraph"))


class Bullets(Struct, frozen=True):
    """A list of points, each a string or a sequence of strings and figures; `numbered` if their order matters."""

    points: Sequence[str | Sequence[Cell]]
    numbered: bool = False

    def __post_init__(self) -> None:
        points = [self.points] if isinstance(self.points, str) else self.points
        listed = arguments.listed(points, "the points of Bullets")
        checked = [
            each if isinstance(each, str) else arguments.cells(each, f"point {n} of Bullets")
            for n, each in enumerate(listed, 1)
        ]
        force_setattr(self, "points", checked)


class Callout(Struct, frozen=True):
    """An important notice, such as a contradiction between two sources."""

    title: str
    parts: Sequence[Cell] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "title", arguments.text(self.title, "the title of a Callout"))
        what = f"Callout {self.title!r}"
        force_setattr(self, "parts", arguments.cells(self.parts, what))


class Table(Struct, frozen=True):
    """A table with column names. Columns of numbers are right-aligned.

    Plain numbers in a column get the same number of decimal places; a figure is shown as it is stated.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "caption", arguments.text(self.caption, "the caption of a Table"))
        what = f"table {self.caption!r}" if self.caption else "the table"
        named = [
            arguments.text(each, f"a column of {what}")
            for each in arguments.listed(self.columns, f"the columns of {what}")
        ]
        force_setattr(self, "columns", named)
        force_setattr(self, "rows", arguments.rows(self.rows, named, what))


class BarChart(Struct, frozen=True):
    """A chart with one bar per label."""

    title: str
    bars: Sequence[tuple[str, Figure]]

    def __post_init__(self) -> None:
        force_setattr(self, "title", arguments.text(self.title, "the title of a BarChart"))
        force_setattr(self, "bars", arguments.bars(self.bars, f"chart {self.title!r}"))


class LineChart(Struct, frozen=True):
    """A chart with one line per name, which has a figure for each point of the axis; None leaves a gap."""

    title: str
    axis: Sequence[str]
    lines: Mapping[str, Sequence[Figure | None]]

    def __post_init__(self) -> None:
        force_setattr(self, "title", arguments.text(self.title, "the title of a LineChart"))
        what = f"chart {self.title!r}"
        axis = arguments.listed(self.axis, f"the axis of {what}")
        named = [arguments.text(each, f"a point of the axis of {what}") for each in axis]
        force_setattr(self, "axis", named)
        force_setattr(self, "lines", arguments.lines(self.lines, named, what))


class Section(Struct, frozen=True):
    """A heading."""

    title: str

    def __post_init__(self) -> None:
        force_setattr(self, "title", arguments.text(self.title, "the title of a Section"))


Block: TypeAlias = Section | Paragraph | Bullets | Callout | Table | BarChart | LineChart | str


class Document:
    """A document made from a run: the blocks, then the gaps of the answer, then the sources.

    `data` is the folder in which figures are looked up. Without `data`, figures are not checked.
    """

    def __init__(
        self,
        title: str,
        blocks: Sequence[Block],
        *,
        result: RunResult | None = None,
        data: "str | Path | None" = None,
        label: str = "",
    ) -> None:
        self.title = arguments.text(title, "the title of a document")
        self.blocks = _checked(blocks, f"document {self.title!r}")
        self.label = arguments.text(label, f"the label of document {self.title!r}")
        self._result = result
        #: all figures, in the order of the document
        self.figures = list(dict.fromkeys(_figures_of(self.blocks)))
        self._number = {figure: place for place, figure in enumerate(self.figures, 1)}
        check = None if data is None else FigureCheck(data)
        #: why each checked figure was not found in its source; empty if it was found
        self.faults = {e.figure: e.fault for e in check.all(self.figures)} if check else {}

    @property
    def _unfound(self) -> set[Figure]:
        return {figure for figure, fault in self.faults.items() if fault}

    def write(self, path: "str | Path") -> tuple[Path, Path]:
        """Write PATH.md and PATH.html, and return both paths. An ending .md or .html of PATH is replaced."""
        base = _base(path)
        markdown, html = (base.with_name(base.name + ending) for ending in _ENDINGS)
        made = (markdown, self.markdown()), (html, self.html())
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            for target, text in made:
                target.write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            why = getattr(error, "strerror", None) or error
            raise UsageError(
                f"{str(base)!r} cannot be written: {why}; choose another path"
            ) from None
        return markdown, html

    # Markdown

    def markdown(self) -> str:
        """The document as Markdown. Charts become tables."""
        parts = [f"# {markdown_line(self.title)}"]
        if self.label:
            parts.append(f"*{markdown_line(self.label)}*")
        parts += [self._markdown_of(block) for block in (*self._opening(), *self.blocks)]
        parts += [
            f"## {title}\n\n" + "\n".join(f"- {markdown_line(e)}" for e in lines)
            for title, lines in self._ending()
        ]
        if self.figures:
            sources = [
                f"{n}. {markdown_line(source)}" for n, source in enumerate(self._sources(), 1)
            ]
            parts.append("## Sources\n\n" + "\n".join(sources))
        return "\n\n".join(parts) + "\n"

    def _markdown_of(self, block: Block) -> str:
        match block:
            case Table(rows=[]) | BarChart(bars=[]) | LineChart(axis=[]) | Bullets(points=[]):
                return _nothing_for(block)
            case str():
                return prose_markdown(block)
            case Section():
                return f"## {markdown_line(block.title)}"
            case Paragraph():
                return self._words(block.parts)
            case Bullets():
                return "\n".join(
                    f"{f'{n}.' if block.numbered else '-'} {self._words(_parts(each))}"
                    for n, each in enumerate(block.points, 1)
                )
            case Callout():
                return f"> **{markdown_line(block.title)}** {self._words(block.parts)}".rstrip()
            case Table():
                return self._markdown_table(block.columns, block.rows, block.caption)
            case BarChart():
                return self._markdown_table(("", block.title), block.bars, "")
            case LineChart():
                rows = _points(block)
                return self._markdown_table(("", *block.lines), rows, block.title)

    def _markdown_table(
        self, columns: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str
    ) -> str:
        lines = [[markdown_line(each) for each in columns], ["---"] * len(columns)]
        lines += [[self._words([cell]) for cell in row] for row in _evened(rows)]
        table = "\n".join(
            "| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines
        )
        return f"**{markdown_line(caption)}**\n\n{table}" if caption else table

    def _words(self, parts: Sequence[Cell]) -> str:
        return "".join(
            f"{markdown_line(str(each), keep=True)} [{self._number[each]}{self._mark(each)}]"
            if isinstance(each, Figure)
            else markdown_line(_shown(each), keep=True)
            for each in parts
        )

    def _mark(self, figure: Figure) -> str:
        return f": {NOT_FOUND}" if self.faults.get(figure) else ""

    # HTML

    def html(self) -> str:
        """The document as one HTML page without scripts or external resources."""
        body = [f"<h1>{escape(self.title)}</h1>"]
        if self.label:
            body.append(f'<p class="label">{escape(self.label)}</p>')
        body += [self._html_of(block) for block in (*self._opening(), *self.blocks)]
        for title, lines in self._ending():
            items = "".join(f"<li>{escape(each)}</li>" for each in lines)
            body.append(f"<h2>{escape(title)}</h2><ul>{items}</ul>")
        if self.figures:
            items = "".join(
                f'<li id="s{n}" class="{"bad" if self.faults.get(figure) else ""}">{escape(source)}</li>'
                for n, (figure, source) in enumerate(
                    zip(self.figures, self._sources(), strict=True), 1
                )
            )
            body.append(f'<h2>Sources</h2><ol class="sources">{items}</ol>')
        return clean(
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width">'
            '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
            "style-src 'unsafe-inline'\">"
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style></head>\n"
            f"<body><main>{''.join(body)}</main></body></html>\n"
        )

    def _html_of(self, block: Block) -> str:
        match block:
            case Table(rows=[]) | BarChart(bars=[]) | LineChart(axis=[]) | Bullets(points=[]):
                return f'<p class="label">{_lines(_nothing_for(block))}</p>'
            case str():
                return prose_html(block)
            case Section():
                return f"<h2>{escape(block.title)}</h2>"
            case Paragraph():
                return f"<p>{self._spans(block.parts)}</p>"
            case Bullets():
                tag = "ol" if block.numbered else "ul"
                points = "".join(f"<li>{self._spans(_parts(each))}</li>" for each in block.points)
                return f"<{tag}>{points}</{tag}>"
            case Callout():
                return f"<aside><strong>{escape(block.title)}</strong> {self._spans(block.parts)}</aside>"
            case Table():
                return self._html_table(block)
            case BarChart():
                drawn = bar_chart_svg(block.title, block.bars, self._unfound)
                marks = " ".join(
                    self._spans([name, " ", each]) + "<br>" for name, each in block.bars
                )
                return _drawn(block.title, drawn, marks)
            case LineChart():
                table = Table(("", *block.lines), _points(block))
                return _drawn(
                    block.title,
                    line_chart_svg(block.title, block.axis, block.lines, self._unfound),
                    self._html_table(table),
                )

    def _html_table(self, table: Table) -> str:
        sides = [_side(column) for column in zip_longest(*table.rows, fillvalue="")]
        head = "".join(
            f"<th{side}>{escape(each)}</th>"
            for side, each in zip_longest(sides, table.columns, fillvalue="")
        )
        rows = (
            "<tr>"
            + "".join(
                f"<td{side or _width(cell)}>{self._spans([cell])}</td>"
                for side, cell in zip(sides, row, strict=True)
            )
            + "</tr>"
            for row in _evened(table.rows)
        )
        caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
        return (
            f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>'
            f"<tbody>{''.join(rows)}</tbody></table></div>"
        )

    def _spans(self, parts: Sequence[Cell]) -> str:
        return "".join(
            f'<span class="{self._class_of(each)}" title="{escape(each.source)}">'
            f'{escape(str(each))}<sup><a href="#s{self._number[each]}">{self._number[each]}</a></sup></span>'
            if isinstance(each, Figure)
            else _lines(_shown(each))
            for each in parts
        )

    def _class_of(self, figure: Figure) -> str:
        short = " short" if len(str(figure)) <= _UNBROKEN else ""
        return f"figure{short}{' bad' if self.faults.get(figure) else ''}"

    # The beginning and end of each document

    def _opening(self) -> list[Block]:
        """A warning if the run did not succeed, at the top, where readers of the first lines see it."""
        if self._result is None or self._result.status is RunStatus.SUCCEEDED:
            return []
        gaps = len(self._result.answer.gaps)
        missing = (
            f": {counted(gaps, 'part')} of it {'is' if gaps == 1 else 'are'} missing, listed at the end"
            if gaps
            else ""
        )
        words = f"The run ended {self._result.status.value}{missing}. Facts that are missing here may still exist."
        return [Callout("This document is incomplete.", [words])]

    def _ending(self) -> list[tuple[str, list[str]]]:
        """Gaps, figures that were not found, contradictions, and facts about the run; without empty lists."""
        if self._result is None:
            return []
        result, answer = self._result, self._result.answer
        missing = [str(gap) for gap in answer.gaps]
        unfound = [f"{each}: {fault}" for each, fault in self.faults.items() if fault]
        made = [
            f"Run {result.id}: {result.status.value}",
            f"Confidence: {answer.confidence:.2f} of 1",
            f"Composed by: {answer.by}",
            f"Model calls: {result.usage.calls}",
        ]
        if self.faults:
            found = len(self.figures) - len(unfound)
            made.append(f"Figures found in their sources: {found} of {len(self.figures)}")
        endings = [
            ("What is missing", missing),
            ("Figures that were not found in their sources", unfound),
            ("Contradictions", [f"{e.first}, but: {e.second}" for e in answer.contradictions]),
            ("How this was made", made),
        ]
        return [(title, lines) for title, lines in endings if lines]

    def _sources(self) -> list[str]:
        return [
            f"{figure}: {figure.source}"
            + (f" (NOT FOUND: {fault})" if (fault := self.faults.get(figure)) else "")
            for figure in self.figures
        ]


def _checked(blocks: Any, document: str) -> list[Block]:
    kinds = (Section, Paragraph, Bullets, Callout, Table, BarChart, LineChart, str)
    given = [blocks] if isinstance(blocks, kinds) else blocks
    found = arguments.listed(given, f"the blocks of {document}")
    for number, block in enumerate(found, 1):
        if not isinstance(block, kinds):
            names = ", ".join(each.__name__ for each in kinds[:-1])
            raise UsageError(
                f"block {number} of {document} is {shown(block)}; give a text or one of {names}, or leave it out"
            )
    return list(found)


def _base(path: "str | Path") -> Path:
    """The path without .md or .html. `with_suffix` alone would map report.2023 and report.2024 to the same file."""
    if not isinstance(path, str | PathLike):
        raise UsageError(f"a document cannot be written to {shown(path)}; give a path")
    base = Path(path)
    if base.name in ("", "..", *_ENDINGS):
        raise UsageError(
            f"a document cannot be written to {str(path)!r}, which names no file; give it a name"
        )
    return base.with_suffix("") if base.suffix in _ENDINGS else base


def _figures_of(blocks: Sequence[Block]) -> list[Figure]:
    cells: list[object] = []
    for block in blocks:
        match block:
            case Paragraph() | Callout():
                cells += block.parts
            case Bullets():
                cells += [cell for each in block.points for cell in _parts(each)]
            case Table():
                cells += [cell for row in block.rows for cell in row]
            case BarChart():
                cells += [figure for _, figure in block.bars]
            case LineChart():
                cells += [figure for line in block.lines.values() for figure in line]
    return [each for each in cells if isinstance(each, Figure)]


def _nothing_for(block: Table | BarChart | LineChart | Bullets) -> str:
    """The text for an empty block: a heading alone would look as if something is missing."""
    match block:
        case Table(caption=name) | BarChart(title=name) | LineChart(title=name) if name:
            return f"{markdown_line(name)}: this run has no entries for it."
        case _:
            return "This run has no entries for it."


def _parts(point: str | Sequence[Cell]) -> Sequence[Cell]:
    return [point] if isinstance(point, str) else point


def _points(chart: LineChart) -> list[list[Cell]]:
    return [
        [at, *("missing" if (point := line[i]) is None else point for line in chart.lines.values())]
        for i, at in enumerate(chart.axis)
    ]


def _drawn(title: str, drawn: str, words: str) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{drawn}"
        f"<details><summary>Figures and sources</summary>{words}</details></figure>"
    )


def _is_number(cell: Cell) -> bool:
    return not isinstance(cell.value if isinstance(cell, Figure) else cell, str)


def _side(column: Sequence[Cell]) -> str:
    """The CSS class of a column: right-aligned if most cells are numbers and the others are short, such as `none`."""
    words = [each for each in column if not _is_number(each) and each != ""]
    is_number = len(words) * 2 < len(column) and all(len(str(e)) <= _MOST_WORDS for e in words)
    return ' class="number"' if is_number and any(map(_is_number, column)) else ""


def _width(cell: Cell) -> str:
    """The CSS class of a cell: a date or code stays on one line, and a long text gets a wide column."""
    text = cell if isinstance(cell, str) else ""
    if len(text) > _LONG:
        return ' class="long"'
    return ' class="short"' if 0 < len(text) <= _UNBROKEN and " " not in text else ""


def _evened(rows: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """The rows with equal numbers of decimal places for the plain numbers of each column."""
    columns = [list(column) for column in zip_longest(*rows, fillvalue="")]
    for column in columns:
        plain = {i: each for i, each in enumerate(column) if isinstance(each, int | float)}
        shown = [_shown(each) for each in plain.values()]
        places = max((len(each.partition(".")[2]) for each in shown), default=0)
        if places and not any(letter.isalpha() for each in shown for letter in each):
            column[:] = [
                f"{plain[i]:,.{places}f}" if i in plain else e for i, e in enumerate(column)
            ]
    return [list(row) for row in zip(*columns, strict=True)]


def _shown(cell: Cell) -> str:
    if isinstance(cell, int) and abs(cell) > _LARGEST:  # too large for a float
        return shown_value(cell)
    return cell if isinstance(cell, str) else f"{cell:,.10g}"


def _lines(text: str) -> str:
    return escape(text).replace("\n", "<br>")


_STYLE = """
:root{color-scheme:light dark;--ink:#17191c;--ink2:#50565e;--bg:#fbfbfa;--panel:#fff;--line:#e3e4e2;--bar:#2f6fed;--bad:#cf3434;--note:#fbeeee}
@media (prefers-color-scheme:dark){:root{--ink:#eceef0;--ink2:#a9b0b8;--bg:#121416;--panel:#181b1e;--line:#2a2e33;--bar:#4c8bff;--bad:#ef5b5b;--note:#2a1c1e}}
body{font:15px/1.55 system-ui,sans-serif;margin:0;background:var(--bg);color:var(--ink)}
main{max-width:56rem;margin:2.5rem auto;padding:0 1.25rem;overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.25}h2{font-size:1.15rem;margin-top:2.2rem}h3{font-size:1rem;margin-top:1.6rem}pre{overflow-x:auto}
.label,caption,figcaption{color:var(--ink2)}caption,figcaption{text-align:left;margin-bottom:.4rem;font-weight:600}
table{border-collapse:collapse;width:100%;margin:1rem 0;background:var(--panel);font-size:.93rem}
th,td{border-bottom:1px solid var(--line);padding:.4rem .6rem;text-align:left;vertical-align:top;overflow-wrap:break-word}
.short{white-space:nowrap}.long{min-width:16rem}.number{text-align:right;font-variant-numeric:tabular-nums}td.number{white-space:nowrap}.wide{overflow-x:auto;margin:1rem 0}.wide table{margin:0}
figure{margin:1.2rem 0;padding:1rem;background:var(--panel);border:1px solid var(--line);border-radius:6px}
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .soft{fill:var(--ink2)}svg .bad{fill:var(--bad)}
details{margin-top:.6rem;color:var(--ink2)}summary{cursor:pointer}
aside{margin:1rem 0;padding:.8rem 1rem;border-left:3px solid var(--bad);background:var(--note)}
sup{line-height:0;white-space:nowrap}sup a{color:var(--ink2);text-decoration:none;padding:0 .15em}.bad{color:var(--bad)}.sources{color:var(--ink2);font-size:.88rem;overflow-wrap:anywhere}
:target{background:var(--note)}
@media print{main{max-width:none;margin:0}}
"""
