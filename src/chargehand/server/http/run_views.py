"""Builds the API's JSON types from the cached state of a run. Does no I/O, so it may be called in a thread."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET

from chargehand.decisions.deadlines import CANCELLED
from chargehand.decisions.duration_estimates import Estimates
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.plan_edit_change import is_editable
from chargehand.decisions.rule_answer import item_text, why_not_done
from chargehand.decisions.schedule import RunState, Schedule
from chargehand.decisions.speedup import idle_for_people
from chargehand.decisions.system_tasks import (
    ANSWER,
    PLAN,
    hedged,
    is_hedge,
    is_planned,
    is_system_task,
)
from chargehand.decisions.taint_sources import sources_in
from chargehand.decisions.task_and_state_words import worker_name
from chargehand.decisions.task_graph import Membership, TaskNode, TaskState, ranks_of
from chargehand.decisions.trace_types import AttemptSpan
from chargehand.facts.events import RunStatus
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import NO_USAGE, Usage
from chargehand.facts.plan import Plan, item_id, item_of
from chargehand.journal.base import Process
from chargehand.presentation.run_status import SUBMITTED
from chargehand.server.http.json_types import (
    AnsweredView,
    AttemptRow,
    CallRow,
    ErrorView,
    ItemCounts,
    LeaderView,
    QuestionView,
    RunEntry,
    TaskCounts,
    TaskRow,
)
from chargehand.server.http.run_cache import AskedQuestion, CallRecord, RunRecord

#: most characters of a title
TITLE = 100
#: a call is slow above `SLOW` seconds, or above `SLOW_TIMES` times the median of its kind
SLOW, SLOW_TIMES = 30.0, 5.0
#: the word of the API for a task that asks a person
NEEDS = "needs"
_KINDS = {"plain": "question", "in_doubt": "review", "failure": "review"}


def state_word(state: TaskState) -> str:
    """The name of a task state in the API."""
    return NEEDS if state is TaskState.ASKING else state.value


def title_of(request: str) -> str:
    """The first line of a request."""
    line = next((line.strip() for line in request.splitlines() if line.strip()), "")
    return line if len(line) <= TITLE else f"{line[: TITLE - 1]}…"


def counts_of(live_run: LiveRun) -> TaskCounts:
    """The number of tasks of the plan in each state."""
    counts: dict[str, int] = {}
    for id_, node in live_run.schedule.nodes.items():
        if is_planned(id_) and node.membership is not Membership.REMOVED:
            word = state_word(live_run.schedule.state_of(id_))
            counts[word] = counts.get(word, 0) + 1
    return TaskCounts(total=sum(counts.values()), **counts)


def leader_view(process: Process | None, here: str) -> LeaderView | None:
    """The process that leads a run, seen from the node `here`."""
    if process is None:
        return None
    return LeaderView(process.node, process.pid, process.host, process.node == here)


def run_row(
    record: RunRecord, state: str, questions: int, leader: LeaderView | None, work: timedelta
) -> RunEntry:
    """The row of a run in a list; `work` is the total work of its attempts."""
    requested, schedule = record.requested, record.live_run.schedule
    usage, now = record.live_run.results.usage, datetime.now(UTC)
    ends = record.ended_at or (now if state != "interrupted" else schedule.last_at) or now
    wall = max(ends - requested.at, timedelta(0))
    idle = idle_for_people(record.spans.attempts, record.person_waits.spans, ends)
    return RunEntry(
        id=record.run,
        title=title_of(requested.request),
        request=requested.request,
        state=state,
        reason=schedule.parked or _why_ended(schedule),
        began_at=requested.at,
        ended_at=record.ended_at,
        wall=wall.total_seconds(),
        idle=idle.total_seconds(),
        tasks=counts_of(record.live_run),
        speedup=round(work / (wall - idle), 3) if work and wall > idle else None,
        tokens=usage.tokens_in + usage.tokens_out,
        cost=usage.cost,
        questions=questions,
        priority=requested.priority,
        leader=leader,
        parent=requested.parent,
    )


def detailed(row: RunEntry, record: RunRecord) -> RunEntry:
    """Add the fields that lists leave out."""
    requested, live_run = record.requested, record.live_run
    answer = live_run.results.outputs.get("@answer")
    return msgspec.structs.replace(
        row,
        approach=requested.approach.value,
        limits=limits_json(live_run.limits),
        usage=usage_view(live_run.results.usage),
        deadline_at=requested.deadline_at,
        after=requested.after,
        workers=requested.workers,
        taint=sources_in(live_run),
        answer_size=0 if answer is None else answer.size or len(answer.json),
        status_reason=live_run.schedule.reason,
        node=record.node,
    )


def _why_ended(schedule: Schedule) -> str:
    """The reason of a run's status; for a cancelled run, who cancelled it and why."""
    is_cancelled = schedule.reason == CANCELLED and schedule.halt is not None
    return str(schedule.halt) if is_cancelled else schedule.reason


