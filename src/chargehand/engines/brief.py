"""The brief: all that a worker is handed for one attempt, and all it can say back."""

import asyncio
import inspect
import math
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, Unpack, cast

import msgspec
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.board_rules import diff
from chargehand.decisions.budget import NESTED, Account
from chargehand.decisions.run_outputs_and_steps import NO_CALLS, StepLog, StepRecord
from chargehand.engines.pending_call import PendingCalls, to_await
from chargehand.engines.text_streams import TextStreams
from chargehand.errors import (
    BlockChanged,
    ModelError,
    ModelUnreachable,
    NotAwaited,
    StepMismatch,
    TooManyTurns,
    UsageError,
    WorkerError,
)
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.board import (
    Block,
    Hit,
    Label,
    Note,
    NoteFilters,
    NoteOptions,
    NoteOrder,
)
from chargehand.facts.events import Effect, Event
from chargehand.facts.limits import Limits
from chargehand.facts.on_question import Asking
from chargehand.facts.outcome import (
    NO_USAGE,
    Done,
    Failed,
    Parked,
    Question,
    QuestionId,
    Usage,
    checked_step,
    failed_by,
    tainted,
    why_untrue,
)
from chargehand.facts.plan import ITEM, Task, item_of
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.fork_guard import refuse_copy
from chargehand.journal.base import Journal
from chargehand.sync_async_bridge import in_thread

T = TypeVar("T")

_DEFAULT_LIMITS = Limits()
#: one for all: most tasks need nothing, and a dict for each of them is work for the garbage collector
_NOTHING: Mapping[str, Any] = MappingProxyType({})

#: what a person may answer about a step in doubt
RAN, AGAIN, GIVE_UP = "it ran", "run it again", "give up"
#: of what a step was given; more is left out of the trace
ABOUT_BYTES = 32 * 1024
#: times that an update of a block loses against other writers before it gives up
RACES = 1000
#: untrusted sources that one attempt may name, and choices of one question
MOST_SOURCES = 10_000
MOST_CHOICES = 1_000


class AskedPerson(BaseException):
    """Ends an attempt that cannot go on before a person has answered.

    No `Exception`, so that a worker's own `except Exception` does not swallow it.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        super().__init__(question.text)


class Fenced(BaseException):
    """Ends an attempt that no longer holds its task: it was cancelled, given up or replaced."""


class SharedBoard(Protocol):
    """What a worker may do with the board of its run; see `chargehand.Board`."""

    async def post(self, content: object, **options: Unpack[NoteOptions]) -> Note:
        """Add a note to the board."""

    async def notes(
        self,
        *,
        order: NoteOrder | str = NoteOrder.NEWEST,
        limit: int = 100,
        **filters: Unpack[NoteFilters],
    ) -> list[Note]:
        """The notes that pass all `filters`."""

    async def search(
        self, words: str, *, limit: int = 10, by: str = "", **filters: Unpack[NoteFilters]
    ) -> list[Hit]:
        """The notes about this topic that pass all `filters`, best match first."""

    async def write(self, label: str, value: object, *, expect: int | None = None) -> Block:
        """Write the next version of a block."""

    async def read(self, label: str, version: int = 0) -> Block:
        """One version of a block; 0 is the newest."""

    async def find(self, label: str, version: int = 0) -> Block | None:
        """One version of a block, or None; 0 is the newest."""

    async def labels(self) -> list[Label]:
        """All blocks with their newest version and guard; no value is loaded."""

    async def guard(
        self, label: str, *, readers: Sequence[str] = (), writers: Sequence[str] = ()
    ) -> None:
        """Let only these roles or authors read and write a block from now on."""

    async def update(self, label: str, change: Callable[[Any], object]) -> Block:
        """Write what `change` returns for the newest value; no update is lost."""
        for _ in range(RACES):
            known = await self.find(label)
            value = change(None if known is None else known.value)
            try:
                return await self.write(label, value, expect=0 if known is None else known.version)
            except BlockChanged:
                continue
        raise UsageError(
            f"block {label!r} was changed by others {RACES} times in a row; write it less"
        )

    async def history(self, label: str) -> list[Block]:
        """All versions of a block, oldest first."""
        newest = await self.find(label)
        if newest is None:
            return []
        return [await self.read(label, version) for version in range(1, newest.version + 1)]

    async def diff(self, label: str, old: int, new: int = 0) -> str:
        """The changes from one version to another (0: the newest), line by line."""
        return diff(await self.read(label, old), await self.read(label, new))


class Answerer(Protocol):
    """Answers questions in place of a person."""

    async def __call__(self, brief: "Brief", question: Question) -> str | None:
        """A text that the question accepts; None if only a person can say."""


class Drainable(Protocol):
    """Something at work that can be stopped gently."""

    async def drain(self, grace: timedelta) -> None: ...


class NestingHost(Protocol):
    """What a worker that leads a run of its own may ask of the supervisor above it."""

    @property
    def journal(self) -> Journal: ...

    @property
    def clock(self) -> Clock: ...

    def post(self, run: str, event: Event) -> None:
        """Have an event of the run above written down, some time soon."""

    def account_of(self, run: str) -> Account | None:
        """What the run below spends counts there too, if it is limited."""

    def asking(self, run: str) -> Asking:
        """What becomes of the questions of this run."""

    def is_leaving(self, run: str) -> bool:
        """Whether what is stopped now in this run is left to be resumed, here or elsewhere."""

    def winding_up(self, run: str) -> str:
        """Why what is stopped now in this run is to end with what it has; empty if it is not, but is cancelled."""

    def take_in(self, below: Drainable) -> None:
        """Have a runtime that works for this one stop with it. Raises `Fenced` if that is under way."""


class PlanningHost(Protocol):
    """What the supervisor's own work on a run may ask: to change its plan, and to be heard."""

    def propose(self, run: str, event: Event) -> Awaitable[Event | None]:
        """Have an event written down; returns what was written, or None if it was refused."""

    def say(self, run: str, piece: str | None) -> None:
        """Send listeners a piece of the answer; None: it begins anew."""


