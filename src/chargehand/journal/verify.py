"""Checking a journal: every event of a run and its board, its place in the chain, every blob that it names."""

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct, json

from chargehand.errors import ChargehandError, UnknownRun
from chargehand.facts.board import BoardEntry, board_of_run
from chargehand.facts.events import AttemptFinished, RunRequested, encode
from chargehand.facts.outcome import Done
from chargehand.journal.base import Entry, Head, Mail, named_blobs


class CheckedBlobs(Protocol):
    """What a check asks of a blob store."""

    async def get(self, digest: str) -> bytes:
        """The bytes of this digest, checked against it."""


class CheckedBoards(Protocol):
    """What a check asks of the boards of a journal."""

    async def named(self) -> list[str]:
        """The boards that have a name of their own."""

    def read(self, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
        """The entries after this number, in order."""


class CheckedMail(Protocol):
    """What a check asks of the mailbox of a journal."""

    async def unread(self) -> list[Mail]:
        """All mail not yet taken, oldest first."""


class CheckedJournal(Protocol):
    """What a check asks of a journal: to be read. Every journal can be; one may be opened for this alone."""

    @property
    def blobs(self) -> CheckedBlobs: ...

    @property
    def boards(self) -> CheckedBoards: ...

    @property
    def mail(self) -> CheckedMail: ...

    def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        """The entries after this number, in order."""

    async def heads(self, *, forgotten: bool = True) -> list[Head]:
        """All runs, the one that changed last first."""

    async def close(self) -> None:
        """Let go of everything."""


class OpenedForCheck(Struct, frozen=True):
    """A journal that was opened to be checked."""

    journal: CheckedJournal
    #: what is wrong with it as a whole
    faults: tuple[str, ...] = ()


class Finding(Struct, frozen=True, kw_only=True):
    """What a check found in one run, or on one board with a name of its own."""

    #: empty: on a board, or in the journal as a whole
    run: str = ""
    board: str = ""
    events: int = 0
    #: events from the first on; what comes after one that cannot be read is not trusted
    readable: int = 0
    #: tasks whose results are among them
    done: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def is_of_whole(self) -> bool:
        """Whether it is about the journal as a whole, and not about a run or a board."""
        return not self.run and not self.board


async def verified(journal: CheckedJournal, only: str | None = None) -> AsyncIterator[Finding]:
    """What there is to say of each run and each named board, or of one run: those that are whole have no faults."""
    for head in await journal.heads(forgotten=False):
        if only in (None, head.stream):
            yield await _verify(journal, head)
    for board in await journal.boards.named() if only is None else ():
        faults = await _faults_of_board(journal, board)
        yield Finding(run="", board=board, faults=tuple(faults))


async def _verify(journal: CheckedJournal, head: Head) -> Finding:
    readable, faults, done = 0, [], {}
    try:
        async for entry in journal.read(head.stream):
            event = entry.event
            missing = [await _fault_of(journal, blob) for blob in named_blobs(encode(event))]
            faults += [f"event {entry.seq}: {fault}" for fault in missing if fault]
            if isinstance(event, RunRequested) and entry.seq > 1:
                faults.append(f"event {entry.seq}: another run begins within this one")
            if isinstance(event, AttemptFinished) and isinstance(event.outcome, Done):
                done[event.task] = not any(missing)
            readable = entry.seq
    except ChargehandError as error:
        faults.append(str(error))
    faults += await _faults_of_board(journal, board_of_run(head.stream))
    whole = tuple(task for task, is_whole in done.items() if is_whole)
    return Finding(
        run=head.stream, events=head.seq, readable=readable, done=whole, faults=tuple(faults)
    )


async def _faults_of_board(journal: CheckedJournal, board: str) -> list[str]:
    faults = []
    try:
        async for entry in journal.boards.read(board):
            missing = [
                await _fault_of(journal, blob) for blob in named_blobs(json.encode(entry.event))
            ]
            faults += [f"entry {entry.seq} of the board: {fault}" for fault in missing if fault]
    except UnknownRun:
        pass  # retention deleted it
    except ChargehandError as error:
        faults.append(f"the board: {error}")
    return faults


async def _fault_of(journal: CheckedJournal, blob: str) -> str:
    try:
        await journal.blobs.get(blob)
    except ChargehandError as error:
        return str(error)
    return ""
