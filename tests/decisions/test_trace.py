"""The trace holds everything that happened to a run, and fits the schema that is published of it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import chargehand as ch
from chargehand.decisions.measured_critical_path import covered
from chargehand.decisions.trace import Trace, trace_of
from chargehand.decisions.trace_types import StepKind
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    CancelRequested,
    DeadlinePassed,
    Effect,
    Event,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    PlanSealed,
    ProgressNoted,
    QuestionAnswered,
    QuestionExpired,
    ResultRefused,
    RetryHow,
    RetryPlanned,
    RunFinished,
    RunLed,
    RunReleased,
    RunRequested,
    RunStatus,
    StepFinished,
    StepStarted,
    TaskAdded,
    TaskFailed,
    TaskRewritten,
    TaskSkipped,
    WorkStopped,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, ErrorClass, Failed, NeedsInput, Outcome, Question, Usage
from chargehand.facts.plan import Need, Plan, Task
from chargehand.facts.value import Value
from chargehand.models.base import ModelRequest, ToolCall
from chargehand.testing import FakeClock, run_virtual

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 1, tzinfo=UTC)
BROKEN = Failed(kind=ErrorClass.LOGIC, message="it broke")
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "trace.json").read_text(encoding="utf-8"))


# A run, told by the second


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def requested(approach: Approach = Approach.WHOLE, **more: Any) -> RunRequested:
    given = {"run": "r1", "request": "a request", **more}
    return RunRequested(
        limits=Limits(), seed=1, rules=1, crew="", approach=approach, at=at(0), **given
    )


def task(id_: str, *needs: str | Need, description: str = "") -> Task:
    return Task(id=id_, description=description or f"Do {id_}", worker="ann", needs=needs)


def plan_of(*tasks: Task) -> Plan:
    return Plan(goal="a goal", tasks=tasks)


def began(id_: str, second: float, attempt: int = 1, why: str = "") -> AttemptStarted:
    worker = {"@p": "@planner", "@r": "@refiner", "@a": "@answerer"}.get(id_[:2], "ann")
    return AttemptStarted(task=id_, attempt=attempt, worker=worker, why=why, at=at(second))


def ended(
    id_: str, second: float, outcome: Outcome | None = None, attempt: int = 1
) -> AttemptFinished:
    return AttemptFinished(task=id_, attempt=attempt, outcome=outcome or Done(), at=at(second))


def worked(id_: str, first: float, last: float) -> list[Event]:
    return [began(id_, first), ended(id_, last)]


def step_began(
    id_: str, name: str, second: float, about: object = None, ordinal: int = 1, attempt: int = 1
) -> StepStarted:
    return StepStarted(
        task=id_,
        attempt=attempt,
        name=name,
        ordinal=ordinal,
        effect=Effect.PURE,
        key=f"{name}{ordinal}",
        digest="",
        about=Value.of(about),
        at=at(second),
    )


def step_ended(
    id_: str, name: str, second: float, outcome: Done | Failed, ordinal: int = 1, attempt: int = 1
) -> StepFinished:
    return StepFinished(
        task=id_,
        attempt=attempt,
        name=name,
        ordinal=ordinal,
        key=f"{name}{ordinal}",
        outcome=outcome,
        at=at(second),
    )


def called(text: str, **more: Any) -> dict[str, Any]:
    """A model call as it is stored."""
    reply = {"parts": [{"is": "text", "text": text}], "stop": "end"}
    return {
        "reply": reply,
        "model": "openai:m",
        "source": "call",
        "sends": 1,
        "waited": 0.0,
        **more,
    }


def assert_fits(trace: Trace) -> Any:
    """It fits the schema, whole and without its content; returns it as other programs see it."""
    for content in (True, False):
        facts = json.loads(trace.to_json(content=content))
        jsonschema.Draft202012Validator(SCHEMA).validate(facts)
    return json.loads(trace.to_json())


def stretches(trace: Trace) -> list[tuple[str, float, float, float]]:
    """The critical path: task, from second, to second, seconds worked."""
    return [
        (
            link.task,
            (link.began_at - START).total_seconds(),
            (link.ended_at - START).total_seconds(),
            link.worked,
        )
        for link in trace.path
    ]


# What the end waited for


def test_the_path_of_a_planned_run_goes_from_planning_through_tasks_to_the_answer() -> None:
    tasks = task("t1"), task("t2"), task("t4", "t1", "t2")
    trace = trace_of(
        [
            requested(),
            began("@plan", 0),
            PlanAdopted(plan=plan_of(*tasks), at=at(2)),
            ended("@plan", 2),
            began("t1", 2),
            began("t2", 2),
            ended("t2", 3),
            ended("t1", 5),
            began("t4", 6),
            ended("t4", 7),
            *worked("@answer", 7, 8),
            RunFinished(status=RunStatus.SUCCEEDED, at=at(8)),
        ]
    )
    assert trace.critical_path == ["@plan", "t1", "t4", "@answer"]
    assert stretches(trace) == [
        ("@plan", 0, 2, 2),
        ("t1", 2, 5, 3),
        ("t4", 5, 7, 1),
        ("@answer", 7, 8, 1),
    ]
    assert trace.path[2].waited == 1
    assert trace.plans[0].how == "adopted"
    assert_fits(trace)


def streamed(*rest: Event) -> Trace:
    """t1 is written at 1 and begins at once."""
    first: list[Event] = [
        requested(Approach.STREAM),
        began("@plan", 0),
        PlanOpened(goal="a goal", instruction="briefly", at=at(0.5)),
        TaskAdded(task=task("t1"), at=at(1)),
        began("t1", 1),
    ]
    return trace_of([*first, *rest])


def test_a_streamed_task_that_began_when_it_was_written_waited_for_the_planner() -> None:
    trace = streamed(
        ended("t1", 1.5),
        TaskAdded(task=task("t2", "t1"), at=at(2)),
        began("t2", 2),
        PlanSealed(at=at(3)),
        ended("@plan", 3),
        ended("t2", 4),
        *worked("@answer", 4, 5),
    )
    assert stretches(trace) == [("@plan", 0, 2, 2), ("t2", 2, 4, 2), ("@answer", 4, 5, 1)]


def test_a_streamed_task_whose_need_ended_later_waited_for_that() -> None:
    trace = streamed(
        TaskAdded(task=task("t2", "t1"), at=at(2)),
        PlanSealed(at=at(3)),
        ended("@plan", 3),
        ended("t1", 6),
        *worked("t2", 6, 7),
        *worked("@answer", 7, 8),
    )
    assert trace.critical_path == ["@plan", "t1", "t2", "@answer"]
    assert stretches(trace)[0] == ("@plan", 0, 1, 1), "until t1 was written"
    version = trace.plans[0]
    assert (version.how, version.sealed_at) == ("streamed", at(3))
    assert [(each.task.id, each.at) for each in version.added] == [("t1", at(1)), ("t2", at(2))]
    assert_fits(trace)


def test_an_answer_that_waited_for_the_planner_to_finish_says_so() -> None:
    trace = streamed(
        TaskAdded(task=task("t2", "t1"), at=at(2)),
        ended("t1", 2),
        *worked("t2", 2, 3),
        PlanSealed(at=at(9)),
        ended("@plan", 9),
        *worked("@answer", 9, 10),
    )
    assert trace.critical_path == ["@plan", "@answer"]


def test_a_new_plan_stands_between_what_failed_and_what_replaced_it() -> None:
    trace = trace_of(
        [
            requested(),
            began("@plan", 0),
            PlanAdopted(plan=plan_of(task("t1"), task("t2")), at=at(1)),
            ended("@plan", 1),
            began("t1", 1),
            began("t2", 1),
            ended("t1", 4, BROKEN),
            TaskFailed(task="t1", cause=BROKEN, at=at(4)),
            began("@plan:2", 4),
            ended("t2", 5),
            PlanAmended(
                version=2,
                added=(task("t3"),),
                replaced=("t1",),
                reason="t1 came to nothing",
                at=at(6),
            ),
            ended("@plan:2", 6),
            *worked("t3", 6, 8),
            *worked("@answer", 8, 9),
            RunFinished(status=RunStatus.SUCCEEDED, at=at(9)),
        ]
    )
    assert trace.critical_path == ["@plan", "t1", "@plan:2", "t3", "@answer"]
    amended = trace.plans[1]
    assert (amended.version, amended.how, amended.replaced) == (2, "amended", ("t1",))
    assert amended.reason == "t1 came to nothing"
    assert sum(link.length for link in trace.path) == 9, "the stretches cover the whole run"
    assert_fits(trace)


def test_rewriting_a_task_is_part_of_the_time_of_that_task() -> None:
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(plan=plan_of(task("t:1", description="Do it")), at=at(0)),
            began("t:1", 0),
            ended("t:1", 2, BROKEN),
            RetryPlanned(task="t:1", attempt=1, due_at=at(2.5), how=RetryHow.REWRITTEN, at=at(2)),
            began("@refine:t:1:1", 2),
            TaskRewritten(task="t:1", description="Count the words", attempt=1, at=at(3)),
            ended("@refine:t:1:1", 3),
            began("t:1", 5, attempt=2),
            ended("t:1", 6, attempt=2),
        ]
    )
    assert stretches(trace) == [("t:1", 0, 6, 4)], "2 s tried, 1 s rewritten, 1 s tried again"
    assert [(each.before, each.description) for each in trace.rewrites] == [
        ("Do it", "Count the words")
    ]
    assert [(each.how, each.due_at) for each in trace.retried] == [("rewritten", at(2.5))]
    assert trace.retries == 1
    first, _, second = trace.attempts
    assert not first.is_carried_on, "a rewritten task starts anew"
    assert second.waited == 2, "its words were ready at 3, and it got a slot of 5"
    assert trace.plans[0].how == "given"
    assert_fits(trace)


def test_the_path_passes_through_what_was_skipped() -> None:
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(
                plan=plan_of(task("a"), task("b", "a"), task("c", Need("b", optional=True))),
                at=at(0),
            ),
            began("a", 0),
            ended("a", 2, BROKEN),
            TaskFailed(task="a", cause=BROKEN, at=at(2)),
            TaskSkipped(task="b", cause="a", why="a came to nothing", at=at(2)),
            *worked("c", 2, 3),
        ]
    )
    assert trace.critical_path == ["a", "c"]
    assert trace.failed == {"a": "logic: it broke"}
    assert trace.skipped == {"b": "a came to nothing"}


def test_what_ended_after_a_task_was_skipped_did_not_hold_it_up() -> None:
    """b's own time is over at 3; that a, which it needs, goes on until 4 is nothing to c."""
    plan = plan_of(task("a"), task("b", "a"), task("c", Need("b", optional=True)))
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(plan=plan, at=at(0)),
            began("a", 0),
            DeadlinePassed(task="b", at=at(3)),
            TaskSkipped(task="b", cause="", why="there was no time left", at=at(3)),
            began("c", 3),
            ended("a", 4),
            ended("c", 5),
        ]
    )
    assert stretches(trace) == [("c", 3, 5, 2)]


