"""The arguments of a tool whose JSON Schema came from a server."""

from typing import Any

import msgspec

from chargehand.errors import ToolError


class SchemaArguments:
    """Checks what needs no trust in the schema; the server checks the rest.

    A full check would run the server's regular expressions here, and one that takes for ever
    would hold up the whole process.
    """

    def __init__(self, schema: dict[str, Any], tool: str) -> None:
        self._tool = tool
        self.schema = schema

    def read(self, text: str) -> dict[str, Any]:
        """The arguments by name, or a `ToolError` that tells the model what to change."""
        values = _object_in(text)
        faults = [f"{name!r} is missing; add it" for name in self._required if name not in values]
        known = self._known
        if known is not None:
            faults += [f"{n!r} is no argument; leave it out" for n in values if n not in known]
        if faults:
            lines = "".join(f"\n- {fault}" for fault in faults[:8])
            raise ToolError(f"{self._tool} was not run, because its arguments do not fit:{lines}")
        return values

    @property
    def _required(self) -> list[str]:
        required = self.schema.get("required")
        names = required if isinstance(required, list) else []
        return [name for name in names if isinstance(name, str)]

    @property
    def _known(self) -> dict[str, Any] | None:
        """All arguments that there are; None: there may be others."""
        is_open = self.schema.get("additionalProperties") is not False
        if is_open or "patternProperties" in self.schema:
            return None
        properties = self.schema.get("properties", {})
        return properties if isinstance(properties, dict) else None


def _object_in(text: str) -> dict[str, Any]:
    """One JSON object; no text at all stands for no arguments."""
    try:
        data = msgspec.json.decode(text.strip() or "{}")
    except RecursionError:
        raise ToolError("the arguments are nested too deeply; send a flatter JSON object") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ToolError(f"the arguments are not JSON: {error}; send one JSON object") from None
    if not isinstance(data, dict):
        raise ToolError("the arguments must be one JSON object like {…}")
    return data
