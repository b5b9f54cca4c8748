"""Intervals against tables, against their definitions, and by how often they hold the truth."""

import math
import random

import pytest

from chargehand.evaluation.html_report import shown
from chargehand.evaluation.intervals import (
    Z,
    amount,
    paired_shares,
    student,
    t_quantile,
    t_within,
    wilson,
)


@pytest.mark.parametrize(
    ("degrees", "published"),
    [
        (1, 12.706),
        (2, 4.303),
        (3, 3.182),
        (4, 2.776),
        (5, 2.571),
        (10, 2.228),
        (30, 2.042),
        (100, 1.984),
    ],
)
def test_the_points_of_student_are_those_of_the_printed_tables(
    degrees: int, published: float
) -> None:
    assert t_quantile(degrees) == pytest.approx(published, abs=6e-4)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 12, 41])
def test_the_finite_sum_is_the_area_under_students_density(degrees: int) -> None:
    log_scale = (
        math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    )

    def density(x: float) -> float:
        return math.exp(log_scale - (degrees + 1) / 2 * math.log1p(x * x / degrees))

    for t in (0.1, 1.0, 2.5, 6.0):
        steps = 2000
        width = 2 * t / steps
        ends = density(-t) + density(t)
        inner = sum((4 if k % 2 else 2) * density(-t + k * width) for k in range(1, steps))
        assert t_within(t, degrees) == pytest.approx((ends + inner) * width / 3, abs=1e-9)


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (1, 10), (5, 10), (7, 9), (20, 20)])
def test_wilsons_bounds_are_the_shares_that_lie_z_errors_from_the_estimate(
    hits: int, n: int
) -> None:
    found = wilson([1.0] * hits + [0.0] * (n - hits))
    assert found.low is not None
    assert found.high is not None
    for bound in (found.low, found.high):
        if 0 < bound < 1:
            error = math.sqrt(bound * (1 - bound) / n)
            assert abs(hits / n - bound) == pytest.approx(Z * error)
    # Newcombe (1998), table I: 15 of 148
    assert wilson([1.0] * 15 + [0.0] * 133).low == pytest.approx(0.0624, abs=1e-4)
    assert wilson([1.0] * 15 + [0.0] * 133).high == pytest.approx(0.1605, abs=1e-4)


def test_students_interval_of_a_worked_example() -> None:
    found = student([9.0, 10.0, 11.0, 12.0, 13.0])  # sd 1.5811, t 2.776, so ± 1.963
    assert found.value == 11.0
    assert found.low == pytest.approx(9.0368, abs=1e-3)
    assert found.high == pytest.approx(12.9632, abs=1e-3)


def test_a_single_value_has_no_interval() -> None:
    assert student([3.0]).low is None
    assert not student([3.0]).excludes_zero


@pytest.mark.parametrize("values", [[0.0, 22.0], [1.0, 0.0], [0.0, 0.0], [1e-9, 5.0, 0.0]])
def test_an_amount_is_never_below_zero(values: list[float]) -> None:
    found, plain = amount(values), student(values)
    assert found.low == 0
    assert (found.value, found.high) == (plain.value, plain.high)
    assert amount([3.0]).low is None
    assert amount([9.0, 10.0, 11.0]) == student([9.0, 10.0, 11.0])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 22.0], "11 (0 – 151, from 2 cases)"),
        ([10.0, 11.0, 12.0], "11 (8.52 – 13.5)"),
        ([11.0], "11"),
    ],
)
def test_an_interval_of_few_cases_says_so(values: list[float], words: str) -> None:
    assert shown(amount(values)) == words
    assert shown(wilson([1.0])) == "1 (0.207 – 1, from 1 case)"


def test_pairs_without_a_difference_are_no_certainty() -> None:
    found = paired_shares([0.0] * 10)
    assert found.value == 0
    assert found.low is not None
    assert found.low < -0.1
    assert not found.excludes_zero


def test_pairs_that_all_differ_show_a_difference() -> None:
    assert paired_shares([1.0] * 10).excludes_zero


def coverage(draw: random.Random, kind: str, n: int, p: float) -> float:
    """How often the interval holds the truth, of 1,500 made-up evaluations."""
    held = 0
    for _ in range(1500):
        if kind == "share":
            found, truth = wilson([float(draw.random() < p) for _ in range(n)]), p
        elif kind == "mean":
            found, truth = student([draw.gauss(3, 2) for _ in range(n)]), 3.0
        else:
            pairs = [float(draw.random() < p) - float(draw.random() < 0.5) for _ in range(n)]
            found, truth = paired_shares(pairs), p - 0.5
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    return held / 1500


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n", [10, 40])
@pytest.mark.parametrize("kind", ["share", "mean", "pair"])
def test_an_interval_holds_the_truth_as_often_as_it_says(kind: str, n: int, p: float) -> None:
    found = coverage(random.Random(f"{kind} {n} {p}"), kind, n, p)
    assert 0.92 <= found <= 0.99
