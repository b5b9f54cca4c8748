"""J9: whatever waits longer than a second for a person, a worker, a provider or a time says so, once."""

import asyncio
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import chargehand as ch
from chargehand.decisions.wait_reasons import Cause, WaitReason
from chargehand.journal.open_journal import open_journal
from chargehand.journal.sqlite_file import LockWait
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task
from tests.watching import silent_waits, watched, watching

LATE = 1.3
#: seconds: a second, and the time from one look to the next
MANY = ch.TaskLimits(attempts=50)


@ch.worker("asker", "Asks a person")
async def ask(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?")


@ch.worker("slow", "Takes long")
async def slow(_: ch.Brief) -> None:
    await asyncio.sleep(20)


@ch.worker("short", "Takes a while")
async def short(_: ch.Brief) -> None:
    await asyncio.sleep(5)


@ch.worker("busy", "Is told to come back later, once")
async def busy(brief: ch.Brief) -> str:
    if brief.tries == 0:
        raise ch.WorkerError("full", kind="resource", retry_after=timedelta(seconds=20))
    return "done"


@ch.worker("down", "Cannot reach its service")
async def down(_: ch.Brief) -> None:
    raise ConnectionError("no route")


@ch.worker("broken", "Never works")
async def broken(_: ch.Brief) -> None:
    raise ch.WorkerError("no", kind="logic")


@ch.tool(effect="once", approve=True)
async def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def clerk() -> ch.Worker:
    calls = ch.ScriptedModel([ToolCall("1", "pay", '{"amount": 9}'), "It is paid."])
    return ch.Worker("clerk", "Pays bills", tools=[pay], model=calls)


def counter() -> ch.Worker:
    return ch.Worker("counter", "Counts", model=ch.ScriptedModel(["one", "two", "three"]))


SHORT = {"limits": ch.Limits(calls=1, active=10_000), "on_budget": "ask"}


def inner(_: ch.Brief) -> ch.Plan:
    return make_plan(make_task("in", "asker"))


async def never(_: ch.Supervisor, __: str) -> None:
    pass


async def pause(boss: ch.Supervisor, run: str) -> None:
    await boss.pause(run)


async def drain(boss: ch.Supervisor, _: str) -> None:
    await boss.drain("slow")


def later(worker: str, **more: Any) -> ch.Plan:
    """Something that begins to wait only after a while, beside work."""
    waits = make_task("c", worker, "a", **more)
    return make_plan(make_task("a", "short"), make_task("b", "slow"), waits)


Act = Callable[[ch.Supervisor, str], Awaitable[None]]
STORIES: dict[str, tuple[ch.Plan, Act, dict[str, Any]]] = {
    "question": (make_plan(make_task("a", "asker")), never, {}),
    "question beside work": (make_plan(make_task("a", "asker"), make_task("b", "slow")), never, {}),
    "two questions": (make_plan(make_task("a", "asker"), make_task("b", "asker")), never, {}),
    "approval": (make_plan(make_task("a", "clerk")), never, {}),
    "question below": (make_plan(make_task("a", "below")), never, {}),
    "failure": (make_plan(make_task("a", "broken", on_failure=ch.OnFailure(["ask"]))), never, {}),
    "retry": (make_plan(make_task("a", "busy")), never, {}),
    "pause": (make_plan(make_task("a", "slow"), make_task("b", "slow", "a")), pause, {}),
    "retry beside work": (later("busy"), never, {}),
    "question below beside work": (later("below"), never, {}),
    "breaker beside work": (later("down", limits=MANY), never, {}),
    "budget": (make_plan(*(make_task(name, "counter") for name in "abc")), never, SHORT),
    "no worker": (make_plan(make_task("a", "slow"), make_task("b", "slow", "a")), drain, {}),
}


#: how the wait of a story ends, as its warning says; those of people end with a command
ENDS = dict.fromkeys(STORIES, "end the wait with")
ENDS |= dict.fromkeys(
    ["retry", "retry beside work", "breaker beside work"], "it continues by itself"
)
ENDS["no worker"] = "end the wait with a worker that may take it, in the program that leads the run"


@pytest.mark.parametrize("name", STORIES)
def test_j9_no_wait_is_silent(name: str, caplog: pytest.LogCaptureFixture) -> None:
    plan, act, terms = STORIES[name]
    below = ch.Supervisor([ask], name="below", description="Has it asked", plan_for=inner)
    workers: list[Any] = [ask, slow, short, busy, broken, down, clerk(), counter(), below]

    async def story() -> None:
        async with ch.Supervisor(workers, clock=FakeClock()) as boss:
            run = await boss.submit(plan, **terms)
            await asyncio.sleep(0.1)
            await act(boss, run.id)
            seen = 0
            for _ in range(160):  # forty seconds
                await asyncio.sleep(0.25)
                waits = await waits_of(boss, run.id)
                seen += len(waits)
                assert [str(wait) for wait in waits if not is_said(wait, caplog)] == []
            assert seen, "the story has no wait in it"

    with caplog.at_level(logging.WARNING, "chargehand"):
        run_virtual(story())
    lines = [each.getMessage() for each in caplog.records if "run_waits" in each.getMessage()]
    assert [line for line, times in Counter(lines).items() if times > 1] == []  # once
    assert {line.rpartition("; ")[2].partition(":")[0] for line in lines} == {ENDS[name]}


async def waits_of(boss: ch.Supervisor, run: str) -> list[WaitReason]:
    """What waits for something outside, and has for more than a second."""
    waits = (await boss.look(run)).waits
    return [each for each in waits if each.cause is not Cause.NEEDS and each.seconds > LATE]


def is_said(wait: WaitReason, caplog: pytest.LogCaptureFixture) -> bool:
    lines = [each.getMessage() for each in caplog.records]
    begins = f"run_waits run={wait.run} task={wait.task} "
    # A question is said by the task that asks it, for all who wait for its answer.
    return any(
        line.startswith(begins) or (wait.question and f"answer({wait.question!r}" in line)
        for line in lines
    )


async def test_j9_a_lease_that_is_not_renewed_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chargehand.runtime.run_leader.SILENCE", 0.125)
    boss = ch.Supervisor([broken])
    looks = iter([False] * 6)
    monkeypatch.setattr(boss.journal.leases, "is_valid", lambda: next(looks, True))
    await boss.run(make_plan(make_task("a", "broken", on_failure=ch.OnFailure(["fail"]))))
    assert caplog.text.count("lease_not_renewed") == 1


# The watcher that looks at all programs of the docs and at the examples notices what is silent


def program(worker: Any, plan: ch.Plan) -> list[tuple[bool, str]]:
    """What a run of three seconds waits for, as the watcher tells it."""
    told: list[tuple[bool, str]] = []

    async def story() -> None:
        async with ch.Supervisor([worker], clock=FakeClock()) as boss:
            await boss.submit(plan)
            await asyncio.sleep(3)
            await boss.stop(0)

    with watching(lambda is_said, what: told.append((is_said, what))):
        run_virtual(story())
    return told


def limited() -> ch.Worker:
    said = ch.errors.ModelBusy("too many", retry_after=timedelta(seconds=4))
    return ch.Worker("clerk", "Writes", model=ch.ScriptedModel([said, "done"]))


@pytest.mark.parametrize(
    ("make", "name", "mouth"),
    [
        (lambda: ask, "asker", "runtime.wait_warnings.WaitWarnings._say"),
        (lambda: busy, "busy", "runtime.wait_warnings.WaitWarnings._say"),
        (limited, "clerk", "models.provider_queue.ProviderQueue._log"),
    ],
    ids=["question", "retry", "provider"],
)
@pytest.mark.parametrize("is_mute", [False, True])
def test_j9_the_watcher_of_the_docs_notices_a_silent_wait(
    make: Callable[[], Any],
    name: str,
    mouth: str,
    is_mute: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if is_mute:
        monkeypatch.setattr(f"chargehand.{mouth}", lambda *_: None)
    told = program(make(), make_plan(make_task("a", name)))
    assert told
    assert {is_said for is_said, _ in told} == {not is_mute}


MUTE = """
import asyncio
import chargehand as ch
from chargehand.runtime.wait_warnings import WaitWarnings
from chargehand.testing import FakeClock, run_virtual

WaitWarnings._say = {say}

@ch.worker("asker", "Asks a person")
async def ask(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?")

async def main():
    async with ch.Supervisor([ask], clock=FakeClock()) as boss:
        await boss.submit(ch.Plan(goal="g", tasks=[ch.Task(id="a", description="Ask it", worker="asker")]))
        await asyncio.sleep(3)
        await boss.stop(0)

run_virtual(main())
"""


@pytest.mark.parametrize(("say", "how"), [("WaitWarnings._say", "said "), ("print", "silent ")])
def test_j9_a_program_of_the_docs_is_watched(say: str, how: str, tmp_path: Path) -> None:
    (tmp_path / "story.py").write_text(MUTE.format(say=say))
    command = [sys.executable, "story.py"]
    subprocess.run(command, cwd=tmp_path, env=watched(tmp_path), check=True, capture_output=True)
    assert [line[: len(how)] for line in silent_waits(tmp_path, "s")] == [how]


# Locks


class Instants:
    """A clock that goes on only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_j9_a_lock_that_another_program_holds_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Instants()
    monkeypatch.setattr("chargehand.journal.sqlite_file.time", clock)
    wait = LockWait(Path("runs.db"), timedelta(seconds=4))
    for _ in range(2):  # the next time it is locked, it is said again
        caplog.clear()
        began, said, tries = clock.now, list[float](), 0
        while wait(tries):
            tries += 1
            said += [clock.now - began] * (len(caplog.records) - len(said))
        assert clock.now - began == pytest.approx(4)
        assert [at < 1.3 for at in said] == [True]
        assert "journal_waits path=runs.db" in caplog.text


async def test_j9_a_journal_that_is_locked_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("chargehand.journal.sqlite_file.SILENCE", 0.01)
    journal = open_journal(tmp_path / "runs.db", patience=timedelta(milliseconds=50))
    other = apsw.Connection(str(tmp_path / "runs.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ch.errors.JournalBusy, match="another program"):
        await journal.append("run", [ch.events.RunSteered(note="b", at=datetime.now(UTC))])
    other.close()
    assert caplog.text.count("journal_waits") == 1
    await journal.close()
