"""Preemption: which attempts are stopped for more urgent offers that find no free slot."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

#: how often one task is preempted; then it may finish, however urgent other tasks are
MOST_TIMES = 3


class Holding(Struct, eq=False, gc=False):
    """A taken slot."""

    run: str
    task: str
    attempt: int
    worker: str
    #: as in `Rank`, smaller is more urgent; without what waiting adds
    urgency: int
    #: number of the start, over all attempts of the pool
    number: int
    #: how often its task was preempted before
    times: int = 0
    #: it was told to stop at its next safe point
    gives_way: bool = False


class Want(Struct, frozen=True, gc=False):
    """An offer that waits for a slot."""

    task: str
    urgency: int
    #: the worker or skill that it asks for
    target: str
    #: whether the offer can use the slot of an attempt of this worker
    serves: Callable[[str], bool]


def givers(wants: Iterable[Want], holdings: Sequence[Holding]) -> list[tuple[Holding, Want]]:
    """Which attempt to preempt for which offer: for each offer, the least urgent and newest that helps it.

    The most urgent offer that can use it gets a slot that is about to be freed already.
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
