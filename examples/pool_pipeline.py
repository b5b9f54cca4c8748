"""A pipeline of stages: extract, transform, load. Each stage is a request; its input is the stage before.

Ten shops have sent their receipts of June, in four formats: `pool_data/sources`. Three workers read them, two clean
them, one writes them to a database. All share one pool, so one coordinator can monitor everything.
"""

import csv
import json
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import chargehand as ch
from chargehand.patterns.pool import CoordinatorAgent, SharedMemoryPool, supervisor_worker_workflow

SOURCES = Path(__file__).parent / "pool_data" / "sources"
#: seconds a task takes where people watch
PACE = 0.2 if sys.stdout.isatty() else 0.0
Row = dict[str, Any]


def extract(name: str) -> list[Row]:
    """The receipts in a file, unchanged."""
    path = SOURCES / name
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return [*json.loads(text)]
    if path.suffix == ".txt":
        return [dict(word.split("=", 1) for word in line.split()) for line in text.splitlines()]
    return [*csv.DictReader(text.splitlines(), delimiter="\t" if path.suffix == ".tsv" else ",")]


def transform(rows: list[Row]) -> list[Row]:
    """The receipts in one format: ISO dates, money in cents, no duplicates."""
    clean = {}
    for row in rows:
        date = re.sub(r"(\d\d)\.(\d\d)\.(\d{4})", r"\3-\2-\1", row["date"])
        euros = str(row.get("total", "")).removesuffix(" EUR")
        clean[row["receipt"]] = {
            "receipt": row["receipt"],
            "date": date,
            "product": row["product"].strip().lower(),
            "units": int(row["units"]),
            "cents": row["total_cents"] if "total_cents" in row else round(float(euros) * 100),
        }
    return [*clean.values()]


def load(rows: list[Row], database: Path) -> int:
    """Write receipts to the database; writing one again changes nothing."""
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "create table if not exists receipts"
            "(receipt text primary key, date text, product text, units integer, cents integer)"
        )
        connection.executemany(
            "insert or replace into receipts values (:receipt, :date, :product, :units, :cents)",
            rows,
        )
    return len(rows)


class Pipeline:
    """Runs stages on one pool, with a progress bar for each."""

    def __init__(self, bars: Progress) -> None:
        self.pool = SharedMemoryPool()
        self._bars = bars

    def stage(
        self, name: str, workers: int, pieces: dict[str, Any], work: Callable[[Any], Any]
    ) -> list[Any]:
        """Have each piece worked on by one of so many workers; returns what comes of them, in order."""
        crew = f"{workers} worker{'s' if workers > 1 else ''}"
        bar = self._bars.add_task(name, total=len(pieces), who=crew)

        def do(brief: ch.Brief) -> Any:
            time.sleep(PACE)
            return work(pieces[brief.task.description.removeprefix(f"{name} ")])

        result = supervisor_worker_workflow(
            f"{name} {len(pieces)} pieces",
            num_workers=workers,
            tasks=[f"{name} {piece}" for piece in pieces],
            pool=self.pool,
            work=do,
            on_progress=lambda far: self._bars.update(bar, completed=far["completed_tasks"]),
        )
        done = [each["result"] for each in result["results"]]
        if self._bars.disable:
            print(f"  {name}: {len(done)} of {len(pieces)} pieces, {crew}")
        return done


def run(database: Path) -> Pipeline:
    """All three stages, one after the other."""
    look = TextColumn("  {task.description:<10}"), BarColumn(50), MofNCompleteColumn()
    who = TextColumn("{task.fields[who]}")
    with Progress(*look, who, disable=not sys.stdout.isatty()) as bars:
        line = Pipeline(bars)
        names = sorted(path.name for path in SOURCES.iterdir())
        read = line.stage("Extract", 3, {name: name for name in names}, extract)
        pairs = [[*one, *two] for one, two in zip(read[::2], read[1::2], strict=True)]
        clean = line.stage(
            "Transform", 2, {f"part {n}": pair for n, pair in enumerate(pairs, 1)}, transform
        )
        line.stage(
            "Load",
            1,
            {f"part {n}": rows for n, rows in enumerate(clean, 1)},
            lambda rows: load(rows, database),
        )
        sent = sum(map(len, read))
    print(f"\n{sent} receipts were sent, {sent - sum(map(len, clean))} of them twice.")
    return line


def tell(database: Path) -> None:
    """Query the database that the last stage filled."""
    query = "select product, sum(units), sum(cents) from receipts group by product order by 3 desc"
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(query).fetchall()
    print("\n  product     units     euros")
    for product, units, cents in rows:
        print(f"  {product:<11} {units:>5} {cents / 100:>9,.2f}")
    print(f"  {'':<11} {sum(row[1] for row in rows):>5} {sum(row[2] for row in rows) / 100:>9,.2f}")


def main() -> SharedMemoryPool:
    print("Receipts of ten shops, from files in four formats to one table:\n")
    with tempfile.TemporaryDirectory() as folder:
        line = run(Path(folder) / "june.db")
        tell(Path(folder) / "june.db")
    far = CoordinatorAgent(None, line.pool).monitor_progress()
    print(
        f"\nThe coordinator saw {far['completed_tasks']} of {far['total_tasks']} tasks done in three requests."
    )
    print(
        "\nNext: SharedMemoryPool('runs.db') keeps it all; then: chargehand runs --journal runs.db"
    )
    return line.pool


if __name__ == "__main__":
    main()
