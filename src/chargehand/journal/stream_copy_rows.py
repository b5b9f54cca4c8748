"""Copies of streams: rows exactly as they are stored, checked on the way out and on the way in."""

from datetime import datetime

import msgspec
from msgspec import Struct

from chargehand.errors import JournalDamaged, RunDiffers
from chargehand.facts.events import VERSION
from chargehand.journal.base import GENESIS, Entry, StoredKey, StoredRow, StreamCopy
from chargehand.journal.hash_chain import entry_hash, microseconds


class StoredPayload(Struct, frozen=True):
    """What stands in the place of an event that is not decoded."""

    payload: bytes
    version: int


class _Stub(Struct):
    kind: str
    at: datetime


_stub = msgspec.json.Decoder(_Stub)


def undecoded(payload: bytes, version: int = VERSION) -> StoredPayload:
    """A decoder that leaves the bytes as they are."""
    return StoredPayload(payload, version)


def stored_row(entry: Entry) -> StoredRow:
    """The row that was read as this entry, whose event was left undecoded."""
    raw: StoredPayload = entry.event  # type: ignore[assignment]  # by `undecoded`
    try:
        stub = _stub.decode(raw.payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise JournalDamaged(
            f"event {entry.seq} of stream {entry.stream!r} cannot be read: {error}"
        ) from error
    return StoredRow(
        seq=entry.seq,
        epoch=entry.epoch,
        kind=stub.kind,
        version=raw.version,
        at=microseconds(stub.at),
        author=entry.author,
        payload=raw.payload,
        hash=entry.hash,
    )


def check_chain(copy: StreamCopy, place: str) -> None:
    """Raise `JournalDamaged` unless these rows are a whole stream, each chained to the one before."""
    previous, epoch = GENESIS, 0
    for number, row in enumerate(copy.rows, 1):
        fields = (row.seq, row.epoch, row.kind, row.version, row.at, row.author, row.payload)
        is_whole = (
            row.seq == number
            and row.epoch >= epoch
            and row.hash == entry_hash(previous, copy.stream, row.author, fields)
        )
        if not is_whole:
            raise JournalDamaged(
                f"{place} is damaged: event {number} of stream {copy.stream!r} was changed, or is missing; "
                "nothing of it was taken: get a whole copy"
            )
        previous, epoch = row.hash, row.epoch


def rows_to_restore(copy: StreamCopy, seq: int, last: bytes, place: str) -> list[StoredRow]:
    """All rows, if the copy is the stream that retention deleted: it had `seq` events, the last with this hash.

    Raises `RunDiffers` for other contents: what retention kept of a stream tells its copy from a forged one.
    """
    if len(copy.rows) != seq or (seq and copy.rows[-1].hash != last):
        fact = f"it had {seq} events when retention deleted it, and the copy has others"
        raise RunDiffers(copy.stream, place, fact)
    return copy.rows


def keys_to_add(copy: StreamCopy, seq: int) -> list[StoredKey]:
    """The keys of entries that come with a copy; the journal knows those of the first `seq` itself."""
    return [each for each in copy.keys if each.seq > seq]


def rows_to_add(copy: StreamCopy, seq: int, common: bytes | None, place: str) -> list[StoredRow]:
    """The rows of a copy that a journal lacks which has the stream up to the number `seq`.

    `common` is the hash there of the last event that both could have. Raises `RunDiffers` for other contents.
    """
    shared = min(seq, len(copy.rows))
    if shared and copy.rows[shared - 1].hash != common:
        raise RunDiffers(copy.stream, place, f"the first {shared} are not the same")
    return copy.rows[shared:]
