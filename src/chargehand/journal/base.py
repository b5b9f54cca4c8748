"""What a journal must do: keep streams of events, say who leads which, carry mail, keep blobs and boards.

Eight small ports. An adapter offers all eight: `journal.append(…)`, `journal.leases.lead(…)`,
`journal.processes.alive()`, `journal.mail.post(…)`, `journal.blobs.put(…)`, `journal.boards.append(…)`,
`journal.storage.forget(…)`, `journal.streams.adopt(…)`.
"""

import re
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from msgspec import Raw, Struct

from chargehand.errors import NotLeading
from chargehand.facts.board import Act, Block, BoardEntry, Label, Note, NoteQuery
from chargehand.facts.events import Event, RunRequested
from chargehand.facts.value import Value
from chargehand.journal.local_stream_owners import StreamOwner

#: how long a process that has fallen silent keeps what it leads
LEASE = timedelta(seconds=10)
#: renewals within the length of a lease
BEATS = 3
#: how long a lock that another program holds is waited for before that is said
PATIENCE = timedelta(seconds=4)
#: how long a blob that no event names is kept, since one may be about to name it
BLOB_GRACE = timedelta(hours=1)
#: the same for a blob that no event ever named: its process may have slept before it did
UNNAMED_GRACE = timedelta(days=1)
#: what the first event of a stream names as the hash before it
GENESIS = bytes(16)
#: why a run that retention deleted cannot be read
FORGOTTEN = "retention deleted its events; a new request needs another id or idempotency key"
#: name of the key that marks a run which was imported from a recording; its scope is the run
IMPORTED = "@imported"
#: how every SQLite database begins
SQLITE = b"SQLite format 3\0"
_BLOB = re.compile(rb'"blob":"([0-9a-f]{32})"')


class Key(Struct, frozen=True):
    """Makes an append idempotent: the same scope and name with the same digest is stored once."""

    scope: str
    name: str
    #: of the body; another body under the same name is a `KeyConflict`
    digest: str


class Position(Struct, frozen=True):
    """Where something is kept."""

    stream: str
    seq: int
    #: False when the key had been used before and nothing was stored now
    is_new: bool = True


class Entry(Struct, frozen=True):
    """An event as it is kept."""

    stream: str
    seq: int
    epoch: int
    author: str
    event: Event
    hash: bytes


class Head(Struct, frozen=True):
    """The newest state of a stream."""

    stream: str
    seq: int
    epoch: int
    #: the node that leads it, or led it last; empty if it let go
    owner: str
    #: whether its run is finished
    is_ended: bool
    began_at: datetime | None
    changed_at: datetime | None
    #: retention has deleted its events; only this trace of it is left
    is_forgotten: bool = False


class Process(Struct, frozen=True):
    """A process that leads runs of this journal, serves it, or writes to its pools."""

    #: as `Head.owner` names it
    node: str
    pid: int
    host: str
    #: what it has published with `Processes.serve`; empty if it serves nobody
    offer: str = ""
    #: seconds until its lease ends if it is not renewed, below 0 since it ended; None: it has no lease
    lease_left: float | None = None
    #: its process has certainly ended, though its lease may last
    is_dead: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether it may still be at work, so that nobody else takes what it leads."""
        return not self.is_dead and (self.lease_left is None or self.lease_left > 0)


class Mail(Struct, frozen=True, kw_only=True):
    """Something that another process asks the leader of a stream for."""

    #: the same mail twice is kept once
    key: str
    #: empty: for whoever can do it
    stream: str
    #: cancel, answer, submit
    subject: str
    body: bytes
    #: given by the mailbox
    id: int = 0


def submission_key(run: str) -> str:
    """The key of the mail that submits this run."""
    return f"submit {run}"


class Leases(Protocol):
    """Who leads what. A process is a node; a stream is led by one node in one epoch."""

    @property
    def node(self) -> str:
        """This process's name among the nodes."""

    async def lead(self, stream: str, holder: StreamOwner | None = None) -> int:
        """Lead this stream from now on and return the new epoch. A new stream is made.

        Raises `NotLeading`, naming the holder, while another live node leads it, or another
        `holder` (a supervisor that shares this journal object) does.
        """

    async def release(self, stream: str, epoch: int) -> None:
        """Let go of a stream, so that another may lead it at once."""

    async def abandoned(self) -> list[str]:
        """Streams whose leader has not released them and is not alive any more, the oldest first."""

    def is_valid(self) -> bool:
        """Whether this node's lease still holds, judged by its own steady clock, with a margin."""


