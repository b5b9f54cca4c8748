"""What a model must do: take turns and tools, give one reply, whole or piece by piece.

Requests and replies are plain values with a JSON form, because every call is a durable step: what
is journaled is exactly what the next turn sees. They hold no cycles, so the garbage collector is
spared them (`gc=False`): its passes were a fifth of the CPU of an LLM task.
"""

import base64
import binascii
import hashlib
import inspect
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from operator import is_
from typing import Any, Protocol, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from chargehand.errors import InvalidModelReply
from chargehand.facts import argument_checks as checks
from chargehand.facts.lone_surrogates import without_escaped_surrogates, without_surrogates
from chargehand.facts.outcome import NO_USAGE, Usage


class Text(Struct, frozen=True, tag="text", tag_field="is", gc=False):
    """Text."""

    text: str


class Image(Struct, frozen=True, tag="image", tag_field="is", omit_defaults=True, gc=False):
    """A picture: its bytes in base64, or its URL."""

    data: str = ""
    url: str = ""
    media_type: str = "image/png"

    @property
    def as_url(self) -> str:
        """Its own address, or a data URL that holds its bytes."""
        return self.url or f"data:{self.media_type};base64,{self.data}"


class File(Struct, frozen=True, tag="file", tag_field="is", omit_defaults=True, gc=False):
    """A document, such as a PDF: its bytes in base64."""

    name: str
    data: str
    media_type: str = "application/pdf"

    @property
    def as_url(self) -> str:
        """A data URL that holds its bytes."""
        return f"data:{self.media_type};base64,{self.data}"

    @property
    def is_text(self) -> bool:
        """Whether it is plain text, which every model can read as such."""
        kind = self.media_type.partition(";")[0].strip()
        return kind.startswith("text/") or kind in ("application/json", "application/xml")

    @property
    def words(self) -> str | None:
        """The text of a plain text document; None for any other, or if it is not base64."""
        try:
            data = base64.b64decode(self.data, validate=True) if self.is_text else None
        except (binascii.Error, ValueError):
            return None
        return None if data is None else data.decode("utf-8", "replace")

    @property
    def quoted(self) -> str | None:
        """Its `words`, marked off from the text around them."""
        words = self.words
        return None if words is None else f"[file {self.name}]\n{words}\n[end of {self.name}]"


class ToolCall(Struct, frozen=True, tag="call", tag_field="is", gc=False):
    """A tool call that a model asks for."""

    id: str
    name: str
    #: as the model wrote them: JSON, or what it took for JSON
    arguments: str


class ToolOutput(Struct, frozen=True, tag="output", tag_field="is", omit_defaults=True, gc=False):
    """The result of a tool call."""

    id: str
    name: str
    text: str
    is_error: bool = False

    @property
    def told(self) -> str:
        """The text, marked as an error for protocols that have no field for errors."""
        return f"Error: {self.text}" if self.is_error else self.text


class Opaque(Struct, frozen=True, tag="opaque", tag_field="is", gc=False):
    """Something only its provider understands: signed thinking, a reasoning item.

    It goes back unchanged to the same provider, and is left out for any other.
    """

    provider: str
    block: Raw


Part: TypeAlias = Text | Image | File | ToolCall | ToolOutput | Opaque


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    MODEL = "model"
    TOOL = "tool"

    @property
    def chat_name(self) -> str:
        """The name in chat protocols, where the user passes on what tools return."""
        return _CHAT_NAMES.get(self, "user")


_CHAT_NAMES = {Role.SYSTEM: "system", Role.MODEL: "assistant"}