def test_a_planner_that_begins_again_is_still_where_it_all_began() -> None:
    trace = streamed(
        ended("t1", 1.5),
        AttemptLost(task="@plan", attempt=1, reason="its process died", at=at(2)),
        began("@plan", 3, attempt=2),
        TaskAdded(task=task("t2"), at=at(4)),
        *worked("t2", 4, 5),
    )
    assert stretches(trace) == [("@plan", 0, 4, 3), ("t2", 4, 5, 1)]


def test_a_try_that_is_rewritten_before_it_is_due_waits_until_it_is() -> None:
    events: list[Event] = [
        requested(Approach.GIVEN),
        PlanAdopted(plan=plan_of(task("t")), at=at(0)),
        began("t", 0),
        ended("t", 1, BROKEN),
        RetryPlanned(task="t", attempt=1, due_at=at(6), how=RetryHow.REWRITTEN, at=at(1)),
        *worked("@refine:t:1", 1, 2),
    ]
    assert trace_of(events).path == [], "no task has ended yet"
    events.append(began("t", 6, attempt=2))
    assert trace_of(events).attempts[-1].waited == 0


def test_the_stretches_follow_each_other_even_after_rewriting_that_came_to_nothing() -> None:
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(plan=plan_of(task("a"), task("b")), at=at(0)),
            began("a", 0),
            began("b", 0),
            ended("b", 1, BROKEN),
            began("@refine:b:1", 1),
            ended("a", 3),
            WorkStopped(reason="out of time", at=at(3)),
            ended("@refine:b:1", 4),
            *worked("@answer", 4, 5),
        ]
    )
    assert stretches(trace) == [("a", 0, 3, 3), ("@answer", 3, 5, 1)]


