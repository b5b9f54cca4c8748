"""How an LLM worker says that it cannot do its task: an explicit call, line or status, and what is read as one.

The explicit ways are told to the model. Beside them one short check of plain words (`apology_in`) catches
models that do not keep to them. It is narrow on purpose: English, the first person, the task itself.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from chargehand.facts.outcome import ErrorClass, Failed
from chargehand.facts.value import canonical
from chargehand.models.base import ModelReply, ToolCall, ToolSpec
from chargehand.roles.json_reply_check import decoded, objection_to, record

CANNOT, RESULT = "cannot", "result"
_NO_RESULT = record(
    cannot={
        "type": "string",
        "description": "the reason, and what is missing; only if it cannot be done",
    }
)
SPEC = ToolSpec(
    name=CANNOT,
    description="Say that the task cannot be done. Ends your work; the task is then given up or changed.",
    parameters=record(
        reason={"type": "string", "description": "why it cannot be done"},
        missing={"type": "string", "description": "what would be needed to do it"},
    ),
)
LONGEST_REASON = 2_000
#: characters; a longer text has something else to say
LONGEST_APOLOGY, LONGEST_NOTHING = 500, 200

_WARNING = "Never make up a result, and never return an apology as one."
BY_CALL = (
    f"If you cannot do the task, call {CANNOT} with the reason and what is missing. {_WARNING}"
)
BY_LINE = (
    "If you cannot do the task, answer with one line that begins with CANNOT: and says the reason and "
    f"what is missing. {_WARNING}"
)

#: small models forget the colon
_LINE = re.compile(r"\W{0,4}CANNOT\b[\s*_`:]*(?P<reason>.*)", re.DOTALL)
#: the call of the tool as small models write it into their answer
_WRITTEN_CALL = re.compile(rf"\W{{0,4}}{CANNOT}\s?\((?P<reason>.*)\)\W{{0,4}}", re.DOTALL)
#: our own words (`BY_CALL`), which small models repeat in place of the call
_ECHO = re.compile(
    rf"\W{{0,4}}(?:call )?{CANNOT} with the reason\b[\s*_`:]*(?P<reason>.*)",
    re.DOTALL | re.IGNORECASE,
)
_SORRY = (
    r"(?:(?:i['’]m|i am) (?:very |so |really )?(?:sorry|afraid)|sorry|i apologi[sz]e|unfortunately)"
)
_UNABLE = (
    r"(?:cannot|can['’]t|can not|could not|couldn['’]t|am unable to|am not able to|was unable to|"
    r"was not able to|are unable to|were unable to|were not able to)"
)
_TASK = (
    r"(?:do|complete|perform|fulfil+|finish|carry out|accomplish|execute|process|answer|help|assist|"
    r"comply|proceed|continue)(?=\W*$|[.,:;!]|\s+(?:this|that|it|with|the|your|you|further|because|as)\b)"
)
_REACH = r"(?:access|open|read|browse|retrieve|load)\b"
_LACK = (
    r"(?:do not|don['’]t) have (?:access|the ability|enough information|sufficient information|"
    r"the (?:information|data|file|files|tools|means))\b"
)
_APOLOGY = re.compile(
    rf"\s*(?:{_SORRY}\W+(?:but |that )?)?(?:as an ai\b[^.,]*,\s*)?(?:i|we) "
    rf"(?:{_UNABLE} (?:directly |currently )?(?:{_TASK}|{_REACH})|{_LACK})",
    re.IGNORECASE,
)
#: as the whole text
_NOTHING = re.compile(
    r"\W*(?:n/?a|not available|no (?:data|information|result|results|answer)(?: (?:is |are |was |were )?"
    r"(?:available|found))?|(?:i(?:['’]m| am) (?:sorry|afraid)\W+)?i (?:do not|don['’]t|did not|didn['’]t) know"
    r"(?: (?:it|that|this|the answer))?)\W*",
    re.IGNORECASE,
)
_BROKEN = re.compile(
    r"\W*error\s*:.*\b(?:tools?|no (?:data|information|results?)|nothing)\b.*", re.IGNORECASE
)
_NOT_FOUND = re.compile(
    rf"\s*{_SORRY}\W+(?:but |that )?(?:i|we) {_UNABLE} (?:find|locate|determine|obtain|get|fetch|look up)\b"
    r"(?! (?:any|anything|a|an|evidence)\b)",
    re.IGNORECASE,
)
_TURN = re.compile(r"\b(?:but|however|instead|nevertheless|still)\b", re.IGNORECASE)


def refusal_in(
    reply: ModelReply, schema: dict[str, Any] | None = None, asked: str = ""
) -> Failed | None:
    """What a reply fails with if it says that the task cannot be done, whose result has this schema.

    `asked` are the words of the task: what they tell it to answer is a result.
    """
    if reply.calls:
        return refusal_among(reply.calls)
    told = None if schema is None else decoded(reply.text)
    told = told[RESULT] if isinstance(told, dict) and set(told) == {RESULT} else told
    if isinstance(told, dict) and set(told) == {CANNOT}:
        _, objection = objection_to(msgspec.json.encode(told).decode(), schema or {})
        if objection is not None:  # else it is a result that looks like this
            return _failed(_words(told[CANNOT]))
    for value in told.values() if isinstance(told, dict) else ():
        # Small models fill in the shape and say it inside.
        if (
            isinstance(value, str)
            and (line := _LINE.match(value))
            and ":" in value[: line.start(1)]
        ):
            return _failed(line["reason"])
    return refusal_of(reply.text, asked)


def refusal_among(calls: Sequence[ToolCall]) -> Failed | None:
    """What a reply fails with if one of its calls says that the task cannot be done."""
    for call in calls:
        if call.name == CANNOT:
            return _failed(_reason_in(call))
    return None


def refusal_of(text: str, asked: str = "") -> Failed | None:
    """What a plain text fails with: one that begins with `CANNOT:`, or that says only that there is nothing."""
    reason = reason_in(text, asked)
    return None if reason is None else _failed(reason)


def reason_in(text: str, asked: str = "") -> str | None:
    """Why its author cannot do it, if that is all that a plain text says."""
    line = _LINE.match(text) or _WRITTEN_CALL.fullmatch(text.strip()) or _ECHO.match(text)
    if line is not None:
        return line["reason"]
    if apology_in(text):
        return text
    if not has_nothing(text) or text.strip(" \t\n.!\"'").casefold() in asked.casefold():
        return None
    return text


def apology_in(text: str) -> bool:
    """Whether a short text says of its author that he cannot do what was asked, and nothing else."""
    if len(text) > LONGEST_APOLOGY:
        return False
    found = _APOLOGY.match(text)
    return found is not None and not _TURN.search(text, found.end())


def has_nothing(text: str) -> bool:
    """Whether a short text is all in all a shrug: "N/A", "I don't know.", an error in place of a result."""
    bare = text.strip()
    if len(bare) > LONGEST_NOTHING or "\n" in bare or _TURN.search(bare):
        return False
    return bool(_NOTHING.fullmatch(bare) or _BROKEN.fullmatch(bare) or _NOT_FOUND.match(bare))


def with_status(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an answer that is either a result of this schema or the reason why there is none."""
    if any(f'"$ref":"#{end}' in canonical(schema).decode() for end in ('"', "/properties")):
        return schema  # it points to its own root, and would point elsewhere inside another
    shared: dict[str, Any] = {
        name: schema[name] for name in ("$defs", "definitions") if name in schema
    }
    inner = {name: schema[name] for name in schema if name not in (*shared, "$schema")}
    return {**record(**{RESULT: {"anyOf": [inner, _NO_RESULT]}}), **shared}


