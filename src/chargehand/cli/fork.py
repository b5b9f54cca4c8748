"""`chargehand fork`: start a new run from any event of another run, with changes."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from chargehand import recordings
from chargehand.cli import output
from chargehand.cli.event_display import RunView
from chargehand.cli.find_run import find_begun, with_run
from chargehand.cli.given_path import GivenPath
from chargehand.cli.interactive_run import RunSession
from chargehand.cli.options import (
    PathsCommand,
    WholeNumber,
    boss_for,
    choice_of,
    crew_options,
    recording_option,
)
from chargehand.cli.request_and_plan_input import given_plan
from chargehand.cli.run import manner_of, showing_options
from chargehand.decisions.run_fork import ForkPlan
from chargehand.facts.events import KINDS, Event, RunRequested
from chargehand.facts.plan import Plan, Task, item_of
from chargehand.presentation.display_text import clean, one_line
from chargehand.recordings.recording_file import is_recording
from chargehand.supervisor import Supervisor
from chargehand.supervisor_factory import journal_place, with_journal_of_crew


@click.command(cls=PathsCommand)
@click.argument("run_id", metavar="RUN|FILE")
@click.option(
    "--at",
    type=WholeNumber(1),
    metavar="SEQ",
    help="Start from this event and keep what was done by then. Default: the last event of the run.",
)
@click.option(
    "--task",
    "redo",
    multiple=True,
    metavar="ID",
    help="Run this task, or item of a task, again. Can be repeated.",
)
@click.option("--prompt", metavar="TEXT", help="New description for the task given with --task.")
@click.option("--worker", metavar="NAME", help="New worker for the task given with --task.")
@click.option("--instruction", metavar="TEXT", help="New instruction for composing the answer.")
@click.option(
    "--plan",
    "plan_file",
    type=GivenPath(),
    metavar="FILE",
    help="Use the changed plan in FILE; - reads it from stdin.",
)
@click.option("--repeat-effects", is_flag=True, help="Allow steps with side effects to run again.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what would be kept and what would run again; start nothing.",
)
@recording_option
@crew_options
@showing_options
def fork(run_id: str, *, plan_file: str | None, **options: Any) -> None:
    """Start a new run from any event of a RUN, with changes.

    A task keeps its recorded result, and costs nothing, unless the task was changed, was not yet done at the chosen
    event, or needs a task that runs again. Without --at, a task also runs again if the prompt, model or tools of its worker
    have changed. The fork uses the crew, files and model of the original run, unless you pass others.

    RUN is the id of a run, the beginning of an id, or `last`. FILE is a recording, which is
    imported into the journal first.
    """
    choice = with_journal_of_crew(choice_of(options))
    plan = None if plan_file is None else given_plan(plan_file)
    run, source = asyncio.run(_found(run_id, choice.journal, options["max_size"]))
    choice = choice.or_as(source)
    manner = manner_of(choice, options)
    boss, _ = boss_for(choice.in_found_journal(), quiet=manner.quiet)
    changes = {
        "at": options["at"],
        "plan": plan,
        "instruction": options["instruction"],
        **asyncio.run(_tasks(boss, run, plan, options)),
    }
    if options["dry_run"]:
        _tell(asyncio.run(_dry_run(boss, run, changes)), as_json=options["as_json"])
        return
    watch = RunView(manner)
    forked: list[str] = []

    def hear(each: str, event: Event) -> None:
        if type(event) is RunRequested and event.reuses == run and event.fork_seq:
            forked.append(each)
        if each in forked:
            watch.hear(event)

    async def start() -> None:
        if not manner.quiet:
            for line in _words(await _planned(boss, run, changes)):
                output.say(line)
        boss.on(*KINDS.values())(hear)
        await boss.fork(
            run,
            **changes,
            repeat_effects=options["repeat_effects"],
            source=choice.source(),
            on_question=options["on_question"],
        )

    sys.exit(RunSession(boss, watch, manner).conduct(start))


async def _found(given: str, journal: str, max_size: int) -> tuple[str, Mapping[str, Any]]:
    """The id of the run, and where its crew comes from. Imports a recording into the journal first."""
    if is_recording(given):
        place = journal_place(journal).with_folder()
        (copied,) = await recordings.copy([given], place, place, max_size=max_size)
        given = copied.run

    async def source(boss: Supervisor, run: str) -> Mapping[str, Any]:
        return (await boss.look(run)).source

    run = await find_begun(given, journal_place(journal))
    return run, await with_run(run, journal, lambda boss, head: source(boss, head.stream))


async def _tasks(
    boss: Supervisor, run: str, plan: Plan | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments for `fork`: the tasks to change, and the tasks to run again."""
    redo, prompt, worker = options["redo"], options["prompt"], options["worker"]
    if prompt is None and worker is None:
        return {"redo": redo}
    if len(redo) != 1:
        raise click.UsageError("--prompt and --worker change one task; name it with --task ID")
    if plan is not None:
        raise click.UsageError("change the task in the plan itself, or leave --plan out")
    if item_of(redo[0]) is not None:
        raise click.UsageError("--prompt and --worker change a whole task, not one of its items")
    known = (await boss.fork_plan(run, at=options["at"], redo=redo)).plan.tasks
    (task,) = (each for each in known if each.id == redo[0])
    return {"tasks": [_changed(task, prompt, worker)], "redo": redo}


def _changed(task: Task, prompt: str | None, worker: str | None) -> Task:
    if prompt is not None:
        task = replace(task, description=prompt)
    return task if worker is None else replace(task, worker=worker, skill="")


async def _dry_run(boss: Supervisor, run: str, changes: dict[str, Any]) -> ForkPlan:
    async with boss:
        return await _planned(boss, run, changes)


async def _planned(boss: Supervisor, run: str, changes: dict[str, Any]) -> ForkPlan:
    """What the fork keeps and what runs again. Raises `PlanRefused` for a plan that the fork would refuse."""
    fork = await boss.fork_plan(run, **changes)
    fork.plan.refuse_faults(boss.roster.names, fork.requested.limits)
    return fork


def _tell(fork: ForkPlan, *, as_json: bool) -> None:
    if as_json:
        shown = msgspec.to_builtins(fork)
        names = ("seq", "keeps", "continues", "redone", "effects", "plan")
        output.as_json({"run": fork.requested.run, **{name: shown[name] for name in names}})
        return
    for line in _words(fork):
        output.result(line)


def _words(fork: ForkPlan) -> Iterator[str]:
    kept = [task.id for task in fork.plan.tasks if task.id in fork.keeps]
    yield f"fork of run {fork.requested.run} at event {fork.seq}: {len(kept)} of {len(fork.plan.tasks)} tasks are kept"
    for task, why in fork.redone.items():
        steps = ", after its recorded steps" if task in fork.continues else ""
        again = "" if why in ("it was not done yet", "it is new") else " again"
        yield f"  {clean(task)} will be done{again}{steps}: {one_line(why, 200)}"
    for task, names in fork.effects.items():
        yield f"  {clean(task)} repeats: {one_line(', '.join(names), 200)}"
