"""`chargehand status`: the runs that have not ended, and what each of them waits for."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from chargehand.cli import output
from chargehand.cli.options import journal_option, json_option

if TYPE_CHECKING:
    from chargehand.cli.find_run import FoundRun
    from chargehand.decisions.wait_reasons import WaitReason
    from chargehand.result import RunResult
    from chargehand.supervisor import Supervisor

#: of a run that are shown; `show` has them all
MOST_WAITS = 5
#: characters of what does not go well
WARNING = 400


@click.command(short_help="Say what runs, and what waits for what.")
@journal_option
@json_option("One JSON object per run.")
def status(*, journal: str, as_json: bool) -> None:
    """List the runs of a journal that have not ended, with what each of them waits for."""
    from chargehand.cli.find_run import FoundRun, heads_in, is_nested, looked_at, standing_of
    from chargehand.facts.events import RunStatus
    from chargehand.settings import journal_place, reader_of

    place = journal_place(journal)

    async def standing() -> "tuple[list[FoundRun], list[str]]":
        heads = [head for head in await heads_in(place) if not is_nested(head)]
        heads = [head for head in heads if not head.is_ended]
        if not heads:
            return [], []
        async with reader_of(place) as boss:
            looked = await looked_at(heads, lambda head: standing_of(boss, head.stream, head.owner))
            owned = {head.stream for head in heads if head.owner}
            warnings = [] if as_json else await _warnings(boss, owned)
        readable = [each for _, each in looked if isinstance(each, FoundRun)]
        return [
            each for each in readable if not isinstance(each.result.status, RunStatus)
        ], warnings

    found, warnings = asyncio.run(standing())
    if not found and not as_json:
        output.say(f"nothing is under way in {place}; chargehand runs lists what was")
    for each in found:
        for line in [_as_json(each)] if as_json else _in_words(each, str(place)):
            output.result(line)
    for warning in warnings:
        output.say(warning)


async def _warnings(boss: "Supervisor", owned: Collection[str]) -> list[str]:
    """What does not go well beside what each run waits for, and who is in whose way."""
    from chargehand.cli.safe_text import one_line
    from chargehand.decisions.coordination.worker_health import RECENT, Symptom

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


def _in_words(standing: "FoundRun", journal: str) -> Iterator[str]:
    from chargehand.cli.progress_lines import task_counts
    from chargehand.cli.safe_text import one_line

    result = standing.result
    yield f"{result.id}  {_state(standing.status, result)}  {task_counts(result)}  {one_line(result.request)}"
    if result.parked:
        yield f"    {one_line(result.parked, 200)}"
    waits = _telling(result.waits)
    for wait in waits[:MOST_WAITS]:
        below = "" if wait.run == result.id else f"{wait.run}: "
        yield f"    {below}{one_line(_wait_words(wait, standing.answered, journal), 400)}"
    if len(waits) > MOST_WAITS:
        yield f"    and {len(waits) - MOST_WAITS} more; chargehand show {result.id} has them all"


def _wait_words(wait: "WaitReason", answered: Mapping[str, str], journal: str) -> str:
    """What is waited for, and what ends the wait where a person can."""
    from chargehand.decisions.wait_reasons import Cause, way_out

    if wait.question in answered:
        return f"{wait.task} is answered: {answered[wait.question]}; it goes on when the run is led"
    is_personal = wait.cause in (Cause.PERSON, Cause.PAUSE)
    return f"{wait}; end it with: {way_out(wait, journal)}" if is_personal else str(wait)


def _state(words: str, result: "RunResult") -> str:
    """How it stands; a paused run stays paused though nobody leads it."""
    from chargehand.decisions.schedule import RunState

    is_left_paused = words == "interrupted" and result.status is RunState.PAUSED
    return "paused, interrupted" if is_left_paused else words


def _telling(waits: "Sequence[WaitReason]") -> "list[WaitReason]":
    """Those that say something first: what waits only for other tasks of the run comes last."""
    from chargehand.decisions.wait_reasons import Cause

    return sorted(waits, key=lambda wait: wait.cause is Cause.NEEDS)


def _as_json(standing: "FoundRun") -> str:
    import msgspec

    from chargehand.cli.safe_text import clean_json

    result = standing.result
    facts: dict[str, Any] = {
        "run": result.id,
        "status": standing.status,
        "is_paused": result.status.value == "paused",
        "request": result.request,
        "tasks": {id_: task.state.value for id_, task in result.tasks.items()},
        "waits": result.waits,
        "answered": standing.answered,
        "parked": result.parked,
    }
    return clean_json(msgspec.json.encode(facts)).decode()
