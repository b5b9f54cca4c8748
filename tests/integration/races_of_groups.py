"""Ten thousand races for one block of a group, and none of them lost: `python -m tests.integration.races_of_groups`."""

import asyncio
import tempfile
import time
from pathlib import Path

import chargehand as ch
from chargehand.errors import BlockChanged
from chargehand.patterns.groups import Group, RoundRobinManager, SharedBlock


async def add_in_turn(brief: ch.Brief) -> int:
    """Add one by `update`, which queues; returns how often it lost, as far as is told."""
    await brief.board.update("sum", lambda old: old + 1)
    return 0


async def add_by_hand(brief: ch.Brief) -> int:
    """Add one by reading, and writing only what was read; returns how often somebody else was faster."""
    lost = 0
    while True:
        known = await brief.board.read("sum")
        try:
            await brief.board.write("sum", known.value + 1, expect=known.version)
        except BlockChanged:
            lost += 1
        else:
            return lost


ADDING = (add_in_turn, add_by_hand)


async def race(members: int, times: int, journal: Path | None) -> int:
    """Have so many members add one to a block so often, all at once; returns what it comes to."""

    async def add(brief: ch.Brief) -> int:
        return sum([await ADDING[brief.args["turn"] % 2](brief) for _ in range(times)])

    workers = [ch.FunctionWorker(add, f"m{number}", "Adds") for number in range(members)]
    blocks = [SharedBlock("sum", 0)]
    async with Group(workers, manager=RoundRobinManager(), blocks=blocks, journal=journal) as group:
        replies = await group.broadcast("Add")
        assert not replies.failed, replies.failed
        block = await group.board(group.blocks.home).read("sum")
        assert block.version == members * times + 1, "versions have no gap"
        assert sum(replies.said.values()) > 0, "there were races, and somebody lost them"
        return int(block.value)


@ch.worker("adder", "Adds in a process of its own", process=True)
async def adder(brief: ch.Brief) -> list[object]:
    block = await brief.board.update("sum", lambda old: old + 1)
    return [block.value, brief.args["sender"]]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for path in (None, Path(folder) / "runs.db"):
            began = time.monotonic()
            came = asyncio.run(race(members=10, times=1_000, journal=path))
            took = time.monotonic() - began
            where = "memory" if path is None else "SQLite"
            print(f"{where}: {came} of 10000 updates, {10_000 - came} lost, {took:.1f} s")
            assert came == 10_000


if __name__ == "__main__":
    main()
