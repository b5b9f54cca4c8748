"""A run as lines on stderr: one per change with its time, and a summary at the end."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from msgspec import Struct, field

from chargehand.decisions.rule_answer import IN_PART
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_and_state_words import (
    asker_name,
    counted,
    state_words,
    system_task_words,
    task_name,
)
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.time_and_cost_report import LEAST_SPEEDUP, is_idle_worth_telling
from chargehand.decisions.worker_breakers import WorkerBreakers
from chargehand.facts import events
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Event
from chargehand.facts.outcome import Cancelled, Done, Failed, NeedsInput
from chargehand.facts.plan import Task, each_words, item_of
from chargehand.presentation.display_text import (
    clock_words,
    money_words,
    one_line,
    with_local_times,
)
from chargehand.presentation.run_status import INTERRUPTED
from chargehand.presentation.stack_lines import stack_lines
from chargehand.result import RunResult, TaskResult

#: most tasks of a plan that are listed when it is adopted
LONGEST_TABLE = 50
#: most failed items of a task that get a line each; the bar counts all of them
MOST_FAILURES = 3
#: characters of a progress bar; each new character gives a line
BAR = 10
#: width of the labels in the summary
LABEL = 10
#: state shown for a task whose question was answered but that has not continued yet
ANSWERED = "answered"


class FoldedItems(Struct):
    """Items of one task with the same kind of event. Reports the first one, then counts at growing intervals."""

    items: set[str] = field(default_factory=set)
    #: the count at which to report next
    next: int = 3

    def add(self, item: str) -> int:
        """Add an item. Returns the count if it is due to be reported; otherwise 0."""
        self.items.add(item)
        count = len(self.items)
        if count < self.next:
            return 1 if count == 1 else 0
        self.next = count * 10 // 3
        return count


class ItemCount(Struct):
    """The progress of a task with `for_each`."""

    #: number of items; 0 if unknown, because `ItemsListed` was not heard
    total: int = 0
    done: int = 0
    failed: int = 0
    #: filled part of the bar when it was last shown
    shown: int = 0
    began_at: datetime | None = None
    #: state of each item that has started and not ended
    open: dict[str, TaskState] = {}
    states: dict[TaskState, int] = {}
    #: last failure of each item, until the event that decides about its retry
    failures: dict[str, Failed] = {}
    #: items that will be retried or continued, by kind of event and error class
    folded: dict[str, FoldedItems] = {}
    #: why the last failed item failed
    reason: str = ""

    @property
    def filled(self) -> int:
        """The filled part of the bar, in characters."""
        return BAR * (self.done + self.failed) // self.total if self.total else 0

    @property
    def state(self) -> TaskState:
        """The combined state of the open items: running if any of them runs, and so on."""
        told = (TaskState.RUNNING, TaskState.RETRYING, TaskState.ASKING)
        return next((state for state in told if self.states.get(state)), TaskState.READY)

    def move(self, item: str, state: TaskState) -> None:
        """Set the state of an item."""
        before = self.open.pop(item, None)
        if before is not None:
            self.states[before] -= 1
        if not state.is_settled:
            self.open[item] = state
            self.states[state] = self.states.get(state, 0) + 1

    @property
    def words(self) -> str:
        """The progress without the bar."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        if again := self.states.get(TaskState.RETRYING):
            failed += f", {again:,} {state_words(TaskState.RETRYING)}"
        return f"{self.done:,} of {counted(self.total, 'item')} done{failed}"

    def __str__(self) -> str:
        bar = "█" * self.filled + "░" * (BAR - self.filled)
        return f"{bar} {self.words}"


