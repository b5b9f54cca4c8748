"""What a conversation holds: the question, the data that came with it, and what was tried."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from chargehand.models.base import File, ModelRequest, Role, ToolCall, ToolOutput
from chargehand.models.offline.steps_and_workers import bare, refers_back
from chargehand.models.offline.words import roots

#: as a worker is handed the item of a task with `for_each`
ITEM = "the one item to do this for"
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


class Parts(NamedTuple):
    """A prompt: what is said before its data, the data by name, and what is said behind them."""

    head: str
    data: tuple[tuple[str, str], ...]
    tail: str


class Excerpt(Struct, frozen=True):
    """A line of the data, what to cite for it, and the heading that it stands under."""

    where: str
    text: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.text} [{self.where}]"

    @property
    def source(self) -> str:
        """The file or the tool that it comes from."""
        return _LINE.sub(r"\1", self.where)

    @property
    def own(self) -> frozenset[str]:
        """The words that stand in it."""
        return roots(self.text)

    @property
    def all(self) -> frozenset[str]:
        """Those, and the words of its surroundings."""
        return self.own | roots(f"{self.about} {self.source}")


class Found(Struct, frozen=True):
    """What the data says: lines, and why they do not surely answer; no lines: why nothing was found."""

    lines: tuple[str, ...] = ()
    gap: str = ""
    #: the lines do not agree
    is_dispute: bool = False


class Conversation(Struct, frozen=True, kw_only=True):
    """A request to the model, as the rules see it."""

    question: str
    #: what its pronouns stand for, by the results it was handed
    subject: str
    #: arguments that the task names outright
    given: dict[str, Any]
    #: of what tools returned; without that, of what was handed over
    excerpts: tuple[Excerpt, ...]
    outputs: tuple[tuple[ToolCall, ToolOutput], ...]
    #: that the answer must fit, be it of the request or told in its words
    schema: dict[str, Any] | None
    #: the task is done for each item of a list, and this is one of them
    has_item: bool

    @property
    def sought(self) -> str:
        """The question with what its pronouns stand for."""
        return f"{self.question} {self.subject}".strip()


def read(request: ModelRequest) -> Conversation:
    """Read a request: what is asked, and all that is there to answer it from."""
    parts = parts_of(asked_in(request))
    handed = [each for name, text in parts.data for each in excerpts_in(name, text)]
    calls: dict[str, ToolCall] = {}
    outputs: list[tuple[ToolCall, ToolOutput]] = []
    for part in (part for turn in request.turns for part in turn.parts):
        if isinstance(part, File) and (content := part.words) is not None:
            handed += excerpts_in(part.name, content)
        elif isinstance(part, ToolCall):
            calls[part.id] = part
        elif isinstance(part, ToolOutput):
            outputs.append((calls.get(part.id) or ToolCall(part.id, part.name, "{}"), part))
    found = [each for call, output in outputs for each in excerpts_of(call, output)]
    question = bare(_question_in(parts))
    return Conversation(
        question=question,
        subject=_subject_in(parts) if refers_back(question) else "",
        given=_json_in(_GIVEN, parts) or {},
        excerpts=tuple(dict.fromkeys(found or handed)),
        outputs=tuple(outputs),
        schema=request.schema or _json_in(_SCHEMA, parts),
        has_item=any(name == ITEM for name, _ in parts.data),
    )


def asked_in(request: ModelRequest) -> str:
    """The turn that asks: the last that sets a task, for later ones only send its answer back."""
    said = [turn.text for turn in request.turns if turn.role is Role.USER and turn.text.strip()]
    tasks = [text for text in said if text.startswith("Task: ")]
    return next(reversed(tasks or said), "")


def parts_of(prompt: str) -> Parts:
    """Take a prompt apart at its lines BEGIN and END; data that pretends to be over cannot get into the question."""
    lines = prompt.split("\n")
    ends: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        if line.startswith("END "):
            ends.setdefault(line[4:].strip(), []).append(n)
    data: list[tuple[str, str]] = []
    first, last = len(lines), -1
    for begin, line in enumerate(lines):
        name = line[6:].strip()
        closing = ends.get(name, [])
        at = bisect_right(closing, begin)
        if not line.startswith("BEGIN ") or begin <= last or at == len(closing):
            continue
        first, last = min(first, begin), closing[at]
        if name != "material":
            data.append((name, "\n".join(lines[begin + 1 : last])))
    last = max((ends[name][-1] for name, _ in data), default=last if last >= 0 else len(lines))
    return Parts("\n".join(lines[:first]), tuple(data), "\n".join(lines[last + 1 :]))


def _question_in(parts: Parts) -> str:
    plain = (parts.head if parts.head.strip() else parts.tail)[:LONGEST]
    for aside in (_SCHEMA, _GIVEN, _ASIDE):
        plain = aside.sub("", plain)
    return plain.strip().removeprefix("Task: ").strip()


def _subject_in(parts: Parts) -> str:
    """What the results are about: the name in `Highest price: chair (189) [prices.csv:4]`."""
    firsts = [_CITED.sub("", text.strip().partition("\n")[0]) for _, text in parts.data]
    named = [first.rpartition(": ")[2].partition(" (")[0].split()[:12] for first in firsts]
    return " ".join(word for words in named for word in words)


def _json_in(pattern: re.Pattern[str], parts: Parts) -> dict[str, Any] | None:
    found = pattern.search(parts.tail) or pattern.search(parts.head)
    value = decoded(found[1]) if found else None
    return value if isinstance(value, dict) else None


def decoded(text: str) -> Any:
    """The JSON that a text is; None if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def excerpts_of(call: ToolCall, output: ToolOutput) -> list[Excerpt]:
    """The lines of what one call returned; a failure says nothing, nor what tables there are."""
    if output.is_error or tables_in(decoded(output.text)) is not None:
        return []
    arguments = decoded(call.arguments)
    named = _place_in(arguments) if isinstance(arguments, dict) else ""
    return list(excerpts_in(named or call.name, output.text))


