"""The smallest comes out first, however the others came in."""

from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.ready_queue import FEW, Queue

crowds = st.lists(
    st.tuples(st.lists(st.integers(), max_size=3 * FEW), st.integers(0, 2 * FEW)), max_size=8
)


@given(crowds)
def test_the_smallest_is_taken_first(crowds: list[tuple[list[int], int]]) -> None:
    """Crowds come in, some are taken off, more come in: the order is that of sorting."""
    queue: Queue[tuple[int, int]] = Queue()
    waiting: list[tuple[int, int]] = []
    number = 0
    for crowd, taken in crowds:
        for rank in crowd:
            number += 1
            queue.push((rank, number))
            waiting.append((rank, number))
        waiting.sort()
        for _ in range(min(taken, len(waiting))):
            assert queue.head() == waiting[0]
            assert queue.pop() == waiting.pop(0)
        assert bool(queue) == bool(waiting)
    assert [queue.pop() for _ in waiting] == waiting
    assert queue.head() is None


def test_what_is_looked_at_stays() -> None:
    queue: Queue[int] = Queue()
    for rank in range(2 * FEW, 0, -1):
        queue.push(rank)
    assert queue.head() == queue.head() == 1
    queue.push(0)
    assert [queue.pop(), queue.pop(), queue.pop()] == [0, 1, 2]
