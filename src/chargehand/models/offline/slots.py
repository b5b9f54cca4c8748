"""The blanks that a tool's arguments are: what each takes, and by which words it is known."""

import re
from typing import Any

from msgspec import Struct

from chargehand.models.offline.values import Found, Kind
from chargehand.models.offline.words import FAINT, term, term_set, terms, word_set, words

Schema = dict[str, Any]

_QUOTED_CHOICE = re.compile(r"'([\w][\w .+/-]{0,30})'|\"([\w][\w .+/-]{0,30})\"")
_EXAMPLES = re.compile(
    r"(?:e\.g\.,?|for example,?|such as|options?(?: are)?:?|can be|one of:?|either)\s+([^.;()]+)",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r",\s*(?:or\s+|and\s+)?|\s+or\s+|\s+and\s+|/")
PROSE = word_set("""query text prompt question message keyword content topic description command expression search
    input sentence subject q body note statement instruction request""")
PLACE = term_set("location city country state place where address region town")
FROM = term_set("from origin departure start source begin base")
TO = term_set("to destination end arrival target")
SORT = word_set("""type stat unit units mode level format category method genre style status criterion order kind
    metric material frequency""")
#: such an argument takes a word of a few, seldom a name or a number
SHARE = word_set("rate percent percentage interest ratio share discount tax growth yield inflation")
CODE = word_set("id code zip docket postal phone isbn number ticket account version")
_KINDS = {
    Kind.PATH: frozenset(("path", "file", "filename", "document", "pattern")),
    Kind.ADDRESS: frozenset(("url", "uri", "link", "email", "address", "website", "recipient")),
    Kind.SUM: frozenset(("expression", "formula", "equation", "sum")),
    Kind.DATE: frozenset(("date", "day", "when", "since", "until", "deadline")),
    Kind.TIME: frozenset(("time", "hour", "hours", "when")),
}


class Slot(Struct, frozen=True, kw_only=True):
    """One argument of a tool."""

    name: str
    schema: Schema
    type: str
    is_required: bool
    words: frozenset[str]
    #: of its name, as written
    cues: frozenset[str]
    #: terms of its name
    hints: frozenset[str]
    #: terms of its description
    choices: tuple[Any, ...]
    is_closed: bool
    #: nothing but the choices is allowed

    @property
    def item_type(self) -> str:
        """What one value of it is: of a list, what its items are."""
        return type_of(self.schema.get("items") or {}) if self.type == "array" else self.type

    @property
    def is_prose(self) -> bool:
        return self.item_type in ("string", "") and bool(self.words & PROSE)


def slots_of(parameters: Schema) -> list[Slot]:
    """The arguments of a tool in the order of its schema."""
    required = parameters.get("required") or ()
    properties = parameters.get("properties") or {}
    return [
        _slot(name, schema if isinstance(schema, dict) else {}, name in required, parameters)
        for name, schema in properties.items()
    ]


def _slot(name: str, schema: Schema, is_required: bool, root: Schema) -> Slot:
    schema = resolved(schema, root)
    description = str(schema.get("description") or "")
    inner = schema.get("items") if isinstance(schema.get("items"), dict) else {}
    closed = schema.get("enum") or (inner or {}).get("enum")
    return Slot(
        name=name,
        schema=schema,
        type=type_of(schema),
        is_required=is_required,
        words=frozenset(words(name)),
        cues=frozenset(term(word) for word in words(name)) - {"num", "min", "max"},
        hints=frozenset(terms(description)) - FAINT,
        choices=tuple(closed) if closed else _told_choices(description),
        is_closed=bool(closed),
    )


def resolved(schema: Schema, root: Schema) -> Schema:
    """The schema that a reference points to, or the one that is not null of several."""
    for _ in range(8):  # references may go in circles
        if reference := schema.get("$ref"):
            target: Any = root
            for step in str(reference).removeprefix("#/").split("/"):
                target = target.get(step, {}) if isinstance(target, dict) else {}
            schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
        elif options := schema.get("anyOf") or schema.get("oneOf"):
            chosen = next((o for o in options if o.get("type") != "null"), options[0])
            rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            schema = {**rest, **chosen}
        else:
            break
    return schema


