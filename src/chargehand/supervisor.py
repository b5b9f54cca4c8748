"""The supervisor: takes requests, leads runs, returns results. What users hold in their hands."""

import asyncio
import copy
import getpass
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar, Unpack, cast
from weakref import WeakSet

from chargehand.background import run_in_background
from chargehand.clock import Clock, SystemClock
from chargehand.decisions.breaker import BreakerPolicy
from chargehand.decisions.budget import NESTED, Account, has_caps
from chargehand.decisions.desk import Desk, Led
from chargehand.decisions.dispatch import Balance, Dispatch, Place
from chargehand.decisions.duties import is_duty
from chargehand.decisions.elastic import Elastic
from chargehand.decisions.explaining import Explainer
from chargehand.decisions.retry import RetryPolicy
from chargehand.engines.brief import Brief, Fenced
from chargehand.errors import (
    KeyConflict,
    NotLeading,
    RosterMismatch,
    RunInterrupted,
    UnknownQuestion,
    UnknownRun,
    UsageError,
    WrongLoop,
)
from chargehand.facts.answer import AnswerPiece
from chargehand.facts.board import LEADER, board_of_run
from chargehand.facts.events import (
    BudgetChanged,
    CancelRequested,
    Effect,
    Event,
    QuestionAnswered,
    RunFinished,
    RunPaused,
    RunRequested,
    RunStatus,
    RunSteered,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, ErrorClass, Failed, Outcome
from chargehand.facts.plan import Plan
from chargehand.facts.policy import OnFailure
from chargehand.facts.value import Value
from chargehand.intake import Intake, Origin, Terms
from chargehand.interrupts import counting_signals
from chargehand.journal.base import Journal, Mail
from chargehand.journal.opening import open_journal
from chargehand.mailroom import (
    AnswerMail,
    answer_mail,
    budget_mail,
    cancel_mail,
    pause_mail,
    steer_mail,
    stop_mail,
    submit_mail,
    unpause_mail,
)
from chargehand.nesting import origin_of, outcome_from, request_from, terms_for
from chargehand.notify.base import Notify
from chargehand.notify.notices import Notices
from chargehand.records import Experience, fold, is_known
from chargehand.result import RunResult, earlier_of
from chargehand.roles.function import Where
from chargehand.roles.office import ModelChoice, Office
from chargehand.roles.roster import Member, Roster
from chargehand.roles.schema import shape_of
from chargehand.shift import Hooks, Shift

if TYPE_CHECKING:
    from chargehand.models.base import ModelSettings
    from chargehand.models.switchboard import Switchboard
    from chargehand.roles.board import Board

log = logging.getLogger("chargehand")

GRACE = timedelta(seconds=30)
#: what running attempts have left when the supervisor is stopped gently
E = TypeVar("E", bound=Event)
HookFor: TypeAlias = Callable[[str, E], object]


class Run:
    """A run under way: `await run.wait()` for its result."""

    def __init__(
        self, id_: str, boss: "Supervisor", ending: "asyncio.Future[Led]", shape: object = None
    ) -> None:
        self.id = id_
        self._boss = boss
        self._ending = ending
        self._shape = shape

    async def wait(self) -> RunResult:
        """The result, once the run has ended. Raises `RunInterrupted` if the supervisor stops first."""
        return self._boss.result_of(self.id, await asyncio.shield(self._ending), self._shape)

    def when_ended(self, then: Callable[[], None]) -> None:
        """Have `then` called once the run has ended or was interrupted."""
        self._ending.add_done_callback(lambda _: then())

    def refuse_broken(self) -> None:
        """Raise what broke the run off, if something did."""
        if self._ending.done():
            self._ending.result()

    async def cancel(self, reason: str = "") -> None:
        await self._boss.cancel(self.id, reason)

    async def pause(self, reason: str = "") -> None:
        await self._boss.pause(self.id, reason)

    async def unpause(self) -> None:
        await self._boss.unpause(self.id)

    async def steer(self, note: str) -> None:
        await self._boss.steer(self.id, note)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


class Supervisor:
    """Leads runs over a roster of workers, embedded in this process.

    `journal` is a path for a durable journal, or None for one in memory. `parallel` is how many
    attempts run at once over all runs, fixed or `Elastic`; `breaker` says when a worker that keeps failing is left alone
    for a while. `model` is what the supervisor itself plans and answers with
    (as `settings` and the files in `prompts` say), and what workers use that name none of their own;
    `deps` reaches their tools, `secrets` those tools of workers that are granted them by name.
    `notify` says how people hear of questions: "log", "webhook:https://…", "command:…" or more. One
    supervisor works in one event loop at a time; `run_sync` needs none.

    A supervisor is a worker too: on another's roster, by its `name` and `description`, it leads a run
    of its own for each task it gets, of the words of the task or of what `plan_for` makes of it.
    """

    where = Where.HERE
    skills: tuple[str, ...] = ()
    timeout: timedelta | None = None

    def __init__(
        self,
        workers: Sequence[Member],
        *,
        journal: str | os.PathLike[str] | Journal | None = None,
        limits: Limits | None = None,
        parallel: int | Elastic | None = None,
        balance: Balance | str = Balance.LEAST_BUSY,
        model: "ModelChoice | None" = None,
        switchboard: "Switchboard | None" = None,
        deps: object = None,
        secrets: Mapping[str, str] | None = None,
        settings: "ModelSettings | None" = None,
        prompts: str | Path | None = None,
        retry: RetryPolicy | None = None,
        on_failure: OnFailure | None = None,
        breaker: BreakerPolicy | None = None,
        clock: Clock | None = None,
        name: str = "supervisor",
        description: str = "",
        capacity: int | None = None,
        plan_for: "Callable[[Brief], Plan | str] | None" = None,
        notify: Notify = (),
    ) -> None:
        self.name = name
        self.place = Place(worker=name, capacity=capacity)
        self._plan_for = plan_for or request_from
        self.roster = Roster(workers)
        self.description = description or f"Leads {', '.join(w.name for w in self.roster)}"
        self.limits = limits or Limits()
        self._office = Office(
            model=model,
            switchboard=switchboard,
            deps=deps,
            secrets=secrets,
            settings=settings,
            prompts=prompts,
        )
        self._notices = self._office.notices = Notices(notify) if notify else None
        self._parallel = parallel or self.limits.parallel
        self._balance = Balance(balance)
        self._retry = retry
        self._breaker = breaker
        self._clock = clock or SystemClock()
        self._intake = Intake(self.roster, self._office, self.limits, self._clock, on_failure)
        self._path = journal if isinstance(journal, (str, os.PathLike)) else None
        self._journal = open_journal(journal)
        self._is_closed = False
        if journal is None:
            log.info(
                "journal_in_memory; runs end with this process: pass journal='runs.db' to keep them"
            )
        self._hooks: Hooks = {}
        self._experience = Experience()
        self.on(RunFinished)(lambda _, event: self._experience.hear(event))
        self._shift: Shift | None = None
        self._shifts: WeakSet[Shift] = WeakSet()
        #: this one, and those of what works below others in its name
        self._drained: set[str] = set()
        self._users = 0
        self._new_dispatch()  # refuses bad capacities now, not when the first run starts

    # running

    async def run(self, request: str | Plan, **terms: Unpack[Terms]) -> RunResult:
        """Do what is asked, in words or as a plan, and return what came of it.

        Failures of tasks are values, not exceptions. Cancelling this call cancels the run.
        """
        async with self._on_shift() as shift:
            run, _ = await self._begin(shift, request, terms)
            try:
                return await run.wait()
            except asyncio.CancelledError:
                await asyncio.shield(self.cancel(run.id, "its caller was cancelled"))
                raise

    def run_sync(self, request: str | Plan, **terms: Unpack[Terms]) -> RunResult:
        """`run` for callers without an event loop, and for notebooks, whose loop is taken.

        Ctrl-C once stops gently: nothing new is started, what runs may end, and `RunInterrupted`
        says how to resume. Twice cancels the run.
        """
        running = self.run(request, **terms)
        return self._wait_sync(run_in_background(running))

    async def plan(self, request: str, **terms: Unpack[Terms]) -> Plan:
        """The plan that `run` would carry out for this request: to be read, edited, saved and run later."""
        from chargehand.roles.planner import write_plan
        from chargehand.roles.thinking import PlainThinker

        self._intake.check_words(request)
        after = terms.get("after")
        earlier = await self._earlier(after) if after else None
        limits = terms.get("limits") or self.limits
        thinker = PlainThinker(self._office)
        shape = shape_of(terms.get("output"))
        return await write_plan(thinker, request, self.roster, limits, earlier, shape)

    async def stream(
        self, request: str | Plan, **terms: Unpack[Terms]
    ) -> AsyncIterator[Event | AnswerPiece]:
        """Everything that happens to a new run, each event once it is durable, to the last one.

        Where a model composes the answer, its pieces come in between as they are written.
        """
        async with self._on_shift() as shift:
            run, _ = await self._begin(shift, request, terms)
            queue = shift.listen(run.id)
            try:
                while (event := await queue.get()) is not None:
                    yield event
                await run.wait()  # raises what broke the run off, if something did
            except asyncio.CancelledError:
                await asyncio.shield(self.cancel(run.id, "its caller was cancelled"))
                raise

    async def submit(self, request: str | Plan, **terms: Unpack[Terms]) -> Run:
        """Start a run and return at once. It is durable when this returns; `run.wait()` tells its end."""
        async with self._on_shift() as shift:
            run, written = await self._begin(shift, request, terms)
            self._users += 1  # the shift stays on until this run has ended
            run.when_ended(lambda: self._leave(shift))
            await written
            run.refuse_broken()
            return run

    async def resume(self, run_id: str, *, accept: bool = False) -> RunResult:
        """Go on with a run that was interrupted; of a finished one, return the result again.

        With a changed roster it says what changed and goes on only if you `accept`. Raises
        `NotLeading` while another live process leads the run.
        """
        async with self._on_shift() as shift:
            run, _ = await self._rejoin(shift, run_id, accept=accept)
            return await run.wait()

    def resume_sync(self, run_id: str, *, accept: bool = False) -> RunResult:
        """`resume` for callers without an event loop."""
        return self._wait_sync(run_in_background(self.resume(run_id, accept=accept)))

    async def post(self, request: str | Plan, **terms: Unpack[Terms]) -> str:
        """Leave a run to whichever process on this journal has the workers for it; returns its id.

        A supervisor takes such runs while it works: `async with boss:` keeps one at work.
        """
        requested, plan = await self._request(request, terms)
        await self._journal.mail.post(submit_mail(requested, plan))
        return requested.run

    @property
    def journal(self) -> Journal:
        """Where its runs are kept."""
        return self._journal

    @property
    def is_kept(self) -> bool:
        """Whether its runs outlive this process."""
        return self._path is not None

    def keep_in(self, journal: str | os.PathLike[str]) -> None:
        """Keep runs in this file from now on, instead of in memory."""
        if self._shift is not None or self._path is not None:
            raise UsageError("this supervisor is at work, or has a durable journal already")
        self._path = journal
        self._journal = open_journal(journal)

    def on(self, *kinds: type[E]) -> "Callable[[HookFor[E]], HookFor[E]]":
        """Have a function called with the run's id and the event, once such an event is durable.

        `@boss.on(ch.TaskFailed)`. It is called on the event loop and must not block; what it raises is
        logged and changes nothing.
        """

        def hooked(hook: HookFor[E]) -> HookFor[E]:
            for kind in kinds:
                self._hooks.setdefault(kind, []).append(hook)
            return hook

        return hooked

    # from elsewhere

    async def look(self, run_id: str) -> RunResult:
        """A run as the journal knows it now, whoever leads it, and what each of its tasks waits for."""
        led = await self._led(run_id)
        shift = self._shift
        dispatch = shift.desk.dispatch if shift is not None and shift.leads(run_id) else None
        explainer = Explainer(run_id, led, self._clock.now(), dispatch)
        below = await self._look_below(led)
        return RunResult(run_id, led, self._reading, below=below, explainer=explainer)

    async def _led(self, run_id: str) -> Led:
        shift = self._shift
        led = None if shift is None else shift.desk.runs.get(run_id)
        return led or await fold(self._journal, run_id, self._retry)

    async def _look_below(self, led: Led) -> dict[str, RunResult]:
        """The runs under way that this one waits for."""
        below: dict[str, RunResult] = {}
        for task, run in list(led.results.nested.items()):
            if not led.schedule.nodes[task].state.is_settled:
                with suppress(UnknownRun):  # it had no time to begin, or lies in another journal
                    below[task] = await self.look(run)
        return below

    async def cancel(self, run_id: str, reason: str = "") -> None:
        """End a run. Cancelling twice, or a run that has ended, changes nothing.

        A run that another process leads is cancelled by that process as soon as it hears of it; one
        that nobody leads is cancelled here.
        """
        by = _me()
        async with self._on_shift() as shift:
            async with shift.claim(run_id):
                leading = None
                if not shift.leads(run_id):
                    led = await fold(self._journal, run_id, self._retry)
                    if led.schedule.status is not None:
                        return
                    try:
                        leading = await shift.take_over(run_id, lambda _: None)
                    except NotLeading:
                        await self._post_cancel(run_id, by, reason)
                        return
            await shift.propose(run_id, self._cancellation(by, reason))
            if leading is not None:
                await asyncio.shield(leading.ending)

    async def _post_cancel(self, run_id: str, by: str, reason: str) -> None:
        await self._journal.mail.post(cancel_mail(run_id, by, reason))

    async def answer_now(self, run_id: str, reason: str = "answer now") -> None:
        """Stop the work of a run and have its answer made of what there is, wherever it is led."""
        shift = self._shift
        if shift is not None and shift.leads(run_id):
            stopped = WorkStopped(reason=reason, by=_me(), at=self._clock.now())
            await shift.propose(run_id, stopped)
            return
        if isinstance((await self.look(run_id)).status, RunStatus):
            return
        await self._journal.mail.post(stop_mail(run_id, _me(), reason))

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
        Limits(money=money, tokens=tokens, calls=calls)  # refuses what no budget can be
        result = await self.look(run_id)
        if isinstance(result.status, RunStatus):
            raise UsageError(f"run {run_id} has ended; ask anew with other limits")
        if not has_caps(result.limits):
            raise UsageError(f"run {run_id} was begun without a budget, so there is none to change")
        changed = BudgetChanged(
            money=money, tokens=tokens, calls=calls, by=_me(), at=self._clock.now()
        )
        shift = self._shift
        if shift is not None and shift.leads(run_id):
            await shift.propose(run_id, changed)
        else:
            await self._journal.mail.post(budget_mail(run_id, changed))

    async def pause(self, run_id: str, reason: str = "") -> None:
        """Have a run start nothing new until `unpause`, wherever it is led; runs below it neither.

        What runs stops at its next safe point and goes on from there later, without repeating a step;
        what has no steps runs to its end. Active time stands still, deadlines do not. It stays paused
        over a restart. Pausing twice, or a run that has ended, changes nothing.
        """
        paused = RunPaused(by=_me(), reason=reason, at=self._clock.now())
        await self._tell(run_id, paused, pause_mail(run_id, paused.by, reason))
        for below in (await self.look(run_id)).below.values():
            await self.pause(below.id, reason)

    async def unpause(self, run_id: str) -> None:
        """Have a paused run go on, wherever it is led. One that is not paused is left as it is."""
        unpaused = RunUnpaused(by=_me(), at=self._clock.now())
        await self._tell(run_id, unpaused, unpause_mail(run_id, unpaused.by))
        for below in (await self.look(run_id)).below.values():
            await self.unpause(below.id)

    async def steer(self, run_id: str, note: str, *, key: str = "") -> None:
        """Have the plan of a run changed as the note says: what is not done yet, by a model.

        The note reaches whoever composes the answer, too. With a `key`, sending it again to a run
        that another process leads changes nothing. Raises `UsageError` if nothing can be changed any
        more, or if the plan was given and the run has no model.
        """
        if not note.strip():
            raise UsageError("the note is empty; say what is wanted")
        why = (await self._led(run_id)).schedule.why_not_steered()
        if why:
            raise UsageError(f"run {run_id} cannot be steered: {why}")
        steered = RunSteered(note=note, by=_me(), at=self._clock.now())
        if not await self._tell(run_id, steered, steer_mail(run_id, steered.by, note, key)):
            raise UsageError(f"run {run_id} cannot be steered: it has just moved on")

    async def _tell(self, run_id: str, event: Event, letter: Mail) -> bool:
        """Have this happen to a run: here if it is led here, else by mail. False if it was refused."""
        shift = self._shift
        if shift is not None and shift.leads(run_id):
            return await shift.propose(run_id, event) is not None
        if (await self._led(run_id)).schedule.status is None:
            await self._journal.mail.post(letter)
        return True

    async def answer(self, question_id: str, text: str, *, by: str = "") -> None:
        """Answer a question of a run, wherever it is led. The first valid answer counts.

        Raises `UnknownQuestion` if it is not open, and `UsageError` if the text is none of its choices.
        """
        run_id, _, rest = question_id.partition(":")
        task = rest.rpartition(":")[0]
        result = await self.look(run_id)
        question = next((each for each in result.questions if each.id == question_id), None)
        if question is None:
            raise UnknownQuestion(question_id)
        if not question.accepts(text):
            choices = ", ".join(repr(choice) for choice in question.choices)
            raise UsageError(
                f"{text!r} does not answer question {question_id}; choose one of {choices}"
            )
        by = by or _me()
        shift = self._shift
        if shift is not None and shift.leads(run_id):
            now = self._clock.now()
            answered = QuestionAnswered(question=question_id, task=task, text=text, by=by, at=now)
            if await shift.propose(run_id, answered) is None:
                raise UnknownQuestion(question_id)
            return
        mail = answer_mail(run_id, AnswerMail(question_id, task, text, by))
        try:
            await self._journal.mail.post(mail)
        except KeyConflict:
            raise UnknownQuestion(question_id) from None

    # who takes part

    async def join(self, worker: Member) -> None:
        """Put another worker on the roster, at work or not; one that was drained is given work again.

        Runs under way that wait for its name or one of its skills go on with it.
        """
        shifts = self._shifts_here()
        is_back = self.roster.get(worker.name) is worker and worker.name in self._drained
        if not is_back:
            self.roster.join(worker)
        try:
            self._new_dispatch()  # refuses a bad capacity
            for shift in shifts:
                shift.join(worker)
        except BaseException:
            if not is_back:
                self.roster.leave(worker.name)
            raise
        self._drained.discard(worker.name)

    async def drain(self, name: str) -> None:
        """Give this worker nothing new; what it has, it may end. `join` takes it back."""
        self._member(name)
        for shift in self._shifts_here():
            shift.drain_worker(name)
        self._drained.add(name)

    async def leave(self, name: str, grace: timedelta = GRACE) -> None:
        """Take a worker off the roster: it may end what it has within `grace`; the rest is done anew.

        Returns when it is gone. Giving something back costs a task none of its attempts. Tasks that
        name this worker, or a skill that nobody else has, wait until somebody joins who can do them.
        """
        self._member(name)
        shifts = self._shifts_here()
        self.roster.leave(name)
        self._drained.discard(name)
        await asyncio.gather(*(shift.part(name, grace) for shift in shifts))

    def _member(self, name: str) -> Member:
        member = self.roster.get(name)
        if member is None:
            have = ", ".join(each.name for each in self.roster) or "nobody"
            raise UsageError(f"worker {name!r} is not on the roster ({have})")
        return member

    def _shifts_here(self) -> list[Shift]:
        shifts = [each for each in self._shifts if not (each.is_over or each.loop.is_closed())]
        for shift in shifts:
            self._refuse_other_loop(shift)
        return shifts

    # working

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
        return Board(self._journal, self._clock, which, author=_me(), role=LEADER, run=run)

    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        shift = self._shift
        if shift is not None:
            self._leave(shift)
            await shift.closed()
        await self.close()

    async def stop(self, grace: timedelta = GRACE) -> None:
        """Stop gently: start nothing new, give what runs `grace` to end, leave the rest resumable."""
        shift = self._shift
        if shift is not None:
            await shift.drain(grace)

    async def close(self) -> None:
        """Let go of the journal, if this supervisor opened it. `async with` does it at its end."""
        await self._send_notices()
        if self._path is not None:
            self._is_closed = True
            await self._journal.close()

    def result_of(self, run_id: str, led: Led, shape: object = None) -> RunResult:
        return RunResult(run_id, led, self._reading, shape)

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

    async def _begin(
        self,
        shift: Shift,
        request: str | Plan,
        terms: Terms,
        origin: Origin | None = None,
        above: Account | None = None,
    ) -> tuple[Run, Awaitable[object]]:
        """Start a run, or join the one that has its key; also what to await for it to be durable."""
        requested, plan = await self._request(request, terms, origin)
        run_id, shape = requested.run, terms.get("output")
        key = terms.get("key") or (origin.run if origin is not None else "")
        if not key:
            leading = await shift.begin(requested, plan)
            assert leading is not None  # noqa: S101 - for the type checker: a new id is nobody's
            return Run(run_id, self, leading.ending, shape), leading.written
        async with shift.claim(run_id):
            if not await is_known(self._journal, requested, plan, key):
                leading = await shift.begin(requested, plan, may_exist=True, above=above)
                if leading is not None:
                    await leading.written  # by then the next caller with this key finds the run
                    return Run(run_id, self, leading.ending, shape), leading.written
                await is_known(self._journal, requested, plan, key)  # another process was faster
        return await self._rejoin(shift, run_id, accept=False, above=above)

    async def _rejoin(
        self, shift: Shift, run_id: str, *, accept: bool, above: Account | None = None
    ) -> tuple[Run, Awaitable[object]]:
        """Wait for a run that is led here, lead one that was left, or read one that has ended."""
        async with shift.claim(run_id):
            if shift.leads(run_id):
                return Run(run_id, self, shift.ending(run_id)), shift.written_already()
            led = await fold(self._journal, run_id, self._retry)
            if led.schedule.status is not None:
                ending: asyncio.Future[Led] = shift.loop.create_future()
                ending.set_result(led)
                return Run(run_id, self, ending), shift.written_already()
            leading = await shift.take_over(
                run_id, lambda led: self._check_roster(led, accept=accept), above
            )
        return Run(run_id, self, leading.ending), leading.written

    async def _request(
        self, request: str | Plan, terms: Terms, origin: Origin | None = None
    ) -> tuple[RunRequested, Plan | None]:
        after = terms.get("after")
        if after:
            origin = Origin(earlier=await self._earlier(after))
        paces = await self._experience.paces(self._journal)
        return self._intake.accept(request, terms, paces, origin or Origin())

    async def _earlier(self, run_id: str) -> Value:
        """What a request that goes on from this run is to know of it."""
        result = await self.look(run_id)
        if not isinstance(result.status, RunStatus):
            raise UsageError(f"run {run_id} has not ended; wait for it, or resume it first")
        return await asyncio.to_thread(earlier_of, result)

    def _check_roster(self, led: Led, *, accept: bool) -> None:
        schedule = led.schedule
        unsettled = [node.task for node in schedule.nodes.values() if not node.state.is_settled]
        lacking = self.roster.lacks(task for task in unsettled if not is_duty(task.id))
        if lacking:
            raise RosterMismatch(
                f"the run needs {', '.join(lacking)}, which this supervisor has not"
            )
        requested = schedule.requested
        if requested is not None and requested.answers and not self._office.has_model:
            raise RosterMismatch("the run was begun with a model; Supervisor(…, model=…) to go on")
        if requested is not None and requested.crew != self.roster.digest and not accept:
            raise RosterMismatch(
                "the roster has changed since the run began: names, descriptions or skills differ; "
                "resume(…, accept=True) goes on with the new one"
            )

    def _cancellation(self, by: str, reason: str) -> CancelRequested:
        return CancelRequested(by=by, reason=reason, at=self._clock.now())

    # as a worker

    def version(self, office: Office) -> str:  # noqa: ARG002 - as all members of a roster
        """None: what a run of its own comes to is not for others to take over."""
        return ""

    def refuse_unpriced(self, office: Office) -> None:
        """Raise `UsageError` if a cap on money above could not be kept here."""
        below = self._office.below(office)
        Intake(self.roster, below, self.limits, self._clock).refuse_unpriced()

    def work(self, office: Office) -> Callable[[Brief], Awaitable[Outcome]]:
        """What an attempt of this supervisor is on another's roster: a run of its own, on that one's journal."""
        deputy: Supervisor | None = None

        async def perform(brief: Brief) -> Outcome:
            nonlocal deputy
            if deputy is None:
                deputy = self._deputy(office, brief)
            return await deputy.lead_for(brief)

        return perform

    def _deputy(self, office: Office, brief: Brief) -> "Supervisor":
        """This supervisor as it works below another: on the same journal, through the same switchboard."""
        deputy = copy.copy(self)
        deputy._office = self._office.below(office)
        if brief.host is not None:
            deputy._clock = cast("Clock", brief.host.clock)
            if self._path is None:
                deputy._journal = cast("Journal", brief.host.journal)
        deputy._hooks = dict(self._hooks)
        deputy._notices = None  # whoever is above waits for what is to be sent, at its very end
        deputy._intake = Intake(self.roster, deputy._office, self.limits, deputy._clock)
        deputy._shift, deputy._users = None, 0
        return deputy

    async def lead_for(self, brief: Brief) -> Outcome:
        """Lead the run that a task of another supervisor asks for, or go on with it."""
        try:
            origin = origin_of(brief, self.name)
        except UsageError as error:
            return Failed(kind=ErrorClass.DENIED, message=str(error), error="TooDeep")
        request = self._plan_for(brief)

        async def run(_: str) -> Done:
            result = await self._lead_nested(request, brief, origin)
            return Done(Value.of(result.id), result.usage)

        identity = [self.name, request, brief.tries]
        about = {"run": origin.run}
        await brief.durable(NESTED, identity, run, effect=Effect.KEYED, about=about)
        return outcome_from(await self.look(origin.run), self.name, brief.taint)

    async def _lead_nested(self, request: str | Plan, brief: Brief, origin: Origin) -> RunResult:
        async with self._on_shift() as shift:
            if brief.host is not None:
                brief.host.take_in(shift)
            terms = terms_for(brief, self.limits, self._clock.now())
            try:
                run, _ = await self._begin(shift, request, terms, origin, _account_above(brief))
                return await run.wait()
            except (RunInterrupted, UsageError) as error:
                if not shift.desk.is_draining:
                    raise
                raise Fenced(str(error)) from error  # to be resumed with the run above
            except asyncio.CancelledError:
                if shift.leads(origin.run):
                    return await self._end_nested(brief, shift, origin.run)
                raise

    async def _end_nested(self, brief: Brief, shift: Shift, run_id: str) -> RunResult:
        """The task above was told to stop: so is this run, in the same way. Returns what came of it."""
        ending = shift.ending(run_id)
        host = brief.host
        if host is not None and (brief.is_preempted or host.is_leaving(brief.run)):
            await asyncio.shield(shift.let_go(run_id))  # to whoever goes on with the task above
            raise Fenced("the task above is led no longer")
        if host is not None and host.is_winding_up(brief.run):
            await asyncio.shield(self.answer_now(run_id, f"task {brief.task.id} had to end"))
            await asyncio.wait([ending], timeout=brief.limits.grace.total_seconds())
        if not ending.done():
            await asyncio.shield(self.cancel(run_id, f"task {brief.task.id} was stopped"))
        return self.result_of(run_id, await asyncio.shield(ending))

    # shifts

    @asynccontextmanager
    async def _on_shift(self) -> AsyncIterator[Shift]:
        shift = await self._enter()
        try:
            yield shift
        finally:
            self._leave(shift)
            if not self._users:
                await shift.closed()
                await self._send_notices()

    async def _enter(self) -> Shift:
        shift = self._shift
        if shift is not None:
            self._refuse_other_loop(shift)
        else:
            from chargehand.engines.target import refuse_while_loading

            refuse_while_loading()
            shift = self._shift = Shift(
                Desk(self._new_dispatch(), self._retry),
                self._journal,
                self.roster,
                self._office,
                self._clock,
                self._hooks,
            )
            self._shifts.add(shift)
        self._users += 1
        return shift

    def _refuse_other_loop(self, shift: Shift) -> None:
        if shift.loop is not asyncio.get_running_loop():
            raise WrongLoop(
                "this supervisor is at work in another event loop; "
                "await it there, or make a second supervisor on the same journal"
            )

    async def _send_notices(self) -> None:
        """Let notices that are under way be sent before the event loop may end, for a few seconds."""
        if self._notices is not None:
            await self._notices.settle()

    def _leave(self, shift: Shift) -> None:
        self._users -= 1
        if not self._users:
            self._shift = None
            shift.close()

    def _new_dispatch(self) -> Dispatch:
        dispatch = Dispatch(self._parallel, self._balance, self._breaker)
        for worker in self.roster:
            dispatch.join(worker.place)
            if worker.name in self._drained:
                dispatch.drain(worker.name)
        return dispatch

    # without an event loop

    def _wait_sync(self, future: "Future[RunResult]") -> RunResult:
        with counting_signals(self._interrupted):
            return future.result()

    def _interrupted(self, times: int) -> None:
        if times == 1:
            log.warning("interrupted; nothing new is started. Interrupt again to cancel")
            run_in_background(self.stop())
        elif times == 2:
            log.warning("interrupted twice; cancelling")
            run_in_background(self._cancel_all())
        else:
            raise KeyboardInterrupt

    async def _cancel_all(self) -> None:
        shift = self._shift
        if shift is not None:
            for run in list(shift.desk.runs):
                await shift.propose(run, self._cancellation(_me(), "interrupted twice"))


def _account_above(brief: Brief) -> Account | None:
    """What a run for this task spends counts there too, as it spends it."""
    host = brief.host
    account = None if host is None else cast("Account | None", host.account_of(brief.run))
    if account is not None:
        account.link(brief.task.id)
    return account


def _me() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