def status_words(schema: dict[str, Any]) -> str:
    """How a model is told to answer in JSON."""
    return (
        f'Answer with JSON: {{"{RESULT}": …}}, where the result fits this schema: '
        f"{canonical(schema).decode()}\nOnly if the task cannot be done at all, the result is "
        f'{{"{CANNOT}": "the reason, and what is missing"}}.\n'
    )


def result_in(text: str, schema: dict[str, Any]) -> tuple[Any, str | None]:
    """The result in an answer, inside its frame or bare, and what is wrong with it."""
    value, objection = objection_to(text, schema)
    framed = None if objection is None else decoded(text)
    if not isinstance(framed, dict) or set(framed) != {RESULT}:
        return value, objection
    return objection_to(msgspec.json.encode(framed[RESULT]).decode(), schema)


def _reason_in(call: ToolCall) -> str:
    told = decoded(call.arguments)
    if not isinstance(told, dict):
        return call.arguments
    reason, missing = _words(told.get("reason")), _words(told.get("missing"))
    return f"{reason} (missing: {missing})" if reason and missing else reason or missing


def _words(value: Any) -> str:
    return value.strip() if isinstance(value, str) else "" if value is None else str(value)


def _failed(reason: str) -> Failed:
    said = " ".join(reason.split())[:LONGEST_REASON] or "no reason was given"
    return Failed(
        kind=ErrorClass.LOGIC, message=f"the worker says that it cannot: {said}", error="Cannot"
    )
