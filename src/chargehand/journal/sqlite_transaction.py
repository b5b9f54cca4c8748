"""What one transaction of the writer holds: guards that look first, rows that are written at the end.

Requests are entered one after the other. A request that fails its guards has not touched the sheet,
so the others go on without a savepoint; each sees what those before it have entered.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct
from msgspec.structs import astuple

from chargehand.errors import KeyConflict, NotLeading, UnknownRun
from chargehand.facts.events import VERSION, RunFinished
from chargehand.journal.base import FORGOTTEN, GENESIS, Head, Key, Position, StoredRow, named_blobs
from chargehand.journal.hash_chain import Draft, chain_hash, header, header_start, instant, seal
from chargehand.journal.sql_queries import BULK_INSERTS, SQL
from chargehand.journal.sqlite_errors import damaged

#: that are let be found at once; fewer wait in a small table until there are as many
MANY_NOTES = 2_000
_ENDING = RunFinished.__name__
#: far more than can be made between two head marks
KEPT_COMMITS = 10_000


class HeadRow(Struct):
    """A row of `streams`, in the order of its columns."""

    name: str
    id: int
    seq: int = 0
    hash: bytes = GENESIS
    epoch: int = 0
    owner: str = ""
    ended: int = 0
    began_at: int | None = None
    changed_at: int | None = None
    forgotten: int = 0

    def told(self) -> Head:
        """The head as callers see it."""
        return Head(
            stream=self.name,
            seq=self.seq,
            epoch=self.epoch,
            owner=self.owner,
            is_ended=bool(self.ended),
            began_at=None if self.began_at is None else instant(self.began_at),
            changed_at=None if self.changed_at is None else instant(self.changed_at),
            is_forgotten=bool(self.forgotten),
        )

    def restart(self) -> None:
        """Make it the head of a stream that retention deleted and that is kept again from its first event."""
        self.seq, self.hash, self.ended, self.began_at, self.forgotten = 0, GENESIS, 0, None, 0


def advance(head: HeadRow, rows: Sequence[StoredRow]) -> None:
    """Bring a head up to date with rows that were added to its stream."""
    last = rows[-1]
    head.began_at = rows[0].at if head.began_at is None else head.began_at
    head.seq, head.hash, head.changed_at = last.seq, last.hash, last.at
    head.epoch = max(head.epoch, last.epoch)
    if any(row.kind == _ENDING for row in rows):
        head.ended, head.owner = 1, ""


def head_of(row: Sequence[object], path: Path) -> HeadRow:
    """The head in this row, if its seal is whole."""
    *fields, kept = row
    if seal(*fields) != kept:
        raise damaged(path, f"the head of stream {fields[0]!r} was changed")
    return HeadRow(*fields)  # type: ignore[arg-type]  # what was sealed had the right types


class Transaction:
    """Everything that is about to be committed as one."""

    def __init__(
        self, connection: apsw.Connection, path: Path, node: str, author: int | None
    ) -> None:
        self.connection = connection
        self.path = path
        self.node = node
        #: this node's number among the authors, once it has one
        self.author = author
        self._heads: dict[str, HeadRow | None] = {}
        self._changed: dict[str, HeadRow] = {}
        self._streams: int | None = None
        self._entries: list[object] = []
        self._keys: dict[tuple[str, str], tuple[str, str, int]] = {}
        self._taken: set[int] = set()
        self._blob_refs: list[tuple[str, int]] = []
        self._facets: list[object] = []
        self._ranks: list[object] = []
        self._notes = 0
        self._seals: list[bytes] = []
        self._callbacks: list[Callable[[], None]] = []
        self._undoing: list[Callable[[], None]] = []
        #: streams whose run has ended
        self.ended: list[str] = []
        #: number and hash, once written; None if nothing changed that anybody was promised
        self.commit: tuple[int, bytes] | None = None

    @property
    def is_blank(self) -> bool:
        """Whether nothing was entered that is worth a commit."""
        return not (self._changed or self._seals or self._callbacks)

    def once_committed(self, callback: Callable[[], None]) -> None:
        """Call this when, and only if, the sheet has become durable."""
        self._callbacks.append(callback)

    def unless_committed(self, callback: Callable[[], None]) -> None:
        """Call this if the sheet comes to nothing, before another one is begun."""
        self._undoing.append(callback)

    def head(self, stream: str) -> HeadRow | None:
        """The newest state of a stream, with what this sheet has entered."""
        try:
            return self._heads[stream]
        except KeyError:
            row = self.connection.execute(SQL["head"], (stream,)).fetchone()
            head = None if row is None else head_of(row, self.path)
            self._heads[stream] = head
            return head

    def new_head(self, stream: str) -> HeadRow:
        """A stream that was not there before."""
        if self._streams is None:
            self._streams = int(self.connection.execute(SQL["meta"], ("streams",)).get)
        self._streams += 1
        head = self._heads[stream] = HeadRow(stream, self._streams)
        self.change(head)
        return head

    def change(self, head: HeadRow) -> None:
        """This head is not what it was."""
        self._changed[head.name] = head

    def find_key(self, key: Key) -> Position | None:
        """Where this key was used before; raises `KeyConflict` if it was for something else."""
        known = self._keys.get((key.scope, key.name))
        if known is None:
            row = self.connection.execute(SQL["key"], (key.scope, key.name)).fetchone()
            if row is None:
                return None
            digest, stream, seq, kept = row
            if seal(key.scope, key.name, digest, stream, seq) != kept:
                raise damaged(self.path, f"the idempotency key {key.name!r} was changed")
            known = (digest, stream, seq)
        if known[0] != key.digest:
            raise KeyConflict(key.name, known[1])
        return Position(known[1], known[2], is_new=False)

    def check_unread(self, mail: int) -> None:
        """Raise `KeyConflict` unless this mail is there to be taken."""
        row = self.connection.execute(SQL["mail_by_id"], (mail,)).fetchone()
        if mail in self._taken or row is None or not row[1]:
            raise KeyConflict(f"mail {mail}" if row is None else row[0])

    def take_mail(self, mail: int) -> None:
        """Take mail that was checked to be unread."""
        self._taken.add(mail)
        self._seals.append(b"taken %d" % mail)

    def add_seal(self, kept: bytes) -> None:
        """Make something that was written directly a part of this commit's hash."""
        self._seals.append(kept)

    def add_key(self, key: Key, stream: str, seq: int) -> None:
        self._keys[key.scope, key.name] = (key.digest, stream, seq)

    def add_entries(self, head: HeadRow, drafts: Sequence[Draft]) -> None:
        """Chain these to the end of a stream."""
        author = self._author_number()
        entries = self._entries
        seq, previous, epoch, stream = head.seq, head.hash, head.epoch, head.id
        start = header_start(head.name, self.node)
        at: int | None = None
        for payload, digest, kind, at in drafts:
            seq += 1
            previous = chain_hash(previous, header(start, seq, epoch, kind, at), digest)
            entries += (stream, seq, epoch, kind, VERSION, at, author, payload, previous)
            if b'"blob":"' in payload:
                self._blob_refs += [(name, stream) for name in named_blobs(payload)]
            if kind == _ENDING:
                head.ended = 1
                head.owner = ""  # nothing is left to be led
                self.ended.append(head.name)
        if head.began_at is None:
            head.began_at = drafts[0][3]
        head.seq, head.hash, head.changed_at = seq, previous, at

    def adopt_rows(self, head: HeadRow, rows: Sequence[StoredRow]) -> None:
        """Put rows that other nodes wrote, in another journal, at the end of a stream."""
        numbers = {row.author: 0 for row in rows}
        for author in numbers:
            numbers[author] = self._number_of(author)
        for row in rows:
            self._entries += (head.id, row.seq, row.epoch, row.kind, row.version, row.at)
            self._entries += (numbers[row.author], row.payload, row.hash)
            self._blob_refs += [(name, head.id) for name in named_blobs(row.payload)]
        advance(head, rows)
        self.change(head)

    def index_note(self, facets: Sequence[object], ranks: Sequence[object]) -> None:
        """Let a note be found by these rows of `facets` and `ranks`, their columns in a row."""
        self._facets += facets
        self._ranks += ranks
        self._notes += 1

    def _author_number(self) -> int:
        if self.author is None:
            self.author = self._number_of(self.node)
        return self.author

    def _number_of(self, author: str) -> int:
        execute = self.connection.execute
        found = execute(SQL["author"], (author,)).get
        return int(execute(SQL["add_author"], (author,)).get if found is None else found)

    def flush(self) -> None:
        """Write all that was entered so far, so that SQL can see it."""
        execute = self.connection.execute
        self._bulk("add_entry", self._entries)
        self._entries = []
        heads: list[object] = []
        for head in self._changed.values():
            fields = astuple(head)
            kept = seal(*fields)
            heads += (*fields, kept)
            self._seals.append(kept)
        self._bulk("put_head", heads)
        self._changed = {}
        if self._streams is not None:
            execute(SQL["put_meta"], (self._streams, "streams"))
        for (scope, name), used in self._keys.items():
            kept = seal(scope, name, *used)
            execute(SQL["add_key"], (scope, name, *used, kept))
            self._seals.append(kept)
        self._keys = {}
        for mail in self._taken:
            execute(SQL["take_mail"], (mail,))
        self._taken = set()
        if self._blob_refs:
            self.connection.executemany(SQL["add_blob_ref"], self._blob_refs)
            self._blob_refs = []
        if self._facets:
            # Many notes go to their places at once; few are moved there together with others.
            where = "" if self._notes >= MANY_NOTES else "fresh_"
            self._bulk(f"add_{where}facet", self._facets)
            self._bulk(f"add_{where}rank", self._ranks)
            self._facets, self._ranks, self._notes = [], [], 0

    def write(self) -> None:
        """Write all that was entered, under the next commit number of the journal."""
        self.flush()
        if not self._seals:
            return
        execute = self.connection.execute
        last, previous = execute(SQL["last_commit"]).fetchone() or (0, GENESIS)
        number = last + 1
        sealed = b"".join((previous, number.to_bytes(8, "big"), *self._seals))
        self.commit = (number, hashlib.blake2b(sealed, digest_size=16).digest())
        execute(SQL["add_commit"], self.commit)
        if number % 1024 == 0:
            execute(SQL["prune_commits"], (number - KEPT_COMMITS,))

    def tell_committed(self) -> None:
        """It is durable now."""
        for callback in self._callbacks:
            callback()

    def tell_undone(self) -> None:
        """Nothing of it is kept."""
        for callback in self._undoing:
            callback()

    def _bulk(self, query: str, values: list[Any]) -> None:
        done = 0
        for size, statement in BULK_INSERTS[query]:
            while len(values) - done >= size:
                self.connection.execute(statement, values[done : done + size])
                done += size


