"""Model training by a group: a splitter, three parallel trainers and an evaluator tell wheat from spelt.

The model is real but small, in plain Python: logistic regression over three measurements of a grain. The trainers
use different learning rates and leave their checkpoints in a block; the evaluator takes the one that does best on
grains that none of them has seen. The manager is a scripted model, so no API key is needed; with
`--model openai:gpt-5-mini` that model leads. Whichever model leads, no trainer starts before the grains are ready,
and the last lines compare the answer with what the evaluator computed.
"""

import argparse
import csv
import json
import math
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

import chargehand as ch
from chargehand.models.base import ModelRequest, ToolCall
from chargehand.models.scripted import Line
from chargehand.patterns.groups import Group, GroupResult, Message, SharedBlock, SupervisorManager

DATA = Path(__file__).parent / "groups_data" / "grains.csv"
CONSOLE = Console(highlight=False)
#: seconds that a turn takes where people watch
PACE = 0.6 if sys.stdout.isatty() else 0.0
FEATURES = ("length", "width", "weight")
SPEEDS = {"slow": 0.001, "steady": 1.0, "hasty": 3000.0}
ROUNDS = 60
INSTRUCTIONS = f"""First have the splitter get the grains ready. Then have each of {", ".join(SPEEDS)} train a \
model. Then have the evaluator say which one to take, and finish with exactly what the evaluator said."""

Row = list[float]
"""The measurements of a grain, scaled, with a 1 before them and its kind behind: 1 for spelt."""


def chance_of(weights: list[float], row: Row) -> float:
    """The probability that a grain is spelt, according to a model."""
    sum_ = sum(weight * value for weight, value in zip(weights, row[:-1], strict=True))
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, sum_))))


def train(rows: list[Row], speed: float) -> tuple[list[float], float]:
    """Gradient descent over all rows; returns the final weights and their loss."""
    weights = [0.0] * (len(rows[0]) - 1)
    for _ in range(ROUNDS):
        slope = [0.0] * len(weights)
        for row in rows:
            error = chance_of(weights, row) - row[-1]
            slope = [each + error * value for each, value in zip(slope, row[:-1], strict=True)]
        weights = [w - speed * each / len(rows) for w, each in zip(weights, slope, strict=True)]
    return weights, loss_of(weights, rows)


def loss_of(weights: list[float], rows: list[Row]) -> float:
    """The mean log loss of a model."""
    chances = [(chance_of(weights, row), row[-1]) for row in rows]
    return -sum(math.log(max(1e-9, p if is_ else 1 - p)) for p, is_ in chances) / len(rows)


def scaled(grains: list[dict[str, str]]) -> list[Row]:
    """Every measurement as its distance from the mean, in standard deviations."""
    columns = [[float(grain[name]) for grain in grains] for name in FEATURES]
    means = [sum(column) / len(column) for column in columns]
    spreads = [
        math.sqrt(sum((value - mean) ** 2 for value in column) / len(column))
        for column, mean in zip(columns, means, strict=True)
    ]
    return [
        [
            1.0,
            *(
                (float(grain[name]) - m) / s
                for name, m, s in zip(FEATURES, means, spreads, strict=True)
            ),
            float(grain["kind"] == "spelt"),
        ]
        for grain in grains
    ]


@ch.worker("splitter", "Scales the grains, and keeps some back to test with")
def splitter(brief: ch.Brief) -> str:
    time.sleep(PACE)
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = scaled(list(csv.DictReader(file)))
    random.Random(4).shuffle(rows)  # noqa: S311 - the same split each time
    parts = {"train": rows[60:], "test": rows[:60]}
    brief.wait(brief.board.write("grains", parts))
    return f"{len(parts['train'])} grains to learn from, {len(parts['test'])} kept back"


