"""The arguments of a tool: their JSON Schema for the model, and parsing what the model wrote.

Imports Pydantic; besides `tools.mcp`, no other module of this package does so when it is imported.
"""

import difflib
import inspect
import json
import typing
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from chargehand.errors import ToolError, UsageError
from chargehand.tools.docstrings import read_docstring

#: faults in one error message; a model repairs only a few at a time, and more cost tokens
MOST_FAULTS = 8
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments(Protocol):
    """The schema and the parser of the arguments of a tool; tools of a server bring their own schema."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of one object."""

    def read(self, text: str) -> dict[str, Any]:
        """The arguments by name, or a `ToolError` that tells the model what to change."""


class SignatureArguments:
    """The arguments that a typed function declares."""

    def __init__(self, function: Callable[..., Any], tool: str, hidden: str = "") -> None:
        """`hidden` is the name of a parameter that the model does not see."""
        self._tool = tool
        parameters = [p for p in _signature(function, tool) if p.name != hidden]
        self._names = tuple(parameter.name for parameter in parameters)
        self._model = _model_of(function, tool, parameters)
        try:
            schema = self._model.model_json_schema(schema_generator=_Schema)
        except PydanticUserError as error:
            raise UsageError(f"tool {tool!r} has no JSON Schema: {error}") from error
        self.schema: dict[str, Any] = _without_titles(schema)

    def read(self, text: str) -> dict[str, Any]:
        """The arguments by name, or a `ToolError` that tells the model what to change."""
        _object_in(text)
        try:
            filled = self._model.model_validate_json(text.strip() or "{}")
        except ValidationError as error:
            raise self._refusal(error) from None
        return {name: getattr(filled, f"arg_{at}") for at, name in enumerate(self._names)}

    def _refusal(self, error: ValidationError) -> ToolError:
        faults = error.errors(include_url=False, include_context=False)
        return _not_fitting(self._tool, [self._told(fault) for fault in faults])

    def _told(self, fault: Any) -> str:
        where = ".".join(str(part) for part in fault["loc"])
        match fault["type"]:
            case "missing":
                return f"{where!r} is missing; add it"
            case "extra_forbidden":
                return f"{where!r} is not an argument{self._meant(where)}; leave it out"
        given = json.dumps(fault["input"], default=repr, ensure_ascii=False)
        shown = given if len(given) <= 80 else f"{given[:77]}…"
        return f"{where!r}: {fault['msg']}; you gave {shown}"

    def _meant(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._names, n=1)
        if close:
            return f" (did you mean {close[0]!r}?)"
        return f" (it takes: {', '.join(self._names)})" if self._names else " (it takes none)"


class SchemaArguments:
    """Arguments that follow the JSON Schema of a server, which checks most of them itself.

    A full check would run the server's regular expressions here, and one that never ends would block
    the whole process.
    """

    def __init__(self, schema: dict[str, Any], tool: str) -> None:
        self._tool = tool
        self.schema = schema

    def read(self, text: str) -> dict[str, Any]:
        """The arguments by name, or a `ToolError` that tells the model what to change."""
        values = _object_in(text)
        required = self.schema.get("required")
        names = required if isinstance(required, list) else []
        faults = [
            f"{name!r} is missing; add it"
            for name in names
            if isinstance(name, str) and name not in values
        ]
        known = self.schema.get("properties", {})
        is_open = self.schema.get("additionalProperties") is not False
        if not is_open and "patternProperties" not in self.schema and isinstance(known, dict):
            faults += [f"{n!r} is not an argument; leave it out" for n in values if n not in known]
        if faults:
            raise _not_fitting(self._tool, faults)
        return values


def _not_fitting(tool: str, faults: list[str]) -> ToolError:
    told = faults[:MOST_FAULTS]
    if len(faults) > MOST_FAULTS:
        told.append(f"and {len(faults) - MOST_FAULTS} more")
    lines = "".join(f"\n- {line}" for line in told)
    return ToolError(f"{tool} was not run, because its arguments do not fit:{lines}")


def _object_in(text: str) -> dict[str, Any]:
    """Parse one JSON object. Raises `ToolError` for anything else; an empty text means no arguments."""
    if not text.strip():
        return {}
    try:
        data = msgspec.json.decode(text)  # stricter than Pydantic, which accepts NaN
    except RecursionError:
        raise ToolError("the arguments are nested too deeply; send a flatter JSON object") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ToolError(_malformed(text, str(error))) from None
    if not isinstance(data, dict):
        kind = {list: "a list", str: "a string", type(None): "null"}.get(type(data), "a number")
        raise ToolError(f"the arguments must be one JSON object like {{…}}, not {kind}")
    return data


def _malformed(text: str, fallback: str) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        fallback = f"{error.msg} at character {error.pos}, near {near!r}"
    except (ValueError, RecursionError):
        pass  # the message of the first parser is used
    return f"the arguments are not JSON: {fallback}; send one complete JSON object"


def _signature(function: Callable[..., Any], tool: str) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.kind not in _BY_NAME:
            raise UsageError(
                f"tool {tool!r}: parameter {str(parameter)!r} cannot be filled by name, as models "
                "do; write plain parameters instead of *args, **kwargs and positional-only ones"
            )
    return parameters


def hints_of(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    """The types of the parameters, including `Annotated`."""
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(called, include_extras=True)
    except (NameError, TypeError) as error:
        raise UsageError(
            f"tool {tool!r}: its types cannot be read ({error}); name types that its module defines"
        ) from error


def _model_of(
    function: Callable[..., Any], tool: str, parameters: list[inspect.Parameter]
) -> type[BaseModel]:
    hints, words = hints_of(function, tool), read_docstring(function).parameters
    fields: dict[str, Any] = {}
    for at, parameter in enumerate(parameters):
        if parameter.name not in hints:
            raise UsageError(f"tool {tool!r}: say the type of parameter {parameter.name!r}")
        hint = hints[parameter.name]
        # Under an alias, because the name of a parameter could be an attribute of Pydantic's models.
        fields[f"arg_{at}"] = (
            hint,
            Field(
                default=... if parameter.default is parameter.empty else parameter.default,
                alias=parameter.name,
                description=_description_in(hint) or words.get(parameter.name),
            ),
        )
    try:
        return create_model(tool, __config__=ConfigDict(extra="forbid"), **fields)
    except (PydanticUserError, TypeError) as error:
        raise UsageError(
            f"tool {tool!r}: a parameter's type is unknown to JSON: {error}"
        ) from error


def _description_in(hint: Any) -> str | None:
    """The description in `Annotated`, which takes precedence over the docstring."""
    found = [getattr(extra, "description", None) for extra in getattr(hint, "__metadata__", ())]
    return next(filter(None, found), None)


class _Schema(GenerateJsonSchema):
    # A default without a JSON form is allowed; the model does not see it.
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {
        "skipped-choice",
        "non-serializable-default",
    }


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without Pydantic's titles, which repeat the names and cost tokens in every model call."""
    return {key: _cleaned(key, value) for key, value in schema.items() if key != "title"}


def _cleaned(key: str, value: Any) -> Any:
    if key in ("default", "const", "enum", "examples"):
        return value
    if key in ("properties", "$defs", "patternProperties"):
        return {name: _without_titles(part) for name, part in value.items()}
    if isinstance(value, dict):
        return _without_titles(value)
    if isinstance(value, list):
        return [_without_titles(part) if isinstance(part, dict) else part for part in value]
    return value