def tables_in(value: Any) -> dict[str, Any] | None:
    """The tables that this describes, by name, which may be none at all; None if it describes no tables."""
    told = value.get("tables") if isinstance(value, dict) else None
    is_description = isinstance(told, dict) and all(isinstance(t, dict) for t in told.values())
    return told if is_description else None


def excerpts_in(name: str, text: str) -> Iterator[Excerpt]:
    """The lines of a text, or of the texts in JSON: what says where it comes from is cited so."""
    value = decoded(text)
    if isinstance(value, (dict, list)):
        told = list(_texts_in(value, name))
    else:
        page = _PAGE.match(text)
        first = int(page[1]) if page else 1
        plain = value if isinstance(value, str) else text[page.end() if page else 0 :]
        has_lines = "\n" in plain or first > 1 or "." in name
        told = [Excerpt(f"{name}:{first}" if has_lines else name, plain)]
    for whole in told:
        heading, placed = whole.about, _LINE.match(whole.where)
        for offset, line in enumerate(whole.text.split("\n")):
            heading = line.strip("# ") if line.startswith("#") else heading
            where = f"{placed[1]}:{int(placed[2]) + offset}" if placed else whole.where
            if cited := _CITED.search(line):
                # What an earlier answer cites is the better witness than that answer.
                yield Excerpt(cited[1], line[: cited.start()].strip(), heading)
            elif line.strip():
                yield Excerpt(where, line.strip(), heading)


def _texts_in(value: Any, where: str, depth: int = 0) -> Iterator[Excerpt]:
    """The texts in a JSON value, each with the place it names for itself, or its parent's, and its heading."""
    if depth > _DEEPEST or value is None:
        return
    if isinstance(value, dict):
        where = _place_in(value) or where
        text = next((value[k] for k in _TEXT_KEYS if isinstance(value.get(k), str)), None)
        plain = {k: v for k, v in value.items() if not isinstance(v, (dict, list))}
        if text is not None:
            yield Excerpt(where, text, str(value.get("heading") or ""))
        elif plain:
            yield Excerpt(where, "; ".join(f"{key}: {each}" for key, each in plain.items()))
        value = [each for each in value.values() if isinstance(each, (dict, list))]
    if isinstance(value, list):
        for each in value:
            yield from _texts_in(each, where, depth + 1)
    else:
        yield Excerpt(where, str(value))


def _place_in(value: dict[str, Any]) -> str:
    """The place that a JSON object names; empty if it names none."""
    named = [value[key] for key in _WHERE_KEYS if isinstance(value.get(key), str)]
    return next((place for place in named if place and not re.search(r"\s", place)), "")
