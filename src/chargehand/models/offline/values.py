"""The values that stand in a text: numbers, dates, names, quotations, addresses, paths."""

import re
from collections.abc import Callable, Iterator
from datetime import date
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.models.offline.words import COUNTS, STOP, word_set


class Kind(StrEnum):
    """What a value looks like."""

    QUOTED = "quoted"
    NUMBER = "number"
    NUMBERS = "numbers"  #: in brackets
    DATE = "date"
    TIME = "time"
    NAME = "name"
    ADDRESS = "address"  #: an URL or a mail address
    PATH = "path"
    SUM = "sum"  #: an arithmetic expression
    OBJECT = "object"  #: names with values, in braces


LONGEST = 20_000


class Found(Struct, frozen=True):
    """A value, and where in the text it stands."""

    kind: Kind
    value: Any
    text: str
    start: int
    end: int
    unit: str = ""
    #: the sign or word right behind or before a number: %, $, years


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_SCALES = {"hundred": 100, "thousand": 1_000, "k": 1_000, "million": 10**6, "billion": 10**9}

PLACES = word_set("""argentina australia austria belgium brazil canada chile china colombia croatia czechia denmark
    egypt england finland france germany greece hungary iceland india indonesia iran iraq ireland
    israel italy japan kenya korea malaysia mexico morocco nepal netherlands nigeria norway pakistan
    peru philippines poland portugal romania russia scotland singapore spain sweden switzerland
    taiwan thailand turkey ukraine usa uk us vietnam wales
    alabama alaska arizona arkansas california colorado connecticut delaware florida georgia hawaii
    idaho illinois indiana iowa kansas kentucky louisiana maine maryland massachusetts michigan
    minnesota mississippi missouri montana nebraska nevada ohio oklahoma oregon pennsylvania
    tennessee texas utah vermont virginia washington wisconsin wyoming ontario quebec""")
#: what may follow a town behind a comma and still belong to it

_QUOTED = re.compile(
    r"\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”|`([^`\n]+)`|(?<!\w)'([^'\n]{1,2000}?)'(?!\w)"
)
_ADDRESS = re.compile(
    r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)]|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
)
_PATH = re.compile(
    r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,12}[\w-]{1,80}(?:\.[\w-]{1,80}){0,4}\.[A-Za-z][A-Za-z0-9]{1,4}\b(?!\()"
)
_ISO = re.compile(r"\b(\d{4})[-/](\d{1,2})[-/](\d{1,2})\b")
_DAY_FIRST = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? ({_MONTH})\.?,? (\d{{4}})\b", re.IGNORECASE
)
_MONTH_FIRST = re.compile(
    rf"\b({_MONTH})\.? (\d{{1,2}})(?:st|nd|rd|th)?,? (\d{{4}})\b", re.IGNORECASE
)
_SLASHED = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b")
_TIME = re.compile(r"\b(\d{1,2}):(\d{2})(?::\d{2})?\s*([ap]\.?m\.?)?|\b(\d{1,2})\s*([ap]m)\b", re.I)
_BRACKETED = re.compile(r"[\[(]\s*(-?\d+(?:\.\d+)?(?:\s*,\s*-?\d+(?:\.\d+)?)+)\s*[\])]")
_SUM = re.compile(
    r"(?<![\w.,(])(?:[-(]\s?){0,4}\d[\d.,]{0,30}\)?(?:\s?(?:[-+*/^%×÷]|\*\*)\s?[-(]{0,4}\s?\d[\d.,]{0,30}\)*)+"
    r"|\b(?:sqrt|log|sin|cos|tan|exp|abs|min|max|round)\([^()\n]{0,200}\)"
)
_NUMBER = re.compile(
    r"(?<![\w.])([$€£]?)\s?(-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d+(?:\.\d+)?)"
    r"(?:(st|nd|rd|th)\b|\s?(%|°C|°F)|\s?(hundred|thousand|million|billion|k)\b)?"
    r"(?:[ -]?([A-Za-z]+(?:/[A-Za-z]+)?))?"
)
_BULLET = re.compile(r"^[ \t]*\d+[.)]\s", re.MULTILINE)
_OBJECT = re.compile(r"\{[^{}]{2,2000}\}")
_COUNT = re.compile(
    rf"(?<!another )(?<!that )(?<!this )(?<!the )\b({'|'.join(COUNTS)})\b(?!-)(?:\s+(hundred|thousand|million))?(?:[ -]([a-z]+))?",
    re.IGNORECASE,
)
_CAPITAL = r"(?:[A-ZÀ-ÖØ-Þ][\w’'&-]*(?:\.(?=\s[A-Z]))?|[A-Z]\.)"
_NAME = re.compile(
    rf"{_CAPITAL}(?:\s(?:(?:of|de|la|van|von|der|du|the)\s){{0,2}}{_CAPITAL}|\s\d{{1,4}}(?=\W|$))*"
)
_TAIL = re.compile(r",\s?([A-Z]{2}\b|[A-Z][a-z]+(?:\s[A-Z][a-z]+)?)")


def values_in(text: str) -> list[Found]:
    """Every value in the text, in its order; what is part of a longer one is not told again.

    Only the beginning of a very long text is read: no request is so long, and some patterns would
    take very long for it.
    """
    text = text[:LONGEST]
    taken = [False] * len(text)
    found: list[Found] = []
    for read in _READERS:
        for value in read(text):
            if not any(taken[value.start : value.end]):
                taken[value.start : value.end] = [True] * (value.end - value.start)
                found.append(value)
    return sorted(found, key=lambda value: value.start)


def number_of(text: str) -> int | float:
    """The number that the digits say; whole ones are whole."""
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain[:300])


