"""All events of a run, and the codec that stores them.

The events the journal stores are the events that `Schedule.apply` takes. An event is never changed
once released: a new shape is a new kind or a new VERSION with a step in `_UPGRADES`.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeAlias, get_args

import msgspec
from msgspec import Struct

from chargehand.errors import JournalDamaged, JournalVersion, UsageError
from chargehand.facts.argument_checks import reading
from chargehand.facts.breaker_figures import BreakerFigures
from chargehand.facts.failure_policy import OnFailure, Recourse
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import NO_USAGE, Done, Failed, Outcome, Question, Usage
from chargehand.facts.plan import Plan, Strategy, Task
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.value import Value

#: version of the events below; stored with each of them
VERSION = 1


class Effect(StrEnum):
    """Whether a step may run twice."""

    PURE = "pure"  #: changes nothing outside; may run again
    IDEMPOTENT = "idempotent"  #: running it twice has the same effect as once; may run again
    KEYED = "keyed"  #: takes an idempotency key; may run again with the same key
    ONCE = "once"  #: chargehand never runs it again; in doubt, it asks a person


class RunStatus(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"  #: every required task is done, and there is a result
    PARTIAL = "partial"  #: a required task is not done, but there is a usable result
    FAILED = "failed"  #: there is no usable result
    CANCELLED = "cancelled"  #: a person stopped it


class RetryHow(StrEnum):
    """In which way a task is tried again."""

    AGAIN = "again"  #: same task, finished steps are kept
    AFRESH = "afresh"  #: same task, but all steps run again: they led to a wrong result
    REWRITTEN = "rewritten"  #: a rewritten task
    ELSEWHERE = "elsewhere"  #: by another worker, if there is one


class Approach(StrEnum):
    """How a request becomes tasks."""

    GIVEN = "given"  #: the plan came with the request
    WHOLE = "whole"  #: the planner writes the whole plan before it is carried out
    STREAM = "stream"  #: tasks start while the planner is still writing
    ROUTE = "route"  #: one worker gets the request, rewritten for it
    STEPS = "steps"  #: the next worker is chosen after each result
    POOL = "pool"  #: a plan without a leading process: workers in any process take its tasks

    @property
    def is_given(self) -> bool:
        """Whether the run starts with a complete plan."""
        return self in (Approach.GIVEN, Approach.POOL)


class Pace(Struct, frozen=True, gc=False):
    """How long attempts of one worker took; later runs estimate durations from this."""

    count: int
    mean: timedelta
    #: duration of the fastest attempt; None: not known
    least: timedelta | None = None


class StoredEvent(
    Struct,
    frozen=True,
    kw_only=True,
    tag=True,
    tag_field="kind",
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,
):
    """An event of a run or of a board."""

    #: by the clock of the process that led the run; never earlier than the event before
    at: datetime


class RunRequested(StoredEvent, frozen=True, kw_only=True):
    """A request has arrived. The first event of every run."""

    run: str
    request: str
    limits: Limits
    #: seed of all random jitter of this run
    seed: int
    #: version of the scheduling rules of this run
    rules: int
    #: digest of the roster
    crew: str
    priority: int = 0
    deadline_at: datetime | None = None
    #: the run whose task this run is
    parent: str = ""
    depth: int = 0
    namespace: str = ""
    #: by worker: short digests of its parts, and the names of its models; empty: not recorded
    members: dict[str, dict[str, str]] = {}
    #: known pace of each worker; recorded so that a replay ranks tasks in the same way
    paces: dict[str, Pace] = {}
    approach: Approach = Approach.GIVEN
    #: when routing: the worker for a request that clearly fits no other
    default: str = ""
    #: whether a model composes the answer from the results; otherwise they are put together by rule
    answers: bool = False
    #: whether the answer is drafted from finished tasks while the last tasks are still running
    drafts: bool = False
    #: whether a model rewrites a task whose failure may be due to its description
    refines: bool = False
    #: requested JSON schema of the answer
    shape: dict[str, Any] | None = None
    #: the run that this request follows up on
    after: str = ""
    #: the request of that run and its answer
    earlier: Value = Value()
    #: untrusted sources that the request derives from; they taint all its results
    taint: tuple[str, ...] = ()
    #: the run whose results are reused where their inputs have not changed
    reuses: str = ""
    #: in a fork: the number of the event, in the run that `reuses` names, from which the fork starts
    fork_seq: int = 0
    #: in a fork: the tasks whose results are kept, whatever their keys
    keeps: tuple[str, ...] = ()
    #: in a fork: the tasks that continue after the steps that were finished at that event
    continues: tuple[str, ...] = ()
    #: failure policies by worker; under the empty name: the policy for all other workers
    policies: dict[str, OnFailure] = {}
    #: whether tasks that ask for it get a second attempt when the first takes far too long
    hedges: bool = False
    #: where the crew comes from, so that the command line can load it again
    source: dict[str, Any] = {}
    #: whether a person is asked when the budget is used up; otherwise the work is stopped
    asks_budget: bool = False
    #: whether a person is asked if the request is too unclear for a plan
    clarifies: bool = False
    #: whether a person approves the plan, and every change to it, before it is carried out
    reviews: bool = False
    #: the workers that the plan may name; empty: all on the roster
    workers: tuple[str, ...] = ()
    #: in a pool: the agent that assigns the tasks; empty: a supervisor
    by: str = ""


class RunLed(StoredEvent, frozen=True, kw_only=True):
    """A process leads the run from here on. Open attempts of the previous leader are lost."""

    node: str
    epoch: int
    #: the wait before retries while this process leads; None: the default policy
    retry: RetryPolicy | None = None
    #: when its circuit breakers for workers open, and for how long; None: the default figures
    breaker: BreakerFigures | None = None
    #: digest of the roster, if it had changed and a person accepted it; from then on, it is the run's roster
    crew: str = ""
    #: likewise: as `members` in `RunRequested`
    members: dict[str, dict[str, str]] = {}


class PlanAdopted(StoredEvent, frozen=True, kw_only=True):
    """The whole plan is known and valid."""

    plan: Plan


class PlanOpened(StoredEvent, frozen=True, kw_only=True):
    """A plan is being written; its tasks may start before it is complete."""

    goal: str
    instruction: str = ""
    strategy: Strategy = Strategy.MERGE


class TaskAdded(StoredEvent, frozen=True, kw_only=True):
    """One more task of an open plan; it needs only earlier ones."""

    task: Task
    #: untrusted sources that its author had read
    taint: tuple[str, ...] = ()


class PlanSealed(StoredEvent, frozen=True, kw_only=True):
    """The open plan is complete."""


class PlanAmended(StoredEvent, frozen=True, kw_only=True):
    """The unfinished part of the plan was changed. Finished tasks never change."""

    version: int
    added: tuple[Task, ...] = ()
    removed: tuple[str, ...] = ()
    reason: str = ""
    #: failed or skipped tasks that the added tasks replace
    replaced: tuple[str, ...] = ()
    #: it adds the next step of a plan that is made step by step; it does not count as a re-plan
    is_step: bool = False
    #: a person asked for it; it does not count as a re-plan either
    is_steered: bool = False
    #: untrusted sources that its author had read; they taint all results of the added tasks
    taint: tuple[str, ...] = ()


class ItemsListed(StoredEvent, frozen=True, kw_only=True):
    """Items of a task with `for_each`. Many items take several of these events."""

    task: str
    #: index of the first of these items; 0 starts the list again
    first: int
    items: tuple[Value, ...]


class TaskRewritten(StoredEvent, frozen=True, kw_only=True):
    """The description of a failed task was rewritten."""

    task: str
    description: str
    #: the attempt that failed
    attempt: int
    #: untrusted sources that the author of the new description had read
    taint: tuple[str, ...] = ()


class AttemptStarted(StoredEvent, frozen=True, kw_only=True):
    """A task was given to a worker. Written before the worker gets it."""

    task: str
    attempt: int
    worker: str
    #: why this task and this worker were chosen now
    why: str = ""
    #: version of the worker if it has changed since the run began; its attempts do not continue from earlier steps
    version: str = ""


class AttemptFinished(StoredEvent, frozen=True, kw_only=True):
    """The attempt that held the task reported its outcome."""

    task: str
    attempt: int
    outcome: Outcome
    #: digest of everything that the result depends on, if a later run may reuse the result
    key: str = ""
    #: the run from which the result was reused; empty: it is new
    reused: str = ""


class AttemptLost(StoredEvent, frozen=True, kw_only=True):
    """An attempt can no longer report: its worker died, or did not stop when asked to."""

    task: str
    attempt: int
    reason: str
    #: untrusted sources that it had read and that the reason may derive from
    taint: tuple[str, ...] = ()


class AttemptPreempted(StoredEvent, frozen=True, kw_only=True):
    """An attempt stopped at a safe point to free its slot; its finished steps are kept."""

    task: str
    attempt: int


class AttemptParked(StoredEvent, frozen=True, kw_only=True):
    """An attempt stopped to wait for a provider that cannot be called before `due_at`.

    It holds no slot until then and does not count as a try; its finished steps are kept.
    """

    task: str
    attempt: int
    due_at: datetime
    #: in the provider's words
    why: str = ""
    #: the wait has reached its limit: the run is parked and can be resumed later
    is_long: bool = False


class AttemptHeldUp(StoredEvent, frozen=True, kw_only=True):
    """All remaining work of the run that this attempt leads waits for people: active time stops."""

    task: str
    attempt: int


class AttemptWentOn(StoredEvent, frozen=True, kw_only=True):
    """The run that this attempt leads continues."""

    task: str
    attempt: int


class ResultRefused(StoredEvent, frozen=True, kw_only=True):
    """A result came from an attempt that no longer held the task. It changes nothing."""

    task: str
    attempt: int
    reported: str
    why: str


class RetryPlanned(StoredEvent, frozen=True, kw_only=True):
    """A failed task will be retried at `due_at`. It holds no slot until then."""

    task: str
    #: the attempt that failed
    attempt: int
    due_at: datetime
    how: RetryHow = RetryHow.AGAIN
    #: the worker that has the task from now on; empty: no change
    worker: str = ""


class RetryDue(StoredEvent, frozen=True, kw_only=True):
    """The backoff of a task that will be retried is over."""

    task: str
    attempt: int


class HedgeDue(StoredEvent, frozen=True, kw_only=True):
    """An attempt takes far longer than usual; a second one will start alongside it (hedging)."""

    task: str
    attempt: int


class PersonAsked(StoredEvent, frozen=True, kw_only=True):
    """A task failed, or the budget is used up, and a person must decide.

    It holds no slot until then.
    """

    task: str
    #: the attempt that failed; 0: none did
    attempt: int
    question: Question


class TaskFailed(StoredEvent, frozen=True, kw_only=True):
    """A task has failed for good."""

    task: str
    cause: Failed
    #: what happens to dependent tasks: they are skipped, they run without its result, or the run stops
    then: Recourse = Recourse.FAIL


class TaskSkipped(StoredEvent, frozen=True, kw_only=True):
    """A task will not run, because of another task or because time is over."""

    task: str
    #: the task that failed first, or empty
    cause: str
    why: str


class DeadlinePassed(StoredEvent, frozen=True, kw_only=True):
    """The deadline of a task has passed, or that of the run if no task is named."""

    task: str = ""


class StartMissed(StoredEvent, frozen=True, kw_only=True):
    """A task that has not started can no longer meet its deadline: it is not started."""

    task: str
    #: the attempt that would have been next
    attempt: int


class QuestionAnswered(StoredEvent, frozen=True, kw_only=True):
    """A question was answered, by a person or by its default."""

    question: str
    task: str
    text: str
    by: str


class QuestionExpired(StoredEvent, frozen=True, kw_only=True):
    """A question without a default was not answered in time, or there is no person to ask."""

    question: str
    task: str
    #: why the run did not wait for a person; empty: the time for an answer ran out
    why: str = ""


class StepStarted(StoredEvent, frozen=True, kw_only=True):
    """A step is about to run. Written before anything outside can change."""

    task: str
    attempt: int
    name: str
    #: number among the steps of this name in this attempt
    ordinal: int
    effect: Effect
    #: idempotency key: the same for the same call of this task in every attempt
    key: str
    #: digest of the step's arguments
    digest: str
    #: its arguments, or as much of them as the trace needs
    about: Value = Value()
    #: the most that it can cost, in a run with a budget
    reserve: Usage = NO_USAGE


class StepFinished(StoredEvent, frozen=True, kw_only=True):
    """A step has its result. From now on the result is returned instead of running the step."""

    task: str
    attempt: int
    name: str
    ordinal: int
    key: str
    outcome: Done | Failed


class ProgressNoted(StoredEvent, frozen=True, kw_only=True):
    """A worker reported progress."""

    task: str
    attempt: int
    text: str
    fraction: float | None = None
    #: the untrusted sources that the attempt had read by then
    taint: tuple[str, ...] = ()


class CancelRequested(StoredEvent, frozen=True, kw_only=True):
    """A person cancelled the run."""

    by: str = ""
    reason: str = ""


class WorkStopped(StoredEvent, frozen=True, kw_only=True):
    """No more tasks start and running ones are stopped; the answer is composed from the results so far."""

    reason: str
    by: str = ""


class RunPaused(StoredEvent, frozen=True, kw_only=True):
    """Nothing new starts, and running attempts stop at their next step, until `RunUnpaused`."""

    by: str = ""
    reason: str = ""


class RunUnpaused(StoredEvent, frozen=True, kw_only=True):
    """A paused run continues."""

    by: str = ""


class BudgetChanged(StoredEvent, frozen=True, kw_only=True):
    """A person raised or lowered the budget of a run; it applies to all later reservations."""

    by: str = ""
    #: None, here and below: unchanged
    money: float | None = None
    tokens: int | None = None
    calls: int | None = None


class RunSteered(StoredEvent, frozen=True, kw_only=True):
    """A person steered the run with a note."""

    note: str
    by: str = ""


class RunReleased(StoredEvent, frozen=True, kw_only=True):
    """The process that led the run has shut down normally and released the run."""

    node: str
    reason: str = ""
    #: the run is parked until a person resumes it, because it crashed the processes that led it
    is_parked: bool = False


class RunFinished(StoredEvent, frozen=True, kw_only=True):
    """The last event of every run that ended."""

    status: RunStatus
    reason: str = ""
    #: required tasks that are not done
    missing: tuple[str, ...] = ()
    #: by worker: how long its attempts in this run took
    paces: dict[str, Pace] = {}


Event: TypeAlias = (
    RunRequested
    | RunLed
    | PlanAdopted
    | PlanOpened
    | TaskAdded
    | PlanSealed
    | PlanAmended
    | ItemsListed
    | TaskRewritten
    | AttemptStarted
    | AttemptFinished
    | AttemptLost
    | AttemptPreempted
    | AttemptParked
    | AttemptHeldUp
    | AttemptWentOn
    | ResultRefused
    | RetryPlanned
    | RetryDue
    | HedgeDue
    | PersonAsked
    | TaskFailed
    | TaskSkipped
    | DeadlinePassed
    | StartMissed
    | QuestionAnswered
    | QuestionExpired
    | StepStarted
    | StepFinished
    | ProgressNoted
    | CancelRequested
    | WorkStopped
    | RunPaused
    | RunUnpaused
    | RunSteered
    | BudgetChanged
    | RunReleased
    | RunFinished
)

KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}

#: by version: upgrades an event to the next version; empty until VERSION is 2
_UPGRADES: dict[int, Callable[[bytes], bytes]] = {}

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def tasks_added_by(event: PlanAdopted | TaskAdded | PlanAmended) -> Sequence[Task]:
    """The tasks that this event adds to the plan."""
    match event:
        case PlanAdopted():
            return event.plan.tasks
        case TaskAdded():
            return (event.task,)
        case PlanAmended():
            return event.added


def encode(event: Event) -> bytes:
    """The event as the journal stores it."""
    return _encoder.encode(event)


def decode(data: bytes, version: int = VERSION) -> Event:
    """The event in these bytes. Unknown versions and kinds are refused, never guessed."""
    if version > VERSION or version < 1:
        raise JournalVersion(
            f"an event of version {version} was found; this chargehand reads 1 to {VERSION}: "
            "upgrade chargehand to read this journal"
        )
    for old in range(version, VERSION):
        data = _UPGRADES[old](data)
    try:
        try:
            return _decoder.decode(data)
        except UsageError:
            with reading():  # it was stored when a bound was wider or did not exist
                return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise JournalDamaged(f"an event cannot be read: {error}") from error
    except Exception as error:  # foreign bytes can fail in checks such as those of `Limits`
        raise JournalDamaged(f"an event holds what no event can hold: {error}") from error
