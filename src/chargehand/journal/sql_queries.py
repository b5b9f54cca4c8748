"""The queries of `sqlite.sql`, `boards.sql` and `postgres.sql`, by name."""

import re
from pathlib import Path

_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
#: rows per statement; each is prepared by SQLite once and kept
_WIDTHS = (256, 64, 16, 4, 1)


def load(file: str) -> dict[str, str]:
    """The queries of one file, by name."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    _, *parts = _NAMED.split(text)
    return {
        name: _without_comments(query) for name, query in zip(parts[::2], parts[1::2], strict=True)
    }


def _without_comments(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return "\n".join(lines).strip()


SQL = {
    **load("sqlite.sql"),
    **load("boards.sql"),
}


def _widened(name: str) -> tuple[tuple[int, str], ...]:
    start, row = SQL[name].rstrip(";").split("VALUES ")
    return tuple(
        (rows * row.count("?"), f"{start}VALUES {','.join([row] * rows)}") for rows in _WIDTHS
    )


_BULK = ("add_entry", "put_head", "add_facet", "add_rank", "add_fresh_facet", "add_fresh_rank")
#: inserts of many rows at once, by name: the widest first, each with the number of its values.
#: SQLite lets other threads run for every statement, and under a busy event loop each turn costs
#: up to 5 ms to get back; measured with 1,000 rows, one statement a row took 0.9 s and this 0.02
BULK_INSERTS = {name: _widened(name) for name in _BULK}