def trainer(name: str, speed: float) -> ch.FunctionWorker:
    def work(brief: ch.Brief) -> str:
        time.sleep(PACE)
        rows = brief.wait(brief.board.read("grains")).value["train"]
        weights, loss = train(rows, speed)
        brief.wait(brief.board.update("checkpoints", lambda old: {**old, name: weights}))
        return f"speed {speed:g}: loss {loss:.3f} after {ROUNDS} rounds"

    return ch.FunctionWorker(work, name, f"Trains at speed {speed:g}")


@ch.worker("evaluator", "Tests checkpoints on grains that no trainer has seen")
def evaluator(brief: ch.Brief) -> str:
    time.sleep(PACE)
    rows = brief.wait(brief.board.read("grains")).value["test"]
    models = brief.wait(brief.board.read("checkpoints")).value
    right = {
        name: sum((chance_of(weights, row) > 0.5) == bool(row[-1]) for row in rows)
        for name, weights in models.items()
    }
    best = min(models, key=lambda name: (-right[name], loss_of(models[name], rows)))
    told = ", ".join(f"{name} {right[name]} of {len(rows)}" for name in sorted(models))
    largest = max(zip(models[best][1:], FEATURES, strict=True), key=lambda each: abs(each[0]))[1]
    return f"Take {best}: {right[best]} of {len(rows)} right ({told}). It goes most by {largest}."


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"{name} {arguments.get('worker', '')}", name, json.dumps(arguments))


def conclude(request: ModelRequest) -> ToolCall:
    """Finish with the last message."""
    said = re.findall(r"^BEGIN t\d+ .*\n(.*?)\nEND", request.turns[-1].text, re.MULTILINE)
    return call("finish", answer=said[-1])


def group(model: str = "") -> Group:
    lines: list[Line] = [
        call("assign_to_one", worker="splitter", message="Get the grains ready"),
        call("finish", answer="Good enough."),  # refused: the others were not heard
        [call("assign_to_one", worker=name, message="Train a model") for name in SPEEDS],
        call("assign_to_one", worker="evaluator", message="Say which model to take"),
        conclude,
    ]
    return Group(
        [splitter, *(trainer(name, speed) for name, speed in SPEEDS.items()), evaluator],
        manager=SupervisorManager(
            model or ch.ScriptedModel(lines), name="lead", instructions=INSTRUCTIONS
        ),
        name="training",
        blocks=[SharedBlock("grains", writers=["splitter"]), SharedBlock("checkpoints", {})],
    )


def show(said: Message) -> None:
    if said.to == ("user",):
        return  # the answer, which comes at the end
    words = escape(shorten(said.text, 200, placeholder=" …"))
    line = f"[bold cyan]{said.sender}[/] to {', '.join(said.to)}: {words}"
    CONSOLE.print(Padding(line, (0, 0, 0, 2), expand=False))


def main(arguments: Sequence[str] = ()) -> GroupResult:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="provider:model, to lead the group")
    model = parser.parse_args(arguments).model
    CONSOLE.print("240 grains of two kinds, three trainers at different speeds:\n")
    result = group(model).send_sync("Tell wheat from spelt", hear=show)
    CONSOLE.print(f"\n[bold]The answer:[/] {escape(str(result.output))}")
    found = [str(each.content) for each in result.messages if each.sender == "evaluator"]
    taken = re.findall(r"Take (\w+)", found[-1]) if found else []
    if not taken:
        CONSOLE.print("[bold]Not to be trusted:[/] nothing was tested, whatever it says.")
    elif taken[0] not in str(result.output):
        CONSOLE.print(f"[bold]Not to be trusted:[/] the evaluator says: {escape(found[-1])}")
    else:
        CONSOLE.print(f"It names the one that did best on the test: {taken[0]}.")
    CONSOLE.print(
        f"{result.status.value.capitalize()}: {result.turns} turns, "
        f"{result.run.speedup:.1f} times as fast as one after another."
    )
    CONSOLE.print("\nNext: docs/groups.md; or change SPEEDS, and see who learns nothing")
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
