"""What the adapters for protocols over HTTP share: one call, whole or streamed, and its checks."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from chargehand.errors import ModelError, ModelRefused
from chargehand.facts.lone_surrogates import without_escaped_surrogates
from chargehand.facts.outcome import MOST_TOLD, Usage
from chargehand.models import base
from chargehand.models.connection_settings import Access
from chargehand.models.http_transport import ModelEndpoint
from chargehand.models.provider_errors import Filtered, complaint_of, failure_of, garbled

P = ParamSpec("P")
T = TypeVar("T")
Json = dict[str, Any]

log = logging.getLogger("chargehand.models")

#: largest token count that is accepted; above it, JSON parsers disagree about integers
LARGEST_COUNT = MOST_TOLD


#: headers with what is granted a minute: of requests, of tokens
_GRANTED = (
    ("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens"),
    ("anthropic-ratelimit-requests-limit", "anthropic-ratelimit-tokens-limit"),
)


def allowance_in(headers: Mapping[str, str]) -> base.CallAllowance | None:
    """What the headers of an answer say of its provider's rates; None if nothing."""
    for requests, tokens in _GRANTED:
        if requests in headers or tokens in headers:
            return base.CallAllowance(_amount(headers.get(requests)), _amount(headers.get(tokens)))
    return None


def _amount(text: str | None) -> float | None:
    try:
        amount = float(text or 0)
    except ValueError:
        return None
    return amount if 0 < amount < LARGEST_COUNT else None


class Gathering(Protocol):
    """A streamed reply in the making."""

    @property
    def is_over(self) -> bool:
        """Whether the provider has said, in so many words, that this was all."""

    def take(self, data: bytes, headers: Mapping[str, str]) -> str:
        """Take in an event; returns what of the text is new."""

    def reply(self) -> base.ModelReply:
        """The whole reply. Only to be asked for once it is over."""


#: providers whose servers run their models themselves
FREE = ("ollama",)


