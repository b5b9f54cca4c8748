"""The live view as a pure function: what is known of a run, and the lines of a terminal of any size."""

import asyncio
import json
import random
import re
import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import chargehand as ch
from chargehand.cli.live_screen import LiveScreen
from chargehand.decisions.task_graph import TaskState
from chargehand.facts import events
from chargehand.facts.events import Event
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, ErrorClass, Failed, NeedsInput, Question, Usage
from chargehand.facts.value import Value
from chargehand.presentation.display_text import cell_width, cut_to
from chargehand.presentation.live_frame import Line, LiveFrame, OpenQuestion
from chargehand.presentation.live_state import LiveState
from chargehand.presentation.nested_paths import NestedPath

BEGAN = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
SIZES = [(80, 24), (120, 40), (60, 14), (59, 40), (200, 13), (40, 8), (20, 5), (10, 3)]
HOSTILE = "evil\x1b[2J\x1b]0;title\x07\u202e name 漢字 \U000e0041"


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def requested(**more: object) -> events.RunRequested:
    told = {"limits": Limits(), "seed": 1, "rules": 1, "crew": "", **more}
    return events.RunRequested(run="r1", request="Read it all", at=BEGAN, **told)  # type: ignore[arg-type]  # as given by a test


def state_of(*happened: Event) -> LiveState:
    state = LiveState()
    for event in happened:
        state.hear(event)
    return state


def tasks_of(*arrows: str) -> events.PlanAdopted:
    """A plan in which `a -> b` has b need a."""
    needs: dict[str, list[str]] = {}
    for arrow in arrows:
        before, _, after = arrow.partition(" -> ")
        needs.setdefault(before, [])
        if after:
            needs.setdefault(after, []).append(before)
    tasks = [
        ch.Task(id=id_, description=f"Do {id_}", worker="w", needs=each)
        for id_, each in needs.items()
    ]
    return events.PlanAdopted(plan=ch.Plan(goal="g", tasks=tasks), at=BEGAN)


def asked(id_: str, task: str, **more: object) -> events.AttemptFinished:
    question = Question(id=id_, text="Go on?", **more)  # type: ignore[arg-type]  # as given by a test
    return events.AttemptFinished(
        task=task, attempt=1, outcome=NeedsInput(question=question), at=at(2)
    )


def test_a_plan_that_waits_for_approval_is_told_as_such() -> None:
    proposal = {"plan": {"goal": "g", "tasks": [{"id": f"t{n}"} for n in range(5)]}}
    question = asked("r1:@plan:1", "@plan", about="plan", evidence=Value.of(proposal))
    state = state_of(requested(), started("@plan"), question)
    shown = "\n".join("".join(part.text for part in line) for line in _lines(state))
    assert "a plan of 5 tasks to approve" in shown
    assert "needs you  r1" in shown
    assert "planning" not in shown
    assert "no plan yet" not in shown


def test_a_question_says_of_how_many_it_is_one() -> None:
    state = state_of(requested(), tasks_of("a", "b"), started("a"), started("b"), asked("q1", "a"))
    pinned = OpenQuestion(question=Question(id="q1", text="Go on?"), task="a")
    assert "question 1 of" not in str(_lines(state, pinned))
    state.hear(asked("q2", "b"))
    assert "question 1 of 2" in str(_lines(state, pinned))


def _lines(state: LiveState, pinned: OpenQuestion | None = None) -> list[Line]:
    return LiveFrame(state=state, now=at(10), asked=pinned).lines()


def started(task: str, seconds: float = 1, worker: str = "w") -> events.AttemptStarted:
    return events.AttemptStarted(task=task, attempt=1, worker=worker, at=at(seconds))


def done(task: str, seconds: float = 2) -> events.AttemptFinished:
    return events.AttemptFinished(
        task=task,
        attempt=1,
        outcome=Done(Value.of("x"), Usage(calls=1, money=0.25)),
        at=at(seconds),
    )


