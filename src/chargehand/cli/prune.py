"""`chargehand prune`: delete finished runs by age, number and size."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from chargehand.cli import output
from chargehand.cli.options import WholeNumber, journal_option, json_option, length, size
from chargehand.decisions.task_and_state_words import counted
from chargehand.errors import UsageError
from chargehand.facts.durations import shown_length
from chargehand.facts.retention import Retention
from chargehand.facts.sizes import shown_size
from chargehand.journal.open_journal import open_journal
from chargehand.journal.prune import PrunedRun, Pruner
from chargehand.presentation.display_text import table
from chargehand.supervisor_factory import JournalPlace, journal_place

Command = TypeVar("Command", bound=Callable[..., Any])


def retention_options(before: str = "") -> Callable[[Command], Command]:
    """Add `--older-than`, `--keep` and `--max-size`, with `before` as a prefix of their names."""
    options = (
        click.option(
            f"--{before}older-than",
            "older_than",
            callback=length,
            metavar="TIME",
            help="Delete runs that ended longer ago than this, such as 30d or 12h.",
        ),
        click.option(
            f"--{before}keep",
            "keep",
            type=WholeNumber(0),
            metavar="N",
            help="Keep the N newest finished runs and delete the others.",
        ),
        click.option(
            f"--{before}max-size",
            "max_size",
            callback=size,
            metavar="SIZE",
            help="Delete the oldest finished runs until the journal is no larger than this, such as 500MB or 2GB.",
        ),
    )

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def retention_of(options: dict[str, Any]) -> Retention | None:
    """Remove the retention options from the options of a command; None if none was given."""
    given = {name: options.pop(name) for name in ("older_than", "keep", "max_size")}
    return Retention(**given) if any(value is not None for value in given.values()) else None


@click.command()
@retention_options()
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; delete nothing.")
@click.option(
    "--damaged",
    "with_damaged",
    is_flag=True,
    help="Also delete damaged runs, with what can still be read of them.",
)
@journal_option
@json_option("Print one JSON object per run, then one with the totals.")
def prune(
    *, dry_run: bool, with_damaged: bool, journal: str, as_json: bool, **options: Any
) -> None:
    """Delete finished runs by age, number or size.

    A run is deleted if any of the options selects it. Its board, its blobs and the runs nested in it are deleted
    with it. Unfinished runs are kept, and so are runs whose results an unfinished run reuses. Damaged runs, of which
    `chargehand verify` tells what can be saved, are deleted only with --damaged. Other processes can use the journal
    in the meantime.
    """
    retention = retention_of(options)
    if retention is None:
        raise click.UsageError(
            "say what to delete: --older-than 30d, --keep 1000 or --max-size 2GB"
        )
    place = journal_place(journal)
    if not place.exists():
        raise UsageError(f"there is no journal at {place}; give another one with --journal")
    pruned = _prune(place, retention, is_dry=dry_run, with_damaged=with_damaged, as_json=as_json)
    asyncio.run(pruned)


async def _prune(
    place: JournalPlace, retention: Retention, *, is_dry: bool, with_damaged: bool, as_json: bool
) -> None:
    journal, now = open_journal(place), datetime.now(UTC)
    try:
        before = await journal.storage.used()
        pruner = Pruner(journal, retention, with_damaged=with_damaged)
        if is_dry:
            found = await pruner.due(now)
            after = max(before - sum(run.size for run in found), 0)
        else:
            found = [run async for run in pruner.prune(now)]
            after = await journal.storage.used()
    finally:
        await journal.close()
    if as_json:
        for run in found:
            output.as_json(run)
        sizes = {"size_before": before, "size_after": after}
        kept = {"damaged": list(pruner.damaged)}
        output.as_json({"runs": len(found), **sizes, "dry_run": is_dry, **kept})
    else:
        if found:
            output.result(_listing(found, now))
        runs = counted(len(found), "run")
        change = f"{shown_size(before)}, {'then about' if is_dry else 'now'} {shown_size(after)}"
        output.say(f"{'would delete' if is_dry else 'deleted'} {runs}; {place}: {change}")
    for damaged, fault in pruner.damaged.items():
        left = place.command("verify", damaged)
        output.say(
            f"run {damaged} is kept, because it is damaged: {fault}. See what is left of it with: {left}; to delete it all "
            "the same, add --damaged"
        )
    if retention.max_size is not None and after > retention.max_size:
        output.say(
            f"that is still more than {shown_size(retention.max_size)}: what is left belongs to open or damaged runs, to "
            "runs that they need, to boards with a name of their own, and to the journal itself"
        )


def _listing(found: Sequence[PrunedRun], now: datetime) -> str:
    head = ("run", "ended", "nested", "size", "why")
    cells = [
        (
            run.run,
            f"{shown_length(max(now - run.ended_at, timedelta(0)))} ago",
            str(run.nested),
            shown_size(run.size),
            run.why,
        )
        for run in found
    ]
    return table(head, cells, output.width())
