"""People: a question parks its task, and gets one answer."""

from chargehand.facts.events import QuestionAnswered
from tests.decisions.office import desk_of, seconds


def test_a_question_parks_its_task_and_nothing_else() -> None:
    desk = desk_of("a -> b, c", pool=1)
    desk.ask("a")
    assert desk.states() == {"a": "asking", "b": "waiting", "c": "running"}


def test_the_answer_starts_the_task_again_without_using_a_try() -> None:
    desk = desk_of("a", attempts=1)
    desk.ask("a")
    desk.answer("a", "this one")
    assert desk.started() == ["a#1", "a#2"]
    assert desk.desk.runs["r"].results.answers == {"q": "this one"}


def test_a_second_answer_is_refused() -> None:
    desk = desk_of("a")
    desk.ask("a")
    desk.answer("a", "this one")
    assert desk.answer("a", "no, that one") == []


def test_an_answer_to_another_question_is_refused() -> None:
    desk = desk_of("a")
    desk.ask("a")
    assert desk.answer("a", "yes", id_="other") == []
    assert desk.state("a") == "asking"


def test_an_answer_that_is_no_choice_is_refused() -> None:
    desk = desk_of("a")
    desk.ask("a", choices=("yes", "no"))
    assert desk.answer("a", "perhaps") == []
    assert len(desk.answer("a", "no")) == 2


def test_the_default_is_taken_when_patience_is_over() -> None:
    desk = desk_of("a")
    desk.ask("a", default="blue", patience=seconds(30))
    desk.wait(29)
    assert desk.state("a") == "asking"
    answered = desk.wait(1)[0]
    assert isinstance(answered, QuestionAnswered)
    assert (answered.text, answered.by) == ("blue", "default")
    assert desk.state("a") == "running"


def test_a_task_fails_when_nobody_answers_and_there_is_no_default() -> None:
    desk = desk_of("a")
    desk.ask("a", patience=seconds(30))
    desk.wait(30)
    assert desk.status == "failed"


def test_patience_outlives_a_restart() -> None:
    desk = desk_of("a")
    desk.ask("a", default="blue", patience=seconds(30))
    desk.crash()
    desk.wait(30)
    assert desk.state("a") == "running"


def test_an_answer_in_time_ends_the_patience() -> None:
    desk = desk_of("a")
    desk.ask("a", patience=seconds(30))
    desk.answer("a", "yes")
    desk.wait(60)
    assert desk.state("a") == "running"


def test_cancel_withdraws_a_question() -> None:
    desk = desk_of("a")
    desk.ask("a")
    desk.cancel()
    assert desk.status == "cancelled"
