"""Preemption: which attempts are to give way, where more urgent offers find no place."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

#: that one task gives way; then it may finish, however urgent others are
MOST_TIMES = 3


class Holding(Struct, eq=False, gc=False):
    """A place that is taken."""

    run: str
    task: str
    attempt: int
    worker: str
    #: as in `Rank`: the smaller, the more urgent; without what waiting adds to it
    urgency: int
    #: in the order of starts
    number: int
    #: that its task gave way before
    times: int = 0
    #: told to stop at its next safe point
    gives_way: bool = False


class Want(Struct, frozen=True, gc=False):
    """An offer that waits for a place."""

    task: str
    urgency: int
    #: what it calls for
    target: str
    #: whether the place that this worker's attempt would free is one that the offer can have
    serves: Callable[[str], bool]


def givers(wants: Iterable[Want], holdings: Sequence[Holding]) -> list[tuple[Holding, Want]]:
    """Who gives way to whom: for the most urgent first, the least urgent and newest of those that can help.

    A place that is about to be freed already is promised to the most urgent offer that can have it.
    """
    promised = [each for each in holdings if each.gives_way]
    left = sorted(
        (each for each in holdings if not each.gives_way and each.times < MOST_TIMES),
        key=lambda each: (-each.urgency, -each.number),
    )
    pairs: list[tuple[Holding, Want]] = []
    for want in wants:
        coming = next((each for each in promised if want.serves(each.worker)), None)
        if coming is not None:
            promised.remove(coming)
            continue
        found = next((each for each in left if _gives(each, want)), None)
        if found is not None:
            left.remove(found)
            pairs.append((found, want))
    return pairs


def _gives(holding: Holding, want: Want) -> bool:
    return holding.urgency > want.urgency and want.serves(holding.worker)