def limits_json(limits: Limits) -> dict[str, Any]:
    """The limits of a run as JSON; durations are in seconds."""
    facts = msgspec.structs.asdict(limits)
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in facts.items()
    }


# tasks


class RunFigures:
    """The attempts and the usage of each task of a run; a task with `for_each` includes its items."""

    def __init__(self, record: RunRecord) -> None:
        self.spans: dict[str, list[AttemptSpan]] = {}
        self.usage: dict[str, Usage] = {}
        self.state_of = record.live_run.schedule.state_of
        self.worker_of = record.live_run.schedule.worker_of
        for span in record.spans.attempts:
            self.spans.setdefault(span.task, []).append(span)
            item = item_of(span.task) if not is_system_task(span.task) else None
            task = span.task if item is None else item[0]
            self.usage[task] = self.usage.get(task, NO_USAGE) + span.usage
            if item is not None:
                self.spans.setdefault(task, []).append(span)


def task_rows(record: RunRecord) -> list[TaskRow]:
    """The rows of all tasks in plan order, including started system tasks, without items."""
    figures, phases = RunFigures(record), phases_of(record.live_run)
    nodes = record.live_run.schedule.nodes
    return [
        task_row(node, figures, phases.get(id_, 0))
        for id_, node in nodes.items()
        if is_planned(id_) or (is_system_task(id_) and node.attempt)
    ]


def usage_view(usage: Usage) -> dict[str, Any]:
    """Usage as JSON; `money` is null if a price is not known."""
    return {**msgspec.structs.asdict(usage), "money": usage.cost}


def task_row(node: TaskNode, figures: RunFigures, phase: int = 0) -> TaskRow:
    """The row of a task."""
    task, spans = node.task, figures.spans.get(node.task.id, [])
    usage = figures.usage.get(task.id, NO_USAGE)
    is_over = node.state.is_settled
    ended = [span.ended_at for span in spans if span.ended_at is not None]
    budget = msgspec.to_builtins(task.limits)
    return TaskRow(
        id=task.id,
        description=_second_attempt(task.id) if is_hedge(task.id) else task.description,
        worker=worker_name(figures.worker_of(task.id) or task.worker or task.skill),
        skill=task.skill,
        needs=[need.task for need in task.all_needs],
        required=not task.optional,
        accept=task.accept,
        state=state_word(figures.state_of(task.id)),
        attempt=node.attempt,
        attempts=node.attempt - node.parks,
        started_at=min((span.began_at for span in spans), default=None),
        ended_at=max(ended, default=None) if is_over else None,
        seconds=_seconds(spans, is_mapped=task.for_each is not None),
        wait_seconds=sum((span.waited for span in spans), 0.0),
        tokens=usage.tokens_in + usage.tokens_out,
        cost=usage.cost,
        why=why_not_done(node),
        error=None if node.cause is None else ErrorView(node.cause.kind.value, node.cause.message),
        for_each=task.for_each is not None,
        phase=phase,
        budget=budget or None,
        system=is_system_task(task.id),
        membership=node.membership.value,
        gaps=node.gaps or UNSET,
    )


def _second_attempt(hedge: str) -> str:
    return f"Second attempt at {hedged(hedge)}, which takes too long"


def _seconds(spans: Sequence[AttemptSpan], *, is_mapped: bool) -> float:
    """Total time of the attempts; for items, which run in parallel, from the first start to the last end."""
    if not is_mapped:
        return sum((span.length.total_seconds() for span in spans), 0.0)
    ended = [span.ended_at for span in spans if span.ended_at is not None]
    if not ended:
        return 0.0
    return (max(ended) - min(span.began_at for span in spans)).total_seconds()


def phases_of(live_run: LiveRun) -> dict[str, int]:
    """The length of the longest chain of needs before each task."""
    nodes = live_run.schedule.nodes.items()
    return ranks_of(
        {id_: [n.task for n in node.task.all_needs] for id_, node in nodes if is_planned(id_)}
    )


def item_name(record: RunRecord, task: str) -> str:
    """The item that a task of a `for_each` works on, shortened; empty for other tasks."""
    found = item_of(task) if not is_system_task(task) else None
    items = [] if found is None else record.live_run.results.items.get(found[0], [])
    return item_text(items[found[1]]) if found is not None and found[1] < len(items) else ""


