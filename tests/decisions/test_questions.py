"""People: a question parks its task, and gets one answer."""

from chargehand.facts.events import QuestionAnswered
from tests.decisions.virtual_kernel import kernel_of, seconds


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