class AttemptHost(Protocol):
    """What an attempt may ask of its supervisor: of the loop, of a pool, from a worker process.

    Every report is refused with `Fenced` once the task is lost. `nesting`, `planning` and
    `text_streams` are None where a host cannot do that.
    """

    @property
    def nesting(self) -> NestingHost | None:
        return None

    @property
    def planning(self) -> PlanningHost | None:
        return None

    @property
    def text_streams(self) -> TextStreams | None:
        return None

    async def begin_step(self, brief: "Brief", step: StepRecord, *, is_urgent: bool) -> None:
        """Write down that a step begins; if urgent, return only once that is durable."""

    async def end_step(self, brief: "Brief", step: StepRecord, outcome: Done | Failed) -> None:
        """Write down what came of a step; returns once that is durable."""

    def note_progress(self, brief: "Brief", text: str, fraction: float | None) -> None:
        """Write down how far the worker is, some time soon."""

    def board_for(self, brief: "Brief") -> SharedBoard:
        """The board of its run, in the name of this attempt. Raises `UsageError` if there is none."""
        raise UsageError(
            f"worker {brief.worker!r} has no board here: its brief is of no run; "
            "have a supervisor run it"
        )


class NoHost(AttemptHost):
    """The host of a brief that is of no run: what is reported is written down nowhere."""

    async def begin_step(self, brief: "Brief", step: StepRecord, *, is_urgent: bool) -> None: ...

    async def end_step(self, brief: "Brief", step: StepRecord, outcome: Done | Failed) -> None: ...

    def note_progress(self, brief: "Brief", text: str, fraction: float | None) -> None: ...


NO_HOST = NoHost()


_NO_KEYS: set[str] = set()
#: steps that write on a board
_BOARD_STEPS = ("board.post", "board.write", "board.guard")
#: effects that a change of arguments must not repeat unasked
_ASKED = (Effect.ONCE, Effect.KEYED)


