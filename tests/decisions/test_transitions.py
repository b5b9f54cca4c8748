"""The states of a task: which leads to which, and that nothing else happens."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.schedule import TRANSITIONS, Schedule
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.facts.events import AttemptStarted, Event, RetryPlanned
from tests.decisions.virtual_kernel import RUN, START, kernel_of
from tests.simulation import Mode, run_trial

UNSETTLED = [state for state in TaskState if not state.is_settled]


def after(*states: TaskState) -> set[TaskState]:
    return {to for state, to in TRANSITIONS if state in states}


def test_settled_tasks_stay_so() -> None:
    assert all(state in UNSETTLED for state, _ in TRANSITIONS)


def test_every_state_is_reached_and_left() -> None:
    assert after(*UNSETTLED) | {TaskState.WAITING} == set(TaskState)
    for state in UNSETTLED:
        reached, before = {state}, set[TaskState]()
        while reached != before:
            before, reached = reached, reached | after(*reached)
        assert TaskState.DONE in reached


def started(task: str, attempt: int) -> Event:
    return AttemptStarted(task=task, attempt=attempt, worker="ann", at=START)


def test_a_change_that_the_table_does_not_have_is_found() -> None:
    """The schedule believes what is stored; its check does not."""
    kernel = kernel_of("a, b")
    kernel.finish("a")
    reader = LiveRun(RUN)
    reader.replay(kernel.journal)
    reader.schedule.check()
    reader.replay([started("a", 2)])
    with pytest.raises(AssertionError, match="<a done attempt 1> became running"):
        reader.schedule.check()


def test_every_change_in_the_table_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[TaskState, TaskState]] = set()
    move = vars(Schedule)["_move"]

    def watched(self: Schedule, node: TaskNode, state: TaskState) -> None:
        seen.add((node.state, state))
        move(self, node, state)

    monkeypatch.setattr(Schedule, "_move", watched)
    for seed in range(60):
        for mode in Mode:
            assert not run_trial(seed, mode).breaches
    # Only a pool gives a task that waits to another worker.
    ready = kernel_of("a, b", pool=1)
    planned = RetryPlanned(task="b", attempt=0, due_at=START, worker="ben", at=START)
    ready.kernel.runs[RUN].take(planned, [])
    assert seen == set(TRANSITIONS)


def test_the_page_on_states_is_up_to_date() -> None:
    script = Path(__file__).parents[2] / "docs" / "generate_states.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_task_has_no_state_beside_its_state() -> None:
    """A flag beside the enum is a state without a name."""
    flags = [field.name for field in structs.fields(TaskNode) if field.type is bool]
    assert flags == []