class Turn(Struct, frozen=True, gc=False):
    """One contribution to a conversation."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        return _text_in(self.parts)


class ToolSpec(Struct, frozen=True):
    """A tool as a model sees it."""

    name: str
    description: str
    #: JSON Schema of its arguments
    parameters: dict[str, Any]


class ModelSettings(
    Struct, metaclass=checks.CheckedKeywords, frozen=True, kw_only=True, omit_defaults=True
):
    """Settings of model calls; a setting that is None uses the provider's default."""

    #: sent with every call, so that the cost of a call is limited
    max_tokens: int = 4096
    temperature: float | None = None
    top_p: float | None = None
    #: effort: low, medium, high; empty: none asked for
    reasoning: str = ""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    #: tokens that a request and its answer may have together; None: chargehand assumes 32,000
    context: int | None = None
    #: further fields of the provider's protocol, sent as they are
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        checks.count(self.max_tokens, "max_tokens")  # none: only to measure a request
        for field, most in (("temperature", 2), ("top_p", 1)):
            if getattr(self, field) is not None:
                checks.amount(getattr(self, field), field, most=most)
        checks.text(self.reasoning, "reasoning", most=checks.LONGEST_NAME)
        if self.seed is not None:
            checks.count(self.seed, "seed", least=-checks.LARGEST)
        if self.context is not None:
            checks.count(self.context, "context", least=1)
        checks.instance(self.stop, "stop", Sequence)
        checks.texts(self.stop, "stop")
        checks.instance(self.extra, "extra", Mapping)

    def given(self, *names: str) -> dict[str, Any]:
        """The settings that are set, by name."""
        return {name: value for name in names if (value := getattr(self, name)) or value == 0}


class ModelRequest(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Everything that one model call sends."""

    turns: tuple[Turn, ...]
    tools: tuple[ToolSpec, ...] = ()
    #: auto, none, required (some tool), or the name of the tool that must be called
    choice: str = "auto"
    #: JSON Schema that the answer must fit
    schema: dict[str, Any] | None = None
    settings: ModelSettings = ModelSettings()


class StopReason(StrEnum):
    """Why a reply ended."""

    END = "end"  #: it was finished
    TOOLS = "tools"  #: it wants tools called
    LENGTH = "length"  #: it was cut off at the maximum length: never complete
    REFUSAL = "refusal"  #: the model or its provider would not answer


class CallAllowance(Struct, frozen=True, gc=False):
    """What a provider says it grants a minute."""

    requests: float | None = None
    tokens: float | None = None


class ModelReply(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A complete reply. A reply that breaks off raises an error instead."""

    parts: tuple[Part, ...]
    stop: StopReason
    usage: Usage = NO_USAGE
    #: the provider's name for the model that answered
    model: str = ""
    #: the provider's rate limits, if the headers of the reply state them
    allowance: CallAllowance | None = None
    #: what is missing from the answer, if the model knows; the task is then done in part
    gaps: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return _text_in(self.parts)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if type(part) is ToolCall])

    @property
    def turn(self) -> Turn:
        return Turn(Role.MODEL, self.parts)


class Abilities(Struct, frozen=True, kw_only=True):
    """What a model can do. Missing features are emulated or refused, never silently dropped."""

    tools: bool = True
    #: the provider makes answers fit a JSON Schema
    schema: bool = True
    #: the provider also enforces a schema for each position of a list (`prefixItems`), and optional properties
    places: bool = False
    images: bool = True
    files: bool = True
    #: ends with `StopReason.REFUSAL` by itself when it cannot do a task; other models get instructions for that
    declines: bool = False
    #: costs something or leaves the machine; tests may forbid it
    is_real: bool = True
    #: may cost something although it answers on this machine: a local server may forward calls to a paid model
    may_cost: bool = False
    #: its replies use tokens; False: it follows rules and uses none
    is_metered: bool = True


class Model(Protocol):
    """A language model, or anything that replies like one."""

    @property
    def name(self) -> str:
        """As users write it: `openai:gpt-5-mini`."""

    @property
    def account(self) -> str:
        """A digest of the provider and the key: models with the same digest share rate limits."""

    @property
    def abilities(self) -> Abilities:
        """What it can do and whether it may cost something; `Abilities()` fits most models."""

    async def ask(self, request: ModelRequest) -> ModelReply:
        """The whole reply. Raises a `ModelError` of the right class for whatever goes wrong."""

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """The text of the reply piece by piece, and finally the whole reply: an async generator."""


#: the members of a model, and what is said of one that is something else
_OF_MODEL = {
    "name": "must be a text that is not empty, such as 'provider:model'",
    "account": "must be a text",
    "abilities": "must be Abilities(…)",
    "ask": "must be an async method",
    "stream": "must be an async generator method",
}


