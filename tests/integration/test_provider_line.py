"""The line to one provider, by itself: whose fault a failure is, and that every turn taken is given back."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand.decisions.circuit_breaker import OF_PROVIDERS, BreakerPolicy, BreakerState
from chargehand.decisions.rate_limiter import Rates
from chargehand.errors import (
    ModelBusy,
    ModelError,
    ModelExhausted,
    ModelTooSlow,
    ModelUnreachable,
    ToolError,
)
from chargehand.facts.outcome import failed_by
from chargehand.models.base import ModelRequest, ModelSettings, user
from chargehand.models.gateway import CallTerms
from chargehand.models.provider_queue import ProviderFault, ProviderQueue
from chargehand.testing import FakeClock, run_virtual
from chargehand.tools.public_http import Reply, Transport

REQUEST = ModelRequest(turns=(user("hello"),))


def line(**rates: Any) -> ProviderQueue:
    return ProviderQueue("it", Rates(**rates), BreakerPolicy(failures=2).over(OF_PROVIDERS), 600.0)


def failed(status: int = 0) -> ModelError:
    return ModelUnreachable("down", status=status)


async def fails(
    one: ProviderQueue, key: str, status: int = 0, sent: int | None = None
) -> ProviderFault:
    await one.admitted(0, 1, may_park=False)
    return one.fail(failed(status), key, one.served if sent is None else sent, 1.0)[0]


async def serves(one: ProviderQueue) -> None:
    await one.admitted(0, 1, may_park=False)
    one.limiter.succeed(1, 1, 1.0)
    one.serve(None)


def test_a_caller_that_is_cancelled_as_its_turn_comes_gives_it_back() -> None:
    async def main() -> None:
        one = line(concurrency=1)
        await one.admitted(0, 1, may_park=False)
        second = asyncio.create_task(one.admitted(0, 1, may_park=False))
        await asyncio.sleep(0)
        one.limiter.fail()
        one.pump()  # the second has its turn now, and does not know it yet
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert one.limiter.in_flight == 0
        await asyncio.wait_for(one.admitted(0, 1, may_park=False), 5)

    run_virtual(main())


def test_a_probe_that_is_told_to_come_later_gives_its_turn_back() -> None:
    async def main() -> None:
        one = line()
        one.has_served = True
        one.breaker.fail(0.0, "down")
        one.breaker.fail(0.0, "down")
        await one.admitted(0, 1, may_park=False)
        assert one.breaker.wait(20.0) == float("inf"), "it is the probe"
        one.put_back(ModelBusy("later"), 20.0, 20.0)
        assert one.breaker.state is BreakerState.OPEN
        assert one.limiter.in_flight == 0

    run_virtual(main())


def test_whose_fault_it_is() -> None:
    async def main() -> None:
        one = line()
        assert await fails(one, "a") is ProviderFault.ADDRESS
        assert await fails(one, "a", 500) is ProviderFault.REQUEST, "somebody is there"
        one = line()
        await serves(one)
        assert await fails(one, "a", 500) is ProviderFault.REQUEST
        assert await fails(one, "b", 500) is ProviderFault.PROVIDER, (
            "several fail, and none is served"
        )
        await serves(one)
        assert await fails(one, "c", 500) is ProviderFault.REQUEST, (
            "those before it are no witnesses now"
        )
        assert await fails(one, "a", 503, sent=0) is ProviderFault.REQUEST, (
            "others were served since"
        )
        one = line()
        await serves(one)
        assert [await fails(one, "a", 503) for _ in range(4)] == [ProviderFault.PROVIDER] * 4
        assert one.breaker.state is BreakerState.CLOSED, "for one request alone it does not open"
        assert one.limiter.in_flight == 0

    run_virtual(main())


def test_an_address_that_is_dead_is_tried_by_nobody_else_for_a_while() -> None:
    async def main() -> None:
        one = line()
        error = failed()
        one.bury(error, 0.0)
        assert failed_by(error).is_final
        with pytest.raises(ModelUnreachable):
            await one.admitted(0, 1, may_park=False)
        await asyncio.sleep(11)
        await one.admitted(0, 1, may_park=False)

    run_virtual(main())


def test_what_may_have_been_paid_for_is_not_sent_again_where_the_budget_is_for_one() -> None:
    async def main() -> None:
        model = ch.ScriptedModel([ModelTooSlow("silent"), "there"])
        with pytest.raises(ModelTooSlow):
            await ch.ModelGateway().ask([model], REQUEST, terms=CallTerms(once=True))
        assert len(model.requests) == 1
        model = ch.ScriptedModel([ModelTooSlow("silent"), "there"])
        call = await ch.ModelGateway().ask([model], REQUEST)
        assert (call.sends, call.doubtful) == (2, 1)

    run_virtual(main())


def test_an_account_with_nothing_left_passes_the_call_on() -> None:
    async def main() -> None:
        spent = ch.ScriptedModel([ModelExhausted("no credit")], name="a:b")
        spare = ch.ScriptedModel(["there"], name="c:d")
        call = await ch.ModelGateway().ask([spent, spare], REQUEST)
        assert call.model == "c:d"

    run_virtual(main())


async def test_a_page_over_https_does_not_lead_on_to_one_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def moved(*_: Any) -> Reply:
        return Reply(
            url="https://pages.example/a",
            status=302,
            kind="",
            charset="",
            moved_to="http://pages.example/b",
        )

    monkeypatch.setattr(Transport, "_ask", moved)
    transport = Transport(["pages.example"])
    with pytest.raises(ToolError, match="not encrypted"):
        await transport.get("https://pages.example/a")


@pytest.mark.parametrize("at_once", [True, False])
def test_equal_calls_of_two_workers_are_asked_once(*, at_once: bool) -> None:
    """The prompt does not hold the worker's name, so one reply serves both, and is paid for once."""
    model = ch.ScriptedModel(["fine"] * 9, latency=timedelta(seconds=1))

    async def main() -> ch.RunResult:
        settings = ModelSettings(temperature=0)
        minds = [ch.Worker(name, "Works", model=model, settings=settings) for name in ("a", "b")]
        same = "Name the tallest tower of Lyon"
        tasks = [
            ch.Task(id=f"t{n}", description=same, worker=mind.name) for n, mind in enumerate(minds)
        ]
        parallel = 2 if at_once else 1
        async with ch.Supervisor(minds, clock=FakeClock(), parallel=parallel) as boss:
            return await boss.run(ch.Plan(goal="g", tasks=tasks))

    result = run_virtual(main())
    assert {task.output for task in result.tasks.values()} == {"fine"}
    assert len(model.requests) == result.usage.calls == 1