def _quoted(text: str) -> Iterator[Found]:
    for match in _QUOTED.finditer(text):
        inner = next(group for group in match.groups() if group is not None)
        yield Found(Kind.QUOTED, inner, inner, match.start(), match.end())


def _plain(kind: Kind, pattern: re.Pattern[str]) -> Callable[[str], Iterator[Found]]:
    def read(text: str) -> Iterator[Found]:
        for match in pattern.finditer(text):
            yield Found(kind, match[0].strip(), match[0], match.start(), match.end())

    return read


def _dates(text: str) -> Iterator[Found]:
    for pattern, order in ((_ISO, "ymd"), (_DAY_FIRST, "dmy"), (_MONTH_FIRST, "mdy")):
        for match in pattern.finditer(text):
            if day := _day(dict(zip(order, match.groups(), strict=True))):
                yield Found(Kind.DATE, day, match[0], match.start(), match.end())
    for match in _SLASHED.finditer(text):
        # Months come first, unless no month has that number.
        orders = ("mdy", "dmy")
        days = (_day(dict(zip(order, match.groups(), strict=True))) for order in orders)
        if day := next((day for day in days if day), ""):
            yield Found(Kind.DATE, day, match[0], match.start(), match.end())


def _day(parts: dict[str, str]) -> str:
    month = parts["m"]
    number = int(month) if month.isdecimal() else _MONTHS.index(month[:3].lower()) + 1
    try:
        return date(int(parts["y"]), number, int(parts["d"])).isoformat()
    except ValueError:
        return ""


def _times(text: str) -> Iterator[Found]:
    for match in _TIME.finditer(text):
        hour, minute = int(match[1] or match[4]), int(match[2] or 0)
        half = (match[3] or match[5] or "").replace(".", "").lower()
        hour += 12 if half == "pm" and hour < 12 else -12 if half == "am" and hour == 12 else 0
        if hour < 24 and minute < 60:
            clock = f"{hour:02}:{minute:02}"
            yield Found(Kind.TIME, clock, match[0], match.start(), match.end())


def _bracketed(text: str) -> Iterator[Found]:
    for match in _BRACKETED.finditer(text):
        numbers = [number_of(each.strip()) for each in match[1].split(",")]
        yield Found(Kind.NUMBERS, numbers, match[0], match.start(), match.end())


def _objects(text: str) -> Iterator[Found]:
    for match in _OBJECT.finditer(text):
        for written in (match[0], match[0].replace("'", '"')):
            try:
                value = msgspec.json.decode(written)
            except msgspec.DecodeError:
                continue
            yield Found(Kind.OBJECT, value, match[0], match.start(), match.end())
            break


def _numbers(text: str) -> Iterator[Found]:
    bullets = {
        match.start() + len(match[0]) - len(match[0].lstrip()) for match in _BULLET.finditer(text)
    }
    for match in _NUMBER.finditer(text):
        sign, digits, ordinal, mark, scale, word = match.groups()
        if match.start(2) in bullets:
            continue
        value = number_of(digits) * _SCALES.get(scale or "", 1)
        ends = [match.end(n) for n in range(1, 6) if match[n]]
        unit = sign or mark or ("" if ordinal else word or "")
        yield Found(Kind.NUMBER, value, digits, match.start(2), max(ends), unit)
    for match in _COUNT.finditer(text):
        value = COUNTS[match[1].lower()] * _SCALES.get((match[2] or "").lower(), 1)
        end = match.end(2) if match[2] else match.end(1)
        yield Found(Kind.NUMBER, value, match[1], match.start(), end, match[3] or "")


def _names(text: str) -> Iterator[Found]:
    end = 0
    for match in _NAME.finditer(text):
        start = max(match.start(), end)
        name = text[start : match.end()]
        while (first := name.partition(" ")[0]) and _opens(text, start, first):
            start += len(first) + 1
            name = text[start : match.end()] if start < match.end() else ""
        if not name or name.lower() in STOP:
            continue
        name = name.removesuffix("'s").removesuffix("’s")
        end = start + len(name)
        tail = _TAIL.match(text, end)
        if tail and (tail[1].isupper() or tail[1].lower().split()[-1] in PLACES):
            end = tail.end()
        yield Found(Kind.NAME, text[start:end], text[start:end], start, end)


def _opens(text: str, start: int, word: str) -> bool:
    """Whether the word has its capital only because a sentence begins with it."""
    plain = word.rstrip("’'s.").lower()
    if word in ("I", "I'm", "I'd", "I’m") or plain in STOP or word.lower() in STOP:
        return True
    before = text[:start].rstrip(" \"'“‘(")
    if (before and before[-1] not in ".!?:;)\n") or not word.isalpha() or not word[1:].islower():
        return False
    return plain in _OPENERS or bool(_DETERMINER.match(text, start + len(word)))


_DETERMINER = re.compile(r"\s+(?:an?|the|me|my|all|any|how|what|some|his|her|their|this|these)\b")
_OPENERS = word_set("""find get give show list search look calculate compute determine estimate convert translate
    book reserve buy purchase order send write draft create make generate draw paint summarise
    summarize compare check review read count sort rank analyse analyze explain describe provide
    retrieve fetch play set turn add remove delete update plan schedule predict identify extract
    task given imagine suppose consider additionally furthermore moreover however later lets
    locate obtain display start stop run open close save""")

_READERS: tuple[Callable[[str], Iterator[Found]], ...] = (
    _objects,
    _quoted,
    _plain(Kind.ADDRESS, _ADDRESS),
    _dates,
    _times,
    _bracketed,
    _plain(Kind.SUM, _SUM),
    _plain(Kind.PATH, _PATH),
    _numbers,
    _names,
)
