"""Tasks and workers as people know them."""

import pytest

from chargehand.decisions import system_tasks
from chargehand.decisions.task_and_state_words import asker_name, task_name, worker_name


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("t3", "t3"),
        ("t3[2]", "t3[2]"),
        ("@plan", "planning"),
        ("@plan:2", "planning again"),
        ("@answer", "composing the answer"),
        ("@draft:1", "drafting the answer"),
        ("@items:t3", "listing the items of t3"),
        ("@refine:t3:1", "rewriting t3"),
        ("@budget:1", "asking whether more may be spent"),
        ("@hedge:t3:1", "t3 takes too long: a second attempt"),
    ],
)
def test_a_system_task_is_told_by_what_it_does_and_for_which_task(task: str, words: str) -> None:
    assert task_name(task) == words


def test_no_system_task_is_told_by_its_id() -> None:
    constants = [value for value in vars(system_tasks).values() if isinstance(value, str)]
    ids = [value for value in constants if value[:1] == "@"]
    assert len(ids) > 8
    for id_ in ids:
        assert "@" not in task_name(f"{id_}:t3:1") + worker_name(id_) + asker_name(id_)