class ProgressLines:
    """Prints each change of a run as a line with a timestamp, without escape sequences."""

    def __init__(
        self, say: Callable[[str], None], where: str = "", *, verbose: bool = False
    ) -> None:
        self._say = say
        self._verbose = verbose
        #: the path of a nested supervisor, printed before each line
        self._where = where
        self._tasks: dict[str, Task] = {}
        self._began: dict[str, datetime] = {}
        self._done = 0
        self._items: dict[str, ItemCount] = {}
        self._is_cancelled = False
        self._breakers = WorkerBreakers()
        #: a failed attempt and its lines, held back until the next event
        self._failed: tuple[events.AttemptFinished, list[str]] | None = None
        #: the line about a breaker that has just opened; it comes after that of the failure
        self._resting: list[tuple[Event, list[str]]] = []

    def catch_up(self, result: RunResult) -> None:
        """Take over the state of a run whose earlier events were not heard."""
        self._tasks = {id_: task.task for id_, task in result.tasks.items()}
        self._done = sum(task.state is TaskState.DONE for task in result.tasks.values())
        for id_, task in result.tasks.items():
            if items := task.items:
                done = sum(item.state is TaskState.DONE for item in items)
                failed = len(task.failed_items)
                count = ItemCount(len(items), done, failed)
                count.shown = count.filled
                self._items[id_] = count

    def hear(self, event: Event) -> None:
        for about, lines in self.lines_of(event):
            for words in lines:
                self._say(f"{clock_words(about.at)}  {self._where}{words}")

    def lines_of(self, event: Event) -> list[tuple[Event, list[str]]]:
        """The lines to print now, each list with its event."""
        resting, self._resting = self._resting, []
        if worker := self._breakers.apply(event):
            why = with_local_times(self._breakers.why_waiting(worker))
            self._resting = [(event, [f"tasks for {worker} wait for {why}"])]
        return [*self._lines_of(event), *resting]

    def _lines_of(self, event: Event) -> list[tuple[Event, list[str]]]:
        """The lines about what happened.

        The lines of a failed attempt are held back until the next event: if that is `TaskFailed`, one line is enough
        for both.
        """
        before, self._failed = self._failed, None
        lines = self._words(event)
        if (
            isinstance(event, events.AttemptFinished)
            and isinstance(event.outcome, Failed)
            and lines
        ):
            self._failed, lines = (event, lines), []
        if before is None:
            return [(event, lines)]
        if isinstance(event, events.TaskFailed) and event.task == before[0].task:
            return [(event, self._given_up(*before, event))]
        return [before, (event, lines)]

    def _given_up(
        self, attempt: events.AttemptFinished, lines: list[str], event: events.TaskFailed
    ) -> list[str]:
        """The lines for a failed attempt after which its task is given up; `lines` are those of the attempt."""
        if is_system_task(event.task) or not str(event.cause).startswith(str(attempt.outcome)):
            return [*lines, *filter(None, [_other_words(event)])]
        after = ""  # after several attempts, the cause gives their number
        if attempt.attempt == 1:
            length = attempt.at - self._began.get(event.task, attempt.at)
            after = f" after {shown_length(length)}"
        return [f"gave up on {event.task}{after}: {_cause_of(event)}", *lines[1:]]

    def _words(self, event: Event) -> list[str]:
        """The lines for an event."""
        task = getattr(event, "task", "")  # a `Task` in `TaskAdded`, otherwise an id
        item = item_of(task) if isinstance(task, str) else None
        if item is not None and not is_system_task(item[0]):
            return self._item_words(event, item[0])
        match event:
            case events.ItemsListed():
                self._items.setdefault(event.task, ItemCount()).total = event.first + len(
                    event.items
                )
                return []
            case events.RunRequested():
                return [f"run {event.run}: {one_line(event.request, 120)}"]
            case events.PlanAdopted():
                return self._planned(list(event.plan.tasks))
            case events.TaskAdded():
                return self._planned([event.task])
            case events.PlanAmended():
                return self._amended(event)
            case events.PlanSealed():
                return [f"the plan is complete: {counted(len(self._tasks), 'task')}"]
            case events.AttemptStarted():
                return self._started(event)
            case events.AttemptFinished():
                return self._finished(event)
            case events.AttemptPreempted() if self._is_cancelled:
                return [f"{task_name(event.task)} was stopped"]
            case _:
                self._is_cancelled |= isinstance(event, events.CancelRequested)
                return [words] if (words := _other_words(event)) else []

    def _item_words(self, event: Event, task: str) -> list[str]:
        """The lines for an event of an item: one per tenth of the items, and one per failure or question."""
        count = self._items.setdefault(task, ItemCount())
        words: list[str] = []
        match event:
            case events.AttemptStarted() if count.began_at is None:
                count.began_at = event.at
                items = counted(count.total, "item") if count.total else "its other items"
                words.append(f"{task} started by {event.worker} for {items}")
            case events.AttemptFinished(outcome=Done()):
                count.done += 1
            case events.AttemptFinished(outcome=NeedsInput(question=question)):
                words.append(f"{event.task} asks: {one_line(question.text, 200)}")
            case events.AttemptFinished(outcome=Failed() as failed):
                count.failures[event.task] = failed
            case events.RetryPlanned() | events.AttemptLost() | events.AttemptParked():
                words += self._again_words(event, task, count)
            case events.TaskFailed():
                count.failed += 1
                count.failures.pop(event.task, None)
                if count.failed <= MOST_FAILURES:
                    words += [_other_words(event)]
            case events.PersonAsked() | events.QuestionAnswered() | events.QuestionExpired():
                words.append(_other_words(event))
            case _:
                return []
        if count.filled > count.shown:
            count.shown = count.filled
            words.append(f"{task} {count}")
        return words

    def _again_words(
        self,
        event: events.RetryPlanned | events.AttemptLost | events.AttemptParked,
        task: str,
        count: ItemCount,
    ) -> list[str]:
        """The lines for items that failed, were lost or were parked and will continue: the first one, then counts."""
        failed = count.failures.pop(event.task, None)
        if isinstance(event, events.RetryPlanned):
            kind, what, why = "failed", "failed and are tried again", str(failed or "")
        elif isinstance(event, events.AttemptLost):
            kind, what, why = "lost", "were lost and are tried again", event.reason
        else:
            kind, what, why = "parked", "wait and continue later", event.why
        cause = "" if failed is None else failed.kind.value
        told = count.folded.setdefault(f"{kind} {cause}", FoldedItems()).add(event.task)
        if told > 1:
            return [f"{told:,} items of {task} {what}{_because(why)}"]
        if not told:
            return []
        if failed is None:
            return [_other_words(event)]
        due_at = event.due_at if isinstance(event, events.RetryPlanned) else event.at
        wait = shown_length(due_at - event.at)
        first = f"{event.task} failed{_because(why)}; it is tried again in {wait}"
        return [first, *self._stack_lines(failed)]

    def _stack_lines(self, failed: Failed) -> list[str]:
        return [f"    {line}" for line in stack_lines(failed.stack)] if self._verbose else []

    def _planned(self, tasks: list[Task]) -> list[str]:
        self._tasks |= {task.id: task for task in tasks}
        shown = tasks if len(tasks) <= LONGEST_TABLE else []
        lines = [f"planned {_line_of(task)}" for task in shown]
        return lines or [f"planned {counted(len(tasks), 'task')}"]

    def _amended(self, event: events.PlanAmended) -> list[str]:
        gone = f"; {', '.join(event.removed)} removed" if event.removed else ""
        why = f": {one_line(event.reason, 160)}" if event.reason else ""
        head = [] if event.is_step else [f"the plan is changed{why}{gone}"]
        return [*head, *(self._planned(list(event.added)) if event.added else [])]

    def _started(self, event: events.AttemptStarted) -> list[str]:
        count = self._items.get(event.task)
        self._began[event.task] = event.at if count is None else count.began_at or event.at
        if count is not None:
            return []  # this attempt only combines the results of the items
        if is_system_task(event.task):
            return [system_task_words(event.task)]
        again = f", attempt {event.attempt}" if event.attempt > 1 else ""
        return [f"{event.task} started by {event.worker}{again}"]

    def _finished(self, event: events.AttemptFinished) -> list[str]:
        length = shown_length(event.at - self._began.get(event.task, event.at))
        name = task_name(event.task)
        match event.outcome:
            case Done() if is_system_task(event.task):
                return []
            case Done(gaps=gaps):
                self._done += 1
                progress = f" ({self._done} of {len(self._tasks)})" if name in self._tasks else ""
                count = self._items.get(event.task, ItemCount())
                lost = f"; {failed_items_words(count.failed, count.total)}" if count.failed else ""
                words = in_part_words(gaps) or "done"
                return [f"{name} {words} in {length}{progress}{'' if gaps else lost}"]
            case Failed() as failed:
                first = f"{name} failed after {length}: {one_line(str(failed), 200)}"
                return [first, *self._stack_lines(failed)]
            case NeedsInput(question=question):
                return [f"{asker_name(event.task)} asks: {one_line(question.text, 200)}"]
            case Cancelled():
                return [f"{name} was stopped after {length}"]