def nested(task: str, run: str) -> events.StepStarted:
    """The step in which a nested supervisor leads a run for this task."""
    return events.StepStarted(
        task=task,
        attempt=1,
        name="run",
        ordinal=1,
        effect=events.Effect.KEYED,
        key=run,
        digest="",
        about=Value.of({"run": run}),
        at=at(0),
    )


def asks(task: str, question: Question, seconds: float = 2) -> events.AttemptFinished:
    outcome = NeedsInput(question=question)
    return events.AttemptFinished(task=task, attempt=1, outcome=outcome, at=at(seconds))


def words(lines: list[Line]) -> list[str]:
    return ["".join(part.text for part in line) for line in lines]


def shown(state: LiveState, columns: int = 80, rows: int = 24, **more: object) -> list[str]:
    frame = LiveFrame(state=state, now=at(10), columns=columns, rows=rows, **more)  # type: ignore[arg-type]  # likewise
    return words(frame.lines())


def test_a_task_is_ready_once_what_it_needs_has_ended() -> None:
    state = state_of(requested(), tasks_of("a -> c", "b -> c"), started("a"))
    assert {id_: task.state for id_, task in state.tasks.items()} == {
        "a": TaskState.RUNNING,
        "b": TaskState.READY,
        "c": TaskState.WAITING,
    }
    for event in (done("a"), started("b"), done("b", 3)):
        state.hear(event)
    assert state.tasks["c"].state is TaskState.READY
    assert state.counts == {TaskState.DONE: 2, TaskState.READY: 1} | dict.fromkeys(
        (TaskState.WAITING, TaskState.RUNNING), 0
    )
    assert state.usage.money == 0.5
    assert state.speedup.at(at(3)) == 1.0


def test_a_plan_that_is_written_backwards_has_the_same_phases() -> None:
    tasks = [
        ch.Task(id=f"t{n}", description="Do it", worker="w", needs=[f"t{n - 1}"] if n else [])
        for n in range(2000)
    ]
    backwards = ch.Plan(goal="g", tasks=tasks[::-1])
    state = state_of(requested(), events.PlanAdopted(plan=backwards, at=BEGAN))
    assert {task.id: task.phase for task in state.tasks.values()} == {
        f"t{n}": n + 1 for n in range(2000)
    }


def test_the_critical_path_is_the_longest_chain_that_is_left() -> None:
    state = state_of(requested(), tasks_of("a -> b", "b -> c", "x -> c", "y"))
    assert state.critical_path() == ["a", "b", "c"]
    state.hear(started("a"))
    state.hear(done("a"))
    assert state.critical_path() == ["b", "c"]
    paces = {"slow": events.Pace(count=3, mean=timedelta(minutes=9))}
    slow = ch.Task(id="y", description="Do y", worker="slow")
    plan = ch.Plan(goal="g", tasks=[slow, ch.Task(id="a", description="Do a", worker="w")])
    state = state_of(requested(paces=paces), events.PlanAdopted(plan=plan, at=BEGAN))
    assert state.critical_path() == ["y"]


def test_the_view_names_worker_call_and_time() -> None:
    call = events.StepStarted(
        task="a",
        attempt=1,
        name="model",
        ordinal=1,
        effect=ch.Effect.PURE,
        key="k",
        digest="d",
        about=Value.of({"models": ["openai:gpt-5-mini"], "turns": []}),
        at=at(6),
    )
    state = state_of(requested(limits=Limits(money=2)), tasks_of("a -> b"), started("a"), call)
    text = "\n".join(shown(state))
    assert "◐ w  a  openai:gpt-5-mini" in text
    assert "4.0s" in text  # of the call, not of the attempt
    assert "0 of 2 done · 1 running · 1 waiting  10s" in text
    assert "spent – of $2" in text


def test_the_plan_is_left_out_below_28_rows_and_all_but_the_bar_below_14() -> None:
    state = state_of(requested(), tasks_of("a -> b"), started("a"))
    assert any(line.startswith("  2  ◌ b") for line in shown(state, rows=28))
    assert not any(line.startswith("  2  ◌ b") for line in shown(state, rows=27))
    assert not any(line.startswith("  2  ◌ b") for line in shown(state, rows=40, shows_plan=False))
    for columns, rows in ((80, 13), (59, 24)):
        assert len(shown(state, columns, rows, keys="p pause")) == 2


