"""Checks of arguments: durations, counts, amounts, names, texts, keywords.

Each argument is checked and converted once, where it is passed in. A `UsageError` names the argument.
Values from a journal may have been checked against other bounds, so they are never refused: see `reading`.
"""

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from enum import Enum
from operator import index
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
)

from msgspec import StructMeta

from chargehand.errors import UnknownKeyword, UsageError

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=Enum)
Given = TypeVar("Given")
Kept = TypeVar("Kept")

#: a duration as callers pass it: a `timedelta`, or a number of seconds
Duration: TypeAlias = timedelta | float

if TYPE_CHECKING:

    class Converted(Generic[Given, Kept]):
        """A field that callers give in one type and read in another; `__post_init__` converts it."""

        def __get__(self, instance: object, owner: Any = None) -> Kept: ...
        def __set__(self, instance: object, value: Given) -> None: ...

else:

    class Converted:
        def __class_getitem__(cls, types):
            given, kept = types
            return kept if given is Any else given | kept  # stored durations may be numbers too


Span: TypeAlias = Converted[Duration, timedelta]
SpanOrNone: TypeAlias = Converted[Duration | None, timedelta | None]


def usually(value: Any) -> Any:
    """The default of a `Converted` field; type checkers would otherwise expect an instance of `Converted`."""
    return value


#: any callable, as a kind for `arguments_checked`
FUNCTION = cast("type", Callable)

#: a hundred years: the current time plus a duration must be a valid `datetime`
LONGEST = timedelta(days=36_525)
#: the largest count that every JSON reader reads exactly
LARGEST = 2**53
#: highest priority; minus this is the lowest. Waiting raises a run's priority, and it must catch up at some time
MOST_PRIORITY = 1_000_000
LONGEST_NAME = 200
#: characters of a request; longer material belongs in files
LONGEST_REQUEST = 200_000
LONGEST_TEXT = 1_000_000

_NOTHING = timedelta(0)
_BRIEFEST = timedelta.resolution
_is_read: ContextVar[bool] = ContextVar("is_read", default=False)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@contextmanager
def reading() -> Iterator[None]:
    """Use this while decoding stored values: a number outside the current bounds becomes the bound."""
    before = _is_read.set(True)
    try:
        yield
    finally:
        _is_read.reset(before)


def _refuse(words: str, bound: T) -> T:
    if _is_read.get():
        return bound
    raise UsageError(words)


def duration(value: object, what: str, *, may_be_zero: bool = False) -> timedelta:
    """The argument as a `timedelta`; a number means seconds."""
    if isinstance(value, timedelta):
        length = value
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(
            f"{what}={shown(value)} is not a duration; give seconds as a number, or a timedelta"
        )
    elif not abs(value) <= LONGEST.total_seconds():  # NaN is not, either
        words = f"{what}={shown(value)} s is not a length of time that ends; {_AT_MOST}"
        length = _refuse(words, LONGEST if value > 0 else _NOTHING)
    else:
        length = timedelta(seconds=value)
    if length > LONGEST:
        return _refuse(f"{what}={length} is too long; {_AT_MOST}", LONGEST)
    if length < _NOTHING and may_be_zero:
        return _refuse(f"{what}={length} must not be negative", _NOTHING)
    if length <= _NOTHING and not may_be_zero:
        return _refuse(f"{what}={length} must be longer than nothing", _BRIEFEST)
    return length


def duration_or_none(value: object, what: str, *, may_be_zero: bool = False) -> timedelta | None:
    """Like `duration`; None stays None."""
    return None if value is None else duration(value, what, may_be_zero=may_be_zero)


def count(value: object, what: str, *, least: int = 0, most: int = LARGEST) -> int:
    """A whole number within its bounds."""
    try:
        number = None if isinstance(value, bool) else index(cast("SupportsIndex", value))
    except Exception:  # noqa: BLE001 - an object's `__index__` can raise anything
        number = None
    if number is None:
        raise UsageError(f"{what}={shown(value)} must be a whole number")
    return int(_within(int.__int__(number), what, least, most))


