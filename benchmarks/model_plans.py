"""What the check of a plan finds in plans as models really write them.

Two small models wrote the plans, and an outside check labelled their faults; the slice is not part of
this repository. A converter turns each plan into ours without judging it, and `Plan.check` does the
rest: a faulty plan must be refused with each of its labelled faults named and no other, a clean one
accepted. That a task reads the output of one written later is no fault of a graph, where order is
free, but a warning; the one plan that this label rests on alone is refused for another.

How a plan is converted: each node is a task, `node-0`, `node-1` and so on, its tool the worker; each
`<node-3>` in its arguments is a need of `node-3`, whether there is such a node or not; each link is a
need of its target. Links name tools, so a link of a tool that several nodes use is a link of all of
them. An end that names no node stays as it is written. As only tasks have needs, a link without a
target is kept at its source, and one with neither end at the last task.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, print_table, report, workload_options, workloads_or_skip

from chargehand.facts.plan import Plan, Task

FILE = Path("plans") / "model-plans.json"

#: by label, the kinds of our faults that mean the same; `repeated_tool_names` is no fault
NAMED_BY = {
    "no_nodes": {"no_tasks"},
    "unknown_tools": {"unknown_worker"},
    "dangling_links": {"dangling_need"},
    "malformed_links": {"dangling_need"},  # what stands in place of an end is no task
    "self_links": {"self_need"},
    "cycle": {"cycle"},
    "node_refs_out_of_range": {"dangling_need"},
    # A task reads its own output, or a later one: in a circle with what links say, or out of turn.
    "node_refs_not_backwards": {"self_need", "cycle", "forward_need"},
    "node_refs_count_from_one": {"self_need", "cycle", "forward_need"},
}

_REFERENCE = re.compile(r"<(node-\d+)>")


@dataclass(frozen=True)
class Item:
    """A plan as a model wrote it, the tools it was offered, and what is wrong with it."""

    id: str
    request: str
    nodes: Sequence[Mapping[str, Any]]
    links: Sequence[Mapping[str, Any]]
    roster: frozenset[str]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """What became of a plan: the kinds of its faults, which refuse it, and of its warnings."""

    item: Item
    faults: frozenset[str]
    warnings: frozenset[str]

    def names(self, label: str) -> bool:
        """Whether it was refused and this fault of it named."""
        return bool(self.faults) and bool((self.faults | self.warnings) & NAMED_BY[label])

    def only_warns_of(self, label: str) -> bool:
        """Whether it was refused for something else, and this named as a warning beside it."""
        return self.names(label) and not self.faults & NAMED_BY[label]

    @property
    def unjustified(self) -> frozenset[str]:
        """Faults that nobody else has found in it."""
        return self.faults.difference(*(NAMED_BY[label] for label in self.item.labels))

    @property
    def is_right(self) -> bool:
        return not self.unjustified and all(map(self.names, self.item.labels))


# The converter: it keeps what is written, and leaves it to the check to find fault


def converted(item: Item) -> Plan:
    needs: dict[str, dict[str, None]] = {}  # a set that keeps its order
    named: dict[str, list[str]] = {}
    for number, node in enumerate(item.nodes):
        id_ = f"node-{number}"
        needs[id_] = dict.fromkeys(_REFERENCE.findall(json.dumps(node.get("arguments"))))
        named.setdefault(node["task"], []).append(id_)
    for link in item.links:
        for source in _ends(link, "source", named):
            for target in _ends(link, "target", named):
                _keep(source, target, needs)
    tasks = [
        Task(
            id=id_,
            description=f"{node['task']} {json.dumps(node.get('arguments'))}",
            worker=node["task"],
            needs=tuple(needs[id_]),
        )
        for id_, node in zip(needs, item.nodes, strict=True)
    ]
    return Plan(goal=item.request, tasks=tasks)


def _ends(link: Mapping[str, Any], which: str, named: Mapping[str, list[str]]) -> list[str]:
    """The nodes at one end of a link, or whatever stands in their place."""
    end = link.get(which)
    return named.get(end, [end]) if isinstance(end, str) else [json.dumps(dict(link))]


def _keep(source: str, target: str, needs: dict[str, dict[str, None]]) -> None:
    if target in needs:
        needs[target][source] = None
    elif source in needs:
        needs[source][target] = None
    elif needs:
        needs[next(reversed(needs))].update({source: None, target: None})


def judged(item: Item) -> Verdict:
    check = converted(item).check(item.roster, in_order=True)
    faults, warnings = (
        frozenset(fault.kind for fault in found) for found in (check.faults, check.warnings)
    )
    return Verdict(item, faults, warnings)


# The slice


def items_in(folder: Path) -> Iterator[Item]:
    content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    rosters = {
        domain: frozenset(tool["name"] for tool in tools)
        for domain, tools in content["tools"].items()
    }
    for each in content["items"]:
        yield Item(
            id=each["id"],
            request=each["request"],
            nodes=each["plan"]["task_nodes"],
            links=each["plan"]["task_links"],
            roster=rosters[each["domain"]],
            labels=tuple(label for label in NAMED_BY if each["faults"][label]),
        )


# The report


def figures_of(verdicts: Sequence[Verdict]) -> list[Figure]:
    faulty = [each for each in verdicts if each.item.labels]
    clean = [each for each in verdicts if not each.item.labels]
    return [
        Figure(
            name="faulty plans refused, all labelled faults named and no other",
            value=sum(each.is_right for each in faulty),
            bar=len(faulty),
            is_floor=True,
            note=f"of {len(faulty)}",
        ),
        Figure(
            name="clean plans accepted",
            value=sum(each.is_right for each in clean),
            bar=len(clean),
            is_floor=True,
            note=f"of {len(clean)}",
        ),
    ]


def by_label(verdicts: Sequence[Verdict]) -> dict[str, dict[str, int]]:
    """How many plans have each label, and how many of them were refused with it named."""
    rows = {}
    for label in NAMED_BY:
        labelled = [each for each in verdicts if label in each.item.labels]
        named = sum(each.names(label) for each in labelled)
        rows[label] = {
            "plans": len(labelled),
            "named": named,
            "by_warning": sum(each.only_warns_of(label) for each in labelled),
            "missed": len(labelled) - named,
        }
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    options = workload_options(__doc__, argv)
    folder = workloads_or_skip(options, FILE)
    if folder is None:
        return 0
    verdicts = [judged(item) for item in items_in(folder)]
    labels, wrong = by_label(verdicts), [v.item.id for v in verdicts if not v.is_right]
    if not options.json:
        rows = [[label, *map(str, row.values())] for label, row in labels.items()]
        print_table(["label", "plans", "refused with it named", "by a warning", "missed"], rows)
        print("".join(f"wrong: {id_}\n" for id_ in wrong))
    report(figures_of(verdicts), options, labels=labels, wrong=wrong)
    return 1 if wrong else 0  # it is the same on every machine, so a missed bar is never bad luck


if __name__ == "__main__":
    sys.exit(main())
