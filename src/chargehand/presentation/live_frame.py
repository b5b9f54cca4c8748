"""The live view of a run: a pure function from its state to the lines of a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from chargehand.decisions.task_and_state_words import (
    SUPERVISOR,
    THE_RUN,
    asker_name,
    counted,
    system_task_words,
)
from chargehand.decisions.task_graph import TaskState
from chargehand.facts.durations import shown_length
from chargehand.facts.events import RunStatus
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import Question
from chargehand.presentation.display_text import cell_width, clean, cut_to, money_words, one_line
from chargehand.presentation.live_state import LiveState, LiveTask
from chargehand.presentation.nested_paths import NestedPath
from chargehand.presentation.questions_and_typed_answers import (
    ABOUT_APPROVAL,
    asked_text,
    choice_lines,
    evidence_lines,
)
from chargehand.presentation.word_wrap import rows_of
from chargehand.roles.plan_approval import ABOUT_PLAN

#: with fewer rows, the plan is shown only on request
ROWS_FOR_PLAN = 28
#: rows that a question leaves for the plan
LEAST_PLAN = 3
#: with fewer rows or columns, only a bar, a question and a footer are shown
LEAST_ROWS, LEAST_COLUMNS = 14, 60
#: rows that the view may always take, even if the terminal is small
LEAST_HEIGHT = 10
#: least columns of the bar
LEAST_BAR = 10
#: most tasks of a phase that are shown by name
MOST_NAMED = 8

#: icon, style and word of each state, in the order of the bar
MARKS: dict[TaskState, tuple[str, str, str]] = {
    TaskState.DONE: ("✓", "done", "done"),
    TaskState.FAILED: ("✗", "failed", "failed"),
    TaskState.SKIPPED: ("–", "waiting", "skipped"),
    TaskState.CANCELLED: ("⊘", "waiting", "cancelled"),
    TaskState.RUNNING: ("◐", "running", "running"),
    TaskState.RETRYING: ("↻", "retrying", "to be tried again"),
    TaskState.ASKING: ("▲", "needs", "needs you"),
    TaskState.READY: ("○", "ready", "ready"),
    TaskState.WAITING: ("◌", "waiting", "waiting"),
}
#: icon and style of a task that is done in part
MARK_IN_PART = ("◧", "failed")
_BLOCKS = {
    TaskState.DONE: "▓",
    TaskState.FAILED: "✗",
    TaskState.SKIPPED: "–",
    TaskState.CANCELLED: "–",
    TaskState.RUNNING: "▒",
    TaskState.RETRYING: "↻",
    TaskState.ASKING: "▲",
    TaskState.READY: "░",
    TaskState.WAITING: "░",
}


class StyledText(NamedTuple):
    """Text without control characters, and the name of its style: a task state, ink, dim or bold."""

    text: str
    style: str = "ink"


Line: TypeAlias = "tuple[StyledText, ...]"
#: in front of each row of a question
_EDGE = StyledText("▌ ", "needs")
_Row: TypeAlias = "tuple[NestedPath, LiveTask | tuple[str, datetime]]"


class OpenQuestion(Struct, kw_only=True):
    """A question in the view, and the text typed so far."""

    question: Question
    task: str = ""
    typed: str = ""
    #: why the last line was not a valid answer
    objection: str = ""
    #: number of other open questions when it was shown
    others: int = 0
    #: number of rows scrolled out of sight above
    scrolled: int = 0


class QuestionPanel(NamedTuple):
    """The rows of a question, in the order of the fields. Only the body is scrolled."""

    head: list[Line]
    body: list[Line]
    #: always visible; if there are many choices, they are part of the body instead
    choices: list[Line]
    foot: list[Line]
    #: rows for the body
    room: int

    @property
    def shown(self) -> int:
        """Number of visible rows of the body. If not all fit, one more row counts the others."""
        return len(self.body) if len(self.body) <= self.room else max(self.room - 1, 0)


class LiveFrame(Struct, kw_only=True):
    """The input of the view (the run, its nested runs, the time, the terminal size), and the lines made from it."""

    state: LiveState
    below: Sequence[LiveState] = ()
    now: datetime
    columns: int = 80
    rows: int = 24
    asked: OpenQuestion | None = None
    keys: str = ""
    #: chosen by the person; None: the plan is shown if there is room
    shows_plan: bool | None = None

    @property
    def has_plan(self) -> bool:
        """Whether to show the plan, if there is one."""
        return self.rows >= ROWS_FOR_PLAN if self.shows_plan is None else self.shows_plan

    def lines(self) -> list[Line]:
        """The lines from top to bottom: no wider than the terminal, and fewer than its rows."""
        most = self.rows - 1
        top, bottom, left, kept = self._around()
        panel = [] if self.asked is None else self._panel_lines(self.asked, left - kept)
        if not self._is_whole:
            return [self._fitted(line) for line in [*top, *panel, *bottom][:most]]
        # Leave room for some finished tasks above the view.
        room = max(self.rows * 2 // 3, LEAST_HEIGHT) - len(top) - len(bottom) - len(panel)
        most_plan = max(room // 2, kept, (left - len(panel)) // 2 if self.shows_plan else 0)
        plan = list(self._plan(most_plan)) if self.has_plan else []
        workers = list(self._workers(min(room, left) - len(plan)))
        lines = [*top, *plan, *workers, *bottom[:-1], *panel, bottom[-1]]
        return [self._fitted(line) for line in lines[-most:]]

    def scrolled(self, by: int, *, pages: bool = False) -> int:
        """The new `OpenQuestion.scrolled` after scrolling by `by` rows or pages."""
        if self.asked is None:
            return 0
        _, _, left, kept = self._around()
        panel = self._panel(self.asked, left - kept)
        most = len(panel.body) - panel.shown
        now = min(self.asked.scrolled, most)
        return min(max(now + by * (max(panel.shown, 1) if pages else 1), 0), most)

    def _around(self) -> tuple[list[Line], list[Line], int, int]:
        """The lines at the top and bottom, the number of rows between them, and of these the rows kept for the plan."""
        most = self.rows - 1
        needs = list(self._needs()) if self.asked is None else []
        if not self._is_whole:
            top, bottom = [self._bar(), *needs], [self._footer()]
            return top, bottom, max(most - len(top) - len(bottom), 0), 0
        rule: Line = (StyledText("─" * self.columns, "waiting"),)
        top = [rule, self._header(), self._bar(), *needs]
        bottom = [*self._path(), *self._spent(), self._footer()]
        kept = min(LEAST_PLAN, len(self.state.phases())) if self.has_plan else 0
        return top, bottom, most - len(top) - len(bottom), kept

    # the parts

    def _header(self) -> Line:
        word, style = self._standing()
        right = f"{word}  {self.state.run}"
        room = self.columns - cell_width(right) - 3
        title = cut_to(one_line(self.state.request, 400) or "a run", max(room, 10))
        gap = " " * max(self.columns - cell_width(title) - cell_width(right) - 1, 2)
        run = StyledText(f"  {self.state.run}", "dim")
        return (StyledText(title, "bold"), StyledText(gap), StyledText(word, style), run)

    def _standing(self) -> tuple[str, str]:
        state = self.state
        if state.status is not None:
            is_good = state.status is RunStatus.SUCCEEDED
            return state.status.value, "done" if is_good else "failed"
        if any(question.about == ABOUT_BUDGET for _, question in state.questions.values()):
            return "needs you", "needs"  # it is paused only until this is answered
        if state.is_paused:
            return "paused", "needs"
        if state.is_stopping:
            return "stopping", "failed"
        if state.questions and not state.running and not state.duties:
            return "needs you", "needs"
        is_planning = not state.tasks and not state.is_planned
        return "planning" if is_planning else "running", "running"

    def _bar(self) -> Line:
        state = self.state
        total = len(state.tasks)
        time = shown_length(state.elapsed(self.now))
        if not total:
            proposed = self._proposed()
            style = "needs" if proposed else "dim"
            return (StyledText(proposed or "no plan yet", style), StyledText(f"  {time}", "dim"))
        parts = [StyledText(f"{state.counts[TaskState.DONE]:,} of {total:,} done", "ink")]
        for kind, (_, style, word) in MARKS.items():
            if kind is not TaskState.DONE and (count := state.counts[kind]):
                parts.append(StyledText(f"{count:,} {word}", style))
        # On a narrow terminal, the last parts, such as `waiting`, are dropped first.
        while len(parts) > 1 and self.columns - _taken(parts, time) < LEAST_BAR:
            parts.pop()
        words = [each for part in parts for each in (StyledText(" · ", "dim"), part)][1:]
        left = self.columns - _taken(parts, time)
        bar = _segments(state, max(min(left, self.columns // 2), LEAST_BAR))
        return (*bar, StyledText("  "), *words, StyledText(f"  {time}", "dim"))

    def _proposed(self) -> str:
        """The plan that waits for approval, in words; otherwise empty."""
        asked = [question for _, question in self.state.questions.values()]
        if self.asked is not None:
            asked = [self.asked.question, *asked]  # first, because its evidence is loaded
        plan = next((each for each in asked if each.about == ABOUT_PLAN), None)
        if plan is None:
            return ""
        evidence = None if plan.evidence.blob else plan.evidence.read()
        tasks = evidence["plan"]["tasks"] if isinstance(evidence, dict) else ()
        return (
            f"a plan of {counted(len(tasks), 'task')} to approve" if tasks else "a plan to approve"
        )

    def _needs(self) -> Iterator[Line]:
        if not self.state.questions and not any(below.questions for below in self.below):
            return
        asking = [
            (s, task, q) for s in (self.state, *self.below) for task, q in s.questions.values()
        ]
        state, task, question = asking[0]
        number = counted(len(asking), "question")
        behind = state.waiting_behind(task)
        tail = f"  {counted(behind, 'task')} behind it" if behind else ""
        words = f"▲ {number} {'needs' if len(asking) == 1 else 'need'} you: "
        room = self.columns - cell_width(words) - cell_width(tail) - 1
        yield (
            StyledText(words, "needs"),
            StyledText(cut_to(one_line(question.text, 300), max(room, 10)), "needs"),
            StyledText(tail, "dim"),
        )

    def _plan(self, most: int) -> Iterator[Line]:
        phases = list(self.state.phases().items())
        if not phases or most < 1:
            return
        shown = phases
        if len(phases) > most:
            open_ = (i for i, (_, tasks) in enumerate(phases) if not _is_over(tasks))
            first = min(max(next(open_, 0) - 1, 0), max(len(phases) - most + 1, 0))
            shown = phases[first : first + most - 1]
        room = len(str(phases[-1][0]))
        for number, tasks in shown:
            head = StyledText(f"  {number:>{room}}  ", "dim")
            yield (head, *_phase_parts(tasks))
        if len(shown) < len(phases):
            left = counted(len(phases) - len(shown), "phase")
            yield (StyledText(f"  {'':>{room}}  … {left} more", "dim"),)

    def _workers(self, most: int) -> Iterator[Line]:
        """One line per running attempt. Blank lines keep the height at its peak, so that the view does not jump."""
        states = (self.state, *self.below)
        rows: list[_Row] = [(s.where, duty) for s in states for duty in s.duties.items()]
        rows += [
            (s.where, task)
            for s in states
            for task in (*s.running.values(), *s.waiting_for_items())
        ]
        most = max(most, 1)
        shown = rows if len(rows) <= most else rows[: most - 1]
        cells = [self._worker_cells(row) for row in shown]
        widths = [
            min(max((cell_width(each[i]) for each in cells), default=0), self.columns // 4)
            for i in (0, 1)
        ]
        for row, (who, what, call, length) in zip(shown, cells, strict=True):
            left = f"  {_padded(who, widths[0])}  {_padded(what, widths[1])}  "
            room = max(self.columns - cell_width(left) - cell_width(length) - 5, 4)
            wanted = max(40, cell_width(call)) if _has_items(row) else 40
            yield (
                _mark_of(row),
                StyledText(left[1:]),
                StyledText(_padded(call, min(room, wanted)), "dim"),
                StyledText(f"  {length}", "dim"),
            )
        if len(shown) < len(rows):
            yield (StyledText(f"    … {len(rows) - len(shown):,} more running", "dim"),)
        if rows and self.asked is None:
            peak = self.state.peak + sum(below.peak for below in self.below)
            for _ in range(min(peak, most) - min(len(rows), most)):
                yield ()

    def _worker_cells(self, row: "_Row") -> tuple[str, str, str, str]:
        where, task = row
        if not isinstance(task, LiveTask):
            words = one_line(system_task_words(task[0]), 80)
            what = f"{one_line(where.tasks, 80)}{words}"
            return f"{where.supervisors}{SUPERVISOR}", what, "", self._since(task[1])
        again = f" (attempt {task.attempt})" if task.attempt > 1 else ""
        what = f"{one_line(f'{where.tasks}{task.id}', 80)}{again}"
        call, since = one_line(task.note, 120), task.began_at
        if task.items is not None and task.items.total:
            call = str(task.items)
            if task.state is TaskState.RETRYING:
                why = one_line(task.items.reason, 200)
                call = f"{task.items.words}: {why}" if why else task.items.words
        elif task.call is not None:
            call, since = one_line(str(task.call), 120), task.call.began_at
        return one_line(f"{where.supervisors}{task.worker}", 60), what, call, self._since(since)

    def _since(self, at: datetime | None) -> str:
        return "" if at is None else shown_length(max(self.now - at, timedelta()))

    def _path(self) -> Iterator[Line]:
        path = self.state.critical_path()
        if len(path) > 1:
            words = one_line(" → ".join(path), 400)
            room = self.columns - 17
            yield (StyledText("  critical path  ", "dim"), StyledText(cut_to(words, room), "bold"))

    def _spent(self) -> Iterator[Line]:
        usage, limits = self.state.usage, self.state.limits
        tokens = usage.tokens_in + usage.tokens_out
        parts = []
        if usage.calls or limits.calls is not None:
            parts.append(_of(counted(usage.calls, "call"), limits.calls, "{:,}"))
        if tokens or limits.tokens is not None:
            parts.append(_of(f"{tokens:,} tokens", limits.tokens, "{:,}"))
        if usage.money or limits.money is not None:
            parts.append(_of(money_words(usage.money), limits.money, "${:g}"))
        words = [f"spent {' · '.join(parts)}"] if parts else []
        if self.state.speedup.has_work:
            words.append(
                f"{self.state.speedup.at(self.state.ended_at or self.now):.1f} tasks at once on average"
            )
        if words:
            yield (StyledText(f"  {'  ·  '.join(words)}", "dim"),)

    def _footer(self) -> Line:
        """The keys. While a question is open, all keys except Tab are typed into its answer."""
        words = f"{'t' if self.asked is None else 'Tab'} plan · {self.keys}"
        is_told = self.state.tasks and self._is_whole and cell_width(words) + 2 <= self.columns
        return (StyledText(f"  {words if is_told else self.keys}", "dim"),)

    @property
    def _is_whole(self) -> bool:
        """Whether the terminal is large enough for the whole view, not only a bar, a question and the keys."""
        return self.rows >= LEAST_ROWS and self.columns >= LEAST_COLUMNS

    def _panel_lines(self, asked: OpenQuestion, most: int) -> list[Line]:
        """The open question in at most `most` rows; on a tiny terminal, only its last rows."""
        panel = self._panel(asked, most)
        body, shown = panel.body, panel.shown
        if shown < len(body):
            first = min(asked.scrolled, len(body) - shown)
            body = [*body[first : first + shown], self._left_out(first, len(body) - first - shown)]
        lines = [*panel.head, *body[: max(panel.room, 0)], *panel.choices, *panel.foot]
        return lines[-most:] if most > 0 else []

    def _left_out(self, above: int, below: int) -> Line:
        """How many rows of a question are hidden, and the keys that show them."""
        parts = [f"{counted(below, 'more row')}: ↓"] if below else []
        parts += [f"{counted(above, 'row')} above: ↑"] if above else []
        if self.asked is not None and self.asked.question.about == ABOUT_APPROVAL:
            parts.append("e shows all")
        return (_EDGE, StyledText(f"… {' · '.join(parts)}", "needs"))

    def _panel(self, asked: OpenQuestion, most: int) -> QuestionPanel:
        """Lay out a question, its evidence, its choices and the typed line in `most` rows."""
        question = asked.question
        # A plan is too long for the panel: it is written above the view.
        evidence = [] if question.about == ABOUT_PLAN else evidence_lines(question)
        body = self._rows(asked_text(question), "bold")
        for text in evidence:
            body += self._rows(f"  {text}", "dim")
        choices: list[Line] = []
        for text in choice_lines(question, has_enter=True):
            choices += self._rows(text, "ink", hang=_hang_of(text))
        foot = self._panel_foot(asked, most)
        head = [self._panel_head(asked)] if most - len(foot) > 1 else []
        room = most - len(head) - len(foot)
        if len(body) + len(choices) > room and len(choices) > room // 2:
            body, choices = [*body, *choices], []
        return QuestionPanel(head, body, choices, foot, room - len(choices))

    def _panel_foot(self, asked: OpenQuestion, most: int) -> list[Line]:
        """The objection to the last line, in at most a third of the rows, and the line being typed."""
        typed = f"{_tail_of(asked.typed, self.columns - 6)}█"
        line: Line = (_EDGE, StyledText("› ", "needs"), StyledText(typed))
        if not asked.objection:
            return [line]
        longest = max(most // 3, 1)
        rows = self._rows(one_line(asked.objection, longest * (self.columns - 3)), "failed")
        return [*rows[:longest], line]

    def _rows(self, text: str, style: str, hang: int = 0) -> list[Line]:
        """Wrap a line of a question; each row gets an edge in front."""
        lead = len(text) - len(text.lstrip(" "))
        rows = _wrapped(text[lead:], max(self.columns - 3 - lead - hang, 10))
        indents = [" " * lead, *[" " * (lead + hang)] * (len(rows) - 1)]
        return [
            (_EDGE, StyledText(f"{indent}{row}", style))
            for indent, row in zip(indents, rows, strict=True)
        ]

    def _panel_head(self, asked: OpenQuestion) -> Line:
        behind = self.state.waiting_behind(asked.task)
        # More questions may have been asked since this one was shown.
        open_ = sum(len(state.questions) for state in (self.state, *self.below))
        total = max(open_, asked.others + 1)
        notes = [f"question 1 of {total:,}"] if total > 1 else []
        notes += [f"{counted(behind, 'task')} behind it"] if behind else []
        tail = f"  ({', '.join(notes)})" if notes else ""
        who = one_line(asker_name(asked.task), 60) or THE_RUN
        return (StyledText(f"▲ {who} asks", "needs"), StyledText(tail, "dim"))

    def _fitted(self, line: Line) -> Line:
        """The line, cut to the width of the terminal."""
        left, parts = self.columns, []
        for part in line:
            width = cell_width(part.text)
            if width > left:
                parts.append(StyledText(cut_to(part.text, left), part.style))
                break
            parts.append(part)
            left -= width
        return tuple(parts)


def _mark_of(row: "_Row") -> StyledText:
    state = row[1].state if isinstance(row[1], LiveTask) else TaskState.RUNNING
    icon, style, _ = MARKS[state]
    return StyledText(f"  {icon}", style)


def _has_items(row: "_Row") -> bool:
    """Whether the row is a task with `for_each`, whose progress may take all the room there is."""
    return isinstance(row[1], LiveTask) and row[1].items is not None


def line_text(line: Line) -> str:
    """The text of a line, without styles."""
    return "".join(part.text for part in line)


def cut_line(line: Line, width: int) -> Line:
    """Cut a line to one row, marked with `…`. With `width` 0, the line is not cut."""
    text = line_text(line)
    if not width or cell_width(text) <= width:
        return line
    kept = len(cut_to(text, width)) - 1
    parts = list(_slice(line, 0, kept))
    return (*parts, StyledText("…", parts[-1].style if parts else "ink"))


def wrapped_line(line: Line, width: int) -> list[Line]:
    """Wrap a line between words, keeping its styles. With `width` 0, the line is not wrapped."""
    text = line_text(line)
    lines: list[Line] = []
    if not width or cell_width(text) <= width:
        return [line]
    start = 0
    for paragraph in text.split("\n"):
        for row in rows_of(paragraph, width):
            parts = _slice(line, start + row.start, start + row.end)
            lines.append((StyledText(row.indent), *parts) if row.indent else tuple(parts))
        start += len(paragraph) + 1
    return lines


def _slice(line: Line, start: int, end: int) -> Iterator[StyledText]:
    """The part of a line between two character positions."""
    at = 0
    for part in line:
        text = part.text[max(start - at, 0) : max(end - at, 0)]
        at += len(part.text)
        if text:
            yield StyledText(text, part.style)


def _taken(parts: Sequence[StyledText], time: str) -> int:
    """The width of the parts with separators, followed by the time."""
    return sum(cell_width(part.text) for part in parts) + 3 * len(parts) + len(time) + 1


def _segments(state: LiveState, width: int) -> Iterable[StyledText]:
    """A bar of `width` columns with the share of each state; a state with tasks gets at least one column."""
    total = len(state.tasks)
    kinds = [kind for kind in MARKS if state.counts[kind]]
    columns = {kind: max(1, round(width * state.counts[kind] / total)) for kind in kinds}
    while sum(columns.values()) > width and max(columns.values()) > 1:
        columns[max(columns, key=columns.__getitem__)] -= 1
    while sum(columns.values()) < width:
        columns[max(columns, key=lambda kind: state.counts[kind] / columns[kind])] += 1
    return [StyledText(_BLOCKS[kind] * columns[kind], MARKS[kind][1]) for kind in kinds]


def _phase_parts(tasks: Sequence[LiveTask]) -> Iterator[StyledText]:
    if len(tasks) <= MOST_NAMED:
        for task in tasks:
            icon, style = MARK_IN_PART if task.is_in_part else MARKS[task.state][:2]
            yield StyledText(f"{icon} ", style)
            yield StyledText(f"{one_line(task.id, 30)}  ", _text_style(task.state))
        return
    counts = {kind: sum(task.state is kind for task in tasks) for kind in MARKS}
    for kind, count in counts.items():
        if count:
            icon, style, word = MARKS[kind]
            yield StyledText(f"{icon} {count:,} {word}  ", style)
    names = [one_line(task.id, 30) for task in tasks if not task.state.is_settled]
    if names:
        yield StyledText(", ".join(names[:MOST_NAMED]), "dim")


def _text_style(state: TaskState) -> str:
    """The style of a task id: dim for finished and waiting tasks, solid for active and failed ones."""
    is_live = state in (TaskState.RUNNING, TaskState.RETRYING, TaskState.ASKING, TaskState.FAILED)
    return "ink" if is_live else "dim"


def _is_over(tasks: Sequence[LiveTask]) -> bool:
    return all(task.state.is_settled for task in tasks)


def _of(words: str, most: float | None, form: str) -> str:
    return words if most is None else f"{words} of {form.format(most)}"


def _padded(text: str, width: int) -> str:
    text = cut_to(text, width)
    return text + " " * (width - cell_width(text))


def _hang_of(choice: str) -> int:
    """The column where the text of a choice begins, after its number or key."""
    key, gap, _ = choice.partition("  ")
    return len(key) + len(gap) if gap and (key.isdecimal() or len(key) == 1) else 0


def _tail_of(text: str, width: int) -> str:
    """The end of the typed text, where the cursor is."""
    text = clean(text)
    while cell_width(text) > max(width, 1):
        text = text[1:]
    return text


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, wrapped between words if possible."""
    lines: list[str] = []
    for paragraph in text.splitlines() or [""]:
        line = ""
        for word in paragraph.split(" "):
            if line and cell_width(line) + 1 + cell_width(word) > width:
                lines.append(line)
                line = word
            else:
                line = f"{line} {word}" if line else word
            while cell_width(line) > width:
                head = cut_to(line, width, mark="")
                lines.append(head)
                line = line[len(head) :]
        lines.append(line)
    return lines
