"""The launch plan flags the letter that raises the purchase price: the price of the brief would sell below cost."""

import json

import pytest

import chargehand as ch
from chargehand import testing as kit
from chargehand.documents import Document
from tests.complete_examples.checks import (
    Example,
    assert_document_holds,
    assert_gaps_are_named,
)


def test_it_flags_that_the_price_of_the_brief_is_below_cost(
    example: Example, result: ch.RunResult, document: Document
) -> None:
    kit.assert_succeeded(result)
    (flagged,) = result.output.contradictions
    said = {figure.source: figure.value for figure in flagged.figures}
    assert said["costs/cost_sheet.csv:2"] == 17.80
    assert said["letters/hollin_2026-02-10.md:11"] == 22.40
    brief = result.output.price_points[0]
    assert brief.price.value == result.output.price_in_brief.value == 34.90
    assert brief.margin_by_letter.value < 0 < brief.margin_by_sheet.value
    assert brief.break_even is None
    assert_document_holds(document, example.data, figures=60)
    assert "Purchase price: the sources contradict each other" in document.markdown()
    assert "sold below cost" in document.html()


def test_the_margins_are_those_that_were_computed(result: ch.RunResult) -> None:
    """The function worker and the queries that the figures cite give the same."""
    computed = {
        (row["name"], row["purchase"]): (row["margin_eur"], row["break_even_units"])
        for row in result.tasks["t2"].output
    }
    for point in result.output.price_points:
        assert computed[point.name, 17.80][0] == point.margin_by_sheet.value
        margin, units = computed[point.name, 22.40]
        assert margin == point.margin_by_letter.value
        assert units == (point.break_even.value if point.break_even else None)


def test_the_days_of_the_calendar_are_those_that_were_computed(result: ch.RunResult) -> None:
    planned = [(each.milestone, each.day) for each in result.output.calendar]
    assert planned == [(row["milestone"], row["day"]) for row in result.tasks["t5"].output]


def test_each_channel_has_a_text_within_its_limit(result: ch.RunResult) -> None:
    """One item of `for_each` wrote each; the nested run checked the lengths."""
    copies = result.output.copies
    assert len(copies) == 5
    assert all(len(copy.text) <= copy.most_characters.value for copy in copies)
    (_, team), *_ = result.trace.child_runs
    assert team.startswith("n")


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["marketing_team/copywriter", "market_analyst"])
    gaps = "\n".join(map(str, result.answer.gaps))
    assert "marketing_team › t2" in gaps
    assert "t3 (failed)" in gaps
    assert_gaps_are_named(example, result)


def test_costs_that_are_no_json_are_refused_in_words(example: Example) -> None:
    with pytest.raises(ch.WorkerError, match="this needs JSON with eur, source"):
        example.module.read_json(json.dumps({"eur": 1}), "eur", "source")
