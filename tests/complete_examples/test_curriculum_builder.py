"""The curriculum leaves out the objective whose prerequisite is missing, and says so."""

from pathlib import Path

import pytest

import chargehand as ch
from chargehand import testing as kit
from tests.complete_examples.checks import (
    Example,
    assert_data_is_made_by,
    assert_document_holds,
    assert_survives_kills,
    assert_valid_html,
)


@pytest.fixture(scope="module")
def example() -> Example:
    return Example("curriculum_builder")


def test_the_data_is_made_by_its_script(example: Example, tmp_path: Path) -> None:
    assert_data_is_made_by(example, tmp_path)


@pytest.fixture(scope="module")
def result(example: Example) -> ch.RunResult:
    return example.run()


def test_it_flags_the_objective_that_needs_a_missing_one(
    example: Example, result: ch.RunResult
) -> None:
    kit.assert_succeeded(result)
    (left_out,) = result.output.left_out
    assert left_out.needs.value == "F3"
    assert left_out.objective.source == "objectives.csv:7"
    taught = " ".join(each for week in result.output.weeks for each in week.objectives)
    assert "F4" not in taught
    document = example.document(result)
    assert_document_holds(document, example.data, figures=17)
    assert "Not taught:" in document.markdown()


def test_the_order_keeps_what_each_objective_needs(result: ch.RunResult) -> None:
    weeks = {
        code: unit["week"] for unit in result.tasks["t2"].output for code in unit["objectives"]
    }
    assert weeks["F1"] < weeks["F2"]
    assert weeks["D1"] < weeks["M1"]
    assert 7 not in weeks.values(), "a holiday"


def test_a_follow_up_goes_on_from_the_curriculum(example: Example, tmp_path: Path) -> None:
    boss = example.module.boss(example.written(), example.data, str(tmp_path / "runs.db"))
    first = boss.run_sync(example.request, output=example.module.OUTPUT)
    second = boss.run_sync(example.module.FOLLOW_UP, after=first.id)
    kit.assert_succeeded(second)
    assert "weeks 3 and 4" in str(second.answer)


def test_another_request_says_that_it_needs_a_model(example: Example) -> None:
    boss = example.module.boss(example.written(), example.data)
    result = boss.run_sync("What is the weather?", output=example.module.OUTPUT)
    assert result.status is ch.RunStatus.FAILED
    assert "--model" in str(result.answer)


def test_killed_twice_it_goes_on(example: Example, tmp_path: Path) -> None:
    assert_survives_kills(example, tmp_path, at_steps=[4, 9])


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["writer"])
    assert result.status is ch.RunStatus.PARTIAL
    assert "t5" in {gap.task for gap in result.answer.gaps}
    page = example.document(result).html()
    assert_valid_html(page)
    assert "What is missing" in page
    assert "Warm-up" not in page


def test_a_provider_with_429s_is_waited_for(example: Example) -> None:
    model = kit.FaultyModel(example.written(), faults=kit.at_random("429", rate=0.2, seed=3))
    boss = example.module.boss(model, example.data)
    kit.assert_succeeded(boss.run_sync(example.request, output=example.module.OUTPUT))
    assert model.struck


def test_half_of_the_budget_gives_the_best_partial_document(
    example: Example, result: ch.RunResult
) -> None:
    result = example.run(limits=kit.half_budget(result))
    assert result.status is ch.RunStatus.PARTIAL
    assert "What is missing" in example.document(result).markdown()