class Brief:
    """What a worker gets: its task, its inputs and what is missing. Offers steps, questions and progress.

    A resumed worker is called again from the start. Work that it did in a `step` is not
    repeated: the recorded result is returned instead.
    """

    __slots__ = (
        "_answers",
        "_board",
        "_counts",
        "_home",
        "_inputs",
        "_log",
        "_loop",
        "_pending",
        "_settled",
        "_taint",
        "answerer",
        "attempt",
        "can_ask",
        "depth",
        "earlier",
        "ends_at",
        "gives_up",
        "has_parked",
        "host",
        "is_capped",
        "is_preempted",
        "limits",
        "missing",
        "on_taint",
        "run",
        "shares_board",
        "task",
        "tries",
        "values",
        "waits_until",
        "worker",
    )

    def __init__(
        self,
        run: str,
        task: Task,
        attempt: int,
        worker: str,
        values: Mapping[str, Value],
        host: AttemptHost | None,
        *,
        missing: Mapping[str, str] | None = None,
        log: StepLog | None = None,
        answers: Mapping[str, str] | None = None,
        limits: Limits = _DEFAULT_LIMITS,
    ) -> None:
        self.run = run
        self.task = task
        self.attempt = attempt
        self.worker = worker
        self.limits = limits  #: of the run
        #: optional needs that came to nothing, and why
        self.missing: Mapping[str, str] = missing or _NOTHING
        #: the inputs as they are stored
        self.values: Mapping[str, Value] = values or _NOTHING
        #: of its run: how many runs are above it
        self.depth = 0
        #: attempts of this task that failed so far
        self.tries = 0
        #: whether it has waited for a provider before
        self.has_parked = False
        #: when it will be stopped at the latest, if that is known
        self.ends_at: datetime | None = None
        #: `ends_at` by the clock of the event loop, timeout included; set for workers that call models
        self.waits_until = math.inf
        self.host: AttemptHost = NO_HOST if host is None else host
        #: wraps the board for the worker, for example to combine it with others
        self.shares_board: Callable[[SharedBoard], SharedBoard] | None = None
        self.on_taint: Callable[[tuple[str, ...]], None] | None = None  #: hears of changes
        #: fail instead of parking when the provider stays unavailable, because the run could not be resumed
        self.gives_up = False
        #: False where nobody can be asked anything: no terminal, no `notify`, no process that serves
        self.can_ask = True
        #: answers what a person would be asked, as far as it can
        self.answerer: Answerer | None = None
        self.earlier = NO_CALLS  #: what its run has done with tools, for who approves a call
        #: it is to make room for something more urgent before it begins another step
        self.is_preempted = False
        #: whether what it spends is limited, so that its calls must say what they may cost
        self.is_capped = False
        self._inputs: dict[str, Any] | None = None
        self._board: SharedBoard | None = None
        self._log = log
        self._answers: Mapping[str, str] = answers or _NOTHING
        self._counts: dict[str, int] | None = None
        #: keys of steps that were asked for, or settled by a person
        self._settled = _NO_KEYS if log is None else set()
        self._taint: tuple[str, ...] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home = 0  #: its process
        self._pending: PendingCalls | None = None

    @property
    def log(self) -> StepLog | None:
        """The recorded steps that this attempt continues from."""
        return self._log

    @property
    def turns_left(self) -> int:
        """Model calls that this attempt may still make, replayed ones included."""
        spent = 0 if self._log is None else self._log.turns
        return max((self.task.limits.turns or self.limits.turns) - spent, 0)

    def too_many_turns(self) -> TooManyTurns:
        """The failure of an attempt that has used up its model calls."""
        own = self.task.limits.turns
        cap = f"Limits(turns={self.limits.turns})" if own is None else f"TaskLimits(turns={own})"
        return TooManyTurns(
            f"there was no result after {own or self.limits.turns} turns, over all tries of "
            f"{self.worker}, which is what {cap} allows; raise it, or ask for less at once"
        )

    @property
    def answers(self) -> Mapping[str, str]:
        """The answers of people, by question."""
        return self._answers

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of the task in the plan."""
        return self.task.args

    @property
    def item(self) -> Any:
        """For a task with `for_each`: the item that this attempt is for; otherwise None."""
        return self.inputs.get(ITEM) if self.index is not None else None

    @property
    def index(self) -> int | None:
        """The index of that item, counted from 0; otherwise None."""
        found = item_of(self.task.id)
        return None if found is None else found[1]

    @property
    def inputs(self) -> dict[str, Any]:
        """The outputs of the tasks that this one needs, by the names of the needs. A copy of its own."""
        if self._inputs is None:
            self._inputs = {name: value.read() for name, value in self.values.items()}
        return self._inputs

    @property
    def board(self) -> SharedBoard:
        """The board that all workers of this run share. Each use of it is a step."""
        if self._board is None:
            own = self.host.board_for(self)
            self._board = own if self.shares_board is None else self.shares_board(own)
        return self._board

    @property
    def pending_calls(self) -> PendingCalls:
        """The calls of this brief and its board that were not awaited yet."""
        if self._pending is None:
            self._pending = PendingCalls()
            self._pending.is_plain = self._loop is not None
        return self._pending

    def drop_pending(self) -> NotAwaited | None:
        """Close all calls that were never awaited, and return an error about them; None if there are none."""
        pending = self._pending
        left = () if pending is None else pending.drop()
        return None if pending is None or not left else pending.refusal(*left)

    @property
    def taint(self) -> tuple[str, ...]:
        """The untrusted sources that the output of this attempt will be marked with."""
        if not self.values:
            return self._taint
        seen = dict.fromkeys(self._taint)
        for value in self.values.values():
            seen.update(dict.fromkeys(value.taint))
        return tuple(seen)

    def distrust(self, *sources: str) -> None:
        """Mark the result or error of this attempt as derived from untrusted sources."""
        before = self._taint
        for source in sources:
            if source not in self._taint:
                if len(self._taint) >= MOST_SOURCES:
                    raise UsageError(
                        f"brief.distrust: {MOST_SOURCES:,} sources are the most; name what they have in common"
                    )
                self._taint += (checks.text(source, "brief.distrust: each source"),)
        if self.on_taint is not None and self._taint is not before:
            self.on_taint(self._taint)

    def bring(self, record: StepRecord) -> None:
        """Replace the record of a step by one that includes its result."""
        if self._log is not None:
            self._log.keep(record)

    @to_await
    async def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect: Effect | str = Effect.ONCE,
        **kwargs: Any,
    ) -> Any:
        """Call `function` durably: once it has a result, a resumed attempt gets that result instead.

        Arguments and result must be JSON. `effect` says whether it may run twice; a `keyed`
        function gets the step's `key`. A plain function runs in a thread. If the end of a
        `once` step is unknown, it is not run again: a person is asked what happened.
        """

        name = checks.name(name, "the name of a step")
        if effect not in list(Effect):
            raise UsageError(f"step {name!r}: effect={effect!r} is none of {', '.join(Effect)}")
        if not callable(function):
            raise UsageError(f"step {name!r}: {type(function).__name__} is not a function")

        async def run(key: str) -> Done:
            more = {**kwargs, "key": key} if effect == Effect.KEYED else kwargs
            return Done(await _value_from(function, args, more))

        given = [args, kwargs]
        done = await self._durable(name, given, run, effect=Effect(effect), about=given)
        return done.value.read()

    @to_await
    async def durable(
        self,
        name: str,
        identity: object,
        run: Callable[[str], Awaitable[Done]],
        *,
        effect: Effect,
        about: object = None,
        reserve: Usage = NO_USAGE,
    ) -> Done:
        """The basis of `step`: call `run` with the key of the step, or return the recorded result.

        `identity` is JSON that distinguishes this call from others of the same name.
        `about` is stored for readers of the trace, if it is not too large. `reserve` is the
        most it can cost. Untrusted sources that the step has read taint this attempt.
        """
        why = why_untrue(reserve)
        if why is not None:
            raise UsageError(f"step {name!r}: reserve: {why}")
        if isinstance(about, Value) and len(about.json) <= ABOUT_BYTES:  # more is left out
            about.refuse_unreadable()

        async def read(key: str) -> Done:
            return checked_step(await run(key))

        return await self._durable(
            name, identity, read, effect=effect, about=about, reserve=reserve
        )

    async def _durable(
        self,
        name: str,
        identity: object,
        run: Callable[[str], Awaitable[Done]],
        *,
        effect: Effect,
        about: object = None,
        reserve: Usage = NO_USAGE,
    ) -> Done:
        """`durable` for what needs no check, because it was made here."""
        step = self._identify(name, effect, identity, about, reserve)
        if self._log is not None:
            recalled = await self._recall(step, self._log)
            if recalled is not None:
                self.distrust(*recalled.value.taint)
                return recalled
        # An effect must not happen unless its intent is certain to be remembered. For what may
        # be repeated freely it is enough that the intent comes before the outcome.
        is_urgent = step.effect in _ASKED or (self.is_capped and reserve is not NO_USAGE)
        await self.host.begin_step(self, step, is_urgent=is_urgent)
        try:
            done = await run(step.key)
        except (AskedPerson, Fenced, asyncio.CancelledError):
            raise
        except Parked as parked:
            if not (parked.is_long and self.gives_up):
                raise
            error = _given_up(parked)
            await self.host.end_step(self, step, tainted(failed_by(error), self.taint))
            raise error from None
        except BaseException as error:
            failed = failed_by(error, _spent_by(error, reserve))
            await self.host.end_step(self, step, tainted(failed, self.taint))
            raise
        self.distrust(*done.value.taint)
        done = tainted(done, self.taint)
        await self.host.end_step(self, step, done)
        return done

    async def _recall(self, step: StepRecord, log: StepLog) -> Done | None:
        """What is known of this step from before; None: it is to run."""
        has_effect = step.effect in _ASKED
        if has_effect:
            self._settled.add(step.key)
        at = log.at(step.name, step.ordinal)
        known = log.find(step.name, step.ordinal, step.key)
        if known is None and at is not None and at.digest == step.digest:
            known = at  # of the run that this one is a fork of
        if known is None and _is_ours(step):
            return None  # each try leads a run of its own, and another note is another note
        if known is None:
            if at is not None and not (has_effect and at.effect in _ASKED):
                raise StepMismatch(
                    f"step {step.name!r} (number {step.ordinal}) was recorded with other arguments; "
                    "a worker must do the same steps in the same order when it is resumed"
                )
            return await self._settle_changed(step, at, log) if has_effect else None
        if isinstance(known.outcome, Done):
            return known.outcome
        if isinstance(known.outcome, Failed):
            self.distrust(*known.outcome.taint)
        if step.effect is Effect.ONCE:
            return await self._settle_doubt(step, known)
        if known.outcome is not None:
            raise WorkerError(known.outcome.message, kind=known.outcome.kind)
        return None

    @to_await
    async def ask(
        self,
        text: str,
        *,
        choices: Sequence[str] = (),
        default: str | None = None,
        patience: Duration | None = None,
    ) -> str:
        """Ask a person. The attempt ends here and holds no slot while it waits.

        After the answer, the worker is called again and this call returns the answer. An
        answer is valid for this text and these choices; a different text is a different
        question.
        """
        if isinstance(choices, str):
            raise UsageError(f"brief.ask: choices={choices!r} is one text; give a list")
        given = list(islice(choices, MOST_CHOICES + 1))
        if len(given) > MOST_CHOICES:
            raise UsageError(
                f"brief.ask: choices has more than {MOST_CHOICES:,}, the most that a person can be offered; "
                "offer fewer, or leave choices out and check the answer"
            )
        text = checks.text(text, "brief.ask: text")
        if not text.strip():
            raise UsageError("brief.ask: text is empty; say what the person is to decide")
        options = checks.texts(given, "brief.ask: choices")
        if not all(each.strip() for each in options):
            raise UsageError(f"brief.ask: choices={given!r} has an empty text; nobody could see it")
        question = Question(
            id="",
            text=text,
            choices=options,
            default=None if default is None else checks.text(default, "brief.ask: default"),
            patience=checks.duration_or_none(patience, "brief.ask: patience"),
        )
        if options and default is not None and default not in options:
            raise UsageError(f"brief.ask: default={default!r} is none of the choices {options}")
        number = str(self._count("ask"))
        known = self._answers.get(self.question_id(number))
        if known is not None:
            return known  # as journals have it from before questions were known by their words
        words = digest_of(canonical([question.text, options]))
        question = replace(question, id=self.question_id(f"{number}-{words}"))
        if self.answerer is not None and question.id not in self._answers:
            answer = await self.answerer(self, question)
            if answer is not None:
                return answer
        return self.answer_to(question)

    def answer_to(self, question: Question) -> str:
        """The answer to this question; without one, the attempt ends here until there is one."""
        answer = self._answers.get(question.id)
        if answer is None:
            raise AskedPerson(question)
        return answer

    def question_id(self, name: str) -> str:
        """An id for a question of this task that is the same in every attempt."""
        return str(QuestionId(self.run, self.task.id, name))

    def progress(self, text: str, fraction: float | None = None) -> None:
        """Report progress, as text and as a fraction of 1. Never waits."""
        if not isinstance(text, str):
            raise UsageError(f"brief.progress: {type(text).__name__} is not a text; give a str")
        if fraction is not None:
            fraction = float(checks.amount(fraction, "brief.progress: fraction", most=1))
        self.host.note_progress(self, text, fraction)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """For plain functions: `brief.wait(brief.step(…))` returns what awaiting would."""
        loop = self._loop
        if loop is None or _is_running(loop):  # it would wait for itself
            raise UsageError("brief.wait is for plain functions; in an async worker, await instead")
        refuse_copy(self._home)  # there the loop does not run, and the wait would never end

        async def awaited() -> tuple[T | None, BaseException | None]:
            # Handed back as a value: a task that raises SystemExit would end the whole loop.
            try:
                return await awaitable, None
            except BaseException as error:  # noqa: BLE001 - raised again below, in its own thread
                return None, error

        value, error = asyncio.run_coroutine_threadsafe(awaited(), loop).result()
        if error is not None:
            raise error
        return cast("T", value)

    def serve_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        """Allow `wait` from threads other than this loop's."""
        self._loop, self._home = loop, os.getpid()

    def _identify(
        self, name: str, effect: Effect, identity: object, about: object, reserve: Usage
    ) -> StepRecord:
        excerpt = _excerpt(about)  # first: it refuses what has too many parts
        digest = digest_of(canonical([name, identity]))
        equal = self._count(f"call {digest}")
        key = digest_of(f"{self.run}\0{self.task.id}\0{name}\0{digest}\0{equal}".encode())
        ordinal = self._count(f"step {name}")
        return StepRecord(name, ordinal, effect, key, digest, about=excerpt, reserve=reserve)

    def _count(self, what: str) -> int:
        counts = self._counts
        if counts is None:
            counts = self._counts = {}
        counts[what] = number = counts.get(what, 0) + 1
        return number

    async def _settle_changed(
        self, step: StepRecord, at: StepRecord | None, log: StepLog
    ) -> Done | None:
        """What a person said of an earlier step in place of which this one is asked for; None: this one is to run.

        The earlier one is that `at` its place, with other arguments, or one of its name that is in doubt.
        Other steps in doubt come first.
        """
        doubts = [each for each in log.doubts() if each.key not in self._settled]
        before = at or next((each for each in doubts if each.name == step.name), None)
        for doubt in doubts:
            if doubt is not before:
                self._settle_left(doubt)
        if before is None:
            return None
        self._settled.add(before.key)
        place = f"{before.key[:12]}.{before.begun}-"
        question = _changed(self.question_id(place + step.key[:12]), before, step, self.worker)
        # That the earlier one ran holds whatever is asked for in its place.
        said = (
            text for id_, text in self._answers.items() if id_.startswith(self.question_id(place))
        )
        answer = next((each for each in said if each not in (AGAIN, GIVE_UP)), None)
        answer = answer or self.answer_to(question)
        if answer == AGAIN:
            return None
        if answer == GIVE_UP:
            raise WorkerError(f"step {step.name!r} was given up by a person", kind="denied")
        done = before.outcome if isinstance(before.outcome, Done) and answer == RAN else None
        done = done or Done(Value.of(question.told(answer), ("person",)))
        await self.host.begin_step(self, step, is_urgent=True)
        await self.host.end_step(self, step, done)
        if not isinstance(before.outcome, Done):
            await self.host.end_step(self, before, done)
        return done

    def _settle_left(self, doubt: StepRecord) -> None:
        """Ask a person about a step in doubt that this attempt does not ask for, unless one has answered."""
        self._settled.add(doubt.key)
        question = _left(self.question_id(f"{doubt.key[:12]}.{doubt.begun}"), doubt, self.worker)
        if self.answer_to(question) == GIVE_UP:
            raise WorkerError(f"step {doubt.name!r} was given up by a person", kind="denied")

    def settle_doubts(self) -> None:
        """Raise `AskedPerson` for a step of an earlier attempt that is in doubt and that this one has not asked for."""
        for doubt in () if self._log is None else list(self._log.doubts()):
            if doubt.key not in self._settled:
                self._settle_left(doubt)

    async def _settle_doubt(self, step: StepRecord, known: StepRecord) -> Done | None:
        """What a person said of a step whose end is unknown; None: it is to run again."""
        given = {"step": step.name, "worker": self.worker, "given": _readable(step.about.read())}
        question = _doubt(self.question_id(f"{step.key[:12]}.{known.begun}"), known, given)
        answer = self.answer_to(question)
        if answer == AGAIN:
            return None
        if answer == GIVE_UP:
            raise WorkerError(f"step {step.name!r} was given up by a person", kind="denied")
        done = Done(Value.of(question.told(answer), ("person",)))
        await self.host.end_step(self, step, done)
        return done


