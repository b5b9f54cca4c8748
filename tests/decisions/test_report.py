"""The report agrees with what anybody can work out from the events, and fits on a screen."""

import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import chargehand as ch
from chargehand.decisions.task_and_state_words import counted
from chargehand.decisions.time_and_cost_report import (
    Report,
    is_idle_worth_telling,
    report_of,
    spent_in_words,
    table,
    time_in_words,
)
from chargehand.decisions.trace import trace_of
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    Effect,
    Event,
    PlanAdopted,
    QuestionAnswered,
    RetryHow,
    RetryPlanned,
    RunFinished,
    RunRequested,
    RunStatus,
    StepFinished,
    StepStarted,
    TaskFailed,
    TaskSkipped,
    encode,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import (
    Done,
    ErrorClass,
    Failed,
    NeedsInput,
    Outcome,
    Question,
    Usage,
)
from chargehand.facts.plan import Need, Plan, Task
from chargehand.facts.value import Value
from chargehand.testing import FakeClock, run_virtual

START = datetime(2026, 1, 1, tzinfo=UTC)
BROKEN = Failed(kind=ErrorClass.LOGIC, message="it broke")


# Random runs


def random_plan(chance: random.Random) -> Plan:
    tasks = []
    for number in range(chance.randint(1, 12)):
        needs = [
            Need(f"t{before}", optional=chance.random() < 0.5)
            for before in range(number)
            if chance.random() < 0.3
        ]
        tasks.append(
            Task(
                id=f"t{number}",
                description=f"Do number {number}",
                worker=chance.choice(["ann", "bob", "cid"]),
                needs=needs,
                args={
                    "naps": [chance.choice([0.5, 1, 2, 3]) for _ in range(chance.randint(1, 3))],
                    "stumbles": chance.choice([0, 0, 0, 1, 2]),
                    "is_hopeless": chance.random() < 0.1,
                },
            )
        )
    return Plan(goal="random", tasks=tasks)


async def toil(brief: ch.Brief) -> str:
    """Nap, each nap a model call that costs money; stumble as often as the task says."""
    for nap in brief.task.args["naps"]:

        async def call(_: str, nap: float = nap) -> Done:
            await asyncio.sleep(nap)
            reply = {"parts": [], "stop": "end"}
            said = {"reply": reply, "model": f"m{nap}", "source": "call", "sends": 1}
            return Done(Value.of(said), Usage(calls=1, tokens_in=7, money=nap / 100))

        await brief.durable("model", nap, call, effect=Effect.PURE, about={"models": ["m"]})
    await asyncio.sleep(0.25)
    if brief.task.args["is_hopeless"]:
        raise ch.WorkerError("never", kind="denied")
    if brief.attempt <= brief.task.args["stumbles"]:
        raise ConnectionError("stumbled")
    return "done"


def live_run(plan: Plan, parallel: int) -> list[Event]:
    crew = [ch.FunctionWorker(toil, name, "Toils", capacity=2) for name in ("ann", "bob", "cid")]

    async def run() -> list[Event]:
        events: list[Event] = []
        async with ch.Supervisor(crew, clock=FakeClock(), parallel=parallel) as boss:
            boss.on(*ch.events.KINDS.values())(lambda _, event: events.append(event))
            await boss.run(plan)
        return events

    return run_virtual(run())


def with_duties(events: Sequence[Event], chance: random.Random) -> list[Event]:
    """The same run, as if its plan had been thought of first and its answer composed at last."""
    first, leads, adopted, *work, end = events
    thought, composed = (timedelta(seconds=chance.randint(1, 9)) for _ in range(2))
    later = [replace(event, at=event.at + thought) for event in (adopted, *work, end)]
    last = later[-1].at
    return [
        first,
        leads,
        AttemptStarted(task="@plan", attempt=1, worker="@planner", at=first.at),
        later[0],
        AttemptFinished(task="@plan", attempt=1, outcome=Done(), at=later[0].at),
        *later[1:-1],
        AttemptStarted(task="@answer", attempt=1, worker="@answerer", at=last),
        AttemptFinished(task="@answer", attempt=1, outcome=Done(), at=last + composed),
        replace(later[-1], at=last + composed),
    ]


# The same figures by other means: sweeping over the events forwards, never looking back


