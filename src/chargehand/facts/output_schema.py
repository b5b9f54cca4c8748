"""Output schemas: a Pydantic model, a dataclass or a JSON schema, kept as the JSON schema."""

import inspect
from typing import Any

import msgspec

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.facts.json_schema import fault_of
from chargehand.facts.value import canonical, plain

#: types of which schemas were made in this process; the oldest are forgotten
MOST_TYPES = 1_000
#: faults of one value that are told
MOST_FAULTS = 5
_adapters: dict[bytes, list[Any]] = {}


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
        adapter = type_adapter(output)
        schema: dict[str, Any] = adapter.json_schema()
    except Exception as error:
        raise UsageError(
            f"output={shown(output)} is not a type that an answer could have ({error}); "
            "give a Pydantic model, a dataclass or a JSON schema"
        ) from error
    known = _adapters.pop(key := canonical(schema), [])
    _adapters[key] = [*(each for each in known if each.core_schema != adapter.core_schema), adapter]
    if len(_adapters) > MOST_TYPES:
        del _adapters[next(iter(_adapters))]
    return schema


def type_faults(schema: dict[str, Any], value: Any) -> list[str]:
    """What the type that a schema was made of has against a value that fits the schema, which cannot say all that
    a type checks. If several types have this schema, the value may be of any of them."""
    faults: list[str] = []
    for adapter in _adapters.get(canonical(schema), ()) if _adapters else ():
        try:
            adapter.validate_python(value)
        except Exception as error:  # noqa: BLE001 - whatever a validator of its own raises
            faults = faults_in_words(error)
        else:
            return []
    return faults


def faults_in_words(error: Exception) -> list[str]:
    """Why a value is none of a type, from what the check of the type has raised."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return [plain(f"{type(error).__name__}: {error}")[:500]]
    found = error.errors(include_url=False, include_context=False)[:MOST_FAULTS]
    return [f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in found]


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
