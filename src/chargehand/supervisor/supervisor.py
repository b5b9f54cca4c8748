"""The supervisor: takes requests, leads runs, returns results. What users hold in their hands."""

import asyncio
import contextlib
import inspect
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar, Unpack, overload

import msgspec
from msgspec.structs import replace

from chargehand.clock import Clock, SystemClock
from chargehand.decisions.circuit_breaker import BreakerPolicy
from chargehand.decisions.dispatch import Balance, Place, Starts, WorkerLoad
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.run_fork import ForkChanges, ForkPlan
from chargehand.decisions.task_graph import TaskState
from chargehand.engines.brief import Brief
from chargehand.engines.text_streams import TextStreams, with_pieces
from chargehand.errors import EffectsWouldRepeat, JournalError, UnknownQuestion, UsageError
from chargehand.facts.answer import AnswerPiece, TaskPiece
from chargehand.facts.argument_checks import (
    FUNCTION,
    Duration,
    arguments_checked,
    duration,
    instance,
    shown,
    why_uncallable,
)
from chargehand.facts.argument_checks import name as checked_name
from chargehand.facts.events import KINDS, Event, Pace, RunFinished
from chargehand.facts.failure_policy import OnFailure, on_failure_of
from chargehand.facts.limits import Limits
from chargehand.facts.on_question import Asking, OnQuestion
from chargehand.facts.outcome import Outcome, QuestionId
from chargehand.facts.plan import Plan, Reach, Task
from chargehand.facts.retention import Retention
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.journal.base import Journal
from chargehand.notify.base import Notify
from chargehand.notify.run_notices import RunNotices
from chargehand.past_runs import JournalHandle, is_known
from chargehand.result import RunResult
from chargehand.roles.function_worker import Where
from chargehand.roles.roster import Member, Roster
from chargehand.roles.shared_resources import ModelChoice, Resources
from chargehand.roles.system_task_context import SystemTask
from chargehand.runtime import Runtime
from chargehand.runtime.command_inbox import submit_mail
from chargehand.supervisor.config import RunDefaults, SupervisorConfig
from chargehand.supervisor.crew_offers import CrewOffer, peers_of
from chargehand.supervisor.nested_requests import request_from
from chargehand.supervisor.nested_supervisor import work_below
from chargehand.supervisor.periodic_prune import pruning
from chargehand.supervisor.requests import QuestionPolicy, RequestBuilder, RunOptions
from chargehand.supervisor.run_control import Run, RunControl
from chargehand.supervisor.run_start import RunStart
from chargehand.supervisor.shared_runtime import GRACE
from chargehand.supervisor.standby import Standby
from chargehand.supervisor.worker_membership import PoolOptions, WorkerPool
from chargehand.sync_async_bridge import in_thread, wait_in_background

if TYPE_CHECKING:
    from chargehand.models.base import Model, ModelSettings
    from chargehand.models.gateway import ModelGateway
    from chargehand.models.provider_queue import ProviderLoad
    from chargehand.roles.board import Board
    from chargehand.roles.coordinator import Coordinator

log = logging.getLogger("chargehand")

__all__ = ["Run", "Supervisor"]
E = TypeVar("E", bound=Event)
HookFor: TypeAlias = Callable[[str, E], object]


