"""How runs are reached wherever they are led: seen, answered, cancelled, paused, steered."""

import asyncio
import getpass
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from chargehand.decisions.budget import has_caps
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.wait_reasons import Explainer
from chargehand.errors import KeyConflict, NotLeading, UnknownQuestion, UnknownRun, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.board import LEADER, board_of_run
from chargehand.facts.events import (
    BudgetChanged,
    CancelRequested,
    Event,
    QuestionAnswered,
    RunPaused,
    RunStatus,
    RunSteered,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.limits import Limits
from chargehand.journal.base import Journal, Mail
from chargehand.journal.open_journal import open_journal
from chargehand.result import RunResult
from chargehand.run_archive import fold
from chargehand.runtime.command_inbox import (
    AnswerMail,
    answer_mail,
    budget_mail,
    cancel_mail,
    pause_mail,
    steer_mail,
    stop_mail,
    unpause_mail,
    why_closed,
)

if TYPE_CHECKING:
    from chargehand.roles.board import Board
    from chargehand.roles.coordinator import Coordinator

from chargehand.supervisor.runtimes import Runtimes


class RunControl(Runtimes):
    """Looks at runs, and has things happen to them, whoever leads them: here at once, elsewhere by mail."""

    @property
    def journal(self) -> Journal:
        """Where its runs are kept."""
        return self._journal

    async def look(self, run_id: str) -> RunResult:
        """A run as the journal knows it now, whoever leads it, and what each of its tasks waits for."""
        live_run = await self._led(run_id)
        runtime = self._runtime
        dispatch = (
            runtime.kernel.dispatch if runtime is not None and runtime.leads(run_id) else None
        )
        explainer = Explainer(run_id, live_run, self._clock.now(), dispatch)
        below = await self._look_below(live_run)
        return RunResult(run_id, live_run, self._reading, below=below, explainer=explainer)

    async def _led(self, run_id: str) -> LiveRun:
        runtime = self._runtime
        live_run = None if runtime is None else runtime.kernel.runs.get(run_id)
        return live_run or await fold(self._journal, run_id, self._retry)

    async def _look_below(self, live_run: LiveRun) -> dict[str, RunResult]:
        """The runs under way that this one waits for."""
        below: dict[str, RunResult] = {}
        for task, run in list(live_run.results.nested.items()):
            if not live_run.schedule.nodes[task].state.is_settled:
                with suppress(UnknownRun):  # it had no time to begin, or lies in another journal
                    below[task] = await self.look(run)
        return below

    async def cancel(self, run_id: str, reason: str = "") -> None:
        """End a run. Cancelling twice, or a run that has ended, changes nothing.

        A run that another process leads is cancelled by that process as soon as it hears of it; one
        that nobody leads is cancelled here.
        """
        by = me()
        run_id, reason = checks.text(run_id, "run_id"), checks.text(reason, "reason")
        async with self._at_work() as runtime:
            async with runtime.claim(run_id):
                leading = None
                if not runtime.leads(run_id):
                    live_run = await fold(self._journal, run_id, self._retry)
                    if live_run.schedule.status is not None:
                        return
                    try:
                        leading = await runtime.take_over(run_id, lambda _: None)
                    except NotLeading:
                        await self._post_cancel(run_id, by, reason)
                        return
            await runtime.propose(run_id, self._cancellation(by, reason))
            if leading is not None:
                await asyncio.shield(leading.ending)

    async def _post_cancel(self, run_id: str, by: str, reason: str) -> None:
        await self._journal.mail.post(cancel_mail(run_id, by, reason))

    async def answer_now(self, run_id: str, reason: str = "answer now") -> None:
        """Stop the work of a run and have its answer made of what there is, wherever it is led."""
        run_id, reason = checks.text(run_id, "run_id"), checks.text(reason, "reason")
        runtime = self._runtime
        if runtime is not None and runtime.leads(run_id):
            stopped = WorkStopped(reason=reason, by=me(), at=self._clock.now())
            await runtime.propose(run_id, stopped)
            return
        if isinstance((await self.look(run_id)).status, RunStatus):
            return
        await self._journal.mail.post(stop_mail(run_id, me(), reason))

    async def change_budget(
        self,
        run_id: str,
        *,
        money: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
    ) -> None:
        """Raise or lower what a run may spend, wherever it is led; what is not named stays.

        It holds for whatever is reserved from then on. Raises `UsageError` for a run without a budget, or
        one that has ended; a run that was stopped as over budget is not taken up again.
        """
        caps = Limits(money=money, tokens=tokens, calls=calls)  # refuses what no budget can be
        run_id = checks.text(run_id, "run_id")
        result = await self.look(run_id)
        if isinstance(result.status, RunStatus):
            raise UsageError(f"run {run_id} has ended; ask anew with other limits")
        if not has_caps(result.limits):
            raise UsageError(f"run {run_id} was begun without a budget, so there is none to change")
        changed = BudgetChanged(
            money=caps.money, tokens=caps.tokens, calls=caps.calls, by=me(), at=self._clock.now()
        )
        runtime = self._runtime
        if runtime is not None and runtime.leads(run_id):
            await runtime.propose(run_id, changed)
        else:
            await self._journal.mail.post(budget_mail(run_id, changed))

    async def pause(self, run_id: str, reason: str = "") -> None:
        """Have a run start nothing new until `unpause`, wherever it is led; runs below it neither.

        What runs stops at its next safe point and goes on from there later, without repeating a step;
        what has no steps runs to its end. Active time stands still, deadlines do not. It stays paused
        over a restart. Pausing twice, or a run that has ended, changes nothing.
        """
        run_id, reason = checks.text(run_id, "run_id"), checks.text(reason, "reason")
        paused = RunPaused(by=me(), reason=reason, at=self._clock.now())
        await self._tell(run_id, paused, pause_mail(run_id, paused.by, reason))
        for below in (await self.look(run_id)).below.values():
            await self.pause(below.id, reason)

    async def unpause(self, run_id: str) -> None:
        """Have a paused run go on, wherever it is led. One that is not paused is left as it is."""
        run_id = checks.text(run_id, "run_id")
        unpaused = RunUnpaused(by=me(), at=self._clock.now())
        await self._tell(run_id, unpaused, unpause_mail(run_id, unpaused.by))
        seen = await self.look(run_id)
        for question in seen.questions:
            if question.about == ABOUT_BUDGET and question.id.startswith(f"{run_id}:"):
                raise UsageError(
                    f"run {run_id} has nothing left to spend; answer its question {question.id} first"
                )
        for below in seen.below.values():
            await self.unpause(below.id)

    async def steer(self, run_id: str, note: str, *, key: str = "") -> None:
        """Have the plan of a run changed as the note says: what is not done yet, by a model.

        The note reaches whoever composes the answer, too. With a `key`, sending it again to a run
        that another process leads changes nothing. Raises `UsageError` if nothing can be changed any
        more, or if the plan was given and the run has no model.
        """
        run_id, key = checks.text(run_id, "run_id"), checks.text(key, "key")
        note = checks.text(note, "note")
        if not note.strip():
            raise UsageError("the note is empty; say what is wanted")
        why = (await self._led(run_id)).schedule.why_not_steered()
        if why:
            raise UsageError(f"run {run_id} cannot be steered: {why}")
        steered = RunSteered(note=note, by=me(), at=self._clock.now())
        if not await self._tell(run_id, steered, steer_mail(run_id, steered.by, note, key)):
            raise UsageError(f"run {run_id} cannot be steered: it has just moved on")

    async def _tell(self, run_id: str, event: Event, letter: Mail) -> bool:
        """Have this happen to a run: here if it is led here, else by mail. False if it was refused."""
        runtime = self._runtime
        if runtime is not None and runtime.leads(run_id):
            return await runtime.propose(run_id, event) is not None
        if (await self._led(run_id)).schedule.status is None:
            await self._journal.mail.post(letter)
        return True

    async def answer(self, question_id: str, text: str, *, by: str = "") -> None:
        """Answer a question of a run, wherever it is led. The first valid answer counts.

        Raises `QuestionTaken` if it is answered, with who did and what, `UnknownQuestion` if it is not
        open otherwise, and `UsageError` if the text is none of its choices.
        """
        text = checks.text(text, "the answer")
        question_id = checks.text(question_id, "question")
        run_id, _, rest = question_id.partition(":")
        task = rest.rpartition(":")[0]
        result = await self.look(run_id)
        question = next((each for each in result.questions if each.id == question_id), None)
        if question is None:
            raise await self.why_closed(question_id)
        if not question.accepts(text):
            raise UsageError(
                f"{text!r} does not answer question {question_id}; choose one of {question.offers}"
            )
        by = checks.text(by, "by") or me()
        runtime = self._runtime
        if runtime is not None and runtime.leads(run_id):
            now = self._clock.now()
            answered = QuestionAnswered(question=question_id, task=task, text=text, by=by, at=now)
            if await runtime.propose(run_id, answered) is None:
                raise await self.why_closed(question_id)
            return
        mail = answer_mail(run_id, AnswerMail(question_id, task, text, by))
        try:
            is_first = await self._journal.mail.post(mail)
        except KeyConflict:
            is_first = False
        if not is_first:
            raise await self.why_closed(question_id)

    async def why_closed(self, question_id: str) -> UnknownQuestion:
        """The error that says why a question is not open: answered by whom, ended, or no such id."""
        return await why_closed(self._journal, question_id)

    def board(self, name: str = "", *, run: str = "") -> "Board":
        """The board of this name, shared by all that use this journal; or the board of a run.

        On the board of a run, what happens to the run can be read as notes. We hold it in the
        supervisor's role, which may read and write every block.
        """
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
        """Somebody who reads all runs and boards of this journal and writes nothing.

        It tells progress, health and conflicts. `boards` names those it is to read beside the boards
        of runs; an attempt that is silent for longer than `patience` is called stuck; with `recent`,
        runs that ended longer ago are left out.
        """
        from chargehand.roles.coordinator import PATIENCE, Coordinator  # here, likewise

        wait = PATIENCE if patience is None else patience
        return Coordinator(self._journal, self._clock, boards=boards, patience=wait, recent=recent)

    def result_of(self, run_id: str, live_run: LiveRun, shape: object = None) -> RunResult:
        return RunResult(run_id, live_run, self._reading, shape)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Journal]:
        """The journal to read from; results outlive the supervisor, so it may have to be opened again."""
        if not self._is_closed:
            yield self._journal
            return
        journal = open_journal(self._path)
        try:
            yield journal
        finally:
            await journal.close()

    def _cancellation(self, by: str, reason: str) -> CancelRequested:
        return CancelRequested(by=by, reason=reason, at=self._clock.now())


def me() -> str:
    """Who is at the keyboard."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