def seconds_in_turn(events: Sequence[Event]) -> float:
    """The number of attempts at work that will be done, and of steps that such an attempt goes on from, over time."""
    fruitful = {
        (event.task, event.attempt)
        for event in events
        if isinstance(event, AttemptFinished) and isinstance(event.outcome, Done)
    }
    done = {task for task, _ in fruitful}
    retries = [event for event in events if isinstance(event, RetryPlanned)]
    assert all(event.how is RetryHow.AGAIN for event in retries), "it goes on from all its steps"
    total, at_work, before = 0.0, 0, events[0].at
    for event in events:
        total += at_work * (event.at - before).total_seconds()
        before = event.at
        if isinstance(event, AttemptStarted | AttemptFinished):
            is_one = (event.task, event.attempt) in fruitful
            at_work += is_one if isinstance(event, AttemptStarted) else -is_one
        elif isinstance(event, StepStarted | StepFinished):
            is_kept = event.task in done and (event.task, event.attempt) not in fruitful
            at_work += is_kept if isinstance(event, StepStarted) else -is_kept
    return total


def busy_by_worker(events: Sequence[Event]) -> dict[str, float]:
    busy: dict[str, float] = defaultdict(float)
    at_work: dict[str, str] = {}
    before = events[0].at
    for event in events:
        for worker in at_work.values():
            busy[worker] += (event.at - before).total_seconds()
        before = event.at
        if isinstance(event, AttemptStarted):
            at_work[event.task] = event.worker
        elif isinstance(event, AttemptFinished):
            del at_work[event.task]
    return busy


def money_spent(events: Sequence[Event]) -> float:
    """From the bytes in which the journal keeps them."""
    facts = [json.loads(encode(event)) for event in events]
    usages = [each.get("outcome", {}).get("usage", {}) for each in facts]
    return sum(float(usage.get("money", 0)) for usage in usages)


def path_walked(events: Sequence[Event]) -> list[str]:
    """Count down what each task still waits for; whatever brings it to nothing let it begin."""
    waits: dict[str, set[str]] = {}
    let_begin: dict[str, str] = {}
    ended: set[str] = set()
    begun: set[str] = set()
    planner = last = ""
    for event in events:
        match event:
            case AttemptStarted(task=task):
                begun.add(task)
                if task.startswith("@"):
                    let_begin[task] = last
                    planner = task
            case PlanAdopted(plan=plan):
                for planned in plan.tasks:
                    waits[planned.id] = {need.task for need in planned.all_needs} - ended
                    let_begin[planned.id] = planner
            case (
                AttemptFinished(task=task, outcome=Done())
                | TaskFailed(task=task)
                | TaskSkipped(task=task)
            ):
                last = task
                ended.add(task)
                for other, left in waits.items():
                    if task in left:
                        left.remove(task)
                        if not left:
                            let_begin[other] = task
            case _:
                pass
    path = []
    while last:
        path.append(last)
        last = let_begin.get(last, "")
    return [task for task in reversed(path) if task in begun]


def assert_agrees(report: Report, events: Sequence[Event]) -> None:
    wall = (events[-1].at - events[0].at).total_seconds()
    in_turn = seconds_in_turn(events)
    assert report.wall.total_seconds() == pytest.approx(wall)
    assert report.in_turn.total_seconds() == pytest.approx(in_turn)
    assert report.speedup == pytest.approx(in_turn / wall)
    assert [each.task for each in report.path] == path_walked(events)
    assert report.path_time.total_seconds() == pytest.approx(wall), "it leads from end to end"
    assert report.usage.money == pytest.approx(money_spent(events))
    busy = busy_by_worker(events)
    assert {w.worker: w.busy.total_seconds() for w in report.workers} == pytest.approx(busy)
    assert sum(w.share for w in report.workers) == pytest.approx(1)
    assert sum(w.usage.money for w in report.workers) == pytest.approx(report.usage.money)
    assert sum(m.usage.money for m in report.models) == pytest.approx(report.usage.money)


@pytest.mark.parametrize("seed", range(60))
def test_speedup_critical_path_and_cost_agree_with_the_events(seed: int) -> None:
    chance = random.Random(seed)
    events = live_run(random_plan(chance), parallel=chance.randint(1, 4))
    if seed % 2:
        events = with_duties(events, chance)
    report = report_of(trace_of(events))
    assert_agrees(report, events)
    assert len(report.to_text().splitlines()) <= 20


# What was in vain


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def began(attempt: int, second: float, task: str = "t") -> AttemptStarted:
    return AttemptStarted(task=task, attempt=attempt, worker="ann", at=at(second))


def ended(attempt: int, second: float, outcome: Outcome, task: str = "t") -> AttemptFinished:
    return AttemptFinished(task=task, attempt=attempt, outcome=outcome, at=at(second))


def asked(attempt: int, first: float, last: float, source: str = "call") -> list[Event]:
    """A model call that cost a cent."""
    said = {"reply": {"parts": []}, "model": "m", "source": source, "sends": 1}
    usage = Usage(calls=1, tokens_in=1200, tokens_out=34, money=0.01)
    return [
        StepStarted(
            task="t",
            attempt=attempt,
            name="model",
            ordinal=1,
            effect=Effect.PURE,
            key="k",
            digest="",
            at=at(first),
        ),
        StepFinished(
            task="t",
            attempt=attempt,
            name="model",
            ordinal=1,
            key="k",
            outcome=Done(Value.of(said), usage),
            at=at(last),
        ),
    ]


