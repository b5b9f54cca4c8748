"""Clocks that jump and a loop that stands still."""

from pathlib import Path

from . import times
from .share import share


def test_b1_wall_clock_moved_by_an_hour_moves_no_timer(tmp_path: Path) -> None:
    share(times.b1_trial, tmp_path, 2)


def test_b3_retry_that_came_due_while_stopped_comes_once_and_at_once(tmp_path: Path) -> None:
    share(times.b3_trial, tmp_path, 2)


def test_b5_blocked_event_loop_keeps_its_lease_and_is_reported(tmp_path: Path) -> None:
    share(times.b5_trial, tmp_path, 1)
