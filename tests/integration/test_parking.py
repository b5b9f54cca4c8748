"""Waiting is not failing: who would wait long for a provider gives up its place, and nothing else."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand import errors
from chargehand.decisions.circuit_breaker import BreakerState
from chargehand.decisions.schedule import RunState
from chargehand.facts.events import AttemptParked, AttemptStarted, Event, StepFinished
from chargehand.facts.outcome import Parked
from chargehand.journal.memory import MemoryJournal
from chargehand.models.base import ModelRequest, ToolCall, user
from chargehand.models.gateway import CallTerms
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

DOWN = errors.ModelUnreachable("nobody there")


class Provider:
    """Answers, but not at certain times; keeps when it was called."""

    def __init__(self, down: tuple[float, float], error: Exception = DOWN) -> None:
        self.calls: list[float] = []
        self.down = down
        self.error = error
        self.model = ch.ScriptedModel([self.answer] * 5000, name="scripted:there")

    def answer(self, _: object) -> "str | Exception":
        now = asyncio.get_running_loop().time()
        self.calls.append(now)
        return self.error if self.down[0] <= now < self.down[1] else "there"

    def during(self) -> list[float]:
        return [at for at in self.calls if self.down[0] <= at < self.down[1]]


class Ran:
    """What came of a run, and all that happened to it."""

    def __init__(self, boss: ch.Supervisor) -> None:
        self.events: list[Event] = []
        boss.on(*ch.events.KINDS.values())(lambda _, event: self.events.append(event))

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def lead(
    provider: Provider, plan: ch.Plan, workers: "list[Any] | None" = None, **terms: Any
) -> tuple[ch.RunResult, Ran]:
    """Call the provider once, wait a second, then run the plan; all in virtual time."""

    async def main() -> tuple[ch.RunResult, Ran]:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        boss = ch.Supervisor([mind, *(workers or [])], clock=FakeClock(), **terms)
        async with boss:
            await boss.run(make_plan(make_task("before", "mind")))
            await asyncio.sleep(1)
            ran = Ran(boss)
            return await boss.run(plan), ran

    return run_virtual(main())


def minds(count: int) -> ch.Plan:
    return make_plan(*(make_task(f"t{n}", "mind") for n in range(count)))


def test_d13_an_hour_without_any_provider_costs_no_try_and_no_active_time() -> None:
    provider = Provider((0.5, 3600))
    limits = ch.Limits(active=timedelta(minutes=10))
    result, ran = lead(provider, minds(40), limits=limits, parallel=8)
    assert result.status == "succeeded"
    assert {task.attempts for task in result.tasks.values()} == {1}
    assert timedelta(minutes=59) < result.wall < timedelta(minutes=66)
    assert len(provider.during()) < 60, "a probe at a time, and longer rests each time"
    assert len(ran.of(AttemptParked)) < 40 * 25, "each was woken a few times, not without end"


def test_while_one_provider_is_down_its_tasks_leave_their_places_to_others() -> None:
    provider = Provider((0.5, 600))

    @ch.worker("hands", "Does something else")
    async def hands(brief: ch.Brief) -> float:
        return asyncio.get_running_loop().time()

    tasks = [make_task(f"t{n}", "mind") for n in range(4)]
    others = [make_task(f"h{n}", "hands") for n in range(4)]
    result, _ = lead(provider, make_plan(*tasks, *others), [hands], parallel=2)
    assert result.status == "succeeded"
    assert all(result.tasks[f"h{n}"].output < 60 for n in range(4))


def test_d1_a_long_retry_after_parks_and_nobody_calls_inside_the_window() -> None:
    wait = timedelta(seconds=120)
    provider = Provider((0.5, 2), errors.ModelBusy("later", retry_after=wait))
    result, ran = lead(provider, minds(30), parallel=8)
    told = max(provider.during())
    assert result.status == "succeeded"
    assert not [at for at in provider.calls if told < at < told + 119]
    assert len(provider.calls) - 1 <= 1.5 * 30
    assert ran.of(AttemptParked)
    assert {event.why for event in ran.of(AttemptParked)} == {"later"}, "in the provider's words"


def test_a_short_wait_is_waited_for_in_place() -> None:
    wait = timedelta(seconds=2)
    provider = Provider((0.5, 1.5), errors.ModelBusy("later", retry_after=wait))
    result, ran = lead(provider, minds(5))
    assert result.status == "succeeded"
    assert not ran.of(AttemptParked)


def test_what_was_done_before_is_not_paid_again() -> None:
    """A worker that has used its tool parks at its second thought, and goes on from there."""
    used: list[str] = []

    @ch.tool(effect="once")
    def note(text: str) -> str:
        """Note something down."""
        used.append(text)
        return "noted"

    def is_down() -> bool:
        return asyncio.get_running_loop().time() < 100

    def second(_: object) -> Any:
        return DOWN if is_down() else "all noted"

    async def main() -> tuple[ch.RunResult, Ran]:
        lines: list[Any] = [ToolCall("1", "note", '{"text": "a"}'), *[second] * 50]
        mind = ch.Worker("mind", "Thinks", tools=[note], model=ch.ScriptedModel(lines))
        boss = ch.Supervisor([mind], clock=FakeClock())
        async with boss:
            ran = Ran(boss)
            return await boss.run(minds(1)), ran

    result, ran = run_virtual(main())
    assert result.tasks["t0"].output == "all noted"
    assert used == ["a"]
    assert len(ran.of(AttemptStarted)) > 1
    assert len(ran.of(StepFinished)) == 3


def test_the_supervisors_own_thinking_parks_too() -> None:
    provider = Provider((0.5, 900))
    limits = ch.Limits(active=timedelta(minutes=5))

    async def main() -> tuple[ch.RunResult, Ran]:
        plan = '{"goal": "g", "tasks": [{"id": "t1", "description": "Say the word", "worker": "hands"}]}'

        def answer(request: object) -> Any:
            said = provider.answer(request)
            return said if isinstance(said, Exception) else plan

        @ch.worker("hands", "Says the word")
        async def hands(brief: ch.Brief) -> str:
            return "word"

        model = ch.ScriptedModel([answer] * 500, name="scripted:there")
        boss = ch.Supervisor([hands], model=model, clock=FakeClock(), limits=limits)
        async with boss:
            await boss.plan("Say the word")
            await asyncio.sleep(1)
            ran = Ran(boss)
            return await boss.run("Say the word", approach="whole"), ran

    result, ran = run_virtual(main())
    assert result.tasks["t1"].output == "word"
    assert {event.task for event in ran.of(AttemptParked)} >= {"@plan"}
    assert result.wall > timedelta(minutes=14)


def test_d13_a_provider_that_stays_away_makes_the_run_wait_and_not_fail() -> None:
    """Past the patience nothing is given up: the run waits, in the provider's words, until it is back."""
    provider = Provider((0.5, 3600))

    async def main() -> tuple[list[Any], ch.RunResult, list[Any]]:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        board = ch.ModelGateway(patience=timedelta(minutes=20))
        async with ch.Supervisor([mind], clock=FakeClock(), gateway=board) as boss:
            await boss.run(make_plan(make_task("before", "mind")))
            await asyncio.sleep(1)
            ran, seen = Ran(boss), []
            run = await boss.submit(minds(3))
            for minute in (10, 40):
                await asyncio.sleep(60 * minute - asyncio.get_running_loop().time())
                seen.append((await boss.look(run.id)).status)
            return seen, await run.wait(), ran.of(AttemptParked)

    seen, result, parked = run_virtual(main())
    assert seen == [RunState.RUNNING, RunState.WAITING]
    assert result.status == "succeeded"
    assert {task.attempts for task in result.tasks.values()} == {1}
    assert {event.is_long for event in parked} == {False, True}
    assert {event.why for event in parked} == {"nobody there"}


