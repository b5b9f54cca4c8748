"""The trace of a run, computed from its events alone: who did what when, and where the time went."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.budget import NESTED
from chargehand.decisions.measured_critical_path import CriticalPaths, covered, served_by
from chargehand.decisions.run_outputs_and_steps import TOOL_CALL
from chargehand.decisions.speedup import PersonWait, idle_for_people, work_of
from chargehand.decisions.trace_types import (
    AttemptSpan,
    Halt,
    Lead,
    NeedLink,
    NestingLevel,
    PauseSpan,
    Planned,
    PlanVersion,
    ProgressSpan,
    QuestionSpan,
    RefusedResult,
    Retry,
    Rewrite,
    Steer,
    StepKind,
    StepSpan,
)
from chargehand.facts import events
from chargehand.facts.failure_policy import Recourse
from chargehand.facts.jupyter_html_hook import notebook_html
from chargehand.facts.outcome import NO_USAGE, Done, Failed, NeedsInput, Outcome, Question, Usage
from chargehand.facts.output_schema import published_schema
from chargehand.facts.plan import Task
from chargehand.facts.value import Value

#: fields that hold content, and what replaces it in a trace without content
_CONTENT: dict[str, object] = {
    "stack": "",
    **dict.fromkeys(("request", "goal", "instruction", "description", "before", "accept"), ""),
    **dict.fromkeys(("text", "answer", "reason"), ""),
    **dict.fromkeys(("given", "value"), None),
    "args": {},
    "choices": [],
    "gaps": [],
}


class Trace(Struct, forbid_unknown_fields=True):
    """A read-only view of a run's events."""

    run: str = ""
    request: str = ""
    #: succeeded, partial, failed or cancelled; empty: it has not ended
    status: str = ""
    reason: str = ""
    #: required tasks that are not done
    missing: tuple[str, ...] = ()
    began_at: datetime | None = None
    ended_at: datetime | None = None
    approach: events.Approach = events.Approach.GIVEN
    priority: int = 0
    deadline_at: datetime | None = None
    #: the run that its request follows up on
    after: str = ""
    #: the run whose task this run is
    parent: str = ""
    #: that task
    task: str = ""
    depth: int = 0
    leaders: list[Lead] = []
    plans: list[PlanVersion] = []
    #: at tasks and system tasks, in the order of their starts
    attempts: list[AttemptSpan] = []
    retries: int = 0
    retried: list[Retry] = []
    rewrites: list[Rewrite] = []
    questions: list[QuestionSpan] = []
    halts: list[Halt] = []
    pauses: list[PauseSpan] = []
    steers: list[Steer] = []
    refusals: list[RefusedResult] = []
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    #: everything that was spent, nested runs included
    usage: Usage = NO_USAGE
    #: the tasks that the end of the run waited for, one after another
    critical_path: list[str] = []
    #: the same with workers and times
    path: list[NeedLink] = []
    #: the traces of nested runs, as far as `nest` has added them
    children: list["Trace"] = []

    def _repr_html_(self) -> str | None:
        """The HTML that a notebook shows."""
        return notebook_html(self)

    @property
    def wall(self) -> timedelta:
        """The time from the request to the end, or to the last known event."""
        if self.began_at is None or self.ended_at is None:
            return timedelta(0)
        return self.ended_at - self.began_at

    @property
    def busy(self) -> timedelta:
        """The work of all finished tasks added up: the time they would have taken one after another.

        Steps of attempts that were lost or preempted, or that asked a person, count if a later attempt continued from them.
        This is service time: waits of a call for its provider are left out, and a task of a
        nested supervisor counts with the work of its run.
        """
        below = {child.task: child.busy for child in self.children}
        return work_of(self.attempts, below)

    @property
    def speedup(self) -> float:
        """How much faster the run was than its tasks one after another; see `decisions/speedup.py`.

        Time in which nothing ran because a person was asked, it was paused, or no process led it does not count.
        """
        took = self.wall - self.idle
        return self.busy / took if took > timedelta(0) else 1.0

    @property
    def idle(self) -> timedelta:
        """How long nothing ran while only a person could move it; `speedup` leaves this time out."""
        if self.ended_at is None:
            return timedelta(0)
        waits: list[PersonWait] = [(each.asked_at, each.answered_at) for each in self.questions]
        waits += [(each.at, each.ended_at) for each in self.pauses]
        waits += [
            (lead.ended_at, following.began_at)
            for lead, following in pairwise(self.leaders)
            if lead.ended_at is not None
        ]
        return idle_for_people(self.attempts, waits, self.ended_at)

    @property
    def failed_attempts(self) -> int:
        """How many attempts failed or were lost, including those that another attempt made up for."""
        return sum(each.ending in ("failed", "lost") for each in self.attempts)

    def steps(self, kind: StepKind | None = None) -> Iterator[StepSpan]:
        """All steps, or those of one kind, attempt by attempt."""
        for attempt in self.attempts:
            yield from (step for step in attempt.steps if kind is None or step.kind is kind)

    # nested runs

    @property
    def child_runs(self) -> list[tuple[str, str]]:
        """The tasks with a nested run, and the ids of these runs, in order."""
        found = dict.fromkeys(
            (attempt.task, str(step.given["run"]))
            for attempt in self.attempts
            for step in attempt.steps
            if step.kind is StepKind.RUN
        )
        return list(found)

    def family(self) -> "Iterator[Trace]":
        """This trace and all traces nested in it, at any depth."""
        yield self
        for child in self.children:
            yield from child.family()

    def nest(self, task: str, trace: "Trace") -> None:
        """Add the trace of the run that did `task`."""
        trace.task = task
        self.children.append(trace)

    def levels(self) -> list[NestingLevel]:
        """The time spent at each level of nested supervisors, the top level first."""
        levels: list[NestingLevel] = []
        runs = [self]
        while runs:
            wall = sum((run.wall for run in runs), timedelta(0)).total_seconds()
            below = sum((_time_below(run) for run in runs), timedelta(0)).total_seconds()
            levels.append(NestingLevel(len(levels), len(runs), wall, below, wall - below))
            runs = [child for run in runs for child in run.children]
        return levels

    # JSON

    def to_json(self, *, indent: int | None = 2, content: bool = True) -> str:
        """The whole trace; `json_schema` describes it.

        Without `content`, all text is left out: the request, descriptions, prompts,
        arguments, results, questions, answers and error messages. Who, when, what kind of
        failure and at what cost remains.
        """
        facts = _facts(self) if content else _without_content(_facts(self))
        data = msgspec.json.encode(facts)
        return (msgspec.json.format(data, indent=indent) if indent else data).decode()

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON Schema of what `to_json` writes."""
        schema = published_schema(Trace, "chargehand trace")
        facts = schema["$defs"]["Trace"]
        for name in ("seconds", "seconds_in_turn", "speedup"):
            facts["properties"][name] = {"type": "number"}
        facts["properties"]["failed_attempts"] = {"type": "integer"}
        return schema


def trace_of(history: Iterable[events.Event]) -> Trace:
    """Fold the events of a run, ended or not, into its trace."""
    fold = _Fold()
    for event in history:
        fold.apply(event)
    return fold.told()


class AttemptSpans:
    """A fold over a run's events that collects all attempts, with their steps, times and usage.

    Without `content`, the arguments of steps and the results of attempts and steps are left out.
    """

    def __init__(self, *, content: bool = True) -> None:
        self._content = content
        self.attempts: list[AttemptSpan] = []
        self.usage: Usage = NO_USAGE
        self._ways = CriticalPaths()
        self._began_at: datetime | None = None
        self._open: dict[str, AttemptSpan] = {}
        #: by task: its last attempt
        self._latest: dict[str, AttemptSpan] = {}
        self._begun: dict[tuple[str, str, int], tuple[AttemptSpan, StepSpan]] = {}
        self._due_at: dict[str, datetime] = {}
        self._afresh: set[str] = set()

    def apply(self, event: events.Event) -> None:
        self._ways.apply(event)
        match event:
            case events.RunRequested():
                self._began_at = event.at
            case events.AttemptStarted():
                self._start(event)
            case events.AttemptFinished():
                self._finish(event)
            case events.AttemptLost():
                self._end(event.task, event.at, "lost", event.reason)
            case events.AttemptPreempted():
                self._end(event.task, event.at, "preempted", "")
            case events.AttemptParked():
                self._end(event.task, event.at, "parked", event.why)
                self._due_at[served_by(event.task)] = event.due_at
            case events.StepStarted():
                self._begin_step(event)
            case events.StepFinished():
                self._end_step(event)
            case events.ProgressNoted():
                if event.task in self._open:
                    note = ProgressSpan(event.at, event.text, event.fraction)
                    self._open[event.task].notes.append(note)
            case events.RetryPlanned():
                self._due_at[event.task] = event.due_at
                if event.how in (events.RetryHow.AFRESH, events.RetryHow.REWRITTEN):
                    self._afresh.add(event.task)
            case events.QuestionAnswered():
                self._due_at[event.task] = event.at
            case _:
                pass  # not about an attempt

    def path(self) -> list[NeedLink]:
        """The critical path of the run."""
        return self._ways.links(self.attempts)

    def step(self, event: events.StepStarted) -> StepSpan | None:
        """The step that this event started, if its attempt was open."""
        begun = self._begun.get((event.task, event.name, event.ordinal))
        return None if begun is None else begun[1]

    def _start(self, event: events.AttemptStarted) -> None:
        task = event.task
        ready_at = self._ways.ready_at(task) or self._began_at or event.at
        ready_at = min(max(ready_at, self._due_at.get(task, ready_at)), event.at)
        waited = (event.at - ready_at).total_seconds()
        span = AttemptSpan(task, event.attempt, event.worker, event.why, event.at, ready_at, waited)
        before = self._latest.get(task)
        if before is not None:
            before.is_carried_on = task not in self._afresh
        self._afresh.discard(task)
        self._open[task] = self._latest[task] = span
        self.attempts.append(span)

    def _finish(self, event: events.AttemptFinished) -> None:
        outcome = event.outcome
        span = self._open.get(event.task)
        if span is None:
            return
        if isinstance(outcome, Done):
            _keep_value(span, outcome.value)
            span.value = span.value if self._content else None
            span.gaps, span.reused = outcome.gaps, event.reused
        elif isinstance(outcome, Failed):
            span.stack = outcome.stack
        self._spend(span, outcome.usage)
        self._end(event.task, event.at, _ENDINGS[type(outcome)], _error_of(outcome))

    def _end(self, task: str, at: datetime, ending: str, error: str) -> None:
        span = self._open.pop(task, None)
        if span is None:
            return
        span.ended_at, span.ending, span.error = at, ending, error
        if ending != "parked":
            for step in span.steps:
                if step.ended_at is None:  # its end is unknown, so its reserve may have been spent
                    self._spend(span, step.reserve)
        task = served_by(task)
        self._due_at[task] = max(at, self._due_at.get(task, at))

    def _spend(self, span: AttemptSpan, usage: Usage) -> None:
        if usage != NO_USAGE:
            span.usage += usage
            self.usage += usage

    def _begin_step(self, event: events.StepStarted) -> None:
        span = self._open.get(event.task)
        if span is None:
            return
        step = StepSpan(event.name, event.ordinal, event.effect.value, event.at)
        step.given, step.reserve = event.about.read(), event.reserve
        step.kind = step_kind(event.name, step.given)
        if step.kind is StepKind.MODEL:
            step.model = next(iter(step.given["models"]), "")
        if not self._content and step.kind is not StepKind.RUN:
            step.given = None
        span.steps.append(step)
        self._begun[event.task, event.name, event.ordinal] = span, step

    def _end_step(self, event: events.StepFinished) -> None:
        begun = self._begun.get((event.task, event.name, event.ordinal))
        if begun is None:
            return
        (span, step), outcome = begun, event.outcome
        # If a person said after the attempt what became of the step, the time until then was no part of the step.
        step.ended_at = event.at if span.ended_at is None else min(event.at, span.ended_at)
        step.error, step.usage = _error_of(outcome), outcome.usage
        if isinstance(outcome, Done):
            _keep_value(step, outcome.value)
            _read_outcome(step)
            step.value = step.value if self._content else None
        self._spend(span, outcome.usage)


_ENDINGS: dict[type[Outcome], str] = {
    kind: str(kind.__struct_config__.tag) for kind in Outcome.__args__
}


def _error_of(outcome: Outcome) -> str:
    return str(outcome) if isinstance(outcome, Failed) else ""


def _keep_value(span: StepSpan | AttemptSpan, value: Value) -> None:
    span.value = None if value.blob else value.read()
    span.blob, span.size, span.taint = value.blob, value.size, value.taint


def step_kind(name: str, given: object) -> StepKind:
    """The kind of a step, known from its name and its recorded arguments."""
    if isinstance(given, dict):
        if isinstance(given.get("models"), list):
            return StepKind.MODEL
        if name == NESTED and "run" in given:
            return StepKind.RUN
    is_tool = name.startswith(TOOL_CALL) and (given is None or isinstance(given, dict))
    return StepKind.TOOL if is_tool else StepKind.STEP


def _read_outcome(step: StepSpan) -> None:
    """Set the fields of a step that its recorded result holds: a model's reply, a tool's error."""
    value = step.value
    if not isinstance(value, dict):
        return
    reply = value.get("reply")
    if isinstance(reply, dict) and "parts" in reply and "model" in value:
        # This also recognises a model call whose request was too long to be recorded with the step.
        step.kind, step.value, step.model = StepKind.MODEL, reply, value["model"]
        step.source, step.sends = value.get("source", ""), value.get("sends", 0)
        step.waited = value.get("waited", 0.0)
    elif step.kind is StepKind.TOOL and value.get("is_error"):
        step.error = f"told to the model: {value.get('text', '')}"


class _Fold:
    """The fold from events to a trace; `AttemptSpans` does the part about attempts."""

    def __init__(self) -> None:
        self._trace = Trace()
        self._efforts = AttemptSpans()
        #: by task: its current description
        self._words: dict[str, str] = {}
        self._questions: dict[str, QuestionSpan] = {}

    def told(self) -> Trace:
        trace = self._trace
        trace.attempts, trace.usage = self._efforts.attempts, self._efforts.usage
        trace.path = self._efforts.path()
        trace.critical_path = [link.task for link in trace.path]
        return trace

    def apply(self, event: events.Event) -> None:
        trace = self._trace
        trace.ended_at = event.at
        self._efforts.apply(event)
        match event:
            case events.RunRequested():
                self._request(event)
            case events.RunFinished():
                trace.status, trace.reason = event.status.value, event.reason
                trace.missing = event.missing
            case events.RunLed():
                trace.leaders.append(Lead(event.node, event.epoch, event.at))
            case events.RunReleased():
                lead = trace.leaders[-1]
                lead.ended_at, lead.reason = event.at, event.reason
            case (
                events.PlanAdopted()
                | events.PlanOpened()
                | events.TaskAdded()
                | events.PlanSealed()
                | events.PlanAmended()
            ):
                self._plan(event)
            case events.TaskFailed():
                self._give_up(event)
            case events.TaskSkipped():
                trace.skipped[event.task] = event.why
            case _:
                self._apply_detour(event)

    def _give_up(self, event: events.TaskFailed) -> None:
        without = " (the run continues without it)" if event.then is Recourse.WITHOUT else ""
        self._trace.failed[event.task] = f"{event.cause}{without}"
        if event.then is Recourse.FAIL_RUN:
            why = f"{event.task} failed, and the run with it"
            self._trace.halts.append(Halt("work", event.at, event.task, "", why))

    def _apply_detour(self, event: events.Event) -> None:
        """Apply an event about retries, questions, stops, pauses, notes or late results."""
        trace, at = self._trace, event.at
        match event:
            case events.RetryPlanned():
                trace.retries += 1
                trace.retried.append(Retry(event.task, event.attempt, at, event.due_at, event.how))
            case events.TaskRewritten(task=task, description=description):
                before, self._words[task] = self._words.get(task, ""), description
                trace.rewrites.append(Rewrite(task, event.attempt, at, before, description))
            case (
                events.AttemptFinished(outcome=NeedsInput(question=question))
                | events.PersonAsked(question=question)
            ):
                self._ask(event.task, question, at)
            case events.QuestionAnswered():
                self._answer(event)
            case events.QuestionExpired(question=id_) if id_ in self._questions:
                self._questions[id_].is_expired = True
            case events.ResultRefused():
                refusal = RefusedResult(event.task, event.attempt, at, event.reported, event.why)
                trace.refusals.append(refusal)
            case events.WorkStopped():
                trace.halts.append(Halt("work", at, "", event.by, event.reason))
            case events.CancelRequested():
                trace.halts.append(Halt("cancel", at, "", event.by, event.reason))
            case events.DeadlinePassed():
                trace.halts.append(Halt("deadline", at, event.task))
            case events.StartMissed():
                trace.halts.append(Halt("too late", at, event.task))
            case events.RunPaused():
                if trace.pauses and trace.pauses[-1].ended_at is None:
                    # The empty budget paused it so far; from now on, a person does.
                    trace.pauses[-1].ended_at, trace.pauses[-1].ended_by = at, event.by
                trace.pauses.append(PauseSpan(at, event.by, event.reason))
            case events.RunUnpaused():
                trace.pauses[-1].ended_at, trace.pauses[-1].ended_by = at, event.by
            case events.RunSteered():
                trace.steers.append(Steer(at, event.note, event.by))
            case _:
                pass  # `AttemptSpans` has it, or it says nothing new

    def _request(self, event: events.RunRequested) -> None:
        trace = self._trace
        trace.run, trace.request, trace.began_at = event.run, event.request, event.at
        trace.approach, trace.priority, trace.after = event.approach, event.priority, event.after
        trace.deadline_at, trace.parent, trace.depth = event.deadline_at, event.parent, event.depth

    def _plan(
        self,
        event: events.PlanAdopted
        | events.PlanOpened
        | events.TaskAdded
        | events.PlanSealed
        | events.PlanAmended,
    ) -> None:
        plans, at = self._trace.plans, event.at
        match event:
            case events.PlanAdopted(plan=plan):
                how = "given" if self._trace.approach is events.Approach.GIVEN else "adopted"
                version = PlanVersion(plan.version, how, at, plan.goal, plan.instruction)
                version.strategy = plan.strategy
                plans.append(version)
                self._add(plan.tasks, at)
            case events.PlanOpened():
                version = PlanVersion(1, "streamed", at, event.goal, event.instruction)
                version.strategy = event.strategy
                plans.append(version)
            case events.TaskAdded():
                self._add([event.task], at)
            case events.PlanSealed():
                plans[-1].sealed_at = at
            case events.PlanAmended():
                version = PlanVersion(event.version, _how_amended(event), at)
                version.removed, version.replaced = event.removed, event.replaced
                version.reason = event.reason
                plans.append(version)
                self._add(event.added, at)

    def _add(self, tasks: Iterable[Task], at: datetime) -> None:
        for task in tasks:
            self._trace.plans[-1].added.append(Planned(at, task))
            self._words[task.id] = task.description

    def _ask(self, task: str, question: Question, at: datetime) -> None:
        if question.id in self._questions:
            return  # its task was started again before the answer came
        asked = QuestionSpan(question.id, task, question.about, question.text, at)
        asked.choices = question.choices
        self._questions[question.id] = asked
        self._trace.questions.append(asked)

    def _answer(self, event: events.QuestionAnswered) -> None:
        question = self._questions.get(event.question)
        if question is not None:
            question.answered_at, question.answer, question.by = event.at, event.text, event.by


def _how_amended(event: events.PlanAmended) -> str:
    if event.is_step:
        return "step"
    return "steered" if event.is_steered else "amended"


def _time_below(run: Trace) -> timedelta:
    return covered(
        (child.began_at, child.ended_at)
        for child in run.children
        if child.began_at is not None and child.ended_at is not None
    )


def _facts(run: Trace) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(run),
        "children": [_facts(child) for child in run.children],
        "seconds": run.wall.total_seconds(),
        "seconds_in_turn": run.busy.total_seconds(),
        "speedup": round(run.speedup, 3),
        "failed_attempts": run.failed_attempts,
    }


def _without_content(facts: Any) -> Any:
    if isinstance(facts, list):
        return [_without_content(each) for each in facts]
    if not isinstance(facts, dict):
        return facts
    return {name: _blank(name, value) for name, value in facts.items()}


def _blank(name: str, value: Any) -> Any:
    if name in _CONTENT:
        return _CONTENT[name]
    if name == "error":
        return value.partition(":")[0]
    if name == "failed":
        return {task: error.partition(":")[0] for task, error in value.items()}
    return _without_content(value)
