"""A request in words: planned, carried out, answered; followed up; done again where something changed."""

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand.testing import FakeClock, run_virtual


def a_plan(*tasks: dict[str, Any], **more: Any) -> str:
    return json.dumps({"goal": "", "instruction": "", "strategy": "merge", **more, "tasks": tasks})


def a_task(id_: str, worker: str, description: str, needs: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "id": id_,
        "description": description,
        "worker": worker,
        "needs": list(needs),
        "accept": "",
        "optional": False,
    }


@ch.worker("finder", "Finds how high towers are")
async def find(brief: ch.Brief) -> str:
    return "324 m" if "Eiffel" in brief.task.description else "553 m"


@ch.worker("calculator", "Calculates with what others found")
async def calculate(brief: ch.Brief) -> str:
    heights = [int(str(each).removesuffix(" m")) for each in brief.inputs.values()]
    return f"{max(heights) - min(heights)} m"


TOWERS = a_plan(
    a_task("t1", "finder", "Find the height of the Eiffel Tower"),
    a_task("t2", "finder", "Find the height of the CN Tower"),
    a_task("t3", "calculator", "Calculate the difference of both heights", ("t1", "t2")),
)


async def test_a_request_in_words_becomes_tasks_and_one_answer() -> None:
    mind = ch.ScriptedModel([TOWERS, "The CN Tower is 229 m higher. [t3]\nCONFIDENCE: 0.9"])
    boss = ch.Supervisor([find, calculate], model=mind)
    result = await boss.run("How much higher is the CN Tower than the Eiffel Tower?")
    assert result.status == "succeeded"
    assert result.answer.text == "The CN Tower is 229 m higher."
    assert result.answer.claims[0].tasks == ("t3",)
    assert result.tasks["t3"].output == "229 m"
    assert list(result.tasks) == ["t1", "t2", "t3"]
    mind.assert_complete()


async def test_a_plan_can_be_looked_at_before_anything_runs() -> None:
    boss = ch.Supervisor([find, calculate], model=ch.ScriptedModel([TOWERS]))
    plan = await boss.plan("How much higher is the CN Tower than the Eiffel Tower?")
    assert [task.worker for task in plan.tasks] == ["finder", "finder", "calculator"]
    again = ch.Plan.from_json(plan.to_json())
    result = await boss.run(again)
    assert result.answer.text == "229 m"


async def test_a_run_can_be_limited_to_some_workers() -> None:
    plan = a_plan(a_task("t1", "finder", "Find the height of the Eiffel Tower"))
    mind = ch.ScriptedModel([plan, "It is 324 m high. [t1]\nCONFIDENCE: 1"])
    boss = ch.Supervisor([find, calculate], model=mind)
    result = await boss.run("How high is the Eiffel Tower?", workers=["finder"])
    assert result.answer.text == "It is 324 m high."
    assert "- finder: Finds how high towers are" in mind.requests[0].turns[0].text
    assert "calculator" not in mind.requests[0].turns[0].text


async def test_an_answer_can_have_a_type() -> None:
    @dataclass
    class Difference:
        metres: int
        higher: str

    shaped = {"answer": {"metres": 229, "higher": "CN Tower"}, "claims": [], "contradictions": []}
    mind = ch.ScriptedModel([TOWERS, json.dumps({**shaped, "confidence": 1})])
    boss = ch.Supervisor([find, calculate], model=mind)
    result = await boss.run("How much higher is the CN Tower?", output=Difference)
    assert result.output == Difference(229, "CN Tower")


async def test_a_run_that_is_asked_for_again_by_its_key_answers_in_the_same_type() -> None:
    @dataclass
    class Difference:
        metres: int

    shaped = {"answer": {"metres": 229}, "claims": [], "contradictions": [], "confidence": 1}
    boss = ch.Supervisor([find, calculate], model=ch.ScriptedModel([TOWERS, json.dumps(shaped)]))
    async with boss:
        first = await boss.run("How much higher?", output=Difference, key="towers")
        again = await boss.run("How much higher?", output=Difference, key="towers")
    assert first.output == again.output == Difference(229)


