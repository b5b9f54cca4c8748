"""Which supervisor of this process leads which stream: several may share one journal object."""

import weakref
from typing import Protocol, TypeAlias

from chargehand.errors import NotLeading


class StreamOwner(Protocol):
    """A supervisor at work."""

    @property
    def is_gone(self) -> bool:
        """Whether it does nothing any more, so that what it led is free."""


StreamOwners: TypeAlias = "dict[str, weakref.ref[StreamOwner] | None]"
"""Streams that this node leads, each with the supervisor that leads it, if it is known.

A supervisor that ended without a word (its event loop was closed, say) holds nothing: only weak
references are kept, and `is_gone` is asked each time.
"""


def refuse_second_owner(owners: StreamOwners, stream: str, holder: StreamOwner | None) -> None:
    """Raise `NotLeading` while another supervisor on this journal object leads the stream."""
    known = owners.get(stream)
    other = None if known is None else known()
    if other is not None and other is not holder and not other.is_gone:
        raise NotLeading(
            f"run {stream!r} is led by another supervisor in this process; "
            "wait for it there, or let that supervisor stop first"
        )
