"""Evaluation on material from elsewhere: recorded conversations, gold plans, and plans that models wrote.

Conversations: the model says what the recorded one said, the tools return what the recorded ones
returned, and a supervisor leads it: each message of the user is a task that needs the one before. Every
call, every result and every word must come out of the run's trace as it was recorded, in order.

Gold plans: each is scored against itself, and so are two plans that are wrong in a known way: the same
tasks one after another, and every second task left out. Model-written plans: the share that is accepted
as written, with its interval.
"""

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, print_table, report, workload_options, workloads_or_skip
from benchmarks.model_plans import FILE, converted, items_in

import chargehand as ch
from chargehand.decisions.trace_types import StepKind
from chargehand.evaluation import PlanTask, score
from chargehand.evaluation.html_report import shown
from chargehand.evaluation.intervals import Interval, wilson
from chargehand.facts.events import Effect
from chargehand.models.base import ModelReply, Part, StopReason, Text, ToolCall
from chargehand.models.scripted import ScriptedModel
from chargehand.tools.base import Tool
from chargehand.tools.tool_arguments import SchemaArguments

TRANSCRIPTS = Path("transcripts") / "tau-airline.json"
GOLD = Path("plans") / "worfbench.json"
#: closes a conversation that ends with the result of a tool; no part of what is compared
CLOSING = "(the recorded conversation ends here)"


class Said(NamedTuple):
    """One thing in a conversation: a text of the model, a call, or the result of one."""

    kind: str
    name: str
    text: str


class Exchange(NamedTuple):
    """A message of the user, and all that followed until the next one."""

    asked: str
    replies: list[ModelReply]
    said: list[Said]


def exchanges_in(messages: Sequence[Mapping[str, Any]]) -> list[Exchange]:
    """A conversation in pieces; a last message that nobody answered is left out."""
    found: list[Exchange] = []
    for message in messages:
        if message["role"] == "user":
            found.append(Exchange(message["content"], [], []))
        elif message["role"] == "tool":
            found[-1].said.append(Said("result", message["name"], message["content"]))
        else:
            parts = list(_parts_of(message))
            is_calling = any(isinstance(part, ToolCall) for part in parts)
            stop = StopReason.TOOLS if is_calling else StopReason.END
            found[-1].replies.append(ModelReply(parts=tuple(parts), stop=stop))
            found[-1].said.extend(map(_said, parts))
    return [each for each in found if each.replies]


def _parts_of(message: Mapping[str, Any]) -> Iterator[Part]:
    if message.get("content"):
        yield Text(message["content"])
    for call in message.get("tool_calls") or ():
        yield ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])


def _said(part: Part) -> Said:
    if isinstance(part, ToolCall):
        return Said("call", part.name, part.arguments)
    return Said("text", "", part.text if isinstance(part, Text) else "")


async def replayed(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Said], list[Said]]:
    """What was recorded, and what a supervisor's trace of the same conversation says."""
    exchanges = exchanges_in(messages)
    results = [said for each in exchanges for said in each.said if said.kind == "result"]
    script: list[ModelReply] = []
    for each in exchanges:
        script += each.replies
        if each.said[-1].kind == "result":
            script.append(ModelReply(parts=(Text(CLOSING),), stop=StopReason.END))
    agent = ch.Worker(
        "agent", "Helps passengers of an airline", tools=_tools_for(results), timeout=60
    )
    tasks = [
        ch.Task(
            id=f"m{number}",
            description=each.asked,
            worker="agent",
            # What the agent declines to do is no reason to end the conversation.
            needs=[ch.Need(f"m{number - 1}", optional=True)] if number else [],
            limits=ch.TaskLimits(attempts=1, turns=40),
        )
        for number, each in enumerate(exchanges)
    ]
    model = ScriptedModel(script)
    boss = ch.Supervisor([agent], model=model)
    run = await boss.run(ch.Plan(goal="the conversation", tasks=tasks), refine=False)
    recorded = [said for each in exchanges for said in each.said]
    return recorded, [each for each in said_in(run.trace) if each.text != CLOSING]


def said_in(trace: ch.Trace) -> Iterator[Said]:
    """All that the model said, called and got back, in the order of the trace."""
    for attempt in trace.attempts:
        for step in () if attempt.is_system_task else attempt.steps:
            if step.kind is StepKind.MODEL:
                for part in step.value["parts"]:
                    is_call = part["is"] == "call"
                    name, text = (
                        (part["name"], part["arguments"]) if is_call else ("", part["text"])
                    )
                    yield Said("call" if is_call else "text", name, text)
            elif step.kind is StepKind.TOOL:
                yield Said("result", step.name.removeprefix("tool "), step.value["text"])


