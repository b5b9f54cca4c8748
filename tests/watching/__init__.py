"""Programs are watched for silent waits while they run, in a process of their own or in this one."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from tests.watching.silent_waits import MODULES, install

RECORD = ".waits"


def watched(folder: Path) -> dict[str, str]:
    """The environment of a program whose waits are written down in this folder."""
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    record = str(folder / RECORD)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "WAITS": record}


def silent_waits(folder: Path, how: str = "silent ") -> list[str]:
    """What a program that was watched has waited for in silence; or, with "said ", aloud."""
    record = folder / RECORD
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return [line for line in lines if line.startswith(how)]


@contextmanager
def watching(tell: Callable[[bool, str], None]) -> Iterator[None]:
    """Watch what is run in this process; `tell` hears of each wait, and whether it was said."""
    handlers = [*logging.getLogger("chargehand").handlers]
    with pytest.MonkeyPatch.context() as patch:
        loaded = install(tell, patch.setattr)
        for name in MODULES:
            loaded(import_module(name))
        try:
            yield
        finally:
            logging.getLogger("chargehand").handlers = handlers
