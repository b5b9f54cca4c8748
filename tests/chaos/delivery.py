"""C2, C3, C5: workers that report late, slowly, or twice."""

import asyncio
import os
import random
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.engines.base import Ending, Job
from chargehand.facts.events import KINDS, ResultRefused
from chargehand.runtime import Runtime
from chargehand.supervisor import shared_runtime

from . import client
from .disks import here
from .oracle import Verdict, check_ended, read_journal, verify

SHORT = timedelta(seconds=0.1)


def task(id_: str, worker: str, *needs: str, deadline: timedelta | None = None) -> ch.Task:
    return ch.Task(
        id=id_, description="Report for the test", worker=worker, needs=needs, deadline=deadline
    )


def run_here(
    folder: Path, workers: list[ch.FunctionWorker], tasks: list[ch.Task], verdict: Verdict
) -> ch.RunResult:
    """Lead one run in this process, and hold its journal against what was told."""
    folder.mkdir(parents=True, exist_ok=True)
    log = here("small")

    async def lead() -> ch.RunResult:
        journal = ch.open_journal(folder / "runs.db")
        boss = ch.Supervisor(
            workers,
            journal=journal,
            retry=ch.RetryPolicy(first=timedelta(milliseconds=5)),
            limits=ch.Limits(grace=timedelta(seconds=0.05)),
        )
        boss.on(*KINDS.values())(log.acknowledge)
        async with boss:
            result = await boss.run(ch.Plan(goal="report", tasks=tasks))
        await journal.close()
        return result

    result = asyncio.run(lead())
    verdict.add(verify(read_journal(folder / "runs.db"), log.lines()))
    return result


def c2_trial(seed: int, folder: Path) -> Verdict:
    """Workers are given up, and report when their tasks are settled: written down, and no more."""
    rng = random.Random(f"C2 {seed}")
    verdict = Verdict()
    count = rng.randint(10, 30)

    @ch.worker("deaf", "Does not stop when told to")
    async def deaf(brief: ch.Brief) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(rng.uniform(0.1, 0.4))  # past the grace of 0.05 s
        return "too late"

    @ch.worker("keeper", "Keeps the run going")
    async def keeper(brief: ch.Brief) -> str:
        await asyncio.sleep(1.0)
        return "kept"

    late = [task(f"t{number}", "deaf", deadline=SHORT) for number in range(count)]
    result = run_here(folder, [deaf, keeper], [*late, task("keeper", "keeper")], verdict)
    (entries,) = read_journal(folder / "runs.db").values()
    refused = [entry.event for entry in entries if isinstance(entry.event, ResultRefused)]
    verdict.fired += count
    verdict.must(len(refused) == count, f"{len(refused)} of {count} late results were refused")
    for id_, each in result.tasks.items():
        wanted = "done" if id_ == "keeper" else "failed"
        verdict.must(each.state.value == wanted, f"{id_} is {each.state.value}")
    verdict.must(result.tasks["keeper"].output == "kept", "the keeper's result was changed")
    return verdict


def c2_thread_trial(seed: int, folder: Path) -> Verdict:
    """A thread that outlives its timeout can neither report nor begin another effect."""
    verdict = Verdict()
    happened: list[int] = []
    ends = threading.Semaphore(0)

    @ch.worker("thread", "Sleeps, then wants to change the world", timeout=SHORT)
    def thread(brief: ch.Brief) -> str:
        if brief.attempt > 1:
            return "in time"
        time.sleep(0.5)
        try:
            brief.wait(brief.step("effect", happened.append, 1, effect="once"))
        finally:
            ends.release()
        return "too late"

    @ch.worker("keeper", "Keeps the run going")
    async def keeper(brief: ch.Brief) -> None:
        await asyncio.sleep(1.0)

    tasks = [task(f"t{number}", "thread") for number in range(5)]
    result = run_here(folder, [thread, keeper], [*tasks, task("keeper", "keeper")], verdict)
    verdict.fired += sum(ends.acquire(timeout=5.0) for _ in tasks)
    verdict.must(not happened, f"{len(happened)} effects after the task was given to another")
    outputs = {result.tasks[each.id].output for each in tasks}
    verdict.must(outputs == {"in time"}, f"the results are {outputs}")
    return verdict


