"""Every attempt ends: at its timeout or when it is told to stop, whatever its function does then."""

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand.engines.base import Ending, Job
from chargehand.engines.brief import Brief
from chargehand.engines.local_engine import GRACE, STOP_GRACE, LocalEngine
from chargehand.facts.outcome import Cancelled, Done, Failed
from chargehand.facts.plan import Task
from chargehand.facts.value import Value
from chargehand.runtime import loop_watchdog
from chargehand.runtime.loop_watchdog import Watchdog
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan

SECOND = timedelta(seconds=1)


class Rude:
    """Functions that do not end when they are told to, until `let_go` is set."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def swallows_cancellation(self, _: object = None) -> str:
        while not self.let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.let_go.wait()
        return "late"

    async def swallows_everything(self, _: object = None) -> str:
        while not self.let_go.is_set():
            with contextlib.suppress(BaseException):
                await self.let_go.wait()
        return "late"

    async def waits_in_its_cleanup(self, _: object = None) -> str:
        try:
            await self.let_go.wait()
        finally:
            await asyncio.shield(self.let_go.wait())
            await self.let_go.wait()
        return "late"

    async def raises_in_its_cleanup(self, _: object = None) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("the cleanup went wrong")

    async def leaves_by_system_exit(self, _: object = None) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise SystemExit(3) from None
        return "never"

    async def returns_when_cancelled(self, _: object = None) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "in spite of it"
        return "never"

    async def never_returns(self, _: object = None) -> str:
        await asyncio.Event().wait()
        return "never"


RUDE = [name for name in vars(Rude) if not name.startswith("_")]
#: the rest ends when it is cancelled a second time
STUBBORN = ["swallows_cancellation", "swallows_everything"]


class Heard:
    """Notes what an engine reports, and checks that it does so once each and in order."""

    def __init__(self) -> None:
        self.endings: list[Ending] = []
        self.places = 0
        self.freed_now = asyncio.Event()

    def report(self, _: Job, outcome: Ending) -> None:
        assert not self.endings
        self.endings.append(outcome)

    def freed(self, _: Job) -> None:
        assert self.endings
        self.places += 1
        assert self.places == 1
        self.freed_now.set()


def job_of(work: Callable[[Job], Awaitable[Any]], timeout: timedelta | None) -> Job:
    task = Task(id="t", description="Be rude for the test", worker="w")
    brief = Brief("run", task, 1, "w", {}, None)
    return Job(brief, work, timeout)


@pytest.mark.parametrize("what", RUDE)
@pytest.mark.parametrize("how", ["timeout", "stop", "stop with a timeout", "close"])
def test_an_attempt_ends_in_time_and_once_whatever_its_function_does(what: str, how: str) -> None:
    async def main() -> None:
        rude, heard, engine = Rude(), Heard(), LocalEngine()
        loop = asyncio.get_running_loop()
        timeout = {"timeout": SECOND, "stop with a timeout": 60 * SECOND}.get(how)
        engine.start(job_of(getattr(rude, what), timeout), heard)
        await asyncio.sleep(0.5)
        assert not heard.endings
        began = loop.time()
        if how == "timeout":
            await asyncio.sleep(0.5 + GRACE)
        elif how == "close":
            await engine.close()
            assert loop.time() - began <= STOP_GRACE
        else:
            engine.stop("run", "t", 1, "enough")
            await asyncio.sleep(STOP_GRACE)
        await asyncio.sleep(0)
        (ending,) = heard.endings
        if how == "timeout":
            assert isinstance(ending, Failed)
            assert ending.kind == "timeout"
        elif what == "returns_when_cancelled":
            assert (
                str(ending) == "in spite of it"
            )  # as it is: no work of ours made an outcome of it
        else:
            assert isinstance(ending, Cancelled)
        assert heard.places == (0 if what in STUBBORN else 1)  # what goes on keeps its place
        rude.let_go.set()
        await heard.freed_now.wait()
        await asyncio.sleep(120)  # past every timer: nothing more is heard of it

    run_virtual(main())


def test_a_stop_after_the_time_was_over_does_not_put_the_end_off() -> None:
    async def main() -> None:
        rude, heard, engine = Rude(), Heard(), LocalEngine()
        engine.start(job_of(rude.swallows_everything, SECOND), heard)
        await asyncio.sleep(1.0 + GRACE / 2)
        engine.stop("run", "t", 1, "enough")
        await asyncio.sleep(GRACE)
        assert isinstance(heard.endings[0], Failed)
        rude.let_go.set()
        await heard.freed_now.wait()

    run_virtual(main())


def test_an_attempt_that_is_told_to_stop_twice_is_cancelled_once() -> None:
    """It may be tidying up, which a second cancellation would break off."""

    async def main() -> None:
        rude, heard, engine = Rude(), Heard(), LocalEngine()
        tidied = False

        async def tidies(_: Job) -> Ending:
            nonlocal tidied
            try:
                await rude.let_go.wait()
            finally:
                await asyncio.sleep(1)
                tidied = True
            raise AssertionError("it was never let go")

        engine.start(job_of(tidies, None), heard)
        await asyncio.sleep(0.5)
        engine.stop("run", "t", 1, "enough")
        await asyncio.sleep(0.5)
        engine.stop("run", "t", 1, "enough, again")
        await heard.freed_now.wait()
        assert (tidied, heard.endings) == (True, [Cancelled(reason="enough")])

    run_virtual(main())


@pytest.mark.parametrize("grace", [0.0, 60.0])
def test_an_attempt_that_is_told_to_stop_has_at_least_the_grace_of_its_run(grace: float) -> None:
    async def main() -> None:
        rude, heard, engine = Rude(), Heard(), LocalEngine()
        job = job_of(rude.swallows_everything, None)
        job.grace = grace
        engine.start(job, heard)
        await asyncio.sleep(0.5)
        engine.stop("run", "t", 1, "enough")
        await asyncio.sleep(max(STOP_GRACE, grace) - 0.1)
        assert not heard.endings
        await asyncio.sleep(0.2)
        assert heard.endings == [Cancelled(reason="enough")]
        rude.let_go.set()
        await heard.freed_now.wait()

    run_virtual(main())


@pytest.mark.parametrize("what", [*STUBBORN, "waits_in_its_cleanup"])
def test_b5_a_run_goes_on_past_a_coroutine_that_ignores_its_timeout(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        rude = Rude()
        stubborn = ch.worker("stubborn", "Goes on", capacity=2)(getattr(rude, what))

        @ch.worker("other", "Works")
        async def other(_: ch.Brief) -> str:
            return "done"

        limits = ch.TaskLimits(timeout=SECOND)
        bad = ch.Task(id="bad", description="Never end", worker="stubborn", limits=limits)
        good = ch.Task(id="good", description="Work as usual", worker="other")
        once = ch.Limits(attempts=1)
        boss = ch.Supervisor([stubborn, other], clock=FakeClock(), limits=once)
        result = await boss.run(make_plan(bad, good))
        assert result.tasks["bad"].state == "failed"
        assert "longer than 1 s" in str(result.tasks["bad"].error)
        assert result.tasks["good"].output == "done"
        rude.let_go.set()

    with caplog.at_level(logging.WARNING, "chargehand"):
        run_virtual(main())
    assert "attempt_goes_on" in caplog.text
    assert "task=bad" in caplog.text


class Unspeakable(Exception):
    """Cannot be turned into words."""

    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # the very fault


class Throttled(Exception):
    retry_after = float("inf")


@pytest.mark.parametrize("error", [Unspeakable(), Throttled("later"), KeyboardInterrupt(), 7])
async def test_an_attempt_whose_failure_cannot_be_told_fails_all_the_same(error: object) -> None:
    async def work(_: ch.Brief) -> object:
        if isinstance(error, BaseException):
            raise error
        return object()

    worker = ch.worker("w", "Works")(work)
    task = ch.Task(id="t", description="Fail for the test", worker="w")
    boss = ch.Supervisor([worker], limits=ch.Limits(attempts=1))
    result = await boss.run(make_plan(task))
    assert result.tasks["t"].state == "failed"


async def test_a_report_that_cannot_be_written_down_becomes_a_failure() -> None:
    class Deaf(Heard):
        def report(self, job: Job, outcome: Ending) -> None:
            if isinstance(outcome, Done):
                raise TypeError("no event can be made of this")
            super().report(job, outcome)

    async def work(_: Job) -> Ending:
        return Done(Value.of(1))

    heard = Deaf()
    LocalEngine().start(job_of(work, None), heard)
    await heard.freed_now.wait()
    assert isinstance(heard.endings[0], Failed)


# plain functions: all that they bring is read in their thread


class Slow(Exception):
    """A result, or an error, that says what it is only after the event loop has got on meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.asked = 0

    def model_dump(self, *, mode: str) -> object:
        self.asked += 1
        return {"said": str(self)}

    def __str__(self) -> str:
        gate = threading.Event()
        self.loop.call_soon_threadsafe(gate.set)
        return "the loop got on" if gate.wait(5) else "the loop stood still"