class Append(Struct, frozen=True):
    """A request to append, entered into a sheet by the writer."""

    stream: str
    drafts: list[Draft]
    epoch: int | None
    key: Key | None
    taking: tuple[int, ...]

    def __call__(self, sheet: Transaction) -> Position:
        # The key comes first: a repeated request gets its first answer, whoever leads by now.
        if self.key is not None and (known := sheet.find_key(self.key)) is not None:
            return known
        head = sheet.head(self.stream)
        if head is not None and head.forgotten:
            raise UnknownRun(self.stream, FORGOTTEN)
        if self.epoch is not None:
            check_leads(head, sheet.node, self.stream, self.epoch)
        for mail in self.taking:
            sheet.check_unread(mail)
        if head is None:
            head = sheet.new_head(self.stream)
        if self.drafts:
            sheet.add_entries(head, self.drafts)
            sheet.change(head)
        for mail in self.taking:
            sheet.take_mail(mail)
        if self.key is not None:
            sheet.add_key(self.key, self.stream, head.seq)
        return Position(self.stream, head.seq)


def check_leads(head: HeadRow | None, node: str, stream: str, epoch: int) -> None:
    """Raise `NotLeading` unless this node leads the stream of this head in this epoch."""
    if head is None:
        raise NotLeading(f"run {stream!r} is led by nobody; lead it before appending to it")
    if head.epoch != epoch or head.owner != node:
        holder = f"node {head.owner}" if head.owner else "nobody"
        raise NotLeading(
            f"run {stream!r} is led by {holder} in epoch {head.epoch}, and no longer in epoch "
            f"{epoch}; stop working on it here, or lead it again"
        )