def test_d13_a_run_that_is_resumed_in_the_middle_of_an_outage_goes_on_waiting() -> None:
    """Whoever resumes it has never seen the provider answer; that the task has parked tells."""
    provider = Provider((0.5, 300))

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        clock, journal = FakeClock(), MemoryJournal()
        first = ch.Supervisor([mind], journal=journal, clock=clock)
        await first.run(make_plan(make_task("before", "mind")))
        await asyncio.sleep(1)
        run = await first.submit(minds(2))
        await asyncio.sleep(60)
        await first.stop(timedelta(0))
        async with ch.Supervisor([mind], journal=journal, clock=clock) as other:
            return await other.resume(run.id)

    result = run_virtual(main())
    assert result.status == "succeeded"
    assert {task.attempts for task in result.tasks.values()} == {1}


def test_what_ran_out_of_time_while_it_was_parked_says_for_whom_it_waited() -> None:
    provider = Provider((0.5, 10**9))
    result, _ = lead(provider, minds(2), limits=ch.Limits(deadline=timedelta(minutes=5)))
    assert result.status == "failed"
    assert "nobody there" in str(result.answer)


@pytest.mark.parametrize("tasks", [1, 50])
def test_an_address_that_never_answered_fails_in_seconds(tasks: int) -> None:
    provider = Provider((0, 10**9))

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        async with ch.Supervisor([mind], clock=FakeClock()) as boss:
            return await boss.run(minds(tasks))

    result = run_virtual(main())
    assert result.status == "failed"
    assert result.wall < timedelta(seconds=5)
    error = result.tasks["t0"].error
    assert error is not None
    assert error.message == "nobody there"
    assert len(provider.calls) <= 3 * tasks


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_only_fails_is_not_said_to_have_never_answered(status: int) -> None:
    down = errors.ModelUnreachable(f"it answered {status}", status=status)
    provider = Provider((0, 10**9), down)

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        async with ch.Supervisor([mind], clock=FakeClock()) as boss:
            return await boss.run(minds(10))

    result = run_virtual(main())
    assert result.status == "failed"
    assert result.wall < timedelta(seconds=30)
    told = {task.error.message for task in result.tasks.values() if task.error is not None}
    assert told == {f"it answered {status} (tried 3 times)"}