def as_result(slow: Slow) -> Callable[[ch.Brief], object]:
    return lambda _: slow


def as_step(slow: Slow) -> Callable[[ch.Brief], object]:
    return lambda brief: brief.wait(brief.step("look", lambda: slow, effect="pure"))


def as_error(slow: Slow) -> Callable[[ch.Brief], object]:
    def work(_: ch.Brief) -> object:
        raise slow

    return work


@pytest.mark.parametrize("make", [as_result, as_step])
async def test_what_a_plain_function_returns_is_read_in_its_thread_and_once(
    make: Callable[[Slow], Callable[[ch.Brief], object]],
) -> None:
    slow = Slow(asyncio.get_running_loop())
    worker = ch.worker("w", "Works")(make(slow))
    task = ch.Task(id="t", description="Be slow", worker="w")
    async with ch.Supervisor([worker]) as boss:
        result = await boss.run(make_plan(task))
    assert result.tasks["t"].output == {"said": "the loop got on"}
    assert slow.asked == 1


async def test_and_so_is_what_it_raises() -> None:
    worker = ch.worker("w", "Works")(as_error(Slow(asyncio.get_running_loop())))
    task = ch.Task(id="t", description="Be slow", worker="w")
    async with ch.Supervisor([worker], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(make_plan(task))
    error = result.tasks["t"].error
    assert error is not None
    assert error.message == "the loop got on"


async def test_a_result_that_takes_too_long_to_read_is_over_time() -> None:
    gate = threading.Event()

    class Endless:
        def model_dump(self, *, mode: str) -> object:
            return gate.wait(60)

    @ch.worker("w", "Brings what takes its time", timeout=0.05)
    def work(_: ch.Brief) -> object:
        return Endless()

    task = ch.Task(id="t", description="Work", worker="w")
    async with ch.Supervisor([work], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(make_plan(task))
        gate.set()
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == "timeout"


async def doubled(brief: ch.Brief) -> object:
    await asyncio.sleep(0)
    return {"n": brief.args["n"] * 2}


async def waits_for_itself(brief: ch.Brief) -> object:
    return brief.wait(asyncio.sleep(0))


@pytest.mark.parametrize(
    "function",
    [lambda brief: doubled(brief), functools.partial(doubled)],
    ids=["lambda", "partial"],
)
async def test_what_a_plain_function_leaves_to_be_awaited_is_awaited(
    function: Callable[[ch.Brief], object],
) -> None:
    worker = ch.worker("w", "Works")(function)
    task = ch.Task(id="t", description="Double it", worker="w", args={"n": 4})
    async with ch.Supervisor([worker]) as boss:
        result = await boss.run(make_plan(task))
    assert result.tasks["t"].output == {"n": 8}


async def test_and_may_not_wait_there_as_a_thread_does() -> None:
    """The event loop would wait for itself, for ever."""
    worker = ch.worker("w", "Works")(lambda brief: waits_for_itself(brief))
    task = ch.Task(id="t", description="Wait", worker="w")
    async with ch.Supervisor([worker], limits=ch.Limits(attempts=1)) as boss:
        with pytest.warns(RuntimeWarning, match="never awaited"):
            result = await boss.run(make_plan(task))
    error = result.tasks["t"].error
    assert error is not None
    assert "in an async worker, await instead" in error.message


async def test_a_coroutine_that_comes_too_late_is_dropped_without_a_warning() -> None:
    gate = threading.Event()
    made: list[Coroutine[Any, Any, object]] = []

    def late(brief: ch.Brief) -> object:
        gate.wait(60)
        made.append(doubled(brief))
        return made[0]

    worker = ch.worker("w", "Works", timeout=0.05)(late)
    task = ch.Task(id="t", description="Come late", worker="w", args={"n": 4})
    async with ch.Supervisor([worker], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(make_plan(task))
        assert result.tasks["t"].state == "failed"
        gate.set()
        async with asyncio.timeout(10):
            while not made or inspect.getcoroutinestate(made[0]) != inspect.CORO_CLOSED:
                await asyncio.sleep(0)


# code that blocks the event loop


def test_b5_what_blocks_the_event_loop_is_named_with_its_stack_while_it_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The blocking code itself waits until it was named: were that said afterwards, it would give up."""
    monkeypatch.setattr(loop_watchdog, "STALL", 0.05)
    named = threading.Event()
    texts: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())
            if "event_loop_blocked" in texts[-1]:
                assert record.levelno == logging.WARNING
                named.set()

    def blocks_in_here() -> bool:
        return named.wait(20)

    @ch.worker("blocker", "Blocks the loop")
    async def blocker(_: ch.Brief) -> bool:
        return blocks_in_here()

    logger, ear = logging.getLogger("chargehand"), Ear()
    logger.addHandler(ear)
    try:
        task = ch.Task(id="t", description="Block the loop", worker="blocker")
        result = asyncio.run(ch.Supervisor([blocker]).run(make_plan(task)))
    finally:
        logger.removeHandler(ear)
    assert result.tasks["t"].output is True
    assert any("blocks_in_here" in text for text in texts)
    assert sum("event_loop_blocked" in text for text in texts) == 1  # once a stall


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (["<frozen importlib._bootstrap>", "/lib/genai_prices/data.py"], "imported"),
        ([loop_watchdog.__file__], "chargehand itself"),
        (["/srv/me/worker.py"], "process=True"),
    ],
)
def test_the_watchdog_advises_on_what_blocks_and_not_on_a_worker(
    inner: list[str], said: str
) -> None:
    assert said in loop_watchdog.advice(
        ["/lib/asyncio/base_events.py", loop_watchdog.__file__, *inner]
    )


async def test_a_loop_that_answers_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    dog = Watchdog.watch()
    try:
        with caplog.at_level(logging.WARNING, "chargehand"):
            for _ in range(3):
                dog.look()
                await asyncio.sleep(0)
        assert not caplog.records
        dog._asked_at = time.monotonic() - 2 * loop_watchdog.STALL
        dog.look()
        dog.look()
        assert caplog.text.count("event_loop_blocked") == 1
        dog._answer()
        assert "it runs again" in caplog.text
    finally:
        dog.release()