def failed_items_words(failed: int, total: int) -> str:
    """How many items of a task that is done have failed."""
    of = f" of {counted(total, 'item')}" if total else ""
    return f"{failed:,}{of} failed"


def in_part_words(gaps: Sequence[str]) -> str:
    """Says that a task is done in part, with its first gap; empty if it has no gaps."""
    if not gaps:
        return ""
    more = f" and {len(gaps) - 1:,} more" if len(gaps) > 1 else ""
    return f"{IN_PART} (missing: {one_line(gaps[0], 160)}{more})"


def _other_words(event: Event) -> str:
    match event:
        case events.TaskRewritten():
            return f"{event.task} is rewritten: {one_line(event.description, 160)}"
        case events.AttemptLost():
            return f"{task_name(event.task)} was lost: {one_line(event.reason, 160)}"
        case events.AttemptPreempted():
            return f"{task_name(event.task)} stopped for now; it will continue from there later"
        case events.AttemptParked():
            wait = shown_length(event.due_at - event.at)
            return f"{task_name(event.task)} continues in {wait}: {one_line(event.why, 160)}"
        case events.RetryPlanned() if not is_system_task(event.task):
            wait = shown_length(event.due_at - event.at)
            by = f" by {event.worker}" if event.worker else ""
            return f"{event.task} is tried again{by} in {wait}"
        case events.PersonAsked():
            return f"{asker_name(event.task)} asks: {one_line(event.question.text, 200)}"
        case events.TaskFailed() if not is_system_task(event.task):
            return f"gave up on {event.task}: {_cause_of(event)}"
        case events.TaskSkipped() if not is_system_task(event.task):
            return f"{event.task} is skipped: {one_line(event.why, 160)}"
        case events.DeadlinePassed():
            return (
                f"the deadline of {task_name(event.task)} has passed"
                if event.task
                else "the deadline has passed"
            )
        case events.StartMissed() if not is_system_task(event.task):
            return f"{event.task} is not started: it could no longer finish in time"
        case events.QuestionAnswered():
            return (
                f"{asker_name(event.task)} was answered by {event.by}: {one_line(event.text, 160)}"
            )
        case events.QuestionExpired(why=""):
            return f"the question of {asker_name(event.task)} was not answered in time"
        case events.QuestionExpired():
            return f"{asker_name(event.task)} is not answered: {one_line(event.why, 300)}"
        case events.ProgressNoted():
            share = "" if event.fraction is None else f" ({event.fraction:.0%})"
            return f"{task_name(event.task)}: {one_line(event.text, 160)}{share}"
        case _:
            return _run_words(event)


