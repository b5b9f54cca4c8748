"""Figures that name their source, and the check that finds each one there."""

import csv
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from fractions import Fraction
from typing import Any, TypeAlias

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from chargehand.errors import ToolError
from chargehand.tools.files import FileTools
from chargehand.tools.safe_open import PathLike, Roots
from chargehand.tools.sql_tables import TableStore

_LINES = re.compile(r"(?P<path>.+?):(?P<first>\d+)(?:-(?P<last>\d+))?")
_NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?")
#: a figure in a text, with its source behind it in brackets
_CITED = re.compile(
    r"(?P<value>[-−]?\d[\w./:,-]*|\"[^\"\n]+\")(?: (?P<unit>[^\s\d\[\]]\S*))? \[(?P<source>[^\[\]\s]+:\d+(?:-\d+)?|sql: [^\[\]]+)\]"
)
#: with two digits after the point, unless the amount is whole
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "€", "$", "£")
#: rows that a query gives, or why there are none
Found: TypeAlias = "list[list[Any]] | ToolError"
#: of a query
_LONGEST = timedelta(seconds=30)


class Figure(BaseModel):
    """A number or a short text from the data, with the place where it stands.

    Use it in the model of a typed result (`output=…`), so that an LLM must name the source of each figure.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: a number, or a date or term as it stands in the source
    value: float | str
    unit: str = ""
    source: str = Field(
        description="where the value stands: path:line or path:line-line, or sql: and a query over the "
        "tables that gives exactly this one value"
    )

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else f"{self.value:,.10g}"
        if self.unit in _CURRENCIES and not isinstance(self.value, str):
            whole, point, cents = value.partition(".")
            value = f"{whole}{point}{cents.ljust(2, '0')}" if point else whole  # 34.90 EUR
        return f"{value} {self.unit}".strip()


class CheckedFigure(Struct, frozen=True):
    """A figure, and why it was not found in its source; empty: it was."""

    figure: Figure
    fault: str = ""


class FigureCheck:
    """Finds figures in the files and tables that they name.

    check = FigureCheck("data")
    faults = [each for each in check.all(figures_in(result.output)) if each.fault]
    """

    def __init__(self, root: PathLike | Sequence[PathLike]) -> None:
        roots = Roots(root)
        self._files = FileTools(roots)
        self._tables = TableStore(roots, _LONGEST)

    def all(self, figures: Iterable[Figure]) -> list[CheckedFigure]:
        """Each figure with the fault that was found. All queries run in one process."""
        listed = list(figures)
        queries = list(dict.fromkeys(sql for each in listed if (sql := _query_of(each))))
        found = dict(zip(queries, self._values_of(queries), strict=True))
        return [
            CheckedFigure(
                each,
                _fault_in_rows(each, sql, found[sql])
                if (sql := _query_of(each))
                else self._fault_in_files(each),
            )
            for each in listed
        ]

    def fault(self, figure: Figure) -> str:
        """Why the figure is not found in its source; empty if it is."""
        return self.all([figure])[0].fault

    def _values_of(self, queries: Sequence[str]) -> Sequence[Found]:
        try:
            return self._tables.query_values(queries) if queries else []
        except ToolError as error:  # there are no tables at all
            return [error] * len(queries)

    def _fault_in_files(self, figure: Figure) -> str:
        source = figure.source.strip()
        try:
            lines = _LINES.fullmatch(source)
            if lines is None:
                return f"{source!r} is not a source: write path:line, or sql: and a query"
            return self._fault_in_lines(figure, lines)
        except ToolError as error:
            return f"{source}: {error}"

    def _fault_in_lines(self, figure: Figure, lines: re.Match[str]) -> str:
        path, first = lines["path"], int(lines["first"])
        last = int(lines["last"] or first)
        text = self._files.text(path).splitlines()
        if not 1 <= first <= last <= len(text):
            return f"{path} has {len(text)} lines: there is no line {max(first, last)}"
        cited_lines = text[first - 1 : last]
        told = "\n".join(cited_lines)
        if isinstance(figure.value, str):
            is_there = _squeezed(figure.value) in _squeezed(told)
        else:
            if path.lower().endswith(".csv"):  # where a comma ends a cell, and divides no thousands
                told = "\n".join(cell for row in csv.reader(cited_lines) for cell in row)
            numbers = (each.replace(",", "").replace("−", "-") for each in _NUMBER.findall(told))
            is_there = any(_is_same(figure.value, float(each)) for each in numbers)
        return "" if is_there else f"{_shown(figure.value)} does not stand in {lines[0]}"


def _query_of(figure: Figure) -> str:
    """The query that gives the figure; empty: its source is a file."""
    source = figure.source.strip()
    return source[4:].strip() if source[:4].casefold() == "sql:" else ""


def _fault_in_rows(figure: Figure, sql: str, rows: Found) -> str:
    if isinstance(rows, ToolError):
        return f"sql: {sql}: {rows}"
    if len(rows) != 1 or len(rows[0]) != 1:
        return f"the query gives {len(rows)} rows instead of one value: {sql}"
    found = rows[0][0]
    if _is_same(figure.value, found):
        return ""
    return f"the query gives {found}, not {_shown(figure.value)}"


def figures_in(value: Any) -> list[Figure]:
    """All figures of a typed result, in order, wherever they stand in it."""
    match value:
        case Figure():
            return [value]
        case BaseModel():
            return figures_in([getattr(value, name) for name in type(value).model_fields])
        case dict():
            return figures_in(list(value.values()))
        case list() | tuple():
            return [figure for each in value for figure in figures_in(each)]
    return []


def cited(text: str) -> "list[str | Figure]":
    """The parts of a text, with its figures: numbers, dates and "quotations" that have a source behind them.

    cited("It fell to 49 mL/min [labs.csv:36].")  # "It fell to ", Figure(value=49, unit="mL/min", …), "."
    """
    parts: list[str | Figure] = []
    end = 0
    for found in _CITED.finditer(text):
        said = found["value"].strip('"')
        plain = said.replace(",", "").replace("−", "-")
        value = float(plain) if _NUMBER.fullmatch(said) else said
        figure = Figure(value=value, unit=found["unit"] or "", source=found["source"])
        parts += [text[end : found.start()], figure]
        end = found.end()
    parts.append(text[end:])
    return [part for part in parts if part != ""]


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"


def _squeezed(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_same(stated: float | str, found: object) -> bool:
    """Whether a stated figure is the one that was found, rounded as it is stated."""
    try:
        wanted, given = Fraction(str(stated)), Fraction(str(found))
    except (ValueError, ZeroDivisionError):
        return _squeezed(str(stated)) == _squeezed(str(found))
    digits = str(stated).rstrip("0").partition(".")[2]
    return abs(wanted - given) <= Fraction(1, 2 * 10 ** len(digits))
