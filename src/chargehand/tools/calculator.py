"""The `calculate` tool: parses and evaluates arithmetic expressions; never runs them as code."""

import re
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any, NamedTuple

from chargehand.errors import ToolError
from chargehand.tools import exact_arithmetic as arithmetic
from chargehand.tools.base import Tool, tool
from chargehand.tools.exact_arithmetic import CONSTANTS, FUNCTIONS, NoValue, Number

#: characters of an expression
LONGEST = 4_000
#: levels of nested brackets and signs
DEEPEST = 60
_MOST_EXPONENT = 4_000

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?)
      | (?P<name>[A-Za-zπ_]\w*)
      | (?P<sign>\*\*|//|[-+*/%^!(),\[\]×÷−·])
    )""",
    re.VERBOSE,
)
_SPELT = {"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**"}
_BINDING = {"+": 10, "-": 10, "*": 20, "/": 20, "//": 20, "%": 20, "**": 40}
_SIGNED = 30  # tighter than *, looser than **: -2**2 is -4
_OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": arithmetic.divide,
    "//": arithmetic.floor_divide,
    "%": arithmetic.modulo,
    "**": arithmetic.power,
}


class CalculatorToken(NamedTuple):
    """A number, a name, a sign or the end of an expression, with its position."""

    kind: str
    text: str
    at: int
    end: int


class NotAnExpression(ToolError):
    """An expression cannot be evaluated; the message contains the position."""

    def __init__(self, expression: str, at: int, why: str) -> None:
        self.at = at
        near = expression[max(0, at - 15) : at + 15].strip()
        place = f"at character {at + 1}, near {near!r}" if at < len(expression) else "at the end"
        super().__init__(f"cannot calculate this: {why} ({place})")


def evaluate(expression: str) -> Number:
    """The value of an expression: a `Fraction` if it is exact, otherwise a float.

    Raises only `NotAnExpression`, if the expression cannot be parsed or has no value.
    """
    if len(expression) > LONGEST:
        raise NotAnExpression(expression, LONGEST, f"it is longer than {LONGEST} characters")
    return _Reader(expression).whole()


@tool(effect="pure", timeout=timedelta(seconds=10))
def calculate(expression: str) -> str:
    """Work out an arithmetic expression exactly, for example `round(1250 * 1.19 / 12, 2)`.

    Args:
        expression: numbers with + - * / // % ** ! and brackets; 5% means 0.05; functions such as
            sqrt, log, ln, exp, sin (radians), min, max, sum, mean, median, stdev, round, floor,
            abs, factorial, comb, gcd; constants pi, e. No variables, no units.
    """
    return arithmetic.shown(evaluate(expression))


def maths() -> tuple[Tool, ...]:
    """The tools for arithmetic."""
    return (calculate,)


class _Reader:
    """A Pratt parser, which evaluates an expression while it parses it."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = _tokens(expression)
        self._next = 0
        self._depth = 0

    def whole(self) -> Number:
        value = self._value(0)
        token = self._token
        if token.kind != "end":
            raise self._fault(token, _unexpected(token))
        return value

    @property
    def _token(self) -> CalculatorToken:
        return self._tokens[self._next]

    def _take(self) -> CalculatorToken:
        token = self._token
        self._next += token.kind != "end"
        return token

    def _expect(self, text: str) -> None:
        token = self._take()
        if token.text != text:
            raise self._fault(token, f"{text!r} is missing")

    def _fault(self, token: CalculatorToken, why: str) -> NotAnExpression:
        return NotAnExpression(self._expression, token.at, why)

    def _value(self, binding: int) -> Number:
        """The value up to the next operator that does not bind tighter than `binding`."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._fault(self._token, f"it is nested deeper than {DEEPEST} levels")
        left = self._operand()
        while True:
            left = self._after(left)
            operator = self._token
            power = _BINDING.get(operator.text, 0)
            if power <= binding:
                self._depth -= 1
                return left
            self._take()
            # ** is right-associative: 2**3**2 is 2**9. In 2**-1 the sign is part of the exponent.
            right = self._value(power - 1 if operator.text == "**" else power)
            left = self._worked(operator, _OPERATIONS[operator.text], left, right)

    def _operand(self) -> Number:
        token = self._take()
        match token.kind, token.text:
            case "number", text:
                return self._number(token, text)
            case "name", _:
                return self._named(token)
            case "sign", "-":
                return -self._value(_SIGNED)
            case "sign", "+":
                return self._value(_SIGNED)
            case "sign", "(":
                value = self._value(0)
                self._expect(")")
                return value
        raise self._fault(token, _unexpected(token))

    def _after(self, value: Number) -> Number:
        """Apply the postfix operators to a value: 5! and 5%."""
        while True:
            token = self._token
            if token.text == "!":
                self._take()
                value = self._worked(token, arithmetic.call, "factorial", [value])
            elif token.text == "%" and self._is_percent():
                self._take()
                value = value / 100
            else:
                return value

    def _is_percent(self) -> bool:
        """Whether a % is a percent sign, not the remainder operator.

        It is ambiguous only before + and -: `5% - 2` is a percentage, `5 % -2` a remainder.
        """
        token, following = self._token, self._tokens[self._next + 1]
        if following.text not in ("+", "-"):
            return following.kind in ("sign", "end") and following.text not in ("(", "[")
        is_apart = self._tokens[self._next - 1].end < token.at
        if not is_apart and following.at == token.end:
            raise self._fault(token, "% could mean percent or remainder; use brackets or mod(a, b)")
        return not is_apart

    def _number(self, token: CalculatorToken, text: str) -> Number:
        digits, _, exponent = text.replace("_", "").lower().partition("e")
        if len(exponent.lstrip("+-")) > 5 or abs(int(exponent or 0)) > _MOST_EXPONENT:
            raise self._fault(token, f"exponents go to {_MOST_EXPONENT}")
        scale = Fraction(10) ** int(exponent or 0)
        return self._worked(token, lambda: Fraction(digits) * scale)

    def _named(self, token: CalculatorToken) -> Number:
        if self._token.text == "(":
            if token.text not in FUNCTIONS:
                raise self._fault(
                    token, f"there is no function {token.text!r}; there are {', '.join(FUNCTIONS)}"
                )
            arguments = self._between("(", ")", may_hold_lists=True)
            return self._worked(token, arithmetic.call, token.text, arguments)
        if token.text in CONSTANTS:
            return CONSTANTS[token.text]
        if token.text in FUNCTIONS:
            raise self._fault(token, f"{token.text} needs its arguments in brackets")
        raise self._fault(token, f"{token.text!r} has no value here; put the number in its place")

    def _between(self, opening: str, closing: str, *, may_hold_lists: bool = False) -> list[Number]:
        """The values between brackets; nested lists are flattened."""
        self._expect(opening)
        found: list[Number] = []
        while self._token.text != closing:
            is_list = may_hold_lists and self._token.text == "["
            found += self._between("[", "]") if is_list else [self._value(0)]
            if self._token.text != closing:
                self._expect(",")
        self._expect(closing)
        return found

    def _worked(
        self, token: CalculatorToken, work: Callable[..., Number], *operands: Any
    ) -> Number:
        try:
            return arithmetic.bounded(work(*operands))
        except NoValue as error:
            raise self._fault(token, str(error)) from None
        except OverflowError:
            raise self._fault(token, "the result is too large") from None
        except (ValueError, ZeroDivisionError):
            raise self._fault(token, "it has no real value") from None


def _tokens(expression: str) -> list[CalculatorToken]:
    tokens = []
    at = 0
    end = len(expression.rstrip())
    while at < end:
        match = _TOKEN.match(expression, at)
        if match is None:
            at += len(expression[at:]) - len(expression[at:].lstrip())
            raise NotAnExpression(expression, at, f"{expression[at]!r} means nothing here")
        kind = str(match.lastgroup)
        text = match[kind]
        tokens.append(CalculatorToken(kind, _SPELT.get(text, text), match.start(kind), match.end()))
        at = match.end()
    return [*tokens, CalculatorToken("end", "", len(expression), len(expression))]


def _unexpected(token: CalculatorToken) -> str:
    if token.kind == "end":
        return "a number is missing"
    if token.text == ",":
        return "a comma separates arguments; write 1000 or 1_000 for a thousand"
    if token.kind == "sign" and token.text not in "([":
        return f"{token.text!r} is not expected"
    return f"an operator is missing before {token.text!r}; write * to multiply"
