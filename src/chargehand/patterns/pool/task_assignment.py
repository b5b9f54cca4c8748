"""Sharing out: which worker of a pool gets which of the tasks of a request."""

from collections.abc import Iterable, Mapping, Sequence
from reprlib import repr as repr_of
from typing import TypeAlias

from chargehand.decisions.dispatch import Balance
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks

Available: TypeAlias = "Sequence[str | tuple[str, float]]"
"""Workers by name, or each with how much it can hold."""

MOST = 1e9
_WAY_OUT = "give a list of names, or of pairs (name, capacity)"


def capacities_of(available: Available) -> dict[str, float]:
    """How much each worker can hold; 1 where nothing is said. Raises `UsageError` for a broken list."""
    if isinstance(available, str) or not isinstance(available, Iterable):
        raise UsageError(f"available_workers={repr_of(available)} is no list; {_WAY_OUT}")
    capacities: dict[str, float] = {}
    for each in available:
        name, capacity = _pair(each)
        if name in capacities:
            raise UsageError(f"worker {name!r} is twice among the available workers; name it once")
        capacities[name] = capacity
    if not capacities:
        raise UsageError(f"available_workers={repr_of(available)} names nobody; {_WAY_OUT}")
    return capacities


def share_out(
    count: int, capacities: Mapping[str, float], balance: Balance, busy: Mapping[str, int]
) -> list[str]:
    """Whose each of so many tasks is, in their order.

    Round robin goes by turns; where capacities differ, each comes up as often as its capacity says,
    and evenly spread. Least busy counts what each has already, `busy`, against its capacity.
    """
    if balance is Balance.LEAST_BUSY:
        return _by_load(count, capacities, busy)
    return _by_turns(count, capacities)


def _by_turns(count: int, capacities: Mapping[str, float]) -> list[str]:
    total = sum(capacities.values())
    credit = dict.fromkeys(capacities, 0.0)
    turns: list[str] = []
    for _ in range(count):
        for name, capacity in capacities.items():
            credit[name] += capacity
        chosen = max(credit, key=credit.__getitem__)  # of equals, the first named
        credit[chosen] -= total
        turns.append(chosen)
    return turns


def _by_load(count: int, capacities: Mapping[str, float], busy: Mapping[str, int]) -> list[str]:
    load = {name: busy.get(name, 0) for name in capacities}
    chosen: list[str] = []
    for _ in range(count):
        name = min(load, key=lambda each: (load[each] + 1) / capacities[each])
        load[name] += 1
        chosen.append(name)
    return chosen


def _pair(each: object) -> tuple[str, float]:
    given, holds = (each, 1.0) if isinstance(each, str) else _halves(each)
    name = checks.name(given, "available_workers: a name")
    capacity = checks.amount(holds, f"available_workers: what {name!r} can hold", most=MOST)
    if not capacity:
        raise UsageError(f"worker {name!r} can hold 0; give a number above 0, or leave it out")
    return name, capacity


def _halves(each: object) -> tuple[object, object]:
    if not isinstance(each, (tuple, list)) or len(each) != 2:
        raise UsageError(f"available_workers: {repr_of(each)} names no worker; {_WAY_OUT}")
    return each[0], each[1]