class HttpModel(ABC):
    """A `Model` behind a protocol over HTTP; each protocol fills in four methods."""

    path: str
    protocol: str

    def __init__(
        self, model: str, access: Access, *, abilities: base.Abilities | None = None
    ) -> None:
        self.model = model
        self.access = access
        self.name = f"{access.provider}:{model}"
        #: the provider in messages
        self.shown_provider = access.shown_name
        self.account = base.account_of(access.provider, f"{access.host} {access.key}")
        may_cost = access.provider not in FREE
        self.abilities = abilities or base.Abilities(is_real=not access.is_local, may_cost=may_cost)
        #: whose opaque blocks this model may be shown: its protocol's, from its own host
        self.origin = f"{self.protocol}:{access.host}"
        self._endpoint = ModelEndpoint(access, self.name)
        self._has_warned: set[str] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.access.shown_url}>"

    # For each protocol to say

    @abstractmethod
    def body_of(self, request: base.ModelRequest) -> Json:
        """The request as this protocol writes it."""

    def streamed(self, body: Json) -> Json:
        return {**body, "stream": True}

    @abstractmethod
    def reply_in(self, body: bytes, headers: Mapping[str, str]) -> base.ModelReply:
        """The reply in this body."""

    @abstractmethod
    def gathering(self) -> Gathering:
        """What gathers a streamed reply."""

    def examined(self, reply: base.ModelReply, request: base.ModelRequest) -> base.ModelReply:  # noqa: ARG002
        """The reply as it is to be taken, in the light of what was asked."""
        return reply

    # What all do alike

    async def ask(self, request: base.ModelRequest) -> base.ModelReply:
        body = self._written(request)
        try:
            content, response = await self._endpoint.post(self.path, body)
        except Filtered as error:
            return self._refusal(error)
        read = self._read(_without_halves, self.reply_in, content, response.headers)
        reply = self.examined(read, request)
        allowance = allowance_in(response.headers)
        return reply if allowance is None else replace(reply, allowance=allowance)

    async def stream(self, request: base.ModelRequest) -> AsyncIterator[str | base.ModelReply]:
        body = self._written(request, stream=True)
        try:
            async with self._endpoint.open(self.path, body) as events:
                gathered = self.gathering()
                while not gathered.is_over:
                    if (data := await events.next()) is None:
                        raise events.cut_off()
                    if piece := self._read(_without_halves, gathered.take, data, events.headers):
                        yield piece
                yield self.examined(self._read(gathered.reply), request)
                await events.finish()
        except Filtered as error:
            yield self._refusal(error)

    def _read(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What this function reads in an answer, or the error for an answer that cannot be read."""
        try:
            return read(*args, **kwargs)
        except RecursionError:
            raise self.garbled("is nested too deeply to be read") from None
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise self.garbled(f"cannot be read ({error})") from None

    def stop_in(
        self,
        known: Mapping[str, base.StopReason],
        reason: str | None,
        calls: Sequence[base.ToolCall],
        *,
        is_refused: bool = False,
    ) -> base.StopReason:
        """Why a reply ended, from the protocol's word for it. A word that is not known may mean anything."""
        stop = known.get(reason or "")
        if stop is None:
            raise self.garbled(f"ended for a reason that is not known: {reason!r}")
        if is_refused:
            return base.StopReason.REFUSAL
        if stop is base.StopReason.TOOLS and not calls:
            raise self.garbled("says that it calls tools, and names none")
        return base.StopReason.TOOLS if calls and stop is base.StopReason.END else stop

    def _refusal(self, error: Filtered) -> base.ModelReply:
        return base.ModelReply(
            parts=(base.Text(str(error)),),
            stop=base.StopReason.REFUSAL,
            usage=Usage(calls=1),
            model=self.model,
        )

    def failure_in(self, error: object, headers: Mapping[str, str]) -> ModelError:
        """The failure that came as an `error` inside a reply."""
        return failure_of(complaint_of(error, headers), self.access)

    def garbled(self, fact: str) -> ModelError:
        return garbled(self.access, fact)

    def refused(self, fact: str) -> ModelRefused:
        return ModelRefused(f"{self.name} cannot be asked this: {fact}")

    def warn_once(self, what: str) -> None:
        """Say, once for each model, that something asked for has no effect."""
        if what not in self._has_warned:
            self._has_warned.add(what)
            log.warning("setting_ignored: %s cannot do %s", self.name, what)

    def opaque(self, block: "bytes | Raw") -> base.Opaque:
        # A copy: what the decoder hands out would keep the whole answer alive.
        return base.Opaque(self.origin, Raw(bytes(block)))

    def _written(self, request: base.ModelRequest, *, stream: bool = False) -> bytes:
        self._check(request)
        try:
            body = {**self.body_of(request), **request.settings.extra}
            return msgspec.json.encode(self.streamed(body) if stream else body)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self.refused(
                f"it has no form in JSON ({type(error).__name__}); "
                "look for unusual values and broken characters in it"
            ) from error

    def _check(self, request: base.ModelRequest) -> None:
        can = self.abilities
        if request.tools and not can.tools:
            raise self.refused("it can call no tools; leave them out, or use another model")
        if not (can.images and can.files):
            for turn in request.turns:
                self._check_parts(turn.parts)
        if request.choice not in ("auto", "none"):
            names = {tool.name for tool in request.tools}
            if not names or (request.choice != "required" and request.choice not in names):
                raise self.refused(f"tool choice {request.choice!r} fits none of its tools")

    def _check_parts(self, parts: tuple[base.Part, ...]) -> None:
        for part in parts:
            if isinstance(part, base.Image) and not self.abilities.images:
                raise self.refused("it can see no images; leave them out, or use another model")
            if isinstance(part, base.File) and not self.abilities.files:
                raise self.refused(f"it can read no files such as {part.name}; give their text")


def _without_halves(
    read: Callable[[bytes, Mapping[str, str]], T], data: bytes, headers: Mapping[str, str]
) -> T:
    """What this function reads, which begins with decoding; U+FFFD stands for escapes of half a character."""
    try:
        return read(data, headers)
    except msgspec.DecodeError:
        whole = without_escaped_surrogates(data.decode()).encode()
        if whole == data:
            raise
        return read(whole, headers)


def tools_of(
    request: base.ModelRequest,
    tool: Callable[[base.ToolSpec], Json],
    choice: Callable[[str], str | Json],
) -> Json:
    """The fields of a body that offer tools, given how a protocol writes a tool and a choice."""
    if not request.tools:
        return {}
    offered: Json = {"tools": [tool(each) for each in request.tools]}
    return (
        offered if request.choice == "auto" else {**offered, "tool_choice": choice(request.choice)}
    )


def usage_of(
    tokens_in: int | None, tokens_out: int | None, read: int | None, written: int | None
) -> Usage:
    """What a provider reports, or one call of unknown size if that cannot be true."""
    counts = (tokens_in or 0, tokens_out or 0, read or 0, written or 0)
    is_sound = min(counts) >= 0 and max(counts) <= LARGEST_COUNT
    if not is_sound or counts[2] + counts[3] > counts[0]:
        return Usage(calls=1)
    return Usage(
        calls=1,
        tokens_in=counts[0],
        tokens_out=counts[1],
        cache_read=counts[2],
        cache_written=counts[3],
    )


def schema_in_words(schema: Json) -> str:
    """How a model is asked to keep to a schema that its provider will not hold it to."""
    text = msgspec.json.encode(schema).decode()
    return (
        "Answer with one JSON value and nothing else: no introduction, no code fence. "
        f"It must fit this JSON Schema:\n{text}"
    )
