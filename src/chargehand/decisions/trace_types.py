"""The types that a trace consists of. Durations are in seconds, because other programs read traces as JSON."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from msgspec import Struct

from chargehand.decisions.system_tasks import is_system_task
from chargehand.facts.events import RetryHow
from chargehand.facts.outcome import NO_USAGE, Usage
from chargehand.facts.plan import Strategy, Task


class StepKind(StrEnum):
    """What a step was for."""

    MODEL = "model"  #: a model call
    TOOL = "tool"  #: a tool call
    RUN = "run"  #: a nested run
    STEP = "step"  #: any other step of a worker


class StepSpan(Struct, forbid_unknown_fields=True):
    """One step of an attempt: what went in, what came out, what it took."""

    name: str
    #: number among the steps of this name in this attempt
    ordinal: int
    effect: str
    began_at: datetime
    kind: StepKind = StepKind.STEP
    #: None: its end was not recorded
    ended_at: datetime | None = None
    error: str = ""
    #: its arguments, as far as they were recorded
    given: Any = None
    #: its result; for a model call, the reply
    value: Any = None
    #: digest of the result, if it was too large for the journal's events
    blob: str = ""
    #: bytes of the result in the blob
    size: int = 0
    #: untrusted sources that the result derives from
    taint: tuple[str, ...] = ()
    usage: Usage = NO_USAGE
    #: the most that it could cost, in a run with a budget
    reserve: Usage = NO_USAGE
    #: the model that replied; for a failed call or a reply in a blob, the first choice
    model: str = ""
    #: where the reply came from: call, cache (of an earlier identical call) or shared (with a concurrent identical call)
    source: str = ""
    #: requests that were sent for it, refused ones included
    sends: int = 0
    #: seconds that it waited for the model's provider
    waited: float = 0.0


class ProgressSpan(Struct, forbid_unknown_fields=True):
    """How far a worker said it was."""

    at: datetime
    text: str
    fraction: float | None = None


class AttemptSpan(Struct, forbid_unknown_fields=True):
    """One try at a task, or at one of the supervisor's own tasks (`@plan`, `@refine:…`, `@answer`)."""

    task: str
    attempt: int
    worker: str
    #: why this task and this worker were chosen at this time
    why: str
    began_at: datetime
    #: when its needs were met
    ready_at: datetime
    #: seconds from `ready_at` to `began_at`: the wait for a slot
    waited: float = 0.0
    ended_at: datetime | None = None
    #: done, failed, cancelled, needs_input, lost, preempted, parked; empty: still open
    ending: str = ""
    error: str = ""
    #: stack trace, if it failed with an exception
    stack: str = ""
    #: its result
    value: Any = None
    #: digest of the result, if it was too large for the journal's events
    blob: str = ""
    size: int = 0
    taint: tuple[str, ...] = ()
    #: what is missing from a partial result
    gaps: tuple[str, ...] = ()
    #: everything that was spent in it, its steps included
    usage: Usage = NO_USAGE
    steps: list[StepSpan] = []
    notes: list[ProgressSpan] = []
    #: the next attempt continued from its finished steps
    is_carried_on: bool = False
    #: the run whose result it reused, this one or another
    reused: str = ""

    @property
    def length(self) -> timedelta:
        return timedelta(0) if self.ended_at is None else self.ended_at - self.began_at

    @property
    def service(self) -> timedelta:
        """Its duration without the time that its calls waited for their providers."""
        # Concurrent calls may have waited at the same time, so the difference can be negative.
        waited = timedelta(seconds=sum(step.waited for step in self.steps))
        return max(self.length - waited, timedelta(0))

    @property
    def is_system_task(self) -> bool:
        """Whether it is an attempt at a system task."""
        return is_system_task(self.task)


class Lead(Struct, forbid_unknown_fields=True):
    """A process that led the run."""

    node: str
    epoch: int
    began_at: datetime
    #: when it released the run; None: it led the run to the end, or died
    ended_at: datetime | None = None
    reason: str = ""


class Planned(Struct, forbid_unknown_fields=True):
    """A task, and when it came into the plan."""

    at: datetime
    task: Task


class PlanVersion(Struct, forbid_unknown_fields=True):
    """One version of the plan: the first, or what changed since the one before."""

    version: int
    #: given, adopted, streamed, amended (a re-plan) or step (the next of a plan made step by step)
    how: str
    at: datetime
    goal: str = ""
    instruction: str = ""
    strategy: Strategy | None = None
    added: list[Planned] = []
    removed: tuple[str, ...] = ()
    #: failed or skipped tasks that the added tasks replace
    replaced: tuple[str, ...] = ()
    reason: str = ""
    #: when a streamed plan was complete
    sealed_at: datetime | None = None


class Retry(Struct, forbid_unknown_fields=True):
    """That a task was to be tried again."""

    task: str
    #: the attempt that failed
    attempt: int
    at: datetime
    due_at: datetime
    how: RetryHow


class Rewrite(Struct, forbid_unknown_fields=True):
    """That a failed task was put into better words."""

    task: str
    #: the attempt that failed
    attempt: int
    at: datetime
    before: str
    description: str


class QuestionSpan(Struct, forbid_unknown_fields=True):
    """A question to a person."""

    id: str
    task: str
    #: what kind of question: plain, approval, in_doubt, failure, budget, plan
    about: str
    text: str
    asked_at: datetime
    choices: tuple[str, ...] = ()
    answered_at: datetime | None = None
    answer: str = ""
    by: str = ""
    #: nobody answered in time
    is_expired: bool = False


class Halt(Struct, forbid_unknown_fields=True):
    """Something that ended work early."""

    #: work (the answer is made from the results so far), cancel (a person cancelled the run), deadline, or
    #: too late (a task was not started because it could no longer meet its deadline)
    what: str
    at: datetime
    #: whose deadline, or whose failure; empty: that of the run
    task: str = ""
    by: str = ""
    reason: str = ""


class PauseSpan(Struct, forbid_unknown_fields=True):
    """A while in which a person wanted nothing new to be started."""

    at: datetime
    by: str = ""
    reason: str = ""
    ended_at: datetime | None = None
    ended_by: str = ""


class Steer(Struct, forbid_unknown_fields=True):
    """What a person wanted of the run after its request."""

    at: datetime
    text: str
    by: str = ""


class RefusedResult(Struct, forbid_unknown_fields=True):
    """A result that came too late to count."""

    task: str
    attempt: int
    at: datetime
    reported: str
    why: str


class NeedLink(Struct, forbid_unknown_fields=True):
    """One stretch of the critical path: from when nothing but this task was waited for to its end."""

    task: str
    worker: str
    began_at: datetime
    ended_at: datetime
    #: seconds in which an attempt at the task ran
    worked: float = 0.0

    @property
    def length(self) -> float:
        """Its duration in seconds."""
        return (self.ended_at - self.began_at).total_seconds()

    @property
    def waited(self) -> float:
        """Seconds in which no attempt at the task ran: no slot was free, a retry was not due yet, or
        a person was asked."""
        return max(self.length - self.worked, 0.0)


class NestingLevel(Struct, forbid_unknown_fields=True):
    """The time of all runs at one depth of nested supervisors."""

    depth: int
    runs: int
    #: seconds from the request to the end, over all runs
    wall: float
    #: seconds of `wall` in which a run one level deeper was open
    below: float
    #: the rest of `wall`: the time of this level itself
    own: float
