"""What came of a trial."""

from collections import Counter
from enum import StrEnum

from msgspec import Struct

from tests.simulation.faults import FaultKind


class Mode(StrEnum):
    """What a trial demands."""

    SAFETY = "safety"  #: faults anywhere, ended at any moment: nothing wrong may ever happen
    LIVENESS = "liveness"  #: after a while all faults heal: then every run must come to an end


class Breach(Struct, frozen=True):
    """An invariant that did not hold."""

    #: the name of the rule that found it; its number is the one in the list of invariants
    invariant: str
    step: int
    complaint: str
    #: what had been journaled just before
    last: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = "".join(f"\n      {line}" for line in self.last)
        return f"step {self.step}: {self.invariant}: {self.complaint}{told}"


class Report(Struct, frozen=True, kw_only=True):
    """One trial. The same seed and options give the same digest, on any machine."""

    seed: int
    mode: Mode
    steps: int
    events: int
    digest: str
    faults: Counter[FaultKind]
    #: runs by how they ended; those that had not are "open" or "parked"
    ended: Counter[str]
    #: what the supervisor began to do itself, by what it was
    system_tasks: Counter[str]
    breaches: tuple[Breach, ...] = ()

    @property
    def is_sound(self) -> bool:
        return not self.breaches

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.mode}: {self.steps} steps, {self.events} events"]
        lines += [f"    {breach}" for breach in self.breaches]
        return "\n".join(lines)
