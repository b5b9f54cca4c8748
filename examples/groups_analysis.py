"""Data analysis by a group: a cleaner, an analyst and an illustrator study the power use of a building.

They speak in turn. The cleaned data is in a block that is too large to be shown at every turn; a member reads it
when needed. Every step adds a line to a shared log, so the answer can say which data was discarded.
"""

import asyncio
import csv
import statistics
import sys
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

import chargehand as ch
from chargehand.patterns.groups import Group, GroupResult, Message, RoundRobinManager, SharedBlock

DATA = Path(__file__).parent / "groups_data" / "power.csv"
CONSOLE = Console(highlight=False)
#: seconds that a turn takes where people watch
PACE = 0.6 if sys.stdout.isatty() else 0.0
#: a value so many usual deviations away from the middle is a mistake of the meter
FAR = 20.0


def log(brief: ch.Brief, line: str) -> None:
    brief.wait(brief.board.update("log", lambda old: [*old, f"{brief.worker}: {line}"]))


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@ch.worker("cleaner", "Takes out what the meter got wrong")
def cleaner(brief: ch.Brief) -> str:
    time.sleep(PACE)
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = [(row["at"], number(row["kw"])) for row in csv.DictReader(file)]
    once = dict(rows)
    read = {at: kw for at, kw in once.items() if kw is not None}
    middle = statistics.median(read.values())
    spread = statistics.median(abs(kw - middle) for kw in read.values())
    kept = {at: kw for at, kw in read.items() if abs(kw - middle) <= FAR * spread}
    log(brief, f"rows that came twice: {len(rows) - len(once)}")
    log(brief, f"rows without a number: {len(once) - len(read)}")
    log(brief, f"rows out of any range: {len(read) - len(kept)}")
    brief.wait(brief.board.write("clean", kept))
    return f"{len(kept)} of {len(rows)} rows are left"


@ch.worker("analyst", "Finds when the power is used")
def analyst(brief: ch.Brief) -> dict[str, Any]:
    time.sleep(PACE)
    by_hour: dict[str, list[float]] = defaultdict(list)
    for at, kw in brief.wait(brief.board.read("clean")).value.items():
        moment = datetime.fromisoformat(at)
        days = "workdays" if moment.weekday() < 5 else "weekends"
        by_hour[f"{days} {moment.hour:02d}"].append(kw)
    means = {hour: round(statistics.mean(values), 1) for hour, values in sorted(by_hour.items())}
    base = min(means.values())
    idle = round(base * 24 * 30)
    log(brief, f"{len(means)} means over {sum(map(len, by_hour.values()))} rows")
    return {"means": means, "base": base, "idle": idle}


@ch.worker("illustrator", "Draws what was found, and says it in a sentence")
def illustrator(brief: ch.Brief) -> str:
    time.sleep(PACE)
    found = brief.inputs["t2 from analyst"]
    means = {hour: kw for hour, kw in found["means"].items() if hour.startswith("workdays")}
    most = max(means.values())
    bars = [f"{hour[-2:]} h {'█' * round(40 * kw / most)} {kw} kW" for hour, kw in means.items()]
    peak = max(means, key=lambda hour: means[hour])
    log(brief, f"{len(bars)} bars")
    told = (
        f"Most power is used at {peak[-2:]} h on workdays, {most} kW; {found['base']} kW are used when "
        f"nobody is there, some {found['idle']} kWh a month."
    )
    return "\n".join([told, *bars])


def group() -> Group:
    return Group(
        [cleaner, analyst, illustrator],
        manager=RoundRobinManager(),
        name="power",
        blocks=[SharedBlock("clean", writers=["cleaner"]), SharedBlock("log", [])],
    )


def show(said: Message) -> None:
    words = escape(shorten(said.text, 120, placeholder=" …"))
    line = f"[bold cyan]{said.sender}[/] to {', '.join(said.to)}: {words}"
    CONSOLE.print(Padding(line, (0, 0, 0, 2), expand=False))


async def work() -> tuple[GroupResult, list[str]]:
    async with group() as crew:
        result = await crew.send("When is the power used, and how much for nothing?", hear=show)
        return result, (await crew.board(crew.blocks.home).read("log")).value


def main() -> GroupResult:
    CONSOLE.print(
        "Four weeks of a meter that makes mistakes, and three who make something of it:\n"
    )
    result, lines = asyncio.run(work())
    CONSOLE.print(f"\n[bold]The answer:[/]\n{escape(str(result.output))}\n\n[bold]The log:[/]")
    for line in lines:
        CONSOLE.print(f"  {escape(line)}")
    CONSOLE.print(f"\n{result.status.value.capitalize()}: {result.turns} turns.")
    CONSOLE.print(
        "\nNext: docs/groups.md; or put a meter of your own in place of groups_data/power.csv"
    )
    return result


if __name__ == "__main__":
    main()
