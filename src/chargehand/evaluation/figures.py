"""The figures of an evaluation: metrics with their intervals, differences between crews, and the gate."""

from collections.abc import Callable, Iterable, Sequence
from typing import get_args

import msgspec
from msgspec import Struct

from chargehand.errors import UsageError
from chargehand.evaluation.case_runs import CaseResult
from chargehand.evaluation.intervals import Interval, amount, paired_shares, student, wilson
from chargehand.evaluation.suite_file import Bound, Metric

METRICS: tuple[Metric, ...] = get_args(Metric)
#: titles of the metrics in reports
TITLES: dict[Metric, str] = {
    "accepted_first": "plans accepted at the first try",
    "accepted": "plans accepted at all",
    "node_f1": "node F1",
    "edge_f1": "edge F1",
    "routing": "routed to the right workers",
    "isolation": "only allowed tools called",
    "right": "answers right",
    "calls": "model calls",
    "prompt_tokens": "prompt tokens",
    "cost": "dollars",
    "seconds": "model seconds",
}
#: metrics between 0 and 1; for such values, F1 included, Wilson's interval is never too narrow
SHARES = frozenset(METRICS) - {"calls", "prompt_tokens", "cost", "seconds"}
FORMAT, VERSION = "chargehand-evaluation", 1


class CrewFigures(Struct, frozen=True):
    """All figures of one crew with one model."""

    crew: str
    model: str
    #: only metrics that a case measures
    figures: dict[Metric, Interval]

    @property
    def name(self) -> str:
        return f"{self.crew} · {self.model}" if self.model else self.crew


class Comparison(Struct, frozen=True):
    """The differences between two crews, second minus first, over the cases that both have run."""

    first: str
    second: str
    differences: dict[Metric, Interval]


class GateMiss(Struct, frozen=True):
    """A metric outside its bounds."""

    crew: str
    metric: Metric
    #: None if nothing measures the metric
    value: float | None
    bound: Bound

    def __str__(self) -> str:
        if self.value is None and self.metric == "cost":
            return (
                f"{self.crew}: cost is in the gate, and no price list knows a model that was asked"
            )
        if self.value is None:
            return f"{self.crew}: {self.metric} is in the gate, and no case measures it"
        is_low = self.bound.min is not None and self.value < self.bound.min
        words = f"below {self.bound.min:g}" if is_low else f"above {self.bound.max:g}"
        return f"{self.crew}: {self.metric} is {self.value:.3g}, {words}"


class Result(Struct, frozen=True, kw_only=True):
    """The result of an evaluation. `to_json` and `Result.from_json` save and load it for a later comparison."""

    format: str = FORMAT
    version: int = VERSION
    suite: str
    note: str = ""
    crews: list[CrewFigures]
    comparisons: list[Comparison]
    misses: list[GateMiss]
    cases: list[CaseResult]

    @property
    def passes(self) -> bool:
        """Whether all metrics are within the bounds of the gate."""
        return not self.misses

    def figure(self, metric: Metric, crew: str = "", model: str = "") -> Interval:
        """The figure of a metric, for the first crew that matches `crew` and `model`; empty matches all."""
        for each in self.crews:
            if crew in ("", each.crew) and model in ("", each.model) and metric in each.figures:
                return each.figures[metric]
        raise UsageError(f"{self.suite}: nothing measures {metric} of {crew or 'any crew'}")

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self), indent=1).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, origin: str = "the report") -> "Result":
        """Read a result that `to_json` wrote. Raises `UsageError` for anything else."""
        try:
            found = msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{origin} is not a report of chargehand eval --json: {error}"
            ) from None
        if found.format != FORMAT or found.version > VERSION:
            raise UsageError(f"{origin} was written by a newer chargehand; update this one")
        return found


def result_of(
    suite: str, note: str, cases: Sequence[CaseResult], gate: dict[Metric, Bound]
) -> Result:
    """All figures of these cases. Compares the first crew with all others, and each pair of crews with one model."""
    groups = _grouped(cases)
    crews = [_figures_of(group) for group in groups]
    comparisons = [
        compared(first, second)
        for number, first in enumerate(groups)
        for second in groups[number + 1 :]
        if number == 0 or first[0].model == second[0].model
    ]
    misses = [
        miss
        for crew in crews
        for metric, bound in gate.items()
        for miss in _miss(crew, metric, bound)
    ]
    return Result(
        suite=suite,
        note=note,
        crews=crews,
        comparisons=comparisons,
        misses=misses,
        cases=list(cases),
    )


def compare(earlier: Result, later: Result) -> list[Comparison]:
    """The changes since an earlier result, for crews with the same name and model."""
    before = {(each[0].crew, each[0].model): each for each in _grouped(earlier.cases)}
    found = []
    for group in _grouped(later.cases):
        old = before.get((group[0].crew, group[0].model))
        if old is not None:
            found.append(msgspec.structs.replace(compared(old, group), first="before"))
    if not found:
        raise UsageError("the two results have no crew of the same name and model to compare")
    return found


def compared(first: Sequence[CaseResult], second: Sequence[CaseResult]) -> Comparison:
    """The differences between two crews, second minus first, case by case."""
    differences: dict[Metric, Interval] = {}
    for metric in METRICS:
        one, other = _by_case(first, metric), _by_case(second, metric)
        pairs = [other[case] - value for case, value in one.items() if case in other]
        if pairs:
            differences[metric] = (paired_shares if metric in SHARES else student)(pairs)
    return Comparison(_name(first[0]), _name(second[0]), differences)


def _figures_of(group: Sequence[CaseResult]) -> CrewFigures:
    figures = {}
    for metric in METRICS:
        values = list(_by_case(group, metric).values())
        if values:
            kind: Callable[[Sequence[float]], Interval] = wilson if metric in SHARES else amount
            figures[metric] = kind(values)
    return CrewFigures(group[0].crew, group[0].model, figures)


def _by_case(results: Iterable[CaseResult], metric: Metric) -> dict[str, float]:
    """The mean of the repeats of each case that measures this metric.

    If the cost of a case is not known, the result is empty for `cost`: a mean of the other cases would be biased.
    """
    values: dict[str, list[float]] = {}
    for each in results:
        value = getattr(each, metric)
        if value is not None:
            values.setdefault(each.case, []).append(float(value))
        elif metric == "cost":
            return {}
    return {case: sum(each) / len(each) for case, each in values.items()}


def _grouped(cases: Sequence[CaseResult]) -> list[list[CaseResult]]:
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for each in cases:
        groups.setdefault((each.crew, each.model), []).append(each)
    return list(groups.values())


def _name(result: CaseResult) -> str:
    return f"{result.crew} · {result.model}" if result.model else result.crew


def _miss(crew: CrewFigures, metric: Metric, bound: Bound) -> list[GateMiss]:
    found = crew.figures.get(metric)
    value = None if found is None else found.value
    is_low = value is not None and bound.min is not None and not value >= bound.min
    is_high = value is not None and bound.max is not None and not value <= bound.max
    is_missed = value is None or is_low or is_high
    return [GateMiss(crew.name, metric, value, bound)] if is_missed else []
