"""Why a task waits, and since when: computed from the schedule and, if this process leads the run, the pool."""

import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.dispatch import TO_JOIN, TO_TAKE, Dispatch
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.system_tasks import ITEMS, is_system_task
from chargehand.decisions.task_and_state_words import state_words
from chargehand.decisions.task_graph import TaskNode, TaskState, items_of
from chargehand.facts.events import Approach
from chargehand.facts.plan import Task

#: needs that are named; further ones are only counted
MOST_NEEDS = 4
#: characters of a question or an error
LONGEST = 120


class Cause(StrEnum):
    """What a task can wait for."""

    NEEDS = "needs"  #: results of other tasks
    PLACE = "place"  #: a slot of a worker, the pool or its run; a breaker or the start rate
    RETRY = "retry"  #: the time of its next try
    PROVIDER = "provider"  #: a provider that cannot be called yet
    REWRITING = "rewriting"  #: a rewritten description
    BUDGET = "budget"  #: money, tokens or calls that others have reserved and may not use
    PERSON = "person"  #: a person's answer
    PAUSE = "pause"  #: the end of a pause of the run


class WaitReason(Struct, frozen=True, kw_only=True):
    """What one task waits for. As text: `t7 waits for a slot of researcher, 3 s`."""

    run: str
    task: str
    cause: Cause
    #: in words that fit after "waits for"
    what: str
    #: how long it has waited for this
    seconds: float = 0.0
    since_at: datetime | None = None
    #: when the wait is over at the latest, if that is known
    until_at: datetime | None = None
    #: the id of the question whose answer it waits for, also if another task asks it; empty if there is none
    question: str = ""

    @property
    def is_behind_work(self) -> bool:
        """Whether workers have other work to do first; the run then does not stand still."""
        return self.cause is Cause.PLACE and self.what.startswith("a slot ")

    @property
    def lacks_worker(self) -> bool:
        """Whether the pool has no worker that may take it, so that it waits until one is added."""
        is_missing = self.what.startswith(TO_TAKE) or self.what.endswith(TO_JOIN)
        return self.cause is Cause.PLACE and is_missing

    def words(self, others: int = 0) -> str:
        """As text; `others` is the number of other tasks that wait for the same."""
        who = f"{self.task} and {others:,} more wait" if others else f"{self.task} waits"
        return f"{who} for {self.what}, {_length(self.seconds)}"

    def __str__(self) -> str:
        return self.words()


def way_out(wait: WaitReason, journal: str = "") -> str:
    """What ends this wait: a command, a call in the program that leads the run, or nothing but time."""
    if wait.lacks_worker:
        return "end the wait with a worker that may take it, in the program that leads the run: await boss.join(worker)"
    if wait.cause in (Cause.PERSON, Cause.PAUSE):
        return f"end the wait with: {_command(wait, journal)}"
    return "it continues by itself"


def _command(wait: WaitReason, journal: str) -> str:
    match wait.cause:
        case Cause.PERSON if wait.question:
            return _either(
                ["answer", wait.question, "TEXT"], f"answer({wait.question!r}, 'TEXT')", journal
            )
        case Cause.PAUSE:
            return _either(["unpause", wait.run], f"unpause({wait.run!r})", journal)
        case _:
            return _either(["show", wait.run], f"look({wait.run!r})", journal)


def _either(words: list[str], call: str, journal: str) -> str:
    at = ["--journal", journal]
    return shlex.join(["chargehand", *words, *at]) if journal else f"await boss.{call}"


