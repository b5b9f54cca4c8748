"""A11, A12: files that lost their tail, or a single bit."""

import asyncio
import random
import shutil
from pathlib import Path

import chargehand as ch
from chargehand.errors import JournalDamaged

from . import client
from .disks import here, until
from .oracle import Runs, Verdict, fold_digest, read_journal


def make(folder: Path) -> None:
    """Two copies of one journal: `open`, as it lay while it was in use and marked; `closed`."""
    live = folder / "live"
    live.mkdir(parents=True)
    log = here("small")

    async def run() -> None:
        journal = ch.open_journal(live / "runs.db")
        async with client.supervisor_on(journal, log) as boss:
            await asyncio.gather(*(client.lead(boss, key) for key in ("a", "b")))
            # Without the mark of the last commit a lost tail could not be known. It comes within a
            # second, and while everybody waits there are no commits but renewals of the lease.
            await until((live / "runs.db-head").exists)
            await asyncio.sleep(1.0)
            shutil.copytree(live, folder / "open")
        await journal.close()

    asyncio.run(run())
    shutil.copytree(live, folder / "closed")


def digest(runs: Runs) -> dict[str, tuple[int, str]]:
    return {run: (len(entries), fold_digest(entries)) for run, entries in sorted(runs.items())}


def a11_trial(seed: int, folder: Path, cuts: int = 10) -> Verdict:
    """The log has lost its last bytes: refused, with the way out, which then works."""
    rng = random.Random(f"A11 {seed}")
    make(folder)
    verdict = Verdict(figures={"found": 0.0})
    whole = digest(read_journal(_copy(folder / "open", folder / "whole") / "runs.db"))
    for number in range(cuts):
        place = _copy(folder / "open", folder / f"cut{number}")
        log = place / "runs.db-wal"
        size = log.stat().st_size
        lost = rng.choice([1, rng.randint(1, 4096), rng.randint(1, size)])
        with log.open("r+b") as file:
            file.truncate(size - lost)
        verdict.fired += 1
        try:
            found = digest(read_journal(place / "runs.db"))
            # A log keeps old frames behind its end: what is cut off may be none of today's.
            verdict.must(found == whole, f"{lost} bytes were cut off unnoticed")
        except JournalDamaged as error:
            verdict.figures["found"] += 1
            verdict.must("accept_damage=True" in str(error), f"it said {error}")
            read_journal(place / "runs.db", accept_damage=True)
            read_journal(place / "runs.db")  # accepted once is accepted
        shutil.rmtree(place)
    return verdict


def a12_trial(seed: int, folder: Path, flips: int = 50) -> Verdict:
    """One bit of any file is flipped: found, or without consequence; never a shorter journal."""
    rng = random.Random(f"A12 {seed}")
    make(folder)
    verdict = Verdict(figures={"found": 0.0})
    wholes = {
        state: digest(read_journal(_copy(folder / state, folder / f"whole-{state}") / "runs.db"))
        for state in ("open", "closed")
    }
    for number in range(flips):
        state = rng.choice([*wholes])
        place = _copy(folder / state, folder / f"flip{number}")
        files = [path for path in sorted(place.rglob("*")) if path.is_file() and _counts(path)]
        # By size, as chance would have it, but for the small ones, which would never be hit.
        weights = [max(path.stat().st_size, 20_000) for path in files]
        victim = rng.choices(files, weights)[0]
        data = bytearray(victim.read_bytes())
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        data[at] ^= 1 << bit
        victim.write_bytes(data)
        verdict.fired += 1
        name = victim.relative_to(place)
        try:
            found = digest(read_journal(place / "runs.db"))
            verdict.must(
                found == wholes[state], f"bit {bit} of byte {at} of {state} {name}: unnoticed"
            )
        except ch.JournalError:
            verdict.figures["found"] += 1
        except Exception as error:  # noqa: BLE001 - anything but a typed refusal is the fault looked for
            verdict.faults.append(f"bit {bit} of byte {at} of {state} {name}: {error!r}")
        shutil.rmtree(place)
    return verdict


def _counts(path: Path) -> bool:
    # The shared memory of the log is made anew by whoever opens the file first.
    return path.stat().st_size > 0 and not path.name.endswith("-shm")


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target
