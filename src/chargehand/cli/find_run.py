"""Runs by what a person types: an id, the beginning of one, or `last`."""

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from chargehand.errors import JournalReadOnly, NotLeading, UnknownRun, UsageError
from chargehand.facts.events import RunStatus
from chargehand.facts.outcome import Question
from chargehand.journal.base import Head
from chargehand.journal.open_journal import open_journal
from chargehand.presentation.status_words import is_nested, status_of
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
    #: by question: what was answered and waits for the next leader of the run
    answered: Mapping[str, str] = {}


async def standing_of(boss: Supervisor, head: Head) -> FoundRun:
    """How a run stands, with what lies in the inbox for its next leader."""
    run, owner = head.stream, head.owner
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


async def find_run(typed: str, place: JournalPlace) -> Head:
    """The run that is meant. Raises `UsageError` that lists the nearest ones if none is."""
    heads = await heads_in(place)
    if not heads:
        raise UnknownRun(typed, f"{place} holds no runs; chargehand run starts one")
    if typed == LAST:
        begun = [each for each in heads if each.began_at and not is_nested(each)] or heads
        return max(begun, key=lambda head: str(head.began_at))
    by_id = {head.stream: head for head in heads}
    if typed in by_id:
        return by_id[typed]
    fitting = [id_ for id_ in by_id if id_.startswith(typed)] if typed else []
    if len(fitting) == 1:
        return by_id[fitting[0]]
    if fitting:
        raise UsageError(
            f"{typed!r} is the beginning of {len(fitting)} runs: {', '.join(fitting[:8])}; type more"
        )
    near = difflib.get_close_matches(typed, by_id, n=3, cutoff=0.3) or list(by_id)[:3]
    raise UnknownRun(typed, f"the nearest are {', '.join(near)}; chargehand runs lists all")


async def with_run(typed: str, journal: str, then: Callable[[Supervisor, Head], Awaitable[T]]) -> T:
    """Find a run and do something with it; its journal is open meanwhile."""
    place = journal_place(journal)
    head = await find_run(typed, place)
    async with reader_of(place) as boss:
        return await then(boss, head)
