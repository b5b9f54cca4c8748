"""A full-text index over the passages of documents, in memory, updated when files change."""

import csv
import io
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from chargehand.errors import ToolError
from chargehand.tools.safe_open import Stamp

#: characters after which a passage ends at the next empty line
FULL = 400
LONGEST = 1_500
#: characters of all files together; files beyond the limit are listed as not searched
MOST_TEXT = 64 * 1024 * 1024
MOST_ROWS = 50_000

_HEADING = re.compile(r"#{1,6}\s+(.*)")
_WORD = re.compile(r"\w+")
_TABLE = """
create virtual table passage using fts5(
  text, heading, path, file unindexed, line unindexed, tokenize = 'porter unicode61 remove_diacritics 2'
)
"""
_ADD = "insert into passage (text, heading, path, file, line) values (?, ?, ?, ?, ?)"
_DROP = "delete from passage where file = ?"
# The best score is the smallest. Hits in headings and file names count more.
_FIND = """
select file, line, heading, text from passage where passage match ?
order by bm25(passage, 1.0, 2.0, 1.5), file, line limit ?
"""


class IndexedPassage(NamedTuple):
    """Lines of a file that belong together, and where they begin."""

    line: int
    heading: str
    text: str


class FoundPassage(NamedTuple):
    """A passage that matches a query."""

    where: str
    heading: str
    text: str


class PassageIndex:
    """Finds passages by BM25. Thread-safe: one search runs at a time."""

    def __init__(self, read: Callable[[str], str]) -> None:
        """`read` returns the text of a file, by its path, or raises `ToolError`."""
        import apsw  # imported here, because it is large and many workers never search

        self._read = read
        self._lock = threading.Lock()
        self._table = apsw.Connection(":memory:")
        self._table.execute(_TABLE)
        self._known: dict[str, Stamp] = {}
        self._sizes: dict[str, int] = {}
        self._unread: dict[str, str] = {}

    def search(
        self, query: str, most: int, files: Iterable[tuple[str, Stamp]]
    ) -> list[FoundPassage]:
        """The best passages. First indexes the files that are new or have changed."""
        words = list(dict.fromkeys(_WORD.findall(query)))[:64]
        if not words:
            raise ToolError("the query holds no words; say what to look for")
        # Each word is quoted, so no word is an operator of the query language.
        match = " OR ".join(f'"{word}"' for word in words)
        with self._lock:
            self._refresh(dict(files))
            rows = self._table.execute(_FIND, (match, most))
            return [
                FoundPassage(f"{file}:{line}", heading, text) for file, line, heading, text in rows
            ]

    @property
    def unread(self) -> dict[str, str]:
        """Files that could not be searched, and why."""
        return dict(self._unread)

    def _refresh(self, files: dict[str, Stamp]) -> None:
        changed = [path for path, stamp in files.items() if self._known.get(path) != stamp]
        gone = self._known.keys() - files.keys()
        if not changed and not gone:
            return
        with self._table:
            for path in (*gone, *changed):
                self._drop(path)
            for path in changed:
                self._add(path)
                self._known[path] = files[path]

    def _drop(self, path: str) -> None:
        self._known.pop(path, None)
        self._unread.pop(path, None)
        if self._sizes.pop(path, None) is not None:
            self._table.execute(_DROP, (path,))

    def _add(self, path: str) -> None:
        try:
            text = self._read(path)
        except ToolError as error:
            self._unread[path] = str(error)
            return
        if sum(self._sizes.values()) + len(text) > MOST_TEXT:
            self._unread[path] = "there is too much text in all"
            return
        self._sizes[path] = len(text)
        named = " ".join(_WORD.findall(path.replace("_", " ")))
        rows = ((p.text, p.heading, named, path, p.line) for p in passages_of(path, text))
        self._table.executemany(_ADD, rows)


def passages_of(path: str, text: str) -> Iterator[IndexedPassage]:
    """The passages of a document: paragraphs under their headings, or the rows of a table."""
    if path.lower().endswith((".csv", ".tsv")):
        return _rows(text)
    return _paragraphs(text)


def _rows(text: str) -> Iterator[IndexedPassage]:
    dialect = "excel-tab" if "\t" in text.partition("\n")[0] else "excel"
    reader = csv.reader(io.StringIO(text), dialect)
    try:
        names = next(reader, [])
        line = reader.line_num + 1
        for row in reader:
            cells = zip(names, row, strict=False)
            yield IndexedPassage(
                line, "", "; ".join(f"{name}: {cell}" for name, cell in cells)[:LONGEST]
            )
            line = reader.line_num + 1
            if line > MOST_ROWS:
                return
    except csv.Error:
        yield from _paragraphs(text)  # not a table after all


def _paragraphs(text: str) -> Iterator[IndexedPassage]:
    heading, begin, size = "", 1, 0
    block: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        title = _HEADING.match(line)
        is_end = title is not None or (not line.strip() and size > FULL) or size > LONGEST
        if is_end and size:
            yield from _passage(begin, heading, block)
            block, size = [], 0
        if title:
            heading = title[1].strip()
        if not block:
            begin = number
        if block or line.strip():
            block.append(line)
            size += len(line)
    yield from _passage(begin, heading, block)


def _passage(begin: int, heading: str, block: list[str]) -> Iterator[IndexedPassage]:
    text = "\n".join(block).strip()
    for at in range(0, len(text), 2 * LONGEST):  # a single line may be longer than any passage
        yield IndexedPassage(begin, heading, text[at : at + 2 * LONGEST])
