"""Answers of a given shape: the fields of a JSON Schema filled in from the data, or not at all."""

import re
from collections.abc import Sequence
from typing import Any

from chargehand.errors import UsageError
from chargehand.facts.json_schema import faults_against
from chargehand.models.offline.conversation import Conversation, Excerpt
from chargehand.models.offline.passages import answer, content, sentences_in
from chargehand.models.offline.words import roots

#: items of a list
MOST = 8
Schema = dict[str, Any]

#: not those of dates and times
_NUMBER = re.compile(r"(?<![\w.,:/-])-?\d{1,15}(?:,\d{3})*(?:\.\d{1,15})?(?![.,:/-]?\w)")
_CITATIONS = roots("source citation cite evidence where reference")
_ANSWERS = roots("answer summary result text report conclusion finding content output reply")


class CannotFill(Exception):
    """The data holds nothing that the schema allows here."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name or 'the answer'}: {why}")


def filled(schema: Schema, read: Conversation) -> dict[str, Any]:
    """An object that fits the schema; raises `CannotFill` if the data gives none, or several."""
    known = sentences_in(read.excerpts)
    value: dict[str, Any] = {}
    for name, told in (schema.get("properties") or {}).items():
        found = _values(name, told, _about(name, known, read), read)
        is_text = bool(found) and told.get("type") == "string" and "enum" not in told
        if len(found) == 1 or is_text:
            value[name] = found[0]
        elif name in (schema.get("required") or ()):
            raise CannotFill(name, f"the data gives {len(found)} values for it")
    try:
        faults = faults_against(schema, value)
    except UsageError as error:
        faults = [str(error)]
    if faults:
        raise CannotFill("", faults[0])
    return value


def _values(name: str, told: Any, about: Sequence[Excerpt], read: Conversation) -> list[Any]:
    """What the sentences about a field hold for it; rules cannot tell yes from no."""
    if not isinstance(told, dict):
        return []
    if choices := told.get("enum"):
        said = frozenset[str]().union(*(sentence.own for sentence in about))
        return [each for each in choices if (own := roots(str(each))) and own <= said]
    match told.get("type"):
        case "array":
            items = _values(name, told.get("items"), about, read)
            return [[item for n, item in enumerate(items) if item not in items[:n]][:MOST]]
        case "integer" | "number":
            numbers = {n.replace(",", "") for s in about for n in _NUMBER.findall(s.text)}
            return [float(number) if "." in number else int(number) for number in numbers]
        case "string" if roots(name) & _CITATIONS:
            return [sentence.where for sentence in about]
        case "string" if roots(name) & _ANSWERS:
            found = answer(read.question, read.excerpts, read.subject)
            return [] if found.gap else ["\n".join(found.lines)]
        case "string":
            return list(map(str, about))
    return []


def _about(name: str, known: Sequence[Excerpt], read: Conversation) -> Sequence[Excerpt]:
    """The sentences that speak of a field by its name; all, where there is only what was asked for."""
    found = [s for s in known if roots(name) & s.own]
    if found or roots(name) & (_ANSWERS | _CITATIONS):
        return found or known[:MOST]
    asked = set(content(read.question))
    return [s for s in known if (asked and asked <= s.all) or len(known) == 1]
