"""Compliance by a group: payments are assessed, checked against the rules and written up; an auditor checks.

Three members speak in turn: the first finds unusual payments, the second says which rule they break, the third
writes the report. Every third turn an auditor runs in the background and checks the conversation against the
payments. The group is asked twice; the second time it remembers what it said the first time.
"""

import asyncio
import csv
import sys
from collections import defaultdict
from pathlib import Path
from textwrap import shorten
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

import chargehand as ch
from chargehand.patterns.groups import Group, GroupResult, Message, RoundRobinManager, SharedBlock

DATA = Path(__file__).parent / "groups_data" / "payments.csv"
CONSOLE = Console(highlight=False)
#: seconds that a turn takes where people watch
PACE = 0.5 if sys.stdout.isatty() else 0.0
GUIDELINES = {
    "limit": 10_000,
    "embargo": ["KP", "SY"],
    "rules": {
        "large": "R1: payments over the limit are reported",
        "split": "R2: payments of one customer on one day that together pass the limit are one payment",
        "embargo": "R3: nothing is paid to countries under embargo",
    },
}


def payments() -> list[dict[str, Any]]:
    with DATA.open(encoding="utf-8", newline="") as file:
        return [{**row, "amount": float(row["amount"])} for row in csv.DictReader(file)]


def unusual(limit: float, embargo: list[str]) -> list[dict[str, Any]]:
    """Unusual payments: kind, customer, payments and their sum."""
    days: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    found = []
    for each in payments():
        kind = (
            "embargo" if each["country"] in embargo else "large" if each["amount"] > limit else ""
        )
        if kind:
            found.append(_case(kind, [each]))
        else:
            days[each["customer"], each["day"]].append(each)
    found += [_case("split", day) for day in days.values() if sum(p["amount"] for p in day) > limit]
    return found


def _case(kind: str, of: list[dict[str, Any]]) -> dict[str, Any]:
    sum_ = round(sum(each["amount"] for each in of), 2)
    ids = [each["payment"] for each in of]
    return {"kind": kind, "customer": of[0]["customer"], "payments": ids, "sum": sum_}


@ch.worker("assessor", "Finds what is unusual")
async def assessor(brief: ch.Brief) -> list[dict[str, Any]]:
    await asyncio.sleep(PACE)
    rules = (await brief.board.read("guidelines")).value
    return unusual(rules["limit"], rules["embargo"])


@ch.worker("expert", "Says which rule is broken")
async def expert(brief: ch.Brief) -> list[str]:
    await asyncio.sleep(PACE)
    rules = (await brief.board.read("guidelines")).value["rules"]
    cases = brief.inputs["t1 from assessor"]
    return [f"{case['customer']}: {rules[case['kind']]}" for case in cases]


@ch.worker("writer", "Writes the report")
async def writer(brief: ch.Brief) -> str:
    await asyncio.sleep(PACE)
    cases, said = brief.inputs["t1 from assessor"], brief.inputs["t2 from expert"]
    before = "what was said before" in brief.inputs
    lines = [
        f"{rule}. {', '.join(case['payments'])}, {case['sum']:,.2f}"
        for case, rule in zip(cases, said, strict=True)
    ]
    head = f"{len(lines)} cases" + (", as reported before" if before else "")
    await brief.board.update("trail", lambda old: [*old, head])
    return "\n".join([head, *lines])


@ch.worker("auditor", "Checks what was said against the payments, beside the conversation")
async def auditor(brief: ch.Brief) -> str:
    known = {each["payment"]: each["amount"] for each in payments()}
    said = [each["said"] for each in brief.inputs["what was said"] if each["from"] == "assessor"]
    cases = [case for cases in said for case in cases]
    wrong = [
        case for case in cases if abs(sum(known[p] for p in case["payments"]) - case["sum"]) > 0.01
    ]
    told = f"audit: {len(cases)} cases checked against the payments, {len(wrong)} of them wrong"
    await brief.board.update("trail", lambda old: [*old, told])
    return told


def group() -> Group:
    return Group(
        [assessor, expert, writer],
        manager=RoundRobinManager(),
        name="compliance",
        background=auditor,
        every=3,
        blocks=[
            SharedBlock("guidelines", GUIDELINES, writers=["regulator"]),
            SharedBlock("trail", [], writers=["writer", "auditor"]),
        ],
    )


def show(said: Message) -> None:
    words = escape(shorten(said.text, 120, placeholder=" …"))
    line = f"[bold cyan]{said.sender}[/] to {', '.join(said.to)}: {words}"
    CONSOLE.print(Padding(line, (0, 0, 0, 2), expand=False))


async def watch() -> tuple[GroupResult, list[str]]:
    async with group() as crew:
        await crew.send("Check the payments of October", hear=show)
        CONSOLE.print()
        result = await crew.send("Check them once more", hear=show)
        await crew.quiet()
        return result, (await crew.board(crew.blocks.home).read("trail")).value


def main() -> GroupResult:
    CONSOLE.print(f"{len(payments())} payments, three who check them, and an auditor beside:\n")
    result, trail = asyncio.run(watch())
    CONSOLE.print(f"\n[bold]The report:[/]\n{escape(str(result.output))}\n\n[bold]The trail:[/]")
    for line in trail:
        CONSOLE.print(f"  {escape(line)}")
    CONSOLE.print("\nNext: docs/groups.md; or lower the limit in GUIDELINES")
    return result


if __name__ == "__main__":
    main()