class Supervisor:
    """Runs requests and plans with a roster of workers, embedded in this process.

    `journal` is a path for a durable journal, or None for one in memory. `parallel` is the
    number of attempts at once across all runs, fixed or `Elastic`; `starts` is the start rate,
    and `breaker` says when a worker that keeps failing gets no tasks for a while. `model` plans
    and answers (with `settings`, and the prompts in `prompts`) and serves workers without a
    model of their own. `deps` is passed to their tools, `secrets` to the tools of workers that
    are granted them by name. `notify` says how people are notified of questions: "log",
    "webhook:https://…", "command:…" or several. `on_question` says what happens when only a
    person can continue: "wait", "return", "supervisor", "fail". `default` is the worker for a
    request that fits no other when routing. One supervisor works in one event loop at a time;
    `run_sync` needs none.

    A supervisor is also a worker: on the roster of another one, by its `name` and
    `description`, it starts a run of its own for each task, from the task's description or from
    what `plan_for` returns.
    """

    where = Where.HERE
    skills: tuple[str, ...] = ()
    timeout: timedelta | None = None
    #: plans in place of a model; a subclass sets its own before it calls `__init__`
    planner: SystemTask | None = None
    #: looks at runs and changes their course; the methods of this name here go through it
    control: RunControl

    @arguments_checked(
        limits=Limits,
        gateway="ModelGateway",
        settings="ModelSettings",
        retry=RetryPolicy,
        breaker=BreakerPolicy,
        starts=Starts,
        clock=Clock,
        description=str,
        default=str,
        plan_for=FUNCTION,
        retention=Retention,
    )
    def __init__(
        self,
        workers: Sequence[Member],
        *,
        journal: str | os.PathLike[str] | Journal | None = None,
        limits: Limits | None = None,
        parallel: int | Elastic | None = None,
        balance: Balance | str = Balance.LEAST_BUSY,
        model: "ModelChoice | None" = None,
        gateway: "ModelGateway | None" = None,
        deps: object = None,
        secrets: Mapping[str, str] | None = None,
        settings: "ModelSettings | None" = None,
        prompts: str | Path | None = None,
        retry: RetryPolicy | None = None,
        on_failure: OnFailure | Sequence[str] | None = None,
        breaker: BreakerPolicy | None = None,
        starts: Starts | None = None,
        clock: Clock | None = None,
        name: str = "supervisor",
        description: str = "",
        capacity: int | Elastic | None = None,
        plan_for: "Callable[[Brief], Plan | str] | None" = None,
        notify: Notify = (),
        on_question: OnQuestion | str | None = None,
        default: str = "",
        retention: Retention | None = None,
    ) -> None:
        self.name = checked_name(name, "the name of a supervisor")
        self.place = Place(worker=name, capacity=capacity)
        self.limits = limits = limits or Limits()
        self._plan_for = plan_for or request_from
        self._questions = QuestionPolicy(on_question)
        self._retention = retention
        most = limits.parallel if parallel is None else parallel
        options = PoolOptions(parallel=most, balance=balance, breaker=breaker, starts=starts)
        policy = on_failure_of(on_failure)
        runs = RunDefaults(
            limits=limits, retry=retry, on_failure=policy, default=default, planner=self.planner
        )
        resources = Resources(
            model, gateway=gateway, deps=deps, secrets=secrets, settings=settings, prompts=prompts
        )
        resources.notices = RunNotices(notify) if notify else None
        roster = Roster(workers)
        roster.check_secrets(resources)
        self._config = SupervisorConfig(
            workers=WorkerPool(roster, options),
            resources=resources,
            # Without workers it leads no run: it may still be there to look at those of others.
            journal=JournalHandle(journal, may_be_read_only=not list(roster)),
            clock=clock or SystemClock(),
            runs=runs,
        )
        self.description = description or f"Leads {', '.join(w.name for w in self.roster)}"
        self._start = start = RunStart(self._config)
        self._runtimes, self.control = start.runtimes, start.control

    @property
    def roster(self) -> Roster:
        """The workers that its plans may name."""
        return self._config.workers.roster

    async def run(self, request: str | Plan, **terms: Unpack[RunOptions]) -> RunResult:
        """Run a request in plain language or a plan, and return the result.

        Failures of tasks are values, not exceptions. Cancelling this call cancels the run.
        """
        async with self._runtimes.at_work() as runtime:
            run, _ = await self._start.begin(runtime, request, terms, asking=self._asking(terms))
            return await self._wait_or_cancel(run)

    async def _wait_or_cancel(self, run: Run) -> RunResult:
        try:
            return await run.wait()
        except asyncio.CancelledError:
            await asyncio.shield(self.cancel(run.id, "its caller was cancelled"))
            raise

    def run_sync(self, request: str | Plan, **terms: Unpack[RunOptions]) -> RunResult:
        """`run` for callers without an event loop, and for notebooks, whose loop is in use.

        Ctrl-C once stops gently: nothing new starts, running attempts may finish, and
        `RunInterrupted` says how to resume. Twice cancels the run.
        """
        return self.control.wait_sync(self.run(request, **terms))

    async def plan(self, request: str, **terms: Unpack[RunOptions]) -> Plan:
        """Write the plan that `run` would carry out for this request, so that you can read, edit, save and run it later."""
        return await self._start.plan(request, terms)

    @overload
    def stream(
        self, request: str | Plan, *, tokens: Literal[False] = False, **terms: Unpack[RunOptions]
    ) -> AsyncIterator[Event | AnswerPiece]: ...

    @overload
    def stream(
        self, request: str | Plan, *, tokens: bool, **terms: Unpack[RunOptions]
    ) -> AsyncIterator[Event | AnswerPiece | TaskPiece]: ...

    async def stream(
        self, request: str | Plan, *, tokens: bool = False, **terms: Unpack[RunOptions]
    ) -> AsyncIterator[Event | AnswerPiece | TaskPiece]:
        """Stream everything that happens to a run, each event once it is durable, from first to last.

        If a model composes the answer, its pieces are streamed as they are written. The
        pieces since the last one with `begins_anew` are the answer, even if rules composed
        it in the end. With `tokens`, what models write for tasks is streamed as well, as
        `TaskPiece`s; a slow reader misses some of them. A run with a known key is streamed
        from its beginning, whether it has ended or not. Leaving the loop cancels the run.
        """
        instance(tokens, "boss.stream: tokens", bool)
        said = ""
        async with self._runtimes.at_work() as runtime:
            run, _ = await self._start.begin(runtime, request, terms, asking=self._asking(terms))
            queue = (
                runtime.runs.listen(run.id, tokens=tokens) if runtime.runs.leads(run.id) else None
            )
            before = None if queue is None else runtime.runs.told(run.id)
            try:
                async for told in self._history(run.id, before):
                    yield told
                while queue is not None and (heard := await queue.get()) is not None:
                    if isinstance(heard, AnswerPiece):
                        said = heard.text if heard.begins_anew else said + heard.text
                    elif isinstance(heard, RunFinished):
                        rest = await _unsaid(await run.wait(), said, heard.at)
                        if rest is not None:
                            yield rest
                    yield heard
                await run.wait()  # raises what broke the run off, if something did
            except (asyncio.CancelledError, GeneratorExit):
                await asyncio.shield(self.cancel(run.id, "its caller was cancelled"))
                raise

    @property
    def text_streams(self) -> TextStreams:
        """The text of models while they write it, in the runs that this supervisor leads and in their nested runs."""
        return self._config.text_streams

    async def _history(self, run_id: str, most: int | None) -> AsyncIterator[Event]:
        """The first events of a run, so many or all."""
        if most == 0:
            return
        async for entry in self.journal.read(run_id):
            yield entry.event
            if entry.seq == most:
                return

    async def submit(self, request: str | Plan, **terms: Unpack[RunOptions]) -> Run:
        """Start a run and return at once. The run is durable when this returns; `run.wait()` waits for its end."""
        async with self._runtimes.at_work() as runtime:
            asking = self._asking(terms, is_submitted=True)
            run, written = await self._start.begin(runtime, request, terms, asking=asking)
            self._runtimes.enter()  # it stays on until this run has ended
            run.when_ended(self._runtimes.leave)
            await written  # directly: who watches next is to hear the first attempt begin
            run.refuse_broken()
            return run

    async def resume(
        self,
        run_id: str,
        *,
        accept: bool = False,
        on_question: OnQuestion | str | None = None,
        output: Any = None,
    ) -> RunResult:
        """Continue an interrupted run; for a finished one, return its result again.

        `output` is the type that the run was started with, which the journal does not hold:
        without it `result.output` is plain data. If the roster has changed, the run continues
        only with `accept`; otherwise, `RosterMismatch` says what changed. Raises `NotLeading`
        while another live process leads the run.
        """
        async with self._runtimes.at_work() as runtime:
            asking = replace(self._asking(RunOptions(on_question=on_question)), accepts=accept)
            run, _ = await self._start.rejoin(
                runtime, run_id, accept=accept, asking=asking, shape=output
            )
            return await run.wait()

    async def fork_plan(
        self,
        run_id: str,
        *,
        at: int | None = None,
        plan: Plan | None = None,
        tasks: Sequence[Task] = (),
        redo: Sequence[str] = (),
        instruction: str | None = None,
    ) -> ForkPlan:
        """What `fork` with these changes would keep, and what it would run again and why. Starts nothing."""
        changes = ForkChanges(plan=plan, tasks=tasks, redo=redo, instruction=instruction)
        return await self._start.fork_plan(run_id, at, changes)

    async def fork(
        self,
        run_id: str,
        *,
        at: int | None = None,
        plan: Plan | None = None,
        tasks: Sequence[Task] = (),
        redo: Sequence[str] = (),
        instruction: str | None = None,
        repeat_effects: bool = False,
        **terms: Unpack[RunOptions],
    ) -> RunResult:
        """Start a new run from event `at` of a recorded run (default: its last event), with changes; wait for its end.

        Tasks that were done by then keep their results, unless they, their workers (only without `at`) or what
        they need has changed. `tasks` replaces tasks with the same ids, `redo` runs tasks again, `plan` replaces
        the whole plan. Limits, priority and output type are inherited. Raises `EffectsWouldRepeat` if steps that
        changed something outside would be repeated, unless `repeat_effects`.
        """
        async with self._runtimes.at_work() as runtime:
            changes = ForkChanges(plan=plan, tasks=tasks, redo=redo, instruction=instruction)
            fork = await self._start.fork_plan(run_id, at, changes)
            if fork.effects and not repeat_effects:
                raise EffectsWouldRepeat(run_id, fork.effects)
            run, _ = await self._start.fork(runtime, fork, terms, self._asking(terms))
            return await self._wait_or_cancel(run)

    def resume_sync(
        self,
        run_id: str,
        *,
        accept: bool = False,
        on_question: OnQuestion | str | None = None,
        output: Any = None,
    ) -> RunResult:
        """`resume` for callers without an event loop."""
        resumed = self.resume(run_id, accept=accept, on_question=on_question, output=output)
        return self.control.wait_sync(resumed)

    def answer_sync(self, question_id: str, text: str, *, by: str = "") -> None:
        """`answer` for callers without an event loop."""
        wait_in_background(self.answer(question_id, text, by=by))

    async def post(self, request: str | Plan, **terms: Unpack[RunOptions]) -> str:
        """Post a run for any process on this journal that has the workers for it; returns the id of the run.

        A supervisor takes such runs while it is open: `async with boss:` keeps it open. Until then the status of
        the run is `submitted`. A run with a known key is not posted a second time. Raises `UsageError` if the
        journal is in the memory of a supervisor that is not open, because no other process could take the run.
        """
        if self._config.journal.is_private and not self._runtimes.is_entered:
            raise UsageError(
                "no other process can take a run from a journal in memory; give journal='runs.db', "
                "or post it inside async with boss"
            )
        requested, plan = await self._start.request(request, terms)
        key = terms.get("key")
        if not key or not await is_known(self.journal, requested, plan, key):
            await self.journal.mail.post(submit_mail(requested, plan))
        return requested.run

    @property
    def journal(self) -> Journal:
        """The journal that its runs are stored in."""
        return self._config.journal.current

    @property
    def is_kept(self) -> bool:
        """Whether its runs outlive this process."""
        return self._config.journal.path is not None

    @property
    def kept_in(self) -> str:
        """The path or DSN of the journal that it opened itself; empty if it was given a journal object or none."""
        path = self._config.journal.path
        return "" if path is None else os.fspath(path)

    @property
    def has_model(self) -> bool:
        """Whether it has a model of its own, to plan, compose answers and answer delegated questions."""
        return self._config.resources.has_model

    def check_model(self) -> None:
        """Raise `UsageError` or `ModelDenied` if its own model cannot be opened: a wrong name, no key. Nothing is sent."""
        self._config.resources.check_openable()

    def keep_in(self, journal: str | os.PathLike[str]) -> None:
        """Store runs in this file from now on."""
        if self._runtimes.current is not None:
            raise UsageError("this supervisor is running; set the journal before the first run")
        self._config.journal.move(journal)

    def notify_also(self, notify: Notify) -> None:
        """Add notifiers to those that the supervisor was created with."""
        if self._runtimes.current is not None:
            raise UsageError("this supervisor is running; add notifiers before the first run")
        resources = self._config.resources
        if resources.notices is None:
            resources.notices = RunNotices(notify)
        else:
            resources.notices.add(notify)

    def replace_models(self, stand_in: "Callable[[str | Model], Model]") -> None:
        """Replace every model by what `stand_in` returns for it, including those of workers and nested supervisors."""
        if self._runtimes.current is not None:
            raise UsageError("this supervisor is running; replace its models before the first run")
        self._config.resources.stand_in = stand_in

    def on(self, *kinds: type[E]) -> "Callable[[HookFor[E]], HookFor[E]]":
        """Register a function that is called with the id of the run and the event once such an event is durable.

        `@boss.on(ch.events.TaskFailed)`. It is called on the event loop and must not block;
        an exception in it is logged and changes nothing.
        """

        if not kinds:
            raise UsageError("boss.on: name at least one kind of event; see chargehand.Event")
        for kind in kinds:
            if not any(kind is each for each in KINDS.values()):
                raise UsageError(
                    f"boss.on: {shown(kind)} is not a kind of event; see chargehand.Event"
                )

        def hooked(hook: HookFor[E]) -> HookFor[E]:
            _check_hook(hook)
            for kind in kinds:
                self._config.hooks.setdefault(kind, []).append(hook)
            return hook

        return hooked

    async def join(self, worker: Member) -> None:
        """Add a worker to the roster, at any time; a drained worker gets work again.

        Open runs that wait for its name or one of its skills continue with it.
        """
        secrets = getattr(worker, "secrets", ())
        self._config.resources.granted(getattr(worker, "name", ""), secrets)
        self._config.workers.join(worker)

    async def drain(self, name: str) -> None:
        """Give this worker nothing new; it may finish what it has. `join` takes it back."""
        self._config.workers.drain(name)

    async def leave(self, name: str, grace: Duration = GRACE) -> None:
        """Remove a worker: it may finish its attempts within `grace`; other workers redo the rest.

        Returns when it is gone. This costs a task none of its tries. Tasks that name this
        worker, or a skill that no other worker has, wait until a suitable worker joins.
        """
        within = duration(grace, "grace", may_be_zero=True)
        await self._config.workers.leave(name, within)

    async def paces(self) -> Mapping[str, Pace]:
        """For each worker: how long its attempts took in past runs."""
        return await self._config.paces.paces(self.journal)

    async def reach(self) -> Mapping[str, Reach]:
        """For each worker: the files and tables that it can reach now, for `plan.check(reach=…)`."""
        from chargehand.roles.crew_data_catalog import reach_of

        return await reach_of(self.roster, self._config.resources.redactor)

    @property
    def journal_error(self) -> JournalError | None:
        """Why the journal cannot be written to at the moment; None if it can, or if there was nothing to write."""
        runtime = self._runtimes.current
        return None if runtime is None else runtime.journal_error

    def worker_loads(self) -> list[WorkerLoad]:
        """The current work of each worker in this process."""
        runtime = self._runtimes.current
        dispatch = (
            self._config.workers.new_dispatch() if runtime is None else runtime.kernel.dispatch
        )
        return dispatch.loads()

    def provider_loads(self) -> "list[ProviderLoad]":
        """For each model provider that this process has called: the calls in progress and the calls that are waiting."""
        return self._config.resources.provider_loads()

    async def look(self, run_id: str) -> RunResult:
        """The current state of a run, whichever process leads it, and what each of its tasks waits for."""
        return await self.control.look(run_id)

    async def cancel(self, run_id: str, reason: str = "", *, by: str = "") -> None:
        """Cancel a run. Cancelling twice, or cancelling a finished run, changes nothing.

        If another process leads the run, that process cancels it; if none does, it is
        cancelled here. `by` is the person who wants it, here and below; by default the user of this
        process.
        """
        await self.control.cancel(run_id, reason, by=by)

    async def answer_now(self, run_id: str, reason: str = "answer now", *, by: str = "") -> None:
        """Stop the work of a run and compose its answer from the results so far."""
        await self.control.answer_now(run_id, reason, by=by)

    async def change_budget(
        self,
        run_id: str,
        *,
        money: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
        by: str = "",
    ) -> None:
        """Raise or lower the budget of a run, whichever process leads it; caps that are not named do not change.

        It applies to all later reservations. Raises `UsageError` if no cap is named, for a run
        without a budget or a finished one, and for a cap on money if the price of a model is
        unknown; a run that was stopped over budget is not continued.
        """
        await self.control.change_budget(run_id, money=money, tokens=tokens, calls=calls, by=by)

    async def pause(self, run_id: str, reason: str = "", *, by: str = "") -> None:
        """Start nothing new in a run, and in the runs nested in it, until `unpause`.

        Running attempts stop at their next step and continue from there later, without
        repeating a step; an attempt without steps runs to its end. Active time does not
        advance, deadlines do. A run stays paused after a restart. Pausing twice, or pausing
        a finished run, changes nothing.
        """
        await self.control.pause(run_id, reason, by=by)

    async def unpause(self, run_id: str, *, by: str = "") -> None:
        """Continue a paused run, whichever process leads it. A run that is not paused is left as it is."""
        await self.control.unpause(run_id, by=by)

    async def steer(self, run_id: str, note: str, *, key: str = "", by: str = "") -> None:
        """Have a model change the unfinished part of a run's plan as the note says.

        The note is also passed to the model that composes the answer. With a `key`, sending
        the note again to a run that another process leads changes nothing. Raises `UsageError` if
        nothing can be changed any more, or if the supervisor that leads the run has no model.
        """
        await self.control.steer(run_id, note, key=key, by=by)

    async def change_plan(
        self, run_id: str, plan: Plan, *, version: int, reason: str = ""
    ) -> dict[str, str]:
        """Replace the unstarted part of a run's plan, whichever process leads it.

        `version` is that of the plan that was edited; raises `PlanChanged` if the plan has a newer version, and
        `PlanRefused` with all faults. A task that changed, and those that need it, get new ids: returns
        them by their old ids.
        """
        edit = await self.control.change_plan(
            run_id, plan, version=version, roster=self.roster, reason=reason
        )
        return edit.renamed

    async def answer(self, question_id: str, text: str, *, by: str = "") -> None:
        """Answer a question of a run, whichever process leads it. The first valid answer counts.

        Raises `QuestionTaken` if it is already answered, with who answered and what;
        `UnknownQuestion` if it is not open for another reason; `UsageError` if the text is
        not one of its choices.
        """
        await self.control.answer(question_id, text, by=by)

    async def delegate(self, question_id: str) -> str:
        """Have the supervisor's model answer a plain question of a run; returns the answer.

        Raises `UsageError` for an approval or another question that is for people, and if
        there is no model or the model cannot answer.
        """
        run_id, task_id, _ = QuestionId.checked(question_id)
        result = await self.look(run_id)
        question = next((each for each in result.questions if each.id == question_id), None)
        if question is None:
            raise await self.why_closed(question_id)
        resources = self._config.resources
        if question.about != "plain":
            raise UsageError(f"this is a question of {question.about}; a person must answer it")
        if not self.has_model:
            raise UsageError("this supervisor has no model that could answer; type an answer")
        from chargehand.roles.durable_model_calls import (
            PlainModelCaller,  # here, since few ask for it
        )
        from chargehand.roles.question_answerer import model_answer

        task = result.tasks.get(task_id)
        about = result.request if task is None else task.task.description
        text = await model_answer(PlainModelCaller(resources), about, question)
        if text is None:
            raise UsageError("the supervisor's model cannot answer this; type an answer")
        await self.answer(question_id, text, by=self.name)
        return text

    async def why_closed(self, question_id: str) -> UnknownQuestion:
        """The error that says why a question is not open: it was answered (by whom), its run ended, or the id is unknown."""
        return await self.control.why_closed(question_id)

    def board(self, name: str = "", *, run: str = "") -> "Board":
        """The board with this name, shared by all users of this journal; or the board of a run.

        On the board of a run, the events of the run can be read as notes. It is opened in
        the supervisor's role, which may read and write every block.
        """
        return self.control.board(name, run=run)

    def coordinator(
        self,
        *,
        boards: Sequence[str] = (),
        patience: Duration | None = None,
        recent: Duration | None = None,
    ) -> "Coordinator":
        """A read-only monitor of all runs and boards of this journal.

        It reports progress, health and conflicts. `boards` names boards to read in addition to
        those of runs; an attempt that is silent for longer than `patience` counts as stuck;
        `recent` leaves out runs that ended longer ago.
        """
        return self.control.coordinator(boards=boards, patience=patience, recent=recent)

    def offer(self, source: Mapping[str, Any] | None = None) -> CrewOffer:
        """What this supervisor can do, for comparison with a supervisor that serves."""
        config = self._config
        return CrewOffer(
            crew=self.roster.digest,
            names=tuple(sorted(self.roster.names)),
            members=self.roster.members(config.resources),
            models=config.resources.model_names,
            source=dict(source or {}),
            since=config.clock.now(),
            beat=self.journal.processes.beat,
        )

    async def serve(
        self,
        *,
        source: Mapping[str, Any] | None = None,
        retention: Retention | None = None,
        when_ready: Callable[[], None] | None = None,
    ) -> None:
        """Serve until `stop` is called: lead posted runs, and runs whose leader has died.

        Any number of supervisors may serve one journal. One of them leads a run; the others stand by, and take
        over the run if its leader stops. A run that another program released (Ctrl-C, an open question that was
        returned) waits until it is resumed. Cancelling this call has the effect of `stop(0)`: running attempts are
        stopped, and their runs are left to the others. `source` says where the crew comes from, as the command line
        does. Finished runs that `retention` (by default, that of the supervisor) excludes are deleted in the
        background. `when_ready` is called once
        other processes can see that this one serves. Raises `UsageError` for a journal in memory, which no
        other process can see.
        """
        if not self.is_kept and not getattr(self.journal, "path", ""):
            raise UsageError(
                "a journal in memory cannot be shared with other processes; give journal='runs.db'"
            )
        if retention is not None and not isinstance(retention, Retention):
            raise UsageError(f"retention={shown(retention)} must be a Retention(…)")
        processes, offer = self.journal.processes, msgspec.json.encode(self.offer(source)).decode()
        self._runtimes.open()
        try:
            runtime = self._runtimes.enter()
            runtime.runs.is_serving = True
            runtime.find_peers = partial(peers_of, self.journal, self.roster.digest)
            try:
                await processes.serve(offer)
                if when_ready is not None:
                    when_ready()
                async with pruning(self.journal, retention or self._retention, self._config.clock):
                    await Standby(self.journal, self._start, self._config.clock).watch(runtime)
                    await self._withdraw()
                    await runtime.drained.wait()
            except asyncio.CancelledError:
                await asyncio.shield(self._stop_serving(runtime))
                raise
            finally:
                self._runtimes.leave()
        finally:
            await self._runtimes.exit()

    async def _stop_serving(self, runtime: Runtime) -> None:
        """Hand everything over at once."""
        await runtime.drain(timedelta())
        await self._withdraw()

    async def _withdraw(self) -> None:
        with contextlib.suppress(JournalError):  # others see its lease end
            await self.journal.processes.withdraw()

    @overload
    def watch(self, run_id: str, *, tokens: Literal[False] = False) -> AsyncIterator[Event]: ...

    @overload
    def watch(
        self, run_id: str, *, tokens: bool
    ) -> AsyncIterator[Event | AnswerPiece | TaskPiece]: ...

    async def watch(
        self, run_id: str, *, tokens: bool = False
    ) -> AsyncIterator[Event | AnswerPiece | TaskPiece]:
        """Stream everything that happens to a run, whichever process leads it, from its first event to its last.

        With `tokens`, also the pieces of its answer and of what models write for its tasks,
        as they come from now on, if this supervisor leads the run. Leaving the loop changes
        nothing about the run.
        """
        instance(tokens, "boss.watch: tokens", bool)
        events = self.control.watch(run_id)
        if not tokens:
            async for event in events:
                yield event
            return
        with self.text_streams.reading(run_id, tokens=True) as pieces:
            async for heard in with_pieces(events, pieces):
                yield heard

    async def stop(self, grace: Duration = GRACE) -> None:
        """Stop gently: start nothing new, give running attempts `grace` to finish, leave the rest resumable."""
        await self._runtimes.stop(duration(grace, "grace", may_be_zero=True))

    async def close(self) -> None:
        """Interrupt runs that are in progress, to be resumed, and close the journal if this supervisor opened it.

        `async with` closes the supervisor at its end, after its runs have ended.
        """
        await self._runtimes.close()

    async def __aenter__(self) -> Self:
        self._runtimes.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        if error is not None:
            await self.stop()  # whatever waits for a person would keep the error from being heard
        await self._runtimes.exit()
        await self.close()

    # On the roster of another supervisor.

    def version(self, resources: Resources) -> str:  # noqa: ARG002 - as all members of a roster
        """Always empty: other runs do not reuse the results of its runs."""
        return ""

    def refuse_unpriced(self, resources: Resources) -> None:
        """Raise `UsageError` if this supervisor could not keep within a money limit from above."""
        config = self._config
        below = config.resources.below(resources)
        RequestBuilder(self.roster, below, config.clock, config.runs).refuse_unpriced()

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        """The function that runs an attempt of this supervisor: a run of its own, on the parent's journal."""
        return work_below(self.name, self._plan_for, self._config, resources)

    def _asking(self, terms: RunOptions, *, is_submitted: bool = False) -> Asking:
        is_served = self._runtimes.is_entered or self._config.resources.notices is not None
        return self._questions.asking(
            terms.get("on_question"),
            is_kept=bool(getattr(self.journal, "path", "")),
            is_there=is_submitted or is_served,
        )


async def _unsaid(result: RunResult, said: str, at: datetime) -> AnswerPiece | None:
    """What brings those who listened to the answer as it is; None if they have heard it."""
    if not said and not result.is_to_be_composed:
        return None
    is_empty = not any(task.state is TaskState.DONE for task in result.tasks.values())
    # Elsewhere, because parts of it may have to be read from the journal.
    text = "" if is_empty else await in_thread(lambda: result.answer.text)
    return None if text == said else AnswerPiece(text=text, begins_anew=bool(said), at=at)


def _check_hook(hook: object) -> None:
    """Refuse a hook that would fail at every event, or whose coroutine would never be awaited."""
    if not callable(hook):
        why: str | None = "it is no function"
    elif any(map(inspect.iscoroutinefunction, (hook, hook.__call__))):
        why = "it is async, and hooks are not awaited"
    else:
        why = why_uncallable(hook, "run", None)
    if why is not None:
        raise UsageError(
            f"boss.on: {shown(hook)} cannot be called with (run, event): {why}; "
            "give a plain function: def heard(run, event)"
        )