def _run_words(event: Event) -> str:
    match event:
        case events.CancelRequested():
            return f"cancelled{_by(event.by)}{_because(event.reason)}"
        case events.WorkStopped():
            return (
                f"the work is stopped{_because(event.reason)}; the answer uses the results so far"
            )
        case events.RunPaused():
            return f"paused{_by(event.by)}{_because(event.reason)}"
        case events.RunUnpaused():
            return f"continued{_by(event.by)}"
        case events.RunSteered():
            return f"steered{_by(event.by)}: {one_line(event.note, 200)}"
        case events.RunReleased():
            return "this process starts nothing more"
        case events.RunFinished():
            is_telling = event.reason != event.status.value
            return event.status.value + (_because(event.reason) if is_telling else "")
        case _:
            return ""  # steps and leases: the trace has them


def _cause_of(event: events.TaskFailed) -> str:
    return one_line(str(event.cause), 200)


def _by(person: str) -> str:
    return f" by {person}" if person else ""


def _because(reason: str) -> str:
    return f": {one_line(reason, 200)}" if reason else ""


def _line_of(task: Task) -> str:
    after = f", after {', '.join(need.task for need in task.all_needs)}" if task.needs else ""
    each = f", {words}" if (words := each_words(task)) else ""
    who = task.worker or task.skill
    return f"{task.id} for {who}{each}{after}: {one_line(task.description, 120)}"


