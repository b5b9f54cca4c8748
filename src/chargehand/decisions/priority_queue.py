"""A queue by rank that stays cheap when a hundred thousand come in at once."""

from heapq import heappop, heappush, nsmallest
from typing import Generic, Protocol, Self, TypeVar

#: latecomers that are not worth sorting in
FEW = 32


class Ranked(Protocol):
    """What can be put in order; no two of them may be equal."""

    def __lt__(self, other: Self, /) -> bool: ...


T = TypeVar("T", bound=Ranked)


class Queue(Generic[T]):
    """Hands out the smallest first.

    What comes in as a crowd is sorted once and then taken off the end; only latecomers lie in a
    heap. A heap alone walks from its root to a leaf for every one that is taken, and in a large one
    each step of that walk misses the processor's cache.
    """

    __slots__ = ("_late", "_sorted")

    def __init__(self) -> None:
        #: the smallest last
        self._sorted: list[T] = []
        #: what came since, as a heap
        self._late: list[T] = []

    def __bool__(self) -> bool:
        return bool(self._sorted or self._late)

    def __len__(self) -> int:
        return len(self._sorted) + len(self._late)

    def push(self, item: T) -> None:
        heappush(self._late, item)

    def head(self) -> T | None:
        """The smallest, which stays; None if there is nothing."""
        late, ordered = self._late, self._sorted
        if not late:
            return ordered[-1] if ordered else None
        if len(late) > FEW and len(late) > len(ordered):
            # Sorting in no fewer than lie there already costs each item a constant number of moves.
            ordered += late
            ordered.sort(reverse=True)
            late.clear()
            return ordered[-1]
        if ordered and ordered[-1] < late[0]:
            return ordered[-1]
        return late[0]

    def first(self, count: int) -> list[T]:
        """The smallest so many, in order; they stay."""
        return nsmallest(count, (*self._sorted[-count:], *self._late))

    def all(self) -> list[T]:
        """Everything, in no order; it stays."""
        return [*self._sorted, *self._late]

    def pop(self) -> T:
        """The smallest, which is taken off."""
        late, ordered = self._late, self._sorted
        if ordered and not (late and late[0] < ordered[-1]):
            return ordered.pop()
        return heappop(late)
