"""`chargehand prune` and retention under kills: a run is whole or gone, and the next prune finishes the work."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.clock import SystemClock
from chargehand.errors import UnknownRun, UsageError
from chargehand.facts.retention import Retention
from chargehand.journal.base import Head
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.verify import verified
from chargehand.supervisor.periodic_prune import INTERVAL, pruning
from chargehand.testing import FakeClock, LosingJournal, run_virtual

TASKS = [
    ch.Task(id=f"t{each}", description="Write", worker="writer", args={"length": length})
    for each, length in enumerate((10, 9_000, 80_000))
]
PLAN = ch.Plan(goal="Words", tasks=TASKS)


@ch.worker("writer", "Writes")
async def writer(brief: ch.Brief) -> str:
    # The whole id, not its last character: runs that write the same share it, and it counts for neither.
    length = int(brief.task.args["length"])
    return (brief.run * length)[:length]


def make_runs(path: Path, number: int) -> list[str]:
    async def work() -> list[str]:
        async with ch.Supervisor([writer], journal=path) as boss:
            return [(await boss.run(PLAN)).id for _ in range(number)]

    return asyncio.run(work())


def prune(path: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["prune", "--journal", str(path), *words])


def test_a_dry_run_says_what_would_go_and_deletes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    runs = make_runs(path, 3)
    told = prune(path, "--keep", "1", "--dry-run")
    assert told.exit_code == 0
    assert all(run in told.stdout for run in runs[:2])
    assert runs[2] not in told.stdout
    assert "beyond the newest 1" in told.stdout
    assert "would delete 2 runs" in told.stderr
    assert prune(path, "--keep", "3", "--dry-run").stdout == ""


def test_what_was_deleted_is_told_as_json(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    runs = make_runs(path, 3)
    *gone, total = map(json.loads, prune(path, "--keep", "1", "--json").stdout.splitlines())
    assert [each["run"] for each in gone] == runs[:2]
    assert gone[0]["nested"] == 0
    assert gone[0]["size"] > 80_000
    assert total["runs"] == 2
    assert total["size_after"] < total["size_before"]
    listed = CliRunner().invoke(main, ["runs", "--journal", str(path)])
    assert runs[2] in listed.stdout
    assert runs[0] not in listed.stdout


def test_a_deleted_run_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    run, _ = make_runs(path, 2)
    prune(path, "--keep", "1")
    for keep in ("1", "0"):
        prune(path, "--keep", keep)
        told = CliRunner().invoke(main, ["show", run, "--journal", str(path)])
        assert told.exit_code == 2
        assert "retention deleted its events" in told.stderr


def test_a_journal_that_cannot_be_brought_below_a_size_says_why(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    make_runs(path, 1)
    told = prune(path, "--max-size", "1k")
    assert told.exit_code == 0
    assert "still more than 1.0 kB" in told.stderr


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ([], "say what to delete"),
        (["--older-than", "soon"], "not a length of time"),
        (["--older-than", "30"], "or 30d"),
        (["--keep", "-1"], "--keep"),
        (["--max-size", "huge"], "not a size"),
        (["--max-size", "10"], "'10' is not a size with a unit; write 500MB"),
    ],
)
def test_bad_options_are_refused_and_delete_nothing(
    tmp_path: Path, words: list[str], fact: str
) -> None:
    path = tmp_path / "runs.db"
    make_runs(path, 1)
    told = prune(path, *words)
    assert told.exit_code == 2
    assert fact in told.stderr
    assert "1 of 1 runs" in CliRunner().invoke(main, ["verify", "--journal", str(path)]).stderr


def test_there_must_be_a_journal(tmp_path: Path) -> None:
    told = prune(tmp_path / "none.db", "--keep", "1")
    assert told.exit_code == 2
    assert "there is no journal" in told.stderr
    assert not (tmp_path / "none.db").exists()


def rows(path: Path, table: str) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").get)
    finally:
        connection.close()


@pytest.mark.parametrize("nth", [1, 2, 5, 11, 23, 37, 60, 110])
def test_killed_in_the_middle_a_run_is_whole_or_gone(tmp_path: Path, nth: int) -> None:
    """Killed with -9 at the n-th write of the pruning process."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace; get it with: apt-get install strace")
    path = tmp_path / "runs.db"
    runs = make_runs(path, 6)
    inject = ("-e", "trace=pwrite64", "-e", f"inject=pwrite64:signal=KILL:when={nth}")
    command = [sys.executable, "-m", "chargehand", "prune", "--journal", str(path), "--keep", "2"]
    ended = subprocess.run(
        ["strace", "-f", "-o", str(tmp_path / "strace"), *inject, *command],
        capture_output=True,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr

    async def look() -> None:
        journal = SqliteJournal(path)
        whole = {each.run: each async for each in verified(journal)}
        assert set(runs[4:]) <= set(whole)
        for run in runs:
            if run in whole:
                assert not whole[run].faults
                assert len(whole[run].done) == 3
            else:
                with pytest.raises(UnknownRun, match="retention"):
                    await anext(journal.read(run))
        await journal.close()

    asyncio.run(look())
    assert prune(path, "--keep", "2").exit_code == 0
    per_run = rows(path, "entries") / 2
    assert per_run == int(per_run)
    assert rows(path, "blob_refs WHERE stream <> 0") == 2
    assert {*runs[4:]} == _names(path)


def _names(path: Path) -> set[str]:
    async def look() -> set[str]:
        async with SqliteJournal(path) as journal:
            return {head.stream for head in await journal.heads(forgotten=False)}

    return asyncio.run(look())


async def test_a_supervisor_that_serves_deletes_what_its_policy_excludes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boss = ch.Supervisor([writer], journal=tmp_path / "runs.db", retention=Retention(keep=2))
    runs = [(await boss.run(PLAN)).id for _ in range(5)]
    caplog.set_level("INFO", "chargehand.retention")
    serving = asyncio.create_task(boss.serve())
    posted = await boss.post(PLAN)
    async for event in boss.watch(posted):
        assert event is not None  # it takes runs meanwhile
    while "runs_pruned" not in caplog.text:
        await asyncio.sleep(0.01)
    kept = {head.stream for head in await boss.journal.heads(forgotten=False)}
    assert not kept & set(runs[:3])
    assert all(f"run_pruned run={run}" in caplog.text for run in runs[:3])
    await boss.stop()
    await serving
    await boss.close()


async def test_the_policy_of_serve_goes_before_that_of_the_supervisor(tmp_path: Path) -> None:
    boss = ch.Supervisor([writer], journal=tmp_path / "runs.db", retention=Retention(keep=9))
    with pytest.raises(UsageError, match="must be a Retention"):
        await boss.serve(retention="30d")  # type: ignore[arg-type]  # as somebody might write it
    for _ in range(3):
        await boss.run(PLAN)
    serving = asyncio.create_task(boss.serve(retention=Retention(keep=0)))
    while await boss.journal.heads(forgotten=False):
        await asyncio.sleep(0.01)
    await boss.stop()
    await serving
    await boss.close()


def test_a_policy_waits_for_a_lost_database_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "chargehand.retention")

    async def serve() -> list[Head]:
        journal, clock = LosingJournal(patience=0), FakeClock()
        for _ in range(3):
            await ch.Supervisor([writer], journal=journal, clock=clock).run(PLAN)
        journal.lose(seconds=60)
        async with pruning(journal, Retention(keep=1), clock):
            await asyncio.sleep(INTERVAL / 2)
            assert "prune_failed" in caplog.text
            assert len(await journal.heads(forgotten=False)) == 3
            await asyncio.sleep(INTERVAL)
        return await journal.heads(forgotten=False)

    assert len(run_virtual(serve())) == 1
    assert "runs_pruned runs=2" in caplog.text