def priority(value: object, what: str) -> int:
    """A priority: a whole number; larger is more urgent."""
    return count(value, what, least=-MOST_PRIORITY, most=MOST_PRIORITY)


def amount(value: object, what: str, *, least: float = 0, most: float = LARGEST) -> float:
    """A finite number within its bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{what}={shown(value)} must be a number")
    number = int.__int__(value) if isinstance(value, int) else float.__float__(value)
    return _within(number, what, least, most)


def _within(value: float, what: str, least: float, most: float) -> float:
    if not value <= most:  # NaN is not, either
        return _refuse(f"{what}={shown(value)} must be a number up to {most:,}", most)
    if value < least:
        words = f"must be at least {least}" if least else "must not be negative"
        return _refuse(f"{what}={shown(value)} {words}", least)
    return value


def text(value: object, what: str, *, most: int = LONGEST_TEXT) -> str:
    """A text that can be stored: a `str` of at most `most` characters that UTF-8 can encode."""
    if not isinstance(value, str):
        raise UsageError(f"{what}={shown(value)} must be a text (str)")
    if type(value) is not str:
        value = str.__str__(value)  # a plain `str`: methods of a subclass are not called
    if len(value) > most:
        raise UsageError(f"{what} has {len(value):,} characters, and {most:,} are the most")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{what} holds a lone surrogate at character {error.start}, which is no Unicode "
                "text; decode its bytes with the right encoding"
            ) from None
    return value


def name(value: object, what: str, *, most: int = LONGEST_NAME) -> str:
    """A name: a short text without control characters."""
    given = text(value, what, most=most)
    if not given.strip():
        raise UsageError(f"{what} is empty; give a name")
    if _CONTROL.search(given):
        raise UsageError(f"{what}={given!r} has control characters; names have none")
    return given


def refuse_unknown(given: Iterable[object], known: Iterable[str], what: str) -> None:
    """Raise `UnknownKeyword` for the first of the given names that is not known."""
    there = list(known)
    for each in given:
        if each not in there:
            close = difflib.get_close_matches(str(each), there, n=1, cutoff=0.6)
            raise UnknownKeyword(what, str(each), there, close[0] if close else "")


def texts(value: object, what: str) -> tuple[str, ...]:
    """Several texts. A single `str` is refused: it would be read as a list of its characters."""
    if isinstance(value, str):
        raise UsageError(f"{what}={shown(value)} is one text; give a list: {what}=[{shown(value)}]")
    if not isinstance(value, Iterable):
        raise UsageError(f"{what}={shown(value)} must be a list of texts")
    return tuple(text(each, f"{what}[{place}]") for place, each in enumerate(value))


def names(value: object, what: str) -> tuple[str, ...]:
    """Several names, as a list or a set of texts."""
    if isinstance(value, str) or not isinstance(value, (Sequence, Set)):
        raise UsageError(f"{what}={shown(value)} must be a list of names")
    return tuple(name(each, f"{what}[{place}]") for place, each in enumerate(value))


def hosts(value: object, what: str) -> tuple[str, ...]:
    """Several hosts that data may be sent to: names without scheme, port or path, or `*` for all hosts."""
    return tuple(host(each, what) for each in names(value, what))


def host(value: str, what: str) -> str:
    """A host that data may be sent to. A URL is refused, because it would never equal a host."""
    bare = value.rpartition("://")[2].partition("/")[0]
    if bare.startswith("["):  # an IPv6 address, which contains colons
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1 and bare.rpartition(":")[2].isdecimal():
        bare = bare.partition(":")[0]
    bare = bare.removeprefix("*.").strip(".")
    if bare == value.rstrip("."):
        return bare
    raise UsageError(
        f"{what}: {value!r} is more than a host; write {bare or 'example.org'!r}, which includes its subdomains"
    )


def one_of(value: object, kind: type[E], what: str) -> E:
    """A member of an enum, given as the member or as its value."""
    try:
        return kind(value)
    except Exception:  # noqa: BLE001 - an object's comparison can raise anything
        choices = ", ".join(map(repr, map(str, kind)))
        raise UsageError(f"{what}={shown(value)} is none of {choices}") from None


def instance(value: object, what: str, kind: type | str) -> None:
    """Raise `UsageError` unless the value has this class. `kind` can be a class name, to avoid an import."""
    if isinstance(kind, str):
        wanted, fits = kind, any(each.__name__ == kind for each in type(value).__mro__)
    else:
        wanted = kind.__name__
        fits = isinstance(value, kind) and not (kind is Sequence and isinstance(value, str))
    if not fits:
        give = _PLAIN.get(wanted, f"{wanted}(…)")
        raise UsageError(f"{what}={shown(value)} is a {type(value).__name__}; give {give}")


def why_uncallable(function: Callable[..., object], *given: object) -> str | None:
    """Why a function cannot be called with these arguments alone; None if it can, or if it does not tell."""
    try:
        # As it is called, not as what it wraps: a decorator may supply further arguments.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None  # written in C; it tells nothing of its arguments
    try:
        signature.bind(*given)
    except TypeError as error:
        return str(error)
    return None


def arguments_checked(**kinds: type | str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function refuse unknown keywords, with a suggestion, and keyword arguments of the wrong kind.

    None is always accepted: it means the default.
    """

    def decorated(function: Callable[P, T]) -> Callable[P, T]:
        owner = function.__qualname__.removesuffix(".__init__")
        known = list(_keywords(function))

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            refuse_unknown(kwargs, known, owner)
            for each in kinds.keys() & kwargs.keys():
                if kwargs[each] is not None:
                    instance(kwargs[each], f"{owner}: {each}", kinds[each])
            return function(*args, **kwargs)

        return checked

    return decorated