class Explainer:
    """Explains what the tasks of one run wait for `now`; if it `is_submitted`, no process has started the run yet.

    Without `dispatch` (another process leads the run), it knows only the journal: which task is ready for which
    worker and which workers keep failing, but not which tasks come first. If the run is not `is_led`, all work that could go on waits for a leader.
    """

    def __init__(
        self,
        run: str,
        live_run: LiveRun,
        now: datetime | None = None,
        dispatch: Dispatch | None = None,
        *,
        is_submitted: bool = False,
        is_led: bool = True,
    ) -> None:
        self._run = run
        self._schedule = live_run.schedule
        self._breakers = live_run.breakers
        self._account = live_run.account
        self._now = now
        self._dispatch = dispatch
        self._is_submitted = is_submitted
        requested = live_run.schedule.requested
        self._is_of_pool = requested is not None and requested.approach is Approach.POOL
        self._is_led = is_led or is_submitted or self._is_of_pool

    def all(self) -> Iterator[WaitReason]:
        """The wait reasons of all waiting tasks, system tasks included, in plan order."""
        for task in self._schedule.nodes:
            wait = self.why(task)
            if wait is not None:
                yield wait

    def why(self, task: str) -> WaitReason | None:
        """What this task waits for; None if it runs, or has ended."""
        node = self._schedule.nodes[task]
        paused_at = self._schedule.paused_at
        if paused_at is not None and node.state in (TaskState.READY, TaskState.RETRYING):
            since_at = max(paused_at, node.since_at or paused_at)
            if self._schedule.is_short:
                words = "a person to say whether more may be spent"
                short = self._wait(node, Cause.PERSON, words, since_at)
                return replace(short, question=self._schedule.shortage_question)
            return self._wait(node, Cause.PAUSE, "its run, which is paused", since_at)
        match node.state:
            case TaskState.READY | TaskState.RETRYING if not self._is_led:
                return self._leader(node)
            case TaskState.WAITING:
                return self._needs(node)
            case TaskState.READY:
                return self._wait(node, Cause.PLACE, self._place(node))
            case TaskState.RETRYING:
                return self._retry(node)
            case TaskState.ASKING:
                return self._question(node)
            case TaskState.RUNNING if task in self._schedule.held_up_tasks:
                return self._wait(node, Cause.PERSON, "answers that its nested run waits for")
            case TaskState.RUNNING if self._is_led:
                return self._money(node)
            case _:
                return None

    def _needs(self, node: TaskNode) -> WaitReason | None:
        count = self._schedule.mapped.get(node.task.id)
        if count is not None:
            words = f"{node.unmet:,} of its {count:,} items{self._items_wait(node)}"
            return self._wait(node, Cause.NEEDS, words)
        if node.task.for_each is not None and f"{ITEMS}:{node.task.id}" in self._schedule.nodes:
            return self._wait(node, Cause.NEEDS, "its items to be listed")
        unmet = _unmet(node.task, self._schedule.nodes)
        if not unmet:
            return None  # it is about to be skipped
        named = ", ".join(
            f"{each.task.id} ({self._state_words(each.task.id)})" for each in unmet[:MOST_NEEDS]
        )
        more = f" and {len(unmet) - MOST_NEEDS} more" if len(unmet) > MOST_NEEDS else ""
        return self._wait(node, Cause.NEEDS, named + more)

    def _state_words(self, task: str) -> str:
        state = self._schedule.state_of(task)
        is_cut_short = state is TaskState.RUNNING and not self._is_led
        return "interrupted" if is_cut_short else state_words(state)

    def _items_wait(self, node: TaskNode) -> str:
        """What its first open item waits for; empty while one of its items runs."""
        if self._schedule.state_of(node.task.id) is TaskState.RUNNING:
            return ""
        items = (i for i in items_of(node, self._schedule.nodes) if not i.state.is_settled)
        first = next(items, None)
        wait = None if first is None else self.why(first.task.id)
        return "" if wait is None else f" ({wait.task} for {wait.what})"

    def _leader(self, node: TaskNode) -> WaitReason:
        """Without a leader, no worker, provider or time of a next try holds the task up: it is resumed, or waits."""
        why, cause = "", Cause.PLACE
        if node.task.id in self._schedule.parked_tasks and node.waits_for:
            cause, why = (
                Cause.PROVIDER,
                f"; it had to wait for its provider: {_cut(node.waits_for)}",
            )
        elif node.state is TaskState.RETRYING and node.last_failure is not None:
            cause, why = Cause.RETRY, f"; its last try failed with {_cut(str(node.last_failure))}"
        awaited = (
            "its parked run to be resumed"
            if self._schedule.parked
            else "a process that leads its run"
        )
        what = f"{awaited}{why}"
        return replace(self._wait(node, cause, what, self._schedule.last_at), until_at=None)

    def _place(self, node: TaskNode) -> str:
        if self._is_submitted:
            return "a process that starts its run"
        if is_system_task(node.task.worker):
            return "the supervisor"
        if self._dispatch is not None:
            return self._dispatch.why_waiting(self._run, node.task.id) or "its turn"
        if self._is_of_pool:
            again = " again: the process that had it was closed or is gone" if node.losses else ""
            return f"{_who(node.task)} of its pool to take it{again}"
        why, now = "", self._now or self._schedule.last_at
        if self._breakers is not None:
            why = self._breakers.why_waiting(node.task.worker, now)
        return why or f"its turn with {_who(node.task)}; the process that leads its run knows more"

    def _retry(self, node: TaskNode) -> WaitReason:
        if node.task.id in self._schedule.parked_tasks:
            why = f": {_cut(node.waits_for)}" if node.waits_for else ""
            words = f"its provider, until {_clock(node.due_at)}{why}"
            return self._wait(node, Cause.PROVIDER, words)
        if node.due_at is None and node.task.id in self._schedule.unclear_tasks:
            return self._wait(node, Cause.REWRITING, "its description to be rewritten")
        after = f" after {_cut(str(node.last_failure))}" if node.last_failure is not None else ""
        at = "" if node.due_at is None else f" at {_clock(node.due_at)}"
        return self._wait(node, Cause.RETRY, f"its next try{at}{after}")

    def _question(self, node: TaskNode) -> WaitReason:
        asked = "" if node.question is None else f": {_cut(node.question.text)}"
        return self._wait(node, Cause.PERSON, f"a person's answer{asked}")

    def _money(self, node: TaskNode) -> WaitReason | None:
        short = "" if self._account is None else self._account.short.get(node.task.id, "")
        if not short:
            return None
        words = f"budget that other model calls have reserved: {_cut(short)}"
        return self._wait(node, Cause.BUDGET, words, node.started_at)

    def _wait(
        self, node: TaskNode, cause: Cause, what: str, since_at: datetime | None = None
    ) -> WaitReason:
        since_at = since_at or node.since_at
        asked = node.question if cause is Cause.PERSON else None
        now = self._now or self._schedule.last_at
        lasts = timedelta(0) if since_at is None or now is None else now - since_at
        return WaitReason(
            run=self._run,
            task=node.task.id,
            cause=cause,
            what=what,
            seconds=max(lasts.total_seconds(), 0.0),
            since_at=since_at,
            until_at=node.due_at,
            question="" if asked is None else asked.id,
        )


def _unmet(task: Task, nodes: Mapping[str, TaskNode]) -> list[TaskNode]:
    needs = [nodes[need.task] for need in task.all_needs]
    return [node for node in needs if not node.state.is_settled]


def _who(task: Task) -> str:
    return task.worker or f"a worker who can {task.skill}"


def _clock(at: datetime | None) -> str:
    return "" if at is None else at.replace(microsecond=0).isoformat()


def _cut(text: str) -> str:
    line = " ".join(text.split()).removesuffix(".")  # a comma follows
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _length(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