def test_a_run_in_which_nothing_ended_has_no_path_yet() -> None:
    trace = trace_of([requested(), began("@plan", 0)])
    assert trace.path == []
    assert trace.attempts[0].ending == ""
    assert_fits(trace)


# What was done


def test_a_model_call_tells_what_was_asked_of_whom_and_what_came_back() -> None:
    usage = Usage(calls=2, tokens_in=10, tokens_out=3, money=0.5)
    about = {"models": ["openai:a", "openai:m"], "turns": [{"role": "user"}]}
    answer = called("hello", sends=2, waited=1.5)
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(plan=plan_of(task("t")), at=at(0)),
            began("t", 0, why="ann is free"),
            step_began("t", "model", 1, about),
            step_ended("t", "model", 2, Done(Value.of(answer, ("web",)), usage)),
            step_began("t", "model", 2, ordinal=2),
            step_ended("t", "model", 2, Done(Value.of(called("", source="cache", sends=0))), 2),
            step_began("t", "model", 2, about, ordinal=3),
            step_ended("t", "model", 3, BROKEN, 3),
            step_began("t", "model", 3, about, ordinal=4),
            step_ended("t", "model", 4, Done(Value(blob="b10b", size=70_000), usage), 4),
            ended("t", 4, Done(Value.of("done"), Usage(tokens_in=1))),
        ]
    )
    (attempt,) = trace.attempts
    first, cached, failed, large = attempt.steps
    assert {step.kind for step in attempt.steps} == {StepKind.MODEL}
    assert (first.model, first.source, first.sends, first.waited) == ("openai:m", "call", 2, 1.5)
    assert (first.given, first.value) == (about, answer["reply"])
    assert (first.usage, first.taint) == (usage, ("web",))
    assert (cached.given, cached.source) == (None, "cache"), "too long to be written down"
    assert (failed.error, failed.model) == ("logic: it broke", "openai:a")
    assert (large.value, large.blob, large.size) == (None, "b10b", 70_000)
    assert (attempt.why, attempt.value) == ("ann is free", "done")
    assert attempt.usage == trace.usage == usage + usage + Usage(tokens_in=1)
    assert_fits(trace)


