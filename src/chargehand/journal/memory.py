"""A journal in memory: for tests, for trying things out, and for runs that need not outlive us."""

import heapq
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from typing import Self, TypeGuard, cast

from msgspec import json
from msgspec.structs import replace

from chargehand.decisions.board_rules import BoardState, decide, matches, note_of
from chargehand.errors import (
    JournalDamaged,
    KeyConflict,
    NotLeading,
    RunDiffers,
    UnknownRun,
    UsageError,
)
from chargehand.facts.board import (
    BOARD,
    Act,
    Block,
    BoardEntry,
    BoardEvent,
    Label,
    Note,
    NoteOrder,
    NotePosted,
    NoteQuery,
    board_of_run,
    decode_board,
    is_board_of_run,
    stream_of,
)
from chargehand.facts.events import VERSION, Event, RunFinished, RunRequested, decode, encode
from chargehand.facts.value import digest_of
from chargehand.journal.base import (
    BLOB_GRACE,
    FORGOTTEN,
    GENESIS,
    Entry,
    Head,
    Key,
    Mail,
    Position,
    Process,
    StoredKey,
    StoredRow,
    StreamCopy,
    Tail,
    led_by,
    named_blobs,
    nothing_to_undo,
)
from chargehand.journal.change_signal import Changes
from chargehand.journal.hash_chain import EPOCH, chain_hash, draft, header, header_start
from chargehand.journal.local_stream_owners import (
    StreamOwner,
    StreamOwners,
    refuse_second_owner,
)
from chargehand.journal.stream_copy_rows import (
    check_chain,
    keys_to_add,
    rows_to_add,
    rows_to_restore,
)

#: of the entries of boards, which are not chained here
_NO_AUTHOR = ""
#: events that are kept together
_CHUNK = 1024


class _Events:
    """Events in order, kept in tuples.

    The garbage collector lets go of a tuple that holds nothing it cares for, as it does not of a
    list: a list of all events would be walked from end to end by every full collection.
    """

    __slots__ = ("_chunks", "_last")

    def __init__(self) -> None:
        self._chunks: list[tuple[Event, ...]] = []
        self._last: list[Event] = []

    def __len__(self) -> int:
        return len(self._chunks) * _CHUNK + len(self._last)

    def __getitem__(self, place: int) -> Event:
        chunk, line = divmod(place if place >= 0 else place + len(self), _CHUNK)
        return self._last[line] if chunk == len(self._chunks) else self._chunks[chunk][line]

    def __iter__(self) -> Iterator[Event]:
        for chunk in self._chunks:
            yield from chunk
        yield from self._last

    def extend(self, events: Sequence[Event]) -> None:
        last = self._last
        last.extend(events)
        if len(last) >= _CHUNK:
            full = len(last) - len(last) % _CHUNK
            self._chunks += (tuple(last[n : n + _CHUNK]) for n in range(0, full, _CHUNK))
            del last[:full]


