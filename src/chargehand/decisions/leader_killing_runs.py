"""Which run ended the processes that led it: told from those that were only led beside it."""

from collections.abc import Iterable, Sequence

from chargehand.facts.events import AttemptFinished, Event, RunLed, RunReleased, StepFinished

_PROGRESS = (StepFinished, AttemptFinished)

Written = tuple[str, Event]
"""An event, and the process that wrote it."""


def progress_in(history: Iterable[Written]) -> set[str]:
    """The processes under which a run, or one nested in it, came further."""
    return {node for node, event in history if isinstance(event, _PROGRESS)}


def silent_leaders(history: Sequence[Written], progress: set[str]) -> list[str]:
    """The last processes in a row that led this run and ended without progress or a word, oldest first."""
    silent: list[str] = []
    for node, event in reversed(history):
        if node in progress or isinstance(event, RunReleased):
            break
        if isinstance(event, RunLed):
            silent.append(node)
    return silent[::-1]


def is_led_silently(history: Sequence[Written], nodes: Iterable[str]) -> bool:
    """Whether each of these processes led this run and brought it no further."""
    leaders = {node for node, event in history if isinstance(event, RunLed)}
    return set(nodes) <= leaders - progress_in(history)
