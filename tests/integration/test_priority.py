"""Priority on one pool: the more urgent starts first, makes room for itself, and nothing is paid twice."""

import asyncio

import chargehand as ch
from chargehand.facts.events import AttemptPreempted
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from chargehand.testing.model_server import Later, Received, Say, model_server


def plan(*descriptions: str, worker: str = "mind") -> ch.Plan:
    tasks = [
        ch.Task(id=f"t{number}", description=words, worker=worker)
        for number, words in enumerate(descriptions)
    ]
    return ch.Plan(goal="Do it", tasks=tasks)


def test_a_more_urgent_run_interrupts_at_a_step_and_the_other_goes_on_after_it() -> None:
    said: list[str] = []

    @ch.worker("walker", "Walks step by step")
    async def walk(brief: ch.Brief) -> str:
        async def step(number: int) -> int:
            said.append(f"{brief.task.description} {number}")
            await asyncio.sleep(1)
            return number

        for number in range(5):
            await brief.step("walk", step, number, effect="pure")
        return brief.task.description

    async def story() -> tuple[ch.RunResult, ch.RunResult, list[str]]:
        preempted: list[str] = []
        async with ch.Supervisor([walk], parallel=1, clock=FakeClock()) as boss:
            boss.on(AttemptPreempted)(lambda run, _: preempted.append(run))
            low = await boss.submit(plan("slow", worker="walker"))
            await asyncio.sleep(1.5)
            high = await boss.submit(plan("urgent", worker="walker"), priority=5)
            done = await high.wait(), await low.wait()
            return *done, [low.id] if preempted == [low.id] else preempted

    high, low, preempted = run_virtual(story())
    assert preempted == [low.id]
    assert said == [
        *("slow 0", "slow 1"),
        *(f"urgent {number}" for number in range(5)),
        *("slow 2", "slow 3", "slow 4"),
    ]
    assert high.wall.total_seconds() < 6
    assert low.tasks["t0"].attempts == 2
    assert low.status == "succeeded"


async def test_work_with_a_model_that_gave_way_repeats_no_call() -> None:
    """Counted at the server: what was asked before the interruption is not asked again."""

    @ch.tool(effect="pure")
    async def look(place: str) -> str:
        """Looks somewhere.

        Args:
            place: where
        """
        return f"no keys at {place}"

    asked: list[str] = []

    def answer(received: Received) -> Later | Say:
        body = str(received.body)
        who = "low" if "the long way" in body else "high"
        times = body.count("no keys at")
        asked.append(f"{who} {times}")
        if who == "low" and times < 4:
            call = ToolCall(f"c{times}", "look", f'{{"place": "room {times}"}}')
            return Later(seconds=0.05, line=Say(calls=(call,)))
        return Later(seconds=0.05, line=Say(text="found"))

    async with model_server() as server:
        server.always = answer
        model = ch.open_model("openai:gpt-4o", base_url=f"{server.url}/v1", key="k" * 20)
        mind = ch.Worker("mind", "Thinks", tools=[look], model=model)
        async with ch.Supervisor([mind], parallel=1) as boss:
            begun = asyncio.Event()
            boss.on(ch.events.StepFinished)(lambda *_: begun.set())
            low = await boss.submit(plan("Go the long way"))
            await begun.wait()
            high = await boss.submit(plan("Go the short way"), priority=5)
            assert (await high.wait()).status == "succeeded"
            result = await low.wait()
    assert result.status == "succeeded"
    assert result.tasks["t0"].attempts == 2
    assert sorted(asked) == ["high 0", *(f"low {number}" for number in range(5))]
    assert asked.index("high 0") < asked.index("low 4")


async def test_threads_and_processes_give_way_at_their_steps_too() -> None:
    @ch.worker("thread", "A plain function")
    def thread(brief: ch.Brief) -> int:
        for number in range(200):
            brief.wait(brief.step("count", int, number, effect="pure"))
        return 200

    @ch.worker("quick", "Quick")
    async def quick(_: ch.Brief) -> str:
        return "quick"

    async with ch.Supervisor([thread, quick], parallel=1) as boss:
        begun = asyncio.Event()
        boss.on(ch.events.StepFinished)(lambda *_: begun.set())
        low = await boss.submit(plan("Count far", worker="thread"))
        await begun.wait()
        high = await boss.submit(plan("Be quick", worker="quick"), priority=1)
        assert (await high.wait()).status == "succeeded"
        assert (await boss.look(low.id)).status == "running"
        assert (await low.wait()).status == "succeeded"