async def test_the_answer_is_heard_while_it_is_written() -> None:
    mind = ch.ScriptedModel([TOWERS, "The CN Tower is 229 m higher. [t3]\nCONFIDENCE: 0.9"])
    boss = ch.Supervisor([find, calculate], model=mind)
    pieces = [
        heard.text
        async for heard in boss.stream("How much higher is the CN Tower?")
        if isinstance(heard, ch.AnswerPiece)
    ]
    assert len(pieces) > 1
    assert "".join(pieces) == "The CN Tower is 229 m higher."


async def test_a_request_can_be_routed_to_the_one_worker_it_is_for() -> None:
    choice = {"worker": "finder", "task": "Find the height of the Eiffel Tower", "why": "a height"}
    boss = ch.Supervisor([find, calculate], model=ch.ScriptedModel([json.dumps(choice)]))
    result = await boss.run("How high is the Eiffel Tower?", approach="route")
    assert result.answer.text == "324 m"


async def test_step_by_step_each_choice_sees_what_came_before() -> None:
    def step(worker: str, task: str) -> str:
        return json.dumps({"next": worker, "task": task, "why": "it comes next"})

    mind = ch.ScriptedModel(
        [
            step("finder", "Find the height of the Eiffel Tower"),
            ch.When("324 m", step("finder", "Find the height of the CN Tower")),
            ch.When("553 m", step("finish", "")),
            "They are 324 m and 553 m high. [t1][t2]",
        ]
    )
    boss = ch.Supervisor([find, calculate], model=mind)
    result = await boss.run("How high are the two towers?", approach="steps")
    assert result.status == "succeeded"
    assert list(result.tasks) == ["t1", "t2"]
    mind.assert_complete()


async def test_a_request_can_go_on_from_an_earlier_run() -> None:
    mind = ch.ScriptedModel(
        [
            TOWERS,
            "The CN Tower is 229 m higher. [t3]",
            ch.When(
                "229 m higher", a_plan(a_task("t1", "finder", "Find the height of the CN Tower"))
            ),
            ch.When("229 m higher", "229 m. [t1]"),
        ]
    )
    boss = ch.Supervisor([find, calculate], model=mind)
    first = await boss.run("How much higher is the CN Tower than the Eiffel Tower?")
    second = await boss.run("Shorter, please", after=first.id)
    assert second.answer.text == "229 m."


async def test_a_failed_task_is_rewritten_and_then_given_up_with_its_gap_named() -> None:
    @ch.worker("reader", "Reads files")
    async def read(brief: ch.Brief) -> str:
        if "Lyon" in brief.task.description:
            raise ValueError("there is no file about Lyon")
        return "1889"

    mind = ch.ScriptedModel(
        [
            a_plan(
                a_task("t1", "reader", "Read when the tower of Paris was built"),
                a_task("t2", "reader", "Read when the tower of Lyon was built"),
            ),
            ch.When(
                "no file",
                json.dumps({"description": "Read the year of the tower of Lyon in a list"}),
            ),
            ch.When(
                "no file",
                json.dumps({"description": "Find any year for the Lyon tower in the archive"}),
            ),
            ch.When("Paris", "Paris: 1889. [t1]\nCONFIDENCE: 0.8"),
        ]
    )
    boss = ch.Supervisor([read], model=mind, limits=ch.Limits(replans=0))
    result = await boss.run("When were the towers of Paris and Lyon built?")
    assert result.status == "partial"
    assert result.answer.text == "Paris: 1889."
    (gap,) = result.answer.gaps
    assert gap.task == "t2"
    assert "no file about Lyon (tried 3 times)" in gap.why


