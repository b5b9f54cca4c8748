"""Which supervisor of this process leads which stream: several may share one journal object."""

import weakref
from typing import Protocol

from chargehand.errors import NotLeading


class StreamOwner(Protocol):
    """A supervisor at work."""

    @property
    def is_gone(self) -> bool:
        """Whether it does nothing any more, so that what it led is free."""


class StreamOwners:
    """Streams that this node leads, each with the supervisor that leads it.

    A supervisor that ended without a word (its event loop was closed, say) holds nothing: only weak
    references are kept, and `is_gone` is asked each time.
    """

    def __init__(self) -> None:
        self._held: dict[str, weakref.ref[StreamOwner] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def check(self, stream: str, holder: StreamOwner | None) -> None:
        """Raise `NotLeading` while another supervisor on this journal object leads the stream."""
        known = self._held.get(stream)
        other = None if known is None else known()
        if other is not None and other is not holder and not other.is_gone:
            raise NotLeading(
                f"run {stream!r} is led by another supervisor in this process; "
                "wait for it there, or let that supervisor stop first"
            )

    def add(self, stream: str, holder: StreamOwner | None) -> None:
        self._held[stream] = None if holder is None else weakref.ref(holder)

    def drop(self, stream: str) -> None:
        self._held.pop(stream, None)
