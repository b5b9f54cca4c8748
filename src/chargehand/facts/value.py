"""Values that are passed between tasks: JSON bytes with the untrusted sources that they derive from."""

import dataclasses
import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from chargehand.errors import NotJSON, WorkerError
from chargehand.facts.argument_checks import shown

#: bytes; larger values are stored as blobs
INLINE_BYTES = 64 * 1024

#: bytes of one value; more belongs in a file whose name is passed on
MOST_BYTES = 256 * 2**20
#: lists and objects in one value; more would block the event loop for seconds
MOST_PARTS = 1_000_000
#: characters of a value in its `repr`
LONGEST_SHOWN = 200
#: levels of nested lists and objects; a reader that is itself deep in calls must still be able to decode them
DEPTH = 200

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"


def digest_of(data: bytes) -> str:
    """The digest of these bytes: 32 hex digits of BLAKE2b."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def plain(text: str) -> str:
    """The text with lone surrogates written as escapes: names of files may contain them."""
    return text.encode("utf-8", "backslashreplace").decode()


class Value(Struct, frozen=True, gc=False, omit_defaults=True, repr_omit_defaults=True):
    """A stored JSON value.

    It is kept as bytes, so that a reader gets exactly the same while the run is live as after a crash,
    and no two readers share an object that one of them could change.
    """

    json: Raw = Raw(b"null")
    #: untrusted sources that this value derives from; none means trusted
    taint: tuple[str, ...] = ()
    #: digest of the bytes, if they are in the journal's blob store and not in `json`
    blob: str = ""
    #: number of bytes in the blob
    size: int = 0

    @classmethod
    def of(cls, data: object, taint: tuple[str, ...] = ()) -> "Value":
        """Store `data`, which may also be a dataclass, a Pydantic model or a date.

        Raises `NotJSON` for what JSON cannot hold; nothing is dropped or rounded silently.
        """
        if data is None:
            return _NOTHING if not taint else cls(taint=taint)
        if isinstance(data, _BINARY):
            raise NotJSON(_BYTES, is_final=True)
        try:
            encoded, form_of = _encoded(data)
            if type(data) not in _SCALARS:
                _refuse_unfaithful(data, form_of, is_large=len(encoded) > INLINE_BYTES)
            # msgspec writes NaN and infinity as null; only bytes with a null in them can hide one.
            if b"null" in encoded:
                _refuse_lost_floats(data, form_of)
        except (NotJSON, KeyboardInterrupt):
            raise
        except BaseException as error:
            # A property of the data may raise anything, SystemExit too.
            raise _not_json(type(data).__name__, error) from error
        return cls(json=Raw(encoded), taint=taint)

    @classmethod
    def of_record(cls, data: object, taint: tuple[str, ...] = ()) -> "Value":
        """Store a record of chargehand itself, of which JSON returns every value unchanged (texts and counts).

        For data from callers, use `of`: it checks all parts, which takes several times as long.
        """
        encoded, form_of = _encoded(data)
        if b"null" in encoded:
            _refuse_lost_floats(data, form_of)
        return cls(json=Raw(encoded), taint=taint)

    def __repr__(self) -> str:
        """The data as JSON, cut where it is long."""
        shown = f"{self.size:,} bytes in blob {self.blob}" if self.blob else _shown(self.json)
        return f"Value({shown}{f', taint={self.taint}' if self.taint else ''})"

    def derived_from(self, sources: tuple[str, ...]) -> "Value":
        """The same data with these untrusted sources added to its taint. Taint is never removed."""
        taint = tuple(dict.fromkeys((*self.taint, *sources)))
        return self if len(taint) == len(self.taint) else msgspec.structs.replace(self, taint=taint)

    def read(self) -> Any:
        """A fresh copy of the data."""
        if self.blob:
            raise NotJSON(f"this value lies in blob {self.blob}; load it from the journal first")
        return msgspec.json.decode(self.json)

    def refuse_unreadable(self) -> None:
        """Raise `NotJSON` unless its bytes are one JSON value that every reader can decode.

        For values that were not made by `of` and `of_record`. A value in a blob is refused as well: only the
        code that stores a blob knows that it exists.
        """
        if self.blob or self.size:
            raise NotJSON(
                "its value names a blob, which only the supervisor stores; hand in the data"
            )
        encoded = bytes(self.json)
        # Lists of results and notes of a board wrap values made by `of` in more levels and parts.
        _refuse_unreadable(encoded, "its value", depth=2 * DEPTH, parts=MOST_BYTES)
        try:
            msgspec.json.decode(encoded)
        except (ValueError, RecursionError) as error:
            raise NotJSON(f"its value is not one JSON value in UTF-8: {error}") from None

    @property
    def is_large(self) -> bool:
        """Whether it must be stored as a blob and not in an event."""
        return len(self.json) > INLINE_BYTES

    @property
    def digest(self) -> str:
        """The digest of the bytes, wherever they are stored."""
        return self.blob or digest_of(bytes(self.json))


def _shown(json: Raw) -> str:
    text = bytes(memoryview(json)[: 4 * LONGEST_SHOWN]).decode(errors="ignore")
    is_cut = len(json) > 4 * LONGEST_SHOWN or len(text) > LONGEST_SHOWN
    return text[:LONGEST_SHOWN] + "…" if is_cut else text


def canonical(data: object) -> bytes:
    """The data as JSON bytes that are the same for equal data, whatever the order of its keys."""
    try:
        return _canonical.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _not_json(type(data).__name__, error) from error


def _not_json(kind: str, error: BaseException) -> NotJSON:
    """Why a value of this type cannot be stored."""
    try:
        words = str(error)
    except BaseException:  # noqa: BLE001 - it is the caller's exception, and its `__str__` may do anything
        words = ""
    words = words or type(error).__name__
    if isinstance(error, UnicodeEncodeError):
        words = f"a text has a lone surrogate at character {error.start}; decode its bytes with the right encoding"
    if not isinstance(error, _Unawaited):
        words = f"{kind} cannot be stored as JSON: {words}"
    return NotJSON(words, is_final=isinstance(error, _NoForm))


def _encoded(data: object) -> "tuple[bytes, _FormOf]":
    """The data as JSON, and the function that gave the JSON forms of the objects in it."""
    kind = type(data).__name__
    form_of: _FormOf = _hook
    try:
        try:
            encoded = _encoder.encode(data)
        except _HasObjects:  # most data has no such objects, so their forms need not be remembered
            form_of = _Forms().form_of
            encoded = msgspec.json.Encoder(enc_hook=form_of).encode(data)
    except RecursionError:
        raise NotJSON(f"{kind} is {_TOO_DEEP}") from None
    except _NoForm as error:
        raise _not_json(kind, error) from error
    except Exception as error:  # a model's own `model_dump` can raise anything
        raise _not_json(kind, error) from error
    if len(encoded) > DEPTH:
        _refuse_unreadable(encoded, kind)
    return encoded, form_of


class _HasObjects(Exception):
    """Not an error: the data contains objects without a JSON form of their own, so another encoder is used."""


def _refuse_objects(_: object) -> object:
    raise _HasObjects


class _Forms:
    """The JSON forms of the objects in one value. Each object is asked only once.

    A `model_dump` may be slow or return something else the next time: the check would not see what was stored.
    """

    def __init__(self) -> None:
        #: by id; the object is kept so that its id is not used again
        self._known: dict[int, tuple[object, object]] = {}

    def form_of(self, data: object) -> object:
        """The `enc_hook` of an encoder. Raises `_NoForm` for an object without a JSON form."""
        known = self._known.get(id(data))
        if known is None:
            known = self._known[id(data)] = (data, _hook(data))
        return known[1]


def _hook(data: object) -> object:
    for kind, plain_form in _PLAIN.items():  # a subclass is stored as its base class
        if isinstance(data, kind):
            return plain_form(data)
    dump = getattr(data, "model_dump", None)  # a Pydantic model, without importing Pydantic
    if dump is not None and not isinstance(data, type):
        return dump(mode="json")
    if inspect.isawaitable(data):
        raise _Unawaited(_unawaited(data))
    if data is None:  # anywhere else it has a form
        raise _NoForm("None is a key of a dict; JSON has only texts as keys")
    words = f"objects of type {type(data).__name__} have no JSON form"
    if inspect.isgenerator(data) or inspect.isasyncgen(data):
        words += "; collect what it yields in a list"
    raise _NoForm(words)


class _NoForm(TypeError):
    """An object of a type that is never stored."""


class _Unawaited(_NoForm):
    """A coroutine or another awaitable."""


def _unawaited(data: object) -> str:
    """The message for an awaitable in place of a result, such as `brief.ask(…)` without `await`."""
    name = getattr(data, "__qualname__", "") or f"a {type(data).__name__}"
    if isinstance(data, Coroutine):
        data.close()  # otherwise Python would warn about it again, in another place
        name = f"{name}()"
    return (
        f"{name} was not awaited, so there is no result to store; write `await` before the call, "
        "or brief.wait(…) around it if the worker is no async function"
    )


def _refuse_unreadable(
    encoded: bytes, kind: str, *, depth: int = DEPTH, parts: int = MOST_PARTS
) -> None:
    """Raise `NotJSON` for bytes that a reader may not be able to decode: too large or nested too deeply."""
    if len(encoded) > MOST_BYTES:
        raise NotJSON(
            f"{kind} has {len(encoded):,} bytes as JSON, and {MOST_BYTES:,} are the most; "
            "keep it in a file and pass its name on"
        )
    if encoded.count(b"[") + encoded.count(b"{") <= depth:
        return
    # Without escaped quotes, the quotes alone delimit the strings of JSON, and empty strings can be dropped.
    # Without these three steps, removing the strings would take ten times as long.
    marks = encoded.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_MARKS)
    brackets = _STRING.sub(b"", marks.replace(b'""', b""))
    if len(brackets) > 2 * parts:
        raise NotJSON(
            f"{kind} has {len(brackets) // 2:,} lists and objects as JSON, and {parts:,} are the most; "
            "keep it in a file and pass its name on"
        )
    for _ in range(depth):  # each round removes the innermost level
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise NotJSON(f"{kind} is {_TOO_DEEP}; {depth} levels are the most")


def _refuse_unfaithful(data: object, form_of: "_FormOf", *, is_large: bool) -> None:
    """Raise `NotJSON` for data that cannot be read back as it was: raw bytes, and keys that become equal.

    Each visit stands for at least two written bytes. In large values, parts that occur in several places are
    visited only once: written out, there can be millions of them.
    """
    waiting = [data]
    #: visited parts, by id; kept so that no id is used again
    seen: dict[int, object] | None = {} if is_large else None
    while waiting:
        each = waiting.pop()
        if seen is not None:
            if id(each) in seen:
                continue
            seen[id(each)] = each
        if type(each) is not dict and type(each) is not list:
            each = _concrete(each)
        if type(each) is dict:
            kinds = set(map(type, each))
            if not kinds <= {str} and _count_of_keys(each, form_of) != len(each):
                raise NotJSON(
                    "two keys of a dict become one as JSON, which has only texts as keys; "
                    f"make them texts that differ: {shown(list(each)[:5])}"
                )
            if bool in kinds:
                raise NotJSON(
                    "True or False is a key of a dict; JSON has only texts as keys, so write 'true' or 'false'"
                )
            if bytes in kinds:
                raise NotJSON(_BYTES, is_final=True)
            waiting += _compound(each.values())
        elif type(each) is list:
            waiting += _compound(each)
        elif issubclass(type(each), _BINARY):
            raise NotJSON(_BYTES, is_final=True)
        elif (names := _field_names(each)) is not None:
            waiting += _compound([_field_of(each, name) for name in names])
        elif type(each) not in _SCALARS:
            try:
                made = msgspec.to_builtins(each, enc_hook=form_of, builtin_types=_BINARY)
            except TypeError as error:  # the encoder accepted it, so it is `msgspec.Raw`
                raise NotJSON(f"{error}; decode it first") from None
            waiting += _compound([made])


def _field_names(data: object) -> Iterable[str] | None:
    """The fields that msgspec stores of a dataclass, an attrs object or a struct; None for anything else."""
    kind = type(data)
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    attrs = getattr(kind, "__attrs_attrs__", None)
    return None if attrs is None else [a.name for a in attrs if not a.name.startswith("_")]


def _field_of(data: object, name: str) -> object:
    """The field of an object. msgspec leaves out one that cannot be read, so that is refused here."""
    try:
        found: object = getattr(data, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _not_json(f"the field {name!r} of {type(data).__name__}", error) from error
    return None if found is msgspec.UNSET else found


def _concrete(part: Any) -> object:
    """A part as a plain dict or list, read as msgspec does: methods of a subclass are not called, so
    its `__iter__` can neither hide a part nor run for ever."""
    for kind in (dict, list, tuple, set, frozenset):
        if issubclass(type(part), kind):
            return {**dict.copy(part)} if kind is dict else [*kind.__iter__(part)]
    return part


def _compound(parts: Collection[object]) -> Collection[object]:
    """The parts that have parts themselves, or are of unusual types; mostly there are none."""
    if set(map(type, parts)) <= _SCALARS:
        return ()
    return [part for part in parts if type(part) not in _SCALARS]


def _count_of_keys(data: dict[Any, Any], form_of: "_FormOf") -> int:
    """How many different keys the dict has as JSON."""
    encoded = msgspec.json.Encoder(enc_hook=form_of).encode(dict.fromkeys(data))
    return len(msgspec.json.decode(encoded))


def _refuse_lost_floats(data: object, form_of: "_FormOf") -> None:
    if isinstance(data, float) and not math.isfinite(data):
        raise NotJSON(f"{data} has no JSON form; use None or a string instead")
    try:
        json.dumps(msgspec.to_builtins(data, str_keys=True, enc_hook=form_of), allow_nan=False)
    except ValueError:
        raise NotJSON(
            "the value holds NaN or infinity, which JSON has no form for; "
            "use None or a string in its place"
        ) from None


_BYTES = "bytes cannot be stored as JSON; decode them, or keep them in a file"
_BINARY = (bytes, bytearray, memoryview)
_SCALARS = {str, int, float, bool, type(None)}
_PLAIN: dict[type, Callable[[Any], object]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
}
_TOO_DEEP = "nested too deeply or holds itself"
_STRING = re.compile(rb'"[^"]*"')
_NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_FormOf: TypeAlias = Callable[[object], object]
_encoder = msgspec.json.Encoder(enc_hook=_refuse_objects)
_canonical = msgspec.json.Encoder(enc_hook=_hook, order="sorted")
_NOTHING = Value()


def part_of(value: Value, path: str, task: str) -> Value:
    """The part of a task's output at this path (keys joined by dots); all of it if the path is empty."""
    if not path:
        return value
    data = value.read()
    for key in path.split("."):
        if not isinstance(data, dict) or key not in data:
            raise WorkerError(f"the output of {task!r} has no {path!r}")
        data = data[key]
    return Value.of(data, value.taint)
