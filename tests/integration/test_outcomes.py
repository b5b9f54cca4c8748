"""A run says what it came to: composition, caps, selection, skipped tasks and what was streamed."""

import json

import pytest

import chargehand as ch
from chargehand.models.base import ModelReply, ModelRequest, StopReason, Text

CUT = ModelReply(parts=(Text("It is open [t1] until"),), stop=StopReason.LENGTH)
NO = ModelReply(parts=(Text("I would rather not"),), stop=StopReason.REFUSAL)
WORDS = "Write the headline of the day"


@ch.worker("clerk", "Looks things up")
async def clerk(brief: ch.Brief) -> str:
    return f"{brief.task.id} says six"


@ch.worker("broken", "Never does it")
async def broken(brief: ch.Brief) -> str:
    raise PermissionError("no")


def task(id_: str, worker: str = "clerk", *needs: str, **more: object) -> ch.Task:
    return ch.Task(id=id_, description=WORDS, worker=worker, needs=needs, **more)  # type: ignore[arg-type] # one keyword of several types


def plan(*tasks: ch.Task, strategy: ch.Strategy = ch.Strategy.MERGE) -> ch.Plan:
    return ch.Plan(goal="Hours", tasks=tasks, instruction="One sentence", strategy=strategy)


@pytest.mark.parametrize(
    "composing", [[CUT] * 4, [NO] * 4, [ch.errors.ModelRefused("bad request")] * 4, [" "] * 4]
)
def test_what_cannot_be_composed_is_merged_by_rule_over_all_results(
    composing: list[object],
) -> None:
    model = ch.ScriptedModel(composing)  # type: ignore[arg-type] # replies of several types
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a"), task("b", "clerk", "a")))
    assert result.status == "partial"
    assert result.output == {"a": "a says six", "b": "b says six"}
    assert [gap.task for gap in result.answer.gaps] == ["@answer"]
    assert "tried 2 times" in result.answer.gaps[0].why
    assert result.answer.confidence == 0.5


def test_composition_is_tried_again_and_a_cut_answer_is_asked_for_in_fewer_words() -> None:
    model = ch.ScriptedModel([CUT, "Until six [a].\nCONFIDENCE: 1"])
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a"), task("b")))
    assert (result.status, result.answer.text) == ("succeeded", "Until six.")
    assert "fewer" in model.requests[1].turns[-1].text or "half" in model.requests[1].turns[-1].text
    assert result.answer.confidence == 0.99  # a model's own word is no check
    model = ch.ScriptedModel([NO, "Until six [a]."])
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a"), task("b")))
    assert (result.status, result.answer.confidence) == ("succeeded", 0.8)


@pytest.mark.parametrize(
    "script",
    [
        [CUT] * 4,
        [NO] * 4,
        ["Until six [a]."],
        [CUT, "Until six [a]."],
        [NO, "Until six [a].\nCONFIDENCE: 0.5"],
    ],
)
async def test_pieces_since_the_last_beginning_are_the_answer(script: list[object]) -> None:
    boss = ch.Supervisor([clerk], model=ch.ScriptedModel(script))  # type: ignore[arg-type] # replies of several types
    run = said = ""
    async for heard in boss.stream(plan(task("a"), task("b"))):
        if isinstance(heard, ch.AnswerPiece):
            said = heard.text if heard.begins_anew else said + heard.text
        elif isinstance(heard, ch.events.RunRequested):
            run = heard.run
    result = await boss.look(run)
    assert said == result.answer.text != ""


def test_steps_that_end_at_the_cap_are_partial_and_name_it() -> None:
    count = 0

    def say(request: ModelRequest) -> str:
        nonlocal count
        if "Choose the next step" not in request.turns[-1].text:
            return "All facts [t1].\nCONFIDENCE: 0.9"
        count += 1
        words = f"Find fact number {count} about towers"
        return json.dumps({"next": "clerk", "task": words, "why": "more"})

    boss = ch.Supervisor([clerk], model=ch.ScriptedModel([say] * 40), limits=ch.Limits(tasks=3))
    result = boss.run_sync("Tell me everything", approach="steps")
    assert (result.status, len(result.tasks)) == ("partial", 3)
    assert "Limits(tasks=3)" in str(result.answer.gaps[0])
    assert result.answer.confidence < 0.9


def test_what_was_never_begun_says_why_the_run_stopped() -> None:
    fatal = task("a", "broken", on_failure=ch.OnFailure(("fail_run",)))
    result = ch.Supervisor([clerk, broken]).run_sync(plan(fatal, task("b", "clerk", "a")))
    assert result.tasks["b"].why == "the run was stopped: a failed"


def test_candidates_are_alternatives_and_one_that_failed_takes_nothing_away() -> None:
    model = ch.ScriptedModel(['{"chosen": "b", "why": "it says more"}'])
    tasks = [task("a"), task("b"), task("c", "broken"), task("d", "clerk", "c")]
    chosen = plan(*tasks, strategy=ch.Strategy.SELECT)
    result = ch.Supervisor([clerk, broken], model=model).run_sync(chosen)
    assert (result.status, result.output) == ("succeeded", "b says six")
    assert (result.answer.contradictions, result.answer.gaps) == ((), ())
    by_rule = ch.Supervisor([clerk, broken]).run_sync(chosen)
    assert (by_rule.status, by_rule.output) == ("succeeded", "a says six")
    assert (by_rule.answer.contradictions, by_rule.answer.gaps) == ((), ())


def test_without_any_candidate_nothing_is_selected_and_the_run_has_failed() -> None:
    chosen = plan(task("a", "broken"), task("b", "broken"), strategy=ch.Strategy.SELECT)
    result = ch.Supervisor([broken]).run_sync(chosen)
    assert result.status == "failed"
    assert [gap.task for gap in result.answer.gaps] == ["a", "b"]
