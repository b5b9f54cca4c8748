"""Answers of a given shape: a JSON Schema filled in from the data, as far as the data goes."""

import re
from collections.abc import Callable
from typing import Any

from chargehand.models.offline.extract import Quote, answer, fitting, quotes_in
from chargehand.models.offline.reading import Reading
from chargehand.models.offline.slots import Schema, resolved, type_of
from chargehand.models.offline.values import Kind, values_in
from chargehand.models.offline.verdict import judged
from chargehand.models.offline.words import coverage, terms, word_set, words

DEEPEST = 12
_CITATIONS = word_set("source sources citation citations cite evidence where references")
_ANSWERS = word_set(
    "answer summary result text report conclusion finding findings content output reply"
)
_FORMATS = {"date": "1970-01-01", "date-time": "1970-01-01T00:00:00Z", "uuid": f"{0:032x}"}


class CannotFill(Exception):
    """The data holds nothing that the schema allows here."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'the answer'}: {why}")


class Form:
    """A schema to be filled in from what was read."""

    def __init__(self, reading: Reading, schema: Schema) -> None:
        self._reading = reading
        self._root = schema
        self._quotes = quotes_in(reading.excerpts)

    def filled(self) -> Any:
        """A value that fits the schema; raises `CannotFill` if the rules find none."""
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
            return self._choice(schema, path)
        kind = type_of(schema)
        fillers: dict[str, Callable[[Schema, str, int], Any]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._number,
            "number": self._number,
            "boolean": self._boolean,
        }
        if kind == "null":
            return None
        return fillers.get(kind, self._string)(schema, path, depth)

    def _object(self, schema: Schema, path: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        if {"met", "why"} <= properties.keys():
            met, why = judged(self._reading)
            rest = {k: v for k, v in properties.items() if k not in ("met", "why")}
            return {"met": met, "why": why, **self._fields(schema, rest, path, depth)}
        return self._fields(schema, properties, path, depth)

    def _fields(
        self, schema: Schema, properties: dict[str, Any], path: str, depth: int
    ) -> dict[str, Any]:
        required = schema.get("required") or ()
        filled = {}
        for name, each in properties.items():
            try:
                filled[name] = self._value(each, f"{path}.{name}".strip("."), depth + 1)
            except CannotFill:
                if name in required:
                    raise
        return filled

    def _array(self, schema: Schema, path: str, depth: int) -> list[Any]:
        items = _merged(schema.get("items") or {}, self._root)
        least, most = schema.get("minItems", 0), min(schema.get("maxItems", 8), 50)
        if not items or (type_of(items) == "string" and not items.keys() & {"enum", "const"}):
            found = [text for text in self._texts(path) if _allows(items, text)]
        else:
            found = self._several(items, path, depth)
        found = [each for n, each in enumerate(found) if each not in found[:n]][:most]
        while len(found) < least:
            if schema.get("uniqueItems") and found:
                raise CannotFill(path, f"the data gives only {len(found)} of {least} items")
            found.append(self._value(items, path, depth + 1))
        return found

    def _several(self, items: Schema, path: str, depth: int) -> list[Any]:
        if items.get("enum"):
            said = set(terms(" ".join(quote.text for quote in self._quotes)))
            return [each for each in items["enum"] if set(terms(str(each))) <= said]
        found = []
        for quote in self._relevant(path, 8):
            # Each item is filled in from a sentence of its own.
            part = Form(self._reading, self._root)
            part._quotes = [quote]
            try:
                found.append(part._value(items, path, depth + 1))
            except CannotFill:
                continue
        return found

    def _texts(self, path: str) -> list[str]:
        quotes = self._relevant(path, 8)
        if _name_of(path) & _CITATIONS:
            return list(dict.fromkeys(quote.where for quote in quotes))
        return [quote.text for quote in quotes]

    def _choice(self, schema: Schema, path: str) -> Any:
        said = terms(" ".join(q.text for q in self._relevant(path, 3)) + self._reading.question)
        counts = {
            str(each): sum(said.count(t) for t in terms(str(each))) for each in schema["enum"]
        }
        return max(schema["enum"], key=lambda each: counts[str(each)])

    def _string(self, schema: Schema, path: str, _: int) -> str:
        name = _name_of(path)
        if name & _CITATIONS:
            candidates = [quote.where for quote in self._relevant(path, 3)]
        elif not path or name & _ANSWERS:
            candidates = ["\n".join(answer(self._reading))]
        else:
            candidates = [str(quote) for quote in self._relevant(path, 3)]
        candidates += [str(each.value) for q in self._quotes for each in values_in(q.text)]
        candidates += [str(each) for each in schema.get("examples") or ()]
        candidates += [_FORMATS.get(schema.get("format", ""), "not found in the data"), "", "-"]
        cut = [text[: schema.get("maxLength", len(text))] for text in candidates]
        fits = next((text for text in cut if text and _allows(schema, text)), None)
        if fits is None and "default" in schema:
            return str(schema["default"])
        if fits is None:
            raise CannotFill(path, "nothing in the data has the form that is asked for")
        return fits

    def _number(self, schema: Schema, path: str, _: int) -> int | float:
        is_whole = type_of(schema) == "integer"
        for quote in self._relevant(path, 8):
            for found in values_in(quote.text):
                if found.kind is Kind.NUMBER and _within(schema, found.value, is_whole):
                    return int(found.value) if is_whole else float(found.value)
        for usual in (schema.get("default"), 0, schema.get("minimum"), schema.get("maximum"), 1):
            if isinstance(usual, (int, float)) and _within(schema, usual, is_whole):
                return usual
        raise CannotFill(path, "no number in the data is within the bounds")

    def _boolean(self, schema: Schema, path: str, _: int) -> bool:
        wanted = terms(f"{path.rpartition('.')[2]} {schema.get('description', '')}")
        return coverage(wanted, terms(" ".join(q.text for q in self._quotes))) >= 0.5

    def _relevant(self, path: str, most: int) -> list[Quote]:
        named = " ".join(words(path.rpartition(".")[2]))
        about_both = fitting(self._quotes, f"{named} {self._reading.question}", most)
        return fitting(self._quotes, named, most) or about_both or self._quotes[:most]


def _merged(schema: Any, root: Schema) -> Schema:
    if not isinstance(schema, dict):
        return {}
    whole = resolved(schema, root)
    for each in whole.get("allOf") or ():
        whole = {**resolved(each, root), **whole}
    return whole


def _name_of(path: str) -> set[str]:
    return set(words(path.rpartition(".")[2]))


def _allows(schema: Schema, text: str) -> bool:
    if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text)):
        return False
    usual = _FORMATS.get(schema.get("format", ""))
    if usual is not None and len(text) < 8:
        return False
    if usual is not None and re.sub(r"\d", "0", text)[:10] != re.sub(r"\d", "0", usual)[:10]:
        return False
    pattern = schema.get("pattern")
    try:
        return pattern is None or re.search(pattern, text) is not None
    except re.error:
        return True  # a dialect that is not ours; the caller checks the answer in any case


def _within(schema: Schema, value: float, is_whole: bool) -> bool:
    if is_whole and not float(value).is_integer():
        return False
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    step = schema.get("multipleOf")
    return (
        (low is None or value >= low)
        and (high is None or value <= high)
        and (above is None or value > above)
        and (below is None or value < below)
        and (step is None or (value / step).is_integer())
    )
