"""Arithmetic that is exact where possible, on numbers of bounded size."""

import math
import statistics
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import NamedTuple, TypeAlias

#: a `Fraction` is exact; a float is the result of an operation without an exact result, such as a sine
Number: TypeAlias = Fraction | float

#: bits of a numerator or denominator; about 4,200 digits, because Python by default prints at most 4,300
MOST_BITS = 14_000
MOST_ARGUMENTS = 1_000
_MOST_FACTORIAL = 1_400
#: digits of the longest number that is shown in full
_LONGEST_DECIMAL = 40
_LARGEST_ROOT = 64


class NoValue(ValueError):
    """An operation has no result, or one beyond the limits of this module; the message says why."""


def bounded(number: Number) -> Number:
    """Return the number; raise `NoValue` if it is infinite, NaN or too long."""
    if isinstance(number, float):
        if not math.isfinite(number):
            raise NoValue("the result is too large")
        return number
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > MOST_BITS:
        raise NoValue(f"the result has more than {MOST_BITS * 3 // 10} digits")
    return number


def divide(a: Number, b: Number) -> Number:
    return a / _divisor(b)


def floor_divide(a: Number, b: Number) -> Number:
    quotient = a // _divisor(b)
    return Fraction(quotient) if isinstance(quotient, int) else quotient


def modulo(a: Number, b: Number) -> Number:
    return a % _divisor(b)


def power(base: Number, exponent: Number) -> Number:
    """`base ** exponent`; exact for integer exponents and for exact roots."""
    if base == 0 and exponent < 0:
        raise NoValue("division by zero: zero to a negative power")
    if isinstance(exponent, Fraction) and isinstance(base, Fraction):
        if exponent.denominator == 1:
            return _whole_power(base, exponent.numerator)
        if exponent.denominator <= _LARGEST_ROOT and base >= 0:
            exact = _exact_root(base, exponent.denominator)
            if exact is not None:
                return _whole_power(exact, exponent.numerator)
    if base < 0 and exponent != int(exponent):
        raise NoValue("a negative number has no real power with a fraction as its exponent")
    return math.pow(base, exponent)


def _whole_power(base: Fraction, exponent: int) -> Fraction:
    # Check first: 9**9**9 would use up all memory before its size could be checked.
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) not in (0, 1) and (bits - 1) * abs(exponent) > MOST_BITS:
        raise NoValue(f"the result has more than {MOST_BITS * 3 // 10} digits")
    if abs(base) in (0, 1) and abs(exponent) >= 4:
        # For 0, 1 and -1, a small exponent of the same parity gives the same result.
        exponent = 2 + exponent % 2
    return base**exponent


def _exact_root(number: Fraction, degree: int) -> Fraction | None:
    above, below = _whole_root(number.numerator, degree), _whole_root(number.denominator, degree)
    return None if above is None or below is None else Fraction(above, below)


