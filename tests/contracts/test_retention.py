"""Retention on every journal: what is kept reads as before, what is deleted is gone as a whole."""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

import chargehand as ch
from chargehand.cli.find_run import standing_of
from chargehand.cli.run_details import shown, shown_json
from chargehand.errors import UnknownRun
from chargehand.facts.board import board_of_run
from chargehand.facts.retention import Retention
from chargehand.journal.base import Journal
from chargehand.journal.prune import Pruner
from chargehand.journal.verify import verified

LARGE = 200_000


@ch.worker("writer", "Writes much or little, and a note about it")
async def writer(brief: ch.Brief) -> str:
    if brief.task.args.get("fails"):
        raise ValueError("as planned")
    await brief.board.post({"about": brief.task.id}, segment="insights")
    return str(brief.task.args.get("letter", "x")) * int(brief.task.args.get("length", 5))


def crew(journal: Journal) -> ch.Supervisor:
    below = ch.Supervisor([writer], name="below", description="Leads runs of its own")
    return ch.Supervisor([writer, below], journal=journal)


def some_plan(rng: random.Random) -> ch.Plan:
    tasks = [
        ch.Task(
            id=f"t{number}",
            description="Write some words",
            worker="writer",
            args={
                "letter": rng.choice("ab"),
                "length": rng.choice([5, 5, LARGE]),
                "fails": rng.random() < 0.1,
            },
            limits=ch.TaskLimits(attempts=1),
        )
        for number in range(rng.randint(1, 4))
    ]
    if rng.random() < 0.4:
        inner = ch.Plan(goal="Below", tasks=[msgspec.structs.replace(tasks[0], id="inner")])
        args = {"plan": msgspec.json.decode(inner.to_json())}
        nested = ch.Task(id="nested", description="Lead a run", worker="below", args=args)
        tasks.append(nested)
    return ch.Plan(goal="Words", tasks=tasks)


async def as_told(boss: ch.Supervisor, journal: Journal, run: str) -> list[object]:
    """All that a person can be told of a run."""
    [head] = [each for each in await journal.heads() if each.stream == run]
    standing = await standing_of(boss, head)
    trace = await asyncio.to_thread(lambda: standing.result.trace.to_json())
    details = await asyncio.to_thread(lambda: [*shown(standing, ""), shown_json(standing)])
    notes = [note async for note in journal.boards.read(board_of_run(run))]
    findings = [each async for each in verified(journal, run)]
    outputs = {id_: task.output for id_, task in standing.result.tasks.items()}
    return [trace, details, notes, findings, outputs, head]


async def pruned(journal: Journal, retention: Retention) -> list[str]:
    return [each.run async for each in Pruner(journal, retention).prune(datetime.now(UTC))]


@pytest.mark.parametrize("seed", range(4))
async def test_pruning_changes_nothing_of_the_runs_that_are_kept(
    another: Callable[[], Journal], seed: int
) -> None:
    rng, journal = random.Random(seed), another()
    async with crew(journal) as boss:
        results = [await boss.run(some_plan(rng)) for _ in range(8)]
        keep = rng.randint(1, 7)
        kept = [result.id for result in results[-keep:]]
        before = {run: await as_told(boss, journal, run) for run in kept}
        gone = await pruned(journal, Retention(keep=keep))
        assert gone == [result.id for result in results[:-keep]]
        again = another()
        for told in (journal, again):  # also to a process that comes later
            after = {run: await as_told(boss, told, run) for run in kept}
            assert after == before
        for run in gone:
            with pytest.raises(UnknownRun, match="retention"):
                await boss.look(run)
        names = {head.stream for head in await journal.heads(forgotten=False)}
        requests = await journal.storage.requests(sorted(names))
        assert {request.parent or run for run, request in requests.items()} == set(kept)
        faults = [each.faults async for each in verified(again) if each.faults]
        assert faults == []


async def test_what_would_be_deleted_is_what_is_deleted(journal: Journal) -> None:
    rng = random.Random(7)
    async with crew(journal) as boss:
        for _ in range(6):
            await boss.run(some_plan(rng))
    retention = Retention(keep=2)
    due = [each.run for each in await Pruner(journal, retention).due(datetime.now(UTC))]
    assert len(due) == 4
    assert len(await journal.heads(forgotten=False)) >= 6  # nothing was deleted by looking
    assert await pruned(journal, retention) == due
    assert await pruned(journal, retention) == []