def hangs(brief: ch.Brief) -> str:
    """For a child process: stops itself, as a hung one would be, at its first try."""
    if brief.attempt == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        return "too late"
    return "in time"


def c2_process_trial(seed: int, folder: Path) -> Verdict:
    """A worker process that is stopped in mid-attempt is given up and killed; another does it."""
    verdict = Verdict()
    hung = ch.worker("hung", "Hangs once", timeout=timedelta(seconds=3), process=True)(hangs)
    result = run_here(folder, [hung], [task("t", "hung")], verdict)
    done = result.tasks["t"]
    verdict.fired += done.attempts == 2
    verdict.must(
        (done.output, done.attempts) == ("in time", 2), f"{done.output!r} at {done.attempts}"
    )
    return verdict


def c3_trial(seed: int, folder: Path) -> Verdict:
    """Workers are ten times slower than they may be: each is stopped in time, deaf ones too."""
    verdict = Verdict()

    @ch.worker("slow", "Takes ten times too long", timeout=SHORT)
    async def slow(brief: ch.Brief) -> None:
        await asyncio.sleep(1.0)

    @ch.worker("deaf", "Takes ten times too long and does not stop when told to", timeout=SHORT)
    async def deaf(brief: ch.Brief) -> str:
        try:
            await asyncio.sleep(5.0)
        except asyncio.CancelledError:
            await asyncio.sleep(2.0)
        return "too late"

    @ch.worker("idler", "Takes ten times longer than its task has time")
    async def idler(brief: ch.Brief) -> None:
        await asyncio.sleep(1.0)

    tasks = [task("slow", "slow"), task("deaf", "deaf"), task("idler", "idler", deadline=SHORT)]
    before = time.monotonic()
    result = run_here(folder, [slow, deaf, idler], tasks, verdict)
    took = time.monotonic() - before
    verdict.fired += len(tasks)
    for id_, each in result.tasks.items():
        kind = None if each.error is None else each.error.kind
        verdict.must(kind is ch.ErrorClass.TIMEOUT, f"{id_} is {each.state.value} by {kind}")
    # Three tries of 0.1 s and the 0.5 s in which a deaf one could have tidied up after each.
    verdict.figures["wall_s"] = took
    verdict.must(took < 4.0, f"it took {took:.1f} s")
    return verdict


class TwiceShift(Runtime):
    """Hears everything twice from the engine and from the briefs."""

    heard = 0

    def report(self, job: Job, outcome: Ending) -> None:
        super().report(job, outcome)
        super().report(job, outcome)
        TwiceShift.heard += 1


def c5_trial(seed: int, folder: Path) -> Verdict:
    """Every report is delivered twice; so are an answer and a cancellation."""
    verdict = Verdict()
    folder.mkdir(parents=True)
    log = here("wide")
    before = TwiceShift.heard

    @ch.worker("asker", "Asks")
    async def asker(brief: ch.Brief) -> str:
        return await brief.ask("Red or blue?", choices=["red", "blue"])

    async def lead() -> None:
        journal = ch.open_journal(folder / "runs.db")
        async with client.supervisor_on(journal, log) as boss:
            await client.lead(boss, "chaos")
        await journal.close()

    async def ask() -> ch.RunResult:
        journal = ch.open_journal(folder / "asked.db")
        async with ch.Supervisor([asker], journal=journal) as boss:
            run = await boss.submit(ch.Plan(goal="ask", tasks=[task("t", "asker")]))
            while not (questions := (await boss.look(run.id)).questions):
                await asyncio.sleep(0.01)
            answers = await asyncio.gather(
                *(boss.answer(questions[0].id, colour) for colour in ("red", "red", "blue")),
                return_exceptions=True,
            )
            verdict.must(answers.count(None) == 1, f"the answers were taken as {answers}")
            result = await run.wait()
            await asyncio.gather(run.cancel(), run.cancel())
        await journal.close()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_runtime, "Runtime", TwiceShift)
        asyncio.run(lead())
        asked = asyncio.run(ask())
    verdict.fired += TwiceShift.heard - before
    verdict.must(asked.tasks["t"].output == "red", "the second answer counted")
    runs = read_journal(folder / "runs.db")
    verdict.add(verify(runs, log.lines()))
    verdict.add(verify(read_journal(folder / "asked.db"), []))
    check_ended(runs, verdict)
    return verdict