def summary(result: RunResult, next_command: str) -> list[str]:
    """The result of a finished run in six lines, the last of which suggests a command."""
    usage = result.usage
    tokens = usage.tokens_in + usage.tokens_out
    path = result.trace.critical_path
    faster, waited = gain_words(result), waited_words(result)
    return [
        f"status    {', '.join(filter(None, (result.status.value, f'run {result.id}', sureness(result))))}",
        f"time      {shown_length(result.wall)}{waited}{faster}",
        f"tasks     {task_counts(result)}",
        f"waited on {one_line(' → '.join(each for each in path if not is_system_task(each)), 160) or '–'}",
        f"spent     {counted(usage.calls, 'call')}, {tokens:,} tokens, {money_words(usage.money)}"
        f"{over_budget_words(result)}",
        f"next      {next_command}",
    ]


def over_budget_words(result: RunResult) -> str:
    """The caps that were passed; empty if none was."""
    over = result.over_budget
    return f"; over budget: {one_line('; '.join(over), 300)}" if over else ""


def sureness(result: RunResult) -> str:
    """The confidence of the answer; empty if no task is done."""
    if not any(task.state is TaskState.DONE for task in result.tasks.values()):
        return ""
    return f"confidence {result.answer.confidence:.2g}"


def gain_of(result: RunResult) -> float | None:
    """The speed-up; None if no task is done or the value is next to 0."""
    is_any_done = any(task.state is TaskState.DONE for task in result.tasks.values())
    return round(result.speedup, 3) if is_any_done and result.speedup >= 0.05 else None


def told_gain(result: RunResult) -> float | None:
    """The speed-up, or None if it means little: below `LEAST_SPEEDUP`, or below 1.05 with a single task or item."""
    pieces = sum(max(len(task.items), 1) for task in result.tasks.values())
    gain = gain_of(result)
    if gain is None or gain < LEAST_SPEEDUP or (pieces < 2 and gain < 1.05):
        return None
    return gain


def gain_words(result: RunResult) -> str:
    """The speed-up in words; empty if it means little."""
    gain = told_gain(result)
    return "" if gain is None else f", {gain:.1f} times as fast as one task after another"


def waited_words(result: RunResult) -> str:
    """The idle time in words: waits for a person, a pause or a process. The speed-up excludes it. Empty if short."""
    idle = result.trace.idle
    is_told = is_idle_worth_telling(idle, result.wall)
    return f", of which {shown_length(idle)} idle" if is_told else ""


def told_states(result: RunResult) -> Callable[[TaskResult], str]:
    """A function that names the state of a task. If no process leads the run, running tasks are `interrupted`."""
    is_interrupted, answered = result.is_interrupted, result.answered

    def told(task: TaskResult) -> str:
        if task.state is TaskState.RUNNING and is_interrupted:
            return INTERRUPTED
        if task.question is not None and task.question.id in answered:
            return ANSWERED
        return state_words(task.state)

    return told


def item_counts(task: TaskResult, result: RunResult) -> str:
    """The progress of a task with `for_each`, in words; empty if the task has ended or has no items."""
    items = [] if task.state.is_settled else task.items
    if not items:
        return ""
    named = (TaskState.FAILED, TaskState.RUNNING, TaskState.RETRYING, TaskState.ASKING)
    counts = _state_counts([item for item in items if item.state in named], result)
    others = "".join(f", {count:,} {word}" for word, count in counts.items())
    done = sum(item.state is TaskState.DONE for item in items)
    return f"{done:,} of {counted(len(items), 'item')} done{others}"


def task_counts(result: RunResult) -> str:
    """The number of tasks in each state, in words."""
    tasks = list(result.tasks.values())
    in_part, done = sum(bool(task.gaps) for task in tasks), state_words(TaskState.DONE)
    return (
        ", ".join(
            f"{count} {word}{_of_those(in_part) if word == done else ''}"
            for word, count in _state_counts(tasks, result).items()
        )
        or "none"
    )


def _state_counts(tasks: Iterable[TaskResult], result: RunResult) -> Counter[str]:
    """The number of tasks in each state, in the order of `TaskState`."""
    told, order = told_states(result), list(TaskState)
    return Counter(told(task) for task in sorted(tasks, key=lambda task: order.index(task.state)))


def _of_those(in_part: int) -> str:
    return f" ({in_part} in part)" if in_part else ""
