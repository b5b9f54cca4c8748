"""Runs a Python program that kills itself and its child processes at a given step or journal write.

python -m chargehand.testing.kill_point step 3 crew.py
"""

import functools
import os
import runpy
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from chargehand.facts.events import AttemptFinished, Event, StepFinished
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.postgres import PostgresJournal
from chargehand.journal.sqlite import SqliteJournal

Append = Callable[..., Awaitable[Any]]


class KillPoint:
    """Counts the steps or writes of this process in its journals, and kills it at the given number."""

    def __init__(self, kind: str, number: int) -> None:
        self._is_steps = kind == "step"
        self._left = number

    def watch(self, journal: type[Any]) -> None:
        """Count the events that are appended to journals of this class."""
        append: Append = journal.append

        @functools.wraps(append)
        async def counted(own: object, stream: str, events: Sequence[Event], **more: Any) -> Any:
            position = await append(own, stream, events, **more)
            done = sum(isinstance(event, (StepFinished, AttemptFinished)) for event in events)
            self._left -= done if self._is_steps else bool(events)
            if self._left <= 0:
                os.killpg(0, signal.SIGKILL)
            return position

        journal.append = counted


def main() -> None:
    kind, number, *words = sys.argv[1:]
    point = KillPoint(kind, int(number))
    for journal in (SqliteJournal, PostgresJournal, MemoryJournal):
        point.watch(journal)
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, "")
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))  # noqa: PTH100, PTH120 - as Python itself does it
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