def test_at_the_deadline_there_is_an_answer_with_its_gaps() -> None:
    @ch.worker("slow", "Takes its time")
    async def slow(brief: ch.Brief) -> str:
        await asyncio.sleep(10 if "long" in brief.task.description else 1)
        return "quick"

    mind = ch.ScriptedModel(
        [
            a_plan(
                a_task("t1", "slow", "Do the short thing"),
                a_task("t2", "slow", "Do the long thing"),
            ),
            "Only the quick one. [t1]",
        ]
    )

    boss = ch.Supervisor([slow], model=mind, clock=FakeClock())
    result = run_virtual(boss.run("Do both things", deadline=timedelta(seconds=5)))
    assert result.status == "partial"
    assert result.answer.text == "Only the quick one."
    assert [gap.task for gap in result.answer.gaps] == ["t2"]
    assert result.wall.total_seconds() <= 5


async def test_an_answer_is_drafted_while_the_last_task_is_still_under_way() -> None:
    drafted, arrived = asyncio.Event(), asyncio.Event()

    @ch.worker("walker", "Walks")
    async def walk(brief: ch.Brief) -> str:
        if "far" in brief.task.description:
            await drafted.wait()
        return "there"

    plan = ch.Plan(
        goal="Be there",
        instruction="Say who is there",
        tasks=[
            ch.Task(id="near", description="Walk near", worker="walker"),
            ch.Task(id="far", description="Walk far", worker="walker"),
        ],
    )
    mind = ch.ScriptedModel(
        ["One is there. [near]", ch.When("One is there", "Both are there. [near][far]")]
    )
    async with ch.Supervisor([walk], model=mind) as boss:
        boss.on(ch.events.AttemptFinished)(
            lambda _, event: arrived.set() if event.task == "@draft:1" else None
        )
        run = await boss.submit(plan, drafts=True)
        await arrived.wait()
        early = (await boss.look(run.id)).answer
        assert early.text == "One is there."
        assert [gap.task for gap in early.gaps] == ["far"]
        drafted.set()
        assert (await run.wait()).answer.text == "Both are there."


async def test_what_has_not_changed_is_not_done_again() -> None:
    done: list[str] = []

    @ch.worker("maker", "Makes things", version="1")
    async def make(brief: ch.Brief) -> str:
        done.append(brief.task.id)
        return brief.task.description + "".join(brief.inputs.values())

    def things(b: str) -> ch.Plan:
        return ch.Plan(
            goal="things",
            tasks=[
                ch.Task(id="a", description="one", worker="maker"),
                ch.Task(id="b", description=b, worker="maker"),
                ch.Task(id="c", description="three", worker="maker", needs=["a"]),
                ch.Task(id="d", description="four", worker="maker", needs=["b", "c"]),
            ],
        )

    boss = ch.Supervisor([make])
    first = await boss.run(things("two"))
    done.clear()
    second = await boss.run(things("other"), reuse=first.id)
    assert sorted(done) == ["b", "d"]
    assert second.tasks["d"].output == "fourotherthreeone"
    done.clear()
    await boss.run(things("other"), reuse=second.id)
    assert done == []


@pytest.mark.parametrize("request_", ["", "  \n", "x" * 1_000_000], ids=["empty", "blank", "1 MB"])
async def test_a_request_that_says_nothing_or_everything_is_refused(request_: str) -> None:
    boss = ch.Supervisor([find], model=ch.ScriptedModel())
    with pytest.raises(ch.UsageError, match="the request"):
        await boss.run(request_)


@pytest.mark.parametrize("terms", [{"after": "nobody"}, {"reuse": "nobody"}], ids=str)
async def test_a_run_that_is_not_there_cannot_be_gone_on_from(terms: Any) -> None:
    boss = ch.Supervisor([find], model=ch.ScriptedModel())
    with pytest.raises(ch.errors.UnknownRun, match="nobody"):
        await boss.run("Shorter, please", **terms)


async def test_a_planner_that_talks_nonsense_leaves_a_failed_run_that_says_so() -> None:
    boss = ch.Supervisor([find], model=ch.ScriptedModel(["nonsense", "more of it", "and more"]))
    result = await boss.run("How high is the Eiffel Tower?")
    assert result.status == "failed"
    assert "no plan" in str(result.answer.gaps[0])
