"""Recorded model replies, with which a suite is evaluated without a model, an API key or a network.

A reply is found by the digest of its whole request (turns, tools, schema, settings, model name), the number of the
repeat, and its position among equal requests of that run. The file is JSON lines: a head, the models with their
abilities, the replies, and a seal: a last line with a hash of the lines above.
"""

import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from chargehand.errors import (
    ChargehandError,
    ModelDenied,
    ModelError,
    NeedsRefresh,
    UsageError,
)
from chargehand.facts.outcome import Usage
from chargehand.facts.value import canonical, digest_of
from chargehand.journal.durable_files import write_whole
from chargehand.models.base import Abilities, Model, ModelReply, ModelRequest
from chargehand.models.prices import price_of
from chargehand.regular_file import read_regular_file

log = logging.getLogger("chargehand")

FORMAT, VERSION = "chargehand-model-recording", 1
#: most bytes of a recording; a suite that needs more should be divided
MOST_BYTES = 256 * 2**20


class _Head(Struct, tag="recording", tag_field="is", forbid_unknown_fields=True):
    format: str
    version: int
    #: the suite's note about the origin of the replies
    note: str = ""


class _RecordedAbilities(Struct, tag="model", tag_field="is", forbid_unknown_fields=True):
    name: str
    abilities: Abilities


class RecordedReply(
    Struct, frozen=True, kw_only=True, tag="reply", tag_field="is", forbid_unknown_fields=True
):
    """A recorded reply of a model, and how long the call took."""

    request: str
    sample: int
    ordinal: int
    seconds: float
    reply: ModelReply

    @property
    def key(self) -> "ReplyKey":
        return ReplyKey(self.request, self.sample, self.ordinal)


class _Seal(Struct, tag="seal", tag_field="is", forbid_unknown_fields=True):
    lines: int
    sha256: str


_Line: TypeAlias = _Head | _RecordedAbilities | RecordedReply | _Seal
_line_in = msgspec.json.Decoder(_Line)
_reply_in = msgspec.json.Decoder(RecordedReply)


class ReplyKey(NamedTuple):
    """The key of a recorded reply."""

    request: str
    #: number of the repeat
    sample: int
    #: position among equal requests of one run
    ordinal: int


class ModelRecording:
    """The recorded replies of a suite. With `refresh`, models are called and their replies are recorded.

    A refresh replaces the recording at its end. Until then, its replies are stored in a separate file, from which the
    next refresh continues after an interruption.
    """

    def __init__(self, path: Path, *, refresh: bool = False, note: str = "") -> None:
        self.path = path
        self.is_refreshed = refresh
        self._note = note
        self._replies: dict[ReplyKey, RecordedReply] = {}
        #: abilities of each model
        self._abilities: dict[str, Abilities] = {}
        #: replies used in this evaluation
        self._used: set[ReplyKey] = set()
        self._is_there = path.exists()
        if self._is_there:
            self._read()
        #: replies of an interrupted refresh
        self._unfinished = UnfinishedRefresh(path.with_suffix(".unfinished.jsonl"), is_read=refresh)

    def _read(self) -> None:
        if self.path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{self.path} is larger than {MOST_BYTES} bytes; divide the suite")
        for line in _lines_of(self.path):
            if isinstance(line, RecordedReply):
                self._replies[line.key] = line
            elif isinstance(line, _RecordedAbilities):
                self._abilities[line.name] = line.abilities

    @property
    def is_metered(self) -> bool:
        """Whether calls of a recorded model are metered."""
        return any(each.is_metered for each in self._abilities.values())

    def may_cost(self, model: str) -> bool:
        """Whether calls of this model may have cost something when they were recorded."""
        known = self._abilities[model]
        return known.is_real or known.may_cost

    def session(self, sample: int) -> "ReplySession":
        """A session that serves the replies of one run."""
        return ReplySession(self, sample)

    def abilities_of(self, model: str, opened: Callable[[], Model]) -> Abilities:
        """The recorded abilities of a model, on which the wording of requests depends."""
        if self.is_refreshed:
            self._abilities[model] = opened().abilities
        known = self._abilities.get(model)
        if known is None:
            has = f"has no reply of {model}" if self._is_there else "is not there"
            raise NeedsRefresh(f"{self.path} {has}; needs --refresh")
        # Nothing is sent, so neither a ban on real models nor a missing price may refuse the model.
        return known if self.is_refreshed else replace(known, is_real=False, may_cost=False)

    def find(self, key: ReplyKey) -> RecordedReply | None:
        """The recorded reply, if any; during a refresh, only a reply of this refresh or of an interrupted one."""
        if self.is_refreshed and key not in self._used:
            reply = self._unfinished.replies.get(key)
            if reply is None:
                return None
            self._replies[key] = reply
        self._used.add(key)
        return self._replies.get(key)

    def keep(self, reply: RecordedReply) -> None:
        self._replies[reply.key] = reply
        self._used.add(reply.key)
        self._unfinished.add(reply)

    def write(self, *, is_whole: bool) -> None:
        """Replace the file atomically; after an evaluation of the whole suite, drop unused replies."""
        kept = [e for key, e in sorted(self._replies.items()) if not is_whole or key in self._used]
        if not kept and not self._is_there:
            return
        lines: list[_Line] = [_Head(FORMAT, VERSION, self._note)]
        lines += [
            _RecordedAbilities(name, self._abilities[name]) for name in sorted(self._abilities)
        ]
        lines += kept
        text = b"".join(msgspec.json.encode(each) + b"\n" for each in lines)
        seal = _Seal(len(lines), hashlib.sha256(text).hexdigest())
        try:
            write_whole(self.path, text + msgspec.json.encode(seal) + b"\n")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None
        self._unfinished.drop(self._used)

    @property
    def how_to_go_on(self) -> str:
        """Where the replies of an interrupted refresh are stored, in words; empty if there are none."""
        count, path = len(self._unfinished.replies), self._unfinished.path
        return (
            f"; {count} replies are kept in {path}, and --refresh goes on from there"
            if count
            else ""
        )