def test_a_tool_call_tells_its_arguments_and_what_the_model_was_told() -> None:
    about = {"arguments": '{"a": 1}'}
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(plan=plan_of(task("t")), at=at(0)),
            began("t", 0),
            step_began("t", "tool add", 1, about),
            step_ended("t", "tool add", 2, Done(Value.of({"text": "3"}))),
            step_began("t", "tool add", 2, about, 2),
            step_ended("t", "tool add", 3, Done(Value.of({"text": "no", "is_error": True})), 2),
            step_began("t", "tool add", 3, [[1], {}], 3),
        ]
    )
    right, wrong, own = trace.attempts[0].steps
    assert (right.kind, right.given, right.value) == (StepKind.TOOL, about, {"text": "3"})
    assert wrong.error == "told to the model: no"
    assert (own.kind, own.ended_at) == (StepKind.STEP, None), "a worker's own step of that name"


def test_a_step_that_a_person_settled_ends_with_the_attempt_that_began_it() -> None:
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(plan=plan_of(task("t")), at=at(0)),
            began("t", 0),
            step_began("t", "pay", 1),
            AttemptLost(task="t", attempt=1, reason="its process died", at=at(2)),
            began("t", 3, attempt=2),
            step_ended("t", "pay", 4, Done(Value.of("ran")), attempt=2),
            ended("t", 5, attempt=2),
        ]
    )
    lost, second = trace.attempts
    assert (lost.ending, lost.error, lost.is_carried_on) == ("lost", "its process died", True)
    assert (lost.steps[0].ended_at, lost.steps[0].value) == (at(2), "ran")
    assert (second.steps, second.waited) == ([], 1)


