"""Reads the input of a person: a request, a plan file, or a plan that they review and edit."""

import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

import click

from chargehand.cli.output import say
from chargehand.errors import PlanRefused, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import LONGEST_REQUEST
from chargehand.facts.plan import Plan
from chargehand.presentation.display_text import clean, outline
from chargehand.regular_file import read_regular_file
from chargehand.supervisor import Supervisor
from chargehand.supervisor_factory import Choice

STDIN = "-"
#: most characters of a plan from stdin
_LONGEST_PLAN = 64 * 2**20


def given_request(typed: str | None) -> str:
    """The request, typed or read from stdin. Raises `UsageError` if it is empty or too long."""
    text = _stdin(4 * LONGEST_REQUEST) if typed == STDIN else typed or ""
    if not text.strip():
        raise UsageError('the request is empty; say what to do: chargehand run "…"')
    if len(text) > LONGEST_REQUEST:
        raise UsageError(
            f"the request is longer than {LONGEST_REQUEST:,} characters; put the material into a "
            'file, and ask about it: chargehand run --files FILE "…"'
        )
    return clean(checks.text(text, "the request", most=LONGEST_REQUEST)).strip()


def refuse_other_crew(asked: str | Plan, boss: Supervisor, choice: Choice) -> None:
    """Raise `UsageError` if a plan needs workers that the default crew lacks: it was written for another crew."""
    if choice.crew or not isinstance(asked, Plan):
        return
    if lacking := boss.roster.lacks(asked.tasks):
        raise UsageError(
            f"the plan names {', '.join(map(repr, lacking))}, and the default crew has only "
            f"{', '.join(sorted(boss.roster.names))}; pass the crew of this plan: --crew FILE.py:NAME or --crew FILE.toml"
        )


def given_plan(file: str) -> Plan:
    """The plan from a file or from stdin. Raises `UsageError`, which names the file and the position."""
    try:
        text = _stdin(_LONGEST_PLAN) if file == STDIN else _text_of(Path(file))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the plan {file} cannot be read: {why}") from None
    try:
        return Plan.from_json(text)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None


def _text_of(file: Path) -> str:
    way_out = "to read a plan from a pipe, give - and pipe it in"
    return read_regular_file(file, way_out=way_out).decode("utf-8-sig")


def _stdin(most: int) -> str:
    """Read at most this many characters from stdin."""
    if sys.stdin is None:  # closed by the shell (`<&-`) or by a daemon
        raise UsageError("- stands for stdin, which is closed; pipe the text in, or leave out -")
    try:
        return sys.stdin.read(most)
    except OSError as error:
        raise UsageError(f"stdin cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"stdin is not {sys.stdin.encoding.upper()} text; convert it") from None


def review(plan: Plan, roster: Collection[str]) -> Plan:
    """Let the person edit and approve the plan. Raises `click.Abort` if they refuse it."""
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
    """Open the plan in the person's editor. Returns the old plan if the new one has faults."""
    with tempfile.TemporaryDirectory(prefix="chargehand-") as folder:
        file = Path(folder) / "plan.json"
        file.write_text(plan.to_json() + "\n", encoding="utf-8")
        click.edit(filename=str(file))
        try:
            changed = given_plan(str(file))
            changed.refuse_faults(roster)
        except (UsageError, PlanRefused) as error:
            say(f"this plan cannot be run, so the plan is unchanged: {error}")
            return plan
    return changed
