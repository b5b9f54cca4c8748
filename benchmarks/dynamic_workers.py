"""What it costs to make a worker for each task instead of having them on the roster.

A plan of ten tasks, each by a specialist of its own with one tool: a model call, a tool call, a model
call. Done by ten workers that stand on the roster; by a factory that is told in the plan who each
task takes; and by a factory that asks a model first. The model is scripted: with a fixed latency for
the wall time, with none for the CPU. All are measured in the same run, in turns.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, Sample, middle, options_for, report, sampled

import chargehand as ch
from chargehand.models.base import ModelRequest, ToolCall

TASKS = 10
STATIC, TOLD, ASKED = "static roster", "factory, told in the plan", "factory, asks a model"
#: the bar on top of the ideal ratio of wall times: scheduling, not only waiting
SPREAD = 1.1


@ch.tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def role(number: int) -> str:
    return f"You are accountant number {number}. You compute with tools, never in your head."


def answer(request: ModelRequest) -> "str | ToolCall":
    """A hire, a tool call or a result, whichever is asked for."""
    if request.schema is not None:
        return json.dumps({"role": role(0), "tools": ["add"]})
    is_first = len(request.turns) == 2
    return ToolCall("1", "add", '{"a": 1, "b": 2}') if is_first else "It is 3."


def model_of(latency: timedelta) -> ch.ScriptedModel:
    return ch.ScriptedModel([answer] * TASKS * 3, latency=latency)


def plan_of(worker: "Callable[[int], str]", *, is_told: bool = False) -> ch.Plan:
    tasks = [
        ch.Task(
            id=f"t{n}",
            description=f"Give the sum of invoice number {n}",
            worker=worker(n),
            args={"role": role(n), "tools": ["add"]} if is_told else {},
        )
        for n in range(TASKS)
    ]
    return ch.Plan(goal="The sums of all invoices", tasks=tasks)


def static(latency: timedelta) -> tuple[ch.Supervisor, ch.Plan]:
    model = model_of(latency)
    workers = [
        ch.Worker(f"w{n}", "Adds", instructions=role(n), tools=[add], model=model)
        for n in range(TASKS)
    ]
    return ch.Supervisor(workers), plan_of(lambda n: f"w{n}")


def made(latency: timedelta, *, is_told: bool) -> tuple[ch.Supervisor, ch.Plan]:
    crew = ch.Factory("crew", "Makes any specialist", tools=[add], model=model_of(latency))
    return ch.Supervisor([crew]), plan_of(lambda _: "crew", is_told=is_told)


WAYS: dict[str, Callable[[timedelta], tuple[ch.Supervisor, ch.Plan]]] = {
    STATIC: static,
    TOLD: lambda latency: made(latency, is_told=True),
    ASKED: lambda latency: made(latency, is_told=False),
}


async def one(way: str, latency: timedelta) -> Sample:
    """What the plan took this way, the making of roster and supervisor included."""

    async def whole() -> ch.RunResult:
        boss, plan = WAYS[way](latency)
        return await boss.run(plan)

    sample, result = await sampled(whole)
    assert result.status == "succeeded", result
    return sample


async def measured(latency: timedelta, repeats: int) -> dict[str, Sample]:
    """The median of each way; they take turns, so that a busy machine is busy for all."""
    samples: dict[str, list[Sample]] = {way: [] for way in WAYS}
    for way in WAYS:
        await one(way, timedelta(0))  # modules are loaded, prompts read
    for _ in range(repeats):
        for way in WAYS:
            samples[way].append(await one(way, latency))
    return {way: middle(taken) for way, taken in samples.items()}


def figures_of(cpu: dict[str, Sample], wall: dict[str, Sample], latency: timedelta) -> list[Figure]:
    figures = []
    for way in WAYS:
        calls = 3 if way == ASKED else 2
        each = cpu[way].cpu / TASKS * 1e3
        figures.append(
            Figure(name=f"{way}: CPU a task", value=each, unit="ms", note=f"{calls} calls")
        )
    for way in (TOLD, ASKED):
        ideal = 3 / 2 if way == ASKED else 1.0
        name = f"{way} ÷ {STATIC}"
        more = cpu[way].cpu / cpu[STATIC].cpu
        figures.append(Figure(name=f"{name}: CPU", value=more, bar=ideal * 1.3))
        longer = wall[way].wall / wall[STATIC].wall
        note = f"calls of {latency.total_seconds() * 1e3:g} ms; {ideal:g} is the ideal"
        figures.append(Figure(name=f"{name}: wall", value=longer, bar=ideal * SPREAD, note=note))
    return figures


def sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--latency", type=float, default=0.05, help="seconds of a model call")
    parser.add_argument("--repeats", type=int, default=15)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_for(__doc__, argv, sizes)
    latency = timedelta(seconds=options.latency)
    cpu = asyncio.run(measured(timedelta(0), options.repeats * 5))  # they are short
    wall = asyncio.run(measured(latency, options.repeats))
    return report(figures_of(cpu, wall, latency), options)


if __name__ == "__main__":
    sys.exit(main())
