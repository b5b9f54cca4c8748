"""95 % confidence intervals: Wilson for shares, Student for means, Agresti and Min for paired shares.

One case is one observation: the repeats of a case are averaged first, because they are not independent.
"""

import math
from collections.abc import Sequence

from msgspec import Struct, structs

#: the 97.5 % quantile of the normal distribution: 95 % of the values lie between -Z and Z
Z = 1.959963984540054
COVERAGE = 0.95


class Interval(Struct, frozen=True):
    """An estimate, and the bounds that contain the true value in 95 of 100 evaluations."""

    value: float
    #: None if there are too few observations
    low: float | None
    high: float | None
    #: number of observations, which are cases
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is statistically significant: larger than chance explains."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def wilson(shares: Sequence[float]) -> Interval:
    """The mean of shares between 0 and 1, one per case, with Wilson's score interval."""
    n = len(shares)
    p = math.fsum(shares) / n
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return Interval(p, max(middle - half, 0.0), min(middle + half, 1.0), n)


def student(values: Sequence[float]) -> Interval:
    """The mean with Student's interval; without bounds for a single value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(mean, None, None, n)
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in values) / (n - 1))
    half = t_quantile(n - 1) * deviation / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def amount(values: Sequence[float]) -> Interval:
    """The mean of calls, tokens, dollars or seconds with Student's interval, cut off at 0.

    The true value is never below 0, so the cut interval contains it just as often.
    """
    found = student(values)
    return found if found.low is None else structs.replace(found, low=max(found.low, 0.0))


def paired_shares(differences: Sequence[float]) -> Interval:
    """The mean difference of two shares over the same cases, with the interval of Agresti and Min.

    The method adds half an observation to each of the four outcomes of a pair, so that ten pairs without a difference
    do not give an interval of width 0.
    """
    n = len(differences)
    better = math.fsum(each for each in differences if each > 0) + 0.5
    worse = -math.fsum(each for each in differences if each < 0) + 0.5
    middle = (better - worse) / (n + 2)
    half = Z * math.sqrt(better + worse - (better - worse) ** 2 / (n + 2)) / (n + 2)
    value = math.fsum(differences) / n
    return Interval(value, max(middle - half, -1.0), min(middle + half, 1.0), n)


def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's distribution, by bisection."""
    low, high = 0.0, 1.0
    while t_within(high, degrees) < COVERAGE:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_within(middle, degrees) < COVERAGE else (low, middle)
    return high


def t_within(t: float, degrees: int) -> float:
    """The probability that Student's t is between -t and t; a finite sum, because the degrees of freedom are whole."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = degrees % 2
    term = cosine if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if is_odd else 2, degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if is_odd else sine * total
