"""Plans as models write them are judged as an outside check has labelled them."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import model_plans
from benchmarks.model_plans import NAMED_BY, Item, converted, judged


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_WORKLOADS", raising=False)


def node(tool: str, *arguments: Any) -> dict[str, Any]:
    return {"task": tool, "arguments": list(arguments)}


def link(source: Any, target: Any) -> dict[str, Any]:
    return {"source": source, "target": target}


def item(nodes: list[dict[str, Any]], links: list[dict[str, Any]], *labels: str) -> Item:
    return Item("an id", "a request", nodes, links, frozenset({"See", "Say", "Sum"}), labels)


SEE, SAY, SUM = node("See"), node("Say", "<node-0>"), node("Sum", {"name": "x"})

FAULTY = {
    "no_nodes": item([], [], "no_nodes"),
    "unknown_tools": item([SEE, node("Sing")], [], "unknown_tools"),
    "source that is no node": item([SEE, SAY], [link("Sum", "Say")], "dangling_links"),
    "target that is no node": item([SEE, SAY], [link("See", "Sum")], "dangling_links"),
    "neither end is a node": item([SEE, SAY], [link("0", "1")], "dangling_links"),
    "malformed_links": item([SEE, SAY], [{"source": "See", "targets": ["Say"]}], "malformed_links"),
    "self_links": item([SEE, SAY], [link("Say", "Say")], "self_links"),
    "cycle": item([SEE, SAY], [link("See", "Say"), link("Say", "See")], "cycle"),
    "cycle through a tool used twice": item(
        [SEE, SUM, SEE], [link("See", "Sum"), link("Sum", "See")], "cycle"
    ),
    "out of range": item([SEE, node("Say", "<node-2>.output")], [], "node_refs_out_of_range"),
    "its own output": item([SEE, node("Say", "<node-1>")], [], "node_refs_not_backwards"),
    "a later output that waits for it": item(
        [node("See", "<node-1>"), SAY], [link("See", "Say")], "node_refs_not_backwards"
    ),
}


@pytest.mark.parametrize("each", FAULTY.values(), ids=FAULTY)
def test_a_faulty_plan_is_refused_with_its_fault_named_and_no_other(each: Item) -> None:
    verdict = judged(each)
    assert verdict.faults
    assert verdict.faults <= NAMED_BY[each.labels[0]]
    assert verdict.is_right


def test_a_clean_plan_is_accepted() -> None:
    links = [link("See", "Say"), link("Say", "Sum"), link("See", "Sum")]
    verdict = judged(item([SEE, SAY, SUM], links))
    assert not verdict.faults
    assert verdict.is_right


def test_a_plan_that_reads_ahead_is_warned_of_and_still_runs() -> None:
    verdict = judged(item([node("See", "<node-1>"), node("Say")], [], "node_refs_not_backwards"))
    assert not verdict.faults
    assert verdict.warnings == {"forward_need"}
    assert not verdict.is_right, "a warning alone refuses nothing"


def test_a_fault_that_nobody_labelled_counts_as_wrong() -> None:
    assert not judged(item([SEE, node("Sing")], [])).is_right


def test_references_and_links_become_needs_once_each() -> None:
    plan = converted(item([SEE, node("Say", {"value": ["<node-0>"]}), SUM], [link("See", "Say")]))
    assert [(task.id, [need.task for need in task.all_needs]) for task in plan.tasks] == [
        ("node-0", []),
        ("node-1", ["node-0"]),
        ("node-2", []),
    ]
    assert [task.worker for task in plan.tasks] == ["See", "Say", "Sum"]


# The command


def slice_in(folder: Path, *plans: tuple[list[dict[str, Any]], dict[str, object]]) -> Path:
    """Plans of one domain, in the shape of the shared ones."""
    items = [
        {
            "id": f"plan-{number}",
            "domain": "d",
            "request": "a request",
            "plan": {"task_nodes": nodes, "task_links": []},
            "faults": {**dict.fromkeys(NAMED_BY, 0), **faults},
        }
        for number, (nodes, faults) in enumerate(plans)
    ]
    (folder / "plans").mkdir()
    tools = {"d": [{"name": "See"}, {"name": "Say"}]}
    content = json.dumps({"tools": tools, "items": items})
    (folder / "plans" / "model-plans.json").write_text(content)
    return folder


def test_what_was_found_is_told_by_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = slice_in(tmp_path, ([SEE, SAY], {}), ([node("Sing")], {"unknown_tools": ["Sing"]}))
    assert model_plans.main(["--json", "--workloads", str(folder)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [figure["value"] for figure in content["figures"]] == [1, 1]
    assert content["labels"]["unknown_tools"] == {
        "plans": 1,
        "named": 1,
        "by_warning": 0,
        "missed": 0,
    }
    assert model_plans.main(["--workloads", str(folder)]) == 0
    assert "refused with it named" in capsys.readouterr().out


def test_a_plan_judged_otherwise_than_labelled_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = slice_in(tmp_path, ([SEE, SAY], {"cycle": True}))
    assert model_plans.main(["--workloads", str(folder)]) == 1
    assert "wrong: plan-0" in capsys.readouterr().out


def test_without_workloads_it_is_skipped_with_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert model_plans.main([]) == 0
    assert capsys.readouterr().out.startswith("skipped: ")
