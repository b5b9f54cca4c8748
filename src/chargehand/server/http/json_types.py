"""The types of the API's JSON, which are published in the OpenAPI document."""

from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct, UnsetType


class TaskCounts(Struct, frozen=True, kw_only=True):
    """How many tasks of the plan are in which state; `needs`: a person must answer."""

    total: int = 0
    waiting: int = 0
    ready: int = 0
    running: int = 0
    retrying: int = 0
    needs: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0


class LeaderView(Struct, frozen=True):
    """The process that leads a run."""

    node: str
    pid: int
    host: str
    #: whether it is the process that answers this request
    here: bool


class RunEntry(Struct, frozen=True, kw_only=True):
    """One run in a list."""

    id: str
    #: the first line of the request
    title: str
    request: str
    #: submitted, planning, running, waiting, paused, stopping, interrupted, parked, succeeded, partial,
    #: failed, cancelled or unreadable
    state: str
    reason: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None
    #: duration in seconds
    wall: float = 0.0
    #: seconds in which nothing ran and only a person could continue the run
    idle: float = 0.0
    tasks: TaskCounts = TaskCounts()
    #: speed-up over running the tasks one after another, as in the trace; in a running run, running attempts count up
    #: to now; null if nothing has started
    speedup: float | None = None
    tokens: int = 0
    #: in dollars; null if the price of a model is not known
    cost: float | None = 0.0
    #: number of open questions, including those of nested runs
    questions: int = 0
    priority: int = 0
    leader: LeaderView | None = None
    parent: str = ""
    # left out in lists
    approach: str | UnsetType = UNSET
    limits: Any = UNSET
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money
    usage: Any = UNSET
    deadline_at: datetime | UnsetType | None = UNSET
    after: str | UnsetType = UNSET
    #: the workers that the plan may use; empty: all workers of the crew
    workers: tuple[str, ...] | UnsetType = UNSET
    taint: tuple[str, ...] | UnsetType = UNSET
    #: bytes of the answer's JSON
    answer_size: int | UnsetType = UNSET
    status_reason: str | UnsetType = UNSET
    node: str | UnsetType = UNSET


class RunCounts(Struct, frozen=True):
    """How many runs there are, by what a person looks for."""

    all: int
    running: int
    needs: int
    failed: int
    #: runs with an answer that has gaps
    partial: int
    #: runs that have succeeded
    done: int
    #: runs that have succeeded, failed, ended as partial, or were cancelled
    ended: int


class RunList(Struct, frozen=True):
    """A page of runs, the newest first."""

    runs: list[RunEntry]
    #: to be passed as `before` for the next page
    next: str | None
    #: counts of all runs
    counts: RunCounts
    #: number of runs that match the filter, on all pages
    fitting: int


class ErrorView(Struct, frozen=True):
    """Why a task failed."""

    kind: str
    message: str


class AttemptRow(Struct, frozen=True, kw_only=True):
    """One try at a task."""

    task: str
    attempt: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    #: done, failed, lost, preempted, parked, cancelled, needs or running
    outcome: str
    why: str
    calls: int
    wait_seconds: float = 0.0
    tokens: int = 0
    #: in dollars; null if the price of a model is not known
    cost: float | None = 0.0
    error: str = ""
    # left out in snapshots
    #: for a task with `for_each`: the item, shortened
    item: str | UnsetType = UNSET
    stack: str | UnsetType = UNSET
    notes: Any = UNSET


