"""Runs by what a person types: an id, the beginning of one, or `last`."""

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from chargehand.errors import NotBegun, UnknownRun, UsageError
from chargehand.facts.events import RunStatus
from chargehand.facts.outcome import Question
from chargehand.journal.base import FORGOTTEN, Head, Process
from chargehand.journal.open_journal import open_journal
from chargehand.presentation.run_status import SUBMITTED, is_nested, status_of
from chargehand.result import RunResult
from chargehand.runtime.command_inbox import Submission, answers_in, submissions
from chargehand.settings import JournalPlace, journal_place, reader_of
from chargehand.supervisor import Supervisor

LAST = "last"
T = TypeVar("T")


async def heads_in(place: JournalPlace) -> list[Head]:
    """All runs, those too that were only submitted; the one that changed last first. None without a journal."""
    if not place.exists():
        return []
    journal = open_journal(place)
    try:
        submitted = {each.requested.run: each.head for each in await submissions(journal.mail)}
        heads = await journal.heads(forgotten=False)
    finally:
        await journal.close()
    for head in heads:  # it may have been taken up between the two looks
        submitted.pop(head.stream, None)
    return sorted(
        [*submitted.values(), *heads], key=lambda head: str(head.changed_at), reverse=True
    )


class FoundRun(Struct, frozen=True):
    """A run, and what else must be known to say how it stands."""

    result: RunResult
    status: str
    #: what it asks, or a run nested in it, and nobody has answered
    asked: Sequence[Question] = ()
    #: by question: what was answered and waits for the next leader of the run
    answered: Mapping[str, str] = {}
    #: the process that leads it
    leader: Process | None = None
    #: it waits for a supervisor to start it
    submission: Submission | None = None
    #: its leader died, so that processes that serve should take it over; else it was let go of
    is_abandoned: bool = False


async def standing_of(boss: Supervisor, head: Head) -> FoundRun:
    """How a run stands, with what lies in the inbox for its next leader."""
    run = head.stream
    submission = None if head.seq else await boss.control.submission(run)
    result = await boss.look(run)
    if submission is not None:
        return FoundRun(result, SUBMITTED, submission=submission)
    letters = await boss.journal.mail.unread()
    texts = {
        question: f"{answer.text} (by {answer.by})"
        for question, answer in answers_in(letters).items()
    }
    is_ending = any(
        each.stream == run and each.subject in ("cancel", "stop") for each in letters
    )  # it is to be cancelled, or to answer at once
    asked = [each for each in result.questions if each.id not in texts and not is_ending]
    answered = {each.id: texts[each.id] for each in result.questions if each.id in texts}
    leader = None
    if head.owner and not isinstance(result.status, RunStatus):
        alive = {each.node: each for each in await boss.journal.processes.alive()}
        leader = alive.get(head.owner)
    status = status_of(result, "" if leader is None else leader.node)
    is_abandoned = bool(head.owner) and leader is None
    return FoundRun(result, status, asked, answered, leader, is_abandoned=is_abandoned)


async def find_run(typed: str, place: JournalPlace) -> Head:
    """The run that is meant. Raises `UsageError` that lists the nearest ones if none is."""
    heads = await heads_in(place)
    if not heads:
        raise await _unknown(typed, place, f"{place} holds no runs; chargehand run starts one")
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
    nearest = f"the nearest are {', '.join(near)}; chargehand runs lists all"
    raise await _unknown(typed, place, nearest)


async def find_begun(typed: str, place: JournalPlace) -> str:
    """The id of the run that is meant. Raises `NotBegun` if it was only submitted."""
    return refuse_submitted(await find_run(typed, place)).stream


def refuse_submitted(head: Head) -> Head:
    """Raise `NotBegun` for a run that has no events yet."""
    if not head.seq:
        raise NotBegun(head.stream)
    return head


async def _unknown(typed: str, place: JournalPlace, why: str) -> UnknownRun:
    """Why there is no such run: retention deleted it, or it never was."""
    return UnknownRun(typed, FORGOTTEN if typed in await deleted_in(place) else why)


async def deleted_in(place: JournalPlace) -> set[str]:
    """The runs that retention deleted."""
    if not place.exists():
        return set()
    journal = open_journal(place)
    try:
        return {head.stream for head in await journal.heads() if head.is_forgotten}
    finally:
        await journal.close()


async def with_run(typed: str, journal: str, then: Callable[[Supervisor, Head], Awaitable[T]]) -> T:
    """Find a run and do something with it; its journal is open meanwhile."""
    place = journal_place(journal)
    head = await find_run(typed, place)
    async with reader_of(place) as boss:
        return await then(boss, head)
