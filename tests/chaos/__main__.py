"""A campaign: as many faults as are asked for, and a table of what came of them.

`python -m tests.chaos --kills 200 --cuts 200 --seed 1`. Every trial is noted in a file of lines, so a
campaign that was interrupted goes on where it was; one that is over clears its notes away. The
files of a trial that broke stay in the folder.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from math import ceil
from pathlib import Path

from .kills import Needs
from .oracle import Verdict
from .rows import ROWS, Row, try_row


class Campaign:
    """What is to be done, and what has been."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder: Path = options.resume_dir
        self.folder.mkdir(parents=True, exist_ok=True)
        self._options = options
        self._notes = self.folder / f"progress-{options.seed}.jsonl"
        self.totals = {index: Verdict() for index, _ in self.rows()}
        self.trials = dict.fromkeys(self.totals, 0)
        self.lacks: dict[int, str] = {}
        self._seeds: dict[int, int] = dict.fromkeys(self.totals, 0)
        self._read_notes()

    def rows(self) -> Iterator[tuple[int, Row]]:
        only = {id_.strip().upper() for id_ in self._options.only.split(",") if id_.strip()}
        for index, row in enumerate(ROWS):
            if not only or row.id in only:
                yield index, row

    def target(self, row: Row) -> int:
        asked: int = self._options.kills if row.per == "kills" else self._options.cuts
        return ceil(asked * row.share)

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
        self._seeds[index] += 1
        return int(self._options.seed) * 1_000_000 + self._seeds[index]

    def note(self, index: int, seed: int, verdict: Verdict) -> None:
        line = {"row": ROWS[index].what, "seed": seed, "verdict": asdict(verdict)}
        with self._notes.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self._count(index, verdict)

    def clear_notes(self) -> None:
        self._notes.unlink(missing_ok=True)

    def _count(self, index: int, verdict: Verdict) -> None:
        self.trials[index] += 1
        self.totals[index].add(verdict)

    def _read_notes(self) -> None:
        if not self._notes.exists():
            return
        by_name = {row.what: index for index, row in self.rows()}
        for text in self._notes.read_text("utf-8").splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the campaign was interrupted while it wrote this one
            index = by_name.get(line["row"])
            if index is not None:
                self._count(index, Verdict(**line["verdict"]))
                done = line["seed"] - int(self._options.seed) * 1_000_000
                self._seeds[index] = max(self._seeds[index], done)


def conduct(campaign: Campaign, jobs: int) -> None:
    """Keep all processes busy until every row has had its faults."""
    running: dict[Future[Verdict], tuple[int, int]] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for index, row in campaign.rows():
            while not campaign.is_done(index) or running:
                while len(running) < jobs and not campaign.is_done(index):
                    seed = campaign.next_seed(index)
                    place = campaign.folder / f"{row.id.lower()}-{index}-{seed}"
                    running[pool.submit(try_row, index, seed, place)] = (index, seed)
                _collect(campaign, running)
            _tell(campaign, index)


def _collect(campaign: Campaign, running: dict[Future[Verdict], tuple[int, int]]) -> None:
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        index, seed = running.pop(future)
        try:
            campaign.note(index, seed, future.result())
        except Needs as lack:
            campaign.lacks[index] = str(lack)


HEADER = ("row", "fault", "trials", "fired", "told", "lost", "twice", "verdict")
WIDTHS = (4, 34, 7, 7, 9, 6, 6, 0)


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
    parser.add_argument("--kills", type=int, default=200, help="kills that are to fire")
    parser.add_argument("--cuts", type=int, default=200, help="power cuts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="rows, such as A1,A6; default: all")
    parser.add_argument("--resume-dir", type=Path, default=Path(".chaos"))
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    options = parser.parse_args()
    campaign = Campaign(options)
    before = time.monotonic()
    print(_line(HEADER), flush=True)
    conduct(campaign, options.jobs)
    campaign.clear_notes()
    broken = [index for index, _ in campaign.rows() if not campaign.is_sound(index)]
    print(f"{time.monotonic() - before:.0f} s; {len(broken) or 'nothing'} broken", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