class _Stream:
    """Events as they came, and who wrote from which number on. Hashes are made when asked for."""

    __slots__ = (
        "epoch",
        "events",
        "hashes",
        "head",
        "is_ended",
        "last_hash",
        "owner",
        "spans",
    )

    def __init__(self) -> None:
        self.events = _Events()
        self.hashes: list[bytes] = []
        self.spans: list[tuple[int, int, str]] = []  # first number, epoch, author
        self.epoch = 0
        self.owner = ""
        self.is_ended = False
        self.head: Head | None = None  # of a forgotten stream: what is left of it
        self.last_hash = GENESIS  # the same: of its last event

    def add(self, events: Sequence[Event], author: str) -> None:
        if not self.spans or self.spans[-1][1:] != (self.epoch, author):
            self.spans.append((len(self.events) + 1, self.epoch, author))
        self.events.extend(events)
        if not self.is_ended:
            self.is_ended = any(type(event) is RunFinished for event in events)
            if self.is_ended:
                self.owner = ""  # nothing is left to be led

    def hash_up_to(self, name: str, end: int) -> None:
        """Make the hashes that are still missing, so that entries equal those of other journals."""
        hashes = self.hashes
        previous = hashes[-1] if hashes else GENESIS
        for (_, epoch, author), seq in self._placed(len(hashes), end):
            _, digest, kind, at = draft(self.events[seq - 1])
            start = header_start(name, author)
            previous = chain_hash(previous, header(start, seq, epoch, kind, at), digest)
            hashes.append(previous)

    def entries(self, name: str, after: int, end: int) -> list[Entry]:
        return [
            Entry(name, seq, epoch, author, self.events[seq - 1], self.hashes[seq - 1])
            for (_, epoch, author), seq in self._placed(after, end)
        ]

    def _placed(self, after: int, end: int) -> list[tuple[tuple[int, int, str], int]]:
        """The numbers after `after` up to `end`, each with the span it lies in."""
        ends = [span[0] for span in self.spans[1:]] + [end + 1]
        return [
            (span, seq)
            for span, stop in zip(self.spans, ends, strict=True)
            for seq in range(max(span[0], after + 1), min(stop, end + 1))
        ]

    def tell_head(self, name: str) -> Head | None:
        if self.head is not None or not self.events:
            return self.head
        return Head(
            stream=name,
            seq=len(self.events),
            epoch=self.epoch,
            owner=self.owner,
            is_ended=self.is_ended,
            began_at=self.events[0].at,
            changed_at=self.events[-1].at,
        )


class _Board:
    """One board: its entries in order, and what was folded from them."""

    def __init__(self) -> None:
        self.entries: list[BoardEntry] = []
        self.notes: list[Note] = []
        self.shelf = BoardState()

    def enter(self, board: str, event: BoardEvent) -> BoardEntry:
        entry = BoardEntry(board, len(self.entries) + 1, event)
        self.entries.append(entry)
        self.shelf.apply(event)
        note = note_of(board, entry.seq, event)
        if note is not None:
            self.notes.append(note)
        return entry


