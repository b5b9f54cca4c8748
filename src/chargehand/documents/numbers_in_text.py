"""Finds the numbers in a text and their units, exactly.

A number is the longest run of digits and marks that can be read as one number. A run that is something else, such as a
date, a time, a version or a fraction, contains no number. All functions take time linear in the length of the text.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct

CURRENCIES = frozenset(
    [
        "EUR",
        "USD",
        "GBP",
        "CHF",
        "JPY",
        "CAD",
        "AUD",
        "CNY",
        "INR",
        "SEK",
        "NOK",
        "DKK",
        "PLN",
        "CZK",
    ]
)
#: synonyms of units, in lower case
_SAME_UNIT = {
    **dict.fromkeys(("€", "euro", "euros"), "EUR"),
    **dict.fromkeys(("$", "us$", "dollar", "dollars"), "USD"),
    "£": "GBP",
    "¥": "JPY",
    **dict.fromkeys(("percent", "pct"), "%"),
}
_SCALES = {
    **dict.fromkeys(("thousand", "tsd"), 10**3),
    **dict.fromkeys(("million", "millions", "mn", "mio"), 10**6),
    **dict.fromkeys(("billion", "billions", "bn", "mrd"), 10**9),
    **dict.fromkeys(("trillion", "trillions"), 10**12),
}
#: a spelled-out number before the same number in digits, as in contracts: thirty (30) days
_SPELLED = re.compile(
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|teen|twenty|(?:thir|for|fif|six|seven|eigh|nine)ty"
    r"|hundred|thousand|million)[ ]?$",
    re.IGNORECASE,
)
_SPACES = " \u00a0\u2009\u202f"
#: digits with the marks that join them: 1,200.50, 1 200, 1e6, but also 2024-05-03 and 12:30
_RUN = re.compile(
    rf"(?:[0-9]{{1,3}}(?:[{_SPACES}][0-9]{{3}}(?![0-9]))++|[0-9]++)(?:[.,:/'’^–−-][0-9]++)*+(?:[eE][+-]?[0-9]++)?+"
)
_FORMS = re.compile(
    rf"""(?:
    (?P<plain>(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{{1,3}})?)
    |(?P<english>[1-9][0-9]{{0,2}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?)
    |(?P<spaced>[1-9][0-9]{{0,2}}(?:[{_SPACES}'’][0-9]{{3}})+(?:[.,][0-9]+)?)
    |(?P<european>[1-9][0-9]{{0,2}}(?:\.[0-9]{{3}})+,[0-9]+|[1-9][0-9]{{0,2}}(?:\.[0-9]{{3}}){{2,}})
    |(?P<comma>(?:0|[1-9][0-9]*),[0-9]+)
    )""",
    re.VERBOSE,
)
_RANGE = re.compile(r"([^–-]+)[–-]([^–-]+)")
_POWER_OF_TEN = re.compile(r"[ ]?[×x·*][ ]?10[\^⁰¹²³⁴-⁹]")
_MINUS = "-−–"
_SYMBOLS = frozenset("€$£¥")
#: characters before the digits that are part of the number
_SIGNS = _SYMBOLS | {*_MINUS, "."}
_NEXT_WORD = re.compile(r"[ -]?([A-Za-z]+)\b")
#: text between a unit and the number after it
_UNIT_BEFORE = re.compile(rf"(?:[\"'”)\]]*\s*[:=]\s*|[{_SPACES}]?)[+{_MINUS}(]?$")
#: most digits of a number; longer ones are text
_LONGEST = 400
#: characters searched for a unit on either side of a number
_BESIDE = 80


class TextNumber(Struct, frozen=True):
    """A number in a text."""

    value: Fraction
    #: position in the text, including the sign and a word such as `million`
    start: int
    end: int
    #: factor of that word
    scale: int = 1
    #: whether letters follow without a space, as in 15mg: then it is a number only together with this unit
    is_glued: bool = False


def read_number(text: str) -> Decimal | None:
    """Read a text that is one number, keeping its decimal places; None if it is anything else."""
    text = text.strip()
    sign, digits = (text[0], text[1:]) if text[:1] in {*_MINUS, "+"} else ("", text)
    number = _number_of(digits)
    return number if number is None or sign in ("", "+") else -number


def numbers_in(text: str) -> Iterator[TextNumber]:
    """The numbers of a text, in order."""
    for run in _RUN.finditer(text):
        before = _sign_of(text, *run.span())
        if before is None or _POWER_OF_TEN.match(text, run.end()):
            continue
        start, sign, is_decimal = before
        end = run.end() + (text[start] == "(")
        is_glued, scale = text[end : end + 1].isalnum(), 1
        if not is_glued and (word := _NEXT_WORD.match(text, end)):
            scale = _SCALES.get(word[1].casefold(), 1)
            end = end if scale == 1 else word.end()
        for number in _numbers_of_run(f"0.{run[0]}" if is_decimal else run[0]):
            yield TextNumber(sign * Fraction(number) * scale, start, end, scale, is_glued)


def runs_in(text: str) -> list[tuple[int, int]]:
    """The positions of runs of digits, with their signs. A quotation must not begin or end inside a run."""
    spans = []
    for run in _RUN.finditer(text):
        start = run.start()
        while start and text[start - 1] in _SIGNS:
            start -= 1
        spans.append((start, run.end()))
    return spans


def split_scale(unit: str) -> tuple[int, str]:
    """Split a unit such as `million EUR` into the factor and the rest."""
    first, _, rest = unit.strip().partition(" ")
    scale = _SCALES.get(first.casefold(), 1)
    return (scale, rest.strip()) if scale != 1 else (1, unit.strip())


def has_unit_beside(text: str, start: int, end: int, unit: str) -> bool:
    """Whether the unit is directly after this part of a text, directly before it or, such as €, inside it."""
    wanted = unit_words(unit)
    if [_unit_word(each) for each in text[start:end] if each in _SYMBOLS] == wanted:
        return True
    after = text[end : end + len(unit) + _BESIDE].removeprefix(")").removeprefix("-")
    behind = [each.strip(".,;:!?()[]\"'”“|*") for each in after.split()[: len(wanted)]]
    if [_unit_word(each) for each in behind] == wanted:
        return True
    before = text[max(0, start - len(unit) - _BESIDE) : start]
    before = before[: _UNIT_BEFORE.search(before).start()]  # type: ignore[union-attr]  # it always matches
    words = re.split(r"[\s_\"'“(\[|]+", before)
    is_free = len(words) <= len(wanted) or not words[-len(wanted) - 1][-1:].isdigit()
    return is_free and [_unit_word(each) for each in words[-len(wanted) :]] == wanted


def names_unit(heading: str, unit: str) -> bool:
    """Whether a column name contains the unit: `price_eur`, `Price (EUR)`; in `eur_per_unit`, only EUR is the unit."""
    wanted = unit_words(unit)
    words = [_unit_word(each) for each in re.split(r"[\s_()\[\]{},;:|]+", heading) if each]
    places = (n for n in range(len(words)) if words[n : n + len(wanted)] == wanted)
    return any("per" not in words[:n] for n in places)


def unit_words(unit: str) -> list[str]:
    return [_unit_word(each) for each in unit.split()]


def currencies_in(words: str) -> frozenset[str]:
    """The currencies that a query names in its columns or texts."""
    return CURRENCIES & {_unit_word(each) for each in re.findall(r"[^\W\d_]+|[€$£¥]", words)}


def _unit_word(word: str) -> str:
    word = unicodedata.normalize("NFKC", word)
    lower = word.casefold()
    if lower in _SAME_UNIT:
        return _SAME_UNIT[lower]
    if word.upper() in CURRENCIES:
        return word.upper()
    # Short units depend on capitals (mW, MW). For longer words, the plural is the same unit.
    word = lower if len(word) >= 5 else word
    return word.removesuffix("s") if len(word) >= 4 else word


def _number_of(digits: str) -> Decimal | None:
    found = _FORMS.fullmatch(digits) if len(digits) <= _LONGEST else None
    if found is None:
        return None
    match found.lastgroup:
        case "european":
            plain = digits.replace(".", "").replace(",", ".")
        case "comma":
            plain = digits.replace(",", ".")
        case "spaced":
            plain = re.sub(rf"[{_SPACES}'’]", "", digits).replace(",", ".")
        case _:
            plain = digits.replace(",", "")
    return Decimal(plain)


def _numbers_of_run(run: str) -> Sequence[Decimal]:
    """The number of a run, or both ends of a range; empty if the run is something else."""
    if (number := _number_of(run)) is not None:
        return [number]
    if ends := _RANGE.fullmatch(run):
        both = [_number_of(each) for each in ends.groups()]
        return [each for each in both if each is not None] if None not in both else []
    return []


def _sign_of(text: str, start: int, end: int) -> tuple[int, int, bool] | None:
    """The start of a number with its sign, the sign, and whether it begins with a point; None: part of a word."""
    first, sign = start, 1
    is_decimal = text[first - 1 : first] == "."  # .04
    first -= is_decimal
    first -= text[first - 1 : first] in _SYMBOLS
    if (mark := text[first - 1 : first]) and mark in f"+{_MINUS}":
        sign = 1 if mark == "+" else -1
        first -= 1
        first -= text[first - 1 : first] in _SYMBOLS
    before = text[first - 1 : first] or " "
    if before == "(" and text[end : end + 1] == ")":
        is_spelled = _SPELLED.search(text[max(0, first - 12) : first - 1])  # thirty (30) days
        return (first, sign, is_decimal) if is_spelled else (first - 1, -sign, is_decimal)
    word = re.search(r"[A-Za-z]+$", text[max(0, first - 8) : first])
    if word and text[first] not in f".+{_MINUS}":  # EUR5, US$5
        return (first, sign, False) if word[0] in {*CURRENCIES, "US"} else None
    return None if before.isalnum() or before in "_.<≤≥)/" else (first, sign, is_decimal)
