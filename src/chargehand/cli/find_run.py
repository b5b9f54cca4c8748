"""Runs by what a person types: an id, the beginning of one, or `last`."""

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from chargehand.errors import JournalReadOnly, NotLeading, UnknownRun, UsageError
from chargehand.facts.events import RunRequested, RunStatus
from chargehand.facts.outcome import Question
from chargehand.journal.base import Head
from chargehand.journal.open_journal import open_journal
from chargehand.presentation.run_status import is_nested, status_of
from chargehand.result import RunResult
from chargehand.runtime.command_inbox import answer_in_mail
from chargehand.settings import JournalPlace, journal_place, reader_of
from chargehand.supervisor import Supervisor

LAST = "last"
T = TypeVar("T")


async def heads_in(place: JournalPlace) -> list[Head]:
    """All runs, the one that changed last first; none where there is no journal yet."""
    if not place.exists():
        return []
    journal = open_journal(place)
    try:
        return [head for head in await journal.heads() if not head.is_forgotten]
    finally:
        await journal.close()


class FoundRun(Struct, frozen=True):
    """A run, and what else must be known to say how it stands."""

    result: RunResult
    status: str
    #: what it asks, or a run nested in it, and nobody has answered
    asked: Sequence[Question] = ()
    #: by question: what was answered and waits for whoever leads the run next
    answered: Mapping[str, str] = {}


async def standing_of(boss: Supervisor, run: str, owner: str) -> FoundRun:
    """How a run stands, with what lies in the inbox for its next leader."""
    result = await boss.look(run)
    letters = await boss.journal.mail.unread()
    texts = {
        answer.question: f"{answer.text} (by {answer.by})"
        for answer in (answer_in_mail(letter) for letter in letters)
        if answer is not None
    }
    is_ending = any(
        each.stream == run and each.subject in ("cancel", "stop") for each in letters
    )  # it is to be cancelled, or to answer at once
    asked = [each for each in result.questions if each.id not in texts and not is_ending]
    answered = {each.id: texts[each.id] for each in result.questions if each.id in texts}
    is_open = not isinstance(result.status, RunStatus)
    live_run = owner if is_open and owner and await _is_led(boss, run) else ""
    return FoundRun(result, status_of(result, live_run), asked, answered)


async def _is_led(boss: Supervisor, run: str) -> bool:
    """Whether the process that leads a run, as the journal has it, is alive."""
    try:
        await boss.journal.decide(run, lambda _: ())
    except (NotLeading, JournalReadOnly):
        return True
    except UnknownRun:
        pass
    return False


async def find_run(typed: str, place: JournalPlace) -> str:
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


async def has_ended(run: str, place: JournalPlace) -> bool:
    """Whether nothing is left to be done of a run."""
    return any(head.is_ended for head in await heads_in(place) if head.stream == run)


async def source_of(run: str, place: JournalPlace) -> dict[str, Any]:
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
