"""`chargehand verify`: check the runs of a journal for damage, and say what can be saved."""

import asyncio
import sys
from collections.abc import Sequence

import click

from chargehand.cli import output
from chargehand.cli.find_run import chosen_run, heads_of, refuse_submitted
from chargehand.cli.options import journal_option, json_option
from chargehand.errors import JournalDamaged, UnknownRun, UsageError
from chargehand.journal.base import FORGOTTEN
from chargehand.journal.open_journal import open_journal, open_to_check
from chargehand.journal.verify import CheckedJournal, Finding, verified
from chargehand.presentation.display_text import one_line
from chargehand.supervisor_factory import JournalPlace, journal_place


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@journal_option
@click.option(
    "--accept",
    is_flag=True,
    help="Accept a journal that is refused because its end or its head mark is missing, and write a new head mark. "
    "What is missing is lost, so restore a backup instead if there is one.",
)
@json_option("Print one JSON object per run.")
def verify(run_id: str | None, *, journal: str, accept: bool, as_json: bool) -> None:
    """Check a journal, or one RUN in it, for damage.

    The command checks events, their hash chain and numbers, boards, blobs and the head mark (the file that shows
    whether the end of the journal was cut off). For each damaged run, it prints what is wrong and what can be saved.
    It skips runs that retention deleted. The exit code is 1 if anything is damaged. Without --accept, the check changes
    nothing: a journal that was refused as damaged is still refused afterwards.

    RUN is the id of a run, the beginning of an id, or `last`.
    """
    place = journal_place(journal)
    if not place.exists():
        raise UsageError(f"there is no journal at {place}; give another one with --journal")
    if accept and run_id is not None:
        raise click.UsageError("--accept is about the whole journal; leave out RUN")
    found = asyncio.run(_check(place, run_id))
    if accept and any(each.is_of_whole for each in found):
        asyncio.run(_accept(place))
        found = asyncio.run(_check(place, None))
    for each in found:
        if as_json:
            output.as_json(each)
        elif each.faults:
            output.result(_in_words(each))
    broken = [each for each in found if each.faults]
    if not as_json:
        parts = [_counted([each for each in found if each.run], "runs")]
        if boards := [each for each in found if each.board]:
            parts.append(_counted(boards, "named boards"))
        whole = f"{' and '.join(parts)} are intact"
        if any(each.is_of_whole for each in broken):
            whole += "; the journal as a whole is damaged, and was left as it is"
        output.say(f"{place}: {whole}" + ("" if broken else "; no damage found"))
    if broken:
        sys.exit(1)


async def _check(place: JournalPlace, typed: str | None) -> list[Finding]:
    try:
        check = open_to_check(place)
    except JournalDamaged as error:
        return [Finding(faults=(str(error),))]
    found = [Finding(faults=check.faults)] if check.faults else []
    try:
        only = None if typed is None else await _begun(check.journal, typed, place)
        async for each in verified(check.journal, only):
            found.append(each)  # noqa: PERF401 - keeps the findings before an error
    except JournalDamaged as error:
        found.append(Finding(faults=(str(error),)))
    finally:
        await check.journal.close()
    return found


async def _accept(place: JournalPlace) -> None:
    """Write a head mark for the journal as it is."""
    journal = open_journal(place, accept_damage=True)
    await journal.close()
    output.say(f"{place} is accepted as it is")


async def _begun(journal: CheckedJournal, typed: str, place: JournalPlace) -> str:
    """Find the id of a run in this journal, even if the journal is damaged."""
    deleted = {head.stream for head in await journal.heads() if head.is_forgotten}
    if typed in deleted:
        raise UnknownRun(typed, FORGOTTEN)
    return refuse_submitted(chosen_run(typed, await heads_of(journal), place)).stream


def _counted(found: Sequence[Finding], what: str) -> str:
    return f"{sum(not each.faults for each in found)} of {len(found)} {what}"


def _in_words(finding: Finding) -> str:
    board = f"board {finding.board}" if finding.board else ""
    lines = [finding.run or board or "the journal as a whole"]
    lines += [f"    wrong: {one_line(fault, 400)}" for fault in finding.faults]
    if finding.run:
        tasks = ", ".join(finding.done) or "none"
        lines.append(
            f"    can be saved: {finding.readable} of {finding.events} events; tasks done: {tasks}"
        )
    return "\n".join(lines)
