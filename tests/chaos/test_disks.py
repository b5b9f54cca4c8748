"""Disks that are full, failing, slow, read-only, cut short or changed by a bit."""

from pathlib import Path

from . import damage, disks
from .share import share


def test_a7_journal_disk_full_in_mid_run(tmp_path: Path) -> None:
    """Nothing is acknowledged, reading goes on, and so does the run when there is room again."""
    share(disks.a7_trial, tmp_path, 1)


def test_a8_blob_disk_full_fails_the_task_by_name(tmp_path: Path) -> None:
    share(disks.a8_trial, tmp_path, 1)


def test_a9_nothing_is_acknowledged_after_a_failed_sync(tmp_path: Path) -> None:
    share(disks.a9_exact_trial, tmp_path, 8)


def test_a9_eio_of_the_kernel_ends_the_shift_and_the_run_is_resumed(tmp_path: Path) -> None:
    share(disks.a9_trial, tmp_path, 3)


def test_a10_slow_disk_does_not_block_the_event_loop(tmp_path: Path) -> None:
    """With 200 ms a sync, events gather into groups; the loop stands still for less than 50 ms."""
    share(disks.a10_trial, tmp_path, 1)


def test_a11_truncated_log_is_refused_until_accepted(tmp_path: Path) -> None:
    assert share(damage.a11_trial, tmp_path, 20).figures["found"] > 0


def test_a12_flipped_bit_is_found_or_harmless(tmp_path: Path) -> None:
    assert share(damage.a12_trial, tmp_path, 200).figures["found"] > 0


def test_a14_read_only_folder_is_refused_in_words(tmp_path: Path) -> None:
    share(disks.a14_trial, tmp_path, 2)


def test_a14_lost_right_to_write_is_waited_out(tmp_path: Path) -> None:
    share(disks.a14_later_trial, tmp_path, 1)
