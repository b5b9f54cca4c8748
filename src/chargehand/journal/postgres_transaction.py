"""One transaction of a journal in PostgreSQL: all rows it needs are locked first, all it writes goes last.

Requests of many callers share a transaction. What they need is locked in one order for all processes
(keys, then streams, then mail, each sorted), so that two transactions never wait for each other in a
circle. The requests themselves then only look at what was read, and note what is to be written.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from chargehand.decisions.board_rules import facets_of, note_of
from chargehand.errors import KeyConflict
from chargehand.facts.board import BlockGuarded, BlockWritten, BoardEvent, Guard, Label
from chargehand.facts.events import VERSION, RunFinished
from chargehand.journal.base import GENESIS, Key, Position, StoredRow, named_blobs
from chargehand.journal.hash_chain import Draft, chain_hash, header, header_start
from chargehand.journal.leases import HeadRow, advance
from chargehand.journal.sql_queries import load
from chargehand.journal.sqlite_boards import facet_number

if TYPE_CHECKING:
    from asyncpg import Connection

POSTGRES = load("postgres.sql")
_ENDING = RunFinished.__name__
_COLUMNS = ("stream", "seq", "epoch", "kind", "version", "at", "author", "payload", "hash")
decode_guard = msgspec.json.Decoder(Guard).decode


class Needs(Struct, frozen=True):
    """What a request must have locked before it is entered."""

    stream: str = ""
    #: more of them
    streams: tuple[str, ...] = ()
    key: Key | None = None
    #: more keys
    keys: tuple[Key, ...] = ()
    mail: tuple[int, ...] = ()
    #: of the board that `stream` is
    label: str = ""
    #: who is alive
    nodes: bool = False


class Living(Struct, frozen=True):
    """A node whose lease holds by the clock of the database."""

    seconds_left: float
    pid: int
    host: str


class PostgresTransaction:
    """Everything that is about to be committed as one."""

    def __init__(self, connection: "Connection[Any]", namespace: str, node: str) -> None:
        self.connection = connection
        self.namespace = namespace
        self.node = node
        self.nodes: dict[str, Living] = {}
        #: streams whose run has ended
        self.ended: list[str] = []
        #: others should look: mail was posted, or a board was written to
        self.is_told = False
        self._heads: dict[str, HeadRow] = {}
        self._made: dict[str, HeadRow] = {}
        self._changed: dict[str, HeadRow] = {}
        self._entries: list[tuple[object, ...]] = []
        self._unused_keys: set[tuple[str, str]] = set()
        self._keys: dict[tuple[str, str], tuple[str, str, int]] = {}
        self._new_keys: dict[tuple[str, str], tuple[str, str, int]] = {}
        self._mail: dict[int, tuple[str, bool]] = {}
        self._taken: set[int] = set()
        self._labels: dict[tuple[int, str], Label] = {}
        self._blob_refs: set[tuple[str, int]] = set()
        self._facets: list[tuple[object, ...]] = []
        self._blocks: list[tuple[object, ...]] = []
        self._guards: dict[tuple[int, str], bytes] = {}
        #: the lease of this node is renewed with it
        self.is_renewal = False
        self._callbacks: list[Callable[[], None]] = []
        self._undoing: list[Callable[[], None]] = []

    # What is there

    async def lock(self, needs: Iterable[Needs]) -> None:
        """Lock and read all that these requests need."""
        wanted = list(needs)
        keys = [each.key for each in wanted if each.key is not None]
        if keys := keys + [key for each in wanted for key in each.keys]:
            await self._lock_keys(keys)
        streams = {name for each in wanted for name in (each.stream, *each.streams) if name}
        if streams:
            await self._lock_streams(sorted(streams))
        if mail := sorted({number for each in wanted for number in each.mail}):
            await self.lock_mail(mail)
        if labelled := {(each.stream, each.label) for each in wanted if each.label}:
            await self._read_labels(labelled)
        if any(each.nodes for each in wanted):
            rows = await self.connection.fetch(POSTGRES["nodes"], self.namespace)
            self.nodes = {row[0]: Living(row[1], row[2], row[3]) for row in rows}

    async def _lock_keys(self, keys: Sequence[Key]) -> None:
        digests = {(key.scope, key.name): key.digest for key in reversed(keys)}
        names = sorted(digests)
        scopes, words = [scope for scope, _ in names], [name for _, name in names]
        rows = await self.connection.fetch(
            *(POSTGRES["claim_keys"], self.namespace, scopes, words),
            [digests[name] for name in names],
        )
        self._unused_keys = {(row[0], row[1]) for row in rows}
        if len(self._unused_keys) < len(names):
            found = await self.connection.fetch(
                POSTGRES["known_keys"], self.namespace, scopes, words
            )
            known = {(row[0], row[1]): (row[2], row[3], row[4]) for row in found}
            self._keys = {k: used for k, used in known.items() if k not in self._unused_keys}

    async def _lock_streams(self, names: list[str]) -> None:
        heads = await self._read_heads(names)
        if missing := [name for name in names if name not in heads]:
            rows = await self.connection.fetch(
                POSTGRES["make_streams"], self.namespace, missing, GENESIS
            )
            made = {row[0] for row in rows}
            for name, head in (await self._read_heads(missing)).items():
                (self._made if name in made else heads)[name] = head
        self._heads = heads

    async def _read_heads(self, names: list[str]) -> dict[str, HeadRow]:
        rows = await self.connection.fetch(POSTGRES["lock_heads"], self.namespace, names)
        return {row[0]: HeadRow(*row) for row in rows}

    async def claim(self, keys: Sequence[Key]) -> None:
        """Claim these keys, whose rows this transaction has deleted."""
        columns = _columns([(each.scope, each.name, each.digest) for each in keys])
        if columns:
            await self.connection.fetch(POSTGRES["claim_keys"], self.namespace, *columns)

    async def lock_mail(self, numbers: list[int]) -> None:
        """Lock this mail, to be checked and taken."""
        rows = await self.connection.fetch(POSTGRES["lock_mail"], self.namespace, numbers)
        self._mail.update({row[0]: (row[1], row[2]) for row in rows})

    async def _read_labels(self, labelled: set[tuple[str, str]]) -> None:
        pairs = [(self._heads[s].id, label) for s, label in labelled if s in self._heads]
        if not pairs:
            return
        streams, labels = [stream for stream, _ in pairs], [label for _, label in pairs]
        newest = await self.connection.fetch(POSTGRES["newest_blocks"], streams, labels)
        guards = await self.connection.fetch(POSTGRES["guards"], streams, labels)
        guarded = {(row[0], row[1]): decode_guard(row[2]) for row in guards}
        versions = {(row[0], row[1]): row[2] for row in newest}
        for place in pairs:
            guard = guarded.get(place, Guard())
            self._labels[place] = Label(place[1], versions.get(place, 0), guard)

    def head(self, stream: str) -> HeadRow | None:
        """The newest state of a stream, with what this transaction adds; None for one without any."""
        return self._heads.get(stream)

    def new_head(self, stream: str) -> HeadRow:
        """A stream that was not there before."""
        head = self._heads[stream] = self._made.pop(stream)
        self.change(head)
        return head

    def label(self, head: HeadRow | None, label: str) -> Label:
        """What is known of a block at this moment."""
        found = None if head is None else self._labels.get((head.id, label))
        return found or Label(label, 0)

    def find_key(self, key: Key) -> Position | None:
        """Where this key was used before; raises `KeyConflict` if it was for something else."""
        name = (key.scope, key.name)
        known = self._new_keys.get(name) or self._keys.get(name)
        if known is None:
            return None
        digest, stream, seq = known
        if digest != key.digest:
            raise KeyConflict(key.name, stream)
        return Position(stream, seq, is_new=False)

    def check_unread(self, mail: int) -> None:
        """Raise `KeyConflict` unless this mail is there to be taken."""
        key, is_unread = self._mail.get(mail, (f"mail {mail}", False))
        if mail in self._taken or not is_unread:
            raise KeyConflict(key)

    def pending(self, stream: int, after: int) -> list[tuple[Any, ...]]:
        """The entries of a stream that this very transaction adds, from a number on."""
        return [row[1:] for row in self._entries if row[0] == stream and row[1] > after]  # type: ignore[operator]  # columns of `entries`

    # What is added

    def change(self, head: HeadRow) -> None:
        """This head is not what it was."""
        self._changed[head.name] = head

    def take_mail(self, mail: int) -> None:
        """Take mail that was checked to be unread."""
        self._taken.add(mail)

    def add_key(self, key: Key, stream: str, seq: int) -> None:
        self._unused_keys.discard((key.scope, key.name))
        self._new_keys[key.scope, key.name] = (key.digest, stream, seq)

    def add_entries(self, head: HeadRow, drafts: Sequence[Draft]) -> None:
        """Chain these to the end of a stream."""
        seq, previous, epoch, stream = head.seq, head.hash, head.epoch, head.id
        start, at = header_start(head.name, self.node), None
        for payload, digest, kind, at in drafts:
            seq += 1
            previous = chain_hash(previous, header(start, seq, epoch, kind, at), digest)
            self._entries.append(
                (stream, seq, epoch, kind, VERSION, at, self.node, payload, previous)
            )
            self._blob_refs |= {(name, stream) for name in named_blobs(payload)}
            if kind == _ENDING:
                head.ended, head.owner = True, ""
                self.ended.append(head.name)
        if head.began_at is None:
            head.began_at = drafts[0][3]
        head.seq, head.hash, head.changed_at = seq, previous, at
        self.change(head)

    def adopt_rows(self, head: HeadRow, rows: Sequence[StoredRow]) -> None:
        """Put rows that other nodes wrote, in another journal, at the end of a stream."""
        for row in rows:
            place = (head.id, row.seq, row.epoch, row.kind, row.version, row.at)
            self._entries.append((*place, row.author, row.payload, row.hash))
            self._blob_refs |= {(name, head.id) for name in named_blobs(row.payload)}
        advance(head, rows)
        self.change(head)

    def index(self, board: str, head: HeadRow, event: BoardEvent, seq: int = 0) -> None:
        """Let an event of a board be found, the newest or the one with this number."""
        seq = seq or head.seq
        note = note_of(board, seq, event)
        if note is not None:
            self._facets += [
                (head.id, facet_number(board, word), seq, note.importance)
                for word in facets_of(note)
            ]
        if isinstance(event, BlockWritten):
            self._blocks.append((head.id, event.label, event.version, seq))
            known = self.label(head, event.label)
            self._labels[head.id, event.label] = Label(event.label, event.version, known.guard)
        elif isinstance(event, BlockGuarded):
            self._guards[head.id, event.label] = msgspec.json.encode(event.guard)
            known = self.label(head, event.label)
            self._labels[head.id, event.label] = Label(event.label, known.version, event.guard)
        self.is_told = True

    def once_committed(self, callback: Callable[[], None]) -> None:
        """Call this when, and only if, the transaction has become durable."""
        self._callbacks.append(callback)

    def unless_committed(self, callback: Callable[[], None]) -> None:
        """Call this if the transaction comes to nothing, before another one is begun."""
        self._undoing.append(callback)

    def tell_undone(self) -> None:
        """Nothing of it is kept."""
        for callback in self._undoing:
            callback()

    def tell_committed(self) -> None:
        """It is durable now."""
        for callback in self._callbacks:
            callback()

    @property
    def is_blank(self) -> bool:
        """Whether nothing is to be written."""
        return not (self._changed or self._new_keys or self._taken or self._callbacks)

    async def write(self) -> None:
        """Write all that was added."""
        run, space = self.connection.execute, self.namespace
        if self._entries:
            await self._copy("chargehand_entries", self._entries, _COLUMNS)
        if self._changed:
            await run(POSTGRES["put_heads"], *_columns([_kept(h) for h in self._changed.values()]))
        if self._made:
            await run(POSTGRES["drop_unused"], [head.id for head in self._made.values()])
        if self._new_keys:
            rows = [(*name, *used) for name, used in self._new_keys.items()]
            await run(POSTGRES["put_keys"], space, *_columns(rows))
        if self._unused_keys:
            await run(POSTGRES["drop_keys"], space, *_columns(list(self._unused_keys)))
        if self._taken:
            await run(POSTGRES["take_mail"], space, list(self._taken))
        if self._blob_refs:
            await run(POSTGRES["add_blob_refs"], *_columns(list(self._blob_refs)))
        if self._facets:
            await self._copy("chargehand_facets", self._facets)
        if self._blocks:
            await self._copy("chargehand_blocks", self._blocks)
        if self._guards:
            guards = [(*place, guard) for place, guard in self._guards.items()]
            await run(POSTGRES["put_guards"], *_columns(guards))
        if self.is_told:
            await run(POSTGRES["tell"], space)

    async def _copy(
        self, table: str, rows: list[tuple[object, ...]], columns: Sequence[str] | None = None
    ) -> None:
        await self.connection.copy_records_to_table(table, records=rows, columns=columns)


def _kept(head: HeadRow) -> tuple[object, ...]:
    return (
        *(head.id, head.seq, head.hash, head.epoch, head.owner, bool(head.ended)),
        *(head.began_at, head.changed_at, bool(head.forgotten)),
    )


def _columns(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
