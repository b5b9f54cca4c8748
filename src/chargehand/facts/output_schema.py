"""Output schemas: a Pydantic model, a dataclass or a JSON schema, kept as the JSON schema."""

import inspect
from typing import Any

import msgspec

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.facts.json_schema import fault_of


def shape_of(output: Any) -> dict[str, Any] | None:
    """The JSON schema of an output type; None for None. Raises `UsageError` if the type or schema is invalid."""
    if output is None:
        return None
    schema = output if isinstance(output, dict) else _schema_of(output)
    why = fault_of(schema)
    if why is not None:
        raise UsageError(f"output: {why}")
    return schema


def _schema_of(output: Any) -> dict[str, Any]:
    try:
        # Pydantic takes a function for the type of its arguments.
        if isinstance(output, (str, int, float, list, tuple)) or inspect.isroutine(output):
            raise TypeError("a value, not a type")  # noqa: TRY301 - one message for all of them
        return type_adapter(output).json_schema()  # type: ignore[no-any-return]  # Pydantic's, lazily imported
    except Exception as error:
        raise UsageError(
            f"output={shown(output)} is not a type that an answer could have ({error}); "
            "give a Pydantic model, a dataclass or a JSON schema"
        ) from error


def published_schema(kind: Any, title: str) -> dict[str, Any]:
    """The JSON Schema of a chargehand type, equal on all Python versions: before 3.13, docstrings keep their indent."""
    schema = msgspec.json.schema(kind)
    for defined in schema["$defs"].values():
        if "description" in defined:
            defined["description"] = inspect.cleandoc(defined["description"])
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, "title": title, **schema}


def type_adapter(output: Any) -> Any:
    """The Pydantic `TypeAdapter` of a type."""
    from pydantic import TypeAdapter  # slow to import, and few runs need it

    return TypeAdapter(output)