#: of a member that `__getattr__` makes
_COMPUTED = object()


def _may_be_right(given: object, member: str) -> bool:
    """Whether a member of a model may be of its kind. A property or a method is not asked for its value."""
    found = inspect.getattr_static(given, member, _COMPUTED)
    if found is _COMPUTED or hasattr(type(found), "__get__"):
        return True
    match member:
        case "name":
            return isinstance(found, str) and bool(found.strip())
        case "account":
            return isinstance(found, str)
        case "abilities":
            return isinstance(found, Abilities)
    return callable(found)


def why_no_model(given: object) -> str:
    """What this lacks to be a `Model`, naming its class; empty if it lacks nothing."""
    if isinstance(given, type):
        return f"{given.__name__} is a class; give an object of it, as {given.__name__}(…)"
    # A property is not asked for its value, because it may open a connection for that.
    missing = [
        each for each in _OF_MODEL if not (hasattr(type(given), each) or hasattr(given, each))
    ]
    if not missing:
        odd = (each for each in _OF_MODEL if not _may_be_right(given, each))
        return next((f"{type(given).__name__}.{each} {_OF_MODEL[each]}" for each in odd), "")
    how = "; for most models, abilities = Abilities() is right" if missing == ["abilities"] else ""
    return f"{type(given).__name__} is no Model: it has no {', '.join(missing)}{how}"


def whole_reply(reply: object, model: str, method: str) -> ModelReply:
    """What `ask` or `stream` of this model has returned. Raises `InvalidModelReply` if it is no sound reply."""
    if not isinstance(reply, ModelReply):
        raise InvalidModelReply(model, method, f"returned {_a(reply)} instead of a ModelReply")
    if type(reply.parts) is not tuple or type(reply.stop) is not StopReason:
        reply = _normal(reply, model, method)
    if not _is_usual(reply) and (fault := _fault_of(reply)):
        raise InvalidModelReply(model, method, f"returned a ModelReply {fault}")
    return reply


#: the fields that hold text, by kind of part
_TEXTS: dict[type, tuple[str, ...]] = {
    Text: ("text",),
    Image: ("data", "url", "media_type"),
    File: ("name", "data", "media_type"),
    ToolCall: ("id", "name", "arguments"),
    ToolOutput: ("id", "name", "text"),
    Opaque: ("provider",),
}
_COUNTS = ("calls", "tokens_in", "tokens_out", "cache_read", "cache_written")


def _is_usual(reply: ModelReply) -> bool:
    """Whether this is a sound reply of the most common kind. Runs for every call: it compares types, and no more."""
    for part in reply.parts:
        kind = type(part)
        if kind is Text:
            if type(part.text) is not str:  # type: ignore[union-attr]  # it is a Text
                return False
        elif kind is not ToolCall or not (
            type(part.arguments) is type(part.name) is type(part.id) is str  # type: ignore[union-attr]
        ):
            return False
    usage = reply.usage
    return (
        type(usage) is Usage
        and type(usage.tokens_in) is type(usage.tokens_out) is type(usage.calls) is int
        and type(usage.cache_read) is type(usage.cache_written) is int
        and usage.money == 0
        and not reply.gaps
        and (reply.allowance is None or not _fault_of_allowance(reply.allowance))
        and type(reply.model) is str
    )


def _fault_of(reply: ModelReply) -> str:
    """What is wrong with a reply, naming the field; empty if it is sound."""
    for part in reply.parts:
        kind = next((each for each in _TEXTS if isinstance(part, each)), None)
        if kind is None:
            return f"with {_a(part)} among its parts"
        for name in _TEXTS[kind]:
            if not _is_text(getattr(part, name)):
                return _wrong(f"{kind.__name__}.{name}", getattr(part, name), "a text")
        if isinstance(part, ToolOutput) and type(part.is_error) is not bool:
            return _wrong("ToolOutput.is_error", part.is_error, "True or False")
        if isinstance(part, Opaque) and not isinstance(part.block, Raw):
            return _wrong("Opaque.block", part.block, "a msgspec.Raw")
    if not _is_text(reply.model):
        return _wrong("model", reply.model, "a text")
    gaps: object = reply.gaps
    if not isinstance(gaps, tuple | list) or not all(map(_is_text, gaps)):
        return f"whose gaps are {checks.shown(gaps)}, not a tuple of texts"
    return _fault_of_amounts(reply)


