"""Values too large for an event: stored in blobs, and loaded from them."""

from msgspec import Raw

from chargehand.facts.value import Value
from chargehand.journal.base import Blobs


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