# J7: one request that always fails


class Poisoned(Provider):
    """Serves everybody but those who say a word."""

    def __init__(self, error: Exception, words: tuple[str, ...]) -> None:
        super().__init__((0, 0), error)
        self.words = words

    def answer(self, request: Any) -> "Awaitable[str | Exception]":  # type: ignore[override]  # it takes its time
        return self.later(request.turns[-1].text)

    async def later(self, said: str) -> "str | Exception":
        self.calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.05)
        return self.error if any(word in said for word in self.words) else "there"


@pytest.mark.parametrize(
    ("error", "place", "parallel"),
    [
        (errors.ModelUnreachable("it answered 500", status=500), 0, 1),
        (errors.ModelUnreachable("it answered 500", status=500), 3, 10),
        (errors.ModelUnreachable("it answered 500", status=500), 9, 1),
        # Last of all it could not be told from an outage: nobody else is left to be served.
        (errors.ModelUnreachable("it answered 503", status=503), 0, 3),
        (errors.ModelUnreachable("it answered 503", status=503), 3, 1),
        (errors.ModelUnreachable("it answered 503", status=503), 9, 10),
        (errors.ModelUnreachable("it hung up"), 3, 10),
        (errors.ModelTooSlow("it fell silent", status=504), 3, 1),
        (errors.ModelGarbled("it cannot be read", status=200), 9, 3),
    ],
)
def test_j7_a_request_that_always_fails_hurts_itself_alone(
    error: Exception, place: int, parallel: int
) -> None:
    provider = Poisoned(error, (f"question {place} ",))

    async def main() -> tuple[ch.RunResult, Any]:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        tasks = [
            ch.Task(id=f"t{n}", description=f"Answer question {n} about towers", worker="mind")
            for n in range(10)
        ]
        board = ch.ModelGateway()
        boss = ch.Supervisor([mind], clock=FakeClock(), gateway=board, parallel=parallel)
        async with boss:
            return await boss.run(make_plan(*tasks)), board.states()

    result, states = run_virtual(main())
    assert result.status == "partial"
    assert sum(task.state == "done" for task in result.tasks.values()) == 9
    assert result.wall < timedelta(seconds=30)
    assert set(states.values()) == {BreakerState.CLOSED}
    failed = result.tasks[f"t{place}"].error
    assert failed is not None
    assert str(error) in failed.message
    assert len(provider.calls) <= 20


