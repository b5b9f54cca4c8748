"""Plans against gold plans."""

import pytest

from chargehand.evaluation import PlanTask, score
from chargehand.evaluation.plan_scores import overlap

GOLD = (
    PlanTask("units", "units that Tiller delivered in 2024", "analyst"),
    PlanTask("price", "price per unit in the contract", "researcher"),
    PlanTask("letter", "letter to Tiller about units and price", "writer", ("units", "price")),
)


def test_a_plan_is_scored_whatever_its_ids() -> None:
    renamed = [
        PlanTask("t1", "Which price per unit is in the contract?", "researcher"),
        PlanTask("t2", "How many units did Tiller deliver in 2024?", "analyst"),
        PlanTask(
            "t3", "Write a letter to Tiller about the units and the price", "writer", ("t1", "t2")
        ),
    ]
    found = score(renamed, GOLD)
    assert found.matched == {"t1": "price", "t2": "units", "t3": "letter"}
    assert (found.node_f1, found.edge_f1) == (1.0, 1.0)


def test_a_task_of_another_worker_does_not_match() -> None:
    wrong = [PlanTask("t1", "units that Tiller delivered in 2024", "writer")]
    assert score(wrong, GOLD[:1]).node_f1 == 0


def test_a_gold_task_without_a_worker_matches_any() -> None:
    gold = [PlanTask("units", "units that Tiller delivered in 2024")]
    assert score([PlanTask("t1", "units of Tiller in 2024", "writer")], gold).node_f1 == 1


def test_other_words_do_not_match() -> None:
    assert score([PlanTask("t1", "weather in Bergen", "analyst")], GOLD[:1]).node_f1 == 0


def test_a_missing_and_a_needless_edge_cost_recall_and_precision() -> None:
    plan = [
        PlanTask("units", GOLD[0].description, "analyst"),
        PlanTask("price", GOLD[1].description, "researcher", ("units",)),
        PlanTask("letter", GOLD[2].description, "writer", ("units",)),
    ]
    assert score(plan, GOLD).edge_f1 == pytest.approx(2 * 1 / (2 + 2))


def test_an_edge_of_a_task_that_matches_nothing_is_needless() -> None:
    plan = [*GOLD, PlanTask("check", "proof-reading", "reviewer", ("letter",))]
    found = score(plan, GOLD)
    assert found.node_f1 == pytest.approx(2 * 3 / (4 + 3))
    assert found.edge_f1 == pytest.approx(2 * 2 / (3 + 2))


def test_plans_without_edges_agree_on_them() -> None:
    assert score(GOLD[:2], GOLD[:2]).edge_f1 == 1


def test_each_gold_task_is_matched_once_and_the_closest_first() -> None:
    twice = [
        PlanTask("a", "units of Tiller", "analyst"),
        PlanTask("b", "units that Tiller delivered in 2024", "analyst"),
    ]
    assert score(twice, GOLD[:1]).matched == {"b": "units"}


def test_common_words_do_not_count() -> None:
    assert overlap("how many of the kettles", "how many of the chairs") == 0
