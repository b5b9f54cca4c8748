"""Runs with a past: of earlier versions, of killed processes, of leaders with waits of their own."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import chargehand as ch
from chargehand import recordings
from chargehand.facts.events import AttemptLost, RunLed

CORPUS = Path(__file__).parent.parent / "corpus"

CHILD = """
import asyncio, os, signal, sys
import chargehand as ch

@ch.worker("steps", "Takes steps")
async def steps(brief):
    await brief.step("first", lambda: 1, effect="pure")
    if brief.task.id == "b" and sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return brief.task.id

async def main():
    tasks = [ch.Task(id=i, description=f"Take the steps of {i}", worker="steps", needs=n)
             for i, n in (("a", []), ("b", ["a"]), ("c", []))]
    async with ch.Supervisor([steps], journal=sys.argv[1], retry=ch.RetryPolicy(first=0.01)) as boss:
        if sys.argv[2] == "die":
            await boss.run(ch.Plan(goal="Take steps", tasks=tasks), key="k")
        else:
            (head,) = await boss.journal.heads()
            print((await boss.resume(head.stream)).status)

asyncio.run(main())
"""


async def replayed(journal: str) -> list[str]:
    """What is wrong with each run of a journal; nothing, if all is well."""
    opened = ch.open_journal(journal)
    try:
        archives = [await recordings.load(head.stream, opened) for head in await opened.heads()]
        reports = [await recordings.replay(archive) for archive in archives]
    finally:
        await opened.close()
    assert reports
    for report in reports:
        assert report.difference is not None or report.runs[0].recomputed == report.runs[0].hash
    return [str(each.difference) for each in reports if each.difference is not None]


def test_of_runs_of_earlier_versions_only_what_is_new_differs(tmp_path: Path) -> None:
    """The shortest time of a worker, and a leader's own waits between tries: neither was recorded then."""
    for version in sorted(path for path in CORPUS.iterdir() if (path / "runs.db").exists()):
        shutil.copytree(version, tmp_path / version.name)
        found = asyncio.run(replayed(str(tmp_path / version.name / "runs.db")))
        old = [each for each in found if ".least was recorded as null" not in each]
        assert all("RetryPlanned of t02: due_at" in each for each in old)
        assert len(found) < 4


async def test_a_run_whose_process_was_killed_replays(tmp_path: Path) -> None:
    """Killed with -9 in the middle of a task, and resumed by another process."""
    journal = str(tmp_path / "runs.db")
    for how, code in (("die", -signal.SIGKILL), ("resume", 0)):
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CHILD, journal, how),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "default"},
        )
        out, _ = await child.communicate()
        assert child.returncode == code
    assert out.decode().strip() == "succeeded"
    opened = ch.open_journal(journal)
    (head,) = await opened.heads()
    events = [entry.event async for entry in opened.read(head.stream)]
    await opened.close()
    assert sum(isinstance(event, RunLed) for event in events) == 2
    assert any(isinstance(event, AttemptLost) for event in events)
    assert await replayed(journal) == []


async def test_each_leader_is_replayed_with_its_own_waits(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"
    asked: list[int] = []

    @ch.worker("fails", "Fails, and asks")
    async def fails(brief: ch.Brief) -> str:
        if brief.attempt < 3:
            raise ConnectionError("gone")
        asked.append(brief.attempt)
        return await brief.ask("Well?") if len(asked) == 1 else "well"

    plan = ch.Plan(
        goal="Fail", tasks=[ch.Task(id="a", description="Fail twice, then ask", worker="fails")]
    )
    first = ch.RetryPolicy(first=0.001, jitter=0)
    async with ch.Supervisor([fails], journal=journal, retry=first, on_question="return") as boss:
        left = await boss.run(plan)
    assert left.status == "waiting"
    second = ch.RetryPolicy(first=0.002, jitter=0.5)
    async with ch.Supervisor([fails], journal=journal, retry=second) as boss:
        await boss.answer(left.questions[0].id, "yes")
        assert (await boss.resume(left.id)).status == "succeeded"
    assert await replayed(str(journal)) == []
