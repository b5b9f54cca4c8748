"""The JSON of the API: what its routes return, as the OpenAPI document lists it."""

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
    #: whether it is the one that answers this request
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
    #: seconds
    wall: float = 0.0
    #: seconds of it in which nothing ran and only a person could move it
    idle: float = 0.0
    tasks: TaskCounts = TaskCounts()
    #: how much faster it is than its work one after another, as its trace says; of one that goes on, with the
    #: attempts under way as far as they are; null: nothing has begun
    speedup: float | None = None
    tokens: int = 0
    #: dollars; null: no price list knows its models
    cost: float | None = 0.0
    #: open ones, of nested runs too
    questions: int = 0
    priority: int = 0
    leader: LeaderView | None = None
    parent: str = ""
    # what a list leaves out
    approach: str | UnsetType = UNSET
    limits: Any = UNSET
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money
    usage: Any = UNSET
    deadline_at: datetime | UnsetType | None = UNSET
    after: str | UnsetType = UNSET
    #: the workers that its plan may name; none: the whole crew
    workers: tuple[str, ...] | UnsetType = UNSET
    taint: tuple[str, ...] | UnsetType = UNSET
    #: characters of the answer
    answer_size: int | UnsetType = UNSET
    status_reason: str | UnsetType = UNSET
    node: str | UnsetType = UNSET


class RunCounts(Struct, frozen=True):
    """How many runs there are, by what a person looks for."""

    all: int
    running: int
    needs: int
    failed: int
    #: they have an answer that lacks something
    partial: int
    #: they have succeeded
    done: int
    #: they have succeeded, failed, ended in part or were cancelled
    ended: int


class RunList(Struct, frozen=True):
    """A page of runs, the newest first."""

    runs: list[RunEntry]
    #: pass it as `before` for the next page
    next: str | None
    #: of all runs
    counts: RunCounts
    #: how many runs fit the filter, on all pages
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
    #: dollars; null: no price list knows its models
    cost: float | None = 0.0
    error: str = ""
    # what a snapshot leaves out
    #: of a task with `for_each`: the item, in a few words
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
    #: number of the last attempt, and how many there were
    attempt: int
    attempts: int
    started_at: datetime | None
    ended_at: datetime | None
    #: seconds of work, and of waiting for a worker; of a task with `for_each`, `seconds` is from the start of its
    #: first item to the end of the last one
    seconds: float
    wait_seconds: float
    tokens: int
    #: dollars; null: no price list knows its models
    cost: float | None
    why: str
    error: ErrorView | None
    for_each: bool
    #: the longest chain of needs before it
    phase: int
    budget: Any
    system: bool = False
    #: planned, removed or replaced
    membership: str = "planned"
    skill: str = ""
    #: what its result lacks, such as items that failed
    gaps: tuple[str, ...] | UnsetType = UNSET
    # what a snapshot leaves out
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
    #: the choice that may be followed by a colon and JSON
    telling: str
    default: str | None
    deadline_at: datetime | None
    evidence: Any
    #: tasks that cannot start before this is answered
    waits_behind: int
    #: the first line of the request of the run
    title: str
    answered: AnsweredView | None
    #: of a tool call that needs approval
    tool: str = ""
    arguments: Any = None
    taint: tuple[str, ...] = ()
    #: nobody answered in time, or the run has ended
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
    #: as `Plan.to_json` writes it; null before there is one
    plan: Any
    plan_version: int
    tasks: list[TaskRow]
    attempts: list[AttemptRow]
    questions: list[QuestionView]
    waits: list[WaitView]
    critical_path: list[str]
    #: seconds that tasks are expected to take, of those that have not ended
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
    #: dollars; null: no price list knows its models
    cost: float | None
    error: str
    is_slow: bool
    #: call, cache or shared
    source: str = ""
    #: of `seconds`: until the model's provider would take it
    wait_seconds: float = 0.0
    #: requests that went out for it, refused ones included
    sends: int = 0
    # what a list leaves out
    input: Any = UNSET
    output: Any = UNSET
    #: the output was longer; `?full=1` returns all of it
    truncated: bool | UnsetType = UNSET
    #: bytes of the output
    size: int | UnsetType = UNSET


class CallList(Struct, frozen=True):
    """Calls in the order in which they began."""

    calls: list[CallRow]
    #: pass it as `after` for the next page
    next: str | None


class EventPage(Struct, frozen=True):
    """Events of a run, as the stream sends them."""

    events: list[Any]
    #: pass it as `after` for the next page
    next: int | None
