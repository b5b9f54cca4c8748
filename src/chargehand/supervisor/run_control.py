"""Control of runs wherever they are led: look, answer, cancel, pause, steer, change the budget."""

import asyncio
import getpass
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.plan_edit_change import PlanEdit, plan_edit
from chargehand.decisions.wait_reasons import Explainer
from chargehand.errors import (
    JournalBusy,
    JournalError,
    KeyConflict,
    NotLeading,
    PlanChanged,
    PlanRefused,
    QuestionTaken,
    RunEnded,
    UnknownQuestion,
    UnknownRun,
    UsageError,
)
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.board import LEADER, board_of_run
from chargehand.facts.events import (
    BudgetChanged,
    CancelRequested,
    Event,
    QuestionAnswered,
    RunFinished,
    RunPaused,
    RunStatus,
    RunSteered,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.limits import Limits, has_caps
from chargehand.facts.outcome import QuestionId
from chargehand.facts.plan import Plan
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.interrupt_signals import counting_signals
from chargehand.journal.base import Journal, Mail, Process, submission_key
from chargehand.past_runs import JournalHandle, fold
from chargehand.result import RunResult, Standing
from chargehand.roles.plan_approval import ABOUT_PLAN
from chargehand.roles.roster import Roster
from chargehand.runtime import BegunRun, Runtime
from chargehand.runtime.command_inbox import (
    RETRY,
    AnswerMail,
    Submission,
    amend_mail,
    answer_mail,
    answers_in,
    budget_mail,
    cancel_mail,
    pause_mail,
    steer_mail,
    stop_mail,
    submission_of,
    unpause_mail,
    why_closed,
)
from chargehand.supervisor.requests import NO_MODEL, RequestBuilder
from chargehand.supervisor.shared_runtime import GRACE, Runtimes
from chargehand.sync_async_bridge import run_in_background, wait_in_background

if TYPE_CHECKING:
    from chargehand.roles.board import Board
    from chargehand.roles.coordinator import Coordinator

log = logging.getLogger("chargehand")

T = TypeVar("T")

#: seconds that an answer waits at most until the process that leads the run has taken it in
LEADER_PATIENCE = 2.0
#: how long a submitted run is watched without a word before any process has started it
UNSTARTED = timedelta(seconds=1)


class Run:
    """A run in progress: `await run.wait()` returns its result."""

    def __init__(
        self,
        id_: str,
        control: "RunControl",
        ending: "asyncio.Future[LiveRun]",
        shape: object = None,
    ) -> None:
        self.id = id_
        self._control = control
        self._ending = ending
        self._shape = shape

    async def wait(self) -> RunResult:
        """The result, once the run has ended. Raises `RunInterrupted` if the supervisor stops first.

        With `on_question="return"`, it also returns once everything left waits for a
        person: `status` is then `waiting`, `questions` are open, and `resume` continues.
        """
        live_run = await asyncio.shield(self._ending)
        if live_run.schedule.status is None:
            return await self._control.look(self.id)
        return self._control.result_of(self.id, live_run, self._shape)

    def when_ended(self, then: Callable[[], object]) -> None:
        """Call `then` once the run has ended or was interrupted."""
        self._ending.add_done_callback(lambda _: then())

    @property
    def has_ended(self) -> bool:
        """Whether `wait` returns at once, with a result."""
        return (
            self._ending.done()
            and not self._ending.cancelled()
            and self._ending.exception() is None
        )

    def ignore_failure(self) -> None:
        """Mark its error as seen, if no caller waits for it. The log and the journal have the error."""
        if not self._ending.cancelled():
            self._ending.exception()

    def refuse_broken(self) -> None:
        """Raise the error that ended the run, if there was one."""
        if self._ending.done():
            self._ending.result()

    async def cancel(self, reason: str = "") -> None:
        await self._control.cancel(self.id, reason)

    async def pause(self, reason: str = "") -> None:
        await self._control.pause(self.id, reason)

    async def unpause(self) -> None:
        await self._control.unpause(self.id)

    async def steer(self, note: str) -> None:
        await self._control.steer(self.id, note)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


class UnstartedWarning:
    """Says once, in the log, that a run which is watched was submitted and no process starts it."""

    def __init__(self, run: str, clock: Clock) -> None:
        self._run = run
        self._clock = clock
        self._since_at = clock.now()
        self._is_said = False

    def look(self) -> None:
        """The run is not started yet."""
        if self._is_said or self._clock.now() - self._since_at < UNSTARTED:
            return
        self._is_said = True
        log.warning(
            "submission_waits run=%s; no process has started it: open a supervisor that has its workers "
            "(async with boss), or start chargehand serve",
            self._run,
        )


class RunControl:
    """Looks at runs and changes their course, whoever leads them: here at once, elsewhere by mail."""

    def __init__(
        self,
        journal: JournalHandle,
        runtimes: Runtimes,
        clock: Clock,
        retry: RetryPolicy | None = None,
        requests: RequestBuilder | None = None,
    ) -> None:
        self._requests = requests
        self._handle = journal
        self._runtimes = runtimes
        self._clock = clock
        self._retry = retry

    @property
    def _journal(self) -> Journal:
        return self._handle.current

    async def submission(self, run_id: str) -> Submission | None:
        """The run of this id, if it was posted and waits for a supervisor to start it."""
        return await submission_of(self._journal.mail, run_id)

    async def watch(self, run_id: str) -> AsyncIterator[Event]:
        """Everything that happens to a run, wherever it is led, from its first event to its last."""
        run_id = checks.text(run_id, "run_id")
        seq, signal, is_unknown = 0, self._journal.boards.signal, False
        unstarted = UnstartedWarning(run_id, self._clock)
        while True:
            known = signal.count
            try:
                async for entry in self._journal.read(run_id, seq):
                    seq = entry.seq
                    yield entry.event
                    if isinstance(entry.event, RunFinished):
                        return
            except UnknownRun:
                if is_unknown:
                    raise
                is_unknown = await self.submission(run_id) is None
                if is_unknown:  # or it was taken up between the two looks
                    continue
                unstarted.look()
            except JournalBusy as error:
                log.warning("watch_waits run=%s error=%s", run_id, error)
                await asyncio.sleep(RETRY)
                continue
            await signal.wait(since=known)

    async def look(self, run_id: str, shape: object = None, *, is_copy: bool = False) -> RunResult:
        """A run as it stands. What is led here goes on changing, so that only a copy may be read in another thread."""
        is_here = self._runtimes.leading(run_id) is not None
        # The letters come first: one that is taken in meanwhile is then found among the events.
        letters = [] if is_here else await self._journal.mail.unread()
        live_run = await self.live_run(run_id, is_copy=is_copy)
        runtime = self._runtimes.leading(run_id)
        dispatch = None if runtime is None else runtime.kernel.dispatch
        standing = await self._standing(run_id, live_run, letters)
        explainer = Explainer(
            run_id,
            live_run,
            self._clock.now(),
            dispatch,
            is_submitted=standing is not None and standing.is_submitted,
            is_led=standing is None or standing.leader is not None,
        )
        below = await self._look_below(live_run, is_copy=is_copy)
        return RunResult(run_id, live_run, self._handle.reading, shape, below, explainer, standing)

    async def _standing(
        self, run_id: str, live_run: LiveRun, letters: Sequence[Mail]
    ) -> Standing | None:
        """Who leads a run and what waits in its inbox; None of one that has ended."""
        schedule = live_run.schedule
        if schedule.status is not None:
            return None
        if schedule.led_at is None and any(e.key == submission_key(run_id) for e in letters):
            return Standing(is_submitted=True)
        answered = {
            question: f"{answer.text} (by {answer.by})"
            for question, answer in answers_in(letters).items()
        }
        if self._runtimes.leading(run_id) is not None:
            own = Process(self._journal.leases.node, os.getpid(), socket.gethostname())
            return Standing(own, answered)
        alive = await self._journal.processes.alive() if schedule.leader else []
        leader = next((each for each in alive if each.node == schedule.leader), None)
        return Standing(leader, answered)

    async def live_run(self, run_id: str, *, is_copy: bool = False) -> LiveRun:
        """A run as it stands: the one that is led here, else folded from the journal or its submission."""
        runtime = self._runtimes.leading(run_id)
        if runtime is not None and is_copy:
            with suppress(JournalError):  # then without what cannot be written
                await runtime.written_so_far()
        elif runtime is not None and run_id in runtime.kernel.runs:
            return runtime.kernel.runs[run_id]
        try:
            return await fold(self._journal, run_id, self._retry)
        except UnknownRun:
            waiting = await self.submission(run_id)
            if waiting is None:  # it is unknown, or was taken up between the two looks
                return await fold(self._journal, run_id, self._retry)
        live_run = LiveRun(run_id, retry=self._retry)
        live_run.replay(waiting.history)
        return live_run

    async def _look_below(self, live_run: LiveRun, *, is_copy: bool) -> dict[str, RunResult]:
        """The runs under way that this one waits for."""
        below: dict[str, RunResult] = {}
        for task, run in list(live_run.results.nested.items()):
            if not live_run.schedule.nodes[task].state.is_settled:
                with suppress(UnknownRun):  # it had no time to begin, or lies in another journal
                    below[task] = await self.look(run, is_copy=is_copy)
        return below

    async def cancel(self, run_id: str, reason: str = "", *, by: str = "") -> None:
        by = checks.text(by, "by") or me()
        run_id, reason = checks.text(run_id, "run_id"), checks.text(reason, "reason")
        async with self._runtimes.at_work() as runtime:
            async with runtime.opener.claim(run_id):
                leading = None
                if not runtime.runs.leads(run_id):
                    if (await self.live_run(run_id)).schedule.status is not None:
                        return
                    try:
                        leading = await self._take_up(runtime, run_id)
                    except NotLeading:
                        await self._journal.mail.post(cancel_mail(run_id, by, reason))
                        return
            if leading is None:
                await runtime.open_letters(run_id)
            await runtime.command(run_id, self._cancellation(by, reason))
            if leading is not None:
                await asyncio.shield(leading.ending)

    async def _take_up(self, runtime: Runtime, run_id: str) -> BegunRun:
        """Lead a run that nobody leads, also one that was only submitted."""
        waiting = await self.submission(run_id)
        if waiting is not None:
            begun = await runtime.opener.begin(
                waiting.requested, waiting.plan, may_exist=True, mail=waiting.mail
            )
            if begun is not None:
                return begun
        return await runtime.opener.take_over(run_id, lambda _: None)

    async def answer_now(self, run_id: str, reason: str = "answer now", *, by: str = "") -> None:
        by = checks.text(by, "by") or me()
        run_id, reason = checks.text(run_id, "run_id"), checks.text(reason, "reason")
        stopped = WorkStopped(reason=reason, by=by, at=self._clock.now())
        await self._tell(run_id, stopped, stop_mail(run_id, by, reason))

    async def change_budget(
        self,
        run_id: str,
        *,
        money: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
        by: str = "",
    ) -> None:
        by = checks.text(by, "by") or me()
        caps = Limits(money=money, tokens=tokens, calls=calls)  # refuses what no budget can be
        if not has_caps(caps):
            raise UsageError("no cap is named; give at least one of money, tokens and calls")
        run_id = checks.text(run_id, "run_id")
        result = await self.look(run_id)
        if isinstance(result.status, RunStatus):
            raise RunEnded(run_id, result.status.value)
        if not has_caps(result.limits):
            raise UsageError(f"run {run_id} was begun without a budget, so there is none to change")
        changed = BudgetChanged(
            money=caps.money, tokens=caps.tokens, calls=caps.calls, by=by, at=self._clock.now()
        )
        if (ours := await self._requests_of(run_id)) is not None:
            ours.refuse_unkept(changed)
        if not await self._tell(run_id, changed, budget_mail(run_id, changed), is_confirmed=True):
            if (alike := await self._requests_of(run_id, is_led=False)) is not None:
                alike.refuse_unkept(changed)  # most likely for the same reason
            raise UsageError(
                f"the process that leads run {run_id} has refused the change of its budget; its log says why"
            )

    async def _requests_of(
        self, run_id: str, *, is_led: bool | None = None
    ) -> RequestBuilder | None:
        """Ours, if it tells what can be had of a run: it is led here, or has our crew and is led nowhere."""
        requested = (await self.live_run(run_id)).schedule.requested
        if self._requests is None or requested is None:
            return None
        if self._runtimes.leading(run_id) is not None:
            return self._requests
        if requested.crew != self._requests.crew:
            return None
        is_led = await self._is_led(run_id) if is_led is None else is_led
        return None if is_led else self._requests

    async def pause(self, run_id: str, reason: str = "", *, by: str = "") -> None:
        by = checks.text(by, "by") or me()
        run_id, reason = checks.text(run_id, "run_id"), checks.text(reason, "reason")
        await self._refuse_ended(run_id)
        paused = RunPaused(by=by, reason=reason, at=self._clock.now())
        await self._tell(run_id, paused, pause_mail(run_id, paused.by, reason))
        for below in (await self.look(run_id)).below.values():
            with suppress(RunEnded):  # meanwhile
                await self.pause(below.id, reason, by=by)

    async def unpause(self, run_id: str, *, by: str = "") -> None:
        by = checks.text(by, "by") or me()
        run_id = checks.text(run_id, "run_id")
        await self._refuse_ended(run_id)
        unpaused = RunUnpaused(by=by, at=self._clock.now())
        await self._tell(run_id, unpaused, unpause_mail(run_id, unpaused.by))
        seen = await self.look(run_id)
        for question in seen.questions:
            if question.about == ABOUT_BUDGET and question.id.startswith(f"{run_id}:"):
                raise UsageError(
                    f"run {run_id} has nothing left to spend; answer its question {question.id} first"
                )
        for below in seen.below.values():
            with suppress(RunEnded):  # meanwhile
                await self.unpause(below.id, by=by)

    async def _refuse_ended(self, run_id: str) -> None:
        status = (await self.live_run(run_id)).schedule.status
        if status is not None:
            raise RunEnded(run_id, status.value)

    async def steer(self, run_id: str, note: str, *, key: str = "", by: str = "") -> None:
        by = checks.text(by, "by") or me()
        run_id, key = checks.text(run_id, "run_id"), checks.text(key, "key")
        note = checks.text(note, "note")
        if not note.strip():
            raise UsageError("the note is empty; say what is wanted")
        await self._refuse_ended(run_id)
        why = (await self.live_run(run_id)).schedule.why_not_steered()
        if why:
            raise UsageError(f"run {run_id} cannot be steered: {why}")
        steered = RunSteered(note=note, by=by, at=self._clock.now())
        if (ours := await self._requests_of(run_id)) is not None:
            ours.refuse_unkept(steered)
        letter = steer_mail(run_id, steered.by, note, key)
        if not await self._tell(run_id, steered, letter, is_confirmed=True, is_keyed=bool(key)):
            schedule = (await self.live_run(run_id)).schedule
            asked = schedule.requested
            # A run that has a model all the same is refused for what has happened to it meanwhile.
            has_model = asked is None or asked.answers or not asked.approach.is_given
            moved_on = "it has just moved on" if has_model else NO_MODEL
            why = schedule.why_not_steered() or moved_on
            raise UsageError(f"run {run_id} cannot be steered: {why}")

    async def change_plan(
        self, run_id: str, plan: Plan, *, version: int, roster: Roster, reason: str = ""
    ) -> PlanEdit:
        run_id, reason = checks.text(run_id, "run_id"), checks.text(reason, "reason")
        await self._refuse_ended(run_id)
        schedule = (await self.live_run(run_id)).schedule
        if schedule.version != version:
            raise PlanChanged(run_id, schedule.version)
        for node in schedule.nodes.values():
            if node.question is not None and node.question.about == ABOUT_PLAN:
                raise UsageError(
                    f"a change of the plan of run {run_id} waits for approval; approve or reject it first"
                )
        words = reason or f"edited by {me()}"
        edit = plan_edit(schedule.nodes, plan, version, reason=words, at=self._clock.now())
        chosen = () if schedule.requested is None else schedule.requested.workers
        own = plan.check(roster.limited_to(chosen).names, schedule.limits).faults
        known = {fault.task for fault in own}
        refused = () if edit.is_empty else schedule.check_amendment(edit.change)
        faults = [*own, *edit.faults, *(each for each in refused if each.task not in known)]
        if faults:
            raise PlanRefused(faults, "nothing was changed")
        if edit.is_empty:
            return edit
        if (ours := await self._requests_of(run_id)) is not None:
            ours.refuse_unpriced_tasks(plan)
        runtime = await self._leading(run_id)
        if runtime is not None:
            is_taken = await runtime.command(run_id, edit.change) is not None
        else:
            try:
                is_taken = await self._journal.mail.post(amend_mail(run_id, edit.change))
            except KeyConflict:
                raise PlanChanged(run_id, version, is_on_its_way=True) from None
        if not is_taken:
            raise PlanChanged(run_id, (await self.live_run(run_id)).schedule.version)
        return edit

    async def _leading(self, run_id: str) -> Runtime | None:
        """The runtime, if it leads this run, once it has taken in what was posted before: commands keep their order."""
        runtime = self._runtimes.leading(run_id)
        if runtime is not None:
            await runtime.open_letters(run_id)
        return self._runtimes.leading(run_id)

    async def _tell(
        self,
        run_id: str,
        event: Event,
        letter: Mail,
        *,
        is_confirmed: bool = False,
        is_keyed: bool = False,
    ) -> bool:
        """Have this happen to a run: here if it is led here, else by mail. False if it was refused.

        What was posted is only known to be refused if it `is_confirmed`, which may wait for its leader.
        What `is_keyed` is posted wherever the run is led: the journal knows the keys of letters.
        """
        runtime = await self._leading(run_id)
        if runtime is not None and not is_keyed:
            return await runtime.command(run_id, event) is not None
        if (await self.live_run(run_id)).schedule.status is None:
            await self._journal.mail.post(letter)
            if runtime is not None:
                await runtime.open_letters(run_id)
            return not is_confirmed or await self._is_accepted(run_id, event, letter)
        return True

    async def _is_accepted(self, run_id: str, event: Event, letter: Mail) -> bool:
        """False if the leader of a run has refused a letter; True if it has accepted it, or not read it in time."""
        await self._wait_taken(run_id, letter)
        if any(each.key == letter.key for each in await self._journal.mail.unread()):
            return True
        async for entry in self._journal.read(run_id):
            if type(entry.event) is type(event) and replace(entry.event, at=event.at) == event:
                return True
        return False

    async def answer(self, question_id: str, text: str, *, by: str = "") -> None:
        text = checks.text(text, "the answer")
        question_id = checks.text(question_id, "question")
        run_id, task, _ = QuestionId.checked(question_id)
        result = await self.look(run_id)
        question = next((each for each in result.questions if each.id == question_id), None)
        if question is None:
            raise await self.why_closed(question_id)
        text = question.as_spelled(text)
        if (objection := question.objection(text)) is not None:
            raise UsageError(
                f"{text!r} does not answer question {question_id}: it {objection}; choose one of {question.offers}"
            )
        by = checks.text(by, "by") or me()
        runtime = await self._leading(run_id)
        if runtime is not None:
            now = self._clock.now()
            answered = QuestionAnswered(question=question_id, task=task, text=text, by=by, at=now)
            if await runtime.command(run_id, answered) is None:
                raise await self.why_closed(question_id)
            return
        mail = answer_mail(run_id, AnswerMail(question_id, task, text, by))
        try:
            is_first = await self._journal.mail.post(mail)
        except KeyConflict:
            is_first = False
        if not is_first:
            raise await self.why_closed(question_id)
        await self._wait_taken(run_id, mail)
        # Another may have answered at the leader itself in the same moment.
        closed = await self.why_closed(question_id)
        is_ours = isinstance(closed, QuestionTaken) and (closed.by, closed.text) == (by, text)
        if not is_ours:
            raise closed

    async def _wait_taken(self, run_id: str, mail: Mail) -> None:
        """Wait until the leader of a run has taken in a letter, but not for long, and not if nobody leads it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEADER_PATIENCE):
                while await self._is_led(run_id):
                    if all(each.key != mail.key for each in await self._journal.mail.unread()):
                        return
                    await self._journal.mail.wait_changed()

    async def _is_led(self, run_id: str) -> bool:
        """Whether a living process leads this run."""
        owner = next((e.owner for e in await self._journal.heads() if e.stream == run_id), "")
        return owner in {each.node for each in await self._journal.processes.alive()}

    async def why_closed(self, question_id: str) -> UnknownQuestion:
        runtime = self._runtimes.current
        if runtime is not None:  # a question is closed here before the journal has the answer
            await runtime.written_so_far()
        return await why_closed(self._journal, question_id)

    def board(self, name: str = "", *, run: str = "") -> "Board":
        from chargehand.roles.board import Board  # here, since most programs use none

        if bool(name) == bool(run):
            raise UsageError(
                "name a board or a run: boss.board('market') or boss.board(run=run_id)"
            )
        which = name or board_of_run(run)
        return Board(self._journal, self._clock, which, author=me(), role=LEADER, run=run)

    def coordinator(
        self,
        *,
        boards: Sequence[str] = (),
        patience: Duration | None = None,
        recent: Duration | None = None,
    ) -> "Coordinator":
        from chargehand.roles.coordinator import PATIENCE, Coordinator  # here, likewise

        wait = PATIENCE if patience is None else patience
        return Coordinator(self._journal, self._clock, boards=boards, patience=wait, recent=recent)

    def result_of(self, run_id: str, live_run: LiveRun, shape: object = None) -> RunResult:
        return RunResult(run_id, live_run, self._handle.reading, shape)

    def _cancellation(self, by: str, reason: str) -> CancelRequested:
        return CancelRequested(by=by, reason=reason, at=self._clock.now())

    def wait_sync(self, running: "Coroutine[Any, Any, T]") -> T:
        """Wait for this in a thread without an event loop. Ctrl-C once stops gently, twice cancels."""
        with counting_signals(self._interrupted):
            return wait_in_background(running)

    def _interrupted(self, times: int) -> None:
        if times == 1:
            log.warning(
                "interrupted; nothing new is started, and what runs has %g s to end. Interrupt again "
                "to cancel",
                GRACE.total_seconds(),
            )
            _tell_failure(run_in_background(self._runtimes.stop(GRACE)))
        elif times == 2:
            log.warning("interrupted twice; cancelling")
            _tell_failure(run_in_background(self._cancel_all()))
        else:
            raise KeyboardInterrupt

    async def _cancel_all(self) -> None:
        runtime = self._runtimes.current
        if runtime is not None:
            for run in list(runtime.kernel.runs):
                await runtime.propose(run, self._cancellation(me(), "interrupted twice"))


def _tell_failure(stopping: Future[None]) -> None:
    """Log why a stop that nobody waits for has failed."""

    def tell(done: Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("stop_failed error=%r", error)

    stopping.add_done_callback(tell)


def me() -> str:
    """Who is at the keyboard."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
