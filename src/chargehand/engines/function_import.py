"""How a function is named so that another process finds it, and how that process finds it."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from chargehand.engines.local_engine import being_loaded
from chargehand.errors import UsageError

#: what the parent's script is called in a child: not `__main__`, so that its running part is not run
SCRIPT = "__child_main__"


def importable(function: Callable[..., Any]) -> str:
    """The name by which a child process can import this function: `module:function`.

    One defined in the script that is being run is named by the script's path. Raises `UsageError`
    for what no other process could find: lambdas, functions inside functions, methods of objects.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    why = _why_not(function, module, name)
    if why:
        raise UsageError(
            f"{name or repr(function)} cannot run in a child process: {why}; "
            "define it with `def` at the top of a module, or leave out process=True"
        )
    where = _main_module(name) if module == "__main__" else module
    return f"{where}:{name}"


def load(target: str) -> Callable[..., Any]:
    """The function of this name. Raises whatever importing its module raises."""
    where, _, name = target.rpartition(":")
    being_loaded.append(target)
    try:
        importlib.invalidate_caches()  # the file may have been written since the last try
        is_file = where.endswith(".py") or os.sep in where
        found: Any = _script(where) if is_file else importlib.import_module(where)
    finally:
        being_loaded.pop()
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name} in {where} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]  # a module's attributes can be anything


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it only makes a coroutine; also of an object around an async function."""
    if inspect.isroutine(function):
        return inspect.iscoroutinefunction(function)
    inner = getattr(function, "__wrapped__", None)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 - asked what it is, not whether
    )


def _why_not(function: Callable[..., Any], module: str | None, name: str) -> str:
    if not module or not name:
        return "it is an object, not a function with a name"
    if "<lambda>" in name:
        return "it is a lambda"
    if "<locals>" in name:
        return "it is defined inside another function"
    if inspect.ismethod(function) and not isinstance(function.__self__, type):
        return "it is a method of one object, which a child does not have"
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    # Missing is fine: a decorator asks before the name is bound. A worker made of it is fine too.
    if inspect.isfunction(found) and found is not function:
        return f"{name} in {module} is another function, so that one would run instead"
    return ""


def _main_module(name: str) -> str:
    """How a child imports what is `__main__` here."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return str(spec.name)  # run as `python -m package.module`
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        raise UsageError(
            f"{name} cannot run in a child process: it was typed in, not read from a file; "
            "put it into a module and import it from there"
        )
    return str(Path(file).resolve())


def _script(path: str) -> ModuleType:
    """The script at this path as a module, with everything but its running part."""
    known = sys.modules.get(SCRIPT)
    if known is not None:
        return known
    loader = SourceFileLoader(SCRIPT, path)  # named, because scripts need not end in .py
    spec = spec_from_loader(SCRIPT, loader)
    assert spec is not None  # noqa: S101 - for the type checker: there is a loader
    module = module_from_spec(spec)
    sys.modules[SCRIPT] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[SCRIPT]
        raise
    return module
