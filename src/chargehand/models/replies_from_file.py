"""A model whose replies stand in a file: `written:replies.toml`. For demos and tests without a network.

A reply is found by what the request says, not by its place in a script. So a run may be killed and resumed,
and tasks may run in any order, and each request still gets the same reply.
"""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from chargehand.errors import ModelRefused, UsageError
from chargehand.facts.form_faults import faults_in, form_faults
from chargehand.models.base import (
    Abilities,
    ModelReply,
    ModelRequest,
    Part,
    Role,
    StopReason,
    Text,
    ToolCall,
)
from chargehand.models.scripted import counted, pieces, request_line
from chargehand.regular_file import read_regular_file
from chargehand.toml_parser import toml_document
from chargehand.usable_path import checked_path

#: of an answer in words
_LAST_LINE = "\nCONFIDENCE: "

#: names of all files and tables: a reply that is given "when" a file is named must not fit every request
_MATERIAL = re.compile(r"^BEGIN material\n.*?^END material$", re.DOTALL | re.MULTILINE)
Purpose: TypeAlias = Literal["plan", "work", "check", "answer"]


class WrittenTurn(Struct, forbid_unknown_fields=True, rename={"arguments": "with"}):
    """One turn of the model: a text, or the call of a tool."""

    say: str = ""
    #: the name of a tool
    call: str = ""
    arguments: dict[str, Any] = {}


class WrittenReply(Struct, forbid_unknown_fields=True):
    """What is said to requests that fit: in one turn, or in several with tool calls between them."""

    #: texts that must all stand in the request
    when: list[str] = []
    #: texts of which none may stand in it, such as `@missing` for an answer that needs every result
    unless: list[str] = []
    #: which call it answers; none: any
    to: Purpose | None = None
    say: str = ""
    turns: list[WrittenTurn] = []

    def fits(self, purpose: Purpose, asked: str) -> bool:
        is_meant = all(words in asked for words in self.when)
        return self.to in (None, purpose) and is_meant and not any(w in asked for w in self.unless)


class WrittenReplies(Struct, forbid_unknown_fields=True):
    """A file of replies."""

    #: who wrote them, and how; shown to people
    note: str
    #: what they answer
    request: str
    reply: list[WrittenReply]


class WrittenModel:
    """Answers requests with the replies of a file. It is no language model, and says so."""

    def __init__(self, path: Path) -> None:
        self.name = f"written:{path}"
        self.account = self.name
        self.abilities = Abilities(is_real=False)
        self.replies = _read(path)
        self._path = path

    def __repr__(self) -> str:
        return f"<WrittenModel {self._path}, {len(self.replies.reply)} replies>"

    async def ask(self, request: ModelRequest) -> ModelReply:
        purpose, asked = purpose_of(request), _asked(request)
        for each in self.replies.reply:
            if each.fits(purpose, asked):
                return self._reply(each, request)
        raise ModelRefused(
            f"{self._path.name} has no reply to this ({purpose}): {request_line(request, 80)}. It answers only the request "
            f"{_clipped(self.replies.request)}, if no result is missing; for anything else choose a model, such as "
            "--model openai:gpt-5-mini"
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        reply = await self.ask(request)
        for piece in pieces(reply):
            yield piece
        yield reply

    def _reply(self, written: WrittenReply, request: ModelRequest) -> ModelReply:
        turns = written.turns or [WrittenTurn(say=written.say)]
        said = sum(turn.role is Role.MODEL for turn in request.turns)
        # Asked again, because something was wrong with the last turn: there is no other.
        turn = turns[min(said, len(turns) - 1)]
        if turn.call:
            arguments = msgspec.json.encode(turn.arguments).decode()
            parts: tuple[Part, ...] = (ToolCall(f"call-{said}", turn.call, arguments),)
            reply = ModelReply(parts=parts, stop=StopReason.TOOLS, model="written")
        else:
            reply = ModelReply(parts=(Text(turn.say),), stop=StopReason.END, model="written")
        return counted(reply, request)


def open_model(name: str) -> WrittenModel:
    """The model of `written:PATH`."""
    if not name:
        raise UsageError("written models are called written:PATH, with a file of replies")
    return WrittenModel(checked_path(name, "written"))


def purpose_of(request: ModelRequest) -> Purpose:
    """Which call of the supervisor or of a worker this is, by the form that it asks for."""
    asked_for = (request.schema or {}).get("properties", {})
    if "tasks" in asked_for:
        return "plan"
    # An answer in words has no form, but its prompt asks for a last line with the confidence.
    if "claims" in asked_for or (request.schema is None and _LAST_LINE in _told(request)):
        return "answer"
    return "check" if "met" in asked_for else "work"


def _clipped(text: str, most: int = 80) -> str:
    return repr(text if len(text) <= most else f"{text[: most - 1]}…")


def _told(request: ModelRequest) -> str:
    return "\n".join(turn.text for turn in request.turns if turn.role is Role.SYSTEM)


def _asked(request: ModelRequest) -> str:
    """All that the request says, without the model's own turns and the names of files that it could read."""
    asked = "\n".join(turn.text for turn in request.turns if turn.role is not Role.MODEL)
    return _MATERIAL.sub("", asked)


def _read(path: Path) -> WrittenReplies:
    try:
        data = read_regular_file(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read as a file of replies: {error.strerror}") from None
    document = toml_document(data, str(path))
    try:
        replies = msgspec.convert(document, WrittenReplies)
    except msgspec.ValidationError as error:
        faults = form_faults(document, WrittenReplies) or [str(error)]
        raise faults_in(f"{path} is not a file of replies; it", faults) from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deep to be read; take brackets out of it") from None
    faults = [
        f"reply {number} needs either `say` or `turns`, and each turn either `say` or `call`"
        for number, each in enumerate(replies.reply, 1)
        if bool(each.say) is bool(each.turns)
        or any(bool(turn.say) is bool(turn.call) for turn in each.turns)
    ]
    if faults:
        raise faults_in(str(path), faults)
    return replies
