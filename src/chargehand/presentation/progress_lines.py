"""A run as lines on stderr: what changed, when; and at its end, what it came to."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from msgspec import Struct, field

from chargehand.decisions.display_names import asker_name, state_words, system_task_words, task_name
from chargehand.decisions.report import LEAST_SPEEDUP, is_idle_worth_telling
from chargehand.decisions.rule_answer import IN_PART
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskState
from chargehand.facts import events
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Event
from chargehand.facts.outcome import Cancelled, Done, Failed, NeedsInput
from chargehand.facts.plan import Task, each_words, item_of
from chargehand.presentation.plain_text import clock_words, counted, money_words, one_line
from chargehand.presentation.run_status import INTERRUPTED
from chargehand.result import RunResult, TaskResult

#: tasks of a plan that are listed when it is adopted
LONGEST_TABLE = 50
#: items of one task that are said to have failed, one line each; the bar counts all of them
MOST_FAILURES = 3
#: characters of a bar, and lines that show it
BAR = 10
#: characters before what a line of a summary says
LABEL = 10
#: the state of a task whose question was answered, and that has not gone on yet
ANSWERED = "answered"


class FoldedItems(Struct):
    """Items of one task to which the same has happened: the first is told, then how many there are, ever more rarely."""

    items: set[str] = field(default_factory=set)
    #: how many there are when they are told next
    next: int = 3

    def add(self, item: str) -> int:
        """How many there are now, if that is to be told; else 0."""
        self.items.add(item)
        count = len(self.items)
        if count < self.next:
            return 1 if count == 1 else 0
        self.next = count * 10 // 3
        return count


class ItemCount(Struct):
    """How far a task with `for_each` is."""

    #: 0: not known, as they were listed before there was anything to hear
    total: int = 0
    done: int = 0
    failed: int = 0
    #: of the bar, when it was shown last
    shown: int = 0
    began_at: datetime | None = None
    #: by item that has begun and not ended: what it does or waits for; and how many are in each state
    open: dict[str, TaskState] = {}
    states: dict[TaskState, int] = {}
    #: by item: its last failure, before it is known what becomes of it
    failures: dict[str, Failed] = {}
    #: by what happened to items and why: those that go on afterwards
    folded: dict[str, FoldedItems] = {}
    #: why an item failed last
    reason: str = ""

    @property
    def filled(self) -> int:
        """How much of the bar is full."""
        return BAR * (self.done + self.failed) // self.total if self.total else 0

    @property
    def state(self) -> TaskState:
        """What the items do or wait for, taken together."""
        told = (TaskState.RUNNING, TaskState.RETRYING, TaskState.ASKING)
        return next((state for state in told if self.states.get(state)), TaskState.READY)

    def move(self, item: str, state: TaskState) -> None:
        """Note what has become of an item."""
        before = self.open.pop(item, None)
        if before is not None:
            self.states[before] -= 1
        if not state.is_settled:
            self.open[item] = state
            self.states[state] = self.states.get(state, 0) + 1

    @property
    def words(self) -> str:
        """The same without a bar."""
        failed = f", {self.failed:,} failed" if self.failed else ""
        if again := self.states.get(TaskState.RETRYING):
            failed += f", {again:,} {state_words(TaskState.RETRYING)}"
        return f"{self.done:,} of {counted(self.total, 'item')} done{failed}"

    def __str__(self) -> str:
        bar = "█" * self.filled + "░" * (BAR - self.filled)
        return f"{bar} {self.words}"


class ProgressLines:
    """Says every change of a run in one time-stamped line, without escapes."""

    def __init__(
        self, say: Callable[[str], None], where: str = "", *, verbose: bool = False
    ) -> None:
        self._say = say
        self._verbose = verbose
        #: the path of a nested supervisor, before each of its lines
        self._where = where
        self._tasks: dict[str, Task] = {}
        self._began: dict[str, datetime] = {}
        self._done = 0
        self._items: dict[str, ItemCount] = {}
        self._is_cancelled = False
        #: an attempt that failed and its lines, before the next event says what becomes of its task
        self._failed: tuple[events.AttemptFinished, list[str]] | None = None

    def catch_up(self, result: RunResult) -> None:
        """Know of what happened before there was anything to hear."""
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
        """What is to be said now, each with the event that it is about.

        An attempt that failed is told together with the next event, which says what becomes of its task: if that
        is given up, one line is enough.
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
        """A task that is given up because of this attempt, which has these lines of its own."""
        if is_system_task(event.task) or not str(event.cause).startswith(str(attempt.outcome)):
            return [*lines, *filter(None, [_other_words(event)])]
        after = ""  # of several attempts, the cause says how many
        if attempt.attempt == 1:
            length = attempt.at - self._began.get(event.task, attempt.at)
            after = f" after {shown_length(length)}"
        return [f"gave up on {event.task}{after}: {_cause_of(event)}", *lines[1:]]

    def _words(self, event: Event) -> list[str]:
        """What this event means to a reader, in lines."""
        task = getattr(event, "task", "")  # of `TaskAdded` the task itself
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
        """One line for a tenth of the items, not one for each; failures and questions come in words."""
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
        """An item failed, was lost or waits for its provider, and goes on later: one line for the first, then counts."""
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
        stack = failed.stack.rstrip().splitlines() if self._verbose else []
        return [f"    {line}" for line in stack]

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
            return []  # all that is left is to put the results together
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
                return [f"{name} {in_part_words(gaps) or 'done'} in {length}{progress}"]
            case Failed() as failed:
                first = f"{name} failed after {length}: {one_line(str(failed), 200)}"
                return [first, *self._stack_lines(failed)]
            case NeedsInput(question=question):
                return [f"{asker_name(event.task)} asks: {one_line(question.text, 200)}"]
            case Cancelled():
                return [f"{name} was stopped after {length}"]


