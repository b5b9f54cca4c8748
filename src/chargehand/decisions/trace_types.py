"""What a trace is made of. Lengths of time are seconds here: a trace is read as JSON, by any program."""

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

    MODEL = "model"  #: a model was asked
    TOOL = "tool"  #: a tool was called
    RUN = "run"  #: another supervisor was given a run of its own
    STEP = "step"  #: whatever else a worker wanted to be durable


class StepSpan(Struct, forbid_unknown_fields=True):
    """One step of an attempt: what went in, what came out, what it took."""

    name: str
    #: among the steps of this name in this attempt
    ordinal: int
    effect: str
    began_at: datetime
    kind: StepKind = StepKind.STEP
    #: None: its end was not recorded
    ended_at: datetime | None = None
    error: str = ""
    #: as much of it as was written down
    given: Any = None
    #: what came out; of a model, its reply
    value: Any = None
    #: digest of what came out, if it was too large for the journal's events
    blob: str = ""
    #: bytes of that
    size: int = 0
    #: untrusted sources that it derives from
    taint: tuple[str, ...] = ()
    usage: Usage = NO_USAGE
    #: the most that it could cost, in a run with a budget
    reserve: Usage = NO_USAGE
    #: which one answered; of a failed call, or a reply in a blob, which was to be asked first
    model: str = ""
    #: of a reply: call, cache (the same was asked before) or shared (the same was being asked)
    source: str = ""
    #: requests that went out for it, refused ones included
    sends: int = 0
    #: seconds until the model's provider would take it
    waited: float = 0.0


class ProgressSpan(Struct, forbid_unknown_fields=True):
    """How far a worker said it was."""

    at: datetime
    text: str
    fraction: float | None = None


class AttemptSpan(Struct, forbid_unknown_fields=True):
    """One try at a task, or at a system task of the supervisor's own (`@plan`, `@refine:…`, `@answer`)."""

    task: str
    attempt: int
    worker: str
    #: why this task and this worker then
    why: str
    began_at: datetime
    #: when its needs were met
    ready_at: datetime
    #: seconds from then until it began: the wait for a place
    waited: float = 0.0
    ended_at: datetime | None = None
    #: done, failed, cancelled, needs_input, lost, preempted, parked; empty: still open
    ending: str = ""
    error: str = ""
    #: where it was raised, of one that failed by an exception
    stack: str = ""
    #: its result
    value: Any = None
    #: digest of the result, if it was too large for the journal's events
    blob: str = ""
    size: int = 0
    taint: tuple[str, ...] = ()
    #: what is missing from it, of a task that was done in part
    gaps: tuple[str, ...] = ()
    #: all that was spent in it, its steps included
    usage: Usage = NO_USAGE
    steps: list[StepSpan] = []
    notes: list[ProgressSpan] = []
    #: the next attempt went on from its finished steps
    is_carried_on: bool = False
    #: the run whose result it took over, this one or another
    reused: str = ""

    @property
    def length(self) -> timedelta:
        return timedelta(0) if self.ended_at is None else self.ended_at - self.began_at

    @property
    def service(self) -> timedelta:
        """Its duration without the time that its calls waited for their providers."""
        # Calls side by side may have waited at once; a length is never below nothing.
        waited = timedelta(seconds=sum(step.waited for step in self.steps))
        return max(self.length - waited, timedelta(0))

    @property
    def is_system_task(self) -> bool:
        """Whether the supervisor did it itself."""
        return is_system_task(self.task)


class Lead(Struct, forbid_unknown_fields=True):
    """A process that led the run."""

    node: str
    epoch: int
    began_at: datetime
    #: when it let go; None: it led to the end, or died
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
    #: tasks that came to nothing, and that the added ones make up for
    replaced: tuple[str, ...] = ()
    reason: str = ""
    #: when a streamed plan was whole
    sealed_at: datetime | None = None


class Retry(Struct, forbid_unknown_fields=True):
    """That a task was to be tried again."""

    task: str
    #: the one that failed
    attempt: int
    at: datetime
    due_at: datetime
    how: RetryHow


class Rewrite(Struct, forbid_unknown_fields=True):
    """That a failed task was put into better words."""

    task: str
    #: the one that failed
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

    #: work (the answer is made of what there is), cancel (a person ends the run), deadline, or too late (a
    #: task that was not started, since it could not be in time any more)
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
    #: seconds of it in which somebody was at work on the task
    worked: float = 0.0

    @property
    def length(self) -> float:
        """Seconds."""
        return (self.ended_at - self.began_at).total_seconds()

    @property
    def waited(self) -> float:
        """Seconds of it in which nobody was at work on the task: no place was free, a retry was
        not due yet, a person was asked."""
        return max(self.length - self.worked, 0.0)


class NestingLevel(Struct, forbid_unknown_fields=True):
    """What one depth of nested supervisors took, over all runs of that depth."""

    depth: int
    runs: int
    #: seconds from their requests to their ends
    wall: float
    #: seconds of those in which something ran a level deeper
    below: float
    #: the rest: what this level adds
    own: float