class UnfinishedRefresh:
    """The replies of an unfinished refresh, each appended to a file at once."""

    def __init__(self, path: Path, *, is_read: bool) -> None:
        self.path = path
        self.replies: dict[ReplyKey, RecordedReply] = {}
        if is_read and path.exists():
            self._read()

    def _read(self) -> None:
        try:
            lines = read_regular_file(self.path, MOST_BYTES).splitlines()
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read: {error.strerror}; delete it") from None
        for line in lines:
            try:
                reply = _reply_in.decode(line)
            except msgspec.MsgspecError:
                continue  # a killed process left an incomplete line
            self.replies[reply.key] = reply
        if self.replies:
            log.warning(
                "refresh_continues replies=%d file=%s; delete this file to ask for all of them again",
                len(self.replies),
                self.path,
            )

    def add(self, reply: RecordedReply) -> None:
        self.replies[reply.key] = reply
        try:
            with self.path.open("ab") as file:
                # Starts a new line, in case a killed process left an incomplete one.
                file.write(b"\n" + msgspec.json.encode(reply) + b"\n")
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error.strerror}") from None

    def drop(self, used: Collection[ReplyKey]) -> None:
        """Forget the replies that are now recorded; replies of other crews and cases are kept."""
        self.replies = {key: each for key, each in self.replies.items() if key not in used}
        if self.replies:
            lines = (msgspec.json.encode(each) + b"\n" for each in self.replies.values())
            write_whole(self.path, b"".join(lines))
        else:
            self.path.unlink(missing_ok=True)


def _lines_of(path: Path) -> Iterable[_Line]:
    """Read and check all lines of a recording; the seal is left out."""
    try:
        data = read_regular_file(path, MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    raw = data.splitlines()
    first = _head_of(raw[0] if raw else b"", path)
    if first.version > VERSION:
        raise UsageError(
            f"{path} has version {first.version} of the format, and this chargehand reads {VERSION}; update it"
        )
    try:
        lines = [_line_in.decode(each) for each in raw]
    except msgspec.MsgspecError as error:
        raise _damaged(path, str(error)) from None
    seal = lines.pop()
    text = data[: len(data) - len(raw[-1]) - 1]
    if not isinstance(seal, _Seal) or seal.sha256 != hashlib.sha256(text).hexdigest():
        raise _damaged(path, "its last line does not seal what stands above it")
    return lines


class _AnyHead(Struct):
    format: str
    version: int


def _head_of(line: bytes, path: Path) -> _AnyHead:
    try:
        head = msgspec.json.decode(line, type=_AnyHead)
    except msgspec.MsgspecError:
        raise _damaged(path, "its first line is not a head of a recording") from None
    if head.format != FORMAT:
        raise _damaged(path, f"its format is {head.format!r}")
    return head


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is not a sound recording: {why}; restore it, or delete it and --refresh"
    )


