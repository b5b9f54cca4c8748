"""Answers of a given shape: a JSON Schema filled in from the data. What the data does not say is not made up."""

import contextlib
import re
from operator import ge, gt, le, lt
from typing import Any

from chargehand.models.offline.arguments import numbers_in
from chargehand.models.offline.passages import Sentence, answer, content, roots, sentences_in
from chargehand.models.offline.reading import Reading
from chargehand.models.offline.schemas import Schema, resolved, type_of
from chargehand.models.offline.verdict import judged
from chargehand.models.offline.words import root, word_set, words

DEEPEST = 12
MOST = 8
_CITATIONS = word_set("source sources citation citations cite evidence where references")
_ANSWERS = word_set(
    "answer summary result text report conclusion finding findings content output reply"
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

    def _value(self, schema: Any, path: str, depth: int) -> Any:
        schema = _merged(schema, self._root)
        if depth > DEEPEST:
            raise CannotFill(path, "the schema goes too deep")
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._choice(schema["enum"], path)
        match type_of(schema):
            case "object":
                return self._object(schema, path, depth)
            case "array":
                return self._array(schema, path, depth)
            case "integer" | "number" as kind:
                return self._number(schema, path, kind == "integer")
            case "boolean":
                raise CannotFill(path, "rules cannot tell yes from no")
            case "null":
                return None
        return self._string(schema, path)

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
                value = self._value(schema.get("items") or {}, path, depth + 1)
                found += [value] if value not in found else []
            self._known = whole
        if len(found) < schema.get("minItems", 0):
            raise CannotFill(path, f"the data gives only {len(found)} items")
        return found[: schema.get("maxItems", MOST)]

    def _choice(self, choices: list[Any], path: str) -> Any:
        said = frozenset[str]().union(*(s.own for s in self._about(path)))
        named = [each for each in choices if (own := roots(str(each))) and own <= said]
        if len(named) != 1 and len(choices) > 1:
            raise CannotFill(path, f"the data names {len(named)} of its choices")
        return named[0] if named else choices[0]

    def _string(self, schema: Schema, path: str) -> str:
        about = self._about(path)
        if _name_of(path) & _CITATIONS:
            candidates = [s.where for s in about]
        elif not path or _name_of(path) & _ANSWERS:
            found = answer(self._reading.question, self._reading.excerpts, self._reading.subject)
            candidates = [] if found.gap else ["\n".join(found.lines)]
        else:
            candidates = list(map(str, about))
        fits = next((text for text in candidates if text and _allows(schema, text)), None)
        if fits is None:
            raise CannotFill(path, "nothing in the data has the form that is asked for")
        return fits

    def _number(self, schema: Schema, path: str, is_whole: bool) -> int | float:
        numbers = {number for s in self._about(path) for number in numbers_in(s.text)}
        told = {n for n in numbers if _within(schema, n, is_whole)}
        if len(told) != 1:
            raise CannotFill(path, f"the data gives {len(told)} numbers for it")
        return int(told.pop()) if is_whole else float(told.pop())

    def _about(self, path: str) -> list[Sentence]:
        """The sentences that speak of a field by its name; all, where there is only what was asked for."""
        named = {root(word) for word in _name_of(path)}
        found = [s for s in self._known if named & s.own]
        if found or not _name_of(path) - _ANSWERS - _CITATIONS:
            return found or self._known[:MOST]
        asked = set(content(self._reading.question))
        return [s for s in self._known if (asked and asked <= s.all) or len(self._known) == 1]


def _merged(schema: Any, root_: Schema) -> Schema:
    if not isinstance(schema, dict):
        return {}
    whole = resolved(schema, root_)
    for each in whole.get("allOf") or ():
        whole = {**resolved(each, root_), **whole}
    return whole


def _name_of(path: str) -> set[str]:
    return set(words(path.rpartition(".")[2]))


def _allows(schema: Schema, text: str) -> bool:
    if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text)):
        return False
    forms = {
        "date": r"\d{4}-\d\d-\d\d",
        "date-time": r"\d{4}-\d\d-\d\dT.*",
        "uuid": r"[0-9a-f-]{32,36}",
    }
    pattern = schema.get("pattern")
    try:
        is_like = pattern is None or re.search(pattern, text) is not None
    except re.error:
        is_like = True  # a dialect that is not ours; the caller checks the answer in any case
    return (
        is_like
        and re.fullmatch(forms.get(schema.get("format", ""), ".*"), text, re.DOTALL) is not None
    )


def _within(schema: Schema, value: float, is_whole: bool) -> bool:
    tests = {"minimum": ge, "maximum": le, "exclusiveMinimum": gt, "exclusiveMaximum": lt}
    step = schema.get("multipleOf")
    return (
        (float(value).is_integer() or not is_whole)
        and all(holds(value, schema[name]) for name, holds in tests.items() if name in schema)
        and (step is None or (value / step).is_integer())
    )
