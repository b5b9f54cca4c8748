"""How the hash of an entry is made, the same in every adapter, and how a row is sealed."""

import functools
import hashlib
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from chargehand.errors import NotJSON
from chargehand.facts.events import VERSION, Event, encode

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_lengths = struct.Struct(">II")
_numbers = struct.Struct(">QQHq")
_sealing = msgspec.msgpack.Encoder()

#: an event ready to be chained: its payload, the payload's digest, its kind, its microseconds
Draft = tuple[bytes, bytes, str, int]


def microseconds(at: datetime) -> int:
    """An instant as it is stored: microseconds since 1970."""
    since = at - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def instant(at: int) -> datetime:
    """The instant that was stored as this number."""
    return EPOCH + timedelta(microseconds=at)


def draft(event: Event) -> Draft:
    """All of an entry that does not depend on its place."""
    try:
        payload = encode(event)
    except UnicodeEncodeError as error:
        raise NotJSON(f"{type(event).__name__} holds text that is no Unicode: {error}") from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotJSON(f"{type(event).__name__} holds what JSON cannot hold: {error}") from error
    # `payload_digest` and `microseconds`, written out: this is done for every event.
    since = event.at - EPOCH
    at = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    digest = hashlib.blake2b(payload, digest_size=16).digest()
    return payload, digest, type(event).__name__, at


@functools.lru_cache(256)
def header_start(stream: str, author: str) -> bytes:
    """The part of a header that all entries of one author in one stream share."""
    name, writer = stream.encode(), author.encode()
    # The lengths keep two pairs of names from ever giving the same bytes.
    return _lengths.pack(len(name), len(writer)) + name + writer


def header(start: bytes, seq: int, epoch: int, kind: str, at: int, version: int = VERSION) -> bytes:
    """What the chain holds of an entry beside its payload."""
    return start + _numbers.pack(seq, epoch, version, at) + kind.encode()


def entry_hash(previous: bytes, stream: str, author: str | None, fields: Sequence[Any]) -> bytes:
    """The hash that a stored row must have: over its number, epoch, kind, version, instant and payload."""
    seq, epoch, kind, version, at, _, payload = fields
    over = header(header_start(stream, author or ""), seq, epoch, kind, at, version)
    return chain_hash(previous, over, payload_digest(payload))


def payload_digest(payload: bytes) -> bytes:
    """What the chain holds of a payload, so that the payload itself may be dropped later."""
    return hashlib.blake2b(payload, digest_size=16).digest()


def chain_hash(previous: bytes, header: bytes, digest: bytes) -> bytes:
    """The hash of an entry: over the hash before it, its header and the digest of its payload."""
    return hashlib.blake2b(previous + header + digest, digest_size=16).digest()


def seal(*fields: object) -> bytes:
    """A checksum kept in a row, over the rest of the row, so that a flipped bit in it is found."""
    return hashlib.blake2b(_sealing.encode(fields), digest_size=8).digest()