def test_a_question_is_pinned_with_its_choices_and_what_waits_behind_it() -> None:
    question = Question(id="r1:a:1", text="Which colour?", choices=("red", "blue"), default="red")
    state = state_of(requested(), tasks_of("a -> b", "b -> c"), started("a"), asks("a", question))
    assert "▲ 1 question needs you: Which colour?  2 tasks behind it" in shown(state)
    asked = OpenQuestion(question=question, task="a", typed="bl", objection="no such thing")
    lines = shown(state, asked=asked)
    first = lines.index("▲ a asks  (2 tasks behind it)")
    assert lines[first + 1 : -1] == [
        "▌ Which colour?",
        "▌ 1  red  (Enter alone)",
        "▌ 2  blue",
        "▌ no such thing",
        "▌ › bl█",
    ]
    answered = events.QuestionAnswered(question="r1:a:1", task="a", text="red", by="anna", at=at(3))
    state.hear(answered)
    assert not any("▲" in line for line in shown(state))


MANY = Question(id="q", text="Which?", choices=tuple(f"option {n}" for n in range(1, 31)))


def panel_of(question: Question, size: tuple[int, int] = (80, 24), scrolled: int = 0) -> list[str]:
    """The rows of an open question, without their edge, from its first row to the line that is typed."""
    state = state_of(requested(), tasks_of("a"), started("a"))
    pinned = OpenQuestion(question=question, task="a", scrolled=scrolled)
    rows = [row for row in shown(state, *size, asked=pinned) if row.startswith("▌ ")]
    assert rows[-1] == "▌ › █"
    return [row.removeprefix("▌ ") for row in rows[:-1]]


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (120, 30)])
def test_every_choice_can_be_scrolled_into_sight(size: tuple[int, int]) -> None:
    """The first ones come first, and it is said how many rows are missing and which key shows them."""
    first = panel_of(MANY, size)
    assert first[:2] == ["Which?", "1  option 1"]
    left = 31 - (len(first) - 1)
    assert first[-1] == f"… {left} more rows: ↓"
    seen = {row for n in range(32) for row in panel_of(MANY, size, n)}
    assert {f"{n}  option {n}" for n in range(1, 31)} <= seen
    last = panel_of(MANY, size, 99)
    assert last[-2:] == ["30  option 30", f"… {left} rows above: ↑"]
    assert panel_of(MANY, (120, 40))[-1] == "30  option 30"


def test_a_question_is_scrolled_by_rows_and_pages_and_no_further_than_its_ends() -> None:
    state = state_of(requested(), tasks_of("a"), started("a"))
    pinned = OpenQuestion(question=MANY, task="a")
    frame = LiveFrame(state=state, now=at(10), asked=pinned)
    page = len(panel_of(MANY)) - 1
    assert [frame.scrolled(1), frame.scrolled(-1), frame.scrolled(1, pages=True)] == [
        1,
        0,
        min(page, 31 - page),
    ]
    pinned.scrolled = 5
    assert frame.scrolled(-1) == 4
    assert frame.scrolled(99) == 31 - page
    pinned.scrolled = 99
    assert frame.scrolled(-1) == 31 - page - 1
    assert LiveFrame(state=state, now=at(10)).scrolled(1) == 0


def test_a_long_choice_goes_on_in_the_next_row() -> None:
    long = "nobody: leave the phone on the desk, and put a note on the door that says when"
    question = Question(id="q", text="Who?", choices=("ada", f"{long} somebody is back"))
    assert panel_of(question) == [
        "Who?",
        "1  ada",
        f"2  {long[:-10]}",
        "   says when somebody is back",
    ]


