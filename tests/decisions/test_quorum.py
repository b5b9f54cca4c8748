"""A quorum: which answers agree, and which tasks it takes."""

from typing import Any

import pytest

from chargehand.decisions.quorum import count, disagreement, quorum
from chargehand.errors import UsageError
from chargehand.facts.plan import Plan, Task

TASK = Task(id="sum", description="Add them up", worker="ann", needs=["read"], args={"of": [1, 2]})


@pytest.mark.parametrize(
    "same",
    [
        ["Berlin", "berlin", " BERLIN. "],
        [3, 3.0],
        [{"a": 1, "b": "Yes"}, {"b": "yes", "a": 1.0}],
        [["a  b"], ["A b."]],
        [None, None],
        [True, True],
    ],
)
def test_answers_that_say_the_same_agree(same: list[Any]) -> None:
    assert len(count({str(n): answer for n, answer in enumerate(same)}).groups) == 1


@pytest.mark.parametrize(
    "other", [["yes", "no"], [1, True], [1, "1"], [[1, 2], [2, 1]], [None, ""], [1.5, 1]]
)
def test_answers_that_say_something_else_do_not(other: list[Any]) -> None:
    assert len(count({str(n): answer for n, answer in enumerate(other)}).groups) == 2


def test_the_largest_group_wins_and_the_earliest_of_equal_ones() -> None:
    assert count({"a": 1, "b": 2, "c": 2}).agreed == ("b", "c")
    assert count({"a": 1, "b": 2, "c": 2, "d": 1}).agreed == ("a", "d")


def test_nobody_answering_is_no_agreement() -> None:
    assert count({}).agreed == ()


def test_a_disagreement_tells_every_answer_and_who_gave_none() -> None:
    told = disagreement({"a": 1, "b": "x" * 200}, {"c": "timeout: too slow"}, 2)
    assert told.startswith("no 2 of 3 agree: a says 1; b says ")
    assert told.endswith("c says nothing (timeout: too slow)")
    assert len(told) < 200


def test_a_quorum_is_tasks_of_a_plan_like_all_others() -> None:
    read = Task(id="read", description="Read the figures", worker="ann")
    tasks = quorum(TASK, 2, 3, workers=["ann", "bob"])
    assert [task.id for task in tasks] == ["sum.1", "sum.2", "sum.3", "sum"]
    assert [task.worker for task in tasks] == ["ann", "bob", "ann", "vote"]
    assert all(task.args == TASK.args and task.optional for task in tasks[:-1])
    assert Plan(goal="A sum", tasks=[read, *tasks]).check({"ann", "bob", "vote"})


@pytest.mark.parametrize(("agree", "of"), [(0, 3), (4, 3), (1, 0)])
def test_what_cannot_agree_is_refused(agree: int, of: int) -> None:
    with pytest.raises(UsageError, match="cannot agree"):
        quorum(TASK, agree, of)
