"""Every row of the table of faults that is tried here, and how often a campaign of release size tries it."""

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import (
    damage,
    delivery,
    disks,
    failover,
    kills,
    leaders,
    networks,
    outages,
    powercut,
    schedules,
    times,
)
from .needs import Needs
from .oracle import Verdict

Trial = Callable[[int, Path], Verdict]


@dataclass(frozen=True)
class Row:
    """A fault, and the trial that brings it about."""

    id: str
    what: str
    trial: Trial
    #: faults that are to fire in a campaign of release size
    count: int
    #: what must be true of the worst of them
    bar: str = "0 lost, 0 twice"
    #: seconds for one fault on one core, as measured once; a campaign reckons its end from it at first
    cost: float = 0.5
    #: trials that share one core, because they mostly wait
    at_once: int = 1


ROWS = [
    Row(
        "A1",
        "process killed at a chosen write or sync to disk",
        kills.a1_trial,
        2000,
        "0 lost, 0 twice",
    ),
    Row(
        "A2",
        "process killed right after a side effect",
        kills.a2_trial,
        500,
        "0 `once` side effects repeated",
    ),
    Row(
        "A3",
        "process killed right before a side effect",
        kills.a3_trial,
        500,
        "0 `once` side effects repeated",
    ),
    Row("A5", "process group killed again and again", kills.a5_trial, 400, "the run ends"),
    Row("A6", "power cut", powercut.a6_trial, 1000, "0 lost", cost=0.05),
    Row(
        "A7",
        "disk of the journal full",
        disks.a7_trial,
        50,
        "0 lost; reads < 200 ms",
        2.0,
        at_once=2,
    ),
    Row("A8", "disk of the blobs full", disks.a8_trial, 50, "typed errors only", 1.0),
    Row(
        "A9",
        "a sync fails once (injected below SQLite)",
        disks.a9_exact_trial,
        500,
        "0 events acknowledged afterwards",
        0.1,
    ),
    Row(
        "A9",
        "a sync fails once (reported by the kernel)",
        disks.a9_trial,
        100,
        "0 events acknowledged afterwards",
        2.0,
        at_once=2,
    ),
    Row(
        "A10",
        "every sync takes 200 ms",
        disks.a10_trial,
        500,
        "loop stall p99 < 50 ms",
        0.3,
        at_once=2,
    ),
    Row(
        "A11",
        "end of the write-ahead log cut off",
        damage.a11_trial,
        1000,
        "all detected or harmless",
        0.05,
    ),
    Row("A12", "one bit flipped", damage.a12_trial, 1000, "all detected or harmless", 0.05),
    Row(
        "A14",
        "journal read-only at the start",
        disks.a14_trial,
        50,
        "refused with a clear error",
        1.0,
    ),
    Row(
        "A14",
        "journal read-only for a while",
        disks.a14_later_trial,
        50,
        "the run waits and continues",
        2.0,
        at_once=2,
    ),
    Row(
        "A16",
        "two supervisors, one file",
        leaders.a16_trial,
        100,
        "0 epochs used by two leaders",
        2.0,
    ),
    Row(
        "A16",
        "leader frozen for longer than its lease",
        leaders.zombie_trial,
        50,
        "0 epochs used by two leaders",
        3.0,
        at_once=2,
    ),
    Row(
        "B1",
        "wall clock moved by an hour",
        times.b1_trial,
        50,
        "0 timers early, 0 missed",
        2.0,
        at_once=2,
    ),
    Row(
        "B3",
        "process restarted hours later",
        times.b3_trial,
        50,
        "retry < 1 s late",
        2.0,
        at_once=2,
    ),
    Row("B5", "event loop blocked", times.b5_trial, 20, "lease kept, stall logged", 3.0, at_once=2),
    Row(
        "C2",
        "result arrives after the deadline of its task",
        delivery.c2_trial,
        500,
        "0 late results accepted",
        0.1,
    ),
    Row(
        "C2",
        "thread continues after its timeout",
        delivery.c2_thread_trial,
        50,
        "0 late results accepted",
        0.5,
        at_once=2,
    ),
    Row(
        "C2",
        "worker process hangs",
        delivery.c2_process_trial,
        20,
        "0 late results accepted",
        3.0,
        at_once=2,
    ),
    Row(
        "C3",
        "slow workers",
        delivery.c3_trial,
        50,
        "each task fails once, with a timeout",
        0.5,
        at_once=2,
    ),
    Row(
        "C5",
        "every worker's report, answer and cancellation delivered twice",
        delivery.c5_trial,
        1000,
        "0 twice",
        0.02,
    ),
    Row(
        "C8",
        "process dies right after it starts to lead",
        leaders.c8_trial,
        200,
        "another process leads within 5 s",
        1.0,
    ),
    Row(
        "C8",
        "process dies while it takes over from a dead leader",
        leaders.c8_clearing_trial,
        50,
        "another process leads",
        1.0,
    ),
    Row("C10", "SIGTERM during load", leaders.c10_trial, 200, "0 lost", 1.0, at_once=2),
    Row(
        *("H1", "leader killed, 200 tasks in flight (SQLite)", failover.h1_sqlite, 100),
        *("takeover < lease (1 s) + 1 s", 1.5),
        at_once=2,
    ),
    Row(
        *("H1", "leader killed, 200 tasks in flight (PostgreSQL)", failover.h1_postgres, 100),
        *("takeover < lease (1 s) + 1 s", 2.5),
        at_once=2,
    ),
    Row(
        *("H2", "leader frozen for longer than its lease (SQLite)", failover.h2_sqlite, 500),
        *("0 stale writes accepted, 0 side effects repeated", 3.0),
        at_once=2,
    ),
    Row(
        *("H2", "leader frozen for longer than its lease (PostgreSQL)", failover.h2_postgres, 500),
        *("0 stale writes accepted, 0 side effects repeated", 3.0),
        at_once=2,
    ),
    Row(
        "B4",
        "clocks 30 s apart (SQLite)",
        failover.b4_sqlite,
        25,
        "1 leader at a time",
        5.0,
        at_once=2,
    ),
    Row(
        "B4",
        "clocks 30 s apart (PostgreSQL)",
        failover.b4_postgres,
        25,
        "1 leader at a time",
        6.0,
        at_once=2,
    ),
    Row(
        "H3",
        "leader cut off from the database",
        networks.h3_trial,
        25,
        "0 tasks started after the lease ended",
        9.0,
        at_once=2,
    ),
    Row(
        "H6",
        "PostgreSQL restarted under load",
        outages.h6_trial,
        50,
        "continues within 10 s",
        4.0,
        at_once=2,
    ),
    Row(
        "H7",
        "PostgreSQL killed under load",
        outages.h7_trial,
        50,
        "continues within 10 s",
        6.0,
        at_once=2,
    ),
    Row(
        "H8",
        "all connections taken, a row locked",
        outages.h8_trial,
        20,
        "0 takeovers from a live leader",
        9.0,
        at_once=2,
    ),
    Row("H9", "leader killed behind a pooler", failover.h9_trial, 50, "takeover < 2 s", 3.0),
    Row(
        "H10",
        "deadlock, serialization failure",
        outages.h10_trial,
        200,
        "0 errors reach the caller",
        0.4,
    ),
    Row(
        "H11",
        "network links cut and restored in any order",
        networks.h11_trial,
        60,
        "all runs end",
        3.5,
        at_once=2,
    ),
    Row(
        "H12",
        "standby with an older version (SQLite)",
        failover.h12_sqlite,
        20,
        "0 runs taken over by it",
        2.5,
        at_once=2,
    ),
    Row(
        "H12",
        "standby with an older version (PostgreSQL)",
        failover.h12_postgres,
        20,
        "0 runs taken over by it",
        5.0,
        at_once=2,
    ),
    Row("sim", "simulated schedules", schedules.schedules_trial, 20_000, "0 broken rules", 0.02),
]


def try_row(index: int, seed: int, folder: Path) -> tuple[Verdict, float]:
    """One trial of a campaign, and the seconds that it took. Its files stay if it broke.

    What it raises is a fault like any other, unless the machine lacks something.
    """
    logger = logging.getLogger("chargehand")
    logger.propagate, logger.handlers = False, [logging.NullHandler()]  # the table is enough
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    try:
        verdict = ROWS[index].trial(seed, folder)
    except Needs:
        raise
    except Exception as error:  # noqa: BLE001 - a campaign goes on and tells of it at the end
        verdict = Verdict(faults=[f"{type(error).__name__}: {error}"])
    verdict.faults = [f"seed {seed}: {fault}" for fault in verdict.faults]
    if verdict.is_ok:
        shutil.rmtree(folder, ignore_errors=True)
    return verdict, time.monotonic() - began
