"""What a conversation holds: the question, the data that came with it, and what was tried."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.models.base import File, ModelRequest, Role, ToolCall, ToolOutput
from chargehand.models.offline.assigning import bare, refers_back
from chargehand.models.openai_content import is_text, text_in

_SCHEMA = re.compile(r"^.*\bfits? this (?:JSON )?schema: *(\{.*\})$", re.MULTILINE | re.IGNORECASE)
_GIVEN = re.compile(r"^Given: (\{.*\})$", re.MULTILINE)
_ASIDE = re.compile(r"^(?:Not available|It is accepted if): .*$", re.MULTILINE)
_PAGE = re.compile(r"\[lines (\d+) to \d+ of \d+\]\n")
_CITED = re.compile(r"\s*\[([^\[\]\s]+)\]\s*$")
_LINE = re.compile(r"(.+):(\d+)$")
_TEXT_KEYS = ("text", "content", "snippet", "passage", "body", "summary", "answer")
_WHERE_KEYS = ("where", "source", "path", "file", "url", "link", "title", "name", "id")
_DEEPEST = 12
#: characters of a question that are read
LONGEST = 20_000


class Parts(Struct, frozen=True):
    """A prompt: what is said before its data, the data by name, and what is said behind them."""

    head: str
    data: tuple[tuple[str, str], ...]
    tail: str


class Excerpt(Struct, frozen=True):
    """A line of the data, what to cite for it, and the heading that it stands under."""

    where: str
    text: str
    about: str = ""


class Reading(Struct, frozen=True, kw_only=True):
    """A request to the model, as the rules see it."""

    question: str
    #: what its pronouns stand for, by the results it was handed
    subject: str
    #: arguments that the task names outright
    given: dict[str, Any]
    excerpts: tuple[Excerpt, ...]
    #: those of them that tools returned
    found: tuple[Excerpt, ...]
    #: tools called so far, with their arguments in canonical form
    tried: frozenset[tuple[str, str]]
    outputs: tuple[tuple[ToolCall, ToolOutput], ...]
    #: that the answer must fit, be it of the request or told in its words
    schema: dict[str, Any] | None
    #: how often an answer was sent back
    objections: int

    @property
    def sought(self) -> str:
        """The question with what its pronouns stand for."""
        return f"{self.question} {self.subject}".strip()


def excerpts_in(name: str, text: str) -> Iterator[Excerpt]:
    """The lines of a text, or of the texts in JSON: what says where it comes from is cited so."""
    value = decoded(text)
    if isinstance(value, (dict, list)):
        told = [(place, inner, about, False) for place, inner, about in _told(value, name, 0)]
    else:
        page = _PAGE.match(text)
        first = int(page[1]) if page else 1
        plain = value if isinstance(value, str) else text[page.end() if page else 0 :]
        has_lines = "\n" in plain or first > 1 or "." in name
        told = [(f"{name}:{first}" if has_lines else name, plain, "", has_lines)]
    for where, inner, about, _ in told:
        heading = about
        for offset, line in enumerate(inner.split("\n")):
            heading = line.strip("# ") if line.startswith("#") else heading
            if line.strip():
                yield _cited(_moved(where, offset), line.strip(), heading)


def _cited(where: str, text: str, about: str) -> Excerpt:
    # What an earlier answer cites is the better witness than that answer.
    cited = _CITED.search(text)
    return (
        Excerpt(cited[1], text[: cited.start()].rstrip(), about)
        if cited
        else Excerpt(where, text, about)
    )


def read(request: ModelRequest) -> Reading:
    """Read a request: what is asked, and all that is there to answer it from."""
    asked, objections = _asked(request)
    parts = parts_of(asked)
    handed = [each for name, text in parts.data for each in excerpts_in(name, text)]
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, File) and is_text(part) and (content := text_in(part)) is not None:
                handed += excerpts_in(part.name, content)
    calls = {
        part.id: part for turn in request.turns for part in turn.parts if isinstance(part, ToolCall)
    }
    outputs = tuple(_outputs(request, calls))
    found = [each for call, output in outputs for each in excerpts_of(call, output)]
    question = _question_in(parts)
    return Reading(
        question=bare(question),
        subject=_subject_in(parts) if refers_back(bare(question)) else "",
        given=_json_in(_GIVEN, parts) or {},
        excerpts=tuple(dict.fromkeys([*handed, *found])),
        found=tuple(dict.fromkeys(found)),
        tried=frozenset((call.name, canonical(call.arguments)) for call in calls.values()),
        outputs=outputs,
        schema=request.schema or _json_in(_SCHEMA, parts),
        objections=objections,
    )


def parts_of(prompt: str) -> Parts:
    """Take a prompt apart at its lines BEGIN and END.

    Whatever stands between the first of these lines and the last is data, even where a line of the
    data pretends that they are over: it cannot get into the question.
    """
    lines = prompt.split("\n")
    begins = [(n, line[6:].strip()) for n, line in enumerate(lines) if line.startswith("BEGIN ")]
    ends: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        if line.startswith("END "):
            ends.setdefault(line[4:].strip(), []).append(n)
    data: list[tuple[str, str]] = []
    first, last = len(lines), -1
    for begin, name in begins:
        at = bisect_right(ends.get(name, []), begin)
        if begin <= last or at == len(ends.get(name, [])):
            continue
        first, last = min(first, begin), ends[name][at]
        data.append((name, "\n".join(lines[begin + 1 : last])))
    opened = {name for name, _ in data}
    last = max((ends[name][-1] for name in opened), default=-1)
    tail = lines[last + 1 :] if data else []
    return Parts("\n".join(lines[:first]), tuple(data), "\n".join(tail))


def excerpts_of(call: ToolCall, output: ToolOutput) -> list[Excerpt]:
    """The lines of what one call returned; a failure says nothing, nor what tables there are."""
    if output.is_error or tables_in(decoded(output.text)) is not None:
        return []
    return list(excerpts_in(_source_of(call), output.text))


def canonical(arguments: str) -> str:
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments or "{}"), order="sorted").decode()
    except msgspec.DecodeError:
        return arguments


def _asked(request: ModelRequest) -> tuple[str, int]:
    """The turn that asks, and how often its answer was sent back since."""
    said = [turn.text for turn in request.turns if turn.role is Role.USER and turn.text.strip()]
    if not said:
        return "", 0
    tasks = [n for n, text in enumerate(said) if text.startswith("Task: ")]
    at = tasks[-1] if tasks else len(said) - 1
    return said[at], len(said) - 1 - at


def _question_in(parts: Parts) -> str:
    plain = (parts.head if parts.head.strip() else parts.tail)[:LONGEST]
    for aside in (_SCHEMA, _GIVEN, _ASIDE):
        plain = aside.sub("", plain)
    text = plain.strip().removeprefix("Task: ").strip()
    for mark in "\"'":
        if len(text) > 1 and text[0] == text[-1] == mark and text.count(mark) == 2:
            return text[1:-1].strip()
    return text


def _subject_in(parts: Parts) -> str:
    """What the results are about: the name in `Highest price: chair (189) [prices.csv:4]`."""
    told = []
    for _, text in parts.data:
        first = next((line for line in text.split("\n") if line.strip()), "")
        said = _CITED.sub("", first).rpartition(": ")[2].partition(" (")[0]
        told.append(" ".join(said.split()[:12]))
    return " ".join(told)


def _json_in(pattern: re.Pattern[str], parts: Parts) -> dict[str, Any] | None:
    found = pattern.search(parts.tail) or pattern.search(parts.head)
    if found is None:
        return None
    try:
        value = msgspec.json.decode(found[1])
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _outputs(
    request: ModelRequest, calls: Mapping[str, ToolCall]
) -> Iterator[tuple[ToolCall, ToolOutput]]:
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, ToolOutput):
                yield calls.get(part.id) or ToolCall(part.id, part.name, "{}"), part


def tables_in(value: Any) -> dict[str, Any] | None:
    """The tables that this describes, by name: each with its columns, or why it could not be read.

    None if it describes none; a description may say that there are no tables.
    """
    told = value.get("tables") if isinstance(value, dict) else None
    if not isinstance(told, dict):
        return None
    is_description = all(
        isinstance(each, dict) and (isinstance(each.get("columns"), dict) or "error" in each)
        for each in told.values()
    )
    return told if is_description else None


def _source_of(call: ToolCall) -> str:
    arguments = decoded(call.arguments)
    if isinstance(arguments, dict):
        for key in _WHERE_KEYS:
            named = arguments.get(key)
            if isinstance(named, str) and named and not re.search(r"\s", named):
                return named
    return call.name


def decoded(text: str) -> Any:
    """The JSON that a text is; None if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _told(value: Any, where: str, depth: int) -> Iterator[tuple[str, str, str]]:
    """The texts in a JSON value, each with the place it names for itself, or its parent's, and its heading."""
    if depth > _DEEPEST:
        return
    match value:
        case dict():
            place = next((str(value[k]) for k in _WHERE_KEYS if _is_place(value.get(k))), where)
            text = next((value[k] for k in _TEXT_KEYS if isinstance(value.get(k), str)), None)
            plain = {k: v for k, v in value.items() if not isinstance(v, (dict, list))}
            if text is not None:
                yield place, text, str(value.get("heading") or "")
            elif plain:
                yield place, "; ".join(f"{key}: {each}" for key, each in plain.items()), ""
            for each in value.values():
                if isinstance(each, (dict, list)):
                    yield from _told(each, place, depth + 1)
        case list():
            for each in value:
                yield from _told(each, where, depth + 1)
        case None:
            return
        case _:
            yield where, str(value), ""


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and not re.search(r"\s", value)


def _moved(where: str, lines: int) -> str:
    """The place so many lines further on, where a place has a line."""
    placed = _LINE.match(where)
    return f"{placed[1]}:{int(placed[2]) + lines}" if placed and lines else where