def attempt_rows(
    spans: Iterable[AttemptSpan], *, whole: bool = False, names: Mapping[str, str] | None = None
) -> list[AttemptRow]:
    """The rows of attempts; with `whole`, including stack traces and notes. `names` are the names of items by task."""
    rows = []
    for span in spans:
        ending = {"needs_input": NEEDS, "": "running"}.get(span.ending, span.ending)
        row = AttemptRow(
            task=span.task,
            attempt=span.attempt,
            worker=span.worker,
            started_at=span.began_at,
            ended_at=span.ended_at,
            outcome=ending,
            why=span.why,
            calls=len(span.steps),
            wait_seconds=span.waited,
            tokens=span.usage.tokens_in + span.usage.tokens_out,
            cost=span.usage.cost,
            error=span.error,
            item=(names or {}).get(span.task) or UNSET,
            stack=span.stack if whole else UNSET,
            notes=span.notes if whole else UNSET,
        )
        rows.append(row)
    return rows


def critical_path(record: RunRecord) -> list[str]:
    """The critical path: the longest chain of tasks that the end of the run waits for, or waited for."""
    schedule = record.live_run.schedule
    if schedule.status is not None:
        return [link.task for link in record.spans.path() if _is_known(link.task)]
    nodes = {
        id_: node
        for id_, node in schedule.nodes.items()
        if is_planned(id_) and node.membership is not Membership.REMOVED
    }
    left = [node for node in nodes.values() if not node.state.is_settled]
    if not left:
        return []
    here: TaskNode | None = max(left, key=lambda node: node.path)
    chain: list[str] = []
    while here is not None:
        chain.append(here.task.id)
        later = [node for node in here.dependents if node.task.id in nodes]
        here = max(later, key=lambda node: node.path, default=None)
    return [*_before(chain[0], nodes, RunFigures(record)), *chain]


def _is_known(task: str) -> bool:
    """Whether a task is shown to people: a task of the plan, the planning or the answer."""
    return not is_system_task(task) or task.partition(":")[0] in (PLAN, ANSWER)


def _before(task: str, nodes: Mapping[str, TaskNode], figures: RunFigures) -> list[str]:
    """The chain of tasks before this one: at each step, the need that ended last."""
    chain: list[str] = []
    here = task
    while True:
        needs = [need.task for need in nodes[here].task.all_needs if need.task in nodes]
        ends = {
            need: max(str(span.ended_at) for span in figures.spans[need])
            for need in needs
            if figures.spans.get(need)
        }
        if not ends:
            return chain[::-1]
        here = max(ends, key=lambda need: ends[need])
        chain.append(here)


def estimates_of(record: RunRecord) -> dict[str, float]:
    """Expected seconds of unfinished tasks; only if the plan states it or the pace of the worker is known."""
    paces = record.requested.paces
    estimates = Estimates(paces)
    schedule = record.live_run.schedule
    return {
        id_: estimates.seconds(node.task) * _rounds(schedule, id_)
        for id_, node in schedule.nodes.items()
        if is_planned(id_)
        and not node.state.is_settled
        and (node.task.expect or (node.task.worker or node.task.skill) in paces)
    }


def _rounds(schedule: Schedule, task: str) -> float:
    """How many rounds of parallel items a task with `for_each` needs; 1 for other tasks."""
    items = [schedule.nodes[item_id(task, n)].state for n in range(schedule.mapped.get(task, 0))]
    at_once = items.count(TaskState.RUNNING) or min(len(items), schedule.limits.parallel or 1)
    return len(items) / at_once if items else 1.0


def item_counts(record: RunRecord) -> dict[str, ItemCounts]:
    """The number of items in each state, by task with `for_each`."""
    counts: dict[str, list[TaskState]] = {task: [] for task in record.live_run.schedule.mapped}
    for id_, node in record.live_run.schedule.nodes.items():
        item = item_of(id_) if not is_system_task(id_) else None
        if item is not None:
            counts.setdefault(item[0], []).append(node.state)
    return {
        task: ItemCounts(
            len(states),
            states.count(TaskState.DONE),
            states.count(TaskState.FAILED),
            states.count(TaskState.RUNNING),
        )
        for task, states in counts.items()
    }


def plan_of(record: RunRecord) -> Plan | None:
    """The current plan, without removed and replaced tasks; None if there is no plan yet."""
    schedule = record.live_run.schedule
    tasks = [
        node.task
        for id_, node in schedule.nodes.items()
        if is_planned(id_) and node.membership is Membership.PLANNED
    ]
    if not tasks:
        return None
    return Plan(
        goal=record.goal or record.requested.request,
        tasks=tasks,
        instruction=schedule.instruction,
        strategy=schedule.strategy,
        version=max(schedule.version, 1),
    )


def editable_tasks(record: RunRecord) -> list[str]:
    """The tasks that may be changed, because they were never started."""
    nodes = record.live_run.schedule.nodes
    is_over = record.live_run.schedule.status is not None
    return [] if is_over else [id_ for id_ in nodes if is_editable(nodes, id_)]


