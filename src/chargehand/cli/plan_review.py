"""A person looks at a plan, edits it until it is sound, and says whether it is carried out."""

import tempfile
from collections.abc import Collection
from pathlib import Path

import click

from chargehand.cli.output import say
from chargehand.cli.read_request import given_plan
from chargehand.cli.safe_text import outline
from chargehand.errors import PlanRefused, UsageError
from chargehand.facts.plan import Plan


def review(plan: Plan, roster: Collection[str]) -> Plan:
    """The plan as the person approves it. Raises `click.Abort` if they do not."""
    while True:
        say(outline(plan))
        say("")
        choice = click.prompt(
            "Carry it out? y(es), e(dit), n(o)",
            type=click.Choice(["y", "e", "n"]),
            show_choices=False,
            err=True,
        )
        if choice == "y":
            return plan
        if choice == "n":
            say("nothing was started")
            raise click.Abort
        plan = edited(plan, roster)


def edited(plan: Plan, roster: Collection[str]) -> Plan:
    """The plan after the person's editor; as it was if what they wrote is no sound plan."""
    with tempfile.TemporaryDirectory(prefix="chargehand-") as folder:
        file = Path(folder) / "plan.json"
        file.write_text(plan.to_json() + "\n", encoding="utf-8")
        click.edit(filename=str(file))
        try:
            changed = given_plan(str(file))
            changed.refuse_faults(roster)
        except (UsageError, PlanRefused) as error:
            say(f"this cannot be carried out, so the plan stays as it was: {error}")
            return plan
    return changed
