"""Retention: how long finished runs are kept, how many of them, and in how much space."""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import (
    CheckedKeywords,
    Converted,
    SpanOrNone,
    count,
    duration_or_none,
    usually,
)
from chargehand.facts.sizes import size_of

Size: TypeAlias = Converted[int | str | None, int | None]


class Retention(Struct, metaclass=CheckedKeywords, frozen=True, kw_only=True):
    """Which finished runs a journal keeps. A run is deleted if any of the limits excludes it.

    Unfinished runs are always kept, and so are the runs that they need. Nested runs are kept and
    deleted together with the run above them and are not counted.

        Retention(older_than=timedelta(days=30), keep=1000, max_size="2GB")
    """

    #: delete runs that ended longer ago
    older_than: SpanOrNone = usually(None)
    #: keep this many of the newest finished runs
    keep: int | None = None
    #: bytes, or a string such as "2GB": delete the oldest runs until events and blobs fit
    max_size: Size = usually(None)

    def __post_init__(self) -> None:
        older = duration_or_none(self.older_than, "Retention: older_than", may_be_zero=True)
        force_setattr(self, "older_than", older)
        if self.keep is not None:
            force_setattr(self, "keep", count(self.keep, "Retention: keep"))
        given: int | str | None = self.max_size
        size = size_of(given) if isinstance(given, str) else given
        if size is not None:
            force_setattr(self, "max_size", count(size, "Retention: max_size", least=1))
        if self.older_than is None and self.keep is None and self.max_size is None:
            raise UsageError(
                "Retention() would keep everything; give older_than=, keep= or max_size="
            )