def keywords_checked(function: Callable[P, T]) -> Callable[P, T]:
    """Make this function refuse unknown keywords, with a suggestion."""
    return arguments_checked()(function)


def _keywords(function: Callable[..., object]) -> Iterable[str]:
    """The arguments of a function; for `**terms: Unpack[Terms]`, the keys of `Terms`."""
    for each, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            for unpacked in get_args(parameter.annotation):
                yield from unpacked.__annotations__
        elif each != "self":
            yield each


class CheckedKeywords(StructMeta):
    """Metaclass of structs that users create: they refuse unknown keywords, with a suggestion."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - of a metaclass
        try:
            return super().__call__(*args, **kwargs)
        except TypeError:
            refuse_unknown(kwargs, cls.__struct_fields__, cls.__name__)
            raise


def shown(value: object) -> str:
    """A short `repr` of the value; safe even if its `__repr__` raises."""
    try:
        words = repr(value)
    except Exception:  # noqa: BLE001 - a broken `__repr__` must not hide the error message
        words = ""
    return words if 0 < len(words) <= 80 else f"<{type(value).__name__}>"


_PLAIN = {
    "Mapping": "a dict",
    "Sequence": "a list",
    "Callable": "a function",
    "str": "a text (str)",
    "bool": "True or False",
    "Clock": "a clock",
}
_AT_MOST = f"{LONGEST.days // 365} years are the most"


def check_request(request: object) -> str:
    """The request as text. Raises `UsageError` if it is no text, empty or too long."""
    if not isinstance(request, str):
        raise UsageError(f"a {type(request).__name__} is not a request; give a text or a Plan")
    if not text(request, "the request", most=sys.maxsize).strip():
        raise UsageError("the request is empty; say what is to be done")
    if len(request) > LONGEST_REQUEST:
        raise UsageError(
            f"the request has {len(request):,} characters, and {LONGEST_REQUEST:,} are the most; "
            "put the material into files that a worker can read, and ask about those"
        )
    return request