def in_part_words(gaps: Sequence[str]) -> str:
    """That a task is done in part, and what is missing first; empty if nothing is."""
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
            return f"nobody answered the question of {asker_name(event.task)} in time"
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
            return f"cancelled by {event.by or 'somebody'}" + _because(event.reason)
        case events.WorkStopped():
            return (
                f"the work is stopped{_because(event.reason)}; the answer uses the results so far"
            )
        case events.RunPaused():
            whose = f" by {event.by}" if event.by else ""
            return f"paused{whose}{_because(event.reason)}"
        case events.RunUnpaused():
            return f"continued by {event.by or 'somebody'}"
        case events.RunSteered():
            return f"steered by {event.by or 'somebody'}: {one_line(event.note, 200)}"
        case events.RunReleased():
            return "nothing more is started here"
        case events.RunFinished():
            is_telling = event.reason != event.status.value
            return event.status.value + (_because(event.reason) if is_telling else "")
        case _:
            return ""  # steps and leases: the trace has them


def _cause_of(event: events.TaskFailed) -> str:
    return one_line(str(event.cause), 200)


def _because(reason: str) -> str:
    return f": {one_line(reason, 200)}" if reason else ""


def _line_of(task: Task) -> str:
    after = f", after {', '.join(need.task for need in task.all_needs)}" if task.needs else ""
    each = f", {words}" if (words := each_words(task)) else ""
    who = task.worker or task.skill
    return f"{task.id} for {who}{each}{after}: {one_line(task.description, 120)}"


def summary(result: RunResult, next_command: str) -> list[str]:
    """Six lines on what a run came to, and what to try next."""
    usage = result.usage
    tokens = usage.tokens_in + usage.tokens_out
    path = result.trace.critical_path
    faster, waited = gain_words(result), waited_words(result)
    return [
        f"status    {', '.join(filter(None, (result.status.value, f'run {result.id}', sureness(result))))}",
        f"time      {shown_length(result.wall)}{waited}{faster}",
        f"tasks     {task_counts(result)}",
        f"waited on {one_line(' → '.join(each for each in path if not is_system_task(each)), 160) or '–'}",
        f"spent     {counted(usage.calls, 'call')}, {tokens:,} tokens, {money_words(usage.money)}",
        f"next      {next_command}",
    ]


def sureness(result: RunResult) -> str:
    """The confidence of the answer; empty if nothing was done."""
    if not any(task.state is TaskState.DONE for task in result.tasks.values()):
        return ""
    return f"confidence {result.answer.confidence:.2g}"


def gain_of(result: RunResult) -> float | None:
    """The speed-up; None of a run in which nothing was done."""
    is_any_done = any(task.state is TaskState.DONE for task in result.tasks.values())
    return round(result.speedup, 3) if is_any_done and result.speedup >= 0.05 else None


def told_gain(result: RunResult) -> float | None:
    """The speed-up where it says something; None below 1, and for a single task, unless a supervisor below led it faster."""
    pieces = sum(max(len(task.items), 1) for task in result.tasks.values())
    gain = gain_of(result)
    if gain is None or gain < LEAST_SPEEDUP or (pieces < 2 and gain < 1.05):
        return None
    return gain


def gain_words(result: RunResult) -> str:
    """The speed-up in words; empty where it says nothing."""
    gain = told_gain(result)
    return "" if gain is None else f", {gain:.1f} times as fast as one task after another"


def waited_words(result: RunResult) -> str:
    """How much of the time nothing could run (a question, a pause, no process), which the speed-up leaves out; empty if that is next to nothing."""
    idle = result.trace.idle
    is_told = is_idle_worth_telling(idle, result.wall)
    return f", of which {shown_length(idle)} idle" if is_told else ""


def told_states(result: RunResult) -> Callable[[TaskResult], str]:
    """Tells the state of each task as people read it: no task runs where no process leads the run."""
    is_interrupted, answered = result.is_interrupted, result.answered

    def told(task: TaskResult) -> str:
        if task.state is TaskState.RUNNING and is_interrupted:
            return INTERRUPTED
        if task.question is not None and task.question.id in answered:
            return ANSWERED
        return state_words(task.state)

    return told


def item_counts(task: TaskResult, result: RunResult) -> str:
    """How far a task with `for_each` is, in words; empty unless its items are under way."""
    items = [] if task.state.is_settled else task.items
    if not items:
        return ""
    named = (TaskState.FAILED, TaskState.RUNNING, TaskState.RETRYING, TaskState.ASKING)
    counts = _state_counts([item for item in items if item.state in named], result)
    others = "".join(f", {count:,} {word}" for word, count in counts.items())
    done = sum(item.state is TaskState.DONE for item in items)
    return f"{done:,} of {counted(len(items), 'item')} done{others}"


def task_counts(result: RunResult) -> str:
    """How many tasks are in which state, in words."""
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
    """How many tasks are in which state, in the order of the states."""
    told, order = told_states(result), list(TaskState)
    return Counter(told(task) for task in sorted(tasks, key=lambda task: order.index(task.state)))


def _of_those(in_part: int) -> str:
    return f" ({in_part} in part)" if in_part else ""
