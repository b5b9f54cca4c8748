"""A run as lines on stderr: what changed, when; and at its end, what it came to."""

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from chargehand.decisions.report import LEAST_SPEEDUP, is_idle_worth_telling
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.task_names import asker_name, system_task_words, task_name
from chargehand.facts import events
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Event
from chargehand.facts.outcome import Cancelled, Done, Failed, NeedsInput
from chargehand.facts.plan import Task, each_words, item_of
from chargehand.presentation.plain_text import clock_words, counted, money_words, one_line
from chargehand.result import RunResult, TaskResult

#: tasks of a plan that are listed when it is adopted
LONGEST_TABLE = 50
#: items of one task that are said to have failed, one line each; the bar counts all of them
MOST_FAILURES = 3
#: characters of a bar, and lines that show it
BAR = 10
#: characters before what a line of a summary says
LABEL = 10

#: states whose own names say too little
_STATE_WORDS = {
    TaskState.RETRYING: "to be tried again",
    TaskState.ASKING: "waiting for an answer",
}


class ItemCount(Struct):
    """How far a task with `for_each` is."""

    #: 0: not known, as they were listed before there was anything to hear
    total: int = 0
    done: int = 0
    failed: int = 0
    running: int = 0
    #: of the bar, when it was shown last
    shown: int = 0
    began_at: datetime | None = None

    @property
    def filled(self) -> int:
        """How much of the bar is full."""
        return BAR * (self.done + self.failed) // self.total if self.total else 0

    def __str__(self) -> str:
        failed = f", {self.failed:,} failed" if self.failed else ""
        bar = "█" * self.filled + "░" * (BAR - self.filled)
        return f"{bar} {self.done:,} of {counted(self.total, 'item')} done{failed}"


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
        for words in self.words(event):
            self._say(f"{clock_words(event.at)}  {self._where}{words}")

    def words(self, event: Event) -> list[str]:
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
            case events.TaskFailed():
                count.failed += 1
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

    def _planned(self, tasks: list[Task]) -> list[str]:
        self._tasks |= {task.id: task for task in tasks}
        shown = tasks if len(tasks) <= LONGEST_TABLE else []
        lines = [f"planned {_line_of(task)}" for task in shown]
        return lines or [f"planned {counted(len(tasks), 'task')}"]

    def _amended(self, event: events.PlanAmended) -> list[str]:
        gone = f"; {', '.join(event.removed)} taken out" if event.removed else ""
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
            case Done():
                self._done += 1
                progress = f" ({self._done} of {len(self._tasks)})" if name in self._tasks else ""
                return [f"{name} done in {length}{progress}"]
            case Failed() as failed:
                stack = failed.stack.rstrip().splitlines() if self._verbose else []
                first = f"{name} failed after {length}: {one_line(str(failed), 200)}"
                return [first, *(f"    {line}" for line in stack)]
            case NeedsInput(question=question):
                return [f"{asker_name(event.task)} asks: {one_line(question.text, 200)}"]
            case Cancelled():
                return [f"{name} was stopped after {length}"]


