"""H6, H7, H8, H10: the database is restarted or killed, short of connections, locked, or refuses a transaction."""

import asyncio
import contextlib
import random
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import asyncpg

from chargehand.errors import JournalError
from chargehand.facts.events import Event, ProgressNoted
from chargehand.journal.base import Journal
from tests.postgres_server import PostgresServer

from .databases import Database, database, shared_server
from .oracle import Verdict
from .team import plan_for, team

Other: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

LEASE = 1.0
#: seconds for supervisors to go on once the server is back
RECOVERY = 10.0
RUNS, TASKS = 3, 60


def outage_trial(seed: int, folder: Path, how: signal.Signals) -> Verdict:
    """The server goes down under load, for any time up to two leases, and comes back."""
    rng = random.Random(f"{how.name} {seed}")
    folder.mkdir(parents=True)
    server = shared_server()
    with database("postgres", folder) as place, team(folder, place, lease=LEASE) as crew:
        crew.start()
        crew.start()
        runs = [crew.post(plan_for("porter", TASKS), parallel=10) for _ in range(RUNS)]
        wanted = rng.randint(50, 1200)
        crew.must_come(lambda: crew.count("ack") >= wanted, "there was no load")
        crew.verdict.fired += not crew.has_ended(*runs)
        try:
            server.stop(how)
            down = crew.count("ack")
            time.sleep(rng.choice([0.0, rng.uniform(0.0, 2 * LEASE)]))
        finally:
            start_again(server)
        up_at = time.monotonic()
        crew.tail.look()
        is_over = crew.has_ended(*runs)
        crew.must_come(lambda: is_over or crew.count("ack") > down, "nothing went on", RECOVERY)
        crew.verdict.figures["recovery_s"] = time.monotonic() - up_at
        crew.must_come(lambda: crew.has_ended(*runs), "the runs did not end")
        crew.judge(*runs)
        return crew.verdict


def start_again(server: PostgresServer) -> None:
    """Start a server whose last processes may still be about to notice that it was killed."""
    for _ in range(20):
        try:
            server.start()
        except AssertionError:
            time.sleep(0.1)
        else:
            return
    server.start()


def h6_trial(seed: int, folder: Path) -> Verdict:
    """The server is restarted: all connections break, and it takes new ones a moment later."""
    return outage_trial(seed, folder, signal.SIGINT)


def h7_trial(seed: int, folder: Path) -> Verdict:
    """The server is killed, and recovers from its log."""
    return outage_trial(seed, folder, signal.SIGKILL)


def h8_trial(seed: int, folder: Path) -> Verdict:
    """Others hold all connections that are left, and lock a run's row, for several leases: nobody is demoted."""
    rng = random.Random(f"H8 {seed}")
    folder.mkdir(parents=True)
    with database("postgres", folder) as place, team(folder, place, lease=LEASE) as crew:
        crew.start()
        runs = [crew.post(plan_for("porter", TASKS), parallel=1) for _ in range(2)]
        wanted = rng.randint(5, 100)
        crew.must_come(lambda: crew.count("ack", runs[1]) >= wanted, "there was no load")
        crew.start()  # it takes over whatever has no leader any more
        crew.tail.look()
        locked = rng.choice([run for run in runs if not crew.has_ended(run)])
        asyncio.run(_hold_all(place, locked, rng.uniform(2.0, 3.0) * LEASE))
        crew.tail.look()
        crew.verdict.fired += not crew.has_ended(locked)
        crew.must_come(lambda: crew.has_ended(*runs), "the runs did not end")
        demotions = sum(len(crew.leaders(run)) - 1 for run in runs)
        crew.verdict.figures["false_demotions"] = demotions
        crew.verdict.must(not demotions, f"{demotions} runs were led by another")
        crew.judge(*runs)
        return crew.verdict


async def _hold_all(place: Database, run: str, seconds: float) -> None:
    """Stand idle in a transaction that locks a run, and take every connection that can be had."""
    held: list[Other] = [await asyncpg.connect(place.place)]
    try:
        # The lock comes first: while a hundred connections are made, the run could end.
        await held[0].execute("BEGIN")
        await held[0].execute(
            "SELECT * FROM chargehand_streams WHERE namespace = $1 AND name = $2 FOR UPDATE",
            *(place.namespace, run),
        )
        with contextlib.suppress(asyncpg.TooManyConnectionsError):
            while True:
                held.append(await asyncpg.connect(place.place))
        await asyncio.sleep(seconds)
    finally:
        for connection in held:
            connection.terminate()


def h10_trial(seed: int, folder: Path) -> Verdict:
    """The server gives our transactions up, for a deadlock or a serialization failure: no caller hears of it."""
    rng = random.Random(f"H10 {seed}")
    folder.mkdir(parents=True)
    verdict = Verdict()
    with database("postgres", folder) as place:
        asyncio.run(_conflicts(place, rng, verdict))
    return verdict


async def _conflicts(place: Database, rng: random.Random, verdict: Verdict) -> None:
    async with place.opened() as journal:
        for stream in ("a", "b"):
            await journal.append(stream, [_note(0)])
        other = await asyncpg.connect(place.place)
        try:
            verdict.fired += await _fail_some(other, journal, rng.randint(1, 5))
            verdict.fired += await _deadlock(other, journal, place.namespace)
        except JournalError as error:
            verdict.faults.append(f"it surfaced: {error}")
        finally:
            await other.close()
        for stream in ("a", "b"):
            kept = [entry.event async for entry in journal.read(stream)]
            texts = [event.text for event in kept if isinstance(event, ProgressNoted)]
            verdict.acknowledged += len(texts)
            verdict.must(texts == ["0", "1", "2"], f"{stream} holds {texts}")


def _note(number: int) -> Event:
    return ProgressNoted(task="t", attempt=1, text=str(number), at=datetime.now(UTC))


async def _fail_some(other: Other, journal: Journal, times: int) -> int:
    """Let the first transactions fail to serialize; a sequence counts although they are rolled back."""
    await other.execute(FAILING.format(times=times))
    try:
        await asyncio.gather(*(journal.append(stream, [_note(1)]) for stream in ("a", "b")))
        return int(await other.fetchval("SELECT last_value FROM chaos_tries")) - 1
    finally:
        await other.execute("DROP TRIGGER chaos ON chargehand_streams; DROP SEQUENCE chaos_tries")


async def _deadlock(other: Other, journal: Journal, namespace: str) -> int:
    """Lock two runs in the order that is not ours, while both are being written to."""
    lock = "SELECT 1 FROM chargehand_streams WHERE namespace = $1 AND name = $2 FOR UPDATE"
    await other.execute("SET deadlock_timeout = '60s'")  # the other side is to find it
    await other.execute("BEGIN")
    await other.execute(lock, namespace, "b")
    writing = asyncio.gather(*(journal.append(stream, [_note(2)]) for stream in ("a", "b")))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with asyncio.timeout(20):
        while not await other.fetchval(waiting):
            await asyncio.sleep(0.01)
        await other.execute(lock, namespace, "a")  # granted once the server has given the other up
        await other.execute("ROLLBACK")
        await writing
    return 1


FAILING = """
CREATE SEQUENCE chaos_tries;
CREATE OR REPLACE FUNCTION chaos_fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('chaos_tries') <= {times} THEN
        RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER chaos BEFORE UPDATE ON chargehand_streams
FOR EACH STATEMENT EXECUTE FUNCTION chaos_fail();
"""