def story(*events: Event, tasks: Sequence[Task] = ()) -> list[Event]:
    request = RunRequested(
        run="r1", request="", limits=Limits(), seed=1, rules=1, crew="", at=at(0)
    )
    plan = Plan(goal="g", tasks=tasks or [Task(id="t", description="Do it", worker="ann")])
    return [request, PlanAdopted(plan=plan, at=at(0)), *events]


def tried_twice(how: RetryHow, last: Outcome) -> Report:
    """4 s, of which 3 s were a model call, were for nothing; then 2 s more."""
    events = story(
        began(1, 0),
        *asked(1, 0, 3),
        ended(1, 4, BROKEN),
        RetryPlanned(task="t", attempt=1, due_at=at(5), how=how, at=at(4)),
        began(2, 5),
        ended(2, 7, last),
    )
    return report_of(trace_of(events))


def test_a_step_that_the_next_try_went_on_from_was_not_in_vain() -> None:
    waste = tried_twice(RetryHow.AGAIN, Done()).waste
    assert (waste.attempts, waste.time, waste.usage) == (1, timedelta(seconds=1), Usage())


def test_steps_that_a_later_attempt_went_on_from_are_work_that_counts() -> None:
    assert tried_twice(RetryHow.AGAIN, Done()).in_turn == timedelta(seconds=3 + 2)
    assert tried_twice(RetryHow.AFRESH, Done()).in_turn == timedelta(seconds=2)
    assert tried_twice(RetryHow.AGAIN, BROKEN).in_turn == timedelta(0)


def test_a_run_whose_leader_was_killed_is_as_fast_as_what_it_kept() -> None:
    """Six seconds of steps, a death in the seventh, and four seconds after the takeover."""
    lost = AttemptLost(task="t", attempt=1, reason="its process died", at=at(8))
    steps = [*asked(1, 0, 6), lost]
    report = report_of(trace_of(story(began(1, 0), *steps, began(2, 8), ended(2, 12, Done()))))
    assert (report.in_turn, report.waste.time) == (timedelta(seconds=10), timedelta(seconds=2))
    assert report.speedup == pytest.approx(10 / 12)


def test_what_a_task_did_before_it_asked_a_person_counts_and_the_wait_does_not() -> None:
    question = Question(id="r1:t:1", text="Which?")
    answered = QuestionAnswered(question=question.id, task="t", text="red", by="ann", at=at(90))
    events = story(
        began(1, 0),
        *asked(1, 0, 3),
        ended(1, 3, NeedsInput(question=question)),
        answered,
        began(2, 90),
        ended(2, 91, Done()),
    )
    report = report_of(trace_of(events))
    assert (report.in_turn, report.idle) == (timedelta(seconds=4), timedelta(seconds=87))
    assert report.speedup == 1


def test_a_step_that_a_person_settled_later_lasts_no_longer_than_its_attempt() -> None:
    begun, settled = asked(1, 1, 9)
    lost = AttemptLost(task="t", attempt=1, reason="its process died", at=at(2))
    events = story(began(1, 0), begun, lost, began(2, 3), settled, ended(2, 10, Done()))
    report = report_of(trace_of(events))
    assert (report.in_turn, report.waste.time) == (timedelta(seconds=8), timedelta(seconds=1))


def test_a_try_that_was_begun_afresh_was_all_in_vain() -> None:
    waste = tried_twice(RetryHow.AFRESH, Done()).waste
    assert (waste.time, waste.usage.money) == (timedelta(seconds=4), 0.01)


def test_of_a_task_that_came_to_nothing_everything_was_in_vain() -> None:
    waste = tried_twice(RetryHow.AGAIN, BROKEN).waste
    assert (waste.attempts, waste.time, waste.usage.money) == (2, timedelta(seconds=6), 0.01)


def test_a_worker_that_was_lost_has_failed() -> None:
    lost = AttemptLost(task="t", attempt=1, reason="its process died", at=at(1))
    report = report_of(trace_of(story(began(1, 0), lost, began(2, 1), ended(2, 3, Done()))))
    assert [(each.attempts, each.failures) for each in report.workers] == [(2, 1)]
    assert report.waste.time == timedelta(seconds=1)


# In words