# questions


def waits_behind(record: RunRecord, task: str) -> int:
    """The number of tasks that cannot start before this one has ended."""
    nodes = record.live_run.schedule.nodes
    start = nodes.get(task)
    if start is None:
        return 0
    if is_system_task(task):  # the rest of the run waits for it
        return sum(is_planned(id_) and not node.state.is_settled for id_, node in nodes.items())
    seen, waiting = set[str](), list(start.dependents)
    while waiting:
        node = waiting.pop()
        if node.task.id not in seen and not node.state.is_settled:
            seen.add(node.task.id)
            waiting += node.dependents
    return len(seen)


def question_view(
    record: RunRecord, asked: AskedQuestion, answers: Mapping[str, AnsweredView], evidence: Any
) -> QuestionView:
    """A question as JSON. `answers` are answers that no leader has read yet."""
    question, event = asked.question, asked.answered
    answered = answers.get(question.id)
    if event is not None:
        answered = AnsweredView(event.by, event.text, event.at)
    is_over = record.live_run.schedule.status is not None
    deadline = None if question.patience is None else asked.asked_at + question.patience
    is_call = question.about == "approval" and isinstance(evidence, dict)
    return QuestionView(
        id=question.id,
        run=record.run,
        task=asked.task,
        asked_at=asked.asked_at,
        text=question.text,
        kind=_KINDS.get(question.about, question.about),
        choices=list(question.choices),
        telling=question.telling,
        default=question.default,
        deadline_at=deadline,
        evidence=evidence,
        waits_behind=0 if is_over else waits_behind(record, asked.task),
        title=title_of(record.requested.request),
        answered=answered,
        tool=str(evidence.get("tool", "")) if is_call else "",
        arguments=_arguments(evidence) if is_call else None,
        taint=question.taint,
        is_closed=asked.is_expired or is_over,
    )


def _arguments(evidence: dict[str, Any]) -> Any:
    given = evidence.get("arguments")
    try:
        return msgspec.json.decode(given) if isinstance(given, str) else given
    except msgspec.DecodeError:
        return given


# calls


def call_row(call: CallRecord, slow: float) -> CallRow:
    """The row of a call; it is slow above `slow` seconds."""
    span = call.span
    seconds = None if span.ended_at is None else (span.ended_at - span.began_at).total_seconds()
    return CallRow(
        id=str(call.seq),
        task=call.task,
        attempt=call.attempt,
        kind=span.kind.value,
        name=span.name,
        model=span.model,
        started_at=span.began_at,
        seconds=seconds,
        tokens_in=span.usage.tokens_in,
        tokens_out=span.usage.tokens_out,
        cost=span.usage.cost,
        error=span.error,
        is_slow=seconds is not None and seconds > slow,
        source=span.source,
        wait_seconds=span.waited,
        sends=span.sends,
    )


def slow_bounds(calls: Sequence[CallRecord]) -> dict[str, float]:
    """The seconds above which a call is slow, by kind of call."""
    lengths: dict[str, list[float]] = {}
    for call in calls:
        span = call.span
        if span.ended_at is not None:
            took = (span.ended_at - span.began_at).total_seconds()
            lengths.setdefault(span.kind.value, []).append(took)
    return {
        kind: min(max(SLOW_TIMES * sorted(each)[len(each) // 2], 1.0), SLOW)
        for kind, each in lengths.items()
    }


def is_open(state: str) -> bool:
    """Whether a run in this state has not ended."""
    return state not in {*(each.value for each in RunStatus), "unreadable"}


def unknown_filter(wanted: Iterable[str]) -> str:
    """The first name that is neither a state of a run nor a group of states; empty if all are known."""
    return next((each for each in wanted if each not in GROUPS and each not in STATES), "")


def matches(row_state: str, wanted: Collection[str]) -> bool:
    """Whether a run in this state matches a filter, which consists of states and groups."""
    return not wanted or row_state in wanted or any(row_state in GROUPS.get(w, ()) for w in wanted)


#: the states of a run
STATES: tuple[str, ...] = (
    *(each.value for each in RunState),
    *("parked", "interrupted"),
    *(each.value for each in RunStatus),
    "unreadable",
)
#: groups of states, for filtering the list of runs
GROUPS: dict[str, tuple[str, ...]] = {
    "all": (),
    "running": (SUBMITTED, "planning", "running", "stopping", "paused"),
    "needs": ("waiting", "parked", "interrupted"),
    "partial": ("partial",),
    "failed": ("failed", "unreadable"),
    "done": ("succeeded",),
    "ended": ("succeeded", "partial", "cancelled", "failed"),
}
