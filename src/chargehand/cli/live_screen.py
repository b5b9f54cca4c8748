"""The live view of a run: painted at the bottom of the terminal, with finished tasks above; reads single keys."""

import asyncio
import codecs
import contextlib
import os
import re
import signal
import sys
import termios
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from chargehand.cli import output
from chargehand.cli.ask_person import drop_lines
from chargehand.cli.colours import Colours
from chargehand.cli.suggested_commands import with_journal
from chargehand.cli.terminal_region import TerminalRegion
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_and_state_words import counted
from chargehand.decisions.task_graph import TaskState
from chargehand.facts import events
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Event
from chargehand.facts.outcome import Done, Failed, NeedsInput, Question, QuestionId
from chargehand.presentation.display_text import cell_width, clean, cut_to, one_line
from chargehand.presentation.live_frame import (
    MARK_IN_PART,
    MARKS,
    Line,
    LiveFrame,
    OpenQuestion,
    StyledText,
    line_text,
    wrapped_line,
)
from chargehand.presentation.live_state import LiveState
from chargehand.presentation.nested_paths import NestedPath
from chargehand.presentation.progress_lines import ProgressLines, in_part_words
from chargehand.presentation.questions_and_typed_answers import evidence_lines
from chargehand.result import RunResult
from chargehand.roles.plan_approval import ABOUT_PLAN
from chargehand.terminal_detection import is_terminal

#: seconds between two repaints: at least, and while nothing happens (the clocks still advance)
PAUSE, TICK = 0.25, 1.0
#: most lines written at once, for finished tasks and for everything else; one line counts the rest
MOST_AT_ONCE = 40
#: most characters of a task's output that are shown
PREVIEW = 80

#: seconds for which keys are dropped after a question closed while a person was typing its answer
DEAF = 1.0
#: shows or hides the plan, even while an answer is being typed
PLAN_KEY = "\t"

#: events that the view itself shows, so they get no line
_UNSAID = (
    *(events.RunRequested, events.PlanAdopted, events.TaskAdded, events.PlanSealed),
    *(events.AttemptStarted, events.ProgressNoted, events.RunFinished),
)
_ICONS: dict[type[Any], tuple[str, str]] = {
    events.TaskFailed: MARKS[TaskState.FAILED][:2],
    events.TaskSkipped: MARKS[TaskState.SKIPPED][:2],
    events.AttemptFinished: MARKS[TaskState.RETRYING][:2],
    events.RetryPlanned: MARKS[TaskState.RETRYING][:2],
    events.AttemptLost: MARKS[TaskState.RETRYING][:2],
    events.PersonAsked: MARKS[TaskState.ASKING][:2],
}
#: a key: one character, or an escape sequence
_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?|.", re.DOTALL)
#: keys that scroll a long question: arrows by a row, Page Up and Page Down by a page
_SCROLL_KEYS = {
    **dict.fromkeys(("\x1b[A", "\x1bOA"), (-1, False)),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), (1, False)),
    "\x1b[5~": (-1, True),
    "\x1b[6~": (1, True),
}


class _DoneTask(NamedTuple):
    """A finished task, and how long it took."""

    length: str
    event: events.AttemptFinished
    state: LiveState

    def line(self, columns: int) -> Line:
        task = self.state.tasks.get(self.event.task)
        name = f"{self.state.where}{one_line(self.event.task, 60)}"
        facts = f"  {one_line('' if task is None else task.worker, 30)}  {self.length}"
        room = max(columns - cell_width(name) - cell_width(facts) - 5, 0)
        outcome = self.event.outcome
        in_part = in_part_words(outcome.gaps) if isinstance(outcome, Done) else ""
        preview = cut_to(in_part or _preview(self.event), room)
        icon, style = MARK_IN_PART if in_part else MARKS[TaskState.DONE][:2]
        return (
            StyledText(f"{icon} ", style),
            StyledText(name),
            StyledText(facts, "dim"),
            StyledText(f"  {preview}" if preview else "", "dim"),
        )


