"""The launch plan flags the letter that raises the purchase price: the price of the brief would sell below cost."""

import json
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import testing as kit
from chargehand.documents import Document
from tests.complete_examples.checks import (
    Example,
    assert_data_is_made_by,
    assert_document_holds,
    assert_suite_passes,
    assert_survives_kills,
    assert_valid_html,
)


@pytest.fixture(scope="module")
def example() -> Example:
    return Example("product_launch")


@pytest.fixture(scope="module")
def finished(example: Example) -> ch.RunResult:
    return example.run()


@pytest.fixture(scope="module")
def document(example: Example, finished: ch.RunResult) -> Document:
    return example.document(finished)


def test_the_data_is_made_by_its_script(example: Example, tmp_path: Path) -> None:
    assert_data_is_made_by(example, tmp_path)


def test_it_flags_that_the_price_of_the_brief_is_below_cost(
    example: Example, finished: ch.RunResult, document: Document
) -> None:
    kit.assert_succeeded(finished)
    (flagged,) = finished.output.contradictions
    said = {figure.source: figure.value for figure in flagged.figures}
    assert said["costs/cost_sheet.csv:2"] == 17.80
    assert said["letters/hollin_2026-02-10.md:11"] == 22.40
    brief = finished.output.price_points[0]
    assert brief.price.value == finished.output.price_in_brief.value == 34.90
    assert brief.margin_by_letter.value < 0 < brief.margin_by_sheet.value
    assert brief.break_even is None
    assert_document_holds(document, example.data, figures=60)
    assert "Purchase price: the sources contradict each other" in document.markdown()
    assert "sold below cost" in document.html()


def test_the_margins_are_those_that_were_computed(finished: ch.RunResult) -> None:
    """The function worker and the queries that the figures cite give the same."""
    computed = {
        (row["name"], row["purchase"]): (row["margin_eur"], row["break_even_units"])
        for row in finished.tasks["t2"].output
    }
    for point in finished.output.price_points:
        assert computed[point.name, 17.80][0] == point.margin_by_sheet.value
        margin, units = computed[point.name, 22.40]
        assert margin == point.margin_by_letter.value
        assert units == (point.break_even.value if point.break_even else None)


def test_the_days_of_the_calendar_are_those_that_were_computed(finished: ch.RunResult) -> None:
    planned = [(each.milestone, each.day) for each in finished.output.calendar]
    assert planned == [(row["milestone"], row["day"]) for row in finished.tasks["t5"].output]


def test_each_channel_has_a_text_within_its_limit(finished: ch.RunResult) -> None:
    """One item of `for_each` wrote each; the nested run checked the lengths."""
    copies = finished.output.copies
    assert len(copies) == 5
    assert all(len(copy.text) <= copy.most_characters.value for copy in copies)
    (_, team), *_ = finished.trace.child_runs
    assert team.startswith("n")


def test_its_suite_passes(example: Example) -> None:
    assert_suite_passes(example)


def test_another_request_says_that_it_needs_a_model(example: Example) -> None:
    boss = example.module.boss(example.written(), example.data)
    result = boss.run_sync("What is the weather?", output=example.module.OUTPUT)
    assert result.status is ch.RunStatus.FAILED
    assert "--model" in str(result.answer)


def test_killed_twice_it_goes_on(example: Example, tmp_path: Path) -> None:
    assert_survives_kills(example, tmp_path, at_steps=[4, 9])
    plan = (tmp_path / "product_launch.md").read_text()
    assert "Purchase price: the sources contradict each other" in plan


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["marketing_team/copywriter", "market_analyst"])
    assert result.status is ch.RunStatus.PARTIAL
    gaps = "\n".join(map(str, result.answer.gaps))
    assert "marketing_team › t2" in gaps
    assert "t3 (failed)" in gaps
    page = example.document(result).html()
    assert_valid_html(page)
    assert "What is missing" in page


def test_costs_that_are_no_json_are_refused_in_words(example: Example) -> None:
    with pytest.raises(ch.WorkerError, match="this needs JSON with eur, source"):
        example.module.read_json(json.dumps({"eur": 1}), "eur", "source")


def test_a_provider_with_429s_is_waited_for(example: Example) -> None:
    model = kit.FaultyModel(example.written(), faults=kit.at_random("429", rate=0.06, seed=3))
    kit.assert_succeeded(example.run(model))
    assert model.struck


def test_half_of_the_budget_gives_the_best_partial_document(
    example: Example, finished: ch.RunResult
) -> None:
    result = example.run(limits=kit.half_budget(finished))
    assert result.status is ch.RunStatus.PARTIAL
    assert "What is missing" in example.document(result).markdown()