class Processes(Protocol):
    """Which processes are at work on the journal, and which of them serve it."""

    @property
    def beat(self) -> float | None:
        """Seconds between two renewals of this process's lease; None: it has none."""

    async def known(self) -> list[Process]:
        """The processes that have not left, by node, also those that are silent or dead.

        One that only reads may be missing, and one that is long gone may be.
        """

    async def alive(self) -> list[Process]:
        """Those of them whose lease holds."""

    async def serve(self, offer: str) -> None:
        """Publish what this process serves, until `withdraw`, or until it closes the journal or dies."""

    async def withdraw(self) -> None:
        """Serve no longer. What is led stays led."""


class Mailbox(Protocol):
    """How other processes reach a leader."""

    async def post(self, mail: Mail) -> bool:
        """Keep this mail until it is taken; False if its key has been posted before."""

    async def unread(self) -> list[Mail]:
        """All mail not yet taken, oldest first. It is taken by `append(…, taking=[mail.id])`."""

    async def wait_changed(self) -> None:
        """Return soon after anybody has changed the journal; may return for nothing."""


class Blobs(Protocol):
    """Bytes too large for an event, kept under the digest of what they are."""

    async def put(self, data: bytes) -> str:
        """Keep these bytes; returns their digest once a crash cannot lose them."""

    async def get(self, digest: str) -> bytes:
        """The bytes of this digest, checked against it."""


async def load_value(value: Value, blobs: Blobs) -> Value:
    """The value itself, if it lies in a blob."""
    if not value.blob:
        return value
    return Value(json=Raw(await blobs.get(value.blob)), taint=value.taint)


async def store_value(value: Value, blobs: Blobs) -> Value:
    """The value as an event can hold it: a large one is put into a blob."""
    if not value.is_large:
        return value
    digest = await blobs.put(bytes(value.json))
    return Value(blob=digest, size=len(value.json), taint=value.taint)


class Signal(Protocol):
    """For those who follow what is stored: look, and then wait for what has come since."""

    @property
    def count(self) -> int:
        """How many changes are known of; to be asked for before looking."""

    async def wait(self, *, since: int) -> None:
        """Return soon after a change since this count, or at once; may return for nothing."""


