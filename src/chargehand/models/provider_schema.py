"""JSON Schemas as the providers can hold a model to them.

Each provider enforces only a part of JSON Schema. A schema is brought into that part where every
answer that fits the result is one the caller could want; the caller checks the answer against its
own schema in any case, so a bound that the provider does not know may be told in words instead.
"""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

Schema = dict[str, Any]


class Dialect(Struct, frozen=True):
    """What a provider understands of JSON Schema."""

    name: str
    #: keywords that the provider enforces, in addition to the structural ones
    keywords: frozenset[str]
    #: all properties must be required, and the whole must be an object
    wants_all: bool = False


_SHAPE = {"type", "enum", "const", "$ref", "title", "description"}
_FORMATS = {
    *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
}
_LIMITS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}

OPENAI = Dialect(
    "openai", frozenset(_SHAPE | _LIMITS | {"pattern", "minItems", "maxItems"}), wants_all=True
)
ANTHROPIC = Dialect("anthropic", frozenset(_SHAPE))

#: left out without a word: they bind nobody
_UNSPOKEN = {"default", "examples", "$schema", "$id", "$comment", "readOnly", "deprecated"}


class _CannotHold(Exception):
    """A schema that this dialect has no words for."""


def held_to(schema: Schema, dialect: Dialect) -> Schema | None:
    """The schema as this provider can enforce it; None if it cannot."""
    # In its own order: models write the properties in the order in which they stand there.
    return _held(msgspec.json.encode(schema), dialect)


@lru_cache(maxsize=256)
def _held(encoded: bytes, dialect: Dialect) -> Schema | None:
    schema = msgspec.json.decode(encoded)
    try:
        held = _translated(schema, dialect)
    except (_CannotHold, RecursionError):
        return None
    if dialect.wants_all and held.get("type") != "object":
        return None
    return held


def _translated(schema: object, dialect: Dialect) -> Schema:
    if not isinstance(schema, dict) or not schema:
        raise _CannotHold  # `true` and `{}` allow anything at all
    told: Schema = {}
    held: Schema = {}
    for keyword, value in schema.items():
        if keyword in ("anyOf", "oneOf"):
            # Exactly one of several cannot be enforced; at least one of them can.
            held["anyOf"] = [_translated(choice, dialect) for choice in value]
        elif keyword in ("$defs", "definitions"):
            held[keyword] = {name: _translated(each, dialect) for name, each in value.items()}
        elif keyword == "items":
            held["items"] = _translated(value, dialect)
        elif keyword in ("properties", "required", "additionalProperties"):
            continue
        elif keyword in dialect.keywords or (keyword == "format" and value in _FORMATS):
            held[keyword] = value
        elif keyword in ("allOf", "not", "if", "patternProperties", "dependentSchemas"):
            raise _CannotHold
        elif keyword not in _UNSPOKEN:
            told[keyword] = value
    _check_shape(held)
    if _is_object(schema):
        held |= _object(schema, dialect)
    return _with_told(held, told)


def _check_shape(held: Schema) -> None:
    if not held.keys() & {"type", "enum", "const", "$ref", "anyOf"}:
        raise _CannotHold
    if held.get("type") == "array" and "items" not in held:
        raise _CannotHold


def _is_object(schema: Schema) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _object(schema: Schema, dialect: Dialect) -> Schema:
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    if isinstance(others, dict) or not (properties or others is False):
        raise _CannotHold  # a map from any name to a value
    required = schema.get("required") or []
    if dialect.wants_all and set(required) != set(properties):
        raise _CannotHold  # leaving one out could not be allowed any more
    return {
        "properties": {name: _translated(each, dialect) for name, each in properties.items()},
        "required": required,
        "additionalProperties": False,
    }


def _with_told(held: Schema, told: Schema) -> Schema:
    if not told:
        return held
    words = msgspec.json.encode(told).decode()
    before = held.get("description", "")
    return {**held, "description": f"{before} ({words})" if before else words}
