"""Workers over HTTP: what each does, in which process, how long ago that was heard of, and what waits at providers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.journal.base import Process
from chargehand.server.http.worker_routes import liveness
from tests.server.conftest import Served, clerk, failing, serving, stuck, task

#: a process that serves with a crew of its own and a lease of 0.6 s, and leads a run
OTHER = """
import asyncio, sys
import chargehand as ch
from chargehand.journal.open_journal import open_journal

@ch.worker("far", "Works elsewhere")
async def far(brief: ch.Brief) -> str:
    await asyncio.Event().wait()
    return "never"

async def main() -> None:
    boss = ch.Supervisor([far], journal=open_journal(sys.argv[1], lease=0.6))
    async with boss:
        serving = asyncio.ensure_future(boss.serve())
        run = await boss.submit(ch.Plan(goal="Far", tasks=[ch.Task(id="f", description="Work", worker="far")]))
        print(run.id, flush=True)
        await serving

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("left", "beat", "state", "age"),
    [
        (3.0, 1.0, "alive", 0.0),
        (1.01, 1.0, "alive", 1.99),
        (1.0, 1.0, "late", 2.0),
        (-1.99, 1.0, "late", 4.99),
        (-2.0, 1.0, "lost", 5.0),
        (2.0, None, "alive", None),  # how often it should be heard is not known
        (-1.0, None, "lost", None),
        (None, None, "alive", None),
    ],
)
def test_a_process_is_late_after_two_missed_heartbeats_and_lost_after_five(
    left: float | None, beat: float | None, state: str, age: float | None
) -> None:
    found = liveness(Process("n-1", 7, "here", lease_left=left), beat)
    assert (found[0], found[1] and round(found[1], 6)) == (state, age)


def test_a_process_that_has_certainly_ended_is_lost_at_once() -> None:
    assert liveness(Process("n-1", 7, "here", lease_left=3.0, is_dead=True), 1.0) == ("lost", 0.0)


async def seen(served: Served, wanted: Callable[[dict[str, Any]], Any]) -> Any:
    """What `wanted` finds in the reply, once it does."""
    async with asyncio.timeout(20):
        while not (found := wanted(await served.get("workers"))):
            await asyncio.sleep(0)
    return found


def worker(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda told: next((each for each in told["workers"] if each["name"] == name), None)


def processes_in(state: str) -> Callable[[dict[str, Any]], Any]:
    return lambda told: [each for each in told["servers"] if each["state"] == state]


async def test_the_crew_says_how_a_command_finds_this_server(tmp_path: Path) -> None:
    source = {"crew": "/srv/crew.py:CREW", "files": [], "model": ""}
    async with serving(tmp_path, source=source) as served:
        view = await served.get("crew")
        assert view["crew"] == "/srv/crew.py:CREW"
        assert Path(view["journal"]) == (tmp_path / "runs.db").resolve()


async def test_a_worker_here_is_shown_with_its_work_its_queue_and_its_heartbeat(
    tmp_path: Path,
) -> None:
    @ch.worker("single", "Does one thing at a time", capacity=1)
    async def single(brief: ch.Brief) -> str:
        await asyncio.Event().wait()
        return "never"

    async with serving(tmp_path, crew=[clerk, failing, single, stuck]) as served:
        tasks = [task("a"), task("b", "failing"), task("c", "single"), task("d", "single")]
        run = await served.submit(*tasks)
        await served.until(run, "running")
        held = await seen(
            served, lambda told: (own := worker("single")(told)) and own["busy"] and own
        )
        assert (held["state"], held["active"], held["capacity"], held["queue"]) == (
            "busy", 1, 1, 1,
        )  # fmt: skip
        assert held["busy"] == [{"run": run, "task": held["task"], "attempt": 1}]
        assert [each["ended_at"] for each in held["recent"]] == [None]
        assert held["here"]
        assert 0 <= held["heartbeat_age"] < 7
        done = await seen(
            served, lambda told: (own := worker("clerk")(told)) and own["done"] and own
        )
        failed = await seen(
            served, lambda told: (own := worker("failing")(told)) and own["failed"] and own
        )
        assert (done["done"], done["failed"], done["state"]) == (1, 0, "idle")
        assert (failed["done"], failed["failed"], failed["recent"][0]["outcome"]) == (
            0,
            1,
            "failed",
        )
        (process,) = (await served.get("workers"))["servers"]
        assert (process["state"], process["here"], process["leads"]) == ("alive", True, [run])
        await served.post(f"runs/{run}/cancel")
        await served.until(run, "cancelled")
        assert worker("clerk")(await served.get("workers"))["done"] == 1, "it ended just now"


@asynccontextmanager
async def another_process(journal: Path) -> AsyncIterator[tuple[int, str]]:
    """A process that serves the same journal with another crew, and the run that it leads."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OTHER, str(journal)), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.pid, (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


async def test_a_process_elsewhere_is_late_then_lost_and_says_only_what_is_known(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served, another_process(tmp_path / "runs.db") as (pid, run):
        far = await seen(served, lambda told: (own := worker("far")(told)) and own["busy"] and own)
        assert (far["state"], far["here"], far["busy"][0]["run"]) == ("busy", False, run)
        assert (far["capacity"], far["active"]) == (None, None)
        os.kill(pid, signal.SIGSTOP)
        for state in ("late", "lost"):
            told = await seen(served, processes_in(state))
            assert [(each["pid"], each["leads"]) for each in told] == [(pid, [run])]
            assert worker("far")(await served.get("workers"))["state"] in (state, "lost")
        assert told[0]["heartbeat_age"] >= 1


async def test_waits_at_a_rate_limit_and_tokens_are_told_by_worker(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def held(request: Any) -> str:
        await gate.wait()
        return "Written."

    model = ch.ScriptedModel([held, held])
    boss = ch.Supervisor(
        [ch.Worker("author", "Writes", model=model)],
        journal=tmp_path / "runs.db",
        gateway=ch.ModelGateway({"scripted": ch.Rates(concurrency=1)}),
    )
    async with serving(tmp_path, boss=boss) as served:
        assert (await served.get("workers"))["providers"] == []
        run = await served.submit(task("a", "author"), task("b", "author"))
        (line,) = await seen(
            served, lambda told: [each for each in told["providers"] if each["waiting"]]
        )
        assert (line["in_flight"], line["most"], line["waiting"], line["served"]) == (1, 1, 1, 0)
        gate.set()
        await served.until(run, "succeeded")
        author = worker("author")(await served.get("workers"))
        assert author["rate_waits"] == 1
        assert author["rate_wait_seconds"] > 0
        assert author["tokens_per_minute"] == author["tokens"] > 0
        (line,) = (await served.get("workers"))["providers"]
        assert (line["waiting"], line["in_flight"], line["served"]) == (0, 0, 2)
