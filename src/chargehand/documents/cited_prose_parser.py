"""Turns prose with sources in brackets into figures that can be checked."""

import re
from collections.abc import Iterator

from chargehand.documents.figure_check import Figure
from chargehand.documents.numbers_in_text import CURRENCIES, TextNumber, numbers_in, runs_in

_SQL = re.compile(r"\s*sql:", re.IGNORECASE)
#: a path with a line, or a file name: a source, or an attempt at one
_SOURCE = re.compile(r"[^\W\d_][^\s:\[\]]*:\s?[0-9]|[\w-]\.[A-Za-z][A-Za-z0-9]{0,4}(?=$|[\s:,;#])")
_LINK = re.compile(r"\([^\s()]*\)")
_QUOTED = re.compile(r"[\"“”„]([^\"“”„\n]+)[\"“”]$")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATE = re.compile(
    rf"(?<!\w)(?:[0-9]{{1,2}}(?:\.|st|nd|rd|th)? (?:of )?{_MONTH},? [0-9]{{4}}|{_MONTH} (?:[0-9]{{1,2}}(?:st|nd|rd|th)?, ?)?[0-9]{{4}})$",
    re.IGNORECASE,
)
#: characters between a figure and its source that belong to neither
_MARKS = " \t*_`"
#: characters searched for a figure before its source, and for a source after an opening bracket
_BEFORE, _MOST_SOURCE = 200, 500
#: most words between a number and its source: the unit with its context, such as EUR per unit
_MOST_WORDS = 4
_WORDS_AFTER = re.compile(r"[^.;:!?()\[\]\n\"“”]*")


def cited(text: str) -> "list[str | Figure]":
    """Split text into strings and figures: what comes directly before a source in brackets becomes a figure.

    Numbers with their unit, dates and "quotations" become figures. Before any other source, the words since the last
    punctuation mark become a figure, which is found if the source contains exactly these words.

    cited("It fell to 49 mL/min [labs.csv:36].")  # "It fell to ", Figure(value=49, unit="mL/min", …), "."
    """
    parts: list[str | Figure] = []
    end = 0
    for start, stop, source in _sources_in(text):
        first = max(end, start - _BEFORE)
        begin, value, unit, rest = _figure_before(text[first:start])
        parts += [text[end : first + begin], Figure(value=value, unit=unit, source=source), rest]
        end = stop
    parts.append(text[end:])
    return [part for part in parts if part != ""]


def _sources_in(text: str) -> Iterator[tuple[int, int, str]]:
    """The sources in brackets: start, end and text of each."""
    closes: dict[int, int] = {}
    opened: list[int] = []
    for mark in re.finditer(r"[\[\]\n]", text):
        match mark[0]:
            case "[":
                opened.append(mark.start())
            case "]" if opened:
                closes[opened.pop()] = mark.start()
            case "\n" if opened and not _SQL.match(text, opened[0] + 1):
                opened.clear()
    end = 0
    for start in (mark.start() for mark in re.finditer(r"\[", text)):
        if start < end:
            continue  # inside a query
        close = closes.get(start)
        stop = min(len(text), start + _MOST_SOURCE) if close is None else close
        inner = text[start + 1 : stop]
        if not _SQL.match(inner) and ("[" in inner or not _SOURCE.search(inner[:_MOST_SOURCE])):
            continue
        if close is None:  # no closing bracket
            inner = inner.partition("\n")[0]
            stop = start + len(inner)
        elif _LINK.match(text, close + 1) and not _SQL.match(inner) and ":" not in inner:
            continue  # a Markdown link
        end = stop + 1
        yield start, min(end, len(text)), inner.strip()


def _figure_before(text: str) -> tuple[int, float | str, str, str]:
    """The figure at the end of a text: its start, its value and unit, and the text after it."""
    trimmed = text.rstrip(_MARKS)
    closing = trimmed.rstrip(".,;:!?")  # 99 EUR. [c.md:3]
    for end in (trimmed, closing):
        if quoted := _QUOTED.search(end):
            return quoted.start(), quoted[1], "", ""
        if dated := _DATE.search(end):
            return dated.start(), dated[0], "", ""
    return _number_before(closing) or _words_before(trimmed)


def _number_before(text: str) -> tuple[int, float | str, str, str] | None:
    """The last number, date, time or fraction of a text, if only a few words follow it."""
    runs = runs_in(text)
    if not runs:
        return None
    start, end = runs[-1]
    number = next((n for n in reversed(list(numbers_in(text))) if n.end >= end), None)
    if number is not None:
        start, end = number.start, number.end
    elif (start and text[start - 1].isalnum()) or text[end : end + 1].isalnum():
        return None  # part of a word: F3, covid-19
    behind = text[end:].lstrip(_MARKS + ")")
    words = behind.split()
    if len(words) > _MOST_WORDS or not _WORDS_AFTER.fullmatch(behind):
        return None
    unit = words[0].strip("*_`,") if words else ""
    rest = f" {' '.join(words[1:])}" if len(words) > 1 else ""
    if number is None:
        return start, text[start:end].lstrip("€$£¥"), unit, rest
    return _with_unit(text, number, unit, rest)


def _with_unit(
    text: str, number: TextNumber, unit: str, rest: str
) -> tuple[int, float | str, str, str]:
    """A number with the unit after it or, for a currency, before it. The word `million` is part of the unit."""
    start, said = number.start, text[number.start : number.end]
    before = text[:start].rstrip().rpartition(" ")[2]
    if symbol := "".join(each for each in said if each in "€$£¥"):
        unit, rest = symbol, f" {unit}{rest}" if unit else rest
    elif before in CURRENCIES and not unit:
        unit, start = before, text.rindex(before, 0, start)
    if number.scale != 1:
        unit = f"{''.join(each for each in said if each.isalpha())} {unit}".strip()
    value = number.value / number.scale
    start -= len(text[:start]) - len(text[:start].rstrip("*_`"))
    return start, int(value) if value.denominator == 1 else float(value), unit, rest


def _words_before(text: str) -> tuple[int, str, str, str]:
    """The words since the last punctuation mark, which a source without a number is cited for."""
    words = re.search(r"[^.,;:!?()\[\]\n\"“”]*[.,;:!?]*$", text)
    start = words.start() if words else len(text)
    said = text[start:]
    return start + len(said) - len(said.lstrip()), said.strip(_MARKS + ".,;:!?"), "", ""
