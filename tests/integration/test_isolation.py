"""One run's misfortune is its own: decisions that raise, leaders that die, runs that nobody can read."""

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import chargehand as ch
from chargehand.cli import main
from chargehand.decisions.schedule import Schedule
from chargehand.errors import InternalError, NotJSON
from chargehand.facts.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    PlanAdopted,
    ProgressNoted,
    RunFinished,
    RunLed,
    RunRequested,
    StepFinished,
    StepStarted,
    decode,
    encode,
)
from chargehand.facts.outcome import checked, failed_by
from chargehand.facts.value import Value
from chargehand.journal.open_journal import open_journal
from chargehand.server.mcp import serve_http
from chargehand.testing import START_AT, FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

APPLY = Schedule.apply


def breaking(kinds: "tuple[type[Event], ...]", goal: str = "Break") -> Any:
    """`Schedule.apply` with a fault in it, for runs of this goal."""

    def apply(self: Schedule, event: Event) -> Any:
        requested = event if isinstance(event, RunRequested) else self.requested
        if isinstance(event, kinds) and requested is not None and requested.request == goal:
            raise ZeroDivisionError("a fault in a decision")
        return APPLY(self, event)

    return apply


@ch.worker("steady", "Does a step, then waits a moment")
async def steady(brief: ch.Brief) -> str:
    brief.progress("begun")
    await brief.step("first", len, "four", effect="pure")
    await asyncio.sleep(5)
    return "done"


@pytest.mark.parametrize(
    "kind",
    [
        PlanAdopted,
        AttemptStarted,
        ProgressNoted,
        StepStarted,
        StepFinished,
        AttemptFinished,
    ],
)
def test_j3_a_run_whose_decision_raises_ends_alone(
    kind: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Schedule, "apply", breaking((kind,)))
    boss = ch.Supervisor([steady], clock=FakeClock(), parallel=3)

    async def runs() -> list[ch.RunResult]:
        async with boss:
            good = await boss.submit(make_plan(make_task("a", "steady")))
            broken = await boss.submit(make_plan(make_task("a", "steady"), goal="Break"))
            other = await boss.submit(make_plan(make_task("a", "steady"), make_task("b", "steady")))
            results = [await each.wait() for each in (broken, good, other)]
            later = await boss.run(make_plan(make_task("c", "steady")))
            return [*results, later, await boss.look(broken.id)]

    broken, *others, looked = run_virtual(runs())
    assert broken.status == looked.status == "failed"
    assert "ZeroDivisionError: a fault in a decision in apply" in broken.reason
    assert "please report it" in broken.reason
    assert [each.status for each in others] == ["succeeded"] * 3


@pytest.mark.parametrize("kind", [RunRequested, RunLed])
def test_j3_a_run_that_cannot_be_begun_is_refused_and_the_others_go_on(
    kind: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Schedule, "apply", breaking((kind,)))
    boss = ch.Supervisor([steady], clock=FakeClock())

    async def runs() -> list[ch.RunResult]:
        async with boss:
            good = await boss.submit(make_plan(make_task("a", "steady")))
            with pytest.raises(InternalError, match="please report it"):
                await boss.run(make_plan(make_task("a", "steady"), goal="Break"))
            return [await good.wait(), await boss.run(make_plan(make_task("b", "steady")))]

    assert [each.status for each in run_virtual(runs())] == ["succeeded"] * 2


@pytest.mark.parametrize("kind", [RunRequested, RunLed])
async def test_j3_a_run_that_cannot_be_begun_keeps_no_lease(
    kind: type[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Schedule, "apply", breaking((kind,)))
    other = open_journal(tmp_path / "runs.db")
    async with ch.Supervisor([steady], journal=tmp_path / "runs.db") as boss:
        with pytest.raises(InternalError, match="was broken off") as refused:
            await boss.run(make_plan(make_task("a", "steady"), goal="Break"))
        run = str(refused.value).split()[1]
        assert await other.leases.lead(run) > 1  # at once, while the first process still lives
    await other.close()


def test_j3_a_run_that_cannot_even_be_ended_is_set_aside_by_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Schedule, "apply", breaking((AttemptFinished, RunFinished)))
    boss = ch.Supervisor([steady], clock=FakeClock())

    async def runs() -> str:
        async with boss:
            broken = await boss.submit(make_plan(make_task("a", "steady"), goal="Break"))
            with pytest.raises(InternalError, match=f"run {broken.id} was broken off by ZeroDivi"):
                await broken.wait()
            assert (await boss.run(make_plan(make_task("a", "steady")))).status == "succeeded"
            return broken.id

    run = run_virtual(runs())
    assert f"run_broken_off run={run}" in caplog.text