class _Store:
    """What neighbours share, and the lock under which they do: loops of several threads may."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.streams: dict[str, _Stream] = {}
        self.keys: dict[tuple[str, str], tuple[str, Position]] = {}
        self.mail: dict[int, Mail] = {}
        self.posted: dict[str, Mail] = {}
        self.blobs: dict[str, bytes] = {}
        self.put_at: dict[str, float] = {}
        #: blobs that deleted runs named, and others may name as well
        self.orphans: set[str] = set()
        self.nodes: set[str] = set()
        #: by node: what it serves
        self.offers: dict[str, str] = {}
        self.changes = Changes()
        self.boards: dict[str, _Board] = {}
        self.forgotten_boards: set[str] = set()
        self.board_keys: dict[tuple[str, str], tuple[str, BoardEntry]] = {}
        self.posts = Changes()

    def stream_of(self, name: str) -> _Stream:
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = _Stream()
        elif stream.head is not None:
            raise UnknownRun(name, FORGOTTEN)
        return stream

    def check_open(self, node: str) -> None:
        if node not in self.nodes:
            raise UsageError("this journal is closed; open it again")

    def check_board(self, board: str, node: str) -> None:
        self.check_open(node)
        if board in self.forgotten_boards:
            raise UnknownRun(stream_of(board), FORGOTTEN)


class MemoryJournal:
    """Keeps everything in this process and nothing beyond it; two of them share nothing.

    `append` never suspends, so a memory journal adds no turn of the event loop. Hashes are made
    when entries are read.
    """

    def __init__(self, store: _Store | None = None) -> None:
        store = _Store() if store is None else store
        self._store = store
        self._node = f"n-{secrets.token_hex(6)}"
        self.leases = _Leases(store, self._node)
        self.processes = _Processes(store, self._node)
        self.mail = _Mailbox(store)
        self.blobs = _Blobs(store)
        self.boards = _Boards(store, self._node)
        self.storage = _Storage(store)
        self.streams = _Streams(store, self._node)
        store.nodes.add(self._node)

    def neighbour(self) -> "MemoryJournal":
        """Another node on the same streams, as a second process on one file would be."""
        return MemoryJournal(self._store)

    async def append(
        self,
        stream: str,
        events: Sequence[Event],
        *,
        epoch: int | None = None,
        key: Key | None = None,
        taking: Sequence[int] = (),
    ) -> Position:
        """Store events at the end of a stream, all or none, without suspending."""
        store = self._store
        with store.lock:
            store.check_open(self._node)
            if key is not None and (known := store.keys.get((key.scope, key.name))):
                if known[0] != key.digest:
                    raise KeyConflict(key.name, known[1].stream)
                return known[1]
            kept = store.streams.get(stream)
            if kept is not None and kept.head is not None:
                raise UnknownRun(stream, FORGOTTEN)
            if epoch is not None and (
                kept is None or kept.epoch != epoch or kept.owner != self._node
            ):
                raise _not_leading(stream, epoch, kept)
            for number in taking:
                if number not in store.mail:
                    raise KeyConflict(f"mail {number}")
            if kept is None:
                kept = store.stream_of(stream)
            if events:
                kept.add(events, self._node)
                store.posts.note()
            for number in taking:
                store.mail.pop(number, None)
            position = Position(stream, len(kept.events))
            if key is not None:
                repeated = Position(stream, position.seq, is_new=False)
                store.keys[key.scope, key.name] = (key.digest, repeated)
            return position

    async def decide(
        self,
        stream: str,
        decide: Callable[[Tail], Sequence[Event]],
        *,
        undo: Callable[[], None] = nothing_to_undo,
    ) -> Position:
        """Append what `decide` makes of the end of the stream, without suspending."""
        store = self._store
        with store.lock:
            store.check_open(self._node)
            kept = store.streams.get(stream)
            if kept is not None and kept.head is not None:
                raise UnknownRun(stream, FORGOTTEN)
            if kept is not None and kept.owner in store.nodes:
                raise led_by(stream, kept.owner)
            events = decide(_Tail(store, stream, kept))
            try:
                for event in events:
                    draft(event)  # what cannot be written down could not be read again either
            except Exception:
                undo()
                raise
            if events:
                kept = store.stream_of(stream)
                kept.add(events, self._node)
                store.posts.note()
            return Position(stream, 0 if kept is None else len(kept.events))

    async def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        """The entries after this number, up to the newest one when reading began."""
        with self._store.lock:
            kept = self._store.streams.get(stream)
            if kept is None:
                raise UnknownRun(stream)
            end = len(kept.events)
        for first in range(after, end, 1000):
            with self._store.lock:
                if kept.head is not None:
                    break
                last = min(first + 1000, end)
                kept.hash_up_to(stream, last)
                entries = kept.entries(stream, first, last)
            for entry in entries:
                yield entry
        if kept.head is not None:
            raise UnknownRun(stream, FORGOTTEN)

    async def heads(self, *, forgotten: bool = True) -> list[Head]:
        """All streams that have an event, the one that changed last first."""
        with self._store.lock:
            found = [stream.tell_head(name) for name, stream in self._store.streams.items()]
        heads = [
            head
            for head in reversed(found)
            if head is not None and (forgotten or not head.is_forgotten)
        ]
        return sorted(heads, key=lambda head: head.changed_at or EPOCH, reverse=True)

    async def close(self) -> None:
        """Let go of what this node leads. Closing twice is fine."""
        with self._store.lock:
            self._store.nodes.discard(self._node)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Tail:
    """The end of a stream, looked at under the lock."""

    def __init__(self, store: _Store, name: str, kept: _Stream | None) -> None:
        self._store = store
        self._name = name
        self._kept = kept

    @property
    def seq(self) -> int:
        return 0 if self._kept is None else len(self._kept.events)

    def read(self, after: int) -> list[Entry]:
        if self._kept is None or after >= self.seq:
            return []
        self._kept.hash_up_to(self._name, self.seq)
        return self._kept.entries(self._name, after, self.seq)

    def is_alive(self, node: str) -> bool:
        return node in self._store.nodes

    def take(self, mail: int) -> None:
        if self._store.mail.pop(mail, None) is None:
            raise KeyConflict(f"mail {mail}")


class _Leases:
    def __init__(self, store: _Store, node: str) -> None:
        self._store = store
        self._node = node
        self._has_led = False
        self._led: StreamOwners = {}

    @property
    def node(self) -> str:
        return self._node

    async def lead(self, stream: str, holder: StreamOwner | None = None) -> int:
        store = self._store
        with store.lock:
            store.check_open(self._node)
            kept = store.stream_of(stream)
            if kept.owner not in ("", self._node) and kept.owner in store.nodes:
                raise NotLeading(
                    f"run {stream!r} is led by node {kept.owner} of this process; "
                    "close that journal, or let it release the run"
                )
            if kept.owner == self._node:
                refuse_second_owner(self._led, stream, holder)
            kept.epoch += 1
            kept.owner = self._node
            self._has_led = True
            self._led[stream] = None if holder is None else weakref.ref(holder)
            return kept.epoch

    async def release(self, stream: str, epoch: int) -> None:
        with self._store.lock:
            kept = self._store.streams.get(stream)
            if kept is not None and kept.epoch == epoch and kept.owner == self._node:
                kept.owner = ""
                self._led.pop(stream, None)

    async def abandoned(self) -> list[str]:
        with self._store.lock:
            return [
                name
                for name, kept in self._store.streams.items()
                if kept.owner and kept.owner not in self._store.nodes
            ]

    def is_valid(self) -> bool:
        return self._has_led and self._node in self._store.nodes


class _Processes:
    """The nodes of this process."""

    def __init__(self, store: _Store, node: str) -> None:
        self._store = store
        self._node = node

    @property
    def beat(self) -> float | None:
        return None

    async def alive(self) -> list[Process]:
        return await self.known()

    async def known(self) -> list[Process]:
        with self._store.lock:
            return [
                Process(node, os.getpid(), socket.gethostname(), self._store.offers.get(node, ""))
                for node in sorted(self._store.nodes)
            ]

    async def serve(self, offer: str) -> None:
        with self._store.lock:
            self._store.check_open(self._node)
            self._store.offers[self._node] = offer

    async def withdraw(self) -> None:
        with self._store.lock:
            self._store.offers.pop(self._node, None)


class _Streams:
    """Streams as a durable journal would store them. Boards have no hashes here, so all are of one author."""

    def __init__(self, store: _Store, node: str) -> None:
        self._store = store
        self._node = node

    async def rows(self, stream: str) -> AsyncIterator[StoredRow]:
        with self._store.lock:
            rows = self._rows(stream)
        for row in rows:
            yield row

    def _rows(self, stream: str) -> list[StoredRow]:
        if stream.startswith(BOARD):
            return self._board_rows(stream)
        kept = self._store.streams.get(stream)
        if kept is None or kept.head is not None:
            raise UnknownRun(stream) if kept is None else UnknownRun(stream, FORGOTTEN)
        end = len(kept.events)
        kept.hash_up_to(stream, end)
        return [
            StoredRow(
                *(each.seq, each.epoch, kind, VERSION, at, each.author, payload),
                hash=each.hash,
            )
            for each in kept.entries(stream, 0, end)
            for payload, _, kind, at in [draft(each.event)]
        ]

    def _board_rows(self, stream: str) -> list[StoredRow]:
        board = stream.removeprefix(BOARD)
        self._store.check_board(board, self._node)
        kept = self._store.boards.get(board)
        if kept is None:
            raise UnknownRun(stream)
        rows, previous = [], GENESIS
        for entry in kept.entries:
            payload, digest, kind, at = draft(cast("Event", entry.event))
            over = header(header_start(stream, _NO_AUTHOR), entry.seq, 0, kind, at)
            previous = chain_hash(previous, over, digest)
            place = (entry.seq, 0, kind, VERSION, at, _NO_AUTHOR, payload)
            rows.append(StoredRow(*place, hash=previous))
        return rows

    async def keys(self, stream: str) -> list[StoredKey]:
        store = self._store
        with store.lock:
            used = [
                (scope, name, digest, place.stream, place.seq)
                for (scope, name), (digest, place) in store.keys.items()
            ]
            used += [
                (scope, name, digest, stream_of(entry.board), entry.seq)
                for (scope, name), (digest, entry) in store.board_keys.items()
            ]
        return [
            StoredKey(Key(scope, name, digest), seq)
            for scope, name, digest, of, seq in used
            if of == stream
        ]

    async def adopt(self, copy: StreamCopy) -> int:
        check_chain(copy, "the copy")
        store = self._store
        with store.lock:
            store.check_open(self._node)
            is_board = copy.stream.startswith(BOARD)
            added = self._adopt_board(copy) if is_board else self._adopt_run(copy)
            if added:
                store.posts.note()
        return added

    def _adopt_run(self, copy: StreamCopy) -> int:
        store, stream = self._store, copy.stream
        kept = store.streams.get(stream)
        if kept is not None and kept.owner in store.nodes:
            raise led_by(stream, kept.owner)
        seq = 0 if kept is None else len(kept.events)
        if kept is not None and kept.head is not None:
            rows = rows_to_restore(copy, kept.head.seq, kept.last_hash, "this journal")
        else:
            common = self._rows(stream)[: len(copy.rows)][-1].hash if seq and copy.rows else None
            rows = rows_to_add(copy, seq, common, "this journal")
        events = [decode(row.payload, row.version) for row in rows]
        if rows:
            if kept is not None and kept.head is not None:
                store.streams[stream] = _Stream()
            kept = store.stream_of(stream)
            for row, event in zip(rows, events, strict=True):
                kept.epoch = row.epoch
                kept.add([event], row.author)
        for each in keys_to_add(copy, seq):
            place = Position(stream, each.seq, is_new=False)
            store.keys.setdefault((each.key.scope, each.key.name), (each.key.digest, place))
        return len(rows)

    def _adopt_board(self, copy: StreamCopy) -> int:
        store, board = self._store, copy.stream.removeprefix(BOARD)
        store.forgotten_boards.discard(board)  # it comes back with its run
        kept = store.boards.get(board) or _Board()
        seq = len(kept.entries)
        rows = copy.rows[len(kept.entries) :]
        events = [decode_board(row.payload, row.version) for row in copy.rows]
        if any(e.event != event for e, event in zip(kept.entries, events, strict=False)):
            raise RunDiffers(copy.stream, "this journal", "an entry is another one")
        for event in events[len(kept.entries) :]:
            kept.enter(board, event)
            store.boards[board] = kept
        for each in keys_to_add(copy, seq):
            name, entry = (each.key.scope, each.key.name), kept.entries[each.seq - 1]
            store.board_keys.setdefault(name, (each.key.digest, entry))
        return len(rows)


class _Mailbox:
    def __init__(self, store: _Store) -> None:
        self._store = store

    async def post(self, mail: Mail) -> bool:
        store = self._store
        with store.lock:
            known = store.posted.get(mail.key)
            if known is not None:
                if replace(mail, id=known.id) != known:
                    raise KeyConflict(mail.key, known.stream)
                return False
            number = len(store.posted) + 1
            store.posted[mail.key] = store.mail[number] = replace(mail, id=number)
        store.changes.notify()
        return True

    async def unread(self) -> list[Mail]:
        with self._store.lock:
            return list(self._store.mail.values())

    async def wait_changed(self) -> None:
        await self._store.changes.wait()


class _Blobs:
    def __init__(self, store: _Store) -> None:
        self._store = store

    async def put(self, data: bytes) -> str:
        digest = digest_of(data)
        with self._store.lock:
            self._store.blobs.setdefault(digest, bytes(data))
            self._store.put_at[digest] = time.monotonic()
        return digest

    async def get(self, digest: str) -> bytes:
        data = self._store.blobs.get(digest)
        if data is None:
            raise JournalDamaged(f"blob {digest} is not in this journal")
        return data


class _Storage:
    """How runs are deleted from memory."""

    def __init__(self, store: _Store) -> None:
        self._store = store

    async def used(self) -> int:
        with self._store.lock:
            names = [name for name, kept in self._store.streams.items() if kept.head is None]
            taken = sum(_bytes_of(self._store, name) for name in names)
            blobs = self._store.blobs.items()
            return taken + sum(len(data) for name, data in blobs if name not in self._store.orphans)

    async def sizes(self, runs: Sequence[str]) -> dict[str, int]:
        store = self._store
        with store.lock:
            sizes = {run: _bytes_of(store, run) for run in runs}
            for run in runs:
                blobs = _blobs_of(store, run)
                sizes[run] += sum(len(store.blobs.get(digest, b"")) for digest in blobs)
        return sizes

    async def requests(self, runs: Sequence[str]) -> dict[str, RunRequested]:
        with self._store.lock:
            kept = {run: self._store.streams.get(run) for run in runs}
            firsts = {run: stream.events[0] for run, stream in kept.items() if _has_events(stream)}
        return {run: event for run, event in firsts.items() if type(event) is RunRequested}

    async def forget(self, runs: Sequence[str], *, known: Collection[str]) -> bool:
        store = self._store
        with store.lock:
            for name, stream in store.streams.items():
                if stream.is_ended or stream.head is not None or name in known:
                    continue
                first = stream.events[0] if len(stream.events) else None
                is_beginning = first is None and stream.owner in store.nodes
                if is_beginning or (type(first) is RunRequested and first.reuses in runs):
                    return False
            found = [store.streams.get(run) for run in runs]
            kept = [stream for stream in found if stream is not None and stream.head is None]
            if len(kept) < len(found) or not kept[0].is_ended:
                return False
            if any(stream.owner in store.nodes for stream in kept):
                return False
            for run, stream in zip(runs, kept, strict=True):
                self._forget(run, stream)
        return True

    def _forget(self, run: str, stream: _Stream) -> None:
        store = self._store
        store.orphans |= _blobs_of(store, run)
        stream.is_ended, stream.owner = True, ""
        head = stream.tell_head(run)
        assert head is not None  # noqa: S101 - a run that has ended has events
        stream.hash_up_to(run, len(stream.events))
        stream.head, stream.last_hash = replace(head, is_forgotten=True), stream.hashes[-1]
        stream.events, stream.hashes, stream.spans = _Events(), [], []
        if store.boards.pop(board_of_run(run), None) is not None:
            store.forgotten_boards.add(board_of_run(run))

    async def sweep(self) -> AsyncIterator[int]:
        store = self._store
        with store.lock:
            for stream in store.streams.values():
                store.orphans -= _blobs_named_in(stream.events) if store.orphans else set()
            for board in store.boards.values():
                store.orphans -= _blobs_on(board)
            # One that was put just now may be about to be named again.
            settled = time.monotonic() - BLOB_GRACE.total_seconds()
            gone = {each for each in store.orphans if store.put_at.get(each, settled) <= settled}
            for digest in gone:
                store.blobs.pop(digest, None)
                store.put_at.pop(digest, None)
            store.orphans -= gone
        yield len(gone)


def _has_events(stream: _Stream | None) -> TypeGuard[_Stream]:
    return stream is not None and len(stream.events) > 0


def _bytes_of(store: _Store, run: str) -> int:
    kept, board = store.streams.get(run), store.boards.get(board_of_run(run))
    taken = sum(len(encode(event)) for event in kept.events) if kept is not None else 0
    entries = board.entries if board is not None else ()
    return taken + sum(len(json.encode(entry.event)) for entry in entries)


def _blobs_of(store: _Store, run: str) -> set[str]:
    kept, board = store.streams.get(run), store.boards.get(board_of_run(run))
    named = _blobs_named_in(kept.events) if kept is not None else set()
    return named | (_blobs_on(board) if board is not None else set())


class _Boards:
    """The boards of one node."""

    def __init__(self, store: _Store, node: str) -> None:
        self._store = store
        self._node = node
        self.signal = store.posts

    async def append(self, board: str, act: Act, *, key: Key | None = None) -> BoardEntry:
        store = self._store
        with store.lock:
            store.check_board(board, self._node)
            if key is not None and (known := store.board_keys.get((key.scope, key.name))):
                if known[0] != key.digest:
                    raise KeyConflict(key.name)
                return known[1]
            kept = store.boards.get(board) or _Board()
            label = "" if isinstance(act, NotePosted) else act.label
            event = decide(act, kept.shelf.known(label))
            store.boards[board] = kept  # only now: a refused act makes no board
            entry = kept.enter(board, event)
            if key is not None:
                store.board_keys[key.scope, key.name] = (key.digest, entry)
            store.posts.note()
        return entry

    async def notes(self, board: str, query: NoteQuery) -> list[Note]:
        kept = self._look(board)
        notes = kept.notes
        if query.order is NoteOrder.IMPORTANT:
            wanted = (note for note in notes[:] if matches(note, query))
            return heapq.nlargest(query.limit, wanted, key=lambda note: (note.importance, note.seq))
        found: list[Note] = []
        for place in range(len(notes) - 1, -1, -1):
            if matches(notes[place], query):
                found.append(notes[place])
                if len(found) == query.limit:
                    break
        return found

    async def block(self, board: str, label: str, version: int = 0) -> Block | None:
        kept = self._look(board)
        with self._store.lock:
            return kept.shelf.find(label, version)

    async def labels(self, board: str, only: str = "") -> list[Label]:
        kept = self._look(board)
        with self._store.lock:
            known = kept.shelf.labels() if not only else [kept.shelf.known(only)]
        return [each for each in known if each != Label(each.label, 0)]

    async def named(self) -> list[str]:
        with self._store.lock:
            return sorted(name for name in self._store.boards if not is_board_of_run(name))

    async def read(self, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
        entries = self._look(board).entries
        for place in range(after, len(entries)):
            yield entries[place]

    def _look(self, board: str) -> _Board:
        with self._store.lock:
            self._store.check_board(board, self._node)
            return self._store.boards.get(board) or _Board()


def _not_leading(stream: str, epoch: int, kept: _Stream | None) -> NotLeading:
    if kept is None:
        return NotLeading(f"run {stream!r} is led by nobody; lead it before appending to it")
    holder = f"node {kept.owner}" if kept.owner else "nobody"
    return NotLeading(
        f"run {stream!r} is led by {holder} in epoch {kept.epoch}, and no longer in epoch {epoch}; "
        "stop working on it here, or lead it again"
    )


def _blobs_named_in(events: Iterable[Event]) -> set[str]:
    return {name for event in events for name in named_blobs(encode(event))}


def _blobs_on(board: _Board) -> set[str]:
    values = [note.stored for note in board.notes]
    values += [block.stored for versions in board.shelf.versions.values() for block in versions]
    return {value.blob for value in values if value.blob}