def _other_words(event: Event) -> str:
    match event:
        case events.TaskRewritten():
            return f"{event.task} is rewritten: {one_line(event.description, 160)}"
        case events.AttemptLost():
            return f"{task_name(event.task)} was lost: {one_line(event.reason, 160)}"
        case events.AttemptPreempted():
            return f"{task_name(event.task)} stopped for now, and goes on from there later"
        case events.AttemptParked():
            wait = shown_length(event.due_at - event.at)
            return f"{task_name(event.task)} goes on in {wait}: {one_line(event.why, 160)}"
        case events.RetryPlanned() if not is_system_task(event.task):
            wait = shown_length(event.due_at - event.at)
            by = f" by {event.worker}" if event.worker else ""
            return f"{event.task} is tried again{by} in {wait}"
        case events.PersonAsked():
            return f"{asker_name(event.task)} asks: {one_line(event.question.text, 200)}"
        case events.TaskFailed() if not is_system_task(event.task):
            return f"{event.task} is given up: {one_line(str(event.cause), 200)}"
        case events.TaskSkipped() if not is_system_task(event.task):
            return f"{event.task} is skipped: {one_line(event.why, 160)}"
        case events.DeadlinePassed():
            return (
                f"the time of {task_name(event.task)} is over" if event.task else "the time is over"
            )
        case events.StartMissed() if not is_system_task(event.task):
            return f"{event.task} is not started: it could not be done in time any more"
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
        case events.CancelRequested():
            return f"cancelled by {event.by or 'somebody'}" + _because(event.reason)
        case events.WorkStopped():
            return (
                f"the work is stopped{_because(event.reason)}; the answer is made of what there is"
            )
        case events.RunPaused():
            whose = f" by {event.by}" if event.by else ""
            return f"paused{whose}{_because(event.reason)}"
        case events.RunUnpaused():
            return f"{event.by or 'somebody'} lets it go on"
        case events.RunSteered():
            return f"{event.by or 'somebody'} wants: {one_line(event.note, 200)}"
        case events.RunReleased():
            return "nothing more is started here"
        case events.RunFinished():
            is_telling = event.reason != event.status.value
            return event.status.value + (_because(event.reason) if is_telling else "")
        case _:
            return ""  # steps and leases: the trace has them


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
        f"status    {result.status.value}, run {result.id}{_sureness(result)}",
        f"time      {shown_length(result.wall)}{waited}{faster}",
        f"tasks     {task_counts(result)}",
        f"waited on {one_line(' → '.join(each for each in path if not is_system_task(each)), 160) or '–'}",
        f"spent     {counted(usage.calls, 'call')}, {tokens:,} tokens, {money_words(usage.money)}",
        f"next      {next_command}",
    ]


def _sureness(result: RunResult) -> str:
    """How sure the answer is, and what in it rests on no task."""
    if not any(task.state is TaskState.DONE for task in result.tasks.values()):
        return ""
    answer = result.answer
    bare = sum(not claim.tasks for claim in answer.claims)
    told = f"; {counted(bare, 'claim')} without a basis" if bare else ""
    return f", confidence {answer.confidence:.2g}{told}"


def gain_of(result: RunResult) -> float | None:
    """The speed-up; None of a run in which nothing was done."""
    is_any_done = any(task.state is TaskState.DONE for task in result.tasks.values())
    return round(result.speedup, 3) if is_any_done and result.speedup >= 0.05 else None


def gain_words(result: RunResult) -> str:
    """The speed-up in words; empty below 1, and for a single task, unless a supervisor below led it faster."""
    pieces = sum(max(len(task.items), 1) for task in result.tasks.values())
    gain = gain_of(result)
    if gain is None or gain < LEAST_SPEEDUP or (pieces < 2 and gain < 1.05):
        return ""
    return f", {gain:.1f} times as fast as one task after another"


def waited_words(result: RunResult) -> str:
    """How much of the time nothing could run (a question, a pause, no process), which the speed-up leaves out; empty if that is next to nothing."""
    idle = result.trace.idle
    is_told = is_idle_worth_telling(idle, result.wall)
    return f", of which {shown_length(idle)} idle" if is_told else ""


def item_counts(task: TaskResult) -> str:
    """How far a task with `for_each` is, in words; empty unless its items are under way."""
    states = [] if task.state.is_settled else [item.state for item in task.items]
    if not states:
        return ""
    counts = [(states.count(state), state.value) for state in (TaskState.RUNNING, TaskState.FAILED)]
    others = "".join(f", {count:,} {word}" for count, word in counts if count)
    return f"{states.count(TaskState.DONE):,} of {counted(len(states), 'item')} done{others}"


def task_counts(result: RunResult) -> str:
    """How many tasks are in which state, in words."""
    states = [shown_state(task) for task in result.tasks.values()]
    counts = [(states.count(state), state_words(state)) for state in TaskState]
    return ", ".join(f"{count} {word}" for count, word in counts if count) or "none"


def state_words(state: TaskState) -> str:
    """The state of a task as people read it."""
    return _STATE_WORDS.get(state, state.value)


def shown_state(task: TaskResult) -> TaskState:
    """The state of a task; of one with `for_each` that is under way, what its items do or wait for."""
    items = set() if task.state.is_settled else {item.state for item in task.items}
    told = (TaskState.RUNNING, TaskState.RETRYING, TaskState.ASKING)
    return next((state for state in told if state in items), task.state)