@pytest.mark.parametrize(("size", "least"), [((120, 40), 20), ((80, 24), 5)])
def test_a_call_to_approve_shows_as_many_arguments_as_fit_and_what_shows_the_rest(
    size: tuple[int, int], least: int
) -> None:
    """How it is answered stays in sight."""
    call = {"body": "\n".join(f"line {n}" for n in range(40)), "to": "eva"}
    evidence = Value.of({"tool": "mail", "arguments": json.dumps(call)})
    question = Question(
        id="q",
        text="May w call mail?",
        about="approval",
        choices=("approve", "reject"),
        evidence=evidence,
    )
    rows = panel_of(question, size)
    assert '    "to": "eva",' in rows
    assert sum("line " in row for row in rows) > least
    assert re.fullmatch(r"… \d+ more rows: ↓ · e shows all", rows[-3])
    assert rows[-2:] == ["1  approve", "2  reject"]
    everything = [row for n in range(60) for row in panel_of(question, size, n)]
    assert all(any(f"line {n}" in row for row in everything) for n in range(40))


def test_a_task_that_is_never_tried_again_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the sign of a failure. One that is tried again says so at once."""
    screen, denied = LiveScreen(), Failed(kind=ErrorClass.DENIED, message="closed")

    def failed(task: str, attempt: int = 1) -> Event:
        return events.AttemptFinished(task=task, attempt=attempt, outcome=denied, at=at(2))

    for event in (
        requested(),
        tasks_of("a", "b", "c"),
        started("a"),
        failed("a"),
        events.TaskFailed(task="a", cause=denied, at=at(2)),
        started("b"),
        failed("b"),
        events.RetryPlanned(task="b", attempt=2, due_at=at(3), at=at(2)),
        started("b", 3),
        failed("b", 2),
        events.TaskFailed(task="b", cause=denied, at=at(4)),
        started("c"),
        failed("c"),
        events.TaskFailed(task="c", cause=replace(denied, message="no time"), at=at(4)),
    ):
        screen.hear(event)
    screen.close()
    told = capsys.readouterr().err.replace("\x1b[?2026h", "").replace("\x1b[?2026l", "")
    assert told.splitlines() == [
        "✗ gave up on a after 1.0s: denied: closed",
        "↻ b failed after 1.0s: denied: closed",
        "↻ b is tried again in 1.0s",
        "✗ gave up on b: denied: closed",
        "✗ c failed after 1.0s: denied: closed",
        "✗ gave up on c: denied: no time",
    ]


def test_items_of_a_mapped_task_are_one_line_with_a_bar() -> None:
    task = ch.Task(id="m", description="Do each", worker="w", for_each=[1, 2, 3, 4])
    listed = events.ItemsListed(task="m", first=0, items=tuple(map(Value.of, range(4))), at=BEGAN)
    plan = events.PlanAdopted(plan=ch.Plan(goal="g", tasks=[task]), at=BEGAN)
    state = state_of(requested(), plan, listed, *(started(f"m[{i}]") for i in range(4)))
    for event in (done("m[0]"), done("m[1]")):
        state.hear(event)
    running = [line for line in shown(state) if "◐" in line]
    assert len(running) == 1
    assert "█████░░░░░ 2 of 4 items done" in running[0]


def mapped_over(count: int) -> list[Event]:
    """The beginning of a run whose only task is done for so many items."""
    items = list(range(count))
    task = ch.Task(id="m", description="Do each", worker="w", for_each=items)
    listed = events.ItemsListed(task="m", first=0, items=tuple(map(Value.of, items)), at=BEGAN)
    plan = events.PlanAdopted(plan=ch.Plan(goal="g", tasks=[task]), at=BEGAN)
    return [requested(), plan, listed]


def test_a_task_whose_items_wait_for_their_next_try_keeps_its_line_and_says_why() -> None:
    failed = Failed(kind=ErrorClass.NETWORK, message="connection refused")
    state = state_of(*mapped_over(2), started("m[0]"), started("m[1]"))
    for task in ("m[0]", "m[1]"):
        state.hear(events.AttemptFinished(task=task, attempt=1, outcome=failed, at=at(2)))
    (line,) = [each for each in shown(state, 200) if each.startswith("  ↻ w")]
    assert "0 of 2 items done, 2 to be tried again: network: connection refused" in line
    state.hear(started("m[0]", 3))
    (line,) = [each for each in shown(state, 200) if each.startswith("  ◐ w")]
    assert "0 of 2 items done, 1 to be tried again" in line


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (events.AttemptPreempted(task="m[0]", attempt=1, at=at(2)), TaskState.READY),
        (events.AttemptLost(task="m[0]", attempt=1, reason="", at=at(2)), TaskState.RETRYING),
        (asks("m[0]", Question(id="q", text="Which?")), TaskState.ASKING),
    ],
)
def test_a_task_is_shown_as_the_items_that_it_waits_for(event: Event, state: TaskState) -> None:
    live = state_of(*mapped_over(2), started("m[0]"), event)
    assert live.tasks["m"].state is state
    live.hear(started("m[1]", 3))
    assert live.tasks["m"].state is TaskState.RUNNING


def test_a_task_that_is_done_in_part_has_a_mark_of_its_own() -> None:
    part = Done(Value.of("x"), gaps=("item 1: no",))
    ended = events.AttemptFinished(task="a", attempt=1, outcome=part, at=at(2))
    state = state_of(requested(), tasks_of("a", "b"), started("a"), ended)
    assert any("◧ a" in line for line in shown(state, 120, 40))


def test_items_that_run_at_once_count_and_lost_attempts_do_not() -> None:
    task = ch.Task(id="b", description="Do each", worker="w", for_each=[1, 2, 3, 4])
    plan = events.PlanAdopted(plan=ch.Plan(goal="g", tasks=[task]), at=BEGAN)
    items = events.ItemsListed(task="b", first=0, items=tuple(map(Value.of, range(4))), at=BEGAN)
    lost = events.AttemptLost(task="b[3]", attempt=9, reason="", at=at(1))  # of the leader before
    begun = [started(f"b[{n}]") for n in range(4)]
    state = state_of(requested(), plan, items, lost, *begun)
    assert state.speedup.at(at(5)) == pytest.approx(16 / 5)  # they began after one second
    for n in range(3):
        state.hear(done(f"b[{n}]", 3))
    assert state.speedup.at(at(7)) == pytest.approx(
        12 / 7
    )  # two seconds of three items, six of one


def test_an_attempt_that_only_waits_for_its_nested_run_does_not_count_as_work() -> None:
    """Nested runs whose tasks wait for a slot do not make a run any faster."""
    state = state_of(requested(), tasks_of("a", "b", "c"))
    for id_ in "abc":
        state.hear(started(id_, 0))
        state.hear(nested(id_, f"n{id_}"))
        state.hear_below(f"n{id_}", requested())
    state.hear_below("na", started("parse", 0))
    assert state.speedup.at(at(4)) == 1.0
    state.hear_below("na", done("parse", 4))
    state.hear(done("a", 4))
    assert state.speedup.at(at(8)) == 0.5


def test_the_figure_of_the_live_view_becomes_that_of_the_trace() -> None:
    @ch.worker("reader", "Reads", capacity=2)
    async def read(brief: ch.Brief) -> str:
        await asyncio.sleep(0.05)
        if brief.attempt == 1 and brief.task.id == "t0":
            raise ValueError("not yet")
        return "done"

    inner = [ch.Task(id=f"t{n}", description="Read", worker="reader") for n in range(3)]
    below = ch.Supervisor([read], name="below", plan_for=lambda _: ch.Plan(goal="g", tasks=inner))
    boss, state = ch.Supervisor([below, read]), LiveState()
    below.on(*events.KINDS.values())(state.hear_below)
    boss.on(*events.KINDS.values())(lambda _, event: state.hear(event))
    items = ch.Task(id="b", description="Do each", worker="below", for_each=[1, 2, 3])
    alone = ch.Task(id="a", description="Read", worker="reader", needs=["b"])

    async def main() -> ch.RunResult:
        async with boss:
            return await boss.run(ch.Plan(goal="g", tasks=[items, alone]))

    result = asyncio.run(main())
    assert state.ended_at is not None
    assert state.speedup.at(state.ended_at) == pytest.approx(result.speedup, rel=0.02)
    assert result.speedup < 2.1


def test_a_resumed_run_shows_the_time_since_it_began_and_whether_it_is_paused() -> None:
    @ch.worker("w", "Works")
    async def work(brief: ch.Brief) -> str:
        return "done"

    plan = ch.Plan(goal="g", tasks=[ch.Task(id="a", description="Do one thing", worker="w")])
    result = ch.Supervisor([work]).run_sync(plan)
    state = LiveState()
    state.catch_up(result)
    assert result.trace.began_at is not None
    assert state.elapsed(result.trace.began_at + timedelta(seconds=90)) == timedelta(seconds=90)
    assert not state.is_paused


@pytest.mark.parametrize("size", SIZES)
def test_no_line_is_wider_than_the_terminal_and_none_is_too_many(size: tuple[int, int]) -> None:
    """Whatever happens, whatever things are called, however small the terminal is."""
    columns, rows = size
    chance = random.Random(f"{size}")
    for _ in range(30):
        state = some_state(chance)
        question = Question(
            id="q",
            text=f"{HOSTILE} " * 20,
            choices=tuple(f"choice {n} {HOSTILE}" for n in range(9)),
        )
        asked = OpenQuestion(question=question, task="t1", typed="typed " * 30)
        for more in ({}, {"asked": asked}, {"below": [some_state(chance)]}):
            lines = shown(state, columns, rows, keys="p pause · Ctrl-C stops", **more)
            assert 0 < len(lines) <= rows - 1
            assert max(map(cell_width, lines)) <= columns
            text = "".join(lines)
            assert not any(unicodedata.category(c) in ("Cc", "Cf") for c in text), repr(text)


def some_state(chance: random.Random) -> LiveState:
    count = chance.choice((0, 1, 12, 200))
    names = [f"t{n}" for n in range(count)]
    state = LiveState(chance.choice((NestedPath(), NestedPath().down(HOSTILE, HOSTILE))))
    state.hear(requested())
    tasks = [
        ch.Task(
            id=name,
            description=HOSTILE,
            worker="w",
            needs=chance.sample(names[:n], min(n, chance.randint(0, 3))),
        )
        for n, name in enumerate(names)
    ]
    state.request = HOSTILE
    if tasks:
        state.hear(events.PlanAdopted(plan=ch.Plan(goal="g", tasks=tasks), at=BEGAN))
    failed = Failed(kind=ErrorClass.LOGIC, message=HOSTILE)
    for name in chance.sample(names, count * 2 // 3):
        state.hear(started(name, worker=HOSTILE))
        ends: list[Event] = [
            done(name),
            events.TaskFailed(task=name, cause=failed, at=at(2)),
            events.TaskSkipped(task=name, cause="t0", why="", at=at(2)),
            asks(name, Question(id=name, text=HOSTILE)),
            events.ProgressNoted(task=name, attempt=1, text=HOSTILE, at=at(2)),
        ]
        state.hear(chance.choice(ends))
    return state


def test_wide_characters_are_cut_by_columns() -> None:
    assert cut_to("漢字漢字", 5) == "漢字…"
    assert cut_to("plain text", 5) == "plai…"
    assert cut_to("abc", 0) == ""


def test_a_burst_of_changes_keeps_every_finished_task_and_counts_what_it_leaves_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen, ids = LiveScreen(), [f"t{n}" for n in range(30)]
    begun: list[Event] = [requested(), tasks_of(*ids), *map(started, ids)]
    for event in begun:
        screen.hear(event)
    for n in range(50):
        screen.hear(events.RunSteered(note=f"note {n}", by="eva", at=at(1)))
    for id_ in ids:
        screen.hear(done(id_))
    screen.close()
    lines = capsys.readouterr().err.splitlines()
    assert [f"t{n}" for n in range(30)] == [
        re.split(r"\s+", each)[1] for each in lines if "✓" in each
    ]
    notes = [each for each in lines if "note " in each]
    assert (len(notes), "note 39" in notes[-1]) == (40, True)
    assert [each for each in lines if "more lines" in each] == [
        "· 10 more lines; to see all: chargehand trace r1"
    ]


def test_a_task_that_waits_for_its_next_try_is_not_counted_as_running() -> None:
    """Nor is one of which all items wait for theirs."""
    failed = Failed(kind=ErrorClass.NETWORK, message="reset")
    mapped = ch.Plan(
        goal="g",
        tasks=[
            ch.Task(id="a", description="Do a", worker="w"),
            ch.Task(id="b", description="Do each", worker="w", for_each=[1, 2]),
        ],
    )
    happened: list[Event] = [requested(), events.PlanAdopted(plan=mapped, at=BEGAN)]
    state = state_of(*happened, *(started(task, 0) for task in ("a", "b[0]", "b[1]")))
    assert state.counts[TaskState.RUNNING] == 2
    for task in ("a", "b[0]", "b[1]"):
        state.hear(events.AttemptFinished(task=task, attempt=1, outcome=failed, at=at(1)))
    bar = LiveFrame(state=state, now=at(2)).lines()[2]
    text = "".join(part.text for part in bar)
    assert "0 of 2 done · 2 to be tried again" in text
    assert "↻" in text
    state.hear(started("b[0]", 3))
    assert (state.counts[TaskState.RUNNING], state.counts[TaskState.RETRYING]) == (1, 1)


@pytest.mark.parametrize(
    ("size", "wanted"), [((120, 40), None), ((80, 24), True), ((80, 28), None)]
)
def test_an_open_question_leaves_rows_to_the_plan(
    size: tuple[int, int], wanted: bool | None
) -> None:
    """However long it is: its first and its last lines are shown."""
    state = state_of(requested(), tasks_of("a -> b", "b -> c"), started("a"))
    question = Question(
        id="q", text="word " * 200, choices=tuple(map(str, range(30))), evidence=Value.of([1] * 30)
    )
    open_ = OpenQuestion(question=question, task="a", typed="typed")
    lines = shown(state, *size, asked=open_, keys="Enter answers", shows_plan=wanted)
    assert [line.strip() for line in lines if re.match(r"  [123]  ", line)] == [
        "1  ◐ a",
        "2  ◌ b",
        "3  ◌ c",
    ]
    assert any("a asks" in line for line in lines)
    assert lines[-2].endswith("› typed█")
    assert lines[-1] == "  Tab plan · Enter answers"
    hidden = shown(state, *size, asked=open_, shows_plan=False)
    assert not any(line.startswith("  1  ◐ a") for line in hidden)


def test_a_run_that_is_paused_for_want_of_money_needs_a_person() -> None:
    question = Question(id="q", text="More?", about="budget")
    state = state_of(
        requested(),
        tasks_of("a"),
        events.RunPaused(at=at(1)),
        events.PersonAsked(task="@budget:1", attempt=0, question=question, at=at(1)),
    )
    assert "needs you" in shown(state)[1]
    state.hear(
        events.QuestionAnswered(question="q", task="@budget:1", text="stop", by="", at=at(2))
    )
    assert "paused" in shown(state)[1]


def test_tasks_of_a_nested_run_are_shown_with_the_item_that_the_run_is_for() -> None:
    state = state_of(requested(), tasks_of("book"), started("book", worker="clerks"))
    below = LiveState(NestedPath().down("book[18]", "clerks"))
    for event in (requested(), tasks_of("parse"), started("parse", worker="parser")):
        below.hear(event)
    (row,) = [line for line in shown(state, below=[below]) if "parser" in line]
    assert row.split()[:6] == ["◐", "clerks", "›", "parser", "book[18]", "›"]
    assert f"{below.where}parse" == "book[18] › clerks › parse"