def _fault_of_amounts(reply: ModelReply) -> str:
    usage = reply.usage
    if not isinstance(usage, Usage):
        return _wrong("usage", usage, "a Usage")
    for name in _COUNTS:
        count = getattr(usage, name)
        if type(count) is not int:
            return f"whose usage.{name} is {checks.shown(count)}, not a whole number"
    if not _is_amount(usage.money):
        return f"whose usage.money is {checks.shown(usage.money)}, not a number"
    return "" if reply.allowance is None else _fault_of_allowance(reply.allowance)


def _fault_of_allowance(allowance: object) -> str:
    if not isinstance(allowance, CallAllowance):
        return _wrong("allowance", allowance, "a CallAllowance")
    for name in ("requests", "tokens"):
        amount = getattr(allowance, name)
        if amount is not None and not (_is_amount(amount) and amount >= 0):
            return f"whose allowance.{name} is {checks.shown(amount)}, not a number of at least 0"
    return ""


def _is_text(value: object) -> bool:
    # Of no other class of texts: JSON writers refuse them.
    return type(value) is str or isinstance(value, StrEnum)


def _is_amount(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]  # by its type


def _wrong(field: str, value: object, wanted: str) -> str:
    return f"whose {field} is {_a(value)}, not {wanted}"


def _normal(reply: ModelReply, model: str, method: str) -> ModelReply:
    """The same reply, where its parts are a list, or its reason to stop is given as a text."""
    if not isinstance(reply.parts, tuple | list):
        raise InvalidModelReply(
            model, method, f"returned a ModelReply whose parts are {_a(reply.parts)}, not a tuple"
        )
    known = [each.value for each in StopReason]
    if reply.stop not in known:
        raise InvalidModelReply(
            model,
            method,
            f"returned a ModelReply with stop={checks.shown(reply.stop)}, which is no StopReason "
            f"({', '.join(known)})",
        )
    return replace(reply, parts=tuple(reply.parts), stop=StopReason(reply.stop))


def _a(thing: object) -> str:
    return f"an object of type {type(thing).__name__}"


def _text_in(parts: Sequence[Part]) -> str:
    if len(parts) == 1 and type(parts[0]) is Text:
        return parts[0].text  # most often
    return "".join(part.text for part in parts if isinstance(part, Text))


def valid_unicode(reply: ModelReply) -> ModelReply:
    """The reply without lone surrogates: U+FFFD stands for them in its texts and in the arguments of its calls."""
    parts = tuple([_valid(part) for part in reply.parts])
    model, gaps = without_surrogates(reply.model), reply.gaps
    if gaps:
        gaps = tuple([without_surrogates(gap) for gap in gaps])
    is_same = model is reply.model and all(map(is_, (*reply.parts, *reply.gaps), (*parts, *gaps)))
    return reply if is_same else replace(reply, parts=parts, model=model, gaps=gaps)


def _valid(part: Part) -> Part:
    match part:
        case Text(text):
            whole = without_surrogates(text)
            return part if whole is text else Text(whole)
        case ToolCall():
            before = (part.id, part.name, part.arguments)
            id_, name = without_surrogates(part.id), without_surrogates(part.name)
            whole = without_escaped_surrogates(part.arguments)
            return part if (id_, name, whole) == before else ToolCall(id_, name, whole)
        case _:
            return part


def system(text: str) -> Turn:
    return Turn(Role.SYSTEM, (Text(text),))


def user(text: str, *more: Part) -> Turn:
    return Turn(Role.USER, (Text(text), *more))


def account_of(provider: str, key: str) -> str:
    """A name for the shared limits of a key that does not give the key away."""
    return f"{provider}:{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def parts_for(provider: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that this provider may see: opaque blocks only if they are its own."""
    return tuple(p for p in parts if not isinstance(p, Opaque) or p.provider == provider)