class ReplySession:
    """Gives one run its replies, and counts calls, tokens, time and cost."""

    def __init__(self, recording: ModelRecording, sample: int) -> None:
        self._recording = recording
        self._sample = sample
        self._models: dict[str, RecordedModel] = {}
        self._next: dict[str, int] = {}
        self._free: dict[str, list[int]] = {}
        #: totals of the replies of this run; `seconds` is the time when they were recorded
        self.calls = 0
        self.prompt_tokens = 0
        self.seconds = 0.0
        #: model, usage, and whether the call may have cost something
        self._spent: list[tuple[str, Usage, bool]] = []
        #: why replies are missing
        self.missing: list[str] = []
        self._failed: dict[ReplyKey, str] = {}

    @property
    def cost(self) -> float | None:
        """The cost in dollars; None if a model that may cost something has no known price."""
        amounts = []
        for model, usage, may_cost in self._spent:
            price = price_of(model, usage)
            if price is None and may_cost:
                return None
            amounts.append(max(price or 0.0, 0.0))
        return math.fsum(amounts)

    def model(self, name: str, opened: Callable[[], Model]) -> "RecordedModel":
        """The model with this name. `opened` opens the real model and is called only during a refresh."""
        if name not in self._models:
            self._models[name] = RecordedModel(name, self, opened, self._recording)
        return self._models[name]

    def written(self, name: str, opened: Callable[[], Model]) -> Model:
        """A model whose replies are in a file: they are counted, but not recorded again."""
        return _CountedModel(opened(), name, self)

    def refuse_missing(self) -> None:
        """Raise if a reply was missing, or a model failed to give one."""
        if self.missing:
            raise NeedsRefresh(f"{self.missing[0]}; needs --refresh")
        for why in self._failed.values():
            kept = self._recording.how_to_go_on
            raise ModelDenied(
                f"the recording is left as it was, because a model failed: {why}{kept}"
            )

    def take(self, digest: str) -> ReplyKey:
        """The key of a new request: its position is the order of arrival among equal requests."""
        free = self._free.get(digest)
        if free:
            return ReplyKey(digest, self._sample, free.pop())
        ordinal = self._next.get(digest, 0)
        self._next[digest] = ordinal + 1
        return ReplyKey(digest, self._sample, ordinal)

    def give_back(self, key: ReplyKey, error: BaseException, model: str) -> None:
        """Free the key of a failed request: a retry is an equal request and gets the same key."""
        self._free.setdefault(key.request, []).append(key.ordinal)
        if isinstance(error, ModelError):
            self._failed[key] = f"{model}: {error}"

    def fail(self, model: str, error: ChargehandError) -> None:
        """Note that a model could not be opened."""
        self._failed[ReplyKey(model, self._sample, 0)] = f"{model}: {error}"

    def count(self, reply: RecordedReply, model: "RecordedModel") -> ModelReply:
        self._failed.pop(reply.key, None)
        if model.abilities.is_metered:
            may_cost = self._recording.may_cost(model.name)
            self._spent.append((model.name, reply.reply.usage, may_cost))
        self.calls += 1
        self.prompt_tokens += reply.reply.usage.tokens_in
        self.seconds += reply.seconds
        return reply.reply


class _CountedModel:
    """A model under another name, whose replies are counted in the session."""

    def __init__(self, model: Model, name: str, session: ReplySession) -> None:
        self.name = self.account = name
        self.abilities = model.abilities
        self._model = model
        self._session = session

    async def ask(self, request: ModelRequest) -> ModelReply:
        reply = await self._model.ask(request)
        self._session.calls += 1
        return reply

    async def stream(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        async with aclosing(self._model.stream(request)) as pieces:  # type: ignore[type-var]  # generators, all of them
            async for piece in pieces:
                self._session.calls += isinstance(piece, ModelReply)
                yield piece


class RecordedModel:
    """A model whose replies come from a recording; during a refresh, from the real model."""

    def __init__(
        self,
        name: str,
        session: ReplySession,
        opened: Callable[[], Model],
        recording: ModelRecording,
    ) -> None:
        self.name = name
        self._session = session
        self._opened = opened
        self._recording = recording
        self._model: Model | None = None

    @property
    def account(self) -> str:
        return self._real().account if self._recording.is_refreshed else f"recorded:{self.name}"

    @property
    def abilities(self) -> Abilities:
        try:
            return self._recording.abilities_of(self.name, self._real)
        except NeedsRefresh as error:
            self._session.missing.append(str(error).removesuffix("; needs --refresh"))
            return Abilities(is_real=False)

    async def ask(self, request: ModelRequest) -> ModelReply:
        async with aclosing(self.stream(request)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    return piece
        raise ModelDenied(f"{self.name} ended its stream without a reply")

    async def stream(self, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
        key = self._session.take(digest_of(canonical([self.name, request])))
        known = self._recording.find(key)
        if known is None and self._recording.is_refreshed:
            is_whole = False
            try:
                async with aclosing(self._asked(key, request)) as pieces:
                    async for piece in pieces:
                        is_whole = isinstance(piece, ModelReply)
                        yield piece
            except BaseException as error:
                if not is_whole:  # closing the stream after the whole reply is no failure
                    self._session.give_back(key, error, self.name)
                raise
            return
        if known is None:
            self._session.missing.append(
                f"{self._recording.path} has no reply of {self.name} to a request of this run: "
                "a prompt, a crew, a file or the program has changed since"
            )
            raise ModelDenied(self._session.missing[-1])
        if known.reply.text:
            yield known.reply.text
        yield self._session.count(known, self)

    async def _asked(
        self, key: ReplyKey, request: ModelRequest
    ) -> AsyncGenerator[str | ModelReply, None]:
        began = time.monotonic()
        async with aclosing(self._real().stream(request)) as pieces:  # type: ignore[type-var]  # generators, all of them
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    seconds = round(time.monotonic() - began, 3)
                    reply = RecordedReply(
                        request=key.request,
                        sample=key.sample,
                        ordinal=key.ordinal,
                        seconds=seconds,
                        reply=replace(piece, allowance=None),
                    )
                    self._recording.keep(reply)
                    yield self._session.count(reply, self)
                    return
                yield piece

    def _real(self) -> Model:
        if self._model is None:
            try:
                self._model = self._opened()
            except ChargehandError as error:  # no key or no such model: not the fault of a case
                self._session.fail(self.name, error)
                raise
        return self._model
