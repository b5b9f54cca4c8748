"""What a deep chain costs: every link waits for the one before, so every link is a round of its own."""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._crew import bare, chain, live_run, warm_up
from benchmarks.measure import Figure, folder_on_disk, options_for, report

#: the design promises one a link; the rest is what begins and ends a run
FLUSHES_BAR = 1.05


class Commits:
    """How many write transactions SQLite has committed; with FULL, each of them is a flush."""

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> bool:
        self.count += 1
        return False  # anything else would roll the transaction back

    def watch(self, connection: apsw.Connection) -> None:
        connection.set_commit_hook(self.note, id=self)


@contextmanager
def commits_counted() -> Iterator[Commits]:
    """Watch every connection to SQLite that is opened meanwhile."""
    commits = Commits()
    apsw.connection_hooks.append(commits.watch)
    try:
        yield commits
    finally:
        apsw.connection_hooks.remove(commits.watch)


async def measure(lengths: Sequence[int]) -> list[Figure]:
    await warm_up()
    figures = []
    for links in lengths:
        plan = chain(links)
        least = (await bare(links)).cpu
        with folder_on_disk() as folder, commits_counted() as commits:
            durable = await live_run(plan, folder / "runs.db")
        for journal, taken in (("memory", await live_run(plan, None)), ("durable", durable)):
            name = f"{journal}, {links:,} links"
            figures += [
                Figure(
                    name=f"{name}: CPU a link",
                    value=taken.cpu / links * 1000,
                    unit="ms",
                    ratio=taken.cpu / least,
                ),
                Figure(name=f"{name}: time a link", value=taken.wall / links * 1000, unit="ms"),
            ]
        figures.append(
            Figure(
                name=f"durable, {links:,} links: flushes a link",
                value=commits.count / links,
                bar=FLUSHES_BAR,
            )
        )
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--links", type=int, nargs="+", default=[1_000, 10_000], metavar="N")

    options = options_for(__doc__, argv, add)
    return report(asyncio.run(measure(options.links)), options)


if __name__ == "__main__":
    sys.exit(main())