def everything(word: str) -> list[Event]:
    """A run in which one of everything happened, and `word` was said wherever something was said."""
    broken = Failed(kind=ErrorClass.NETWORK, message=word)
    question = Question(id="q1", text=word, choices=(word,))
    other = Question(id="q2", text=word)
    told = task("t", description=word)
    return [
        requested(Approach.STEPS, request=word),
        RunLed(node="n1", epoch=1, at=at(0)),
        began("@plan", 0),
        PlanOpened(goal=word, instruction=word, at=at(0)),
        TaskAdded(task=Task(id="t", description=word, worker="ann", args={"a": word}), at=at(0)),
        PlanSealed(at=at(0)),
        ended("@plan", 0),
        began("t", 0),
        ProgressNoted(task="t", attempt=1, text=word, fraction=0.5, at=at(1)),
        step_began("t", "model", 1, {"models": ["m"], "turns": [word]}),
        step_ended("t", "model", 1, Done(Value.of(called(word)))),
        step_began("t", "tool x", 1, {"arguments": word}),
        step_ended("t", "tool x", 1, Done(Value.of({"text": word, "is_error": True}))),
        step_began("t", "own", 1),
        step_ended("t", "own", 1, broken),
        ended("t", 2, NeedsInput(question=question)),
        QuestionAnswered(question="q1", task="t", text=word, by="eva", at=at(3)),
        began("t", 3, 2),
        ended("t", 4, NeedsInput(question=other), 2),
        QuestionExpired(question="q2", task="t", at=at(5)),
        TaskRewritten(task="t", description=word, attempt=2, at=at(5)),
        RetryPlanned(task="t", attempt=2, due_at=at(6), at=at(5)),
        RunReleased(node="n1", reason=word, at=at(6)),
        RunLed(node="n2", epoch=2, at=at(7)),
        began("t", 7, 3),
        DeadlinePassed(task="t", at=at(8)),
        WorkStopped(reason=word, by="eva", at=at(8)),
        CancelRequested(by="eva", reason=word, at=at(8)),
        ended("t", 8, broken, 3),
        TaskFailed(task="t", cause=broken, at=at(8)),
        ResultRefused(task="t", attempt=1, reported="done", why="too late", at=at(9)),
        PlanAmended(version=2, added=(told,), removed=("t",), reason=word, is_step=True, at=at(9)),
        began("@answer", 9),
        ended("@answer", 10, Done(Value.of(word), gaps=(word,))),
        RunFinished(status=RunStatus.PARTIAL, reason=word, missing=("t",), at=at(10)),
    ]


def test_whatever_happens_to_a_run_is_in_its_trace() -> None:
    trace = trace_of(everything("hello"))
    assert (trace.status, trace.missing, trace.approach) == ("partial", ("t",), "steps")
    assert [(lead.node, lead.ended_at) for lead in trace.leaders] == [("n1", at(6)), ("n2", None)]
    assert [(plan.version, plan.how) for plan in trace.plans] == [(1, "streamed"), (2, "step")]
    assert [(q.id, q.answer, q.by, q.is_expired) for q in trace.questions] == [
        ("q1", "hello", "eva", False),
        ("q2", "", "", True),
    ]
    assert [halt.what for halt in trace.halts] == ["deadline", "work", "cancel"]
    assert [(each.attempt, each.why) for each in trace.refusals] == [(1, "too late")]
    assert [(n.text, n.fraction) for n in trace.attempts[1].notes] == [("hello", 0.5)]
    assert [each.ending for each in trace.attempts] == [
        *("done", "needs_input", "needs_input", "failed", "done")
    ]
    assert [each.is_system_task for each in trace.attempts] == [True, False, False, False, True]
    assert trace.attempts[-1].gaps == ("hello",)
    facts = assert_fits(trace)
    assert facts["seconds"] == 10


def test_without_its_content_a_trace_says_nothing_of_what_was_said() -> None:
    text = trace_of(everything("xylophone")).to_json(content=False)
    assert "xylophone" not in text
    facts = json.loads(text)
    assert facts["failed"] == {"t": "network"}, "but what kind of failure it was"
    assert facts["attempts"][1]["steps"][0]["model"] == "openai:m"


