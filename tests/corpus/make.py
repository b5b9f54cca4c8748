"""Make the journal of the present format for the corpus: `python -m tests.corpus.make v2`.

Done once for each format, by the version that releases it, and never again: a journal that has to
be made anew for a test to pass is one that our users cannot make anew.
"""

import asyncio
import json
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw

import chargehand as ch
from tests.chaos import client

FOLDER = Path(__file__).parent


@ch.worker("asker", "Asks which colour it is to be")
async def asker(brief: ch.Brief) -> str:
    brief.progress("thinking", 0.5)
    return await brief.ask("Red or blue?", choices=["red", "blue"])


# These return their failures: what they raised would be kept with a stack that names our folders.
@ch.worker("broken", "Fails every time")
async def broken(brief: ch.Brief) -> ch.Failed:
    return ch.Failed(kind=ch.ErrorClass.LOGIC, message="this never works", error="ValueError")


@ch.worker("shaky", "Fails once")
async def shaky(brief: ch.Brief) -> ch.Failed | str:
    if brief.attempt == 1:
        return ch.Failed(kind=ch.ErrorClass.NETWORK, message="the other side hung up")
    return "in the end"


WORKERS = [each for each in client.WORKERS if each.name != "shaky"] + [shaky, asker, broken]


def task(id_: str, worker: str, *needs: ch.Need | str) -> ch.Task:
    return ch.Task(id=id_, description="Be kept for later versions", worker=worker, needs=needs)


PLANS = {
    "all effects": client.plan_of("small"),
    "answered": ch.Plan(goal="answered", tasks=[task("a", "asker"), task("b", "reader", "a")]),
    "asking": ch.Plan(goal="asking", tasks=[task("a", "asker"), task("b", "reader", "a")]),
    "broken": ch.Plan(
        goal="broken",
        tasks=[
            task("a", "broken"),
            task("b", "quick", "a"),
            task("c", "reader", ch.Need("a", optional=True)),
        ],
    ),
}


async def view(path: Path) -> dict[str, Any]:
    """What a journal comes to, as anybody can see it from outside, by the goal of each run."""
    journal = ch.open_journal(path)
    boss = ch.Supervisor(WORKERS, journal=journal)
    seen = {}
    for head in await journal.heads():
        result = await boss.look(head.stream)
        seen[head.stream] = {
            "events": head.seq,
            "status": result.status.value,
            "questions": [question.text for question in result.questions],
            "tasks": {
                id_: [
                    each.state.value,
                    each.attempts,
                    await asyncio.to_thread(_output, each),
                    each.why,
                ]
                for id_, each in result.tasks.items()
            },
        }
    await journal.close()
    return dict(sorted(seen.items()))


def _output(each: ch.TaskResult) -> Any:
    output = each.output
    return f"{len(output)} characters" if isinstance(output, str) and len(output) > 99 else output


async def make(folder: Path) -> None:
    client.log = client.MemoryLog()
    journal = ch.open_journal(folder / "runs.db")
    boss = ch.Supervisor(
        WORKERS,
        journal=journal,
        retry=ch.RetryPolicy(first=timedelta(milliseconds=5)),
    )
    async with boss:
        runs = {key: await boss.submit(plan, key=key) for key, plan in PLANS.items()}
        while not (questions := (await boss.look(runs["answered"].id)).questions):
            await asyncio.sleep(0.01)
        await boss.answer(questions[0].id, "blue", by="somebody")
        for key in ("all effects", "answered", "broken"):
            await runs[key].wait()
        while not (await boss.look(runs["asking"].id)).questions:
            await asyncio.sleep(0.01)
        await boss.stop(timedelta(0))
    await journal.processes.serve("{}")  # what makes a journal one of format 2
    await journal.close()


def tidy(path: Path) -> None:
    """Clear away what was deleted but still lies in the file, such as the name of this machine."""
    connection = apsw.Connection(str(path))
    connection.execute("VACUUM")
    connection.close()


def main() -> None:
    folder = FOLDER / sys.argv[1]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    asyncio.run(make(folder))
    tidy(folder / "runs.db")
    seen = asyncio.run(view(folder / "runs.db"))
    text = json.dumps(seen, indent=1, ensure_ascii=False, sort_keys=True)
    (folder / "view.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
