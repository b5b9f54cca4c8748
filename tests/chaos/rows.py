"""Every row of the table of faults that is tried here, and how often a campaign tries it."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import damage, delivery, disks, kills, leaders, powercut, times
from .oracle import Verdict

Trial = Callable[[int, Path], Verdict]


@dataclass(frozen=True)
class Row:
    """A fault, and the trial that brings it about."""

    id: str
    what: str
    trial: Trial
    #: what the number of faults is reckoned from: kills or cuts
    per: str = "kills"
    #: how many faults are to fire for each of those
    share: float = 0.025


ROWS = [
    Row("A1", "killed at the n-th write or sync", kills.a1_trial, share=1.0),
    Row("A2", "killed right after an effect", kills.a2_trial, share=0.25),
    Row("A3", "killed right before an effect", kills.a3_trial, share=0.25),
    Row("A5", "process group killed in a loop", kills.a5_trial, share=0.2),
    Row("A6", "power cut", powercut.a6_trial, per="cuts", share=1.0),
    Row("A7", "disk of the journal full", disks.a7_trial),
    Row("A8", "disk of the blobs full", disks.a8_trial),
    Row("A9", "a sync fails once (shim)", disks.a9_exact_trial, share=0.25),
    Row("A9", "a sync fails once (kernel)", disks.a9_trial, share=0.05),
    Row("A10", "every sync takes 200 ms", disks.a10_trial, share=0.25),
    Row("A11", "the log has lost its tail", damage.a11_trial, share=0.5),
    Row("A12", "one bit flipped", damage.a12_trial, share=5.0),
    Row("A14", "read-only at the start", disks.a14_trial),
    Row("A14", "read-only for a while", disks.a14_later_trial),
    Row("A16", "two supervisors, one file", leaders.a16_trial, share=0.1),
    Row("A16", "a leader asleep past its lease", leaders.zombie_trial),
    Row("B1", "wall clock moved by an hour", times.b1_trial),
    Row("B3", "started again hours later", times.b3_trial),
    Row("B5", "event loop blocked", times.b5_trial, share=0.01),
    Row("C2", "late results", delivery.c2_trial, share=0.5),
    Row("C2", "late threads", delivery.c2_thread_trial),
    Row("C2", "hung processes", delivery.c2_process_trial, share=0.01),
    Row("C3", "slow workers", delivery.c3_trial),
    Row("C5", "everything reported twice", delivery.c5_trial, share=0.5),
    Row("C8", "dead right after leading", leaders.c8_trial, share=0.1),
    Row("C10", "SIGTERM during load", leaders.c10_trial, share=0.1),
]


def try_row(index: int, seed: int, folder: Path) -> Verdict:
    """One trial of a campaign. Its files stay if it broke.

    What it raises is a fault like any other, unless the machine lacks something.
    """
    logger = logging.getLogger("chargehand")
    logger.propagate, logger.handlers = False, [logging.NullHandler()]  # the table is enough
    shutil.rmtree(folder, ignore_errors=True)
    try:
        verdict = ROWS[index].trial(seed, folder)
    except kills.Needs:
        raise
    except Exception as error:  # noqa: BLE001 - a campaign goes on and tells of it at the end
        verdict = Verdict(faults=[f"{type(error).__name__}: {error}"])
    verdict.faults = [f"seed {seed}: {fault}" for fault in verdict.faults]
    if verdict.is_ok:
        shutil.rmtree(folder, ignore_errors=True)
    return verdict
