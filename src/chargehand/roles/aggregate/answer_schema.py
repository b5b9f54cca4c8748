"""The shape of a typed answer, set inside the shape of all that is said of it."""

from typing import Any

_TEXT = {"type": "string"}
_CLAIM = {
    "type": "object",
    "properties": {"text": _TEXT, "tasks": {"type": "array", "items": _TEXT}},
    "required": ["text", "tasks"],
    "additionalProperties": False,
}
_CONTRADICTION = {
    "type": "object",
    "properties": {"first": _CLAIM, "second": _CLAIM},
    "required": ["first", "second"],
    "additionalProperties": False,
}
_SHARED = ("$defs", "definitions")
_OF_ROOT = (*_SHARED, "$schema", "$id")


def around(shape: dict[str, Any]) -> dict[str, Any]:
    """A schema whose `answer` has this shape. What the shape refers to is still found."""
    inner = {key: value for key, value in shape.items() if key not in _OF_ROOT}
    shared = {key: shape[key] for key in _SHARED if key in shape}
    return {
        "type": "object",
        "properties": {
            "answer": _moved(inner),
            "claims": {"type": "array", "items": _CLAIM},
            "contradictions": {"type": "array", "items": _CONTRADICTION},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["answer", "claims", "contradictions", "confidence"],
        "additionalProperties": False,
        **_moved(shared),
    }


def _moved(schema: Any) -> Any:
    """The schema with its references pointed to where things are now."""
    match schema:
        case dict():
            return {
                key: _new_place(value)
                if key == "$ref" and isinstance(value, str)
                else _moved(value)
                for key, value in schema.items()
            }
        case list():
            return [_moved(each) for each in schema]
    return schema


def _new_place(reference: str) -> str:
    is_shared = reference.startswith(tuple(f"#/{key}/" for key in _SHARED))
    if is_shared or not reference.startswith("#"):
        return reference
    return f"#/properties/answer{reference[1:]}"
