"""Workers that report late, slowly or twice."""

from pathlib import Path

from . import delivery
from .share import share


def test_c2_late_results_are_refused_and_written_down(tmp_path: Path) -> None:
    share(delivery.c2_trial, tmp_path, 10)


def test_c2_thread_past_its_timeout_begins_no_effect(tmp_path: Path) -> None:
    share(delivery.c2_thread_trial, tmp_path, 5)


def test_c2_hung_worker_process_is_given_up(tmp_path: Path) -> None:
    share(delivery.c2_process_trial, tmp_path, 1)


def test_c3_slow_worker_is_stopped_in_time(tmp_path: Path) -> None:
    share(delivery.c3_trial, tmp_path, 3)


def test_c5_every_report_twice_changes_nothing(tmp_path: Path) -> None:
    share(delivery.c5_trial, tmp_path, 20)
