"""The power goes: what was acknowledged is there afterwards, and the test can tell when it is not."""

from pathlib import Path

import pytest

from .oracle import Verdict
from .powercut import a6_trial
from .share import share


@pytest.mark.parametrize("part", range(2))
def test_a6_power_cut_loses_nothing_acknowledged(part: int, tmp_path: Path) -> None:
    """Cut at syncs, at promises and in between, with any part of the unsynced surviving."""
    share(a6_trial, tmp_path, 30, part)


def test_a6_power_cut_is_noticed_where_syncing_is_left_to_later(tmp_path: Path) -> None:
    """Under `synchronous=NORMAL` the same cuts do lose what was acknowledged: the test can see it."""
    verdict = Verdict()
    for seed in range(2):
        verdict.add(a6_trial(seed, tmp_path / str(seed), durability="relaxed"))
    assert verdict.fired >= 20
    assert verdict.lost > 0
    assert verdict.duplicates == 0
    # What is missing is missing at the end, as was said; the journal itself is never broken by it.
    assert not [fault for fault in verdict.faults if "damaged" in fault]
