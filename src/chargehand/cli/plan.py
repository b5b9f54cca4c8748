"""`chargehand plan`: write, print, save, edit or check a plan."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from chargehand.cli import output
from chargehand.cli.find_run import find_run
from chargehand.cli.given_path import GivenPath
from chargehand.cli.options import PathsCommand, boss_for, choice_of, crew_options, worker_option
from chargehand.cli.request_and_plan_input import given_plan, given_request
from chargehand.crews.crew import Crew
from chargehand.decisions.task_and_state_words import counted
from chargehand.errors import UsageError
from chargehand.facts.plan import Plan
from chargehand.presentation.display_text import clean, outline
from chargehand.roles.crew_data_catalog import reach_of
from chargehand.roles.for_each import unlistable_files
from chargehand.roles.roster import Roster
from chargehand.supervisor import Supervisor
from chargehand.supervisor.requests import RunOptions
from chargehand.supervisor_factory import Choice, crew_for, journal_place


@click.command(cls=PathsCommand)
@click.argument("request", required=False)
@crew_options
@worker_option
@click.option("--after", metavar="RUN", help="Follow up on the answer of this run.")
@click.option(
    "--save",
    type=GivenPath(),
    metavar="FILE",
    help="Save the plan to FILE, as JSON that you can edit.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--mermaid", is_flag=True, help="Print the plan as a Mermaid graph.")
@click.option(
    "--check", type=GivenPath(), metavar="FILE", help="Check the plan in FILE for errors."
)
@click.option(
    "--edit",
    type=GivenPath(),
    metavar="FILE",
    help="Open the plan in FILE in your editor, then check it.",
)
def plan(
    request: str | None,
    check: str | None,
    edit: str | None,
    **options: Any,
) -> None:
    """Write a plan for a REQUEST and print it, without running it.

    If REQUEST is -, it is read from stdin. With --check or --edit, the command checks or edits the plan in FILE
    instead; the exit code is 2 if the plan contains errors.
    """
    given = [each for each in (request, check, edit) if each is not None]
    if len(given) != 1:
        raise click.UsageError("give one of: a REQUEST, --check FILE, --edit FILE")
    choice = choice_of(options)
    if request is None:
        _look_at(check or edit or "", choice, is_edited=edit is not None)
    else:
        _write(request, choice, options)


def _write(request: str, choice: Choice, options: dict[str, Any]) -> None:
    asked = given_request(request)
    boss, choice = boss_for(choice)

    async def written() -> Plan:
        async with boss:
            terms = RunOptions(workers=options["workers"] or None)
            if options["after"]:
                earlier = await find_run(options["after"], journal_place(choice.journal))
                terms["after"] = earlier.stream
            return await boss.plan(asked, **terms)

    made = asyncio.run(written())
    if options["save"]:
        _save(made, options["save"], choice)
    else:
        _print(made, options)


def _save(made: Plan, file: str, choice: Choice) -> None:
    try:
        Path(file).write_text(made.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the plan cannot be written to {file}: {error.strerror}") from None
    output.result(outline(made))
    crew = ["--crew", choice.crew] if choice.crew else []
    output.say(
        f"\nsaved; edit it with: {shlex.join(['chargehand', 'plan', '--edit', file, *crew])}"
    )
    output.say(f"run it with:         {shlex.join(['chargehand', 'run', '--plan', file, *crew])}")


def _print(made: Plan, options: dict[str, Any]) -> None:
    if options["as_json"]:
        output.raw(made.to_json().encode())
    elif options["mermaid"]:
        output.result(made.to_mermaid().rstrip())
    else:
        output.result(outline(made))


def _look_at(file: str, choice: Choice, *, is_edited: bool) -> None:
    """Check a plan file against the crew's roster; with `is_edited`, open it in the editor first."""
    if is_edited:
        if not Path(file).exists():
            raise UsageError(
                f'there is no plan {file}; write one with: chargehand plan "…" --save {file}'
            )
        click.edit(filename=file)
    found = given_plan(file)
    roster, names = _roster(choice)
    check = found.check(names, reach=asyncio.run(reach_of(roster)))
    faults = [*check.faults, *unlistable_files(found.tasks, roster)]
    for fault in faults:
        output.result(f"{file}: fault: {clean(str(fault))}")
    for warning in check.warnings:
        output.say(f"{file}: warning: {clean(str(warning))}")
    if faults:
        sys.exit(2)
    output.result(f"{file}: sound, {counted(len(found.tasks), 'task')}")


def _roster(choice: Choice) -> tuple[Roster, set[str]]:
    """The roster, and the names that tasks may use. Needs neither a journal nor a model."""
    crew = crew_for(choice, lambda _: None)
    if isinstance(crew, Supervisor):
        return crew.roster, crew.roster.names
    roster = Roster([each for each in crew.workers if not isinstance(each, Crew)])
    return roster, roster.names | {each.name for each in crew.workers}
