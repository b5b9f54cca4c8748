"""`calculate`: right by comparison with Python's fractions, and harmless whatever it is given."""

import contextlib
import math
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargehand.tools.base import ToolContext
from chargehand.tools.calculator import NotAnExpression, calculate, evaluate
from chargehand.tools.exact_arithmetic import FUNCTIONS


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("0.1 + 0.2", "0.3"),
        ("1/3", "0.3333333333333333 (exactly 1/3)"),
        ("-2**2", "-4"),
        ("2**-1", "0.5"),
        ("2**3**2", "512"),
        ("2^10", "1024"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("7 % -3", "-2"),
        ("50%", "0.5"),
        ("200 * 10%", "20"),
        ("5% - 2", "-1.95"),
        ("5! / 3!", "20"),
        ("2 × 3 ÷ 4 − 1", "0.5"),
        ("1_000 * 1e3", "1000000"),
        ("sqrt(16)", "4"),
        ("sqrt(2)", "1.4142135623731"),
        ("8 ** (1/3)", "2"),
        ("root(-27, 3)", "-3"),
        ("log(8, 2)", "3"),
        ("log10(1000)", "3"),
        ("ln(e)", "1"),
        ("sin(pi)", "0"),
        ("cos(π)", "-1"),
        ("max(1, 2.5, -3)", "2.5"),
        ("sum([1, 2], 3)", "6"),
        ("mean(1, 2, 3, 4)", "2.5"),
        ("median([5, 1, 3])", "3"),
        ("stdev(2, 4, 4, 4, 5, 5, 7, 9) ** 2 * 7", "32"),
        ("round(2.675, 2)", "2.68"),
        ("comb(50, 25)", "126410606437752"),
        ("gcd(12, 18) + lcm(4, 6)", "18"),
        ("factorial(20)", "2432902008176640000"),
        ("(-1) ** 99999999999", "-1"),
        ("1e-4000", "1e-4000"),
        ("0 ** 0", "1"),
    ],
)
async def test_expressions_have_the_value_that_people_expect(expression: str, shown: str) -> None:
    result = await calculate.call(ToolContext(), f'{{"expression": "{expression}"}}')
    assert result.value == shown


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "a number is missing (at the end)"),
        ("1 +", "a number is missing (at the end)"),
        ("(1 + 2", "')' is missing (at the end)"),
        ("1 + )", "')' is not expected (at character 5"),
        ("2(3)", "an operator is missing before '(' (at character 2"),
        ("2 pi", "write * to multiply"),
        ("1,000", "a comma separates arguments"),
        ("x + 1", "'x' has no value here"),
        ("sqrt", "sqrt needs its arguments in brackets"),
        ("nope(1)", "there is no function 'nope'"),
        ("sqrt(1, 2)", "sqrt takes 1 arguments, not 2"),
        ("1 / 0", "division by zero (at character 3"),
        ("5 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("sqrt(-1)", "no real even root"),
        ("(-8) ** 0.5", "negative number has no real power"),
        ("log(0)", "needs a positive number"),
        ("asin(2)", "no real value"),
        ("factorial(2.5)", "needs whole numbers"),
        ("7%-3", "could mean percent or remainder"),
        ("1 $ 2", "'$' means nothing here (at character 3"),
    ],
)
def test_a_fault_is_told_with_its_place(expression: str, words: str) -> None:
    with pytest.raises(NotAnExpression) as caught:
        evaluate(expression)
    for part in words.split(" (at"):
        assert part in str(caught.value)


TOO_MUCH = [
    "9**9**9",
    "9**9**9**9",
    "10**100000",
    "2**(2**40)",
    "0.5**99999999",
    "factorial(10**9)",
    "9!!!",
    "1e999999999",
    "1e4000 * 1e4000",
    "comb(10**9, 5 * 10**8)",
    "perm(10**9)",
    "exp(10**9)",
    "1.5 ** 1e30",
    "lcm(1e3000 + 1, 1e3000 + 3)",
    "(" * 5_000,
    "(" * 1_000 + "1" + ")" * 1_000,
    "-" * 3_000 + "1",
    "1" * 5_000,
    "**".join(["2"] * 500),
    "sqrt(" * 500,
    "round(1, 10**9)",
]


