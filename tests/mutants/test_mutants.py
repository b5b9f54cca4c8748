"""Every planted bug is caught by the fast check that is named for it."""

import os
import random
from datetime import UTC, datetime

import pytest

from tests.mutants import Mutant, mutants, stale, survivors, unfit

#: so that the processes of a parallel test run share the work
PARTS = 4
#: planted in each run of the tests, others every day; `make mutants` plants all of them
SHARE = 24
#: checks that start servers and kill them take half a minute each: only `make mutants` runs them
SLOW = "tests/chaos/"
SEED = os.environ.get("MUTANTS_SEED") or f"{datetime.now(UTC):%Y-%m-%d}"


def test_every_planted_bug_still_fits_the_source() -> None:
    assert stale(mutants()) == []


def test_there_are_enough_of_them_and_no_two_are_the_same() -> None:
    changes = [(mutant.file, mutant.old, mutant.new) for mutant in mutants()]
    assert len(set(changes)) == len(changes) >= 200
    outside = [mutant for mutant in mutants() if not mutant.file.startswith("decisions/")]
    assert len(outside) >= 60


def test_the_simulation_passes_when_nothing_is_planted() -> None:
    """The other checks are part of this test run anyhow; `python -m tests.mutants` tries them all."""
    assert unfit(["simulation"]) == []


@pytest.mark.parametrize("part", range(PARTS))
def test_every_planted_bug_is_caught(part: int) -> None:
    quick = [mutant for mutant in mutants() if not mutant.caught.startswith(SLOW)]
    chosen = random.Random(SEED).sample(quick, SHARE)[part::PARTS]
    assert [told(mutant) for mutant in survivors(chosen)] == []


def told(mutant: Mutant) -> str:
    return f"{mutant.what} ({mutant.file}), which {mutant.caught} should have caught (MUTANTS_SEED={SEED})"
