"""Which run ended its leaders is decided from what each of them wrote."""

from datetime import UTC, datetime

from chargehand.decisions.leader_killing_runs import is_led_silently, progress_in, silent_leaders
from chargehand.facts.events import AttemptFinished, AttemptStarted, Event, RunLed, RunReleased
from chargehand.facts.outcome import Done
from chargehand.facts.value import Value

AT = datetime(2026, 1, 1, tzinfo=UTC)


def led(node: str) -> tuple[str, Event]:
    return node, RunLed(node=node, epoch=1, at=AT)


def started(node: str) -> tuple[str, Event]:
    return node, AttemptStarted(task="t", attempt=1, worker="w", why="", at=AT)


def finished(node: str) -> tuple[str, Event]:
    return node, AttemptFinished(task="t", attempt=1, outcome=Done(Value()), at=AT)


def released(node: str) -> tuple[str, Event]:
    return node, RunReleased(node=node, at=AT)


def test_leaders_are_silent_since_the_last_progress() -> None:
    history = [led("a"), finished("a"), led("b"), started("b"), led("c"), started("c")]
    assert silent_leaders(history, progress_in(history)) == ["b", "c"]
    assert silent_leaders([led("a"), released("a"), led("b")], set()) == ["b"]
    assert silent_leaders([], set()) == []


def test_progress_of_a_nested_run_is_progress() -> None:
    history = [led("a"), started("a"), led("b"), started("b")]
    assert silent_leaders(history, progress_in([*history, finished("a")])) == ["b"]
    assert silent_leaders(history, progress_in([*history, finished("b")])) == []


def test_a_run_is_suspect_of_the_deaths_that_it_was_led_through_without_progress() -> None:
    history = [led("a"), started("a"), led("b"), led("c"), finished("c")]
    assert is_led_silently(history, ["a", "b"])
    assert not is_led_silently(history, ["b", "c"])
    assert not is_led_silently(history, ["b", "z"])
