"""Answers of a given shape: a JSON Schema filled in from the data. What the data does not say is not made up."""

import contextlib
import operator
import re
from typing import Any

from chargehand.models.offline.arguments import numbers_in, quoted_in
from chargehand.models.offline.clauses import sentences
from chargehand.models.offline.passages import Sentence, answer, content, roots, sentences_in
from chargehand.models.offline.reading import Reading
from chargehand.models.offline.schemas import Schema, resolved, type_of
from chargehand.models.offline.words import COUNTS, root, word_set, words

DEEPEST = 12
MOST = 8
_CITATIONS = word_set("source sources citation citations cite evidence where references")
_ANSWERS = word_set(
    "answer summary result text report conclusion finding findings content output reply"
)
_HOLDS = {
    "at least": operator.ge,
    "more than": operator.gt,
    "at most": operator.le,
    "no more than": operator.le,
    "fewer than": operator.lt,
    "exactly": operator.eq,
}
_BOUND = re.compile(
    rf"\b(no more than|{'|'.join(_HOLDS)})\s+(\w+)\s+(word|sentence|line|character|citation)s?\b",
    re.IGNORECASE,
)


class CannotFill(Exception):
    """The data holds nothing that the schema allows here."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'the answer'}: {why}")


class Form:
    """A schema to be filled in from what was read."""

    def __init__(self, reading: Reading, schema: Schema) -> None:
        self._reading = reading
        self._root = schema
        self._known = sentences_in(reading.excerpts)

    def filled(self) -> Any:
        """A value that fits the schema; raises `CannotFill` if the data gives none."""
        return self._value(self._root, "", 0)

    def field(self, name: str) -> Any:
        """A value for one property of the schema."""
        return self._value(self._root["properties"][name], name, 1)

    def _value(self, told: Any, path: str, depth: int) -> Any:
        schema = resolved(told, self._root)
        if depth > DEEPEST:
            raise CannotFill(path, "the schema goes too deep")
        if type_of(schema) == "object":
            return self._object(schema, path, depth)
        if type_of(schema) == "array":
            return self._array(schema, path, depth)
        fitting = [value for value in self._candidates(schema, path) if self._fits(schema, value)]
        is_text = bool(fitting) and type_of(schema) in ("string", "") and "enum" not in schema
        if len(fitting) != 1 and not is_text:
            raise CannotFill(path, f"the data gives {len(fitting)} values for it")
        return fitting[0]

    def _candidates(self, schema: Schema, path: str) -> list[Any]:
        about = self._about(path)
        if "const" in schema:
            return [schema["const"]]
        if choices := schema.get("enum"):
            said = frozenset[str]().union(*(sentence.own for sentence in about))
            named = [each for each in choices if (own := roots(str(each))) and own <= said]
            return named if len(choices) > 1 else list(choices)
        match type_of(schema):
            case "integer" | "number":
                return list({number for s in about for number in numbers_in(s.text)})
            case "null":
                return [None]
            case "boolean":
                return []  # rules cannot tell yes from no
        if _name_of(path) & _CITATIONS:
            return [sentence.where for sentence in about]
        if path and not _name_of(path) & _ANSWERS:
            return list(map(str, about))
        found = answer(self._reading.question, self._reading.excerpts, self._reading.subject)
        return [] if found.gap else ["\n".join(found.lines)]

    def _object(self, schema: Schema, path: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        filled: dict[str, Any] = {}
        if {"met", "why"} <= properties.keys():
            filled["met"], filled["why"] = judged(self._reading)
        for name in [name for name in properties if name not in filled]:
            try:
                filled[name] = self._value(properties[name], f"{path}.{name}".strip("."), depth + 1)
            except CannotFill:
                if name in (schema.get("required") or ()):
                    raise
        return filled

    def _array(self, schema: Schema, path: str, depth: int) -> list[Any]:
        found: list[Any] = []
        whole = self._known
        for sentence in self._about(path):  # each item from a sentence of its own
            self._known = [sentence]
            with contextlib.suppress(CannotFill):
                value = self._value(schema.get("items"), path, depth + 1)
                found += [value] if value not in found else []
            self._known = whole
        found = found[:MOST]
        if not self._fits(schema, found):
            raise CannotFill(path, f"the data gives {len(found)} items, which do not fit")
        return found

    def _about(self, path: str) -> list[Sentence]:
        """The sentences that speak of a field by its name; all, where there is only what was asked for."""
        named = {root(word) for word in _name_of(path)}
        found = [s for s in self._known if named & s.own]
        if found or not _name_of(path) - _ANSWERS - _CITATIONS:
            return found or self._known[:MOST]
        asked = set(content(self._reading.question))
        return [s for s in self._known if (asked and asked <= s.all) or len(self._known) == 1]

    def _fits(self, schema: Schema, value: Any) -> bool:
        from jsonschema import Draft202012Validator  # slow to import, and most answers need none

        shared = {key: self._root[key] for key in ("$defs", "definitions") if key in self._root}
        try:
            return bool(Draft202012Validator({**shared, **schema}).is_valid(value))
        except (re.error, TypeError):
            return False  # the schema is in a dialect of its own


def _name_of(path: str) -> set[str]:
    return set(words(path.rpartition(".")[2]))


def judged(reading: Reading) -> tuple[bool, str]:
    """Whether the data meets the counts and has the quotations that a rule names; rules judge nothing else."""
    rule = re.sub(r"(?s)^.*\bby this rule[^:\n]*: *", "", reading.question).partition("\n")[0]
    text = "\n".join(excerpt.text for excerpt in reading.excerpts)
    bounds, quotes = _BOUND.findall(rule), quoted_in(rule)
    if not bounds and not quotes:
        raise CannotFill("met", "rules count and compare, but cannot judge a text")
    for bound, written, what in bounds:
        wanted = int(written) if written.isdecimal() else COUNTS.get(written.lower(), 0)
        count = _count(what.lower(), text, reading)
        if not _HOLDS[bound.lower()](count, wanted):
            return False, f"It has {count} {what}s; the rule wants {bound.lower()} {wanted}."
    missing = [said for said in quotes if said.lower() not in text.lower()]
    if missing:
        return False, f"“{missing[0]}” is not in it."
    return True, "It has what the rule counts and quotes."


def _count(what: str, text: str, reading: Reading) -> int:
    match what:
        case "word":
            return len(text.split())
        case "sentence":
            return len(list(sentences(text)))
        case "character":
            return len(text)
        case "citation":
            # A line of the result that cites nothing goes by the name of the result itself.
            return len({e.where for e in reading.excerpts if not e.where.startswith("result")})
    return len([line for line in text.split("\n") if line.strip()])
