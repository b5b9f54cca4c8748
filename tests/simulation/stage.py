"""What the parts of a trial share: chance, the journal, the observer, and a clock to wait by."""

from collections.abc import Callable
from heapq import heappop, heappush

from tests.simulation.faults import Dice
from tests.simulation.ledger import Ledger
from tests.simulation.observer import Observer
from tests.simulation.scenario import Crew


class Stage:
    """One virtual clock; everything that happens is something that was put off until then."""

    def __init__(self, dice: Dice, ledger: Ledger, observer: Observer, crew: Crew) -> None:
        self.dice = dice
        self.ledger = ledger
        self.observer = observer
        self.crew = crew
        #: microseconds since the start, by the one true clock
        self.now = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def later(self, delay: int, do: Callable[[], None]) -> None:
        """Do something after so many microseconds."""
        self._count += 1
        heappush(self._waiting, (self.now + delay, self._count, do))

    def step(self) -> bool:
        """Do what is next; False if there is nothing."""
        if not self._waiting:
            return False
        self.now, _, do = heappop(self._waiting)
        do()
        return True
