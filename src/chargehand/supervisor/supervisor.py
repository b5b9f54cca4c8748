"""The supervisor: takes requests, leads runs, returns results. What users hold in their hands."""

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack
from weakref import WeakSet

from msgspec.structs import replace

from chargehand.background_loop import run_in_background, wait_in_background
from chargehand.clock import Clock, SystemClock
from chargehand.decisions.circuit_breaker import BreakerPolicy
from chargehand.decisions.dispatch import Balance, Place, Starts
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.retry import RetryPolicy
from chargehand.decisions.task_graph import TaskState
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.answer import AnswerPiece
from chargehand.facts.argument_checks import (
    FUNCTION,
    Duration,
    arguments_checked,
    duration,
    one_of,
    shown,
)
from chargehand.facts.argument_checks import name as checked_name
from chargehand.facts.events import KINDS, Event, RunFinished
from chargehand.facts.failure_policy import OnFailure, on_failure_of
from chargehand.facts.limits import Limits
from chargehand.facts.on_question import WAITING, Asking, OnQuestion, on_question_of
from chargehand.facts.output_schema import shape_of
from chargehand.facts.plan import Plan
from chargehand.interrupt_signals import counting_signals
from chargehand.journal.base import Journal
from chargehand.journal.open_journal import open_journal
from chargehand.notify.base import Notify
from chargehand.notify.run_notices import RunNotices
from chargehand.result import RunResult
from chargehand.roles.function_worker import Where
from chargehand.roles.resources import ModelChoice, Resources
from chargehand.roles.roster import Member, Roster
from chargehand.run_archive import PastPaces
from chargehand.runtime import Hooks, Runtime
from chargehand.runtime.command_inbox import submit_mail
from chargehand.supervisor.nested_runs import request_from
from chargehand.supervisor.requests import RequestBuilder, RunOptions
from chargehand.terminal import is_interactive

if TYPE_CHECKING:
    from chargehand.models.base import ModelSettings
    from chargehand.models.gateway import ModelGateway

from chargehand.supervisor.nested_supervisor import NestedSupervisor
from chargehand.supervisor.run import Run
from chargehand.supervisor.run_control import me
from chargehand.supervisor.runtimes import GRACE

log = logging.getLogger("chargehand")

__all__ = ["Run", "Supervisor"]
E = TypeVar("E", bound=Event)
HookFor: TypeAlias = Callable[[str, E], object]