def damage(path: Path, run: str, *, at_end: bool) -> None:
    """Lose the last event of a run, or change one in its middle."""
    connection = apsw.Connection(str(path))
    [(stream, last)] = connection.execute("SELECT id, seq FROM streams WHERE name = ?", (run,))
    if at_end:
        connection.execute("DELETE FROM entries WHERE stream = ? AND seq = ?", (stream, last))
    else:
        connection.execute(
            "UPDATE entries SET payload = x'7b7d' WHERE stream = ? AND seq = 4", (stream,)
        )
    connection.close()


@pytest.mark.parametrize("at_end", [False, True], ids=["changed", "cut off"])
@pytest.mark.parametrize("words", [("--keep", "0"), ("--max-size", "1k")], ids=["all", "size"])
def test_a_damaged_run_is_kept_until_that_is_asked_for(
    tmp_path: Path, words: tuple[str, str], *, at_end: bool
) -> None:
    path = tmp_path / "runs.db"
    broken, sound = make_runs(path, 2)
    damage(path, broken, at_end=at_end)
    told = prune(path, *words, "--dry-run")
    assert (broken in told.stdout, sound in told.stdout) == (False, True)
    told = prune(path, *words)
    assert f"run {broken} is kept, because it is damaged: " in told.stderr
    assert f"chargehand verify {broken} --journal {path}" in told.stderr
    assert "deleted 1 run;" in told.stderr
    assert _names(path) == {broken}
    *_, total = map(json.loads, prune(path, *words, "--json").stdout.splitlines())
    assert (total["runs"], total["damaged"]) == (0, [broken])
    assert broken in prune(path, *words, "--damaged").stdout
    assert _names(path) == set()


async def test_a_server_keeps_damaged_runs_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "runs.db"
    broken, sound = await asyncio.to_thread(make_runs, path, 2)
    damage(path, broken, at_end=False)
    caplog.set_level("INFO", "chargehand.retention")
    async with SqliteJournal(path) as journal, pruning(journal, Retention(keep=0), SystemClock()):
        while "runs_pruned" not in caplog.text:
            await asyncio.sleep(0.01)
    assert f"run_pruned run={sound}" in caplog.text
    assert caplog.text.count(f"prune_kept_damaged run={broken} error=") == 1
    assert await asyncio.to_thread(_names, path) == {broken}


def test_a_crew_file_and_the_command_line_give_a_policy(tmp_path: Path) -> None:
    crew = tmp_path / "crew.toml"
    crew.write_text(
        '[crew]\njournal = "runs.db"\n[crew.retention]\nkeep = 1\n'
        '[[worker]]\nname = "w"\ndescription = "Works"\n'
    )
    make_runs(tmp_path / "runs.db", 3)
    command = [sys.executable, "-m", "chargehand", "serve", "--crew", str(crew)]

    def served(*words: str) -> str:
        with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            said = []
            for line in server.stderr:
                said.append(line)
                if "runs_pruned" in line:
                    server.send_signal(signal.SIGTERM)
            return "".join(said)

    assert "runs_pruned runs=2" in served()
    assert "runs_pruned runs=1" in served("--prune-older-than", "1ms")


def test_a_crew_file_with_a_policy_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    crew = tmp_path / "crew.toml"
    crew.write_text(
        '[crew.retention]\nmax_size = 2\nkeep = -1\n[[worker]]\nname = "w"\ndescription = "Works"\n'
    )
    told = CliRunner().invoke(main, ["serve", "--crew", str(crew)])
    assert told.exit_code == 2
    assert "size in quotes" in told.stderr
    assert "keep" in told.stderr
