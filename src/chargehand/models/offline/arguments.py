"""A call of a tool, with the arguments that the words of a request give without doubt, and no others."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from chargehand.models.base import ToolSpec
from chargehand.models.offline.schemas import Schema, resolved, type_of
from chargehand.models.offline.words import COUNTS, STOP, word_set, words

#: characters of a text that are searched for values
LONGEST = 20_000

QUOTED = re.compile(
    r"\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”|`([^`\n]+)`|(?<!\w)'([^'\n]{1,2000}?)'(?!\w)"
)
SUM = re.compile(
    r"(?<![\w.,(])(?:[-(]\s?){0,4}\d[\d.,]{0,30}\)?(?:\s?(?:[-+*/^%×÷]|\*\*)\s?[-(]{0,4}\s?\d[\d.,]{0,30}\)*)+"
    r"|\b(?:sqrt|log|sin|cos|tan|exp|abs|min|max|round)\([^()\n]{0,200}\)"
)
_PATH = re.compile(
    r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,12}[\w-]{1,80}(?:\.[\w-]{1,80}){0,4}\.[A-Za-z]\w{1,4}\b(?!\()"
)
_ADDRESS = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)]")
_NUMBER = re.compile(
    r"(?<![\w.,:/])(?<!\d-)(-?\d{1,3}(?:,\d{3})+(?:\.\d+)?|-?\d{1,300}(?:\.\d+)?)(?![.,:/-]?\d)"
    rf"|\b({'|'.join(COUNTS)})\b(?!-)",
    re.IGNORECASE,
)
_FORMS = {"expression": SUM, "formula": SUM, "path": _PATH, "file": _PATH, "url": _ADDRESS}
#: names of parameters that take what is asked as it is asked
_PROSE = word_set("query q question request prompt text message content topic search input")


class Proposal(NamedTuple):
    """A call, and the required arguments that it lacks."""

    tool: str
    arguments: dict[str, Any]
    missing: tuple[str, ...] = ()


def proposal_for(tool: ToolSpec, text: str, given: Mapping[str, Any]) -> Proposal:
    """A call of the tool: with what is `given` by name, and what stands in the text and fits one parameter only."""
    told = tool.parameters.get("properties") or {}
    slots = {name: resolved(schema, tool.parameters) for name, schema in told.items()}
    required = [name for name in tool.parameters.get("required") or () if name in slots]
    values = {name: value for name, value in given.items() if name in slots}
    values = {**_choices(slots, text), **values}
    needed = {name: slots[name] for name in required if name not in values}
    values |= _number(needed, text) | _text(needed, text)
    missing = tuple(n for n in needed if n not in values and "default" not in slots[n])
    return Proposal(tool.name, {n: values[n] for n in slots if n in values}, missing)


def numbers_in(text: str) -> list[int | float]:
    """The numbers in a text, in digits or in words; not those of dates and times."""
    found = [(match[1], match[2]) for match in _NUMBER.finditer(text[:LONGEST])]
    return [number_of(digits) if digits else COUNTS[word.lower()] for digits, word in found]


def number_of(digits: str) -> int | float:
    plain = digits.replace(",", "")
    return float(plain) if "." in plain else int(plain)


def quoted_in(text: str) -> list[str]:
    """What stands in quotation marks."""
    matches = QUOTED.finditer(text[:LONGEST])
    return [next(group for group in match.groups() if group) for match in matches]


def _choices(slots: Mapping[str, Schema], text: str) -> dict[str, Any]:
    """The choices that are named once, and belong to one parameter."""
    named = {name: _named(schema.get("enum") or (), text) for name, schema in slots.items()}
    claims = Counter(choice.lower() for each in named.values() for choice in each)
    single = {name: each[0] for name, each in named.items() if len(each) == 1}
    return {name: choice for name, choice in single.items() if claims[choice.lower()] == 1}


def _named(choices: Any, text: str) -> list[str]:
    plain = [each for each in choices if isinstance(each, str) and each.lower() not in STOP]
    return [c for c in plain if len(re.findall(rf"\b{re.escape(c)}\b", text, re.IGNORECASE)) == 1]


def _number(needed: Mapping[str, Schema], text: str) -> dict[str, Any]:
    """The one number of the text, if one parameter waits for a number and takes this one."""
    numbers = numbers_in(text)
    free = {name: each for name, each in needed.items() if not each.get("enum")}
    slots = [name for name, each in free.items() if type_of(each) in ("integer", "number")]
    if len(numbers) != 1 or len(slots) != 1:
        return {}
    schema, number = needed[slots[0]], numbers[0]
    is_whole = type_of(schema) == "number" or float(number).is_integer()
    low, high = schema.get("minimum", number), schema.get("maximum", number)
    return {slots[0]: number} if is_whole and low <= number <= high else {}


def _text(needed: Mapping[str, Schema], text: str) -> dict[str, Any]:
    """What the one parameter for a text takes: a thing of its own form, the one quotation, or the request."""
    free = {name: each for name, each in needed.items() if not each.get("enum")}
    slots = [name for name, each in free.items() if type_of(each) in ("string", "")]
    if len(slots) != 1:
        return {}
    own = set(words(slots[0]))
    form = next((pattern for word, pattern in _FORMS.items() if word in own), None)
    quoted = quoted_in(text)
    if form is not None and not quoted:
        quoted = list(dict.fromkeys(match[0].strip() for match in form.finditer(text[:LONGEST])))
    if len(quoted) == 1:
        return {slots[0]: quoted[0]}
    return {slots[0]: text} if own & _PROSE else {}