@pytest.mark.parametrize("expression", TOO_MUCH, ids=lambda text: text[:20])
def test_i7_what_would_take_too_much_is_refused_at_once(expression: str) -> None:
    began = time.process_time()
    with pytest.raises(NotAnExpression):
        evaluate(expression)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('id')",
        "().__class__.__bases__[0]",
        "lambda: 1",
        "[x for x in (1,)]",
        "open('x')",
        "eval('1')",
        "exec(1)",
        "print(1)",
        "globals()",
        "1 if 1 else 2",
        "{1: 2}",
        "a := 1",
        "'a' * 9",
        "1; 2",
        "import os",
        "f'{1}'",
        "getattr(1, 2)",
        "calculate(1)",
        "self",
        "1 .real",
        "0x10",
        "\\u0031",
        "1 # 2",
        "１+1",
    ],
)
def test_i7_code_is_not_an_expression(expression: str) -> None:
    with pytest.raises(NotAnExpression):
        evaluate(expression)


@given(st.text(max_size=80) | st.text("0123456789.e+-*/%^!()[], _πsqrtlogmax", max_size=60))
@settings(max_examples=500)
def test_i7_whatever_it_is_given_it_gives_a_number_or_a_tool_error(expression: str) -> None:
    with contextlib.suppress(NotAnExpression):
        value = evaluate(expression)
        assert isinstance(value, Fraction) or math.isfinite(value)
        assert calculate(expression)


@pytest.mark.parametrize("name", FUNCTIONS)
@given(
    numbers=st.lists(
        st.sampled_from(["0", "-1", "0.5", "3", "1e30", "-2.5", "1e4000", "pi"]), max_size=4
    )
)
@settings(max_examples=40)
def test_every_function_gives_a_number_or_says_why_not(name: str, numbers: list[str]) -> None:
    with contextlib.suppress(NotAnExpression):
        assert calculate(f"{name}({', '.join(numbers)})")


class Sum:
    """An expression, and what Python's own fractions make of it."""

    def __init__(self, text: str, value: Fraction | None) -> None:
        self.text, self.value = text, value

    def __repr__(self) -> str:
        return self.text


def joined(left: Sum, operator: str, right: Sum) -> Sum:
    text = f"({left.text}) {operator} ({right.text})"
    if left.value is None or right.value is None:
        return Sum(text, None)
    try:
        match operator:
            case "+":
                return Sum(text, left.value + right.value)
            case "-":
                return Sum(text, left.value - right.value)
            case "*":
                return Sum(text, left.value * right.value)
            case "/":
                return Sum(text, left.value / right.value)
            case "//":
                return Sum(text, Fraction(left.value // right.value))
            case _:
                return Sum(text, left.value % right.value)
    except ZeroDivisionError:
        return Sum(text, None)


def negated(inner: Sum) -> Sum:
    return Sum(f"-({inner.text})", None if inner.value is None else -inner.value)


def raised(base: Sum, exponent: int) -> Sum:
    text = f"({base.text}) ** {exponent}"
    if base.value is None or (base.value == 0 and exponent < 0):
        return Sum(text, None)
    return Sum(text, base.value**exponent)


LEAVES = st.one_of(
    st.integers(0, 10**6).map(lambda n: Sum(str(n), Fraction(n))),
    st.decimals(0, 1000, places=3, allow_nan=False).map(lambda d: Sum(f"{d:f}", Fraction(d))),
)
SUMS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(joined, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner),
        st.builds(negated, inner),
        st.builds(raised, inner, st.integers(-4, 4)),
    ),
    max_leaves=12,
)


@settings(max_examples=400)
@given(SUMS)
def test_random_expressions_agree_with_pythons_fractions(expected: Sum) -> None:
    if expected.value is None:
        with pytest.raises(NotAnExpression, match="division by zero"):
            evaluate(expected.text)
        return
    assert evaluate(expected.text) == expected.value


OPERATORS = st.sampled_from(["+", "-", "*", "//", " % "])


@given(st.lists(st.tuples(OPERATORS, st.integers(1, 50)), max_size=8), st.integers(1, 50))
def test_precedence_without_brackets_is_pythons(rest: list[tuple[str, int]], first: int) -> None:
    text = str(first) + "".join(f"{operator}{number}" for operator, number in rest)
    assert evaluate(text) == eval(text)
