"""People: a question parks its task, and gets one answer."""

from datetime import UTC, datetime

import pytest

from chargehand.decisions.budget import Account, Shortage
from chargehand.decisions.questions import budget_after, budget_question
from chargehand.facts.events import BudgetChanged, QuestionAnswered
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Usage
from tests.decisions.virtual_kernel import kernel_of, seconds

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_question_parks_its_task_and_nothing_else() -> None:
    kernel = kernel_of("a -> b, c", pool=1)
    kernel.ask("a")
    assert kernel.states() == {"a": "asking", "b": "waiting", "c": "running"}


def test_the_answer_starts_the_task_again_without_using_a_try() -> None:
    kernel = kernel_of("a", attempts=1)
    kernel.ask("a")
    kernel.answer("a", "this one")
    assert kernel.started() == ["a#1", "a#2"]
    assert kernel.kernel.runs["r"].results.answers == {"q": "this one"}


def test_a_second_answer_is_refused() -> None:
    kernel = kernel_of("a")
    kernel.ask("a")
    kernel.answer("a", "this one")
    assert kernel.answer("a", "no, that one") == []


def test_an_answer_to_another_question_is_refused() -> None:
    kernel = kernel_of("a")
    kernel.ask("a")
    assert kernel.answer("a", "yes", id_="other") == []
    assert kernel.state("a") == "asking"


def test_an_answer_that_is_no_choice_is_refused() -> None:
    kernel = kernel_of("a")
    kernel.ask("a", choices=("yes", "no"))
    assert kernel.answer("a", "perhaps") == []
    assert len(kernel.answer("a", "no")) == 2


def test_the_default_is_taken_when_patience_is_over() -> None:
    kernel = kernel_of("a")
    kernel.ask("a", default="blue", patience=seconds(30))
    kernel.wait(29)
    assert kernel.state("a") == "asking"
    answered = kernel.wait(1)[0]
    assert isinstance(answered, QuestionAnswered)
    assert (answered.text, answered.by) == ("blue", "default")
    assert kernel.state("a") == "running"


def test_a_task_fails_when_nobody_answers_and_there_is_no_default() -> None:
    kernel = kernel_of("a")
    kernel.ask("a", patience=seconds(30))
    kernel.wait(30)
    assert kernel.status == "failed"


def test_patience_outlives_a_restart() -> None:
    kernel = kernel_of("a")
    kernel.ask("a", default="blue", patience=seconds(30))
    kernel.crash()
    kernel.wait(30)
    assert kernel.state("a") == "running"


def test_an_answer_in_time_ends_the_patience() -> None:
    kernel = kernel_of("a")
    kernel.ask("a", patience=seconds(30))
    kernel.answer("a", "yes")
    kernel.wait(60)
    assert kernel.state("a") == "running"


def test_cancel_withdraws_a_question() -> None:
    kernel = kernel_of("a")
    kernel.ask("a")
    kernel.cancel()
    assert kernel.status == "cancelled"


@pytest.mark.parametrize(
    ("limits", "spent", "short", "told"),
    [
        (
            Limits(money=1.0),
            Usage(money=0.85),
            ("money", 1.0, 0.15, 0.22),
            (
                "The budget is too small for the next call: $0.85 of $1.00 spent",
                "may need $0.22, and $0.15 is left",
                "'raise to: 1.07'",
            ),
        ),
        (
            Limits(money=0.0004),
            Usage(money=0.0003),
            ("money", 0.0004, 0.0001, 0.000237),
            (
                "$0.0003 of $0.0004 spent",
                "may need $0.00024, and $0.0001 is left",
                "'raise to: 0.00054'",
            ),
        ),
        (
            Limits(tokens=10_000),
            Usage(tokens_in=8_000, tokens_out=500),
            ("tokens", 10_000, 1_500, 30_000),
            ("8,500 of 10,000 tokens spent", "may need 30,000 tokens", "'raise to: 38500'"),
        ),
        (
            Limits(tokens=4_000),
            Usage(),
            ("tokens", 4_000, 4_000, 6_590),
            (
                "too small for the next call: 0 of 4,000 tokens spent.",
                "may need 6,590 tokens, and 4,000 tokens are left",
                "'raise to: 6590'",
            ),
        ),
    ],
)
def test_a_budget_that_is_used_up_is_told_in_a_sentence(
    limits: Limits, spent: Usage, short: tuple[str, float, float, float], told: tuple[str, ...]
) -> None:
    account = Account(limits)
    account.spent = spent
    question = budget_question("r", "@budget:1", Shortage(account, *short))
    for words in told:
        assert words in question.text
    assert question.accepts(told[-1].strip("'"))


def test_what_calls_under_way_have_reserved_is_told_and_counts_in_what_is_proposed() -> None:
    account = Account(Limits(tokens=4_000))
    account.reserved = Usage(calls=1, tokens_out=3_000)
    short = account.shortage("a", Usage(tokens_out=2_000))
    assert short is not None
    text = budget_question("r", "@budget:1", short).text
    assert "0 of 4,000 tokens spent, and 3,000 tokens reserved by calls under way." in text
    assert "'raise to: 5000' (or more)" in text


@pytest.mark.parametrize("text", ["20000", "20,000", "20k", "20K", "0.02M", "$20000"])
def test_a_budget_is_raised_by_an_amount_as_people_write_it(text: str) -> None:
    short = Shortage(Account(Limits(tokens=10)), "tokens", 10, 0, 5)
    question = budget_question("r", "@budget:1", short)
    answered = QuestionAnswered(
        question=question.id, task="@budget:1", text=f"raise to: {text}", by="eva", at=AT
    )
    assert question.accepts(answered.text)
    assert budget_after(question, answered) == BudgetChanged(tokens=20_000, by="eva", at=AT)
    assert "type one such as 20000, 20,000 or 20k" in str(question.objection("raise to: 2,00"))


@pytest.mark.parametrize(
    ("limits", "spent", "want", "told"),
    [
        (
            Limits(calls=2),
            Usage(calls=1),
            Usage(calls=1),
            ("1 of 2 calls spent, and 1 call kept for composing the answer.", "'raise to: 3'"),
        ),
        (
            Limits(money=1.0),
            Usage(money=0.85),
            Usage(money=0.12),
            ("$0.85 of $1.00 spent, and $0.10 kept for composing the answer.", "'raise to: 1.08'"),
        ),
        (
            Limits(tokens=1_000),
            Usage(tokens_in=600),
            Usage(tokens_in=5_000),
            ("600 of 1,000 tokens spent, and 100 tokens kept", "'raise to: 6223'"),
        ),
    ],
)
def test_what_is_kept_for_the_answer_is_told_and_what_is_proposed_suffices_beside_it(
    limits: Limits, spent: Usage, want: Usage, told: tuple[str, str]
) -> None:
    account = Account(limits, keeps_back=True)
    account.spent = spent
    short = account.shortage("a", want)
    assert short is not None
    question = budget_question("r", "@budget:1", short)
    assert question.evidence.read()["kept"] == short.kept
    for words in told:
        assert words in question.text
    answered = QuestionAnswered(
        question=question.id,
        task="@budget:1",
        text=told[1].strip("'"),
        by="eva",
        at=AT,
    )
    account.apply(budget_after(question, answered))
    assert account.shortage("a", want) is None
