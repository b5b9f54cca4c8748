"""All faults of a file that people write, each with its place in words: crews, suites, plans, replies.

A file is decoded at once, which ends at its first fault. Only then is it walked here, key by key.
"""

import difflib
import json
import re
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from chargehand.errors import UsageError

#: keys and numbers that lead from the whole file to one value
Location: TypeAlias = tuple[int | str, ...]
#: what msgspec says of a text that is no length of time
_NO_DURATION = "Invalid ISO8601 duration"
_EXPECTED = re.compile(r"^Expected (.*), got (.*)$", re.DOTALL)
#: faults that are told
MOST = 50
#: characters of a value that is shown
_SHOWN = 80


def faults_in(origin: str, lines: Sequence[str]) -> UsageError:
    """One error that lists all faults of a file."""
    told = list(dict.fromkeys(lines))
    count = "1 fault" if len(told) == 1 else f"{len(told)} faults"
    lines = [line.replace("\n", "\n  ") for line in told]  # one may list faults of another file
    return UsageError(f"{origin} has {count}:" + "".join(f"\n  - {line}" for line in lines))


def unknown_key(key: object, known: Sequence[str]) -> str:
    """What to say of a key that does not exist, with the one that was probably meant."""
    close = difflib.get_close_matches(str(key), known, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"is not a known key; {meant}the keys are {', '.join(known)}"


def place_in_tables(location: Location, document: Any) -> str:
    """A position in a TOML file, such as `[[worker]] 2 ('analyst'), tools`."""
    match location:
        case [str(table), int(number), *rest]:
            head = f"[[{table}]] {number + 1}{_name_of(document[table][number])}"
        case [str(key)] if not isinstance(document.get(key), dict | list):
            head, rest = key, []
        case [str(table), *rest]:
            head = f"[{table}]"
        case _:
            head, rest = "the file", list(location)
    return _joined(head, rest)


def place_in_plan(location: Location, document: Any) -> str:
    """A position in a plan, such as `task 2 ('count'), needs item 1`."""
    match location:
        case ["tasks", int(number), *rest]:
            return _joined(f"task {number + 1}{_name_of(document['tasks'][number])}", rest)
        case _:
            return _joined("the plan", location)


def form_faults(
    document: Any, form: Any, place: Callable[[Location, Any], str] = place_in_tables
) -> list[str]:
    """Where a document does not fit the type of its form, and why not; of very many, the first."""
    found = [
        f"{place(at, document)}: {why}" for at, why in islice(_walk(document, form, ()), MOST + 1)
    ]
    return [*found[:MOST], "and more"] if len(found) > MOST else found


def repeated_keys(text: str | bytes, place: Callable[[Location, Any], str]) -> list[str]:
    """The keys that an object of this JSON has more than once: a decoder keeps the last of each, without a word.

    Takes about three times as long as decoding a plan.
    """
    #: by id of the object
    repeated: dict[int, list[str]] = {}
    #: so that no id is used again: an object below a repeated key is dropped
    kept: list[dict[str, Any]] = []

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated[id(table)] = [key for key, times in counts.items() if times > 1]
            kept.append(table)
        return table

    try:
        document = json.loads(text, object_pairs_hook=noted)
    except (ValueError, RecursionError):  # it is no JSON, which the decoder of its form tells
        return []
    if not repeated:
        return []
    found = [
        f"{place((*at, key), document)}: is given twice; a key may be there only once"
        for at, each in _objects(document, ())
        for key in repeated.get(id(each), ())
    ]
    return [*found[:MOST], "and more"] if len(found) > MOST else found


def _objects(value: Any, at: Location) -> Iterator[tuple[Location, Any]]:
    """All objects in a JSON value, with their locations."""
    if isinstance(value, dict):
        yield at, value
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for step, part in parts:
        if isinstance(part, (dict, list)):
            yield from _objects(part, (*at, step))


def _joined(head: str, rest: Sequence[int | str]) -> str:
    told = " ".join(f"item {part + 1}" if isinstance(part, int) else part for part in rest)
    return f"{head}, {told}" if told else head


def _name_of(table: object) -> str:
    name = table.get("name", table.get("id")) if isinstance(table, dict) else None
    return f" ({name!r})" if isinstance(name, str) else ""


def _walk(value: Any, form: Any, at: Location) -> Iterator[tuple[Location, str]]:
    form = _form_for(value, form)
    origin, of = get_origin(form), get_args(form)
    found: Iterator[tuple[Location, str]] = iter(())
    if isinstance(value, dict) and isinstance(form, type) and issubclass(form, msgspec.Struct):
        found = _walk_struct(value, form, at)
    elif isinstance(value, dict) and origin in (dict, Mapping) and of:
        found = _walk_dict(value, of, at)
    elif isinstance(value, list) and origin in (list, tuple, Sequence) and of:
        found = (each for n, part in enumerate(value) for each in _walk(part, of[0], (*at, n)))
    is_fine = True
    for fault in found:
        is_fine = False
        yield fault
    if is_fine and (why := _misfit(value, form)):
        yield at, why


def _walk_struct(
    value: dict[str, Any], form: type[msgspec.Struct], at: Location
) -> Iterator[tuple[Location, str]]:
    fields = {each.encode_name: each for each in msgspec.structs.fields(form)}
    unknown = [name for name in value if name not in fields]
    meant = {each for name in unknown for each in difflib.get_close_matches(name, fields, n=1)}
    for name, field in fields.items():
        if name in value:
            yield from _walk(value[name], field.type, (*at, name))
        elif field.required and name not in meant:
            yield (*at, name), "is missing"
    if form.__struct_config__.forbid_unknown_fields:
        for name in unknown:
            yield (*at, name), unknown_key(name, [*fields])


def _walk_dict(
    value: dict[str, Any], of: tuple[Any, ...], at: Location
) -> Iterator[tuple[Location, str]]:
    keys = get_args(of[0]) if get_origin(of[0]) is Literal else ()
    for name, each in value.items():
        if keys and name not in keys:
            yield (*at, name), unknown_key(name, keys)
        else:
            yield from _walk(each, of[1], (*at, name))


def _form_for(value: Any, form: Any) -> Any:
    """Of a union, the one that this value was meant as, so that its faults are those of one form."""
    while get_origin(form) is Annotated:
        form = get_args(form)[0]
    if get_origin(form) not in (Union, types.UnionType):
        return form
    for each in get_args(form):
        kind = get_origin(each) or each
        is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if isinstance(value, dict) and (is_struct or kind is dict):
            return each
        if isinstance(value, list) and kind in (list, tuple, Sequence):
            return each
        if isinstance(value, str) and _has_options(each) and str not in get_args(form):
            return each
    return form


def _misfit(value: Any, form: Any) -> str:
    """Why this value is none of this type; empty if it is, or if nobody can say."""
    options = [each.value for each in form] if _is_enum(form) else get_args(form)
    if _has_options(form) and value not in options:
        close = difflib.get_close_matches(str(value), [str(each) for each in options], n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        choices = ", ".join(map(str, options))
        return f"must be one of {choices}, not {_cut(value)}; {meant}".rstrip("; ")
    try:
        msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        words = str(error).partition(" - at `")[0]
        if words == _NO_DURATION:
            return f'must be seconds, or a duration such as "PT90S", not {_cut(value)}'
        wrong = _EXPECTED.match(words)
        if wrong is None:
            return words
        return f"must be {wrong[1].replace('`', '')}, not {_cut(value)}"
    except (TypeError, ValueError, RecursionError):  # a type that only its own decoder knows
        return ""
    return ""


def _has_options(form: Any) -> bool:
    return _is_enum(form) or get_origin(form) is Literal


def _is_enum(form: Any) -> bool:
    return isinstance(form, type) and issubclass(form, Enum)


def _cut(value: object) -> str:
    words = repr(value)
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