def test_the_report_says_it_in_a_few_lines() -> None:
    tasks = [
        Task(id="t", description="Do it", worker="ann"),
        Task(id="then", description="Do the rest", worker="bob", needs=["t"]),
    ]
    events = story(
        began(1, 0),
        *asked(1, 0, 3),
        ended(1, 4, BROKEN),
        RetryPlanned(task="t", attempt=1, due_at=at(4), how=RetryHow.AFRESH, at=at(4)),
        began(2, 4),
        *asked(2, 4, 5, source="cache"),
        ended(2, 6, Done()),
        AttemptStarted(
            task="then", attempt=1, worker="bob", why="the longest way is left", at=at(8)
        ),
        ended(1, 10, Done(), "then"),
        RunFinished(status=RunStatus.SUCCEEDED, at=at(10)),
        tasks=tasks,
    )
    assert str(report_of(trace_of(events))).splitlines() == [
        "r1  succeeded in 10.0 s; one after another 4.0 s",
        "spent 2 calls, 2,400 + 68 tokens, $0.0200; answered from the cache: 1",
        "critical path  10.0 s, 100% of the time",
        "  t     ann  6.0 s  60%",
        "  then  bob  4.0 s  40%  2.0 s waiting",
        "longest waits for a slot",
        "  then  bob  2.0 s  the longest way is left",
        "workers",
        "  ann  2 attempts  6.0 s  75%  1 failed  2 calls, 2,400 + 68 tokens, $0.0200",
        "  bob  1 attempt   2.0 s  25%",
        "models",
        "  m  2 calls, 2,400 + 68 tokens, $0.0200",
        "wasted  1 attempt, 4.0 s, 1 call, 1,200 + 34 tokens, $0.0100; tried again 1 time",
    ]


def test_the_report_is_also_for_programs() -> None:
    facts = json.loads(tried_twice(RetryHow.AFRESH, Done()).to_json())
    assert (facts["wall"], facts["in_turn"], facts["retries"]) == (7, 2, 1)
    assert facts["path"][0] == {
        "task": "t",
        "worker": "ann",
        "length": 7,
        "waited": 1,
        "share": 1,
    }
    assert facts["waste"]["time"] == 4
    assert facts["models"][0]["usage"]["money"] == 0.01


def test_a_long_run_still_fits_on_a_screen() -> None:
    tasks = [
        Task(
            id=f"t{n}",
            description="Do it",
            worker=f"w{n}",
            needs=[f"t{n - 1}"] if n else [],
        )
        for n in range(50)
    ]
    work: list[Event] = []
    for n in range(50):
        start = AttemptStarted(task=f"t{n}", attempt=1, worker=f"w{n}", at=at(2 * n + 1))
        work += [start, ended(1, 2 * n + 2, Done(), f"t{n}")]
    report = report_of(trace_of(story(*work, tasks=tasks)))
    assert len(report.path) == 50
    text = report.to_text()
    assert len(text.splitlines()) <= 20
    assert "(the 4 longest of 50)" in text
    assert "workers (the 4 busiest of 50)" in text


def test_a_run_of_nothing_has_a_report() -> None:
    report = report_of(trace_of([]))
    assert report.to_text() == "run  not ended in 0 ms; one after another 0 ms"


def test_nested_runs_are_told_level_by_level() -> None:
    top = trace_of(story(began(1, 0), ended(1, 9, Done())))
    top.nest("t", trace_of(story(began(1, 0), *asked(1, 0, 8, "shared"), ended(1, 8, Done()))))
    report = report_of(top)
    assert (report.models[0].replies, report.cache_hits) == (1, 1)
    assert (
        report.to_text().splitlines()[-1]
        == "levels  0: 9.0 s, 1.0 s its own; 1: 8.0 s, 8.0 s its own"
    )


def test_names_cannot_move_the_cursor() -> None:
    assert table([["a\x1b[2J", "b"], ["long name", ""]]) == ["  a[2J       b", "  long name"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0123, "12 ms"), (1.26, "1.3 s"), (150, "2 min 30 s"), (9000, "2 h 30 min")],
)
def test_times_are_said_in_a_fitting_unit(seconds: float, words: str) -> None:
    assert time_in_words(timedelta(seconds=seconds)) == words


def test_small_sums_of_money_are_not_nothing() -> None:
    sums = [spent_in_words(Usage(money=money)) for money in (0.0, 0.00007, 0.0423, 1234.5)]
    assert sums == ["", "$0.000070", "$0.0423", "$1,234.50"]
    assert (counted(1, "call"), counted(0, "call")) == ("1 call", "0 calls")


def test_idle_time_that_would_be_shown_as_nothing_is_left_out() -> None:
    assert not is_idle_worth_telling(timedelta(milliseconds=40), timedelta(milliseconds=300))
    assert is_idle_worth_telling(timedelta(milliseconds=60), timedelta(milliseconds=300))
