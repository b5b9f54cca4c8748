"""Loads crews, tools and functions from Python: `path.py:name` or `module:name`."""

import contextlib
import difflib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module, invalidate_caches
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from chargehand.crews.crew import Crew
from chargehand.errors import ChargehandError, UsageError
from chargehand.supervisor import Supervisor
from chargehand.usable_path import checked_path

#: parameters that a function which makes a crew may have
OFFERED = frozenset({"model", "files", "journal", "parallel"})
#: most names that an error lists
MOST_NAMES = 12
CREW = "a Supervisor, a list of workers, or a function that returns one"


def python_crew(
    reference: str, offered: Mapping[str, object]
) -> tuple[Crew | Supervisor, frozenset[str]]:
    """Load the crew at `path.py:name`: a `Supervisor`, a `Crew`, a list of workers, or a function that returns one.

    A function is called with those `offered` arguments that are among its parameters; their names are also returned.
    """
    can_be_crew = partial(_can_be_crew, offered.keys())
    found, taken = (
        load(reference, Path.cwd(), can_be_crew, f"nothing that can be one: {CREW}"),
        frozenset[str](),
    )
    if inspect.isfunction(found):
        taken = frozenset(offered.keys() & inspect.signature(found).parameters.keys())
        found = _called(found, reference, offered)
    if isinstance(found, (Crew, Supervisor)):
        return found, taken
    if isinstance(found, Sequence) and not isinstance(found, str):
        return Crew(workers=tuple(found), origin=reference), taken
    raise UsageError(f"{reference} is a {type(found).__name__}; a crew is {CREW}")


def without_name(file: str) -> UsageError:
    """The error for a Python file whose crew is not named; it lists the crews that the file has."""
    names = _names_in(_module(file, Path.cwd()), "", partial(_can_be_crew, OFFERED))
    has = f"it has {names}" if names else f"it has nothing that can be one: {CREW}"
    return UsageError(f"name the crew in {file}, as {file}:NAME; {has}")


def _can_be_crew(offered: Collection[str], thing: object) -> bool:
    """Whether this may be a crew. Functions are not called."""
    if inspect.isfunction(thing):
        return not _lacking(thing, offered)
    if isinstance(thing, (list, tuple)):
        return bool(thing) and all(hasattr(each, "work") or type(each) is Crew for each in thing)
    return isinstance(thing, (Crew, Supervisor))


def load(
    reference: str,
    folder: Path,
    fits: Callable[[object], bool] = lambda _: True,
    none: str = "nothing that fits here",
) -> Any:
    """Load the object at `path.py:name` or `module:name`; paths are relative to `folder`.

    If the name does not exist, the error lists the names of objects that `fits` accepts, the nearest first, or says
    `none`.
    """
    where, colon, name = reference.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(
            f"{reference!r} is not a reference to Python; write path.py:name or module:name"
        )
    module = _module(where, folder)
    found: Any = module
    for part in name.split("."):
        with _told(f"{reference} cannot be read"):
            is_there = hasattr(found, part)
        if not is_there:
            raise UsageError(
                f"{where} has no {name!r}; it has {_names_in(module, name, fits) or none}"
            )
        found = getattr(found, part)
    return found


def _called(function: Any, reference: str, offered: Mapping[str, object]) -> Any:
    wanted = inspect.signature(function).parameters
    given = {name: value for name, value in offered.items() if name in wanted}
    if lacking := _lacking(function, given):
        raise UsageError(
            f"{reference} wants {', '.join(lacking)}; a function that makes a crew may ask for "
            f"{', '.join(offered)}, and everything else needs a default"
        )
    with _told(f"{reference} failed"):
        return function(**given)


def _lacking(function: Any, given: Collection[str]) -> list[str]:
    """The missing parameters: those without a default that are not in `given`."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in given
    ]


def _module(where: str, folder: Path) -> ModuleType:
    if not where.endswith(".py"):
        with _told(f"{where} cannot be loaded"):
            return import_module(where)
    path = checked_path(folder / checked_path(where, home=True)).resolve()
    if not path.is_file():
        raise UsageError(f"there is no file {where!r} (looked in {folder})")
    with _told(f"{where} cannot be loaded"):
        return _of_file(path)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn exceptions of user code into `UsageError`, including `SystemExit`, which would end this process silently."""
    try:
        yield
    except ChargehandError:
        raise
    except SystemExit as error:
        raise UsageError(
            f"{what}: it ends the program (SystemExit: {error.code}){_place(error)}; "
            'put what is only for running it under if __name__ == "__main__":'
        ) from error
    except Exception as error:
        raise UsageError(f"{what}: {type(error).__name__}: {error}{_place(error)}") from error


def _of_file(path: Path) -> ModuleType:
    """Import a file as a module under its own name, so that child processes also find its functions."""
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    known = sys.modules.get(path.stem)
    if known is None and path.stem.isidentifier() and path.stem not in sys.stdlib_module_names:
        invalidate_caches()  # the file may be new
        known = import_module(path.stem)
    if known is not None and Path(known.__file__ or "").resolve() == path:
        return known
    return _alone(path)


def _alone(path: Path) -> ModuleType:
    """Import a file as a module under a unique name, for a file whose own name is taken."""
    name = f"chargehand_crew:{path}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - for the type checker: a path that ends in .py has a spec
    assert spec.loader is not None  # noqa: S101 - likewise
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _place(error: BaseException) -> str:
    """The position of an error in user code: the last line outside this file and the import machinery."""
    frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
    theirs = [
        f
        for f in frames
        if not f.filename.startswith("<") and f.filename not in (__file__, contextlib.__file__)
    ]
    theirs = [f for f in theirs if "importlib" not in f.filename]
    return f" ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})" if theirs else ""


def _names_in(module: ModuleType, wanted: str, fits: Callable[[object], bool]) -> str:
    """The names of fitting objects in a module, the nearest to the wanted name first; empty if nothing fits."""
    own = {name: thing for name, thing in vars(module).items() if _is_own(name, thing, module)}
    names = [name for name, thing in own.items() if fits(thing)]
    if not own:
        return "nothing of its own"
    names.sort(key=lambda name: -difflib.SequenceMatcher(None, wanted, name).ratio())
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _is_own(name: str, thing: object, module: ModuleType) -> bool:
    """Whether the module defines it. An imported instance of a foreign class cannot be recognized as imported."""
    homes = (module.__name__, type(thing).__module__)
    is_foreign = inspect.ismodule(thing) or type(thing).__module__ == "typing"
    is_foreign = is_foreign or getattr(thing, "__module__", module.__name__) not in homes
    return not name.startswith("_") and not is_foreign