def _is_ours(step: StepRecord) -> bool:
    """Whether it is no step of the worker's: a nested run, or what is written on a board."""
    is_nested = step.name == NESTED and isinstance(step.about.read(), dict)
    return is_nested or step.name in _BOARD_STEPS


def _excerpt(about: object) -> Value:
    """What was given, as far as a trace can carry it."""
    value = about if isinstance(about, Value) else Value.of(about)
    return value if len(value.json) <= ABOUT_BYTES else Value()


def _readable(about: object) -> object:
    """What a step was given, with the arguments of a tool as JSON and not as a text of JSON."""
    if isinstance(about, dict) and isinstance(about.get("arguments"), str):
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(about["arguments"])
    return about


def _doubt(question: str, known: StepRecord, given: dict[str, object]) -> Question:
    text = (
        f"Step {known.name!r} {_happened(known)}. It is marked `once`, so it is not run "
        f"again unasked. Answer {RAN!r} (or '{RAN}: <its result as JSON>'), {AGAIN!r} or {GIVE_UP!r}."
    )
    return _about_doubt(question, text, given)


def _changed(question: str, before: StepRecord, step: StepRecord, worker: str) -> Question:
    """Of a step that was recorded with other arguments than those that the worker has now."""
    text = (
        f"Step {before.name!r} {_happened(before)}. The worker was started again, and now asks for this step with "
        f"other arguments. Answer {RAN!r} (or '{RAN}: <its result as JSON>') if it took effect: then it counts for "
        f"this one, too. Answer {AGAIN!r} to run it with the new arguments, or {GIVE_UP!r}."
    )
    now, was = _readable(step.about.read()), _readable(before.about.read())
    return _about_doubt(
        question, text, {"step": step.name, "worker": worker, "given": now, "before": was}
    )


