"""The answer by rules: what results come to without a model, and what is missing from them."""

from typing import Any

import pytest
from msgspec.structs import replace

from chargehand.decisions.rule_answer import (
    LONGEST_CLAIM,
    answer_of,
    compose,
    gaps_in,
    loose_in,
    share_done,
    why_not_done,
)
from chargehand.decisions.system_tasks import last_in
from chargehand.decisions.task_graph import Membership, TaskGraph, TaskNode, TaskState
from chargehand.facts.answer import Answer, Claim, Gap
from chargehand.facts.outcome import ErrorClass, Failed
from chargehand.facts.plan import Strategy, Task
from tests.decisions.virtual_kernel import kernel_of, tasks_of

BROKE = Failed(kind=ErrorClass.NETWORK, message="it broke")


def nodes_of(arrows: str, done: str = "", **changes: dict[str, Any]) -> dict[str, TaskNode]:
    """A graph from a picture of it; the tasks in `done` are done, the others wait."""
    graph = TaskGraph(lambda _: 1.0, lambda _: float("inf"))
    graph.add(replace(task, **changes.get(task.id, {})) for task in tasks_of(arrows))
    for id_ in done.split():
        graph.nodes[id_].state = TaskState.DONE
    return graph.nodes


def composed(
    nodes: dict[str, TaskNode],
    outputs: dict[str, Any],
    strategy: Strategy = Strategy.MERGE,
    **more: Any,
) -> Answer:
    return compose(nodes, outputs.__getitem__, strategy, **more)


def fail(node: TaskNode, cause: Failed | None = BROKE) -> None:
    node.state, node.cause = TaskState.FAILED, cause


# what is said


def test_one_last_task_gives_its_output() -> None:
    answer = composed(nodes_of("read -> write", "read write"), {"read": 1, "write": "text"})
    assert answer.output == "text"
    assert answer.claims == (Claim("text", ("write",)),)
    assert (answer.by, answer.confidence, answer.gaps) == ("rules", 1.0, ())


def test_several_last_tasks_give_their_outputs_by_id() -> None:
    nodes = nodes_of("read -> sum, read -> plot", "read sum plot")
    assert composed(nodes, {"sum": 3, "plot": "a line"}).output == {"sum": 3, "plot": "a line"}


def test_without_its_last_task_a_run_hands_out_the_best_it_has_and_names_the_gap() -> None:
    nodes = nodes_of("read -> write", "read")
    fail(nodes["write"])
    answer = composed(nodes, {"read": "text"})
    assert answer.output == {"read": "text"}
    assert answer.gaps == (Gap("write", "failed", "network: it broke"),)
    assert answer.confidence == 0.5


def test_selecting_by_rule_takes_the_first_and_says_so() -> None:
    nodes = nodes_of("b, a", "b a")
    answer = composed(nodes, {"b": "B", "a": "A"}, Strategy.SELECT, instruction="the shortest")
    assert answer.output == "B"
    assert [(c.task, c.output, c.is_chosen) for c in answer.candidates] == [
        ("b", "B", True),
        ("a", "A", False),
    ]
    assert answer.candidates[0].why == (
        "the first in the plan; no model was there to judge by 'the shortest'"
    )
    assert answer.claims == (Claim("B", ("b",)),)


def test_reducing_by_rule_lists_outputs_in_plan_order() -> None:
    nodes = nodes_of("c, a, b", "a b c")
    assert composed(nodes, {"a": 1, "b": 2, "c": 3}, Strategy.REDUCE).output == [3, 1, 2]


def test_reducing_one_result_is_that_result() -> None:
    assert composed(nodes_of("a", "a"), {"a": 1}, Strategy.REDUCE).output == 1


def test_only_texts_become_claims_and_long_ones_are_cut() -> None:
    nodes = nodes_of("a, b, c", "a b c")
    answer = composed(nodes, {"a": "x " * 1000, "b": {"k": 1}, "c": "  "})
    ((text, tasks),) = [(claim.text, claim.tasks) for claim in answer.claims]
    assert (len(text), text[-1], tasks) == (LONGEST_CLAIM, "…", ("a",))


def test_outputs_that_are_not_looked_at_are_not_loaded() -> None:
    loaded: list[str] = []
    nodes = nodes_of("read -> write", "read write")
    compose(nodes, lambda id_: loaded.append(id_))
    assert loaded == ["write"]


# contradictions


SAME: dict[str, Any] = {"description": "count the words"}


def test_one_task_given_out_twice_with_different_results_is_a_contradiction() -> None:
    nodes = nodes_of("a, b, c", "a b c", a=SAME, b=SAME, c=SAME)
    (pair,) = composed(nodes, {"a": 5, "b": 6, "c": 5}).contradictions
    assert (pair.first, pair.second) == (Claim("5", ("a",)), Claim("6", ("b",)))
    assert str(pair) == "5 [a] | 6 [b]"


@pytest.mark.parametrize(
    ("changes", "outputs"),
    [
        ({"a": SAME, "b": SAME}, {"a": "Yes", "b": " yes\n"}),
        ({"a": SAME | {"args": {"n": 1}}, "b": SAME | {"args": {"n": 2}}}, {"a": 5, "b": 6}),
        ({"a": SAME, "b": {"description": "count the lines"}}, {"a": 5, "b": 6}),
        ({"a": SAME, "b": SAME}, {"a": "long prose " * 30, "b": "other prose " * 30}),
    ],
    ids=["but for space and case", "other arguments", "another task", "prose"],
)
def test_what_need_not_contradict_is_no_contradiction(
    changes: dict[str, Any], outputs: dict[str, Any]
) -> None:
    assert composed(nodes_of("a, b", "a b", **changes), outputs).contradictions == ()


