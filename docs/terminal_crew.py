"""The crew of the captured screens: its workers go on when the script that captures them says so."""

import asyncio
import os
from pathlib import Path

import chargehand as ch

#: a task ends once there is a file of its name here; without a folder, after a moment
GATES = os.environ.get("CHARGEHAND_GATES", "")


async def opened(task: str, seconds: float) -> str:
    """Wait for the gate of a task."""
    while GATES and not (Path(GATES) / task).exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.01)
    if not GATES:
        await asyncio.sleep(seconds)
    return f"{task}: 42 ships, 7 ports"


@ch.worker("reader", "Reads a report and returns its figures")
async def read(brief: ch.Brief) -> str:
    seconds = 1.2 + 0.37 * (sum(map(ord, brief.task.id)) % 7)
    text: str = await brief.step("tool read_file", opened, brief.task.id, seconds)
    if brief.task.id == "north-3" and not brief.tries:
        raise ValueError("the file ends in the middle of a table")
    return text


@ch.worker("analyst", "Compares figures of several reports")
async def compare(brief: ch.Brief) -> str:
    await brief.step("tool compare_tables", opened, brief.task.id, 1.9)
    return "the south has grown by 12 %"


@ch.worker("editor", "Writes the summary")
async def write(brief: ch.Brief) -> str:
    tone = await brief.ask("Who reads the summary?", choices=["engineers", "the board"])
    await brief.step("tool write_text", opened, brief.task.id, 1.5)
    return f"For {tone}: trade in the south has grown by 12 %, in the north it has not."


@ch.worker("checker", "Checks one figure against its source")
async def check(brief: ch.Brief) -> str:
    await opened("checks", 0.12)
    return f"{brief.item} is right"


boss = ch.Supervisor([read, compare, write, check], parallel=5)


def plan() -> ch.Plan:
    """Ten reports, two comparisons, twenty checks, one summary."""
    read_all = [
        ch.Task(id=f"{side}-{n}", description=f"Read report {n} of the {side}", worker="reader")
        for side in ("north", "south")
        for n in (1, 2, 3)
    ]
    compared = [
        ch.Task(
            id=f"compare-{side}",
            description=f"Compare the reports of the {side}",
            worker="analyst",
            needs=[task.id for task in read_all if side in task.id],
        )
        for side in ("north", "south")
    ]
    figures = [f"figure {n}" for n in range(1, 41)]
    checks = ch.Task(
        id="checks", description="Check the figure", worker="checker", for_each=figures
    )
    summary = ch.Task(
        id="summary",
        description="Summarise what has changed",
        worker="editor",
        needs=["compare-north", "compare-south", "checks"],
    )
    return ch.Plan(
        goal="What has changed in trade since the last reports?",
        tasks=[*read_all, *compared, checks, summary],
    )
