"""JSON Schemas, as far as the rules read them."""

from typing import Any

Schema = dict[str, Any]


def resolved(told: Any, root: Schema) -> Schema:
    """The schema that a reference points to, or the one that is not null of several."""
    schema: Schema = told if isinstance(told, dict) else {}
    for _ in range(8):  # references may go in circles
        if reference := schema.get("$ref"):
            target: Any = root
            for step in str(reference).removeprefix("#/").split("/"):
                target = target.get(step, {}) if isinstance(target, dict) else {}
            schema = {**target, **{k: v for k, v in schema.items() if k != "$ref"}}
        elif options := schema.get("anyOf") or schema.get("oneOf"):
            chosen = next((o for o in options if o.get("type") != "null"), options[0])
            rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            schema = {**rest, **chosen}
        else:
            break
    return schema


def type_of(schema: Schema) -> str:
    """The type that is not null; empty if the schema names none."""
    kind = schema.get("type", "")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    return "object" if not kind and "properties" in schema else str(kind)
