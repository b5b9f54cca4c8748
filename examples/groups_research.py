"""Research by a group: three scientists find out what makes the algae of a lake grow, and check each other.

A manager leads them with tool calls: each scientist studies their own measurements, then checks the strongest
finding of the others, then one writes the report. Findings are in a shared block. The manager is a scripted model,
so no API key is needed; with `--model openai:gpt-5-mini` that model leads. The rules apply to any model: it cannot
finish before all members were heard, and the scientists answer only the three messages they know. The text of the
answer is the model's own; the last lines compare it with what was computed.
"""

import argparse
import asyncio
import csv
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import correlation
from textwrap import shorten

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

import chargehand as ch
from chargehand.models.base import ModelRequest, ToolCall
from chargehand.models.scripted import Line
from chargehand.patterns.groups import Group, GroupResult, Message, SharedBlock, SupervisorManager

DATA = Path(__file__).parent / "groups_data"
CONSOLE = Console(highlight=False)
#: seconds that a scientist takes where people watch
PACE = 0.6 if sys.stdout.isatty() else 0.0
LOOK, CHECK = "Say how strongly your measurements go with the algae", "Check the strongest finding"
WRITE = "Write down what holds and what does not"
INSTRUCTIONS = f"""The members know three messages, word for word, and answer no others:
1. {LOOK}
2. {CHECK}
3. {WRITE}
Send the first to all, then the second to all, then the third to one member. Then finish with exactly what \
that member wrote."""


def measured(name: str) -> list[float]:
    """One measurement, week by week."""
    for path in DATA.glob("lake_*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if name in rows[0]:
            return [float(row[name]) for row in rows]
    raise LookupError(f"nobody has measured {name}")


def strength(name: str, weeks: slice = slice(None)) -> float:
    """The correlation of a measurement with the algae, from -1 to 1."""
    return round(correlation(measured(name)[weeks], measured("algae")[weeks]), 2)


def scientist(name: str, field: str, measurements: Sequence[str]) -> ch.FunctionWorker:
    """A member that is responsible for these measurements."""

    def work(brief: ch.Brief) -> str:
        time.sleep(PACE)
        board, asked = brief.board, brief.task.description.strip().casefold()
        if asked.startswith(LOOK.casefold()):
            own = {each: strength(each) for each in measurements}
            brief.wait(board.update("findings", lambda old: {**old, **own}))
            return f"{field}: " + ", ".join(f"{each} {own[each]:+.2f}" for each in own)
        findings = brief.wait(board.read("findings")).value
        if asked.startswith(CHECK.casefold()):
            others = [each for each in findings if each not in measurements]
            if not others:
                raise ValueError(f"nobody else has found anything yet; first: {LOOK}")
            strongest = max(others, key=lambda each: abs(findings[each]))
            halves = [strength(strongest, slice(15)), strength(strongest, slice(15, None))]
            holds = min(map(abs, halves)) > 0.5
            brief.wait(board.update("checks", lambda old: {**old, strongest: holds}))
            told = "holds" if holds else "does not hold"
            return f"{strongest} {told}: {halves[0]:+.2f} in spring, {halves[1]:+.2f} in autumn"
        if not asked.startswith(WRITE.casefold()):
            raise ValueError(f"I know three messages: {LOOK}; {CHECK}; {WRITE}")
        checks = brief.wait(board.read("checks")).value
        if not checks:
            raise ValueError(f"nothing is checked yet; first: {CHECK}")
        held = [f"{each} ({findings[each]:+.2f})" for each in checks if checks[each]]
        lost = [each for each in checks if not checks[each]]
        return (
            f"The algae go with {' and '.join(held) or 'nothing that was measured'}, in both halves of "
            f"the season. Checked, and not so: {', '.join(lost) or 'nothing'}. Weaker, and not checked: "
            f"{', '.join(each for each in findings if each not in checks)}."
        )

    return ch.FunctionWorker(work, name, f"Measures {' and '.join(measurements)}")


def call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(name, name, json.dumps(arguments))


def conclude(request: ModelRequest) -> ToolCall:
    """Finish with the last message."""
    said = re.findall(r"^BEGIN t\d+ .*\n(.*?)\nEND", request.turns[-1].text, re.MULTILINE)
    return call("finish", answer=said[-1])


def group(model: str = "") -> Group:
    lines: list[Line] = [
        call("finish", answer="Surely it is the sun."),  # refused: nobody was asked yet
        call("assign_to_all", message=LOOK),
        call(
            "assign_to_all", message=f"{CHECK} that is not your own: does it hold all the season?"
        ),
        call("assign_to_one", worker="biologist", message=WRITE),
        conclude,
    ]
    return Group(
        [
            scientist("biologist", "Life", ["plankton"]),
            scientist("chemist", "Water", ["phosphate", "nitrate"]),
            scientist("physicist", "Weather", ["temperature", "light"]),
        ],
        manager=SupervisorManager(
            model or ch.ScriptedModel(lines), name="lead", instructions=INSTRUCTIONS
        ),
        name="lake",
        blocks=[SharedBlock("findings", {}), SharedBlock("checks", {})],
    )


def show(said: Message) -> None:
    if said.to == ("user",):
        return  # the answer, which comes at the end
    words = escape(shorten(said.text, 300, placeholder=" …"))
    line = f"[bold cyan]{said.sender}[/] to {', '.join(said.to)}: {words}"
    CONSOLE.print(Padding(line, (0, 0, 0, 2), expand=False))


async def research(model: str = "") -> tuple[GroupResult, dict[str, bool]]:
    """Print the result, and the findings that the scientists confirmed."""
    async with group(model) as crew:
        result = await crew.send("What makes the algae grow?", hear=show)
        checks = await crew.board(crew.blocks.home).find("checks")
        return result, {} if checks is None else checks.value


def main(arguments: Sequence[str] = ()) -> GroupResult:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="provider:model, to lead the group")
    model = parser.parse_args(arguments).model
    CONSOLE.print("Thirty weeks of a lake, three who measured it, and a lead:\n")
    result, checks = asyncio.run(research(model))
    CONSOLE.print(f"\n[bold]The answer:[/] {escape(str(result.output))}")
    held = [name for name, holds in checks.items() if holds]
    left_out = [name for name in held if name not in str(result.output)]
    if not held:
        CONSOLE.print("[bold]Not to be trusted:[/] nothing was found to hold, whatever it says.")
    elif left_out:
        CONSOLE.print(f"[bold]Not to be trusted:[/] it leaves out {', '.join(left_out)}.")
    else:
        CONSOLE.print(f"It names what was computed to hold: {', '.join(held)}.")
    CONSOLE.print(f"{result.status.value.capitalize()}: {result.turns} turns; {result.ended}.")
    CONSOLE.print("\nNext: docs/groups.md; or give another week to groups_data/lake_*.csv")
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
