"""`chargehand status`: the runs that have not ended, and what each of them waits for."""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import click

from chargehand.cli import output
from chargehand.cli.find_run import FoundRun, heads_in, standing_of
from chargehand.cli.options import journal_option, json_option
from chargehand.decisions.coordination.worker_troubles import RECENT, Symptom
from chargehand.decisions.schedule import RunState
from chargehand.decisions.wait_reasons import Cause, WaitReason, way_out
from chargehand.facts.events import RunStatus
from chargehand.presentation.plain_text import one_line
from chargehand.presentation.progress_lines import task_counts
from chargehand.presentation.status_words import is_nested, looked_at
from chargehand.settings import JournalPlace, journal_place, reader_of
from chargehand.supervisor import Supervisor

#: of a run that are shown; `show` has them all
MOST_WAITS = 5
#: characters of what does not go well
WARNING = 400


@click.command()
@journal_option
@json_option("One JSON object per run.")
def status(*, journal: str, as_json: bool) -> None:
    """List the runs of a journal that have not ended, with what each of them waits for."""
    place = journal_place(journal)
    found, warnings = asyncio.run(_open_runs(place, warns=not as_json))
    if as_json:
        for each in found:
            output.as_json(_facts(each))
        return
    if not found:
        output.say(f"nothing is under way in {place}; chargehand runs lists what was")
    for each in found:
        for line in _in_words(each, str(place)):
            output.result(line)
    for warning in warnings:
        output.say(warning)


async def _open_runs(place: JournalPlace, *, warns: bool) -> tuple[list[FoundRun], list[str]]:
    """The runs that have not ended, and what does not go well beside what they wait for."""
    heads = [each for each in await heads_in(place) if not is_nested(each) and not each.is_ended]
    if not heads:
        return [], []
    async with reader_of(place) as boss:
        looked = await looked_at(heads, lambda head: standing_of(boss, head))
        owned = {head.stream for head in heads if head.owner}
        warnings = await _warnings(boss, owned) if warns else []
    readable = [each for _, each in looked if isinstance(each, FoundRun)]
    return [each for each in readable if not isinstance(each.result.status, RunStatus)], warnings


async def _warnings(boss: Supervisor, owned: Collection[str]) -> list[str]:
    """Troubles other than open questions, and runs that are in each other's way."""
    coordinator = boss.coordinator(recent=RECENT)
    health = await coordinator.health()
    troubles = [each for each in health.troubles if each.kind is not Symptom.ASKING]
    # One that was let go of is called interrupted in the list; one whose leader is silent is not.
    troubles = [each for each in troubles if each.kind is not Symptom.UNLED or each.run in owned]
    conflicts = [each for each in await coordinator.conflicts() if not each.is_settled]
    return [
        *(f"trouble: {one_line(str(each), WARNING)}" for each in troubles),
        *(f"conflict: {one_line(str(each), WARNING)}" for each in conflicts),
    ]


def _in_words(standing: FoundRun, journal: str) -> Iterator[str]:
    result, state = standing.result, standing.status
    if state == "interrupted" and result.status is RunState.PAUSED:
        state = "paused, interrupted"  # it stays paused though no process leads it
    yield f"{result.id}  {state}  {task_counts(result)}  {one_line(result.request)}"
    if result.parked:
        yield f"    {one_line(result.parked, 200)}"
    # What waits only for other tasks of the run comes last.
    waits = sorted(result.waits, key=lambda wait: wait.cause is Cause.NEEDS)
    for wait in waits[:MOST_WAITS]:
        below = "" if wait.run == result.id else f"{wait.run}: "
        yield f"    {below}{one_line(_wait_words(wait, standing.answered, journal), 400)}"
    if len(waits) > MOST_WAITS:
        yield f"    and {len(waits) - MOST_WAITS} more; chargehand show {result.id} has them all"


def _wait_words(wait: WaitReason, answered: Mapping[str, str], journal: str) -> str:
    """What is waited for, and what ends the wait where a person can."""
    if wait.question in answered:
        return f"{wait.task} is answered: {answered[wait.question]}; it goes on when the run is led"
    is_personal = wait.cause in (Cause.PERSON, Cause.PAUSE)
    return f"{wait}; end it with: {way_out(wait, journal)}" if is_personal else str(wait)


def _facts(standing: FoundRun) -> dict[str, Any]:
    result = standing.result
    return {
        "run": result.id,
        "status": standing.status,
        "is_paused": result.status.value == "paused",
        "request": result.request,
        "tasks": {id_: task.state.value for id_, task in result.tasks.items()},
        "waits": result.waits,
        "answered": standing.answered,
        "parked": result.parked,
    }