def type_of(schema: Schema) -> str:
    kind = schema.get("type", "")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if not kind and "properties" in schema:
        return "object"
    return str(kind)


def _told_choices(description: str) -> tuple[str, ...]:
    """Values that the description names as examples: likely ones, though not the only ones."""
    told = [a or b for a, b in _QUOTED_CHOICE.findall(description)]
    for listed in _EXAMPLES.findall(description):
        told += [each.strip(" '\"") for each in _BETWEEN.split(listed)]
    kept = [each for each in told if each and len(each.split()) <= 3 and not each.isdecimal()]
    return tuple(dict.fromkeys(kept))


def takes(slot: Slot, found: Found) -> bool:
    """Whether the value is of a type that the argument can hold."""
    number = found.kind is Kind.NUMBER
    match slot.item_type:
        case "integer":
            return number and float(found.value).is_integer() and _is_within(slot, found.value)
        case "number":
            return number and _is_within(slot, found.value)
        case "string":
            return found.kind not in (Kind.NUMBERS, Kind.OBJECT) and not slot.is_closed
        case "object":
            return found.kind is Kind.OBJECT
        case "":
            return True
        case "array":
            return found.kind is Kind.NUMBERS
    return False


def _is_within(slot: Slot, value: float) -> bool:
    if slot.is_closed and value not in slot.choices and str(value) not in slot.choices:
        return False
    low, high = slot.schema.get("minimum"), slot.schema.get("maximum")
    return (low is None or value >= low) and (high is None or value <= high)


def affinity(slot: Slot, found: Found, before: str) -> float:
    """How well the look of a value and the word before it suit the argument."""
    worth = _by_kind(slot, found)
    worth += _by_unit(slot, found)
    if before in ("from", "departing", "leaving", "between"):
        worth += 2.0 if slot.cues & FROM else -1.0 if slot.cues & TO else 0.0
    if before in ("to", "towards", "into", "for"):
        worth += 1.5 if slot.cues & TO else -1.0 if slot.cues & FROM else 0.0
    if before in ("in", "at", "near", "around") and found.kind is Kind.NAME:
        worth += 1.5 if slot.cues & PLACE else -0.5
    return worth


def _by_kind(slot: Slot, found: Found) -> float:
    for kind, names in _KINDS.items():
        if found.kind is kind:
            return 3.0 if slot.words & names else 0.2 if slot.is_prose else -2.0
        if slot.words & names and slot.item_type == "string":
            return 0.5 if found.kind is Kind.QUOTED else -0.8
    match found.kind:
        case Kind.QUOTED:
            return 2.5 if slot.is_prose else 1.2
        case Kind.NAME:
            is_place = found.value.rpartition(", ")[2].lower() in _PLACE_ENDS
            if slot.words & SORT:
                return -0.3
            # Without a word such as `in` before it, a name is as likely that of a person.
            return (0.6 if slot.cues & PLACE else 0.8) + (0.8 if is_place else 0.0)
        case Kind.NUMBER if slot.words & SORT and not slot.words & CODE:
            return -0.5
        case Kind.NUMBER if slot.item_type == "string":
            return 0.8 if slot.words & CODE else -0.5
        case Kind.NUMBER:
            # A number in words is more often how many things are spoken of than a value.
            return _by_year(slot, found.value) - (1.0 if found.text.isalpha() else 0.0)
    return 1.0


_PLACE_ENDS = word_set("usa uk us france germany italy spain japan china india")


def _by_year(slot: Slot, value: float) -> float:
    looks_like_year = 1000 <= value <= 2100 and float(value).is_integer()
    if "year" in slot.words or "years" in slot.words:
        is_span = "years" in slot.words
        return 1.5 if looks_like_year != is_span else -0.5
    return 0.3 if looks_like_year else 0.8


def _by_unit(slot: Slot, found: Found) -> float:
    if not found.unit:
        return 0.0
    if found.unit == "%":
        return 2.0 if slot.words & SHARE or slot.hints & SHARE else -1.0
    if found.unit in "$€£":
        return 1.5 if slot.cues & _MONEY else 0.0
    unit = term(found.unit.lower())
    return 2.0 if unit in slot.cues else 1.2 if unit in slot.hints else 0.0


_MONEY = term_set("price amount cost money budget principal salary payment")