def test_a_trace_may_end_anywhere() -> None:
    events = everything("hello")
    for length in range(len(events)):
        assert_fits(trace_of(events[:length]))


# Nested runs


def nested(run: str, first: float, last: float, parent: str = "", depth: int = 0) -> Trace:
    return trace_of(
        [
            RunRequested(
                run=run,
                request="",
                limits=Limits(),
                seed=1,
                rules=1,
                crew="",
                parent=parent,
                depth=depth,
                at=at(first),
            ),
            PlanAdopted(plan=plan_of(task("t")), at=at(first)),
            *worked("t", first, last),
        ]
    )


def test_the_runs_of_nested_supervisors_are_known_by_task() -> None:
    about = {"run": "child-1"}
    trace = trace_of(
        [
            requested(Approach.GIVEN),
            PlanAdopted(plan=plan_of(task("t")), at=at(0)),
            began("t", 0),
            step_began("t", "run", 0, about),
            AttemptLost(task="t", attempt=1, reason="its process died", at=at(1)),
            began("t", 1, attempt=2),
            step_began("t", "run", 1, about, attempt=2),
            step_ended("t", "run", 2, Done(), attempt=2),
            ended("t", 2, attempt=2),
        ]
    )
    assert trace.child_runs == [("t", "child-1")]


def test_each_level_of_nested_runs_tells_what_it_adds() -> None:
    """The two runs below the top overlap: from 1 to 7 something runs below, 6 s of 10."""
    top = nested("top", 0, 10)
    left, right = nested("left", 1, 5, "top", 1), nested("right", 2, 7, "top", 1)
    left.nest("t", nested("deep", 2, 4, "left", 2))
    top.nest("t", left)
    top.nest("t", right)
    assert [(lv.runs, lv.wall, lv.below, lv.own) for lv in top.levels()] == [
        (1, 10, 6, 4),
        (2, 9, 2, 7),
        (1, 2, 0, 2),
    ]
    facts = assert_fits(top)
    child = facts["children"][0]
    assert (child["run"], child["task"], child["parent"], child["depth"]) == ("left", "t", "top", 1)
    assert child["children"][0]["seconds"] == 2


def test_time_that_is_covered_twice_counts_once() -> None:
    pieces = [(0, 4), (1, 2), (3, 6), (8, 9), (8, 8), (7, 5)]
    assert covered((at(a), at(b)) for a, b in pieces) == timedelta(seconds=7)


# Real runs


@ch.worker("porter", "Carries things; the first time it stumbles")
async def carry(brief: ch.Brief) -> str:
    await asyncio.sleep(1)
    brief.progress("half-way", 0.5)
    if brief.attempt == 1 and brief.task.args.get("stumbles"):
        raise ConnectionError("stumbled")
    if brief.task.args.get("asks"):
        return await brief.ask("Where to?", default="home", patience=timedelta(seconds=5))
    loaded: str = await brief.step("load", str.upper, brief.task.id, effect="pure")
    return loaded


@ch.worker("idler", "Never does anything")
async def idle(brief: ch.Brief) -> None:
    raise ch.WorkerError("not today", kind="denied")


@ch.tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a < 0:
        raise ch.errors.ToolError("too small")
    return a + b


def live_run(workers: Sequence[Any], plan: ch.Plan, model: Any = None) -> Trace:
    async def run() -> Trace:
        events: list[Event] = []
        async with ch.Supervisor(workers, model=model, clock=FakeClock(), parallel=2) as boss:
            boss.on(*ch.events.KINDS.values())(lambda _, event: events.append(event))
            await boss.run(plan)
        return trace_of(events)

    return run_virtual(run())


def made(id_: str, worker: str, *needs: str | Need, **args: Any) -> Task:
    return Task(id=id_, description=f"Do {id_} well", worker=worker, needs=needs, args=args)


