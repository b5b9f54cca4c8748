"""The results of a run so far: outputs, finished steps, answers to questions. A fold, like the schedule.

The schedule holds no outputs, so it stays small. The process that leads the run keeps them here.
"""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.budget import NESTED
from chargehand.decisions.system_tasks import PLAN
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    Effect,
    Event,
    ItemsListed,
    QuestionAnswered,
    RetryHow,
    RetryPlanned,
    RunSteered,
    StepFinished,
    StepStarted,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.failure_policy import GIVE_UP
from chargehand.facts.outcome import NO_USAGE, Done, ErrorClass, Failed, Usage
from chargehand.facts.plan import item_of
from chargehand.facts.value import Value


class StepRecord(Struct, frozen=True, gc=False):
    """A recorded step."""

    name: str
    ordinal: int
    effect: Effect
    key: str
    digest: str
    #: None: it was started, and its end is unknown
    outcome: Done | Failed | None = None
    #: how often it was started
    begun: int = 1
    #: arguments of the step, for the trace; once the event is written, only of steps with effects outside
    about: Value = Value()
    #: the most that it can cost; likewise
    reserve: Usage = NO_USAGE


#: name of the step for a model call of an LLM worker
MODEL_CALL = "model"
#: before the name of a tool: the name of the step for a call of it
TOOL_CALL = "tool "


class MadeCalls(Struct, frozen=True, gc=False):
    """Equal tool calls with effects that were made in a run."""

    times: int
    last_at: datetime


class EarlierCalls(Struct, frozen=True):
    """The tool calls of a run so far, and the approvals of people. Grows with the run."""

    #: by digest of the step, over all tasks: calls with effects
    made: dict[str, MadeCalls] = {}
    #: by question: who answered it
    answered_by: dict[str, str] = {}


NO_CALLS = EarlierCalls()


class StepLog(Struct):
    """The recorded steps of one task, from which a new attempt continues."""

    #: by name and ordinal: the steps of the current lineage (attempts that continue from each other)
    lineage: dict[str, StepRecord] = {}
    #: by key: steps with effects outside, of any lineage
    effects: dict[str, StepRecord] = {}
    #: the steps of the previous lineage, for the model that rewrites the task
    before: tuple[StepRecord, ...] = ()
    #: the worker of the lineage and its version; another worker or version starts a new lineage
    worker: str = ""
    #: how many lineages were given up before this one
    number: int = 0
    #: model calls of this worker in the earlier lineages
    turns: int = 0

    def find(self, name: str, ordinal: int, key: str) -> StepRecord | None:
        """The record of exactly this step."""
        record = self.at(name, ordinal)
        return record if record is not None and record.key == key else self.effects.get(key)

    def at(self, name: str, ordinal: int) -> StepRecord | None:
        """The step of the lineage that stands at this place, whatever its arguments."""
        return self.lineage.get(f"{name}#{ordinal}")

    def doubts(self) -> Iterator[StepRecord]:
        """Steps with the effect `once` of which nobody knows whether they took effect.

        A failed tool call is none, unless it was cut off: its model was told of the failure.
        """
        for record in self.effects.values():
            failed = record.outcome
            is_told = isinstance(failed, Failed) and record.name.startswith(TOOL_CALL)
            if record.effect is not Effect.ONCE or isinstance(failed, Done):
                continue
            if failed is None or not is_told or failed.kind.backs_off:
                yield record

    def keep(self, record: StepRecord) -> None:
        """A step of this lineage was begun, or its result was brought."""
        self.lineage[f"{record.name}#{record.ordinal}"] = record
        self._note_effect(record)

    def end(self, record: StepRecord) -> None:
        """A step has ended, which may be of an earlier lineage."""
        at = self.at(record.name, record.ordinal)
        if at is not None and at.key == record.key:
            self.lineage[f"{record.name}#{record.ordinal}"] = record
        self._note_effect(record)

    def _note_effect(self, record: StepRecord) -> None:
        if record.effect is not Effect.PURE:
            self.effects[record.key] = record

    def start_over(self) -> None:
        """Start a new lineage. Effects are kept, so that nothing is done twice to the outside world."""
        if self.lineage:
            self.before = tuple(self.lineage.values())
            self.turns += sum(record.name == MODEL_CALL for record in self.before)
            self.lineage = {}
            self.number += 1