def _left(question: str, doubt: StepRecord, worker: str) -> Question:
    """Of a step in doubt that the worker no longer asks for."""
    text = (
        f"Step {doubt.name!r} {_happened(doubt)}. The worker was started again, and no longer asks for this step. "
        f"Answer {RAN!r} if it took effect, {AGAIN!r} if it did not and the worker may go on without it, or "
        f"{GIVE_UP!r}."
    )
    given = {"step": doubt.name, "worker": worker, "given": _readable(doubt.about.read())}
    return _about_doubt(question, text, given)


def _happened(known: StepRecord) -> str:
    if isinstance(known.outcome, Done):
        return "has run"
    if isinstance(known.outcome, Failed):
        return f"failed ({known.outcome}), and may have taken effect all the same"
    return "began, and its end is unknown"


def _about_doubt(question: str, text: str, given: dict[str, object]) -> Question:
    return Question(
        id=question,
        text=text,
        about="in_doubt",
        choices=(RAN, AGAIN, GIVE_UP),
        telling=RAN,
        evidence=Value.of_record(given),
    )


def _spent_by(error: BaseException, reserve: Usage) -> Usage:
    """What a step that failed may have cost: all that was reserved for it, unless the error says that it cost less.

    Asked by its type: an exception may say anything of its class.
    """
    if reserve is NO_USAGE or not issubclass(type(error), ModelError | WorkerError):
        return reserve
    said = cast("ModelError | WorkerError", error)
    try:
        is_free, is_counted = said.may_be_paid is False, getattr(said, "is_counted", False) is True
    except Exception:  # noqa: BLE001 - nobody knows, so it counts in full
        return reserve
    if is_counted:
        return NO_USAGE
    # One that failed for certain cost nothing, but it was a call: a cap on calls holds for it, too.
    return Usage(calls=reserve.calls) if is_free else reserve


def _given_up(parked: Parked) -> ModelUnreachable:
    """What a long wait for a provider is where the run could not be resumed."""
    error = ModelUnreachable(
        f"{parked.why}; the wait was too long, and the journal is in memory. With "
        "Supervisor(…, journal='runs.db') the run returns instead, to be resumed later"
    )
    error.is_final = True
    return error


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of the loop, and the loop is at work."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


async def _value_from(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Value:
    """What a function returns, as it is stored; of a plain one that is made in its thread, too."""
    if inspect.iscoroutinefunction(function):
        return Value.of(await function(*args, **kwargs))

    def called() -> Any:
        result = function(*args, **kwargs)
        return result if inspect.isawaitable(result) else Value.of(result)

    # Not the loop's own pool: the steps of one run that hang there would hold up all others.
    result = await in_thread(called)
    return Value.of(await result) if inspect.isawaitable(result) else cast("Value", result)
