"""The comparison of competitors flags the price that sources disagree on, and names the article that cannot be read."""

import chargehand as ch
from chargehand.documents import Document
from tests.complete_examples.checks import (
    Example,
    assert_document_holds,
    assert_gaps_are_named,
)

SABLE = 'research_team › t3 › item 4 ("Sable Inbox")'


def test_it_flags_the_price_that_sources_disagree_on(
    example: Example, result: ch.RunResult, document: Document
) -> None:
    (flagged,) = result.output.contradictions
    assert flagged.competitor == "Oxbow Help"
    assert {(figure.value, figure.source.partition(":")[0]) for figure in flagged.figures} == {
        (29, "pages/oxbow_help.md"),
        (34, "sql"),
        (34, "archive/0005.md"),
    }
    assert_document_holds(document, example.data, figures=90)
    assert "Oxbow Help: the sources contradict each other" in document.markdown()


def test_it_names_the_article_that_cannot_be_read(result: ch.RunResult, document: Document) -> None:
    """The gap comes up from the research team, with its path and with what the MCP server said."""
    assert result.status is ch.RunStatus.PARTIAL
    (gap,) = result.answer.gaps
    assert str(gap).startswith(f"t1 (done in part): {SABLE}")
    assert "0008.md has 70 bytes and not the checksum" in gap.why
    assert [each.competitor for each in result.output.gaps] == ["Sable Inbox"]
    assert "Sable Inbox" not in {each.competitor for each in result.output.news}
    page = document.html()
    assert "Sable Inbox: there is no news" in page
    assert "What is missing" in page


def test_the_words_between_the_figures_hold_no_numbers(result: ch.RunResult) -> None:
    """Each number is a figure with a source."""
    report = result.output
    words = [report.summary]
    words += [word for each in report.competitors for word in (each.strength, each.weakness)]
    words += [word for each in report.recommendations for word in (each.action, each.because)]
    words += [each.meaning for each in report.news]
    assert not [each for each in words if any(letter.isdigit() for letter in each)]


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["research_team/page_reader", "market_analyst"])
    gaps = "\n".join(map(str, result.answer.gaps))
    assert "research_team › t2" in gaps
    assert "t3 (failed)" in gaps
    assert_gaps_are_named(example, result)
