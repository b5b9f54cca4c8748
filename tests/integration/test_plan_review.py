"""A plan that a person must approve: each answer counts once, also if the plan comes back unchanged."""

import json
from typing import Any

import msgspec

import chargehand as ch
from chargehand.facts.value import Value
from chargehand.presentation.questions_and_typed_answers import evidence_lines
from chargehand.roles.plan_approval import PlanProposal
from chargehand.testing import run_virtual

TASK = {"id": "t1", "description": "Find the height of the tower", "worker": "finder", "needs": []}
PLAN = {"goal": "The tower", "instruction": "", "strategy": "merge", "tasks": [TASK]}
CHANGE = {
    "reason": "the year, too",
    "replaced": [],
    "removed": [],
    "tasks": [{**TASK, "id": "t2", "description": "Find the year of the tower"}],
}


@ch.worker("finder", "Finds facts about towers")
async def finder(brief: ch.Brief) -> str:
    return await brief.ask(f"What is the answer to {brief.task.id}?")


def boss_with(*replies: Any) -> tuple[ch.Supervisor, ch.ScriptedModel]:
    model = ch.ScriptedModel([*replies, *["It is done."] * 3])
    return ch.Supervisor([finder], model=model), model


async def questions_of(boss: ch.Supervisor, run: str) -> tuple[ch.Question, ...]:
    """What it asks, once it asks something."""
    signal = boss.journal.boards.signal
    while True:
        known = signal.count
        if questions := (await boss.look(run)).questions:
            return tuple(questions)
        await signal.wait(since=known)


async def next_question(boss: ch.Supervisor, run: str, *known: str) -> ch.Question:
    """A question about a plan that is none of these."""
    signal = boss.journal.boards.signal
    while True:
        count = signal.count
        asked = (await boss.look(run)).questions
        if found := [each for each in asked if each.about == "plan" and each.id not in known]:
            return found[0]
        await signal.wait(since=count)


def test_a_plan_that_comes_back_unchanged_is_asked_about_again() -> None:
    """The note that it was sent back with is no answer to it."""

    async def work() -> None:
        boss, model = boss_with(*[json.dumps(PLAN)] * 3)
        async with boss:
            run = await boss.submit("How high is the tower?", review=True)
            known: list[str] = []
            for note in ("shorter", "shorter"):
                question = await next_question(boss, run.id, *known)
                known.append(question.id)
                await boss.answer(question.id, note)
            last = await next_question(boss, run.id, *known)
            assert len(model.requests) == 3
            await boss.answer(last.id, "reject")
            assert (await run.wait()).status is ch.RunStatus.FAILED

    run_virtual(work())


def test_a_change_that_comes_back_unchanged_is_asked_about_again() -> None:
    async def work() -> None:
        boss, model = boss_with(json.dumps(PLAN), *[json.dumps(CHANGE)] * 2)
        async with boss:
            run = await boss.submit("How high is the tower?", review=True)
            plan = await next_question(boss, run.id)
            await boss.answer(plan.id, "approve")
            await questions_of(boss, run.id)
            await run.steer("the year, too")
            change = await next_question(boss, run.id, plan.id)
            await boss.answer(change.id, "shorter")
            again = await next_question(boss, run.id, plan.id, change.id)
            assert len(model.requests) == 3
            await boss.answer(again.id, "approve")
            while len(asked := await questions_of(boss, run.id)) < 2:
                await boss.journal.boards.signal.wait(since=boss.journal.boards.signal.count)
            for each in asked:
                await boss.answer(each.id, "324 m")
            assert (await run.wait()).tasks["t2"].output == "324 m"

    run_virtual(work())


def test_whoever_sends_a_plan_back_is_told_if_that_has_changed_nothing() -> None:
    shorter = {**PLAN, "goal": "A tower"}

    async def work() -> None:
        boss, _ = boss_with(*map(json.dumps, (PLAN, PLAN, shorter)))
        async with boss:
            run = await boss.submit("How high is the tower?", review=True)
            known: list[str] = []
            told = []
            for note in ("shorter", "much shorter", "reject"):
                question = await next_question(boss, run.id, *known)
                known.append(question.id)
                told.append("Your note has changed nothing" in question.text)
                await boss.answer(question.id, note)
            assert told == [False, True, False]
            await run.wait()

    run_virtual(work())


def test_a_change_of_the_plan_is_shown_without_a_goal_of_its_own() -> None:
    change = PlanProposal(
        plan=ch.Plan(goal="", tasks=[ch.Task(id="t2", description="Find the year", worker="w")]),
        removed=("t1",),
        reason="the year, too",
        is_change=True,
    )
    question = ch.Question(
        id="r1:@plan:1", text="Go?", about="plan", evidence=Value.of(msgspec.to_builtins(change))
    )
    assert evidence_lines(question) == [
        "because the year, too",
        "1 new task:",
        "  t2  w",
        "      Find the year",
        "removed: t1",
    ]


def test_the_same_faulty_plan_sent_twice_comes_back_twice() -> None:
    async def work() -> None:
        boss, _ = boss_with(json.dumps(PLAN))
        async with boss:
            run = await boss.submit("How high is the tower?", review=True)
            faulty = json.dumps({**PLAN, "tasks": [{**TASK, "worker": "nobody"}]})
            known: list[str] = []
            for _ in range(2):
                question = await next_question(boss, run.id, *known)
                known.append(question.id)
                await boss.answer(question.id, f"approve with: {faulty}")
            last = await next_question(boss, run.id, *known)
            assert "nobody" in last.text
            await boss.answer(last.id, "reject")
            assert (await run.wait()).status is ch.RunStatus.FAILED

    run_virtual(work())
