"""The share of a row that the everyday test run does: seeded, and scaled up by CHAOS_SCALE."""

import os
import shutil
from math import ceil
from pathlib import Path

import pytest

from .needs import Needs
from .oracle import Verdict
from .rows import Trial

SCALE = float(os.environ.get("CHAOS_SCALE", "1"))


def share(trial: Trial, folder: Path, fired: int, part: int = 0) -> Verdict:
    """Try until so many faults have fired, and fail with everything that broke.

    Parts have seeds of their own, so that they can run side by side.
    """
    wanted = ceil(fired * SCALE)
    total = Verdict()
    for seed in range(part * 100_000, part * 100_000 + 5 * wanted + 5):
        if total.fired >= wanted:
            break
        place = folder / str(seed)
        try:
            verdict = trial(seed, place)
        except Needs as lack:
            pytest.skip(str(lack))
        verdict.faults = [f"seed {seed}: {fault}" for fault in verdict.faults]
        total.add(verdict)
        shutil.rmtree(place, ignore_errors=True)
    total.check()
    assert total.fired >= wanted, f"only {total.fired} of {wanted} faults fired"
    return total
