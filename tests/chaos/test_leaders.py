"""Several processes on one journal: a run is led by one of them at a time, and soon by another."""

from pathlib import Path

from . import leaders
from .share import share


def test_a16_two_supervisors_never_lead_one_run_at_once(tmp_path: Path) -> None:
    share(leaders.a16_trial, tmp_path, 3)


def test_a16_leader_that_wakes_after_its_lease_is_refused(tmp_path: Path) -> None:
    """Stopped past its lease and continued, it finds another in its place and changes nothing."""
    share(leaders.zombie_trial, tmp_path, 1)


def test_c8_run_of_a_dead_leader_is_reclaimed_once_and_soon(tmp_path: Path) -> None:
    share(leaders.c8_trial, tmp_path, 4)


def test_c8_killed_while_it_clears_a_dead_leader_away(tmp_path: Path) -> None:
    """The lock file of the dead one goes only after its row: without either nobody would know that it is dead."""
    share(leaders.c8_clearing_trial, tmp_path, 1)


def test_c10_sigterm_during_load_loses_nothing(tmp_path: Path) -> None:
    """A script that catches `RunInterrupted` ends with 0, and its run goes on later."""
    share(leaders.c10_trial, tmp_path, 3)
