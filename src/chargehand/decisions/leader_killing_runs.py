"""Finds the run that crashed the processes that led it, and not the runs that they led at the same time."""

from collections.abc import Iterable, Sequence

from chargehand.facts.events import AttemptFinished, Event, RunLed, RunReleased, StepFinished

_PROGRESS = (StepFinished, AttemptFinished)

#: an event, and the process that wrote it
Written = tuple[str, Event]


def progress_in(history: Iterable[Written]) -> set[str]:
    """The processes in which a run, or a run nested in it, made progress."""
    return {node for node, event in history if isinstance(event, _PROGRESS)}


def silent_leaders(history: Sequence[Written], progress: set[str]) -> list[str]:
    """The most recent processes in a row that led this run without progress and never released it, oldest first."""
    silent: list[str] = []
    for node, event in reversed(history):
        if node in progress or isinstance(event, RunReleased):
            break
        if isinstance(event, RunLed):
            silent.append(node)
    return silent[::-1]


def is_led_silently(history: Sequence[Written], nodes: Iterable[str]) -> bool:
    """Whether each of these processes led this run without any progress."""
    leaders = {node for node, event in history if isinstance(event, RunLed)}
    return set(nodes) <= leaders - progress_in(history)