class LiveScreen:
    """Shows a run while it is in progress, and reads keys and answers."""

    def __init__(self, *, verbose: bool = False) -> None:
        self._region = TerminalRegion(sys.stderr)
        self._colours = Colours(sys.stderr)
        self._state = LiveState()
        self._below: dict[str, LiveState] = {}
        self._words = ProgressLines(lambda _: None, verbose=verbose)
        self._words_below: dict[str, ProgressLines] = {}
        #: to be written above the view, in order: finished tasks, and lines for everything else
        self._untold: list[_DoneTask | Line] = []
        self._dirty = asyncio.Event()
        self._is_open = True
        #: whether this process is in the background, so that another program owns the terminal
        self._is_away = False
        #: chosen by the person; None: shown if there is room
        self._shows_plan: bool | None = None
        self._asked: OpenQuestion | None = None
        #: keys typed before this time (monotonic clock) are not meant for the current question
        self._deaf_until = 0.0
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        #: whether this process leads the run, so that Ctrl-C stops it
        self.leads = True
        #: how often Ctrl-C was pressed
        self._stops = 0
        #: whether a model can answer instead of the person
        self.has_model = False
        #: called for a key while no question is open
        self.on_key: Callable[[str], None] = lambda _: None
        output.above = self.above

    # events

    def hear(self, event: Event) -> None:
        self._hear(self._state, self._words, event)

    def hear_below(self, where: NestedPath, run: str, event: Event) -> None:
        """Show an event of a nested run."""
        state = self._below.get(run)
        if state is None:
            state = self._below[run] = LiveState(where)
            self._words_below[run] = ProgressLines(lambda _: None, where.whole)
        self._state.hear_below(run, event)
        self._hear(state, self._words_below[run], event)

    def catch_up(self, result: RunResult) -> None:
        self._state.catch_up(result)
        self._words.catch_up(result)

    def _hear(self, state: LiveState, lines: ProgressLines, event: Event) -> None:
        for about, words in lines.lines_of(event):
            if isinstance(about, _UNSAID) or _is_done(about) or _is_about_duty(about):
                continue
            icon, style = _icon_of(about)
            self._untold += [
                (StyledText(f"{icon} ", style), StyledText(f"{state.where}{clean(each)}"))
                for each in words
            ]
        if isinstance(event, events.AttemptFinished) and isinstance(event.outcome, Done):
            task = state.tasks.get(event.task)
            began = None if task is None else task.began_at
            if task is not None:
                length = "" if began is None else shown_length(event.at - began)
                self._untold.append(_DoneTask(length, event, state))
        state.hear(event)
        self._dirty.set()

    def stop(self, times: int) -> None:
        """Show that this process is stopping the run, or cancels it, after so many Ctrl-C."""
        self._stops = times
        self._state.is_stopping = True
        self._dirty.set()

    # painting

    async def run(self) -> None:
        """Repaint after each change, at most four times a second, until cancelled."""
        with self._reading_keys():
            while self._is_open:
                await asyncio.sleep(PAUSE)
                self.paint()
                self._dirty.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._dirty.wait(), TICK - PAUSE)

    def paint(self) -> None:
        if not self._is_open:
            return
        self._flush()
        if not self._state.run or not self._has_terminal():
            return
        lines = self._frame().lines()
        self._region.paint(self._colours.all_rendered(lines), list(map(line_text, lines)))

    def _frame(self) -> LiveFrame:
        columns, rows = self._region.size
        return LiveFrame(
            state=self._state,
            below=[below for below in self._below.values() if below.status is None],
            now=datetime.now(UTC),
            columns=columns,
            rows=rows,
            asked=self._asked,
            keys=self._key_words(),
            shows_plan=self._shows_plan,
        )

    def _key_words(self) -> str:
        """The last line: what the keys do."""
        if self._stops and self._asked is None:
            return "Ctrl-C again cancels the run" if self._stops == 1 else "cancelling the run"
        if self._asked is None:
            ctrl_c = "stops, twice cancels" if self.leads else "leaves; the run continues"
            return f"p {'continue' if self._state.is_paused else 'pause'} · Ctrl-C {ctrl_c}"
        can_delegate = self.has_model and self._asked.question.about == "plain"
        stops = "cancels" if self._stops else "stops"
        delegate = "s supervisor · " if can_delegate else ""
        return f"Enter answers · e editor · {delegate}Ctrl-C {stops if self.leads else 'leaves'}"

    def above(self, text: str) -> None:
        """Write other text above the view."""
        self._flush()
        self._region.above(text)

    def close(self) -> None:
        """Write all pending lines and remove the view from the terminal."""
        if not self._is_open:
            return
        self._flush()
        self._is_open = False
        self._region.clear()
        output.above = None

    def _flush(self) -> None:
        """Write all pending lines at once."""
        untold, self._untold = self._untold, []
        done = [each for each in untold if isinstance(each, _DoneTask)]
        columns, left = self._region.size[0], MOST_AT_ONCE
        lines: list[Line] = []
        for each in untold:
            if not isinstance(each, _DoneTask):
                lines += wrapped_line(each, columns) if left > 0 else []
                left -= 1
            elif len(done) <= MOST_AT_ONCE:
                lines.append(each.line(columns))
        if left < 0:
            words = with_journal(
                f"· {-left:,} more lines; to see all: chargehand trace {self._state.run or 'last'}"
            )
            lines.append((StyledText(words, "dim"),))
        if len(done) > MOST_AT_ONCE:
            names = ", ".join(one_line(each.event.task, 40) for each in done[:3])
            words = f"{counted(len(done), 'task')} done: {names} …"
            lines.append((StyledText("✓ ", "done"), StyledText(words)))
        if lines:
            self._region.above("\n".join(self._colours.all_rendered(lines)))

    # questions: the interface `Prompt`

    def show(self, question: Question, others: int = 0) -> None:
        """Show a question in the view until `hide`."""
        task = next((t for t, q in self._state.questions.values() if q.id == question.id), "")
        task = task or QuestionId.read(question.id).task
        is_sudden = time.monotonic() < self._deaf_until
        objection = "another question was answered elsewhere; what you typed for it was dropped"
        self._asked = OpenQuestion(
            question=question, task=task, others=others, objection=objection if is_sudden else ""
        )
        if question.about == ABOUT_PLAN:
            self.above("\n".join(evidence_lines(question)) + "\n")
        self.paint()

    def object(self, words: str) -> None:
        """Say why the typed text is not a valid answer."""
        if self._asked is not None:
            self._asked.objection = words
            self.paint()

    def hide(self) -> None:
        was, self._asked = self._asked, None
        # If it closed while its answer was being typed, the next keys were meant for it too.
        self._deaf_until = time.monotonic() + DEAF if was is not None and was.typed else 0.0
        # Lines typed too late were meant for this question, not for the next one.
        drop_lines(self._lines)
        self._dirty.set()

    async def line(self) -> str | None:
        """The next line typed while a question is shown; None at the end of the input."""
        return await self._lines.get()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        yield  # `run` reads the keys

    async def edited(self, text: str, edit: Callable[[str], Awaitable[str]]) -> str:
        """Edit a text with `edit`; the view is hidden meanwhile."""
        self._region.clear()
        was_open, self._is_open, output.above = self._is_open, False, None
        with self._keys_left_alone():
            try:
                return await edit(text)
            finally:
                self._is_open, output.above = was_open, self.above

    # keys

    @contextlib.contextmanager
    def _reading_keys(self) -> Iterator[None]:
        """Read single keys without echo, while this process is in the foreground."""
        if not is_terminal(sys.stdin):
            yield
            return
        fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        self._usual = termios.tcgetattr(fd)
        self._take_keys()
        loop.add_reader(fd, self._read)
        self._heed_suspension()
        try:
            yield
        finally:
            self._heed_no_suspension()
            loop.remove_reader(fd)
            with contextlib.suppress(termios.error):  # the terminal was closed
                termios.tcsetattr(fd, termios.TCSADRAIN, self._usual)

    def _heed_suspension(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)  # Ctrl-Z
        loop.add_signal_handler(signal.SIGCONT, self._go_on)  # `fg`, or `bg`

    def _heed_no_suspension(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGTSTP)
        loop.remove_signal_handler(signal.SIGCONT)

    def _suspend(self) -> None:
        """Restore the terminal for the shell, and stop this process until it is continued."""
        self._region.clear()
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._usual)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        self._heed_suspension()
        self._take_keys()  # if no shell controls the process, it was not stopped

    def _go_on(self) -> None:
        self._region.forget()  # the shell has written below the view meanwhile
        self._take_keys()

    def _has_terminal(self) -> bool:
        """Whether to paint. After a return from the background, the view starts afresh."""
        was_away, self._is_away = self._is_away, not self._is_in_foreground()
        if was_away and not self._is_away:
            self._go_on()  # `fg` after `bg` sends no signal to a running process
        return not self._is_away

    def _is_in_foreground(self) -> bool:
        """Whether this process may paint the terminal: not after `bg`, when the shell uses it."""
        try:
            return not is_terminal(sys.stdin) or os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
        except OSError:
            return True  # the terminal is gone, which the region detects itself

    def _take_keys(self) -> None:
        fd = sys.stdin.fileno()
        if not self._is_in_foreground():
            return  # changing the terminal from the background would stop this process
        ours = termios.tcgetattr(fd)
        ours[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(fd, termios.TCSADRAIN, ours)
        self._dirty.set()

    @contextlib.contextmanager
    def _keys_left_alone(self) -> Iterator[None]:
        fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        loop.remove_reader(fd)
        self._heed_no_suspension()  # the editor handles it
        termios.tcsetattr(fd, termios.TCSADRAIN, self._usual)
        try:
            yield
        finally:
            self._heed_suspension()
            self._take_keys()
            loop.add_reader(fd, self._read)

    def _read(self) -> None:
        if not self._is_in_foreground():
            return  # the keys are for the shell, and reading them would stop this process
        data = os.read(sys.stdin.fileno(), 4096)
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._lines.put_nowait(None)
            return
        for key in _KEY.findall(self._decoder.decode(data)):
            if key in _SCROLL_KEYS:
                self._scroll(*_SCROLL_KEYS[key])
            elif not key.startswith("\x1b"):
                self._press(key)
        self.paint()

    def _scroll(self, by: int, is_page: bool) -> None:
        if self._asked is not None:
            self._asked.scrolled = self._frame().scrolled(by, pages=is_page)

    def _press(self, key: str) -> None:
        asked = self._asked
        if key == PLAN_KEY or (asked is None and key == "t"):
            self._shows_plan = not self._frame().has_plan
            return
        if asked is None:
            self.on_key(key)
            return
        if time.monotonic() < self._deaf_until:
            return
        match key:
            case "\r" | "\n":
                line, asked.typed, asked.objection = asked.typed.strip(), "", ""
                self._lines.put_nowait(line)
            case "\x7f" | "\x08":
                asked.typed = asked.typed[:-1]
            case "\x15":
                asked.typed = ""
            case "\x17":
                asked.typed = asked.typed.rstrip().rpartition(" ")[0]
            case "\x04" if not asked.typed:
                self._lines.put_nowait(None)
            case _ if key.isprintable():
                asked.typed += key
            case _:
                pass


def _icon_of(event: Event) -> tuple[str, str]:
    if isinstance(event, events.AttemptFinished) and isinstance(event.outcome, NeedsInput):
        return MARKS[TaskState.ASKING][:2]
    return _ICONS.get(type(event), ("·", "dim"))


def _is_done(event: Event) -> bool:
    return isinstance(event, events.AttemptFinished) and isinstance(event.outcome, Done)


def _is_about_duty(event: Event) -> bool:
    """Whether an event of a system task needs no line: the view shows the task while it runs. Failures get a line."""
    task = getattr(event, "task", "")
    is_failure = isinstance(event, events.TaskFailed) or (
        isinstance(event, events.AttemptFinished) and isinstance(event.outcome, Failed)
    )
    return isinstance(task, str) and is_system_task(task) and not is_failure


def _preview(event: events.AttemptFinished) -> str:
    """The beginning of a task's output."""
    outcome = event.outcome
    if not isinstance(outcome, Done) or outcome.value.blob or len(outcome.value.json) > 4096:
        return ""
    said = outcome.value.read()
    words = said if isinstance(said, str) else bytes(outcome.value.json).decode()
    return "" if said is None else one_line(words, PREVIEW)
