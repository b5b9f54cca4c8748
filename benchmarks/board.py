"""How fast a board answers and takes notes when it holds a million of them already.

Notes are put on the full board and on an empty one in turn, so that the ratio says what the size costs
and not what else the machine did. Queries ask for what agents ask for, each for 100 notes.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, folder_on_disk, options_for, report

from chargehand.facts.board import Match, NoteOrder, NotePosted, NoteQuery
from chargehand.facts.value import Value
from chargehand.journal.base import Journal
from chargehand.journal.open_journal import open_journal

ANSWER_BAR = 10.0
GROWTH_BAR = 1.3
GROUP = 2_000
ROUNDS = 21

SEGMENTS = ("tasks", "results", "errors", "progress", "conflicts")
KINDS = ("task", "result", "error", "progress")


class Crowd:
    """Agents that post and ask, the same in every run."""

    def __init__(self) -> None:
        self._random = random.Random(6)

    def note(self) -> NotePosted:
        draw = self._random
        return NotePosted(
            at=datetime(2026, 3, 1, tzinfo=UTC),
            author=f"worker-{draw.randrange(20)}",
            content=Value.of({"said": "x" * 80}),
            tags=(draw.choice(KINDS), self._request(), self._topic()),
            segment=draw.choice(SEGMENTS),
            importance=round(draw.random(), 2),
        )

    def questions(self) -> dict[str, Callable[[], NoteQuery]]:
        both = Match.ALL
        return {
            "a request's results": lambda: NoteQuery(
                tags=(self._request(),), segments=("results",)
            ),
            "a common tag in two segments": lambda: NoteQuery(
                tags=("result",), segments=("results", "errors")
            ),
            "two tags at once": lambda: NoteQuery(tags=("result", self._topic()), match=both),
            "three tags at once": lambda: NoteQuery(
                tags=("result", self._topic(), self._request()), match=both
            ),
            "the most important errors": lambda: NoteQuery(
                segments=("errors",), order=NoteOrder.IMPORTANT
            ),
            "only what is very important": lambda: NoteQuery(tags=("task",), min_importance=0.99),
            "what one worker did": lambda: NoteQuery(author="worker-3", segments=("progress",)),
            "what others did": lambda: NoteQuery(not_by="worker-3", tags=("error", "task")),
            "the newest": NoteQuery,
        }

    def _request(self) -> str:
        return f"request-{self._random.randrange(1000)}"

    def _topic(self) -> str:
        return f"topic-{self._random.randrange(50)}"


async def post(journal: Journal, crowd: Crowd, count: int) -> float:
    """Seconds that so many notes took, handed in together."""
    notes = [crowd.note() for _ in range(count)]
    start = time.perf_counter()
    await asyncio.gather(*(journal.boards.append("crowd", note) for note in notes))
    return time.perf_counter() - start


async def ask(journal: Journal, question: Callable[[], NoteQuery], times: int) -> float:
    """The milliseconds that 95 of 100 answers stay below."""
    taken = []
    for _ in range(times):
        query = question()
        start = time.perf_counter()
        await journal.boards.notes("crowd", query)
        taken.append(time.perf_counter() - start)
    return sorted(taken)[int(times * 0.95)] * 1e3


async def compare(full: Journal, empty: Journal, crowd: Crowd, group: int) -> list[Figure]:
    """Milliseconds a note on a full and on an empty board, in turn: what disturbs one disturbs both."""
    taken = [
        (await post(full, crowd, group), await post(empty, crowd, group)) for _ in range(ROUNDS)
    ]
    large, small = [a / group * 1e3 for a, _ in taken], [b / group * 1e3 for _, b in taken]
    what = f"a note, {group:,} at once" if group > 1 else "a note by itself"
    usual, whole = median(large) / median(small), mean(large) / mean(small)
    figures = [
        Figure(name=f"{what}, on an empty board", value=median(small), unit="ms"),
        Figure(name=f"{what}, on the full one", value=median(large), unit="ms"),
        Figure(name=f"{what}: the second to the first", value=usual, bar=GROWTH_BAR),
    ]
    if group > 1:
        # Notes are moved to their places many at a time, which the median does not see.
        figures.append(Figure(name=f"{what}: the same of the means", value=whole, bar=GROWTH_BAR))
    return figures


async def measure(full: Journal, empty: Journal, notes: int, asks: int) -> list[Figure]:
    crowd = Crowd()
    group = min(GROUP, notes)
    await post(empty, crowd, group)  # makes the tables
    for _ in range(notes // group):
        await post(full, crowd, group)
    figures: list[Figure] = []
    for together in (1, min(100, notes), group):
        figures += await compare(full, empty, crowd, together)
    for name, question in crowd.questions().items():
        p95 = await ask(full, question, asks)
        figures.append(Figure(name=f"p95: {name}", value=p95, unit="ms", bar=ANSWER_BAR))
    return figures


async def on_disk(notes: int, asks: int) -> list[Figure]:
    with folder_on_disk() as folder:
        full, empty = open_journal(folder / "full.db"), open_journal(folder / "empty.db")
        try:
            return await measure(full, empty, notes, asks)
        finally:
            await full.close()
            await empty.close()


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--notes", type=int, default=1_000_000, metavar="N")
        parser.add_argument("--asks", type=int, default=100, metavar="N")

    options = options_for(__doc__, argv, add)
    return report(asyncio.run(on_disk(options.notes, options.asks)), options)


if __name__ == "__main__":
    sys.exit(main())
