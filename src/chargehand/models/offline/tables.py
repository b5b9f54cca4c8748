"""Tables, and the plain questions about them that rules can answer."""

import csv
import io
import re
from typing import Any

from msgspec import Struct

from chargehand.models.offline.words import term, terms, word_set, words

MOST_ROWS = 50_000

_SEPARATED = re.compile(r"^[^,;\t\n]*(?:[,;\t][^,;\t\n]*)+$")
_UP = word_set("highest most largest maximum max top greatest best biggest longest")
_DOWN = word_set("lowest least smallest minimum min fewest worst shortest cheapest")
_PRICED = word_set("expensive dearest cheapest cheap costly")
_MEAN = word_set("average mean")
_SUM = word_set("total sum altogether overall")


class Row(Struct, frozen=True):
    where: str
    cells: tuple[str, ...]


class Table(Struct, frozen=True):
    """Rows under named columns."""

    name: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]

    def told(self, row: Row) -> str:
        return "; ".join(f"{n}: {cell}" for n, cell in zip(self.head, row.cells, strict=False))

    def numbers(self, column: int) -> list[tuple[float, Row]]:
        found = []
        for row in self.rows:
            try:
                found.append((float(row.cells[column].replace(",", "").strip("$€£% ")), row))
            except (ValueError, IndexError):
                continue
        return found


def table_in(name: str, text: str, first: int = 1) -> Table | None:
    """The table that a text is; None if it is none."""
    lines = text.strip("\n").split("\n")
    if len(lines) < 2 or not all(_SEPARATED.match(line) for line in lines[:20] if line):
        return None
    if any(re.search(r"[,;]\s\w", line) for line in lines[:20]):
        return None  # commas of sentences, not of columns
    mark = max(",;\t", key=lines[0].count)
    reader = csv.reader(io.StringIO(text.strip("\n")), delimiter=mark)
    try:
        head = tuple(next(reader))
        rows: list[Row] = []
        for cells in reader:
            if len(cells) == len(head) and len(rows) < MOST_ROWS:
                rows.append(Row(f"{name}:{reader.line_num + first - 1}", tuple(cells)))
    except csv.Error:
        return None
    return Table(name, head, tuple(rows)) if rows else None


def columns_in(name: str, value: Any) -> Table | None:
    """The table in what a query returned: columns and rows."""
    if not isinstance(value, dict):
        return None
    head, rows = value.get("columns"), value.get("rows")
    if not isinstance(head, list) or not isinstance(rows, list) or not rows:
        return None
    if not all(isinstance(row, list) for row in rows):
        return None
    shown = tuple(Row(name, tuple(map(str, row))) for row in rows[:MOST_ROWS])
    return Table(name, tuple(map(str, head)), shown)


def computed(table: Table, question: str) -> str | None:
    """The answer to a question for an extreme, a mean or a sum of a column; None if it is none."""
    question = question.replace(table.name, "")  # the name of a file is not that of a column
    asked = set(words(question))
    column = _column(table, question, asked)
    if column is None or not (numbers := table.numbers(column)):
        return None
    name = table.head[column]
    if asked & (_UP | _DOWN | {"expensive", "dearest"}):
        is_low = bool(asked & _DOWN)
        _, row = (min if is_low else max)(numbers, key=lambda each: each[0])
        return f"{'Lowest' if is_low else 'Highest'} {name}: {table.told(row)} [{row.where}]"
    total = sum(number for number, _ in numbers)
    if asked & _MEAN:
        return f"Mean {name} of {len(numbers)} rows: {total / len(numbers):g} [{table.name}]"
    if asked & _SUM:
        return f"Sum of {name} over {len(numbers)} rows: {total:g} [{table.name}]"
    return None


def _column(table: Table, question: str, asked: set[str]) -> int | None:
    wanted = set(terms(question))
    if asked & _PRICED:
        wanted.add(term("price"))
    for number, name in enumerate(table.head):
        if wanted & set(terms(name)) and table.numbers(number):
            return number
    return None
