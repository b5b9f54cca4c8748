"""The curriculum leaves out the objective whose prerequisite is missing, and says so."""

from pathlib import Path

import chargehand as ch
from chargehand import testing as kit
from tests.complete_examples.checks import (
    Example,
    assert_document_holds,
    assert_gaps_are_named,
)


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


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["writer"])
    assert "t5" in {gap.task for gap in result.answer.gaps}
    page = assert_gaps_are_named(example, result)
    assert "Warm-up" not in page