# what waits says so


def test_j9_an_outage_is_said_once_within_a_second(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider((0.5, 300))
    heard: list[float] = []

    class Hearing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("model_waits"):
                heard.append(asyncio.get_running_loop().time())

    logger, handler = logging.getLogger("chargehand"), Hearing()
    logger.addHandler(handler)
    try:
        lead(provider, minds(8))
    finally:
        logger.removeHandler(handler)
    (said,) = [line for line in caplog.messages if line.startswith("model_waits")]
    assert "provider=scripted" in said
    assert "reason=nobody there" in said
    assert "cancel the run" in said
    assert "Rates" not in said, "nobody has set any"
    assert heard[0] - provider.during()[0] <= 1


@pytest.mark.parametrize(
    ("rates", "why"),
    [
        (ch.Rates(concurrency=1), "reason=the limit of 1 call at once;"),
        (ch.Rates(requests=6), "reason=the limit of 6 requests a minute;"),
        (ch.Rates(tokens=60_000), "reason=the limit of 60000 tokens a minute;"),
    ],
)
def test_j9_a_wait_for_a_limit_is_said_once(
    rates: ch.Rates, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        model = ch.ScriptedModel(["yes"] * 20, name="it:s", latency=timedelta(seconds=1.5))
        mind = ch.Worker("mind", "Thinks", model=model)
        board = ch.ModelGateway({"it": rates})
        async with ch.Supervisor([mind], clock=FakeClock(), gateway=board) as boss:
            await boss.run(minds(12))

    run_virtual(main())
    said = [line for line in caplog.messages if line.startswith("model_waits")]
    assert why in said[0]
    assert len(said) == 1, "not once for each call"
    assert said[0].endswith("or give it another model or other Rates")


def test_j9_retry_after_is_said_with_its_length(caplog: pytest.LogCaptureFixture) -> None:
    busy = errors.ModelBusy("slow down, please", retry_after=timedelta(seconds=3))
    provider = Provider((0.5, 2), busy)
    result, _ = lead(provider, minds(5))
    assert result.status == "succeeded"
    (said,) = [line for line in caplog.messages if line.startswith("model_waits")]
    assert "up_to_seconds=3" in said
    assert "reason=slow down, please" in said


@pytest.mark.parametrize("asked", [0.3, 0.9, 1.0, 3.0])
@pytest.mark.parametrize("deadline", [3.5, 15, 120])
def test_j9_short_waits_add_up_and_are_named_where_they_end_a_run(
    asked: float, deadline: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Each wait is too short to be said or to park; what they come to is neither."""
    busy = errors.ModelBusy("slow down, please", retry_after=timedelta(seconds=asked))
    limits = ch.Limits(deadline=timedelta(seconds=deadline))
    result, _ = lead(Provider((0.5, 10**9), busy), minds(1), limits=limits)
    assert result.status == "failed"
    assert "slow down, please" in str(result.answer)
    said = [line for line in caplog.messages if line.startswith("model_waits")]
    assert 1 <= len(said) <= 2
    assert all(int(re.findall(r"seconds=(\d+)", line)[0]) <= deadline for line in said)


@pytest.mark.parametrize("asked", [0, 1e-6, 0.2])
@pytest.mark.parametrize("may_park", [False, True])
def test_d2_a_provider_that_asks_for_no_wait_is_called_ever_less_often(
    asked: float, may_park: bool, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Provider((0.5, 10**9), errors.ModelBusy("busy", retry_after=asked))
    terms: dict[str, Any] = {"on_question": "wait"} if may_park else {}
    limits = ch.Limits(deadline=timedelta(seconds=60))
    result, _ = lead(provider, minds(1), limits=limits, **terms)
    assert result.status == "failed"
    assert 4 <= len(provider.during()) <= 12
    assert "up_to_seconds=" in caplog.text
    assert "up_to_seconds=0" not in caplog.text


def test_j9_a_wait_is_said_to_be_no_longer_than_the_run(caplog: pytest.LogCaptureFixture) -> None:
    limits = ch.Limits(deadline=timedelta(minutes=2))
    lead(Provider((0.5, 10**9)), minds(3), limits=limits)
    (said,) = [line for line in caplog.messages if line.startswith("model_waits")]
    assert 100 < int(re.findall(r"seconds=(\d+)", said)[0]) <= 120


def test_a_run_that_only_waits_for_a_provider_does_not_wait_for_a_person() -> None:
    provider = Provider((0.5, 300))

    async def main() -> object:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        async with ch.Supervisor([mind], clock=FakeClock()) as boss:
            await boss.run(make_plan(make_task("before", "mind")))
            await asyncio.sleep(1)
            run = await boss.submit(minds(2))
            await asyncio.sleep(60)
            status = (await boss.look(run.id)).status
            await run.wait()
            return status

    assert run_virtual(main()) is RunState.RUNNING


def test_a_parked_run_that_is_left_goes_on_where_it_is_resumed() -> None:
    provider = Provider((0.5, 300))

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Thinks", model=provider.model)
        board, clock, journal = ch.ModelGateway(), FakeClock(), MemoryJournal()
        first = ch.Supervisor([mind], journal=journal, gateway=board, clock=clock)
        await first.run(make_plan(make_task("before", "mind")))
        await asyncio.sleep(1)
        run = await first.submit(minds(2))
        await asyncio.sleep(30)
        await first.stop(timedelta(0))
        with pytest.raises(errors.RunInterrupted):
            await run.wait()
        other = ch.Supervisor([mind], journal=journal, gateway=board, clock=clock)
        async with other:
            return await other.resume(run.id)

    result = run_virtual(main())
    assert result.status == "succeeded"
    assert {task.attempts for task in result.tasks.values()} == {1}


# the gateway by itself


def ask(
    board: ch.ModelGateway, model: Any, *, may_park: bool, temperature: float = 1.0
) -> "asyncio.Task[Any]":
    settings = ch.ModelSettings(temperature=temperature)
    request = ModelRequest(turns=(user("hello"),), settings=settings)
    return asyncio.create_task(
        _caught(lambda: board.ask([model], request, terms=CallTerms(may_park=may_park)))
    )


async def _caught(asking: Callable[[], Any]) -> Any:
    try:
        return (await asking()).reply.text
    except Parked as parked:
        return parked


async def opened(board: ch.ModelGateway, provider: Provider) -> None:
    """Use the board until the breaker of this provider is open."""
    await ask(board, provider.model, may_park=False)
    await asyncio.sleep(1)
    assert isinstance(await ask(board, provider.model, may_park=True), Parked)


def test_only_who_may_park_is_sent_away() -> None:
    provider = Provider((0.5, 60))

    async def main() -> list[Any]:
        board = ch.ModelGateway()
        await opened(board, provider)
        asking = [ask(board, provider.model, may_park=may) for may in (True, False, True)]
        return list(await asyncio.gather(*asking))

    first, second, third = run_virtual(main())
    assert isinstance(first, Parked)
    assert second == "there"
    assert isinstance(third, Parked)
    assert first.wait > timedelta(seconds=5)
    assert "nobody there" in first.why


def test_who_shares_a_call_that_is_parked_is_parked_with_it_if_it_may_be() -> None:
    provider = Provider((0.5, 60))

    async def main() -> list[Any]:
        board = ch.ModelGateway()
        await opened(board, provider)
        asking = [
            ask(board, provider.model, may_park=may, temperature=0) for may in (True, True, False)
        ]
        return list(await asyncio.gather(*asking))

    kinds = Counter(type(each).__name__ for each in run_virtual(main()))
    assert kinds == {"Parked": 2, "str": 1}


def test_a_long_window_is_no_reason_to_wait_where_there_is_a_spare() -> None:
    busy = Provider((0, 10**9), errors.ModelBusy("later", retry_after=timedelta(hours=1)))
    spare = ch.ScriptedModel(["spare", "spare"], name="other:spare")

    async def main() -> float:
        board = ch.ModelGateway()
        request = ModelRequest(turns=(user("hello"),))
        for _ in range(2):
            call = await board.ask([busy.model, spare], request)
            assert call.model == "other:spare"
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) < 30
    assert len(busy.calls) == 1


def test_a_caller_that_is_stopped_while_it_is_sent_away_takes_no_turn_with_it() -> None:
    provider = Provider((0.5, 60))

    async def main() -> Any:
        board = ch.ModelGateway()
        await opened(board, provider)
        stopped = ask(board, provider.model, may_park=False)
        await asyncio.sleep(0)
        stopped.cancel()
        await asyncio.sleep(100)
        return await ask(board, provider.model, may_park=True)

    assert run_virtual(main()) == "there"


# workers that are down


def tries_of(
    down: tuple[float, float], tasks: int, **terms: Any
) -> tuple[ch.RunResult, list[float]]:
    """Run so many tasks on a plain worker that cannot reach what it needs for a while."""
    tries: list[float] = []

    @ch.worker("caller", "Calls somebody")
    async def caller(brief: ch.Brief) -> str:
        now = asyncio.get_running_loop().time()
        tries.append(now)
        await asyncio.sleep(0.1)
        if down[0] <= now < down[1]:
            raise ConnectionError("nobody there")
        return "called"

    async def main() -> ch.RunResult:
        plan = make_plan(*(make_task(f"t{n}", "caller") for n in range(tasks)))
        chosen = {"breaker": ch.BreakerPolicy(failures=5, rest=15, longest_rest=300), **terms}
        async with ch.Supervisor([caller], clock=FakeClock(), **chosen) as boss:
            return await boss.run(plan)

    return run_virtual(main()), tries


def test_a_hundred_tasks_wait_for_the_one_worker_they_have() -> None:
    result, tries = tries_of((0, 40), 100, parallel=4)
    assert result.status == "succeeded"
    assert len([at for at in tries if at < 40]) < 12, "what waits uses up no try"
    assert result.wall < timedelta(minutes=3)


def test_without_a_breaker_every_task_has_its_tries_at_once() -> None:
    no_breaker = ch.BreakerPolicy(failures=0)
    result, tries = tries_of((0, 90), 100, parallel=4, breaker=no_breaker)
    assert result.status == "failed"
    assert len(tries) == 300


def test_a_run_whose_worker_stays_away_ends_with_its_active_time() -> None:
    limits = ch.Limits(active=timedelta(minutes=20))
    result, tries = tries_of((0, 10**9), 100, limits=limits)
    assert result.status == "failed"
    assert result.wall <= timedelta(minutes=21)
    assert len(tries) <= 100 + 10, "those that had begun when it opened, then probes"