def test_j3_what_the_journal_cannot_hold_ends_only_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a border had let something through: the run ends in words that can be stored."""
    monkeypatch.setattr("chargehand.engines.brief.checks.amount", lambda value, *_, **__: value)
    monkeypatch.setattr("chargehand.engines.brief.float", lambda value: value, raising=False)

    @ch.worker("odd", "Says odd things")
    async def odd(brief: ch.Brief) -> str:
        brief.progress("half", object())  # type: ignore[arg-type]  # on purpose
        await brief.step("later", len, "four")
        return "done"

    async def runs() -> tuple[ch.RunResult, ch.RunResult]:
        async with ch.Supervisor([odd, steady], journal=tmp_path / "runs.db") as boss:
            broken = await boss.submit(make_plan(make_task("a", "odd")))
            result = await broken.wait()
            return result, await boss.look(broken.id)

    result, looked = asyncio.run(runs())
    assert result.status == looked.status == "failed"
    assert "ProgressNoted holds what JSON cannot hold" in result.reason


POISON = """
import asyncio, os, sys
import chargehand as ch
from chargehand.decisions.schedule import Schedule

apply = Schedule.apply
def poisoned(self, event):
    if getattr(event, "request", "") == "Poison":
        os._exit(9)
    return apply(self, event)
Schedule.apply = poisoned

@ch.worker("w", "Works")
async def w(brief):
    return "fine"

async def main():
    async with ch.Supervisor([w], journal=sys.argv[1]) as boss:
        task = ch.Task(id="a", description="Do it well", worker="w")
        for _ in range(20):
            print((await boss.run(ch.Plan(goal="Good", tasks=[task]))).status)
            await asyncio.sleep(0.05)
            if any(not head.owner for head in await boss.journal.heads() if not head.is_ended):
                break
