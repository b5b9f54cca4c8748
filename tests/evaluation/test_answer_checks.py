"""What counts as a right answer."""

from typing import Any

import pytest

from chargehand.evaluation.answer_checks import GivenAnswer, judged, misses_of
from chargehand.evaluation.suite_file import AnswerChecks, NumberCheck
from chargehand.facts.answer import Answer, Claim
from chargehand.models.scripted import ScriptedModel


def given(output: Any, *claims: str, has_gaps: bool = False) -> GivenAnswer:
    return GivenAnswer(Answer(output=output, claims=tuple(map(Claim, claims))), has_gaps)


@pytest.mark.parametrize(
    ("checks", "right", "wrong"),
    [
        (AnswerChecks(contains=("3.80 EUR",)), "It is 3.80 eur.", "It is 4.20 EUR."),
        (AnswerChecks(number=NumberCheck(value=3500)), "3,500 units", "3,400 units in 35000"),
        (AnswerChecks(number=NumberCheck(value=2.5, within=0.1)), "about 2.45", "about 2.39"),
        (AnswerChecks(number=NumberCheck(value=-4)), "it fell by −4 %", "it is 4"),
        (AnswerChecks(cited=("orders.csv",)), "70 [orders.csv:3].", "70 [my-orders.csv]"),
        (AnswerChecks(cited=("orders.csv",)), "see data/orders.csv", "orders.csv.bak"),
        (AnswerChecks(schema={"type": "object", "required": ["n"]}), {"n": 1}, {"m": 1}),
        (AnswerChecks(refuses=True), "I cannot tell: no such file.", "It is 7."),
    ],
)
def test_a_check_tells_right_from_wrong(checks: AnswerChecks, right: Any, wrong: Any) -> None:
    assert list(misses_of(checks, given(right))) == []
    assert len(list(misses_of(checks, given(wrong)))) == 1


def test_an_answer_with_gaps_is_a_refusal() -> None:
    assert list(misses_of(AnswerChecks(refuses=True), given("Some of it.", has_gaps=True))) == []


def test_claims_count_as_part_of_the_answer() -> None:
    checks = AnswerChecks(cited=("orders.csv",))
    assert list(misses_of(checks, given("70", "70 by orders.csv"))) == []


async def test_a_judge_says_why_it_says_no() -> None:
    judge = ScriptedModel(
        ['{"reason": "no fee", "yes": false}', '{"reason": "", "yes": true}', "?"]
    )
    assert "no fee" in await judged(judge, "Is the fee named?", "…", given("films"))
    assert await judged(judge, "Is the fee named?", "…", given("0.50 EUR")) == ""
    assert "no verdict" in await judged(judge, "Is the fee named?", "…", given("films"))