class Boards(Protocol):
    """Streams that anybody may append to at any time, and what is found in them without reading all.

    A board that nobody has written to is empty. One that retention deleted raises `UnknownRun`.
    """

    @property
    def signal(self) -> Signal:
        """Tells of every change of the journal: of boards and of runs."""

    async def append(self, board: str, act: Act, *, key: Key | None = None) -> BoardEntry:
        """Decide on this act and store what comes of it; returns once a crash cannot lose it.

        Versions are given and permissions looked at in the moment of storing, so that of two that
        race one comes first. Raises `BlockChanged` as `decide` does. With a key that was used
        before, nothing is stored and what came of it then is returned.
        """

    async def notes(self, board: str, query: NoteQuery) -> list[Note]:
        """The notes that are asked for; what lies in blobs is left there."""

    async def block(self, board: str, label: str, version: int = 0) -> Block | None:
        """One version of a block, 0 for the newest; None if there is no such version."""

    async def labels(self, board: str, only: str = "") -> list[Label]:
        """What is known of each block, by label, or of only one, without its value."""

    async def named(self) -> list[str]:
        """The boards that have a name of their own, and are not the board of a run."""

    def read(self, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
        """The entries after this number, in order, up to the newest one when reading began."""


class Storage(Protocol):
    """What a journal takes up, and how runs are deleted from it: marked at once, then cleared away in pieces."""

    async def used(self) -> int:
        """Bytes of all that is kept: events, boards and the blobs that they name."""

    async def sizes(self, runs: Sequence[str]) -> dict[str, int]:
        """About how many bytes each of these runs takes up, with its board and its blobs."""

    async def requests(self, runs: Sequence[str]) -> dict[str, RunRequested]:
        """The first event of each of these runs; those that have none, or cannot be read, are left out."""

    async def forget(self, runs: Sequence[str], *, known: Collection[str]) -> bool:
        """Delete these runs and their boards, all in one moment; only their heads stay, as a trace.

        The first of them must have ended. False, with nothing deleted, if one is gone or is led, or
        if an open run reuses one of them, or has just begun and may. `known` are open runs that do not.
        """

    def sweep(self) -> AsyncIterator[int]:
        """Clear away what deleted runs left behind, in pieces of a few milliseconds; yields how much each was.

        A process that dies in between leaves the rest to the next sweep.
        """


class StoredRow(Struct, frozen=True):
    """An event exactly as it is stored, of a run or of a board."""

    seq: int
    epoch: int
    kind: str
    version: int
    #: microseconds since 1970
    at: int
    author: str
    payload: bytes
    hash: bytes


class StoredKey(Struct, frozen=True):
    """An idempotency key that was used, and the number of the entry that it was used for."""

    key: Key
    seq: int


class StreamCopy(Struct, frozen=True):
    """A whole stream, to be kept elsewhere."""

    stream: str
    rows: list[StoredRow]
    keys: list[StoredKey] = []


class Streams(Protocol):
    """Streams of runs and boards as they are stored, to be copied from one journal to another."""

    def rows(self, stream: str) -> AsyncIterator[StoredRow]:
        """All rows of a stream in order, each checked against the one before it.

        Raises `UnknownRun` for a stream that is not there or forgotten.
        """

    async def keys(self, stream: str) -> list[StoredKey]:
        """The idempotency keys that were used for entries of this stream."""

    async def adopt(self, copy: StreamCopy) -> int:
        """Keep a copy of a stream, all or nothing; returns how many rows were new.

        Rows that are here already are left as they are. Raises `RunDiffers` if the stream is here
        with other events, `NotLeading` if somebody leads it here, and `JournalDamaged` if the rows are
        no chain.
        """


class Tail(Protocol):
    """The end of a stream in the moment of a decision: nobody can add to it before we do."""

    @property
    def seq(self) -> int:
        """The number of the newest entry; 0 if there is none."""

    def read(self, after: int) -> list[Entry]:
        """The entries after this number, those that were decided on a moment ago too."""

    def is_alive(self, node: str) -> bool:
        """Whether that node may still be at work: it has not closed its journal, nor died, nor
        fallen silent for longer than its lease."""

    def take(self, mail: int) -> None:
        """Take this mail together with what is decided. Raises `KeyConflict` if it is taken already."""


def nothing_to_undo() -> None:
    """For decisions that keep nothing of their own."""


class Journal(Protocol):
    """Append-only streams of events."""

    @property
    def leases(self) -> Leases: ...

    @property
    def processes(self) -> Processes: ...

    @property
    def mail(self) -> Mailbox: ...

    @property
    def blobs(self) -> Blobs: ...

    @property
    def boards(self) -> Boards: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def streams(self) -> Streams: ...

    async def append(
        self,
        stream: str,
        events: Sequence[Event],
        *,
        epoch: int | None = None,
        key: Key | None = None,
        taking: Sequence[int] = (),
    ) -> Position:
        """Store events at the end of a stream, all or none, and return the place of the last.

        Returns only once a crash cannot lose them. With `epoch`, raises `NotLeading` unless that
        is still the stream's epoch; the end of a run lets go of it. `taking` marks mail as taken in the same moment; mail that is
        taken already makes the append raise `KeyConflict`.
        """

    async def decide(
        self,
        stream: str,
        decide: Callable[[Tail], Sequence[Event]],
        *,
        undo: Callable[[], None] = nothing_to_undo,
    ) -> Position:
        """Append what `decide` makes of the end of the stream, with nobody in between.

        It is called once, in the thread that writes: it is to be quick, and must not ask anything
        else of the journal. What it raises reaches this caller alone, and nothing is appended. If
        what it returned cannot be stored after all, `undo` is called before the next decision.
        Raises `NotLeading` while somebody leads the stream, ourselves included: then it is for the
        leader to say what is added. Whoever has decided something is alive to others until it
        closes its journal, or its process ends.
        """

    def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        """The entries after this number, in order, up to the newest one when reading began.

        Raises `JournalDamaged` if what is there is not exactly what was appended, and `UnknownRun`
        for a stream that is not there or forgotten.
        """

    async def heads(self, *, forgotten: bool = True) -> list[Head]:
        """All runs, the one that changed last first; those without an event are left out.

        Not `forgotten`: those that retention deleted are left out, too.
        """

    async def close(self) -> None:
        """Write down what is pending and let go of everything. Closing twice is fine."""


def led_by(stream: str, node: str) -> NotLeading:
    """Why nothing can be decided about a stream that is led."""
    return NotLeading(
        f"run {stream!r} is led by node {node}, which alone adds to it; wait until it has released the run"
    )


def named_blobs(payload: bytes) -> list[str]:
    """The blobs that an event's stored form names, so that they are kept while it is."""
    # A quote inside a string is escaped, so no text of a user can look like a name of ours; a JSON
    # value of a user can, and then a blob lives longer than it had to.
    return [name.decode() for name in _BLOB.findall(payload)] if b'"blob":"' in payload else []


def is_part_of_journal(path: Path) -> bool:
    """Whether this file is a database, or lies beside one and belongs to it: nothing may replace it."""
    for suffix in ("", "-head", "-wal", "-shm"):
        name = path.name.removesuffix(suffix)
        if name and path.name.endswith(suffix):  # `.` and `/` have no name
            database = path.with_name(name)
            if not database.is_file():
                continue  # to open a pipe would wait
            with suppress(OSError), database.open("rb") as file:
                if file.read(len(SQLITE)) == SQLITE:
                    return True
    return False
