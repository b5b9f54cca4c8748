"""What a board decides, with no journal and no event loop."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chargehand.decisions.board_rules import (
    BoardState,
    check_reader,
    decide,
    diff,
    facets_asked,
    facets_of,
    matches,
    note_of,
    select,
)
from chargehand.decisions.events_as_notes import RunNotes
from chargehand.errors import BlockChanged, BlockDenied, UsageError
from chargehand.facts import events
from chargehand.facts.board import (
    BlockGuarded,
    BlockRefused,
    BlockWritten,
    Guard,
    GuardBlock,
    Label,
    Match,
    Note,
    NoteOrder,
    NotePosted,
    NoteQuery,
    WriteBlock,
    decode_board,
)
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import Value

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def write(
    value: object, *, by: str = "ann", role: str = "", expect: int | None = None
) -> WriteBlock:
    stored = Value.of(value)
    return WriteBlock(at=NOON, author=by, role=role, label="sum", value=stored, expect=expect)


def note(seq: int = 1, **more: Any) -> Note:
    given = {"author": "ann", "stored": Value.of(seq), "at": NOON + timedelta(minutes=seq), **more}
    return Note(id=f"#{seq}", seq=seq, **given)


# Blocks


def test_the_next_version_is_one_more() -> None:
    event = decide(write("x"), Label("sum", 4))
    assert isinstance(event, BlockWritten)
    assert event.version == 5


@pytest.mark.parametrize("expect", [0, 3, 5])
def test_a_write_that_expects_another_version_is_told_the_present_one(expect: int) -> None:
    with pytest.raises(BlockChanged) as caught:
        decide(write("x", expect=expect), Label("sum", 4))
    assert (caught.value.expected, caught.value.version) == (expect, 4)


@pytest.mark.parametrize(
    ("by", "role", "is_written"),
    [
        ("ann", "editor", True),
        ("editor", "", True),
        ("ann", "supervisor", True),
        ("ann", "reader", False),
        ("ann", "", False),
    ],
)
def test_only_those_who_may_write_do(by: str, role: str, is_written: bool) -> None:
    known = Label("sum", 1, Guard(writers=("editor",)))
    event = decide(write("x", by=by, role=role), known)
    assert isinstance(event, BlockWritten if is_written else BlockRefused)


def test_a_refusal_comes_before_the_version_is_told() -> None:
    known = Label("sum", 1, Guard(writers=("editor",)))
    assert isinstance(decide(write("x", expect=0), known), BlockRefused)


def test_only_those_who_may_write_may_guard() -> None:
    act = GuardBlock(at=NOON, author="ann", role="ann", label="sum", guard=Guard(writers=("ann",)))
    assert isinstance(decide(act, Label("sum", 1)), BlockGuarded)
    guarded = Label("sum", 1, Guard(writers=("bob",)))
    assert isinstance(decide(act, guarded), BlockRefused)


def test_a_reader_who_may_not_is_told_who_may() -> None:
    known = Label("sum", 1, Guard(readers=("bob",)))
    check_reader("bob", "", known)
    with pytest.raises(BlockDenied, match="only 'bob' may read it"):
        check_reader("ann", "", known)


def test_a_shelf_is_folded_from_events() -> None:
    shelf = BoardState()
    for value in ("one", "two"):
        shelf.apply(decide(write(value), shelf.known("sum")))
    assert shelf.known("sum") == Label("sum", 2)
    found = [shelf.find("sum", number) for number in (0, 1, 2)]
    assert [block.value for block in found if block] == ["two", "one", "two"]
    assert shelf.find("sum", 3) is None
    assert shelf.find("other", 0) is None


def test_a_difference_is_told_line_by_line() -> None:
    shelf = BoardState()
    for value in ({"a": 1, "b": 2}, {"a": 1, "b": 3}):
        shelf.apply(decide(write(value), shelf.known("sum")))
    old, new = shelf.find("sum", 1), shelf.find("sum", 2)
    assert old is not None
    assert new is not None
    assert [line for line in diff(old, new).splitlines() if line[:1] in "+-"] == [
        "--- sum 1",
        "+++ sum 2",
        '-  "b": 2',
        '+  "b": 3',
    ]


# Notes


def test_the_facets_of_a_query_say_the_same_as_looking_at_each_note() -> None:
    """What an index finds by facets is what `matches` says, but for the importance."""
    draw = random.Random(6)
    words = ("x", "y", "z")
    notes = [
        note(
            seq,
            author=draw.choice(words),
            segment=draw.choice(words),
            tags=tuple(draw.choices(words, k=draw.randrange(3))),
        )
        for seq in range(50)
    ]
    for _ in range(200):
        query = NoteQuery(
            tags=tuple(draw.choices(words, k=draw.randrange(3))),
            match=draw.choice(list(Match)),
            segments=tuple(draw.choices(words, k=draw.randrange(3))),
            author=draw.choice(["", *words]),
            not_by=draw.choice(["", *words]),
        )
        asked = facets_asked(query)
        for each in notes:
            has = set(facets_of(each))
            is_found = all(has & set(group) for group in asked.groups) and asked.never not in has
            assert is_found == matches(each, query)


def test_the_most_important_come_first_and_of_equal_ones_the_newest() -> None:
    notes = [note(1, importance=0.5), note(2, importance=0.9), note(3, importance=0.5)]
    assert [each.seq for each in select(notes, NoteQuery(order=NoteOrder.IMPORTANT))] == [2, 3, 1]
    assert [each.seq for each in select(notes, NoteQuery(limit=2))] == [3, 2]


@pytest.mark.parametrize("importance", [-0.1, 1.1])
def test_importance_lies_between_0_and_1(importance: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        NotePosted(at=NOON, author="ann", content=Value(), importance=importance)


def test_a_refused_write_is_read_as_a_conflict() -> None:
    event = decide(write("x"), Label("sum", 1, Guard(writers=("editor",))))
    found = note_of("market", 7, event)
    assert found is not None
    assert (found.segment, found.importance, found.author) == ("conflicts", 0.9, "ann")
    assert "only 'editor' may write it" in found.content


def test_an_event_of_a_run_is_no_event_of_a_board() -> None:
    with pytest.raises(Exception, match="cannot be read"):
        decode_board(events.encode(events.PlanSealed(at=NOON)))


# The life of a run


def lived(*happened: events.Event) -> list[Note]:
    life = RunNotes("r1")
    for seq, event in enumerate(happened, start=1):
        life.apply(seq, event)
    return life.notes


def adopted() -> events.PlanAdopted:
    tasks = [
        Task(id="a", description="do a", worker="ann"),
        Task(id="b", description="do b", worker="bob", needs=["a"]),
    ]
    return events.PlanAdopted(at=NOON, plan=Plan(goal="g", tasks=tasks))


def started(task: str, worker: str) -> events.AttemptStarted:
    return events.AttemptStarted(at=NOON, task=task, attempt=1, worker=worker)


def finished(task: str, outcome: Done | Failed) -> events.AttemptFinished:
    return events.AttemptFinished(at=NOON, task=task, attempt=1, outcome=outcome)


def test_planned_tasks_are_notes_for_their_workers() -> None:
    first, second = lived(adopted())
    assert (first.segment, first.importance, first.author) == ("tasks", 0.8, "supervisor")
    assert first.tags == ("task", "pending", "r1", "ann")
    assert second.content == {"task": "b", "description": "do b", "worker": "bob"}
    assert first.id != second.id


def test_a_result_is_a_note_of_its_worker() -> None:
    *_, result = lived(adopted(), started("a", "ann"), finished("a", Done(Value.of([1]))))
    assert (result.segment, result.importance, result.author) == ("results", 0.8, "ann")
    assert result.tags == ("result", "completed", "r1")
    assert result.content == [1]


def test_a_failure_is_an_error_and_the_next_try_a_task() -> None:
    failed = Failed(kind=ErrorClass.NETWORK, message="no line")
    again = events.RetryPlanned(at=NOON, task="a", attempt=1, due_at=NOON)
    *_, error, task = lived(adopted(), started("a", "ann"), finished("a", failed), again)
    assert (error.segment, error.importance) == ("errors", 0.9)
    assert "no line" in error.content
    assert (task.segment, task.importance, task.tags) == (
        "tasks",
        0.9,
        ("task", "reassigned", "r1"),
    )


def test_progress_is_half_as_important_and_a_second_result_a_conflict() -> None:
    said = events.ProgressNoted(at=NOON, task="a", attempt=1, text="half", fraction=0.5)
    late = events.ResultRefused(at=NOON, task="a", attempt=1, reported="Done", why="too late")
    *_, progress, conflict = lived(adopted(), started("a", "ann"), said, late)
    assert (progress.segment, progress.importance) == ("progress", 0.5)
    assert progress.content == {"text": "half", "fraction": 0.5}
    assert (conflict.segment, conflict.importance) == ("conflicts", 0.9)


def test_what_a_task_says_carries_what_it_and_its_needs_have_read() -> None:
    said = events.ProgressNoted(at=NOON, task="b", attempt=1, text="half")
    *_, progress = lived(
        adopted(),
        started("a", "ann"),
        finished("a", Done(Value.of(1, ("web",)))),
        started("b", "bob"),
        said,
    )
    assert progress.taint == ("web",)


def test_the_supervisors_own_thinking_is_no_note() -> None:
    assert lived(started("@plan", "@planner"), finished("@plan", Done(Value()))) == []
