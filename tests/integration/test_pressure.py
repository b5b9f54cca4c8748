"""A provider under pressure, over real HTTP: told to slow down, all slow down, and nothing fails."""

import asyncio
import json

import pytest

import chargehand as ch
from chargehand.testing.model_server import (
    DIALECTS,
    Body,
    Later,
    ModelServer,
    Say,
    Status,
    model_server,
)
from tests.guide.conftest import make_plan, make_task

TASKS, AT_ONCE, LATENCY = 100, 16, 0.05


async def run_tasks(server: ModelServer, count: int = TASKS, **board: object) -> ch.RunResult:
    model = ch.open_model("openai:gpt-4o", base_url=f"{server.url}/v1", key="k" * 20)
    mind = ch.Worker("mind", "Thinks", model=model)
    gateway = ch.ModelGateway(**board)  # type: ignore[arg-type]  # spelled by each test
    async with ch.Supervisor([mind], parallel=AT_ONCE, gateway=gateway) as boss:
        return await boss.run(make_plan(*(make_task(f"t{n}", "mind") for n in range(count))))


@pytest.mark.parametrize("retry_after", [None, "1"])
async def test_d1_d2_a_fifth_of_the_rate_is_enough_for_everybody(retry_after: str | None) -> None:
    async with model_server() as server:
        server.always = Later(seconds=LATENCY, line=Say(text="done"))
        server.admit(AT_ONCE / LATENCY / 5, retry_after=retry_after)
        result = await run_tasks(server)
        sent = len(server.requests)
        told = [at for at, status in server.answered if status == 429]
    assert result.status == "succeeded"
    assert {each.attempts for each in result.tasks.values()} == {1}, (
        "a 429 is not a failure of a task"
    )
    assert sent / TASKS <= 1.5
    assert told, "the server was never under pressure"


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "0"},
        {"Retry-After": "-1"},
        {"Retry-After": "0.000001"},
        {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"},
        {"retry-after-ms": "0"},
    ],
    ids=str,
)
async def test_d2_a_wait_of_no_time_does_not_turn_the_backoff_off(headers: dict[str, str]) -> None:
    async with model_server() as server:
        refusal = Status(status=429, headers=headers, kind="rate_limit_error")
        server.say(refusal, refusal)
        server.always = Say(text="done")
        loop = asyncio.get_running_loop()
        began = loop.time()
        result = await run_tasks(server, 1)
        assert loop.time() - began >= 0.75
        assert len(server.requests) == 3
    assert result.status == "succeeded"


async def test_d1_no_call_is_sent_inside_the_window() -> None:
    arrived: list[float] = []
    async with model_server() as server:
        loop = asyncio.get_running_loop()

        def answer(received: object) -> Status | Say:
            arrived.append(loop.time())
            if len(arrived) == 3:
                return Status(status=429, headers={"Retry-After": "1"}, kind="rate_limit_error")
            return Say(text="done")

        server.always = answer
        result = await run_tasks(server, 12, rates={"openai": ch.Rates(concurrency=1)})
    assert result.status == "succeeded"
    assert len(arrived) == 13
    assert arrived[3] - arrived[2] >= 1.0


async def test_d3_a_burst_of_server_errors_is_ridden_out() -> None:
    async with model_server() as server:
        server.say(*[Status(status=503)] * 2)
        server.always = Say(text="done")
        result = await run_tasks(server, 1)
        assert len(server.requests) == 3
    assert result.tasks["t0"].attempts == 1


async def test_equal_calls_that_are_meant_to_repeat_are_made_once() -> None:
    async with model_server() as server:
        server.always = Later(seconds=LATENCY, line=Say(text="done"))
        model = ch.open_model("openai:gpt-4o", base_url=f"{server.url}/v1", key="k" * 20)
        settings = ch.ModelSettings(temperature=0)
        mind = ch.Worker("mind", "Thinks", model=model, settings=settings)
        task = [
            ch.Task(id=f"t{n}", description="Say that it is done", worker="mind") for n in range(5)
        ]
        async with ch.Supervisor([mind]) as boss:
            first = await boss.run(make_plan(*task))
            again = await boss.run(make_plan(task[0]))
        assert len(server.requests) == 1
    assert first.usage.calls == 1
    assert again.usage.calls == 0


async def test_what_the_headers_grant_is_kept_to() -> None:
    """Six requests a minute: after the first answer, the rest would take minutes, so none is sent."""
    async with model_server() as server:
        content = json.dumps(DIALECTS["chat"].whole(Say(text="done"), {"model": "gpt-4o"})).encode()
        server.always = Body(content=content, headers={"x-ratelimit-limit-requests": "6"})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await run_tasks(server, 5, rates={"openai": ch.Rates(concurrency=1)})
        assert len(server.requests) == 2  # a burst of one, as six a minute allow


async def test_a_model_that_a_key_may_not_use_does_not_bar_the_others() -> None:
    async with model_server() as server:
        server.say(Status(status=403, kind="permission_error"))
        server.always = Say(text="done")
        key = "k" * 20
        locked, free = (
            ch.open_model(f"openai:{name}", base_url=f"{server.url}/v1", key=key)
            for name in ("locked", "free")
        )
        minds = [ch.Worker("a", "Thinks", model=locked), ch.Worker("b", "Thinks", model=free)]
        async with ch.Supervisor(minds) as boss:
            result = await boss.run(
                make_plan(make_task("t1", "a"), make_task("t2", "b", ch.Need("t1", optional=True)))
            )
    assert result.tasks["t1"].state == "failed"
    assert result.tasks["t2"].output == "done"
