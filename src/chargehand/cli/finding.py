"""Runs by what a person types: an id, the beginning of one, or `last`."""

import difflib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from chargehand.errors import UnknownRun, UsageError
from chargehand.facts.events import RunRequested
from chargehand.facts.outcome import Question
from chargehand.journal.base import Head
from chargehand.journal.opening import open_journal
from chargehand.result import RunResult
from chargehand.settings import journal_place, reader_of
from chargehand.supervisor import Supervisor

LAST = "last"
NESTED = "n"
#: ids of runs that are tasks of others begin so
T = TypeVar("T")


async def heads_in(place: Path) -> list[Head]:
    """All runs, the one that changed last first; none where there is no journal yet."""
    if not place.exists():  # noqa: ASYNC240 - nothing else runs yet
        return []
    journal = open_journal(place)
    try:
        return [head for head in await journal.heads() if not head.is_forgotten]
    finally:
        await journal.close()


def is_nested(head: Head) -> bool:
    """Whether this run is a task of another."""
    return head.stream.startswith(NESTED)


async def questions_of(boss: Supervisor, result: RunResult) -> list[Question]:
    """What a run asks, and what runs nested in it ask."""
    return (await boss.look(result.id)).questions


async def still_asked(boss: Supervisor, result: RunResult, place: Path) -> list[Question]:
    """What it asks and no letter answers that lies in the mailbox for its next leader."""
    journal = open_journal(place)
    try:
        letters = await journal.mail.unread()
    finally:
        await journal.close()
    if any(each.stream == result.id and each.subject in ("cancel", "stop") for each in letters):
        return []  # it is to be cancelled, or to answer at once
    answered = {letter.key.partition(" ")[2] for letter in letters}
    return [each for each in await questions_of(boss, result) if each.id not in answered]


async def find_run(typed: str, place: Path) -> str:
    """The id of the run that is meant. Raises `UsageError` that lists the nearest ones if none is."""
    heads = await heads_in(place)
    ids = [head.stream for head in heads]
    if not ids:
        raise UnknownRun(typed, f"{place} holds no runs; chargehand run starts one")
    if typed == LAST:
        begun = [each for each in heads if each.began_at and not is_nested(each)] or heads
        return max(begun, key=lambda head: str(head.began_at)).stream
    if typed in ids:
        return typed
    fitting = [id_ for id_ in ids if id_.startswith(typed)] if typed else []
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise UsageError(
            f"{typed!r} is the beginning of {len(fitting)} runs: {', '.join(fitting[:8])}; type more"
        )
    near = difflib.get_close_matches(typed, ids, n=3, cutoff=0.3) or ids[:3]
    raise UnknownRun(typed, f"the nearest are {', '.join(near)}; chargehand runs lists all")


async def source_of(run: str, place: Path) -> dict[str, Any]:
    """Where the crew of a run comes from, if it was started at the command line."""
    journal = open_journal(place)
    try:
        async for entry in journal.read(run):
            return entry.event.source if isinstance(entry.event, RunRequested) else {}
        return {}
    finally:
        await journal.close()


async def owner_of(run: str, journal: str) -> str:
    """The process that leads a run, or led it last; empty if it has let go of it."""
    heads = await heads_in(journal_place(journal))
    return next((head.owner for head in heads if head.stream == run), "")


async def with_run(typed: str, journal: str, then: Callable[[Supervisor, str], Awaitable[T]]) -> T:
    """Find a run and do something with it; its journal is open meanwhile."""
    place = journal_place(journal)
    run = await find_run(typed, place)
    async with reader_of(place) as boss:
        return await then(boss, run)
