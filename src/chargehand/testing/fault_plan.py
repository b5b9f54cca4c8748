"""Plans of faults in model calls: by number of the call, in the first calls, or at random with a seed."""

import random
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import amount, count, shown

#: the faults of a model call, and what each of them simulates
FAULTS = {
    "429": "the provider is rate limited and asks to wait a moment",
    "500": "the provider has an internal error",
    "timeout": "no answer comes",
    "cut stream": "the answer breaks off in the middle",
    "bad json": "the model answers, but its JSON or its tool arguments are broken",
    "garbage": "something answers that is no model, such as a proxy's error page",
}

#: the fault of each call, by its number from 1; calls without a fault are answered
FaultPlan: TypeAlias = Mapping[int, str] | Callable[[int], str | None]


def first(calls: int, *faults: str) -> FaultPlan:
    """Make the first `calls` calls fail with these faults, in turn."""
    count(calls, "first: calls", least=1)
    kinds = [fault_kind(each) for each in faults]
    if not kinds:
        raise UsageError(f"first({calls}) names no fault; give some of {_KNOWN}")
    return {number: kinds[(number - 1) % len(kinds)] for number in range(1, calls + 1)}


def at_random(*faults: str, rate: float = 0.3, seed: int = 0) -> FaultPlan:
    """Make a share of all calls fail at random with these faults (default: all); a seed gives the same faults again."""
    kinds = [fault_kind(each) for each in faults or FAULTS]
    amount(rate, "at_random: rate", most=1)

    def fault_of(number: int) -> str | None:
        draw = random.Random(f"{seed} {number}")  # noqa: S311 - repeatable, not secret
        return draw.choice(kinds) if draw.random() < rate else None

    return fault_of


class FaultSchedule:
    """Counts calls and gives the fault of each."""

    def __init__(self, faults: FaultPlan) -> None:
        if not callable(faults):
            if not isinstance(faults, Mapping):
                raise UsageError(
                    f"faults={shown(faults)} is not a plan of faults; give {{1: '429'}}, first(3, '429') or "
                    "at_random(…)"
                )
            for number, kind in faults.items():
                count(number, "faults: the number of a call", least=1)
                fault_kind(kind)
        self._faults = faults
        #: number of calls so far
        self.calls = 0
        #: faults so far, by the number of the call
        self.struck: dict[int, str] = {}

    def next_fault(self) -> str | None:
        """Count a call and return its fault; None if it has none."""
        self.calls += 1
        number, plan = self.calls, self._faults
        kind = plan(number) if callable(plan) else plan.get(number)
        if kind is not None:
            self.struck[number] = fault_kind(kind)
        return kind


def fault_kind(kind: str) -> str:
    """Return the name of a fault. Raises `UsageError`, which lists all faults, if the name is unknown."""
    if kind in FAULTS:
        return kind
    near = get_close_matches(str(kind), FAULTS, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UsageError(f"{shown(kind)} is not a fault of a model call{hint} There are {_KNOWN}")


def broken_json(text: str) -> str:
    """A text that looks like JSON but is not valid."""
    return '{"' + text[: max(len(text) // 2, 1)].lstrip('{["')


_KNOWN = ", ".join(repr(kind) for kind in FAULTS)