def _whole_root(number: int, degree: int) -> int | None:
    """The exact integer root, or None. Newton's method from above: a few steps even for thousands of digits."""
    guess = 1 << -(-number.bit_length() // degree)
    while True:
        better = ((degree - 1) * guess + number // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess if guess**degree == number else None
        guess = better


def _divisor(number: Number) -> Number:
    if number == 0:
        raise NoValue("division by zero")
    return number


def _whole(number: Number, what: str) -> int:
    if number != int(number):
        raise NoValue(f"{what} needs whole numbers")
    return int(number)


def _count(number: Number, what: str) -> int:
    whole = _whole(number, what)
    if whole < 0:
        raise NoValue(f"{what} needs numbers that are not negative")
    return whole


def _sqrt(x: Number) -> Number:
    return _root(x, Fraction(2))


def _root(x: Number, degree: Number) -> Number:
    n = _whole(degree, "root")
    if n == 0 or (x < 0 and n % 2 == 0):
        raise NoValue("a negative number has no real even root")
    return -power(-x, Fraction(1, n)) if x < 0 else power(x, Fraction(1, n))


def _log(x: Number, base: Number | None = None) -> Number:
    if x <= 0 or (base is not None and (base <= 0 or base == 1)):
        raise NoValue("log needs a positive number, and a positive base other than 1")
    if base is None:
        return _ln(x)
    rough = _ln(x) / _ln(base)
    nearest = round(rough)
    if (
        abs(rough - nearest) < 1e-9
        and abs(nearest) < MOST_BITS
        and power(base, Fraction(nearest)) == x
    ):
        return Fraction(nearest)
    return rough


def _ln(x: Number) -> float:
    # Numerator and denominator apart, because a long one does not fit into a float.
    return (
        math.log(x.numerator) - math.log(x.denominator) if isinstance(x, Fraction) else math.log(x)
    )


def _factorial(x: Number) -> Number:
    n = _count(x, "factorial")
    if n > _MOST_FACTORIAL:
        raise NoValue(f"factorial is kept to {_MOST_FACTORIAL}")
    return Fraction(math.factorial(n))


def _comb(x: Number, y: Number) -> Number:
    n, k = _count(x, "comb"), _count(y, "comb")
    if max(0, min(k, n - k)) * n.bit_length() > 2 * MOST_BITS:
        raise NoValue("the result is too large")
    return Fraction(math.comb(n, k))


def _perm(x: Number, y: Number | None = None) -> Number:
    n = _count(x, "perm")
    k = n if y is None else _count(y, "perm")
    if min(k, n) * n.bit_length() > 2 * MOST_BITS:
        raise NoValue("the result is too large")
    return Fraction(math.perm(n, k))


def _gcd(*numbers: Number) -> Number:
    return Fraction(math.gcd(*(_whole(number, "gcd") for number in numbers)))


def _lcm(*numbers: Number) -> Number:
    total = 1
    for number in numbers:
        total = int(bounded(Fraction(math.lcm(total, _whole(number, "lcm")))))
    return Fraction(total)


def _round(x: Number, digits: Number = Fraction(0)) -> Number:
    places = _whole(digits, "round")
    if abs(places) > 1_000:
        raise NoValue("round takes at most 1000 places")
    return Fraction(round(Fraction(x), places))


def _sum(*numbers: Number) -> Number:
    total: Number = Fraction(0)
    for number in numbers:
        total = bounded(total + number)
    return total


def _mean(*numbers: Number) -> Number:
    return _sum(*numbers) / len(numbers)


def _median(*numbers: Number) -> Number:
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else _mean(*ordered[middle - 1 : middle + 1])


def _variance(*numbers: Number) -> Number:
    """The sample variance, with divisor n - 1."""
    if len(numbers) < 2:
        raise NoValue("variance and stdev need at least two numbers")
    mean = _mean(*numbers)
    return _sum(*((number - mean) ** 2 for number in numbers)) / (len(numbers) - 1)


def _angle(function: Callable[[float], float]) -> Callable[[Number], Number]:
    def turned(x: Number) -> Number:
        angle = float(x)
        result = function(angle)
        # sin(pi) is 1.2e-16 only because pi has no exact float.
        return Fraction(0) if abs(result) < 1e-15 and abs(angle) > 1 else result

    return turned


def _plain(function: Callable[..., float]) -> Callable[..., Number]:
    return lambda *numbers: function(*(float(number) for number in numbers))


class Function(NamedTuple):
    """A function of the calculator, and how many arguments it takes: from `least` to `most`."""

    call: Callable[..., Number]
    least: int = 1
    most: int = 1


FUNCTIONS = {
    "sqrt": Function(_sqrt),
    "cbrt": Function(lambda x: _root(x, Fraction(3))),
    "root": Function(_root, 2, 2),
    "pow": Function(power, 2, 2),
    "exp": Function(lambda x: Fraction(1) if x == 0 else math.exp(x)),
    "ln": Function(_log),
    "log": Function(_log, 1, 2),
    "log2": Function(lambda x: _log(x, Fraction(2))),
    "log10": Function(lambda x: _log(x, Fraction(10))),
    **{name: Function(_angle(getattr(math, name))) for name in ("sin", "cos", "tan")},
    **{
        name: Function(_plain(getattr(math, name)))
        for name in ("asin", "acos", "atan", "sinh", "cosh", "tanh", "degrees", "radians")
    },
    "atan2": Function(_plain(math.atan2), 2, 2),
    "hypot": Function(lambda *numbers: _sqrt(_sum(*(n * n for n in numbers))), 1, MOST_ARGUMENTS),
    "abs": Function(abs),
    "sign": Function(lambda x: Fraction((x > 0) - (x < 0))),
    "floor": Function(lambda x: Fraction(math.floor(x))),
    "ceil": Function(lambda x: Fraction(math.ceil(x))),
    "trunc": Function(lambda x: Fraction(math.trunc(x))),
    "round": Function(_round, 1, 2),
    "mod": Function(modulo, 2, 2),
    "factorial": Function(_factorial),
    "comb": Function(_comb, 2, 2),
    "perm": Function(_perm, 1, 2),
    "gcd": Function(_gcd, 1, MOST_ARGUMENTS),
    "lcm": Function(_lcm, 1, MOST_ARGUMENTS),
    "min": Function(lambda *numbers: min(numbers), 1, MOST_ARGUMENTS),
    "max": Function(lambda *numbers: max(numbers), 1, MOST_ARGUMENTS),
    "sum": Function(_sum, 0, MOST_ARGUMENTS),
    "mean": Function(_mean, 1, MOST_ARGUMENTS),
    "median": Function(_median, 1, MOST_ARGUMENTS),
    "mode": Function(lambda *numbers: statistics.mode(numbers), 1, MOST_ARGUMENTS),
    "variance": Function(_variance, 2, MOST_ARGUMENTS),
    "stdev": Function(lambda *numbers: _sqrt(_variance(*numbers)), 2, MOST_ARGUMENTS),
}
CONSTANTS = {"pi": math.pi, "π": math.pi, "e": math.e, "tau": math.tau, "phi": (1 + 5**0.5) / 2}


def call(name: str, arguments: Sequence[Number]) -> Number:
    """Call a function by name; raises `NoValue` also for a wrong number of arguments."""
    function = FUNCTIONS[name]
    if not function.least <= len(arguments) <= function.most:
        wanted = str(function.least)
        if function.most != function.least:
            wanted += f" to {function.most}" if function.most < MOST_ARGUMENTS else " or more"
        raise NoValue(f"{name} takes {wanted} arguments, not {len(arguments)}")
    return function.call(*arguments)


def shown(number: Number) -> str:
    """The number as text: exact if that is short enough, otherwise rounded, followed by a short exact fraction."""
    if isinstance(number, float):
        return _trimmed(f"{number:.15g}")
    if number.denominator == 1:
        return str(number.numerator)
    digits = _decimal(number)
    if digits:
        return digits
    exact = str(number)
    rounded = _rounded(number)
    return f"{rounded} (exactly {exact})" if len(exact) <= _LONGEST_DECIMAL else rounded


def _decimal(number: Fraction) -> str:
    """The exact decimal form, or an empty string if it does not terminate within the limit."""
    for places in range(1, _LONGEST_DECIMAL):
        scaled = number * 10**places
        if scaled.denominator == 1:
            sign = "-" if scaled < 0 else ""
            digits = str(abs(scaled.numerator)).zfill(places + 1)
            return f"{sign}{digits[:-places]}.{digits[-places:]}"
    return ""


def _rounded(number: Fraction) -> str:
    # Not a float, whose range is too small for very large and very small numbers.
    context = Context(prec=16)
    near = context.divide(Decimal(number.numerator), Decimal(number.denominator))
    return _trimmed(f"{near:.16g}")


def _trimmed(text: str) -> str:
    return text[:-2] if text.endswith(".0") else text
