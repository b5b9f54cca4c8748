"""Answers that must be JSON of a given shape: read them, and say in words what is wrong."""

import dataclasses
from functools import lru_cache
from typing import Any

import msgspec

from chargehand.facts.shape import type_adapter
from chargehand.facts.value import canonical


def objection_to(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
    """The JSON in an answer, and what is wrong with it, in words that a model can act upon."""
    try:
        value = msgspec.json.decode(_without_fence(text))
    except msgspec.DecodeError as error:
        return None, f"The answer is not JSON ({error}). Answer with JSON alone."
    errors = sorted(_validator(canonical(schema)).iter_errors(value), key=lambda e: list(e.path))
    if not errors:
        return value, None
    said = "; ".join(f"{_place(error)}: {error.message}"[:300] for error in errors[:5])
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


def decoded(text: str) -> Any:
    """The JSON in a text, between fences or not; None if it is none."""
    try:
        return msgspec.json.decode(_without_fence(text))
    except (msgspec.DecodeError, RecursionError):
        return None


def typed(output: Any, data: Any) -> Any:
    """The answer as the type that was asked for."""
    is_type = isinstance(output, type) or dataclasses.is_dataclass(output)
    return type_adapter(output).validate_python(data) if is_type else data


def _without_fence(text: str) -> str:
    """Models like to put JSON between lines of back-quotes."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        return stripped.strip("`").removeprefix("json").strip()
    return stripped


@lru_cache(maxsize=64)
def _validator(schema: bytes) -> Any:
    from jsonschema import Draft202012Validator  # slow to import, and many runs need none

    return Draft202012Validator(msgspec.json.decode(schema))


def _place(error: Any) -> str:
    return ".".join(str(step) for step in error.absolute_path) or "the answer"
