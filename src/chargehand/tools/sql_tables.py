"""Tools that query CSV, Parquet and JSON files with SQL. They change nothing."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from chargehand.errors import ToolError
from chargehand.facts.argument_checks import LONGEST, Duration, duration
from chargehand.tools import table_process
from chargehand.tools.base import Tool, tool
from chargehand.tools.data_catalog import FreshMaterial, Material, TableEntry
from chargehand.tools.safe_open import PathLike, Roots, Stamp

MOST_TABLES = 100
#: size limit of one file
MOST_BYTES = 512 * 1024 * 1024
MOST_ROWS = 1_000
#: bytes at the beginning of a file from which its columns are guessed before it is loaded
PEEKED = 16_384
#: characters of the table list in an error message; characters of a sample row
MOST_TOLD, LONGEST_SAMPLE = 2_000, 160
#: answers that are cached until a file changes
MOST_KEPT = 64
#: named among the tables, so that nobody takes the others for all there are
SHEETS = "spreadsheet"
NO_SHEETS = "spreadsheets cannot be read; save it as CSV"
_FORMS = {
    **dict.fromkeys(("csv", "tsv"), "csv"),
    **dict.fromkeys(("json", "jsonl", "ndjson"), "json"),
    "parquet": "parquet",
    **dict.fromkeys(("xlsx", "xls", "ods"), SHEETS),
}


def data(
    root: PathLike | Sequence[PathLike],
    *,
    timeout: Duration = timedelta(seconds=30),
    hidden: bool = False,
    trusted: bool = False,
) -> tuple[Tool, Tool]:
    """The tools `describe_tables` and `query_tables` over the data files in one or more folders.

    Queries run in DuckDB, in a separate process, read-only, without access to files, network or
    extensions, and with limits on time, memory and rows. The output is untrusted; pass `trusted=True`
    only if nobody else can write to the folders. Without DuckDB, SQLite reads CSV files, with the same
    answers; other files are refused.
    """
    longest = duration(timeout, "data: timeout")
    store = TableStore(Roots(root, hidden=hidden), longest)
    # The first call loads all files, which may take longer than a query.
    whole = min(5 * longest, LONGEST)
    terms: dict[str, Any] = {
        "effect": "pure",
        "untrusted": not trusted,
        "timeout": whole,
        "holds": FreshMaterial(store.material),
    }
    return (
        tool(name="describe_tables", **terms)(store.describe_tables),
        tool(name="query_tables", **terms)(store.query_tables),
    )


class Queried(Struct, frozen=True):
    """The result of a query."""

    rows: list[list[Any]]
    #: the tables that the query reads
    tables: tuple[str, ...]


class TableStore:
    """The files of a folder as tables of a database, which is updated when files change."""

    def __init__(self, root: Roots, timeout: timedelta) -> None:
        self._root = root
        self._seconds = max(1, round(timeout.total_seconds()))
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._version = 0
        self._known: dict[str, Stamp] = {}
        self._told: dict[str, dict[str, Any]] = {}
        self._kept: dict[tuple[str, str, int], dict[str, Any]] = {}
        #: by version of a file: the columns, guessed from its beginning
        self._seen: dict[tuple[str, Stamp], TableEntry] = {}

    def material(self) -> Material:
        """The tables that can be queried, as far as they are known without loading whole files."""
        found = self._found()
        is_loaded = found == self._known and bool(self._told)
        known = {key: entry for key, entry in self._seen.items() if found.get(key[0]) == key[1]}
        tables = []
        for path, name in _names_of(found).items():
            told = self._told.get(name, {}) if is_loaded else {}
            if "error" in told or _form_of(path) == SHEETS:
                tables.append(TableEntry(name, (), path, error=told.get("error", NO_SHEETS)))
                continue
            if "columns" in told:
                first = told.get("first_rows") or [[]]
                columns = tuple(told["columns"].items())
                sample = _sample([str(cell) for cell in first[0]])
                tables.append(TableEntry(name, columns, path, told.get("rows"), sample))
                continue
            key = path, found[path]
            if key not in known:
                known[key] = self._peek(path, name)
            tables.append(known[key])
        self._seen = known
        return Material(tables=tuple(tables))

    def _peek(self, path: str, name: str) -> TableEntry:
        """The table, guessed from the beginning of a CSV file; for other files, only the name."""
        if _form_of(path) != "csv":
            return TableEntry(name, (), path)
        try:
            with self._root.open(path) as file:
                begin = file.read(PEEKED)
        except ToolError:
            return TableEntry(name, (), path)
        is_whole = len(begin) < PEEKED
        columns, rows = table_process.peek(begin, is_whole=is_whole)
        sample = _sample(rows[0]) if rows else ""
        return TableEntry(name, columns, path, len(rows) if is_whole else None, sample)

    def describe_tables(self) -> dict[str, Any]:
        """List the tables that can be queried: their columns, types, number of rows, first rows."""
        self._database()
        if not self._told:
            return {"tables": {}, "note": "no data files"}
        return {"tables": self._told} | ({} if _has_duckdb() else {"sql": "SQLite"})

    def query_tables(self, sql: str, most: int = 100) -> dict[str, Any]:
        """Answer a question about the tables with one SELECT, in DuckDB's SQL unless describe_tables says SQLite.

        Args:
            sql: one SELECT; describe_tables shows the tables and columns there are
            most: how many rows to return, at most 1000; aggregate in SQL rather than asking for many
        """
        if not 1 <= most <= MOST_ROWS:
            raise ToolError(f"most is between 1 and {MOST_ROWS}")
        key = self._database(), sql, most
        if (known := self._kept.get(key)) is not None:
            return dict(known)
        answer = self._ordered({"do": "query", "database": key[0], "sql": sql, "most": most})
        if "error" in answer:
            raise self._failed(answer["error"])
        del answer["tables"]
        if answer.pop("has_more"):
            answer["more"] = f"only the first {most} rows are shown"
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = answer
        return dict(answer)

    def query_values(self, queries: Sequence[str]) -> list[Queried | ToolError]:
        """The first two rows of each query, or why it failed. All queries run in one process, which is much faster."""
        order = {
            "do": "query_all",
            "database": self._database(),
            "queries": list(queries),
            "most": 2,
        }
        try:
            answer = self._ordered(order)
            failure = self._failed(answer.get("error", ""))
        except ToolError as error:
            answer, failure = {}, error
        if "answers" in answer:
            return [self._queried(each) for each in answer["answers"]]
        if len(queries) == 1:
            return [failure]
        # One query crashed the process, or took too long or too much memory: run them one by one.
        return [self.query_values([sql])[0] for sql in queries]

    def _queried(self, answer: dict[str, Any]) -> Queried | ToolError:
        if "rows" not in answer:
            return self._failed(answer["error"])
        known = {name.lower() for name in self._told}
        tables = [name for name in answer["tables"] if name.lower() in known]
        return Queried(answer["rows"], tuple(tables))

    def _failed(self, why: str) -> ToolError:
        return ToolError(f"the query failed: {why}\n{self._there()}")

    def _there(self) -> str:
        """The tables and columns that a query can name."""
        lines = [
            f"- {name}: {', '.join(facts.get('columns', ())) or facts.get('error', '')}"
            for name, facts in self._told.items()
        ]
        told = "\n".join(lines)
        if len(told) > MOST_TOLD:
            told = ", ".join(self._told)[:MOST_TOLD]
        return f"The tables and their columns are:\n{told}" if lines else "There are no tables."

    def _database(self) -> str:
        """The path of the database. First loads the files that are new or have changed."""
        with self._lock:
            found = self._found()
            if found and not _has_duckdb() and "csv" not in map(_form_of, found):
                raise ToolError("tables cannot be read; install chargehand[data]", kind="denied")
            if self._folder is None or found != self._known:
                self._rebuild(found)
            return str(self._path())

    def _found(self) -> dict[str, Stamp]:
        paths = ((path, stamp) for path, stamp in self._root.files() if _form_of(path))
        return dict(sorted(paths)[:MOST_TABLES])

    def _path(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="chargehand-tables-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / f"{self._version}.db"

    def _rebuild(self, found: dict[str, Stamp]) -> None:
        """Build a new version of the database; queries that are running continue to read the old version."""
        old = self._path()
        names, were = _names_of(found), _names_of(self._known)
        changed = [p for p in found if self._known.get(p) != found[p] or names[p] != were.get(p)]
        self._version += 1
        if old.exists():
            shutil.copyfile(old, self._path())
        copies = old.with_name(f"{self._version}.files")
        copies.mkdir()
        try:
            orders, refused = self._copies(changed, found, names, copies)
            drop = [name for name in were.values() if name not in names.values()]
            order = {"do": "load", "database": str(self._path()), "tables": orders, "drop": drop}
            answer = self._ordered(order)
        finally:
            shutil.rmtree(copies, ignore_errors=True)
        self._tell(names, answer, refused)
        self._known = found
        self._kept.clear()
        old.unlink(missing_ok=True)

    def _copies(
        self, paths: list[str], found: dict[str, Stamp], names: dict[str, str], folder: Path
    ) -> tuple[list[dict[str, str]], dict[str, str]]:
        """Copy the files for DuckDB, which opens files by path: a path could be swapped meanwhile."""
        orders: list[dict[str, str]] = []
        refused: dict[str, str] = {}
        for path in paths:
            name, copy = names[path], folder / f"{len(orders)}.{_form_of(path)}"
            try:
                if _form_of(path) == SHEETS:
                    raise ToolError(NO_SHEETS)  # noqa: TRY301 - reported like the other errors
                if found[path].size > MOST_BYTES:
                    raise ToolError(f"it is larger than {MOST_BYTES // 2**20} MB")  # noqa: TRY301 - reported like the other errors
                with self._root.open(path) as file, copy.open("wb") as out:
                    shutil.copyfileobj(file, out)
            except ToolError as error:
                refused[name] = str(error)
            else:
                orders.append({"name": name, "file": str(copy), "form": _form_of(path)})
        return orders, refused

    def _tell(self, names: dict[str, str], answer: dict[str, Any], refused: dict[str, str]) -> None:
        failed = answer.get("failed", {}) | refused
        loaded = (
            self._told | answer.get("loaded", {}) | {n: {"error": why} for n, why in failed.items()}
        )
        self._told = {name: {"file": path, **loaded[name]} for path, name in names.items()}

    def _ordered(self, order: dict[str, Any]) -> dict[str, Any]:
        """The response of the table process. It gets no environment variables, which may contain keys."""
        seconds = self._seconds * (4 if order["do"] == "load" else 1)
        engine = "duckdb" if _has_duckdb() else "sqlite"
        try:
            done = subprocess.run(  # noqa: S603 - our own program, by its own path
                [sys.executable, "-I", table_process.__file__],
                input=json.dumps({**order, "engine": engine, "seconds": seconds}).encode(),
                capture_output=True,
                timeout=seconds,
                env={},
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ToolError(f"it took longer than {seconds} s", kind="timeout") from None
        if done.returncode > 0:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise ToolError(f"the tables cannot be read: {last}")
        if done.returncode < 0:  # ended by a signal
            raise ToolError("it needed too much memory or time; ask for less", kind="resource")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


def _sample(cells: Sequence[str]) -> str:
    return ", ".join(" ".join(cell.split()) for cell in cells)[:LONGEST_SAMPLE]


def _has_duckdb() -> bool:
    return importlib.util.find_spec("duckdb") is not None


def _form_of(path: str) -> str:
    return _FORMS.get(path.rpartition(".")[2].lower(), "")


def _names_of(paths: dict[str, Stamp]) -> dict[str, str]:
    """A unique table name for each file: the file name without its extension, and a number if it is taken."""
    names: dict[str, str] = {}
    for path in paths:
        stem = re.sub(r"\W+", "_", path.rpartition(".")[0].rpartition("/")[2]).strip("_").lower()
        stem = f"t_{stem}" if not stem or stem[0].isdigit() else stem
        name, number = stem, 1
        while name in names.values():
            number += 1
            name = f"{stem}_{number}"
        names[path] = name
    return names
