"""Rows E of the faults: plans that are wrong, too large, or never-ending start nothing they should not."""

import asyncio
import json
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import PlanRefused

HEAD = {"goal": "g", "instruction": "", "strategy": "merge"}


def task(id_: str, needs: tuple[str, ...] = (), worker: str = "hand") -> dict[str, Any]:
    rest = {"needs": list(needs), "accept": "", "optional": False}
    return {"id": id_, "description": f"Make part {id_} of it", "worker": worker, **rest}


def written(*tasks: dict[str, Any]) -> str:
    return json.dumps({**HEAD, "tasks": tasks})


class Hand:
    """A worker that remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[str] = []

        @ch.worker("hand", "Makes parts")
        async def hand(brief: ch.Brief) -> str:
            self.given.append(brief.task.id)
            return "made"

        self.worker = hand


@pytest.mark.parametrize("approach", ["whole", "stream"])
@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (written(task("t1", ("t2",)), task("t2", ("t1",))), "in a circle: t"),
        (written(task("t1", worker="foot")), "'foot' is not on the roster"),
    ],
    ids=["e1_cycle", "e2_unknown_worker"],
)
async def test_e1_e2_a_faulty_plan_is_named_repaired_twice_at_most_and_never_started(
    plan: str, fault: str, approach: str
) -> None:
    hand = Hand()
    model = ch.ScriptedModel([plan] * 3)
    result = await ch.Supervisor([hand.worker], model=model).run("Make it", approach=approach)
    assert result.status == "failed"
    assert fault in result.answer.gaps[0].why
    assert len(model.requests) == 3
    assert hand.given == []


async def test_e1_a_plan_of_a_person_with_a_circle_is_refused_with_the_circle_named() -> None:
    tasks = [
        ch.Task(id="a", description="Make a", worker="hand", needs=["b"]),
        ch.Task(id="b", description="Make b", worker="hand", needs=["a"]),
    ]
    with pytest.raises(PlanRefused, match=r"in a circle: [ab] → [ab] → [ab]"):
        await ch.Supervisor([Hand().worker]).run(ch.Plan(goal="g", tasks=tasks))


async def test_e4_an_empty_plan_starts_nothing_and_says_why() -> None:
    with pytest.raises(PlanRefused, match="the plan has no tasks"):
        await ch.Supervisor([Hand().worker]).run(ch.Plan(goal="g", tasks=[]))
    hand = Hand()
    boss = ch.Supervisor([hand.worker], model=ch.ScriptedModel([written()]))
    result = await boss.run("Make it")
    assert result.status == "failed"
    assert "no worker on the roster can do any of this" in result.answer.gaps[0].why
    assert hand.given == []


async def test_e5_a_vague_task_of_a_planner_goes_back_and_is_not_carried_out() -> None:
    hand = Hand()
    vague = {**task("t1"), "description": "Handle it"}
    boss = ch.Supervisor([hand.worker], model=ch.ScriptedModel([written(vague)] * 3))
    result = await boss.run("Make it")
    assert result.status == "failed"
    assert "too vague to be checked" in result.answer.gaps[0].why
    assert hand.given == []


@pytest.mark.parametrize("approach", ["whole", "stream"])
@pytest.mark.parametrize(
    "bad", [[], [{**task("t1"), "description": "Handle it"}]], ids=["e4", "e5"]
)
async def test_e4_e5_an_unplannable_request_waits_for_a_person_and_goes_on_with_the_answer(
    bad: list[dict[str, Any]], approach: str
) -> None:
    """An empty plan and a vague one end in a question; nothing is carried out before the answer."""
    hand = Hand()
    # An empty plan is believed at once; a vague one goes back twice.
    replies = [written(*bad)] * (3 if bad else 1)
    model = ch.ScriptedModel([*replies, written(task("t1")), "It is made."])
    async with ch.Supervisor([hand.worker], model=model) as boss:
        asked = asyncio.Event()
        boss.on(ch.events.AttemptFinished)(lambda _, __: asked.set())
        run = await boss.submit("Make it", approach=approach, clarify=True)
        await asked.wait()
        seen = await boss.look(run.id)
        (question,) = seen.questions
        assert "No plan can be made of this request" in question.text
        assert hand.given == []
        await boss.answer(question.id, "Make the red one")
        result = await run.wait()
    assert result.status == "succeeded"
    assert len(hand.given) == 1
    assert any("Make the red one" in str(each.turns) for each in model.requests)


async def test_e4_a_person_may_give_up_a_request_that_cannot_be_planned() -> None:
    hand = Hand()
    async with ch.Supervisor([hand.worker], model=ch.ScriptedModel([written()])) as boss:
        asked = asyncio.Event()
        boss.on(ch.events.AttemptFinished)(lambda _, __: asked.set())
        run = await boss.submit("Make it", clarify=True)
        await asked.wait()
        (question,) = (await boss.look(run.id)).questions
        await boss.answer(question.id, "give up")
        result = await run.wait()
    assert result.status == "failed"
    assert "no worker on the roster can do any of this" in result.answer.gaps[0].why


def chain(length: int) -> list[ch.Task]:
    return [
        ch.Task(
            id=f"t{n}", description=f"Link {n}", worker="hand", needs=[f"t{n - 1}"] if n else []
        )
        for n in range(length)
    ]


def fan(width: int) -> list[ch.Task]:
    wide = [ch.Task(id=f"t{n}", description=f"Part {n}", worker="hand") for n in range(width)]
    last = ch.Task(id="all", description="Join", worker="hand", needs=[each.id for each in wide])
    return [*wide, last]


async def test_e6_a_plan_over_the_cap_is_refused_with_the_figure() -> None:
    plan = ch.Plan(goal="g", tasks=fan(9_999))
    with pytest.raises(PlanRefused, match="10000 tasks are more than the cap of 200"):
        await ch.Supervisor([Hand().worker]).run(plan)


@pytest.mark.parametrize("tasks", [chain(1_000), fan(5_000)], ids=["depth 1,000", "fan-in 5,000"])
async def test_e6_a_large_plan_under_the_cap_is_carried_out(tasks: list[ch.Task]) -> None:
    hand = Hand()
    boss = ch.Supervisor([hand.worker], limits=ch.Limits(tasks=10_000))
    result = await boss.run(ch.Plan(goal="g", tasks=tasks))
    assert result.status == "succeeded"
    assert len(hand.given) == len(tasks)
    assert hand.given[-1] == tasks[-1].id


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_e7_tasks_that_plan_ever_more_stop_at_the_depth_exactly(depth: int) -> None:
    live_run: list[int] = []

    def deeper(brief: ch.Brief) -> ch.Plan:
        live_run.append(brief.depth + 1)
        one = ch.Task(id="again", description="Delegate it once more", worker="boss")
        return ch.Plan(goal="more", tasks=[one])

    inner = ch.Supervisor([Hand().worker], name="boss", description="Delegates", plan_for=deeper)
    await inner.join(inner)
    top = ch.Supervisor([inner], limits=ch.Limits(depth=depth))
    plan = ch.Plan(goal="g", tasks=[ch.Task(id="t", description="Delegate it away", worker="boss")])
    result = await top.run(plan)
    assert result.status == "failed"
    whose = "Limits(depth=1)" if depth == 1 else "Limits(depth=…) of a supervisor above"
    assert f"{whose} allows runs at depths 0 to {depth - 1};" in result.answer.gaps[0].why
    assert max(live_run, default=0) < depth


async def test_e10_a_planner_that_says_it_is_done_before_anything_is_has_not_succeeded() -> None:
    done = json.dumps({"next": "finish", "task": "", "why": "all is well"})
    boss = ch.Supervisor([Hand().worker], model=ch.ScriptedModel([done] * 3))
    result = await boss.run("Make it", approach="steps")
    assert result.status == "failed"
    assert "@plan" in result.answer.gaps[0].task
