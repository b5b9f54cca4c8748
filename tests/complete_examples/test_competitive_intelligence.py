"""The comparison of competitors flags the price that sources disagree on, and names the article that cannot be read."""

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

SABLE = 'research_team › t3 › item 4 ("Sable Inbox")'


@pytest.fixture(scope="module")
def example() -> Example:
    return Example("competitive_intelligence")


@pytest.fixture(scope="module")
def finished(example: Example) -> ch.RunResult:
    """The whole run, with the one gap that its data has."""
    return example.run()


@pytest.fixture(scope="module")
def document(example: Example, finished: ch.RunResult) -> Document:
    return example.document(finished)


def test_the_data_is_made_by_its_script(example: Example, tmp_path: Path) -> None:
    assert_data_is_made_by(example, tmp_path)


def test_it_flags_the_price_that_sources_disagree_on(
    example: Example, finished: ch.RunResult, document: Document
) -> None:
    (flagged,) = finished.output.contradictions
    assert flagged.competitor == "Oxbow Help"
    assert {(figure.value, figure.source.partition(":")[0]) for figure in flagged.figures} == {
        (29, "pages/oxbow_help.md"),
        (34, "sql"),
        (34, "archive/0005.md"),
    }
    assert_document_holds(document, example.data, figures=90)
    assert "Oxbow Help: the sources contradict each other" in document.markdown()


def test_it_names_the_article_that_cannot_be_read(
    finished: ch.RunResult, document: Document
) -> None:
    """The gap comes up from the research team, with its path and with what the MCP server said."""
    assert finished.status is ch.RunStatus.PARTIAL
    (gap,) = finished.answer.gaps
    assert str(gap).startswith(f"t1 (done in part): {SABLE}")
    assert "0008.md has 70 bytes and not the checksum" in gap.why
    assert [each.competitor for each in finished.output.gaps] == ["Sable Inbox"]
    assert "Sable Inbox" not in {each.competitor for each in finished.output.news}
    page = document.html()
    assert "Sable Inbox: there is no news" in page
    assert "What is missing" in page


def test_the_words_between_the_figures_hold_no_numbers(finished: ch.RunResult) -> None:
    """Each number is a figure with a source."""
    report = finished.output
    words = [report.summary]
    words += [word for each in report.competitors for word in (each.strength, each.weakness)]
    words += [word for each in report.recommendations for word in (each.action, each.because)]
    words += [each.meaning for each in report.news]
    assert not [each for each in words if any(letter.isdigit() for letter in each)]


def test_its_suite_passes(example: Example) -> None:
    assert_suite_passes(example)


def test_another_request_says_that_it_needs_a_model(example: Example) -> None:
    boss = example.module.boss(example.written(), example.data)
    result = boss.run_sync("What is the weather?", output=example.module.OUTPUT)
    assert result.status is ch.RunStatus.FAILED
    assert "--model" in str(result.answer)


def test_killed_twice_it_goes_on(example: Example, tmp_path: Path) -> None:
    assert_survives_kills(example, tmp_path, at_steps=[5, 9], ends="partial")
    report = (tmp_path / "competitive_intelligence.md").read_text()
    assert "Oxbow Help: the sources contradict each other" in report


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["research_team/page_reader", "market_analyst"])
    assert result.status is ch.RunStatus.PARTIAL
    gaps = "\n".join(map(str, result.answer.gaps))
    assert "research_team › t2" in gaps
    assert "t3 (failed)" in gaps
    page = example.document(result).html()
    assert_valid_html(page)
    assert "What is missing" in page


def test_a_provider_with_429s_is_waited_for(example: Example) -> None:
    model = kit.FaultyModel(example.written(), faults=kit.at_random("429", rate=0.06, seed=3))
    result = example.run(model)
    assert isinstance(result.output, example.module.OUTPUT), result.answer.gaps
    assert model.struck


def test_half_of_the_budget_gives_the_best_partial_document(
    example: Example, finished: ch.RunResult
) -> None:
    result = example.run(limits=kit.half_budget(finished))
    assert result.status is ch.RunStatus.PARTIAL
    assert len(result.answer.gaps) > 1
    assert "What is missing" in example.document(result).markdown()