class TaskRow(Struct, frozen=True, kw_only=True):
    """One task of the plan, or one that the supervisor does itself (`system`)."""

    id: str
    description: str
    worker: str
    needs: list[str]
    required: bool
    accept: str
    #: waiting, ready, running, retrying, needs, done, failed, skipped or cancelled
    state: str
    #: number of the last attempt, and number of attempts that were not parked
    attempt: int
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    #: seconds of work, and seconds of waiting for a worker; for a task with `for_each`, `seconds` is the time from the
    #: start of the first item to the end of the last item
    seconds: float
    wait_seconds: float
    tokens: int
    #: in dollars; null if the price of a model is not known
    cost: float | None
    why: str
    error: ErrorView | None
    for_each: bool
    #: length of the longest chain of needs before it
    phase: int
    budget: Any
    system: bool = False
    #: planned, removed or replaced
    membership: str = "planned"
    skill: str = ""
    #: gaps of its result, such as failed items
    gaps: tuple[str, ...] | UnsetType = UNSET
    # left out in snapshots
    instruction: str | UnsetType = UNSET
    args: Any = UNSET
    output: Any = UNSET
    output_size: int | UnsetType = UNSET
    output_truncated: bool | UnsetType = UNSET
    history: list[AttemptRow] | UnsetType = UNSET
    rewrites: list[str] | UnsetType = UNSET
    #: untrusted sources that the output derives from
    provenance: tuple[str, ...] | UnsetType = UNSET


class AnsweredView(Struct, frozen=True):
    """Who answered a question."""

    by: str
    text: str
    at: datetime | None


class QuestionView(Struct, frozen=True, kw_only=True):
    """Something that a run asks a person."""

    id: str
    run: str
    task: str
    asked_at: datetime
    text: str
    #: question, approval, review, budget or plan
    kind: str
    choices: list[str]
    #: the choice that may be followed by a colon and a value
    telling: str
    default: str | None
    deadline_at: datetime | None
    evidence: Any
    #: number of tasks that cannot start before the question is answered
    waits_behind: int
    #: the first line of the run's request
    title: str
    answered: AnsweredView | None
    #: the tool call that needs approval, if any
    tool: str = ""
    arguments: Any = None
    taint: tuple[str, ...] = ()
    #: whether the question expired or the run has ended
    is_closed: bool = False


class QuestionList(Struct, frozen=True):
    """Questions, the oldest first."""

    questions: list[QuestionView]


class WaitView(Struct, frozen=True):
    """What a task waits for."""

    task: str
    why: str
    since: datetime | None
    cause: str


class ChildView(Struct, frozen=True):
    """A run that another supervisor leads for a task."""

    task: str
    run: str
    title: str
    state: str


class ItemCounts(Struct, frozen=True):
    """The items of a task with `for_each`."""

    total: int
    done: int
    failed: int
    running: int


class Snapshot(Struct, frozen=True, kw_only=True):
    """A run as it stands after event `seq`. The stream goes on from there."""

    seq: int
    run: RunEntry
    #: as `Plan.to_json` writes it; null if there is no plan yet
    plan: Any
    plan_version: int
    tasks: list[TaskRow]
    attempts: list[AttemptRow]
    questions: list[QuestionView]
    waits: list[WaitView]
    critical_path: list[str]
    #: expected seconds of unfinished tasks
    estimates: dict[str, float]
    children: list[ChildView]
    items: dict[str, ItemCounts]


class CallRow(Struct, frozen=True, kw_only=True):
    """A model call, a tool call, or another step of an attempt."""

    id: str
    task: str
    attempt: int
    #: model, tool, run or step
    kind: str
    name: str
    model: str
    started_at: datetime
    seconds: float | None
    tokens_in: int
    tokens_out: int
    #: in dollars; null if the price of a model is not known
    cost: float | None
    error: str
    is_slow: bool
    #: call, cache or shared
    source: str = ""
    #: the part of `seconds` spent waiting for the model provider to accept the call
    wait_seconds: float = 0.0
    #: number of requests sent for the call, including refused ones
    sends: int = 0
    # left out in lists
    input: Any = UNSET
    output: Any = UNSET
    #: whether the output was cut; `?full=1` returns all of it
    truncated: bool | UnsetType = UNSET
    #: bytes of the output
    size: int | UnsetType = UNSET


class CallList(Struct, frozen=True):
    """Calls in the order in which they began."""

    calls: list[CallRow]
    #: to be passed as `after` for the next page
    next: str | None


class EventPage(Struct, frozen=True):
    """Events of a run, as the stream sends them."""

    events: list[Any]
    #: to be passed as `after` for the next page
    next: int | None