async def test_a_journal_is_brought_below_a_size(journal: Journal) -> None:
    async with crew(journal) as boss:
        tasks = [
            ch.Task(id=f"t{each}", description="Write", worker="writer", args={"length": 8_000})
            for each in range(20)
        ]
        runs = [(await boss.run(ch.Plan(goal="Words", tasks=tasks))).id for _ in range(8)]
    full = await journal.storage.used()
    gone = await pruned(journal, Retention(max_size=full // 2))
    assert gone == runs[: len(gone)]  # the oldest
    assert 3 <= len(gone) <= 6
    assert full / 4 < await journal.storage.used() <= full // 2


async def test_a_run_is_old_when_it_ended_long_ago(journal: Journal) -> None:
    async with crew(journal) as boss:
        old = (await boss.run(some_plan(random.Random(1)))).id
        now, month = datetime.now(UTC), timedelta(days=30)
        pruner = Pruner(journal, Retention(older_than=month))
        assert await pruner.due(now + timedelta(days=29)) == []
        assert [each.run for each in await pruner.due(now + timedelta(days=31))] == [old]


async def test_open_runs_and_those_that_they_reuse_are_kept(journal: Journal) -> None:
    """A run that waits for a person, and the run whose results it goes by."""

    @ch.worker("asker", "Asks a person")
    async def asker(brief: ch.Brief) -> str:
        return str(await brief.ask("Shall I?"))

    boss = ch.Supervisor([writer, asker], journal=journal)
    task = ch.Task(id="t1", description="Write some words", worker="writer", args={"length": LARGE})
    question = ch.Task(id="t2", description="Ask a person", worker="asker", needs=["t1"])
    source = await boss.run(ch.Plan(goal="Words", tasks=[task]))
    plan = ch.Plan(goal="Words", tasks=[task, question])
    waiting = await boss.run(plan, reuse=source.id, on_question="return")
    assert await pruned(journal, Retention(keep=0)) == []
    await boss.answer(waiting.questions[0].id, "yes")
    ended = await boss.resume(waiting.id)
    assert ended.tasks["t1"].output == "x" * LARGE
    assert sorted(await pruned(journal, Retention(keep=0))) == sorted([source.id, waiting.id])


async def test_a_posted_run_keeps_what_it_reuses(journal: Journal) -> None:
    boss = crew(journal)
    plan = ch.Plan(goal="W", tasks=[ch.Task(id="t1", description="Write", worker="writer")])
    source = await boss.run(plan)
    await boss.post(plan, reuse=source.id)
    assert await pruned(journal, Retention(keep=0)) == []


async def test_what_a_run_reused_outlives_the_run_that_made_it(journal: Journal) -> None:
    boss = crew(journal)
    task = ch.Task(id="t1", description="Write", worker="writer", args={"length": LARGE})
    plan = ch.Plan(goal="Words", tasks=[task])
    source = await boss.run(plan)
    later = await boss.run(plan, reuse=source.id)
    followed = await boss.run(plan, after=source.id)
    assert await pruned(journal, Retention(keep=2)) == [source.id]
    for run in (later.id, followed.id):
        assert (await boss.look(run)).tasks["t1"].output == "x" * LARGE
    with pytest.raises(UnknownRun, match="retention"):
        await boss.run(plan, reuse=source.id)
    with pytest.raises(UnknownRun, match="retention"):
        await boss.run(plan, after=source.id)


async def test_the_key_of_a_deleted_run_does_not_run_it_again(journal: Journal) -> None:
    """Its effects happened; a second request under this key is refused, and says the way out."""
    boss = crew(journal)
    plan = ch.Plan(goal="W", tasks=[ch.Task(id="t1", description="Write", worker="writer")])
    await boss.run(plan, key="monday")
    assert len(await pruned(journal, Retention(keep=0))) == 1
    with pytest.raises(UnknownRun, match="another id or idempotency key"):
        await boss.run(plan, key="monday")
    assert (await boss.run(plan, key="tuesday")).status == "succeeded"


async def test_two_prune_at_once_and_each_run_is_told_of_once(
    journal: Journal, neighbour: Journal
) -> None:
    rng = random.Random(3)
    async with crew(journal) as boss:
        runs = [(await boss.run(some_plan(rng))).id for _ in range(10)]
        keep = Retention(keep=2)
        one, two = await asyncio.gather(pruned(journal, keep), pruned(neighbour, keep))
        assert sorted(one + two) == sorted(runs[:8])


async def test_runs_go_on_while_others_are_pruned(journal: Journal, neighbour: Journal) -> None:
    rng = random.Random(5)
    async with crew(journal) as boss:
        for _ in range(10):
            await boss.run(some_plan(rng))
        working = asyncio.gather(*(boss.run(some_plan(rng)) for _ in range(10)))
        while not working.done():
            await pruned(neighbour, Retention(keep=0))
        assert all(result.tasks for result in await working)
    await pruned(neighbour, Retention(keep=0))
    assert await neighbour.heads(forgotten=False) == []


async def test_boards_with_a_name_are_kept(journal: Journal) -> None:
    boss = crew(journal)
    await boss.board("market").post("rates rise")
    plan = ch.Plan(goal="W", tasks=[ch.Task(id="t1", description="Write", worker="writer")])
    run = (await boss.run(plan)).id
    await pruned(journal, Retention(keep=0))
    assert [entry.seq async for entry in journal.boards.read("market")] == [1]
    with pytest.raises(UnknownRun):
        [entry async for entry in journal.boards.read(board_of_run(run))]
