"""Tools for models that have no calls of their own: a form to fill in, held to a JSON Schema.

The model answers with `{"tool": …, "arguments": …}` or `{"answer": …}`. A schema leaves it no other
way, so that even a very small model calls tools that exist with arguments of the right shape.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.facts.lone_surrogates import without_escaped_surrogates
from chargehand.models.base import ModelRequest, ToolCall, ToolOutput, ToolSpec

Schema = dict[str, Any]


class Filled(Struct, frozen=True):
    """A form as the model filled it in: one of the two."""

    call: ToolCall | None = None
    answer: str = ""


def form_for(request: ModelRequest) -> Schema:
    """The schema of what the model may say: a call of a tool it may choose, or an answer."""
    tools = request.tools
    if request.choice not in ("auto", "required", "none"):
        tools = tuple(tool for tool in tools if tool.name == request.choice)
    forms = [] if request.choice == "none" else [_call_form(tool) for tool in tools]
    if request.choice in ("auto", "none") or not forms:
        answer = closed(request.schema) if request.schema else {"type": "string"}
        forms.append(_object({"answer": answer}))
    definitions = _definitions(request)
    whole: Schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
    return {**whole, "$defs": definitions} if definitions else whole


def instructions(request: ModelRequest) -> str:
    """What the model is told of its tools and of the form."""
    lines = ["You can use these tools:"]
    lines += (f"- {_signature(tool)}: {tool.description}" for tool in request.tools)
    lines.append('To use a tool, write {"tool": its name, "arguments": {…}}.')
    if request.choice == "auto":
        lines.append(
            'To answer, write {"answer": …}. Use a tool only for what you do not know yet.'
        )
    return "\n".join(lines)


def call_text(call: ToolCall) -> str:
    """A call as the model wrote it on the form."""
    return f'{{"tool": {msgspec.json.encode(call.name).decode()}, "arguments": {call.arguments}}}'


def told(outputs: Sequence[ToolOutput]) -> str:
    """What tools returned, as it is told to the model."""
    return "\n".join(f"{output.name} returned: {output.told}" for output in outputs)


def read_form(text: str, id_: str) -> Filled | None:
    """The form that the model filled in; None if it is none, as when it was cut off."""
    try:
        value = msgspec.json.decode(without_escaped_surrogates(text))
    except (msgspec.DecodeError, RecursionError):
        return None
    match value:
        case {"tool": str(name), "arguments": dict(arguments)}:
            encoded = msgspec.json.encode(arguments).decode()
            return Filled(ToolCall(id_, name, encoded))
        case {"answer": str(answer)}:
            return Filled(None, answer)
        case {"answer": answer}:
            return Filled(None, msgspec.json.encode(answer).decode())
    return None


def closed(schema: Any) -> Any:
    """The schema with objects that take nothing but what they name: small models ramble on."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(inner.get("properties"), dict) and "type" in inner:
        inner.setdefault("additionalProperties", False)
    return inner


def _call_form(tool: ToolSpec) -> Schema:
    arguments = {k: v for k, v in tool.parameters.items() if k not in ("$defs", "$schema")}
    arguments.setdefault("type", "object")
    return _object({"tool": {"const": tool.name}, "arguments": closed(arguments)})


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _definitions(request: ModelRequest) -> Schema:
    """References are from the root, so what they name moves there too."""
    found: Schema = {}
    for schema in (*(tool.parameters for tool in request.tools), request.schema or {}):
        found |= closed(schema.get("$defs") or {})
    return found


def _signature(tool: ToolSpec) -> str:
    properties = tool.parameters.get("properties") or {}
    named = (f"{name}: {each.get('type', 'any')}" for name, each in properties.items())
    return f"{tool.name}({', '.join(named)})"