def test_the_trace_of_functions_that_fail_ask_and_are_skipped_fits_the_schema() -> None:
    trace = live_run(
        [carry, idle],
        plan_of(
            made("shaky", "porter", stumbles=True),
            made("lost", "porter", asks=True),
            made("never", "idler"),
            made("after", "porter", "never"),
            made("last", "porter", "shaky", "lost", Need("after", optional=True)),
        ),
    )
    assert (trace.status, trace.retries) == ("partial", 1)
    assert trace.skipped.keys() == {"after"}
    assert trace.failed == {"never": "denied: not today"}
    assert [(q.task, q.answer) for q in trace.questions] == [("lost", "home")]
    assert trace.critical_path == ["lost", "last"]
    assert [step.value for step in trace.steps()] == ["SHAKY", "LAST"]
    assert_fits(trace)


def test_the_trace_of_a_worker_with_a_mind_holds_every_model_and_tool_call() -> None:
    model = ch.ScriptedModel(
        [
            [ToolCall("1", "add", '{"a": 1, "b": 2}'), ToolCall("2", "add", '{"a": -1, "b": 2}')],
            "It is 3.",
        ],
        name="openai:gpt-5-mini",
        latency=timedelta(seconds=2),
    )
    trace = live_run(
        [ch.Worker("clerk", "Does sums", tools=[add])],
        plan_of(made("sum", "clerk")),
        model,
    )
    steps = list(trace.steps())
    assert [(step.kind, step.name) for step in steps] == [
        ("model", "model"),
        ("tool", "tool add"),
        ("tool", "tool add"),
        ("model", "model"),
    ]
    assert [step.model for step in trace.steps(StepKind.MODEL)] == ["openai:gpt-5-mini"] * 2
    assert [step.error for step in trace.steps(StepKind.TOOL)] == [
        "",
        "told to the model: too small",
    ]
    assert "It is 3." in json.dumps(steps[-1].value)
    assert steps[1].given == {"arguments": '{"a": 1, "b": 2}'}
    assert trace.usage.calls == 2
    assert trace.usage.money > 0
    assert_fits(trace)


PLANNED = {
    "goal": "Two errands",
    "instruction": "One line",
    "strategy": "merge",
    "tasks": [
        {"id": "bread", "description": "Carry the bread home", "worker": "porter", "needs": []},
        {
            "id": "milk",
            "description": "Carry the milk home",
            "worker": "porter",
            "needs": ["bread"],
        },
    ],
}


@pytest.mark.parametrize("approach", ["whole", "stream"])
def test_the_trace_of_a_whole_request_goes_from_the_plan_to_the_answer(approach: str) -> None:
    def said(request: ModelRequest) -> str:
        is_planning = "tasks" in (request.schema or {}).get("properties", {})
        return json.dumps(PLANNED) if is_planning else "All is at home."

    async def run() -> tuple[ch.RunResult, Trace]:
        model = ch.ScriptedModel([said] * 9, latency=timedelta(seconds=1))
        events: list[Event] = []
        async with ch.Supervisor([carry], model=model, clock=FakeClock()) as boss:
            boss.on(*ch.events.KINDS.values())(lambda _, event: events.append(event))
            result = await boss.run("Fetch bread and milk", approach=approach)
        return result, trace_of(events)

    result, trace = run_virtual(run())
    assert trace.critical_path == ["@plan", "bread", "milk", "@answer"]
    assert [plan.how for plan in trace.plans] == ["adopted" if approach == "whole" else "streamed"]
    assert [each.task.id for each in trace.plans[0].added] == ["bread", "milk"]
    thinking = [a.worker for a in trace.attempts for s in a.steps if s.kind is StepKind.MODEL]
    assert (thinking[0], thinking[-1]) == ("@planner", "@answerer")
    assert (trace.usage, trace.speedup) == (result.usage, result.speedup)
    assert_fits(trace)


# The published schemas


def test_the_published_schemas_are_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate_schemas.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_trace_with_something_unknown_in_it_does_not_fit() -> None:
    facts = json.loads(trace_of(everything("hello")).to_json())
    facts["attempts"][0]["mood"] = "good"
    assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(facts)


def test_a_saved_plan_fits_its_schema() -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / "plan.json").read_text(encoding="utf-8"))
    plan = plan_of(task("a"), task("b", Need("a", optional=True)))
    jsonschema.Draft202012Validator(schema).validate(json.loads(plan.to_json()))
