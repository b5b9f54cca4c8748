"""Finds a run by what a person types: an id, the beginning of an id, or `last`."""

import difflib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from chargehand.errors import NotBegun, UnknownRun, UsageError
from chargehand.facts.outcome import Question
from chargehand.journal.base import FORGOTTEN, Head, Process
from chargehand.journal.open_journal import open_to_read
from chargehand.journal.verify import CheckedJournal
from chargehand.presentation.run_status import INTERRUPTED, SUBMITTED, WAITING, is_nested, status_of
from chargehand.result import RunResult
from chargehand.runtime.command_inbox import Submission, submissions_in
from chargehand.supervisor import Supervisor
from chargehand.supervisor_factory import JOURNAL_VARIABLE, JournalPlace, journal_place, reader_of

LAST = "last"
#: hint for a journal without runs: a crew may have a journal of its own
OTHER_JOURNAL = f"runs in another journal need --journal FILE, or {JOURNAL_VARIABLE}"
T = TypeVar("T")


async def heads_in(place: JournalPlace) -> list[Head]:
    """All runs, including submitted ones, most recently changed first. Empty if the default journal does not exist."""
    if not place.is_to_be_read():
        return []
    journal = open_to_read(place)
    try:
        return await heads_of(journal)
    finally:
        await journal.close()


async def heads_of(journal: CheckedJournal) -> list[Head]:
    """All runs of a journal, including submitted ones, most recently changed first."""
    submitted = {
        each.requested.run: each.head for each in submissions_in(await journal.mail.unread())
    }
    heads = await journal.heads(forgotten=False)
    for head in heads:  # it may have been started between the two reads
        submitted.pop(head.stream, None)
    return sorted(
        [*submitted.values(), *heads], key=lambda head: str(head.changed_at), reverse=True
    )


class FoundRun(Struct, frozen=True):
    """A run with its status, its questions and its leader."""

    result: RunResult
    status: str
    #: open questions of the run and of the runs nested in it
    asked: Sequence[Question] = ()
    #: answers that wait for the next leader of the run, by question
    answered: Mapping[str, str] = {}
    #: the process that leads the run
    leader: Process | None = None
    #: set if the run is submitted and waits for a server to start it
    submission: Submission | None = None
    #: its leader died, or released it and a question was answered since then: a server should take it over
    is_abandoned: bool = False


async def standing_of(boss: Supervisor, head: Head) -> FoundRun:
    """The state of a run, including the unread commands in the inbox of its next leader."""
    run = head.stream
    submission = None if head.seq else await boss.control.submission(run)
    result = await boss.look(run)
    if submission is not None:
        return FoundRun(result, SUBMITTED, submission=submission)
    status, asked, leader = status_of(result), result.questions, result.leader
    if asked and any(
        each.stream == run and each.subject in ("cancel", "stop")
        for each in await boss.journal.mail.unread()
    ):  # a cancellation or a request to answer now is waiting
        asked = []
        status = INTERRUPTED if status == WAITING and leader is None else status
    is_abandoned = leader is None and (bool(head.owner) or bool(result.answered))
    return FoundRun(result, status, asked, result.answered, leader, is_abandoned=is_abandoned)


async def find_run(typed: str, place: JournalPlace) -> Head:
    """Find the run. Raises `UsageError`, which lists the nearest ids, if there is none or more than one."""
    try:
        return chosen_run(typed, await heads_in(place), place)
    except UnknownRun:
        if typed in await deleted_in(place):
            raise UnknownRun(typed, FORGOTTEN) from None
        raise


def chosen_run(typed: str, heads: Sequence[Head], place: JournalPlace) -> Head:
    """Find the run in `heads`. Raises `UsageError`, which lists the nearest ids, if there is none or more than one."""
    if not heads:
        raise UnknownRun(
            typed, f"{place} holds no runs; start one: {place.command('run', '…')}; {OTHER_JOURNAL}"
        )
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
            f"{typed!r} matches {len(fitting)} runs: {', '.join(fitting[:8])}; type more of the id"
        )
    near = difflib.get_close_matches(typed, by_id, n=3, cutoff=0.3) or list(by_id)[:3]
    to_list = place.command("runs")
    raise UnknownRun(typed, f"the nearest are {', '.join(near)}; to list all runs: {to_list}")


async def find_begun(typed: str, place: JournalPlace) -> str:
    """Find the id of a run. Raises `NotBegun` if the run was submitted but not started."""
    return refuse_submitted(await find_run(typed, place)).stream


def refuse_submitted(head: Head) -> Head:
    """Raise `NotBegun` for a run that has no events yet."""
    if not head.seq:
        raise NotBegun(head.stream)
    return head


async def deleted_in(place: JournalPlace) -> set[str]:
    """The ids of the runs that retention deleted."""
    if not place.exists():
        return set()
    journal = open_to_read(place)
    try:
        return {head.stream for head in await journal.heads() if head.is_forgotten}
    finally:
        await journal.close()


async def with_run(typed: str, journal: str, then: Callable[[Supervisor, Head], Awaitable[T]]) -> T:
    """Find a run and call `then` with it while the journal is open."""
    place = journal_place(journal)
    head = await find_run(typed, place)
    async with reader_of(place) as boss:
        return await then(boss, head)