class Supervisor(NestedSupervisor):
    """Leads runs over a roster of workers, embedded in this process.

    `journal` is a path for a durable journal, or None for one in memory. `parallel` is how many
    attempts run at once over all runs, fixed or `Elastic`, and `starts` how often one may begin; `breaker` says when
    a worker that keeps failing is left alone for a while. `model` is what the supervisor itself plans and answers with
    (as `settings` and the files in `prompts` say), and what workers use that name none of their own;
    `deps` reaches their tools, `secrets` those tools of workers that are granted them by name.
    `notify` says how people hear of questions: "log", "webhook:https://…", "command:…" or more, and
    `default` who gets a request that is clearly nobody's when routing,
    `on_question` what becomes of a run when only a person can go on: "wait", "return", "supervisor", "fail". One
    supervisor works in one event loop at a time; `run_sync` needs none.

    A supervisor is a worker too: on another's roster, by its `name` and `description`, it leads a run
    of its own for each task it gets, of the words of the task or of what `plan_for` makes of it.
    """

    where = Where.HERE
    skills: tuple[str, ...] = ()
    timeout: timedelta | None = None

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
    ) -> None:
        self.name = checked_name(name, "the name of a supervisor")
        self.place = Place(worker=name, capacity=capacity)
        self._plan_for = plan_for or request_from
        self.roster = Roster(workers)
        self.description = description or f"Leads {', '.join(w.name for w in self.roster)}"
        self.limits = limits or Limits()
        self._resources = Resources(
            model=model,
            gateway=gateway,
            deps=deps,
            secrets=secrets,
            settings=settings,
            prompts=prompts,
        )
        self._notices = self._resources.notices = RunNotices(notify) if notify else None
        self._default = default
        if default:
            self._member(default)  # refuses one who is not there
        self._on_question = on_question and on_question_of(on_question)
        self._parallel = self.limits.parallel if parallel is None else parallel
        self._balance = one_of(balance, Balance, "balance")
        self._retry = retry
        self._breaker = breaker
        self._starts = starts
        self._clock = clock or SystemClock()
        self._requests = RequestBuilder(
            self.roster, self._resources, self.limits, self._clock, on_failure_of(on_failure)
        )
        self._path = journal if isinstance(journal, (str, os.PathLike)) else None
        self._journal = open_journal(journal)
        self._is_closed = False
        self._is_entered = False
        if journal is None:
            log.info(
                "journal_in_memory; runs end with this process: pass journal='runs.db' to keep them"
            )
        self._hooks: Hooks = {}
        self._experience = PastPaces()
        self.on(RunFinished)(lambda _, event: self._experience.hear(event))
        self._runtime: Runtime | None = None
        #: this one, and those of what works below others in its name
        self._runtimes: WeakSet[Runtime] = WeakSet()
        self._drained: set[str] = set()
        self._users = 0
        self._new_dispatch()  # refuses bad capacities now, not when the first run starts

    async def run(self, request: str | Plan, **terms: Unpack[RunOptions]) -> RunResult:
        """Do what is asked, in words or as a plan, and return what came of it.

        Failures of tasks are values, not exceptions. Cancelling this call cancels the run.
        """
        async with self._at_work() as runtime:
            run, _ = await self._begin(runtime, request, terms, asking=self._asking(terms))
            try:
                return await run.wait()
            except asyncio.CancelledError:
                await asyncio.shield(self.cancel(run.id, "its caller was cancelled"))
                raise

    def run_sync(self, request: str | Plan, **terms: Unpack[RunOptions]) -> RunResult:
        """`run` for callers without an event loop, and for notebooks, whose loop is taken.

        Ctrl-C once stops gently: nothing new is started, what runs may end, and `RunInterrupted`
        says how to resume. Twice cancels the run.
        """
        return self._wait_sync(self.run(request, **terms))

    async def plan(self, request: str, **terms: Unpack[RunOptions]) -> Plan:
        """The plan that `run` would carry out for this request: to be read, edited, saved and run later."""
        from chargehand.roles.model_calls import PlainModelCaller
        from chargehand.roles.planner import write_plan

        checked = self._requests.checked(terms)
        self._requests.check_words(request)
        after = checked.get("after")
        earlier = await self._earlier(after) if after else None
        limits = checked.get("limits") or self.limits
        caller = PlainModelCaller(self._resources)
        shape = shape_of(checked.get("output"))
        return await write_plan(caller, request, self.roster, limits, earlier, shape)

    async def stream(
        self, request: str | Plan, **terms: Unpack[RunOptions]
    ) -> AsyncIterator[Event | AnswerPiece]:
        """Everything that happens to a run, each event once it is durable, from the first to the last.

        Where a model is to compose the answer, its pieces come in between as they are written; those since
        the last that `begins_anew` are the answer, even if it was put together by rule at last. A run that
        is known by its key is told from its beginning, too, whether it has ended or not. Breaking off
        cancels the run.
        """
        said = ""
        async with self._at_work() as runtime:
            run, _ = await self._begin(runtime, request, terms, asking=self._asking(terms))
            queue = runtime.listen(run.id) if runtime.leads(run.id) else None
            before = None if queue is None else runtime.told(run.id)
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

    async def _history(self, run_id: str, most: int | None) -> AsyncIterator[Event]:
        """The first events of a run, so many or all."""
        if most == 0:
            return
        async for entry in self._journal.read(run_id):
            yield entry.event
            if entry.seq == most:
                return

    async def submit(self, request: str | Plan, **terms: Unpack[RunOptions]) -> Run:
        """Start a run and return at once. It is durable when this returns; `run.wait()` tells its end."""
        async with self._at_work() as runtime:
            asking = self._asking(terms, is_submitted=True)
            run, written = await self._begin(runtime, request, terms, asking=asking)
            self._users += 1  # the runtime stays on until this run has ended
            run.when_ended(lambda: self._leave(runtime))
            await written
            run.refuse_broken()
            return run

    async def resume(
        self, run_id: str, *, accept: bool = False, on_question: OnQuestion | str | None = None
    ) -> RunResult:
        """Go on with a run that was interrupted; of a finished one, return the result again.

        With a changed roster it says what changed and goes on only if you `accept`. Raises
        `NotLeading` while another live process leads the run.
        """
        async with self._at_work() as runtime:
            asking = replace(self._asking(RunOptions(on_question=on_question)), accepts=accept)
            run, _ = await self._rejoin(runtime, run_id, accept=accept, asking=asking)
            return await run.wait()

    def resume_sync(
        self, run_id: str, *, accept: bool = False, on_question: OnQuestion | str | None = None
    ) -> RunResult:
        """`resume` for callers without an event loop."""
        return self._wait_sync(self.resume(run_id, accept=accept, on_question=on_question))

    def answer_sync(self, question_id: str, text: str, *, by: str = "") -> None:
        """`answer` for callers without an event loop."""
        wait_in_background(self.answer(question_id, text, by=by))

    async def post(self, request: str | Plan, **terms: Unpack[RunOptions]) -> str:
        """Leave a run to whichever process on this journal has the workers for it; returns its id.

        A supervisor takes such runs while it works: `async with boss:` keeps one at work.
        """
        requested, plan = await self._request(request, terms)
        await self._journal.mail.post(submit_mail(requested, plan))
        return requested.run

    @property
    def is_kept(self) -> bool:
        """Whether its runs outlive this process."""
        return self._path is not None

    def keep_in(self, journal: str | os.PathLike[str]) -> None:
        """Keep runs in this file from now on, instead of where it kept them so far."""
        if self._runtime is not None:
            raise UsageError("this supervisor is at work; say where runs are kept before it begins")
        if self._path is not None and Path(self._path).absolute() == Path(journal).absolute():
            return
        self._path = journal
        self._journal = open_journal(journal)

    def notify_also(self, notify: Notify) -> None:
        """Tell these of its runs too, beside those that it was made with."""
        if self._runtime is not None:
            raise UsageError("this supervisor is at work; say who is told before it begins")
        if self._notices is None:
            self._notices = self._resources.notices = RunNotices(notify)
        else:
            self._notices.add(notify)

    def on(self, *kinds: type[E]) -> "Callable[[HookFor[E]], HookFor[E]]":
        """Have a function called with the run's id and the event, once such an event is durable.

        `@boss.on(ch.TaskFailed)`. It is called on the event loop and must not block; what it raises is
        logged and changes nothing.
        """

        for kind in kinds:
            if KINDS.get(getattr(kind, "__name__", "")) is not kind:
                raise UsageError(
                    f"boss.on: {shown(kind)} is no kind of event; see chargehand.Event"
                )

        def hooked(hook: HookFor[E]) -> HookFor[E]:
            if inspect.iscoroutinefunction(hook) or not getattr(hook, "__call__", None):  # noqa: B004 - for the type checker
                raise UsageError(
                    f"boss.on: {shown(hook)} cannot be called with an event; give a plain function"
                )
            for kind in kinds:
                self._hooks.setdefault(kind, []).append(hook)
            return hook

        return hooked

    async def join(self, worker: Member) -> None:
        """Put another worker on the roster, at work or not; one that was drained is given work again.

        Runs under way that wait for its name or one of its skills go on with it.
        """
        runtimes = self._runtimes_here()
        is_back = self.roster.get(worker.name) is worker and worker.name in self._drained
        if not is_back:
            self.roster.join(worker)
        try:
            self._new_dispatch([worker])  # refuses a bad capacity
            for runtime in runtimes:
                runtime.join(worker)
        except BaseException:
            if not is_back:
                self.roster.leave(worker.name)
            raise
        self._drained.discard(worker.name)

    async def drain(self, name: str) -> None:
        """Give this worker nothing new; what it has, it may end. `join` takes it back."""
        self._member(name)
        for runtime in self._runtimes_here():
            runtime.drain_worker(name)
        self._drained.add(name)

    async def leave(self, name: str, grace: Duration = GRACE) -> None:
        """Take a worker off the roster: it may end what it has within `grace`; the rest is done anew.

        Returns when it is gone. Giving something back costs a task none of its attempts. Tasks that
        name this worker, or a skill that nobody else has, wait until somebody joins who can do them.
        """
        within = duration(grace, "grace", may_be_zero=True)
        self._member(name)
        runtimes = self._runtimes_here()
        self.roster.leave(name)
        self._drained.discard(name)
        await asyncio.gather(*(runtime.part(name, within) for runtime in runtimes))

    def _member(self, name: str) -> Member:
        member = self.roster.get(name)
        if member is None:
            have = ", ".join(each.name for each in self.roster) or "nobody"
            raise UsageError(f"worker {name!r} is not on the roster ({have})")
        return member

    def _runtimes_here(self) -> list[Runtime]:
        runtimes = [each for each in self._runtimes if not (each.is_over or each.loop.is_closed())]
        for runtime in runtimes:
            self._refuse_other_loop(runtime)
        return runtimes

    def _asking(self, terms: RunOptions, *, is_submitted: bool = False) -> Asking:
        """What becomes of questions: as the caller says, else by who could bring an answer."""
        given = terms.get("on_question") or self._on_question
        mode = None if not given else on_question_of(given)
        is_kept = bool(getattr(self._journal, "path", ""))
        is_there = is_submitted or self._is_entered or self._notices is not None
        # Nobody at a terminal can bring a provider back, and what is kept can be resumed when it is.
        waits, returns = OnQuestion.WAIT, OnQuestion.RETURN
        on_outage = waits if is_there else returns if is_kept else OnQuestion.FAIL
        if mode is not None and mode is not OnQuestion.SUPERVISOR:
            why = "on_question='fail'" if mode is OnQuestion.FAIL else ""
            on_outage = mode if mode in (waits, returns) else on_outage
            can_ask = mode is not OnQuestion.FAIL
            return Asking(mode=mode, can_ask=can_ask, why=why, on_outage=on_outage)
        by_model = mode is OnQuestion.SUPERVISOR
        if is_there or (is_kept and is_interactive()):
            is_usual = is_there and not by_model
            return WAITING if is_usual else Asking(by_model=by_model, on_outage=on_outage)
        if is_kept:
            return Asking(
                mode=returns,
                can_ask=False,
                by_model=by_model,
                is_default=True,
                on_outage=on_outage,
            )
        why = (
            "nobody can be asked: the journal is in memory. With Supervisor(…, journal='runs.db') the run "
            "returns with its question, to be answered and resumed; on_question='wait' waits for boss.answer(…)"
        )
        return Asking(
            mode=OnQuestion.FAIL,
            can_ask=False,
            by_model=by_model,
            is_default=True,
            why=why,
            on_outage=on_outage,
        )

    def _wait_sync(self, running: "Coroutine[Any, Any, RunResult]") -> RunResult:
        with counting_signals(self._interrupted):
            return wait_in_background(running)

    def _interrupted(self, times: int) -> None:
        if times == 1:
            log.warning(
                "interrupted; nothing new is started, and what runs has %g s to end. Interrupt again "
                "to cancel",
                GRACE.total_seconds(),
            )
            run_in_background(self.stop())
        elif times == 2:
            log.warning("interrupted twice; cancelling")
            run_in_background(self._cancel_all())
        else:
            raise KeyboardInterrupt

    async def _cancel_all(self) -> None:
        runtime = self._runtime
        if runtime is not None:
            for run in list(runtime.kernel.runs):
                await runtime.propose(run, self._cancellation(me(), "interrupted twice"))


async def _unsaid(result: RunResult, said: str, at: datetime) -> AnswerPiece | None:
    """What brings those who listened to the answer as it is; None if they have heard it."""
    if not said and not result.is_to_be_composed:
        return None
    is_empty = not any(task.state is TaskState.DONE for task in result.tasks.values())
    # Elsewhere, because parts of it may have to be read from the journal.
    text = "" if is_empty else await asyncio.to_thread(lambda: result.answer.text)
    return None if text == said else AnswerPiece(text=text, begins_anew=bool(said), at=at)
