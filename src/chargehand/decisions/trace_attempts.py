"""The work of a run: every attempt with its steps, from who was given it to what came of it."""

from datetime import datetime

from chargehand.decisions.critical_path import CriticalPaths, served_by
from chargehand.decisions.trace_types import AttemptSpan, NeedLink, ProgressSpan, StepKind, StepSpan
from chargehand.facts import events
from chargehand.facts.outcome import NO_USAGE, Done, Failed, Outcome, Usage
from chargehand.facts.value import Value


class AttemptSpans:
    """A fold over a run's events that keeps who worked on what, when, and what it took."""

    def __init__(self) -> None:
        self.attempts: list[AttemptSpan] = []
        self.usage: Usage = NO_USAGE
        self._ways = CriticalPaths()
        self._began_at: datetime | None = None
        self._open: dict[str, AttemptSpan] = {}
        #: by task
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
                pass  # nobody's work

    def path(self) -> list[NeedLink]:
        """What the end of the run waited for."""
        return self._ways.links(self.attempts)

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
                if step.ended_at is None:  # nobody saw its end: it may have been spent
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
        step.kind = _kind_of(event.name, step.given)
        if step.kind is StepKind.MODEL:
            step.model = next(iter(step.given["models"]), "")
        span.steps.append(step)
        self._begun[event.task, event.name, event.ordinal] = span, step

    def _end_step(self, event: events.StepFinished) -> None:
        begun = self._begun.get((event.task, event.name, event.ordinal))
        if begun is None:
            return
        # Begun by an earlier attempt, perhaps: a person has said what became of it.
        (span, step), outcome = begun, event.outcome
        step.ended_at, step.error, step.usage = event.at, _error_of(outcome), outcome.usage
        if isinstance(outcome, Done):
            _keep_value(step, outcome.value)
            _read_outcome(step)
        self._spend(span, outcome.usage)


_ENDINGS: dict[type[Outcome], str] = {
    kind: str(kind.__struct_config__.tag) for kind in Outcome.__args__
}


def _error_of(outcome: Outcome) -> str:
    return str(outcome) if isinstance(outcome, Failed) else ""


def _keep_value(span: StepSpan | AttemptSpan, value: Value) -> None:
    span.value = None if value.blob else value.read()
    span.blob, span.size, span.taint = value.blob, value.size, value.taint


def _kind_of(name: str, given: object) -> StepKind:
    """What a step was for, by how such steps are written down."""
    if isinstance(given, dict):
        if isinstance(given.get("models"), list):
            return StepKind.MODEL
        if name == "run" and "run" in given:
            return StepKind.RUN
    is_tool = name.startswith("tool ") and (given is None or isinstance(given, dict))
    return StepKind.TOOL if is_tool else StepKind.STEP


def _read_outcome(step: StepSpan) -> None:
    """Take apart what a model call or a tool call left behind."""
    value = step.value
    if not isinstance(value, dict):
        return
    reply = value.get("reply")
    if isinstance(reply, dict) and "parts" in reply and "model" in value:
        # Also where what was asked was too long to be written down with the step.
        step.kind, step.value, step.model = StepKind.MODEL, reply, value["model"]
        step.source, step.sends = value.get("source", ""), value.get("sends", 0)
        step.waited = value.get("waited", 0.0)
    elif step.kind is StepKind.TOOL and value.get("is_error"):
        step.error = f"told to the model: {value.get('text', '')}"