class RunResults:
    """All results that later tasks and the answer are made from.

    With `longest`, only outputs up to so many bytes are kept, and no steps: that is enough to watch a run.
    """

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest
        self.outputs: dict[str, Value] = {}
        #: by task with `for_each`: its items
        self.items: dict[str, list[Value]] = {}
        self.steps: dict[str, StepLog] = {}
        #: by task that is not done: its last worker and version
        self._workers: dict[str, str] = {}
        self.answers: dict[str, str] = {}
        self.earlier = EarlierCalls()
        #: by task: its last nested run
        self.nested: dict[str, str] = {}
        #: notes from people, after the request
        self.notes: list[str] = []
        self.usage: Usage = NO_USAGE
        #: by attempt: the reserves of steps that have not ended
        self._open: dict[tuple[str, int], dict[tuple[str, int], Usage]] = {}

    def apply(self, event: Event) -> None:
        match event:
            case AttemptFinished():
                self._finish(event)
                if self._open:
                    self._write_off(event.task, event.attempt)
            case AttemptStarted():
                self._start(event)
            case AttemptLost() | AttemptPreempted():
                self._write_off(event.task, event.attempt)
            case AttemptParked():
                self._write_off(event.task, event.attempt, is_spent=False)
            case StepStarted():
                self._begin_step(event)
            case StepFinished():
                self._end_step(event)
            case QuestionAnswered():
                self.answers[event.question] = event.text
                self.earlier.answered_by[event.question] = event.by
                if event.task == PLAN and event.text.strip() != GIVE_UP:
                    self.notes.append(event.text)  # it adds to the request
            case RetryPlanned():
                self._start_over(event)
            case RunSteered():
                self.notes.append(event.note)
            case ItemsListed():
                known = self.items.setdefault(event.task, [])
                known[event.first :] = (
                    event.items if self._longest is None else map(self._kept, event.items)
                )
            case TaskFailed() | TaskSkipped():
                self.steps.pop(event.task, None)
            case _:
                pass  # no other event has results

    def has_begun(self, event: StepFinished) -> bool:
        """Whether the start of this step was recorded."""
        log = self.steps.get(event.task)
        return log is not None and log.find(event.name, event.ordinal, event.key) is not None

    def _finish(self, event: AttemptFinished) -> None:
        outcome = event.outcome
        if outcome.usage != NO_USAGE:
            self.usage += outcome.usage
        if type(outcome) is Done:
            if self._keeps(outcome.value):
                self.outputs[event.task] = outcome.value
            self._workers.pop(event.task, None)
            if self.steps:
                self.steps.pop(event.task, None)
        elif type(outcome) is Failed and outcome.kind is ErrorClass.LOGIC:
            # The recorded replies led to the failure; with the same replies, the next attempt would fail again.
            log = self.steps.get(event.task)
            if log is not None:
                log.start_over()

    def _start(self, event: AttemptStarted) -> None:
        """Remember the worker of a task. Steps of another worker, or of another version of this one, are
        not in its lineage."""
        worker = f"{event.worker}@{event.version}" if event.version else event.worker
        self._workers[event.task] = worker
        log = self.steps.get(event.task) if self.steps else None
        if log is not None and log.worker != worker:
            log.worker = worker
            log.start_over()
            log.turns = 0

    def _keeps(self, output: Value) -> bool:
        longest = self._longest
        return longest is None or (not output.blob and len(output.json) <= longest)

    def _kept(self, item: Value) -> Value:
        return item if self._keeps(item) else Value(taint=item.taint)

    def item_of(self, task: str) -> Value | None:
        """The item that this task is for; None if it is no task for an item."""
        found = item_of(task)
        return None if found is None else self.items[found[0]][found[1]]

    def _write_off(self, task: str, attempt: int, *, is_spent: bool = True) -> None:
        """Count the reserves of steps without a recorded end as spent, unless they were never sent."""
        steps = self._open.pop((task, attempt), None) if self._open else None
        if steps and is_spent:
            for reserve in steps.values():
                self.usage += reserve

    def _begin_step(self, event: StepStarted) -> None:
        if event.reserve != NO_USAGE:
            steps = self._open.setdefault((event.task, event.attempt), {})
            steps[event.name, event.ordinal] = event.reserve
        if event.name == NESTED:
            about = event.about.read()
            if isinstance(about, dict) and "run" in about:
                self.nested[event.task] = str(about["run"])
        if self._longest is not None:
            return
        log = self.steps.get(event.task)
        if log is None:
            worker = self._workers.get(event.task, "")
            log = self.steps[event.task] = StepLog(worker=worker)
        before = log.find(event.name, event.ordinal, event.key)
        if before is not None and isinstance(before.outcome, Done):
            return  # a repeated report must not undo the end of the step
        log.keep(
            StepRecord(
                name=event.name,
                ordinal=event.ordinal,
                effect=event.effect,
                key=event.key,
                digest=event.digest,
                begun=1 if before is None else before.begun + 1,
                about=Value() if event.effect is Effect.PURE else event.about,
            )
        )

    def _end_step(self, event: StepFinished) -> None:
        if self._open and (steps := self._open.get((event.task, event.attempt))) is not None:
            steps.pop((event.name, event.ordinal), None)
        # Counted for each step, so that the usage of a lost attempt counts too.
        if event.outcome.usage != NO_USAGE:
            self.usage += event.outcome.usage
        if self._longest is not None:
            return
        log = self.steps[event.task]
        begun = log.find(event.name, event.ordinal, event.key)
        if begun is not None:
            if type(event.outcome) is Done and type(begun.outcome) is not Done:
                self._note_call(begun, event.at)
            log.end(replace(begun, outcome=event.outcome))

    def _note_call(self, made: StepRecord, at: datetime) -> None:
        """Remember that a tool call was made: whoever approves the same once more is to know it."""
        if made.effect is Effect.PURE or not made.name.startswith(TOOL_CALL):
            return
        before = self.earlier.made.get(made.digest)
        times = 1 if before is None else before.times + 1
        self.earlier.made[made.digest] = MadeCalls(times, at)

    def _start_over(self, event: RetryPlanned) -> None:
        log = self.steps.get(event.task)
        if log is None:
            return
        if event.how in (RetryHow.AFRESH, RetryHow.REWRITTEN):
            log.start_over()
        # The next try repeats failed steps, except for those with the effect `once`: their failure
        # stays, and the step asks a person what became of it.
        for records in (log.lineage, log.effects):
            for place in [p for p, record in records.items() if _may_be_done_again(record)]:
                del records[place]


class Takeover(Struct, frozen=True):
    """What a run takes over from the run that it reuses or is a fork of."""

    #: results, by a key computed from everything that they depend on
    by_key: dict[str, Done] = {}
    #: results, and failures of items that were not required, by task
    results: dict[str, Done | Failed] = {}
    #: finished steps, by task
    steps: dict[str, StepLog] = {}

    def begun(self) -> RunResults | None:
        """The results that the run starts with; None: it starts without any."""
        if not self.steps:
            return None
        results = RunResults()
        results.steps.update(self.steps)
        return results


def _may_be_done_again(record: StepRecord) -> bool:
    return isinstance(record.outcome, Failed) and record.effect is not Effect.ONCE
