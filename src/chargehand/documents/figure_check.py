"""Figures that name their source, and the check that looks them up there."""

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from chargehand.decisions.task_and_state_words import counted
from chargehand.documents.cited_passages import Passage, passages_of
from chargehand.documents.numbers_in_text import (
    CURRENCIES,
    currencies_in,
    has_unit_beside,
    names_unit,
    numbers_in,
    read_number,
    runs_in,
    split_scale,
    unit_words,
)
from chargehand.errors import ToolError
from chargehand.tools.files import FileTools
from chargehand.tools.safe_open import PathLike, Roots
from chargehand.tools.sql_tables import Queried, TableStore

_LINES = re.compile(r"(?P<path>.+?):(?P<first>[0-9]{1,9})(?:-(?P<last>[0-9]{1,9}))?")
_SEVERAL = re.compile(r":[0-9]+\s*[,;]")
#: amounts in these units have two decimal places, unless they are whole numbers
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "€", "$", "£")
#: longest duration of a query
_LONGEST = timedelta(seconds=30)
#: limits of a fault message: numbers of the source that it lists, characters of a value
_MOST_LISTED, _MOST_SHOWN = 5, 200
#: numbers with more digits are shown with an exponent
_MOST_DIGITS = 40


class Figure(BaseModel):
    """A number or a short text from the data, with the place where it stands.

    Use it in the model of a typed result (`output=…`), so that an LLM must name the source of each figure.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: a number, or a date or term as written in the source
    value: Annotated[
        int | float | str, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})
    ]
    unit: str = ""
    source: str = Field(
        description="where the value stands: path:line or path:line-line, or sql: and a query over the "
        "tables that gives exactly this one value"
    )

    def __str__(self) -> str:
        value = shown_value(self.value)
        if self.unit in _CURRENCIES and not isinstance(self.value, str):
            whole, point, cents = value.partition(".")
            value = f"{whole}{point}{cents.ljust(2, '0')}" if point else whole  # 34.90 EUR
        return f"{value} {self.unit}".strip()


class CheckedFigure(Struct, frozen=True):
    """A figure after the check. `fault` says why it was not found in its source; it is empty if it was found."""

    figure: Figure
    fault: str = ""


class FigureCheck:
    """Looks up figures in the files and tables that they name.

    check = FigureCheck("data")
    faults = [each for each in check.all(figures_in(result.output)) if each.fault]
    """

    def __init__(self, root: PathLike | Sequence[PathLike]) -> None:
        roots = Roots(root)
        self._files = FileTools(roots)
        self._tables = TableStore(roots, _LONGEST)

    def all(self, figures: Iterable[Figure]) -> list[CheckedFigure]:
        """Check figures. All queries run in one process."""
        listed = list(figures)
        queries = list(dict.fromkeys(sql for each in listed if (sql := _query_of(each))))
        found = dict(zip(queries, self._answers_of(queries), strict=True))
        lines: dict[str, list[str]] = {}
        return [
            CheckedFigure(each, self._fault_of(each, found.get(_query_of(each)), lines))
            for each in listed
        ]

    def fault(self, figure: Figure) -> str:
        """Why the figure was not found in its source; empty if it was found."""
        return self.all([figure])[0].fault

    def _answers_of(self, queries: Sequence[str]) -> Sequence[Queried | ToolError]:
        try:
            return self._tables.query_values(queries) if queries else []
        except ToolError as error:  # there are no tables
            return [error] * len(queries)

    def _fault_of(
        self, figure: Figure, answer: Queried | ToolError | None, lines: dict[str, list[str]]
    ) -> str:
        if isinstance(figure.value, str):
            if not any(each.isalnum() for each in figure.value):
                return "the figure is empty: it has neither letters nor digits"
        elif not _is_finite(figure.value):
            return f"{figure.value} is not a number that a source can hold"
        if answer is not None:
            return _fault_in_answer(figure, answer)
        source = figure.source.strip()
        cited = _LINES.fullmatch(source)
        if _SEVERAL.search(source):
            return (
                f"{_clipped(source)!r} names several sources: cite one of them, or a range of lines"
            )
        if cited is None:
            return f"{_clipped(source)!r} is not a source: write path:line, or sql: and a query"
        try:
            return self._fault_in_lines(figure, cited, lines)
        except ToolError as error:
            return f"{source}: {error}"

    def _fault_in_lines(
        self, figure: Figure, cited: re.Match[str], known: dict[str, list[str]]
    ) -> str:
        path, first = cited["path"], int(cited["first"])
        last = int(cited["last"] or first)
        if path not in known:  # numbered as in the tools read_file and search_files
            known[path] = self._files.text(path).removesuffix("\n").split("\n")
        lines = known[path]
        if first < 1 or last < 1:
            return f"{cited[0]}: there is no line 0, lines are counted from 1"
        if first > last:
            return f"{cited[0]} ends before it begins: write {path}:{last}-{first}"
        if last > len(lines):
            return f"{path} has {counted(len(lines), 'line')}: there is no line {last}"
        passages = passages_of(path, lines, first, last)
        number = _exact(figure.value)
        if number is None:
            if not figure.unit:  # a quotation may span several cells
                passages.append(Passage("\n".join(lines[first - 1 : last])))
            return _fault_of_text(figure, passages, cited[0])
        return _fault_of_number(figure, number, passages, cited[0])


def _query_of(figure: Figure) -> str:
    """The SQL query of a figure; empty if its source is a file."""
    source = figure.source.strip()
    return source[4:].strip() if source[:4].casefold() == "sql:" else ""


# Figures in lines: the exact value, next to its unit


def _fault_of_number(
    figure: Figure, number: Decimal, passages: Sequence[Passage], place: str
) -> str:
    scale, unit = split_scale(figure.unit)
    wanted, others, is_there = Fraction(number) * scale, [], False
    for passage in passages:
        for each in numbers_in(passage.text):
            if each.value != wanted:
                others.append(passage.text[each.start : each.end])
            elif (not unit and not each.is_glued) or (
                unit and _has_unit(passage, passage.text, each.start, each.end, unit)
            ):
                return ""
            else:
                is_there = True
    if is_there and unit:
        return f"{shown_value(figure.value)} is in {place}, but not with the unit {unit}"
    listed = ", ".join(list(dict.fromkeys(others))[:_MOST_LISTED])
    there = f"; these numbers are: {listed}" if listed else ", which has no numbers"
    shown = str(figure) if scale != 1 else shown_value(figure.value)
    return f"{_clipped(shown)} is not in {place}{there}"


def _fault_of_text(figure: Figure, passages: Sequence[Passage], place: str) -> str:
    wanted = " ".join(str(figure.value).split())
    left, right = (r"\b" if each.isalnum() else "" for each in (wanted[0], wanted[-1]))
    pattern = re.compile(f"{left}{re.escape(wanted)}{right}", re.IGNORECASE)
    is_there = False
    for passage in passages:
        text = " ".join(passage.text.split())
        runs = runs_in(text)
        for found in pattern.finditer(text):
            if _is_cut(runs, *found.span()):
                continue
            if not figure.unit or _has_unit(passage, text, *found.span(), figure.unit):
                return ""
            is_there = True
    if is_there:
        return f"{_clipped(wanted)} is in {place}, but not with the unit {figure.unit}"
    return f"{_clipped(wanted)} is not in {place}"


def _has_unit(passage: Passage, text: str, start: int, end: int, unit: str) -> bool:
    """Whether the unit is next to the value, in a cell of its row, or in the name of its column."""
    return (
        has_unit_beside(text, start, end, unit)
        or names_unit(passage.heading, unit)
        or any(unit_words(cell) == unit_words(unit) for cell in passage.row)
    )


def _is_cut(runs: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    """Whether this part of a text begins or ends inside a number, such as `5 mg` in 15 mg or in 2.5 mg."""
    near = runs[max(0, bisect_right(runs, (start, start)) - 1) : bisect_right(runs, (end, end))]
    return any(first < start < last or first < end < last for first, last in near)


# Figures of queries: one value, rounded to the precision of the figure


def _fault_in_answer(figure: Figure, answer: Queried | ToolError) -> str:
    sql = _query_of(figure)
    if isinstance(answer, ToolError):
        return f"sql: {sql}: {answer}"
    if not answer.tables:
        return f"the query reads no table of the data: {sql}"
    if len(answer.rows) != 1 or len(answer.rows[0]) != 1:
        columns = f"{len(answer.rows[0])} columns" if answer.rows else "no row"
        given = "several rows" if len(answer.rows) > 1 else columns
        return f"the query gives {given} instead of one value: {sql}"
    found = answer.rows[0][0]
    if found is None:
        return f"the query gives no value (NULL): {sql}"
    scale, unit = split_scale(figure.unit)
    if not _is_same(figure.value, scale, found):
        given = str(found) if isinstance(found, bool | str) else shown_value(found)
        return f"the query gives {_clipped(given)}, not {_clipped(shown_value(figure.value))}"
    named = currencies_in(sql)
    stated = CURRENCIES & set(unit_words(unit))
    if named and stated and not stated & named:
        return f"the query is about {' and '.join(sorted(named))}, not {unit}"
    return ""


def _is_same(stated: float | str, scale: int, found: object) -> bool:
    """Whether a stated value equals the result of a query, rounded to the decimal places of the stated value."""
    if isinstance(stated, str) and isinstance(found, str) and _squeezed(stated) == _squeezed(found):
        return True
    if isinstance(found, bool):
        return isinstance(stated, str) and _squeezed(stated) == str(found).casefold()
    wanted = _exact(stated)
    given = _exact(found) if isinstance(found, int | float | str) else None
    if wanted is None or given is None:
        return False
    step = Fraction(scale) / 10 ** max(0, -int(wanted.as_tuple().exponent))
    return bool(abs(Fraction(wanted) * scale - Fraction(given)) <= step / 2)


def _is_finite(value: float) -> bool:
    return isinstance(value, int) or math.isfinite(
        value
    )  # some integers are too large for isfinite


def _exact(value: float | str) -> Decimal | None:
    """The value as an exact number with its decimal places; None if it is a text."""
    if isinstance(value, str):
        return read_number(value)
    if not _is_finite(value):
        return None
    number = Decimal(value if isinstance(value, int) else repr(value))
    whole = number.to_integral_value()
    return whole if whole == number else number  # 3500.0 is stated without decimal places


def figures_in(value: Any) -> list[Figure]:
    """All figures in a typed result, at any depth, in order."""
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


def shown_value(value: float | str) -> str:
    """A value as shown in a document: with all its digits, and no others."""
    number = None if isinstance(value, str) else _exact(value)
    if number is None:
        return str(value)
    if number and not -_MOST_DIGITS < number.adjusted() < _MOST_DIGITS:
        return str(number.normalize()).lower()
    return f"{number:,f}"


def _clipped(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _squeezed(text: str) -> str:
    return " ".join(text.split()).casefold()
