"""Processes that are killed: nothing that was promised is lost, nothing that was done is done again."""

from pathlib import Path

import pytest

from .client import Log, lines_of
from .kills import a1_trial, a2_trial, a3_trial, a5_trial
from .share import share


@pytest.mark.parametrize("part", range(4))
def test_a1_supervisor_killed_at_every_journal_write(part: int, tmp_path: Path) -> None:
    """Killed at the n-th write or sync, the run is gone on with and loses nothing."""
    share(a1_trial, tmp_path, 5, part)


def test_a2_killed_between_an_effect_and_its_outcome(tmp_path: Path) -> None:
    """A `once` effect in doubt is asked about and never repeated; the others may be."""
    share(a2_trial, tmp_path, 6)


def test_a3_killed_between_an_intent_and_its_effect(tmp_path: Path) -> None:
    """The effect has not happened, which nobody but a person can know."""
    share(a3_trial, tmp_path, 6)


def test_a5_process_group_killed_again_and_again(tmp_path: Path) -> None:
    """However often it is killed, the run gets on and comes to its end."""
    share(a5_trial, tmp_path, 6)


def test_a_line_that_a_kill_tore_is_left_out_and_those_after_it_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    Log(log).add(number=1)
    log.write_bytes(log.read_bytes() + b'{"l')
    Log(log).add(number=2)
    assert [line["number"] for line in lines_of(log)] == [1, 2]