def _tools_for(results: Sequence[Said]) -> list[Tool]:
    """A tool of each name, which returns the recorded results of that name in turn."""
    left: dict[str, list[str]] = {}
    for each in results:
        left.setdefault(each.name, []).append(each.text)

    def tool_of(name: str) -> Tool:
        def answer(**_: Any) -> str:
            return left[name].pop(0)

        anything = SchemaArguments({"type": "object", "additionalProperties": True}, name)
        told = f"{name}, as recorded"
        return Tool(
            name=name, description=told, arguments=anything, function=answer, effect=Effect.PURE
        )

    return [tool_of(name) for name in left]


# Gold plans, and plans that are wrong in a known way


def gold_plans(folder: Path) -> Iterator[list[PlanTask]]:
    for item in json.loads((folder / GOLD).read_text(encoding="utf-8"))["items"]:
        yield [
            PlanTask(str(task["id"]), task["text"], needs=tuple(map(str, task["deps"])))
            for task in item["tasks"]
        ]


def chained(gold: Sequence[PlanTask]) -> list[PlanTask]:
    """The same tasks, each of which needs the one before."""
    before = [(), *((task.id,) for task in gold)]
    return [
        PlanTask(task.id, task.description, needs=needs)
        for task, needs in zip(gold, before, strict=False)
    ]


def gold_rows(plans: Sequence[Sequence[PlanTask]]) -> dict[str, tuple[Interval, Interval]]:
    """By kind of plan, node F1 and edge F1 against the gold plans."""
    kinds = {
        "gold": plans,
        "gold, one after another": [chained(gold) for gold in plans],
        "every second task": [gold[::2] for gold in plans],
    }
    rows = {}
    for kind, written in kinds.items():
        scores = [score(plan, gold) for plan, gold in zip(written, plans, strict=True)]
        rows[kind] = (wilson([s.node_f1 for s in scores]), wilson([s.edge_f1 for s in scores]))
    return rows


def accepted_by_model(folder: Path) -> dict[str, Interval]:
    """By model, the share of its plans that are accepted as they are written."""
    accepted: dict[str, list[float]] = {}
    for item in items_in(folder):
        check = converted(item).check(item.roster, in_order=True)
        accepted.setdefault(item.id.split("/")[1], []).append(float(bool(check)))
    return {model: wilson(shares) for model, shares in sorted(accepted.items())}


async def conversations(folder: Path) -> tuple[int, int, int]:
    """How many conversations there are, how many were replayed verbatim, and how many calls they have."""
    items = json.loads((folder / TRANSCRIPTS).read_text(encoding="utf-8"))["items"]
    verbatim = calls = 0
    for item in items:
        recorded, said = await replayed(item["messages"])
        verbatim += recorded == said
        calls += sum(each.kind == "call" for each in recorded)
    return len(items), verbatim, calls


def main(argv: Sequence[str] | None = None) -> int:
    options = workload_options(__doc__, argv)
    folder = workloads_or_skip(options, FILE)
    if folder is None:
        return 0
    number, verbatim, calls = asyncio.run(conversations(folder))
    plans = list(gold_plans(folder))
    gold, models = gold_rows(plans), accepted_by_model(folder)
    if not options.json:
        rows = [[kind, shown(node), shown(edge)] for kind, (node, edge) in gold.items()]
        print_table([f"{len(plans)} gold plans against", "node F1", "edge F1"], rows)
        print()
        rows = [[model, str(share.n), shown(share)] for model, share in models.items()]
        print_table(["plans written by", "plans", "accepted as written"], rows)
        print()
    figures = [
        Figure(
            name="conversations replayed verbatim",
            value=verbatim,
            bar=number,
            is_floor=True,
            note=f"of {number}, with {calls} calls",
        ),
        Figure(name="node F1 of gold plans", value=gold["gold"][0].value, bar=1, is_floor=True),
        Figure(name="edge F1 of gold plans", value=gold["gold"][1].value, bar=1, is_floor=True),
    ]
    status = report(figures, options)
    return 1 if any(figure.verdict == "short" for figure in figures) else status


if __name__ == "__main__":
    sys.exit(main())
