"""Whole runs of the fault simulator, as trials of a campaign."""

from pathlib import Path

from tests.simulation import Mode, run_trial

from .oracle import Verdict

#: schedules of one trial
CHUNK = 250
STEPS = 250


def schedules_trial(seed: int, _: Path, chunk: int = CHUNK) -> Verdict:
    """The first trial of a campaign with seed 1 is `python -m tests.simulation --seeds 0:250`, and so on."""
    campaign, number = divmod(seed, 1_000_000)
    first = (campaign - 1) * 1_000_000 + (number - 1) * chunk
    verdict = Verdict()
    modes = list(Mode)
    for each in range(first, first + chunk):
        report = run_trial(each, modes[each % len(modes)], STEPS)
        verdict.fired += 1
        verdict.acknowledged += report.events
        for breach in report.breaches:
            verdict.faults.append(f"python -m tests.simulation --seeds {each}: {breach}")
    return verdict
