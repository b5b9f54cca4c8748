"""Runs of the fault simulator, replayed: the same decisions come out, and a planted bug is named."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from chargehand.decisions import schedule as schedule_module
from chargehand.decisions.deadlines import Deadlines
from chargehand.decisions.replay_check import Difference, RunReplay
from chargehand.decisions.schedule import Schedule
from chargehand.facts.events import KINDS, Event, RunFinished, TaskSkipped
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.scheduler_commands import Command, OfferAttempt, Record
from chargehand.recordings.content_removal import without_content
from tests.simulation import Mode
from tests.simulation.observer import Broken
from tests.simulation.world import World

TRIALS = 60


@pytest.fixture(scope="module")
def histories() -> list[tuple[str, list[Event]]]:
    """Runs under every kind of fault: kills, lost leases, retries, hedges, preemption, people."""
    found: list[tuple[str, list[Event]]] = []
    for seed in range(TRIALS):
        for mode in Mode:
            world = World(seed, mode)
            with suppress(Broken):
                world.play(250)
            found += world.histories().items()
    return found


def differences(
    histories: list[tuple[str, list[Event]]], replays: list[RunReplay] | None = None
) -> Iterator[Difference]:
    for run, events in histories:
        replay = RunReplay(run)
        found = next((d for d in map(replay.take, events) if d is not None), None) or replay.end()
        if replays is not None:
            replays.append(replay)
        if found is not None:
            yield found


def test_every_run_replays_without_a_difference(histories: list[tuple[str, list[Event]]]) -> None:
    replays: list[RunReplay] = []
    assert list(map(str, differences(histories, replays))) == []
    decided = sum((replay.decided for replay in replays), Counter[str]())
    assert {"RetryPlanned", "TaskFailed", "TaskSkipped", "RunFinished", "AttemptLost"} <= set(
        decided
    )
    given = sum((replay.given for replay in replays), Counter[str]())
    assert {"RetryDue", "HedgeDue", "AttemptPreempted", "CancelRequested", "RunLed"} <= set(given)
    assert len(set(given) | set(decided)) >= len(KINDS) - 5


def test_every_run_replays_without_its_texts_too(
    histories: list[tuple[str, list[Event]]],
) -> None:
    for run, events in histories:
        replay = RunReplay(run, recordable=without_content)
        bare = [without_content(event) for event in events]
        assert [str(d) for d in map(replay.take, bare) if d is not None] == []
        assert replay.end() is None
        assert [type(event) for event in bare] == [type(event) for event in events]
        assert [event.at for event in bare] == [event.at for event in events]


def _patched(
    name: str, change: Callable[[Any, list[Command]], list[Command]]
) -> Callable[..., Any]:
    original = getattr(Schedule, name)

    def changed(self: Schedule, *args: Any, **more: Any) -> list[Command]:
        return change(self, original(self, *args, **more))

    return changed


def _without(kind: type[Event]) -> Callable[[Any, list[Command]], list[Command]]:
    return lambda _, commands: [
        each for each in commands if not (type(each) is Record and type(each.event) is kind)
    ]


BUGS: dict[str, tuple[object, str, Any, str, str]] = {
    # what: where, which name, its replacement, and the kind and field of the first difference
    "a backoff twice as long": (
        RetryPolicy,
        "backoff",
        lambda self, tries, draw: timedelta(seconds=2 * tries),
        "RetryPlanned",
        "due_at",
    ),
    "nothing is skipped behind a failure": (
        Schedule,
        "_settle",
        _patched("_settle", _without(TaskSkipped)),
        "TaskSkipped",
        "event",
    ),
    "a run never ends": (
        Schedule,
        "_end_if_settled",
        _patched("_end_if_settled", _without(RunFinished)),
        "RunFinished",
        "event",
    ),
    "ready tasks are not offered": (
        Schedule,
        "_settle",
        _patched(
            "_settle", lambda _, given: [each for each in given if type(each) is not OfferAttempt]
        ),
        "AttemptStarted",
        "event",
    ),
    "deadlines are forgotten": (Deadlines, "timers", lambda _: [], "DeadlinePassed", "event"),
    "what is missing is not listed": (
        schedule_module,
        "missing_of",
        lambda *_: (),
        "RunFinished",
        "",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_named(
    bug: str, histories: list[tuple[str, list[Event]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed decision is found in the very event that it changes: number, kind, task and field."""
    where, name, replacement, kind, field = BUGS[bug]
    monkeypatch.setattr(where, name, replacement)
    found = list(differences(histories))
    assert kind in {each.kind for each in found}
    named = next(each for each in found if each.kind == kind and field in ("", each.field))
    run = next(events for run, events in histories if run == named.run and len(events) >= named.seq)
    assert named.seq >= 1
    assert run
    assert named.recorded != named.recomputed
    assert f"event {named.seq}, {kind}" in str(named)
