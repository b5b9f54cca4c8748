"""The board of a run in the hands of workers in real processes: the same as in the supervisor's own."""

import inspect
import os
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.engines.child_board import ChildBoard
from chargehand.facts.outcome import Failed
from chargehand.roles.board import Board
from chargehand.roles.function_worker import Work
from tests.integration import board_in_children as at_work
from tests.integration.children_at_work import outcome_of_one


def crew(process: bool = True, capacity: int | None = None, **functions: Work) -> list[Any]:
    """Workers by name, each with its function, in processes of their own or here."""
    return [
        ch.worker(name, f"Works as {name}", process=process, capacity=capacity)(function)
        for name, function in functions.items()
    ]


def chain(*workers: str, **args: Any) -> ch.Plan:
    """One task after another, each for the worker that it is named for."""
    tasks = [
        ch.Task(
            id=name,
            description=f"Do the work of {name}",
            worker=name,
            needs=[before] if before else [],
            args=args,
        )
        for before, name in zip(["", *workers], workers, strict=False)
    ]
    return ch.Plan(goal="Share a board", tasks=tasks)


@pytest.mark.parametrize("function", [at_work.everything, at_work.everything_plainly])
async def test_a_child_can_do_with_the_board_what_others_can(function: Work) -> None:
    boss = ch.Supervisor(crew(scout=function))
    result = await boss.run(chain("scout"))
    assert result.tasks["scout"].output == {
        "note": [{"price": 3}, "scout", ["price"], 0.9, {"from": "east"}],
        "notes": [True],
        "versions": [1, 2],
        "read": "prices rose",
        "found": [None, "prices rose\nthen fell"],
        "labels": [["summary", 2, ["scout"]]],
        "history": ["prices rose", "prices rose\nthen fell"],
        "diff": result.tasks["scout"].output["diff"],
        "hits": [{"price": 3}],
    }
    assert "+then fell" in result.tasks["scout"].output["diff"]
    board = boss.board(run=result.id)
    (note,) = await board.notes(segments=["notes"])
    assert note.content == {"price": 3}


async def test_in_a_child_and_in_the_supervisor_the_same_is_written_down() -> None:
    def shape(trace: ch.Trace) -> list[tuple[str, ...]]:
        return [(step.name, str(step.effect)) for span in trace.attempts for step in span.steps]

    shapes = []
    for process in (True, False):
        boss = ch.Supervisor(crew(process, scout=at_work.everything))
        result = await boss.run(chain("scout"))
        shapes.append(shape(result.trace))
    assert shapes[0] == shapes[1]
    assert ("board.post", "keyed") in shapes[0]


async def test_a_child_that_was_killed_has_posted_nothing_twice(tmp_path: Path) -> None:
    boss = ch.Supervisor(crew(scout=at_work.die_once), journal=tmp_path / "runs.db")
    async with boss:
        result = await boss.run(chain("scout", folder=str(tmp_path)))
        notes = await boss.board(run=result.id).notes(segments=["notes"])
        block = await boss.board(run=result.id).read("count")
    version, seen, pid = result.tasks["scout"].output
    assert result.tasks["scout"].attempts == 2
    assert pid != os.getpid()
    assert sorted(note.content for note in notes) == ["last words", "one", "one", "two"]
    assert (version, block.version) == (1, 1)
    assert seen == 3  # it reads again what it had read, and not what it has written since


async def test_what_a_child_notes_and_reads_carries_what_it_derives_from() -> None:
    boss = ch.Supervisor(crew(reader=at_work.read_a_page, clerk=at_work.repeat_what_was_noted))
    result = await boss.run(chain("reader", "clerk"))
    board = boss.board(run=result.id)
    (note,) = await board.notes(tags=["page"])
    assert note.taint == ("web:example.org",)
    assert result.tasks["clerk"].taint == ("web:example.org",)
    assert (await board.read("advice")).taint == ("web:example.org",)


async def test_a_child_is_told_what_the_block_is_at_that_it_wrote_blindly() -> None:
    result = await ch.Supervisor(crew(clerk=at_work.write_blindly)).run(chain("clerk"))
    label, expected, version, words = result.tasks["clerk"].output
    assert (label, expected, version) == ("summary", 0, 1)
    assert words.startswith("block 'summary' is at version 1 and no longer at 0")


async def test_what_a_child_may_not_write_is_denied_and_not_tried_again() -> None:
    workers = crew(editor=at_work.guard_it, scout=at_work.write_what_is_guarded)
    boss = ch.Supervisor(workers)
    result = await boss.run(chain("editor", "scout"))
    task = result.tasks["scout"]
    assert (task.state, task.attempts) == ("failed", 1)
    assert task.error is not None
    assert (task.error.kind, task.error.error) == ("denied", "BlockDenied")
    assert (await boss.board(run=result.id).read("secret")).value == "ours"


async def test_what_is_asked_wrongly_is_refused_in_the_same_words() -> None:
    told = []
    for process in (True, False):
        boss = ch.Supervisor(crew(process, clerk=at_work.ask_wrongly))
        told.append((await boss.run(chain("clerk"))).tasks["clerk"].output)
    assert told[0] == told[1]
    assert set(told[0]) == {"note", "tags", "importance", "block", "limit"}
    assert told[0]["note"].startswith("NotJSON")
    assert told[0]["block"].startswith("UsageError: there is no block 'nothing'")


async def test_of_many_children_that_count_none_loses_an_update(tmp_path: Path) -> None:
    children, times = 4, 10
    boss = ch.Supervisor(crew(capacity=children, clerk=at_work.count_up), journal=tmp_path / "r.db")
    tasks = [
        ch.Task(id=f"t{n}", description=f"Count up for {n}", worker="clerk", args={"times": times})
        for n in range(children)
    ]
    async with boss:
        result = await boss.run(ch.Plan(goal="Count", tasks=tasks))
        block = await boss.board(run=result.id).read("count")
    assert result.status == "succeeded"
    assert (block.value, block.version) == (children * times, children * times)


async def test_a_long_note_passes_both_ways(tmp_path: Path) -> None:
    async with ch.Supervisor(crew(clerk=at_work.post_much), journal=tmp_path / "r.db") as boss:
        result = await boss.run(chain("clerk"))
    assert result.tasks["clerk"].output == 200_000


def test_the_board_of_a_child_offers_what_the_board_of_others_does() -> None:
    def acts(board: type) -> set[str]:
        made = inspect.getmembers(board, lambda m: inspect.iscoroutinefunction(inspect.unwrap(m)))
        return {name for name, _ in made if not name.startswith("_")}

    assert acts(Board) - acts(ChildBoard) <= {"newest", "matching"}  # for groups and pools
    assert acts(ChildBoard) <= acts(Board)
    for name in acts(ChildBoard):
        mine, theirs = getattr(ChildBoard, name), getattr(Board, name)
        assert inspect.signature(mine).parameters == inspect.signature(theirs).parameters


async def test_a_child_whose_brief_is_of_no_run_is_told_so() -> None:
    outcome = await outcome_of_one(at_work.post_a_note)
    assert isinstance(outcome, Failed)
    assert outcome.error == "UsageError"
    assert "has no board here" in outcome.message