# what is missing


def test_a_gap_says_why() -> None:
    nodes = nodes_of("read -> write, late, gone", "")
    fail(nodes["read"])
    nodes["write"].state, nodes["write"].why = TaskState.SKIPPED, "read"
    nodes["late"].state = TaskState.SKIPPED
    nodes["gone"].state = TaskState.CANCELLED
    assert [str(gap) for gap in gaps_in(nodes)] == [
        "read (failed): network: it broke",
        "write (skipped): read was not done",
        "late (skipped): there was no time left",
        "gone (cancelled): it was cancelled",
    ]
    assert why_not_done(nodes_of("a", "a")["a"]) == ""


def test_a_gap_that_may_still_be_filled_says_what_it_waits_for() -> None:
    kernel = kernel_of("asked -> next, failed, quick, parked, queued, last", pool=2)
    kernel.ask("asked")
    kernel.fail("failed")
    kernel.park("parked", 90)
    gaps = [str(gap) for gap in gaps_in(kernel.schedule.nodes)]
    assert gaps == [
        "asked (waiting for an answer): a person has not answered 'which?' yet",
        "next (waiting): it needs asked (waiting for an answer)",
        "failed (to be tried again): its last try failed: network: it broke",
        "quick (running): it has not ended yet",
        "parked (to be tried again): it waits for its provider: it is down",
        "queued (running): it has not ended yet",
        "last (ready): it has not started yet",
    ]


def test_a_question_of_several_lines_is_one_line_of_a_gap() -> None:
    kernel = kernel_of("asked")
    kernel.ask("asked", text="Task a failed.\nWhat should happen?")
    (gap,) = gaps_in(kernel.schedule.nodes)
    assert gap.why == "a person has not answered 'Task a failed. What should happen?' yet"


def test_what_was_removed_or_made_up_for_is_neither_gap_nor_material() -> None:
    nodes = nodes_of("bad, old, new", "new")
    fail(nodes["bad"])
    nodes["bad"].membership = Membership.REPLACED
    nodes["old"].membership = Membership.REMOVED
    answer = composed(nodes, {"new": "here"})
    assert (answer.output, answer.gaps, answer.confidence) == ("here", (), 1.0)


def test_a_task_whose_dependents_were_removed_is_a_last_one() -> None:
    nodes = nodes_of("read -> write", "read")
    nodes["write"].membership = Membership.REMOVED
    assert last_in(nodes) == ["read"]


def test_duties_are_no_material_and_no_gaps() -> None:
    nodes = nodes_of("a", "a")
    for id_ in ("@plan", "@answer", "@refine:a:1"):
        nodes[id_] = TaskNode(Task(id=id_, description="a duty", worker="@x"), len(nodes))
    nodes["@plan"].state = TaskState.DONE
    answer = composed(nodes, {"a": 1, "@plan": "secret"})
    assert (answer.output, answer.gaps) == (1, ())


def test_a_plan_that_was_never_written_is_the_gap() -> None:
    plan = TaskNode(Task(id="@plan", description="Write the plan", worker="@planner"), 0)
    fail(plan)
    answer = composed({"@plan": plan}, {})
    assert answer.gaps == (Gap("@plan", "failed", "network: it broke"),)
    assert answer.confidence == 0


def test_a_task_done_in_part_brings_its_own_gaps() -> None:
    nodes = nodes_of("a, b", "a b")
    nodes["a"].gaps = ("inner (failed): network: it broke",)
    assert [str(gap) for gap in gaps_in(nodes)] == [
        "a (done in part): inner (failed): network: it broke"
    ]
    assert share_done(nodes) == 0.75


def test_a_task_with_items_counts_with_the_share_of_its_items() -> None:
    """As the table in docs/aggregation.md says."""
    nodes = nodes_of("a, b, c", "a b c", b={"for_each": [1, 2, 3, 4]})
    nodes["b"].gaps = ("item 3: no",)
    for index in range(4):
        item = TaskNode(Task(id=f"b[{index}]", description="an item", worker="ann"), len(nodes))
        item.state = TaskState.FAILED if index == 3 else TaskState.DONE
        item.membership = Membership.ITEM
        nodes[item.task.id] = item
    assert share_done(nodes) == pytest.approx((1 + 3 / 4 + 1) / 3)
    nodes["b[0]"].gaps = ("half of it",)
    assert share_done(nodes) == pytest.approx((1 + 2.5 / 4 + 1) / 3)


def test_optional_tasks_do_not_count_for_confidence() -> None:
    nodes = nodes_of("a, b", "a", b={"optional": True})
    assert share_done(nodes) == 1.0
    assert share_done(nodes_of("a", "", a={"optional": True})) == 0.0


def test_a_result_that_nobody_could_take_up_is_loose() -> None:
    nodes = nodes_of("read -> sum -> write, read -> plot", "read sum plot")
    fail(nodes["write"])
    assert loose_in(nodes) == ["sum", "plot"]


# what a model composed


def test_what_a_model_composed_is_the_answer_with_the_gaps_as_they_stand() -> None:
    nodes = nodes_of("a, b", "a")
    fail(nodes["b"])
    told = Answer(output="told", by="some model", confidence=0.4)
    answer = answer_of(nodes, lambda _: None, told)
    assert (answer.output, answer.by, answer.confidence) == ("told", "some model", 0.4)
    assert [gap.task for gap in answer.gaps] == ["b"]


def test_without_it_the_answer_is_by_rules() -> None:
    answer = answer_of(nodes_of("a", "a"), {"a": 7}.__getitem__, None, Strategy.MERGE, "")
    assert (answer.output, answer.by) == (7, "rules")
