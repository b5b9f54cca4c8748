"""Reads the lines that a source cites as passages: text, or table cells with the names of their columns."""

import csv
import re
from collections.abc import Sequence

from msgspec import Struct

from chargehand.errors import ToolError


class Passage(Struct, frozen=True):
    """A text that can contain a figure; for a table cell, also the texts that can contain its unit."""

    text: str
    #: name of the cell's column
    heading: str = ""
    #: all cells of its row
    row: tuple[str, ...] = ()


def passages_of(path: str, lines: Sequence[str], first: int, last: int) -> list[Passage]:
    """The passages of lines `first` to `last`, counted from 1."""
    cited = lines[first - 1 : last]
    kind = path.rpartition(".")[2].lower()
    if kind in ("csv", "tsv"):
        return _cells_of_csv(path, lines[0], cited)
    cells: list[Passage] = []
    prose: list[str] = []
    for number, line in enumerate(cited, first - 1):
        if _is_row(line):
            heading = number
            while heading and _is_row(lines[heading - 1]):
                heading -= 1
            cells += _cells(_split(line), _split(lines[heading]))
        else:
            prose.append(line)
    text = "\n".join(prose).replace("**", "").replace("`", "")
    if kind in ("json", "jsonl", "ndjson"):  # here, a comma separates values, not thousands
        text = text.replace(",", " , ")
    return [Passage(text), *cells]


def _cells_of_csv(path: str, header: str, cited: Sequence[str]) -> list[Passage]:
    mark = max(",;\t|", key=header.count)
    try:
        heads, *rows = csv.reader([header, *cited], delimiter=mark)
    except csv.Error as error:
        raise ToolError(f"{path} cannot be read as a table: {error}") from None
    return [cell for row in rows for cell in _cells(row, heads)]


def _cells(row: Sequence[str], heads: Sequence[str]) -> list[Passage]:
    trimmed = tuple(cell.strip() for cell in row)
    padded = [*heads, *[""] * (len(row) - len(heads))]
    return [
        Passage(cell.replace("**", ""), "" if head == cell else head, trimmed)
        for cell, head in zip(trimmed, padded, strict=False)
    ]


def _is_row(line: str) -> bool:
    """Whether a line is a row of a Markdown table."""
    return line.lstrip().startswith("|") and line.count("|") > 1


def _split(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
