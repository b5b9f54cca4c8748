"""Loaded by Python itself where this folder is on its path: watches for silent waits, and writes down each."""

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


class Hook(importlib.abc.MetaPathFinder):
    """Has the watcher look into our modules once they are loaded, and not before."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in MODULES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                loaded(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign] # this one spec's
        return spec


def write(is_said: bool, what: str) -> None:
    with Path(os.environ["WAITS"]).open("a", encoding="utf-8") as file:
        file.write(f"{'said' if is_said else 'silent'} {what}\n")


if "WAITS" in os.environ:
    from silent_waits import MODULES, install  # type: ignore[import-not-found] # its neighbour

    loaded = install(write)
    sys.meta_path.insert(0, Hook())
