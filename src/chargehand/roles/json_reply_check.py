"""Answers that must be JSON of a given shape: read them, and say in words what is wrong."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.facts.json_schema import faults_against
from chargehand.facts.lone_surrogates import without_escaped_surrogates
from chargehand.facts.output_schema import faults_in_words, type_adapter, type_faults

#: beginnings of an object that are looked at in a text that is not JSON alone
MOST_OBJECTS = 20
_decoder = json.JSONDecoder()


def objection_to(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
    """The JSON in an answer, and what is wrong with it, in words that a model can act upon."""
    try:
        value = _found_in(text, "[" if schema.get("type") == "array" else "{")
    except msgspec.DecodeError as error:
        return None, f"The answer is not JSON ({error}). Answer with JSON alone."
    faults = faults_against(schema, value) or type_faults(schema, value)
    if not faults:
        return value, None
    said = "; ".join(faults[:5])
    return (
        None,
        f"The answer does not fit the schema: {said}. Answer with the corrected JSON alone.",
    )


def record(**properties: dict[str, Any]) -> dict[str, Any]:
    """An object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def one_of(choices: Iterable[str]) -> dict[str, Any]:
    """One of these texts; of none, any text: an empty list of choices would be no schema."""
    known = list(choices)
    return {"type": "string", "enum": known} if known else {"type": "string"}


def decoded(text: str) -> Any:
    """The JSON in a text, between fences or not; None if it is none."""
    try:
        return _found_in(text)
    except msgspec.DecodeError:
        return None


def typed(output: Any, data: Any) -> Any:
    """The answer as the type that was asked for. Raises `UsageError` if it is none, as of a run begun for another type."""
    if output is None or isinstance(output, dict):
        return data
    adapter = type_adapter(output)
    try:
        return adapter.validate_python(data)
    except Exception as error:
        raise UsageError(
            f"the answer does not fit {shown(output)}: {'; '.join(faults_in_words(error))}; "
            "result.answer.output is the answer as JSON"
        ) from error


def _found_in(text: str, opening: str = "{") -> Any:
    """The JSON in a text: all of it, or the longest object or list in it. Models like to talk around it.

    Raises `msgspec.DecodeError` if there is none.
    """
    text = without_escaped_surrogates(text)
    try:
        return msgspec.json.decode(text.strip())
    except RecursionError:
        raise msgspec.DecodeError("it is nested too deeply") from None
    except msgspec.DecodeError:
        found = _parts_in(text, opening)
        if not found:
            raise
    return max(found, key=lambda each: each[0])[1]


def _parts_in(text: str, opening: str) -> list[tuple[int, Any]]:
    """The first few objects or lists that stand in a text, each with its length."""
    found: list[tuple[int, Any]] = []
    at = -1
    for _ in range(MOST_OBJECTS):
        at = text.find(opening, at + 1)
        if at < 0:
            break
        try:
            _, end = _decoder.raw_decode(text, at)
            value = msgspec.json.decode(text[at:end])  # stricter: NaN and 1e999 are no JSON
        except (ValueError, RecursionError, msgspec.DecodeError):
            continue
        found.append((end - at, value))
        at = end - 1
    return found
