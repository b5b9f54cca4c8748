"""Validation with JSON Schemas from outside: nothing is fetched, and every pattern takes linear time.

Plans, callers and MCP clients pass schemas. A schema must not block the process with a slow regular
expression, nor make it fetch an address.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from chargehand.errors import UsageError
from chargehand.facts.value import canonical

#: patterns in one schema; each may take some megabytes when compiled
MOST_PATTERNS = 200
#: characters of a text that is matched against a pattern
LONGEST_MATCHED = 1_000_000
_REFERENCES = ("$ref", "$dynamicRef")
#: references that may be followed in one validation, plus ten for each value in the JSON
_FOLLOWED = 10_000

_ENDLESS = "the schema refers to itself without end; end it with a choice"

_left: ContextVar[int] = ContextVar("references_left")


def fault_of(schema: object) -> str | None:
    """What is wrong with a schema; None if values can be validated against it."""
    try:
        _validator(canonical(schema))
    except UsageError as error:
        return str(error)
    return None


def faults_against(schema: dict[str, Any], value: object) -> list[str]:
    """Where JSON does not fit a schema, in words. Raises `UsageError` if the schema itself is invalid."""
    validator = _validator(canonical(schema))
    before = _left.set(_FOLLOWED + 10 * _size_of(value))
    try:
        errors = sorted(validator.iter_errors(value), key=lambda error: list(map(str, error.path)))
    except RecursionError:
        raise UsageError(_ENDLESS) from None
    except ArithmeticError as error:
        raise UsageError(f"the schema has a number that nothing can be held to: {error}") from None
    finally:
        _left.reset(before)
    return [f"{_place(error)}: {error.message}"[:300] for error in errors]


def _size_of(value: object) -> int:
    """The number of values in a JSON value, itself included."""
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        size += 1
        if isinstance(each, (dict, list)):
            waiting += each.values() if isinstance(each, dict) else each
    return size


def _place(error: Any) -> str:
    return ".".join(str(step) for step in error.absolute_path) or "the answer"


@lru_cache(maxsize=256)
def _validator(encoded: bytes) -> Any:
    from jsonschema import SchemaError  # slow to import, and many runs need none
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    kind, schema = _kind(), msgspec.json.decode(encoded)
    try:
        kind.check_schema(schema, format_checker=None)  # does not check patterns with `re`
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
        parts = list(_parts(schema, resolver))
    except SchemaError as error:
        raise UsageError(f"the schema is faulty: {_place(error)}: {error.message}"[:400]) from None
    except RecursionError:
        raise UsageError("the schema is nested too deeply; make it flatter") from None
    patterns = {part["pattern"] for part in parts if "pattern" in part}
    patterns.update(*(part.get("patternProperties", ()) for part in parts))
    if len(patterns) > MOST_PATTERNS:
        raise UsageError(f"the schema has {len(patterns)} patterns; {MOST_PATTERNS} are the most")
    for pattern in patterns:
        _linear(pattern)
    keywords = set().union(*parts)
    if {"patternProperties", "unevaluatedProperties"} <= keywords:
        raise UsageError(
            "the schema has both patternProperties and unevaluatedProperties, which are not checked "
            "together; use additionalProperties instead"
        )
    for part in parts:
        part.pop("$schema", None)  # it would make jsonschema use another validator class
    return kind(schema, registry=Registry())


def _parts(schema: object, resolver: Any) -> Iterator[dict[str, Any]]:
    """All subschemas of a schema, and all that they refer to. Raises `UsageError` for an external reference."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    seen: set[int] = set()
    #: by id of each part: the parts that every value of it is checked against, too
    same: dict[int, list[int]] = {}
    waiting = [(schema, resolver)]
    while waiting:
        part, within = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        same.setdefault(id(part), []).extend(map(id, part.get("allOf", ())))
        resource = DRAFT202012.create_resource(part)
        waiting += [
            (each.contents, within.in_subresource(each)) for each in resource.subresources()
        ]
        for keyword in _REFERENCES:
            if keyword not in part:
                continue
            try:
                found = within.lookup(part[keyword])
            except (Unresolvable, ValueError):  # ValueError: it is no valid URI
                raise UsageError(
                    f"{keyword}={part[keyword]!r} is not in the schema itself, and nothing is fetched; "
                    "write what it means under $defs and refer to that"
                ) from None
            if not isinstance(found.contents, (dict, bool)):
                raise UsageError(f"{keyword}={part[keyword]!r} refers to what is no schema")
            if keyword == "$ref":  # where a $dynamicRef leads depends on the value
                same.setdefault(id(part), []).append(id(found.contents))
            if id(found.contents) not in seen:
                # It may be in a place where `check_schema` does not look for schemas.
                _kind().check_schema(found.contents, format_checker=None)
            waiting.append((found.contents, found.resolver))
    if _has_circle(same):
        raise UsageError(_ENDLESS)


def _has_circle(edges: Mapping[int, Sequence[int]]) -> bool:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError:
        return True
    return False


@lru_cache(maxsize=1024)
def _linear(pattern: str) -> Any:
    """The pattern, compiled by an engine that matches in linear time."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        why = str(error).strip().splitlines()[-1].removeprefix("error: ").strip()
        raise UsageError(
            f"pattern {pattern[:200]!r} cannot be used: {why}; write it without look-around and "
            "back-references, in the syntax of Rust's regex"
        ) from None


def _is_found(pattern: str, text: str) -> bool:
    return bool(_linear(pattern).isinstance_python(text))


def _pattern(_: Any, pattern: str, text: object, __: object) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not isinstance(text, str):
        return
    if len(text) > LONGEST_MATCHED:
        yield ValidationError(
            f"a text of {len(text):,} characters is too long for a pattern; "
            f"{LONGEST_MATCHED:,} are the most"
        )
    elif not _is_found(pattern, text):
        yield ValidationError(f"{text[:200]!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], value: object, _: object
) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    for pattern, schema in patterns.items():
        for name, each in value.items():
            if _is_found(pattern, name):
                yield from validator.descend(each, schema, path=name, schema_path=pattern)


@lru_cache(maxsize=1)
def _kind() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    others = Draft202012Validator.VALIDATORS["additionalProperties"]

    def additional(
        validator: Any, allowed: object, value: object, schema: dict[str, Any]
    ) -> Iterator[Any]:
        patterns = schema.get("patternProperties")
        if patterns and isinstance(value, dict):
            value = {n: v for n, v in value.items() if not any(_is_found(p, n) for p in patterns)}
            schema = {key: each for key, each in schema.items() if key != "patternProperties"}
        yield from others(validator, allowed, value, schema)

    def counted(follow: Any) -> Any:
        def reference(validator: Any, ref: str, value: object, schema: object) -> Iterator[Any]:
            # n definitions that each refer twice to the next one would be followed 2**n times.
            left = _left.get(_FOLLOWED)
            if left <= 0:
                raise UsageError("the schema refers to itself too often; make it simpler")
            _left.set(left - 1)
            yield from follow(validator, ref, value, schema)

        return reference

    references = {word: counted(Draft202012Validator.VALIDATORS[word]) for word in _REFERENCES}
    return extend(  # type: ignore[no-untyped-call]  # its stubs leave out the types
        Draft202012Validator,
        {
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": additional,
            **references,
        },
    )