asyncio.run(main())
"""


def test_j4_a_posted_run_that_kills_its_leaders_is_parked_by_name(tmp_path: Path) -> None:
    """The third process writes it down without deciding anything, and a person may resume it."""
    database = tmp_path / "runs.db"

    @ch.worker("w", "Works")
    async def w(_: ch.Brief) -> str:
        return "fine"

    async def post() -> str:
        boss = ch.Supervisor([w], journal=database)
        run = await boss.post(make_plan(make_task("a", "w"), goal="Poison"))
        await boss.close()
        return run

    run = asyncio.run(post())
    ends = [
        subprocess.run(
            [sys.executable, "-c", POISON, str(database)],
            capture_output=True,
            text=True,
            check=False,
        )
        for _ in range(4)
    ]
    assert [end.returncode for end in ends] == [9, 9, 0, 0], ends[-1].stderr
    assert "succeeded" in ends[-1].stdout
    assert f"run_parked run={run}" in ends[2].stderr
    told = CliRunner().invoke(main, ["status", "--journal", str(database)])
    assert f"{run}  parked" in told.stdout
    way_out = f"chargehand resume {run} --journal {database} --crew FILE.py:NAME tries it again"
    assert way_out in told.stdout
    shown = CliRunner().invoke(main, ["show", run, "--journal", str(database)]).stdout
    assert f"run {run}: parked" in shown
    assert "it is parked: 2 processes" in shown
    assert way_out in shown
    assert "leads it" not in shown
    assert "waits for its parked run to be resumed" in shown

    async def resume() -> ch.RunResult:
        async with ch.Supervisor([w], journal=database) as boss:
            return await boss.resume(run)

    assert asyncio.run(resume()).status == "succeeded"


def _spoil(database: Path, run: str) -> None:
    """Change one event of a run, as a bad disk would."""
    connection = apsw.Connection(str(database))
    connection.execute(
        "UPDATE entries SET payload = CAST(replace(CAST(payload AS TEXT), 'fine', 'evil') AS BLOB) "
        "WHERE stream = (SELECT id FROM streams WHERE name = ?)",
        (run,),
    )
    connection.close()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_j2_whatever_passes_a_border_comes_back_from_the_event_codec(data: Any) -> None:
    try:
        done = ch.Done(Value.of(data))
    except NotJSON:
        return
    event = AttemptFinished(task="t", attempt=1, outcome=checked(done), at=START_AT)
    assert decode(encode(event)) == event
    assert event.outcome == done


@given(st.text(alphabet=st.characters(exclude_categories=())), st.floats(), st.text())
def test_j2_whatever_an_exception_is_like_its_failure_can_be_stored(
    words: str, wait: float, kind: str
) -> None:
    error = ch.WorkerError(words, kind=kind)
    error.retry_after = wait
    event = AttemptFinished(task="t", attempt=1, outcome=failed_by(error), at=START_AT)
    assert decode(encode(event)) == event


def test_j2_one_unreadable_run_is_named_and_all_others_are_shown(tmp_path: Path) -> None:
    database = tmp_path / "runs.db"

    @ch.worker("w", "Works")
    async def w(_: ch.Brief) -> str:
        return "fine"

    async def two() -> list[str]:
        async with ch.Supervisor([w], journal=database) as boss:
            return [(await boss.run(make_plan(make_task("a", "w")))).id for _ in range(2)]

    bad, good = asyncio.run(two())
    _spoil(database, bad)
    told = CliRunner().invoke(main, ["runs", "--json", "--journal", str(database)])
    rows = {row["run"]: row for row in map(json.loads, told.stdout.splitlines())}
    assert rows[good]["status"] == "succeeded"
    assert rows[bad]["status"] == "unreadable"
    assert f"chargehand verify {bad}" in rows[bad]["request"]

    async def again() -> str:
        async with ch.Supervisor([w], journal=database) as boss:
            return (await boss.run(make_plan(make_task("a", "w")))).status

    assert asyncio.run(again()) == "succeeded"


def test_verify_says_what_is_wrong_run_by_run_and_what_can_be_saved(tmp_path: Path) -> None:
    database = tmp_path / "runs.db"

    @ch.worker("w", "Works")
    async def w(brief: ch.Brief) -> str:
        return "fine" if brief.task.id == "b" else "well"

    async def two() -> list[str]:
        async with ch.Supervisor([w], journal=database) as boss:
            plan = make_plan(make_task("a", "w"), make_task("b", "w", "a"))
            return [(await boss.run(plan)).id for _ in range(2)]

    bad, good = asyncio.run(two())
    whole = CliRunner().invoke(main, ["verify", "--journal", str(database)])
    assert whole.exit_code == 0
    _spoil(database, bad)
    told = CliRunner().invoke(main, ["verify", "--journal", str(database)])
    assert told.exit_code == 1
    assert bad in told.stdout
    assert good not in told.stdout
    assert "it was changed" in told.stdout
    assert "tasks done: a" in told.stdout
    one = CliRunner().invoke(main, ["verify", bad, "--json", "--journal", str(database)])
    found = json.loads(one.stdout)
    assert found["run"] == bad
    assert found["done"] == ["a"]
    assert 0 < found["readable"] < found["events"]
    assert CliRunner().invoke(main, ["verify", good, "--journal", str(database)]).exit_code == 0
    (tmp_path / "runs.db-head").write_bytes(b"{}")
    marked = CliRunner().invoke(main, ["verify", good, "--journal", str(database)])
    assert marked.exit_code == 1
    assert "head mark" in marked.stdout


def test_verify_reads_the_boards_of_runs_too(tmp_path: Path) -> None:
    database = tmp_path / "runs.db"

    @ch.worker("w", "Works")
    async def w(brief: ch.Brief) -> str:
        return "well"

    async def posted() -> str:
        async with ch.Supervisor([w], journal=database) as boss:
            run = (await boss.run(make_plan(make_task("a", "w")))).id
            await boss.board(run=run).post("all is fine")
            return run

    run = asyncio.run(posted())
    assert CliRunner().invoke(main, ["verify", "--journal", str(database)]).exit_code == 0
    _spoil(database, f"board:run/{run}")
    told = CliRunner().invoke(main, ["verify", "--journal", str(database)])
    assert told.exit_code == 1
    assert "the board:" in told.stdout
    assert "tasks done: a" in told.stdout


def test_verify_reads_boards_with_a_name_too(tmp_path: Path) -> None:
    database = tmp_path / "runs.db"

    async def posted() -> None:
        async with ch.Supervisor([], journal=database) as boss:
            await boss.board("market").post("all is fine")

    asyncio.run(posted())
    whole = CliRunner().invoke(main, ["verify", "--journal", str(database)])
    assert "0 of 0 runs and 1 of 1 named boards are intact" in whole.stderr
    _spoil(database, "board:market")
    told = CliRunner().invoke(main, ["verify", "--journal", str(database)])
    assert told.exit_code == 1
    assert "board market" in told.stdout
    assert "0 of 1 named boards" in told.stderr


async def _told_by_server(chunks: int, *headers: tuple[str, str]) -> int:
    """The status with which the MCP server answers a body of so many megabytes."""
    boss = ch.Supervisor([])
    said: asyncio.Queue[str] = asyncio.Queue()
    serving = asyncio.create_task(serve_http(boss, say=said.put_nowait))
    url = (await said.get()).removeprefix("serving MCP at ")

    async def body() -> AsyncIterator[bytes]:
        for _ in range(chunks):
            yield b" " * 2**20

    known = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    has_length = ("Content-Length", str(chunks * 2**20)) in headers
    try:
        async with aiohttp.ClientSession() as session:
            data = io.BytesIO(b" " * (chunks * 2**20)) if has_length else body()
            async with session.post(url, data=data, headers={**known, **dict(headers)}) as reply:
                return reply.status
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # the way in which such a server is stopped
        await serving


@pytest.mark.parametrize("has_length", [True, False])
async def test_a_huge_body_is_refused_by_the_mcp_server_in_words(*, has_length: bool) -> None:
    length = [("Content-Length", str(60 * 2**20))] if has_length else []
    assert await _told_by_server(60, *length) == 413


async def test_pages_of_other_sites_are_refused_by_the_mcp_server() -> None:
    assert await _told_by_server(0, ("Sec-Fetch-Site", "cross-site")) == 403
    assert await _told_by_server(0, ("Sec-Fetch-Site", "same-origin")) != 403


def test_an_absurd_deadline_at_the_command_line_is_one_clear_line(tmp_path: Path) -> None:
    database = str(tmp_path / "runs.db")
    args = ["run", "Do it", "--deadline", "99999999h", "--journal", database]
    told = CliRunner().invoke(main, args)
    assert told.exit_code == 2
    assert "longer than anything can take" in told.stderr
    assert "Traceback" not in told.stderr
