"""Material: the results that an answer is made of, and what is known of those that are missing."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from chargehand.decisions.rule_answer import cut, done_in, gaps_in, loose_in
from chargehand.decisions.system_tasks import last_in
from chargehand.decisions.taint_sources import sources_of
from chargehand.decisions.task_graph import TaskNode
from chargehand.engines.brief import Brief
from chargehand.facts.answer import Gap
from chargehand.facts.plan import Strategy
from chargehand.roles.aggregate.context_limit import Item
from chargehand.roles.data_fences import words_of
from chargehand.roles.system_task_context import PlanningContext

LONGEST_HEADING = 200
#: that a model is told one by one
MOST_GAPS = 40


class TaskResults:
    """The results by task, in plan order, brought from wherever they lie."""

    def __init__(
        self,
        nodes: Mapping[str, TaskNode],
        outputs: Mapping[str, Any],
        finished: Sequence[str],
        strategy: Strategy = Strategy.MERGE,
    ) -> None:
        self.nodes = nodes
        self.outputs = outputs
        self.gaps: tuple[Gap, ...] = gaps_in(nodes, strategy)
        self._finished = finished

    @cached_property
    def items(self) -> dict[str, Item]:
        return {
            id_: Item(
                id_,
                f"Result of {id_} ({cut(self.nodes[id_].task.description, LONGEST_HEADING)})",
                words_of(output),
                (id_,),
                order,
            )
            for order, (id_, output) in enumerate(self.outputs.items())
        }

    @property
    def in_order_of_finishing(self) -> list[Item]:
        """So that what is packed first stays packed when more results arrive.

        A result that nobody took up although somebody should have comes last: that is known last.
        """
        last = set(last_in(self.nodes))
        order = sorted(self._finished, key=lambda id_: id_ not in last)  # stable
        return [self.items[id_] for id_ in order if id_ in self.items]

    def only(self, task: str) -> "TaskResults":
        """The material as if this were the only result."""
        return TaskResults(self.nodes, {task: self.outputs[task]}, [task])

    def citing(self, citation: str) -> tuple[str, ...]:
        """The tasks whose results give this citation in brackets."""
        words = f"[{citation}]"
        return tuple(id_ for id_, item in self.items.items() if words in item.text)

    def told_gaps(self) -> str:
        """What is missing and why, one line each."""
        lines = [cut(str(gap), 300) for gap in self.gaps[:MOST_GAPS]]
        more = len(self.gaps) - len(lines)
        return "\n".join([*lines, *([f"and {more} more"] if more else [])])


async def gather(brief: Brief, seat: PlanningContext, context: int) -> TaskResults:
    """Bring the results, and have the answer distrusted for whatever they and the gaps derive from.

    Results that another done task has taken up come along only where all together are small.
    """
    nodes, values = seat.live_run.schedule.nodes, seat.live_run.results.outputs
    chosen = brief.task.args.get("of") or done_in(nodes)
    if sum(values[id_].size or len(values[id_].json) for id_ in chosen) > context:
        loose = set(loose_in(nodes))
        chosen = [id_ for id_ in chosen if id_ in loose]
    outputs: dict[str, Any] = {}
    for id_ in chosen:
        outputs[id_] = (await seat.bring(values[id_])).read()
    finished = [id_ for id_ in values if id_ in outputs]
    material = TaskResults(nodes, outputs, finished, seat.live_run.schedule.strategy)
    brief.distrust(*sources_of(seat.live_run, *outputs, *(gap.task for gap in material.gaps)))
    return material
