"""A campaign: as many faults as are asked for, and a table of what came of them.

`python -m tests.chaos --scale 1` is the size of a release. Every trial is noted in a file of lines, so
a campaign that was cut off goes on where it was, as long as the source is the same. The result is a
JSON file; `python -m tests.chaos.table` makes the table of the documentation from it. The files of a
trial that broke stay in the folder. Exits with 1 if anything broke.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

from .fork_server import die_with_parent
from .needs import Needs
from .oracle import Verdict
from .rows import ROWS, Row, try_row

ROOT = Path(__file__).resolve().parents[2]
#: seconds between two lines that say how far it is
TELLING = 10.0


def source() -> str:
    """The commit, and a digest of what differs from it; what a campaign tried was this and nothing else."""

    def git(*words: str) -> str:
        told = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return told.stdout if told.returncode == 0 else ""

    commit = git("rev-parse", "--short=12", "HEAD").strip() or "unknown"
    changes = git("status", "--porcelain", "--untracked-files=all") + git("diff", "HEAD")
    return f"{commit}-{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes else commit


class Campaign:
    """What is to be done, and what has been."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder: Path = options.resume_dir
        self.folder.mkdir(parents=True, exist_ok=True)
        self._options = options
        self.source = source()
        self._notes = self._find_notes()
        self.totals = {index: Verdict() for index, _ in self.rows()}
        self.trials = dict.fromkeys(self.totals, 0)
        #: seconds that the trials of each row took, one after the other
        self.took = dict.fromkeys(self.totals, 0.0)
        self.lacks: dict[int, str] = {}
        #: of which source the trials of each row were
        self._sources: dict[int, set[str]] = {index: set() for index in self.totals}
        self._seeds: dict[int, set[int]] = {index: set() for index in self.totals}
        self._read_notes()

    def _find_notes(self) -> Path:
        seed = self._options.seed
        own = self.folder / f"progress-{self.source}-{seed}.jsonl"
        if self._options.keep and not own.exists():
            others = sorted(self.folder.glob(f"progress-*-{seed}.jsonl"), key=_changed_at)
            own = others[-1] if others else own
        return own

    def rows(self) -> Iterator[tuple[int, Row]]:
        only = {id_.strip().upper() for id_ in self._options.only.split(",") if id_.strip()}
        for index, row in enumerate(ROWS):
            if not only or row.id.upper() in only:
                yield index, row

    def target(self, row: Row) -> int:
        scale: float = self._options.scale
        return ceil(row.count * scale)

    def is_done(self, index: int) -> bool:
        # Something that never fires must not be tried for ever.
        row = ROWS[index]
        return (
            index in self.lacks
            or self.totals[index].fired >= self.target(row)
            or self.trials[index] > 3 * self.target(row) + 5
        )

    def is_sound(self, index: int) -> bool:
        """Whether nothing broke, and as many faults fired as were asked for, where they can be made."""
        if index in self.lacks:
            return os.environ.get("CI") != "true"
        return self.totals[index].is_ok and self.totals[index].fired >= self.target(ROWS[index])

    def next_seed(self, index: int) -> int:
        """The lowest that was not tried; a trial that was cut off is tried again."""
        number = 1
        while number in self._seeds[index]:
            number += 1
        self._seeds[index].add(number)
        return int(self._options.seed) * 1_000_000 + number

    def note(self, index: int, seed: int, verdict: Verdict, took: float) -> None:
        line = {
            "row": _name(ROWS[index]),
            "seed": seed,
            "took": took,
            "source": self.source,
            "verdict": asdict(verdict),
        }
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._count(index, verdict, took, self.source)

    def clear_notes(self) -> None:
        self._notes.unlink(missing_ok=True)

    def _count(self, index: int, verdict: Verdict, took: float, source: str) -> None:
        self._sources[index].add(source)
        self.trials[index] += 1
        self.took[index] += took
        self.totals[index].add(verdict)

    def _read_notes(self) -> None:
        if not self._notes.exists():
            return
        by_name = {_name(row): index for index, row in self.rows()}
        for text in self._notes.read_text("utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the campaign was cut off while it wrote this one
            index = by_name.get(line["row"])
            if index is not None:
                tried = line.get("source", self._notes.name.split("-")[1])
                self._count(index, Verdict(**line["verdict"]), line["took"], tried)
                self._seeds[index].add(line["seed"] - int(self._options.seed) * 1_000_000)
        print(f"goes on with {self._notes}: {sum(self.trials.values())} trials are done")

    def left(self, index: int) -> float:
        """Seconds that a row still takes, as far as one can tell."""
        row, fired = ROWS[index], self.totals[index].fired
        if self.is_done(index):
            return 0.0
        cost = self.took[index] / fired if fired else row.cost
        jobs: int = self._options.jobs
        return (self.target(row) - fired) * cost / (jobs * row.at_once)

    def result(self, seconds: float) -> dict[str, Any]:
        """Everything that the table of the documentation needs."""
        rows = []
        for index, row in self.rows():
            total = self.totals[index]
            rows.append(
                {
                    "row": row.id,
                    "fault": row.what,
                    "bar": row.bar,
                    "wanted": self.target(row),
                    "trials": self.trials[index],
                    "commits": sorted(self._sources[index]),
                    **asdict(total),
                    "violations": total.lost + total.duplicates + len(total.faults),
                    "is_sound": self.is_sound(index),
                    "lacks": self.lacks.get(index, ""),
                }
            )
        return {
            "commit": self.source,
            "date": datetime.now(UTC).date().isoformat(),
            "scale": self._options.scale,
            "seed": self._options.seed,
            "seconds": round(seconds),
            "python": sys.version.split()[0],
            "rows": rows,
        }


def _name(row: Row) -> str:
    return f"{row.id} {row.what}"


def _changed_at(path: Path) -> float:
    return path.stat().st_mtime


def unmount(folder: Path) -> None:
    """Take away the small disks that a campaign left which was cut off."""
    mounts = Path("/proc/mounts")
    for line in mounts.read_text("utf-8").splitlines() if mounts.exists() else ():
        place = line.split()[1]
        if Path(place).is_relative_to(folder):
            subprocess.run(["umount", "-l", place], check=False)


Running = dict["Future[tuple[Verdict, float]]", tuple[int, int]]


class Conductor:
    """Keeps all processes busy until every row has had its faults."""

    def __init__(self, campaign: Campaign, jobs: int) -> None:
        self._campaign = campaign
        self._jobs = jobs
        self._running: Running = {}
        self._told_at = time.monotonic()

    def conduct(self) -> None:
        campaign, running = self._campaign, self._running
        context = multiprocessing.get_context("spawn")
        most = self._jobs * max(row.at_once for _, row in campaign.rows())
        with ProcessPoolExecutor(most, mp_context=context, initializer=die_with_parent) as pool:
            for index, row in campaign.rows():
                while not campaign.is_done(index) or running:
                    while len(running) < self._jobs * row.at_once and self._wants(index):
                        seed = campaign.next_seed(index)
                        place = campaign.folder.absolute() / f"{row.id.lower()}-{index}-{seed}"
                        running[pool.submit(try_row, index, seed, place)] = (index, seed)
                    self._collect()
                    self._tell_progress(index)
                _tell(campaign, index)

    def _wants(self, index: int) -> bool:
        """Whether more trials are needed than those that run, if each of them fires once."""
        total, target = self._campaign.totals[index], self._campaign.target(ROWS[index])
        each = total.fired / self._campaign.trials[index] if self._campaign.trials[index] else 1.0
        return not self._campaign.is_done(index) and (
            not self._running or total.fired + len(self._running) * each < target
        )

    def _collect(self) -> None:
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        for future in done:
            index, seed = self._running.pop(future)
            try:
                verdict, took = future.result()
            except Needs as lack:
                self._campaign.lacks[index] = str(lack)
                continue
            self._campaign.note(index, seed, verdict, took)
            for fault in verdict.faults:
                print(f"BROKEN {ROWS[index].id} {fault[:500]}", file=sys.stderr, flush=True)

    def _tell_progress(self, index: int) -> None:
        now = time.monotonic()
        if now < self._told_at + TELLING:
            return
        self._told_at = now
        campaign, row = self._campaign, ROWS[index]
        fired, target = campaign.totals[index].fired, campaign.target(row)
        speed = fired / campaign.took[index] * self._jobs * row.at_once if fired else 0.0
        left = sum(campaign.left(each) for each, _ in campaign.rows())
        words = f"{row.id} {fired}/{target}, {speed:.1f}/s, {campaign.left(index):.0f} s left; "
        print(f"  … {words}all rows: about {left / 60:.0f} min left", file=sys.stderr, flush=True)


HEADER = ("row", "fault", "trials", "fired", "told", "lost", "twice", "verdict")
WIDTHS = (4, 52, 7, 7, 9, 6, 6, 0)


def _line(cells: tuple[object, ...]) -> str:
    text = [
        str(cell).ljust(width) if place < 2 else str(cell).rjust(width)
        for place, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    ]
    return "  ".join(text)


def _tell(campaign: Campaign, index: int) -> None:
    row, total = ROWS[index], campaign.totals[index]
    word = "ok" if campaign.is_sound(index) else "BROKEN"
    if index in campaign.lacks:
        word = f"not run: {campaign.lacks[index]}"
    elif total.fired < campaign.target(row):
        word = f"BROKEN: {campaign.target(row)} were asked for"
    figures = ", ".join(f"{name} ≤ {figure:.3g}" for name, figure in sorted(total.figures.items()))
    counts = (campaign.trials[index], total.fired, total.acknowledged, total.lost, total.duplicates)
    print(_line((row.id, row.what, *counts, f"{word}  {figures}".strip())), flush=True)
    for fault in total.faults[:5]:
        print(f"      {fault[:300]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--scale", type=float, default=0.1, help="1 is the size of a release")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="rows, such as A1,A6; default: all")
    parser.add_argument("--resume-dir", type=Path, default=Path(".chaos"))
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument(
        "--keep", action="store_true", help="go on though the source has changed since"
    )
    options = parser.parse_args()
    campaign = Campaign(options)
    unmount(options.resume_dir.absolute())
    before = time.monotonic()
    print(f"source {campaign.source}, scale {options.scale:g}, seed {options.seed}", flush=True)
    print(_line(HEADER), flush=True)
    try:
        Conductor(campaign, options.jobs).conduct()
    except KeyboardInterrupt:
        print("cut off; the same command goes on from here", file=sys.stderr)
        return 130
    seconds = time.monotonic() - before
    result = options.resume_dir / "result.json"
    result.write_text(json.dumps(campaign.result(seconds), indent=1) + "\n", "utf-8")
    campaign.clear_notes()
    broken = [index for index, _ in campaign.rows() if not campaign.is_sound(index)]
    words = f"{len(broken) or 'nothing'} broken; {result} has the figures"
    print(f"{seconds:.0f} s; {words}", flush=True)
    return 1 if broken else 0
