"""The process that is broken: leads a run over a journal and writes down what it was promised.

`python -m tests.chaos.client FOLDER '{"kill": …}'` runs one plan under one key, so that every life
of it goes on with the same run. Each event is put into FOLDER/log when a hook hears of it, which is
after it is durable, and so is each effect when it happens: one file, appended to by single calls,
so that its order is the order of what happened, whenever the process is killed.
"""

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

import chargehand as ch
from chargehand.errors import JournalBusy, NotLeading
from chargehand.facts.events import KINDS, encode
from chargehand.journal.base import Journal

KEY = "chaos"
EFFECTS = ("pure", "idempotent", "keyed", "once")
#: more than an event holds, so that it goes to a blob
BIG = 70_000


class Options(msgspec.Struct, forbid_unknown_fields=True):
    """How one life of a client is to go."""

    shape: str = "wide"
    #: "before" or "after": end the process that much around the effect of `victim`
    kill: str = ""
    #: task and step, as in "t05/once"
    victim: str = ""
    lease: float = 10.0
    patience: float = 10.0
    blob_dir: str = ""
    #: seconds that each effect takes
    pause: float = 0.0
    #: one run for each
    keys: tuple[str, ...] = (KEY,)
    #: the key of a run that others want to lead as well
    shared: str = ""
    #: lead the first run with `run_sync`, as a script does, and let it be stopped
    sync: bool = False


class Log:
    """An append-only file. A kill can tear the line that is being written, and only where a page of the file ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.life = f"{os.getpid()}-{secrets.token_hex(3)}"
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._handle).st_size
        if size and os.pread(self._handle, 1, size - 1) != b"\n":
            os.writev(self._handle, [b"\n"])  # the next line is not to run on from a torn one

    def add(self, **line: Any) -> None:
        # writev, because the kills are aimed at the n-th write and are to hit the journal's.
        os.writev(self._handle, [msgspec.json.encode({"life": self.life, **line}) + b"\n"])

    def acknowledge(self, run: str, event: ch.Event) -> None:
        self.add(run=run, ack=msgspec.Raw(encode(event)))

    def lines(self) -> list[dict[str, Any]]:
        return lines_of(self.path)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """What was said, without a line that a kill tore, or that is being written just now."""
    if not log.exists():
        return []
    whole, _, _ = log.read_bytes().rpartition(b"\n")
    return [msgspec.json.decode(line) for line in whole.splitlines() if line.endswith(b"}")]


class MemoryLog(Log):
    """The same for a client in the process of the test itself."""

    def __init__(self, life: str = "here") -> None:
        self.life = life
        self.kept: list[dict[str, Any]] = []

    def add(self, **line: Any) -> None:
        self.kept.append(msgspec.json.decode(msgspec.json.encode({"life": self.life, **line})))

    def lines(self) -> list[dict[str, Any]]:
        return self.kept


log: Log
options = Options()


def happen(run: str, task: str, step: str, key: str = "") -> str:
    """An effect on the world: a line in the log. Dies around it if told to."""
    is_victim = options.victim == f"{task}/{step}"
    if is_victim and options.kill == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    token = secrets.token_hex(4)
    log.add(run=run, ran=f"{task}/{step}", key=key, token=token)
    if is_victim and options.kill == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    if options.pause:
        time.sleep(options.pause)
    return token


def keyed(run: str, task: str, step: str, *, key: str) -> str:
    return happen(run, task, step, key)


async def all_steps(brief: ch.Brief) -> dict[str, Any]:
    tokens = {}
    for effect in EFFECTS:
        function = keyed if effect == "keyed" else happen
        args = (brief.run, brief.task.id, effect)
        tokens[effect] = await brief.step(effect, function, *args, effect=effect)
    return tokens


@ch.worker("quick", "Returns its own name")
async def quick(brief: ch.Brief) -> str:
    return brief.task.id


@ch.worker("careful", "Takes a step of every class of effect")
async def careful(brief: ch.Brief) -> dict[str, Any]:
    return await all_steps(brief)


@ch.worker("threaded", "Takes the same steps from a thread")
def threaded(brief: ch.Brief) -> dict[str, Any]:
    return brief.wait(all_steps(brief))


@ch.worker("shaky", "Is refused by the network at its first try, after half of its steps")
async def shaky(brief: ch.Brief) -> dict[str, Any]:
    if brief.attempt > 1:
        return await all_steps(brief)
    args = (brief.run, brief.task.id)
    await brief.step("pure", happen, *args, "pure", effect="pure")
    raise ConnectionError("the other side hung up")


@ch.worker("large", "Returns more than fits into an event")
async def large(brief: ch.Brief) -> str:
    return brief.task.id * (BIG // len(brief.task.id) + 1)


@ch.worker("reader", "Takes in what others returned")
async def reader(brief: ch.Brief) -> int:
    return sum(len(json.dumps(value)) for value in brief.inputs.values())


WORKERS = [quick, careful, threaded, shaky, large, reader]


def plan_of(shape: str) -> ch.Plan:
    """60 tasks in four layers ("wide") or in one ("flat"), or 12 ("small"), of all workers.

    "plain" is like "small" without anything that goes to a blob.
    """
    width, depth = {"wide": (15, 4), "flat": (60, 1), "small": (4, 3), "plain": (4, 3)}[shape]
    kinds = ["careful", "quick", "shaky", "threaded", "large", "reader", "quick"]
    if shape == "plain":
        kinds.remove("large")
    tasks = []
    for number in range(width * depth):
        layer, place = divmod(number, width)
        above = [(layer - 1) * width + (place + step) % width for step in (0, 1)] if layer else []
        tasks.append(
            ch.Task(
                id=f"t{number:02}",
                description="Make a line in the log for the test",
                worker=kinds[(number + layer) % len(kinds)],
                needs=[f"t{need:02}" for need in dict.fromkeys(above)],
            )
        )
    return ch.Plan(goal=f"chaos {shape}", tasks=tasks)


def token_of(run: str, step: str) -> str | None:
    """The token of an effect that did happen, as a person would find out by looking."""
    for line in log.lines():
        if line.get("run") == run and line.get("ran") == step:
            return str(line["token"])
    return None


async def answer_doubts(boss: ch.Supervisor, run: str) -> None:
    """Play the person who is asked about steps in doubt, and who always tells the truth."""
    for question in (await boss.look(run)).questions:
        log.add(run=run, asked=question.id)
        task = question.id.split(":")[1]
        token = token_of(run, f"{task}/once")
        text = "run it again" if token is None else f'it ran: "{token}"'
        try:
            await boss.answer(question.id, text)
        except ch.UsageError:
            continue  # answered already, by what was decided since we looked
        log.add(run=run, answered=question.id)


async def lead(boss: ch.Supervisor, key: str) -> ch.RunResult:
    """Lead the run of this key to its end, and answer what is asked on the way."""
    run = await boss.submit(plan_of(options.shape), key=key)
    log.add(run=run.id, submitted=key)
    ending = asyncio.ensure_future(run.wait())
    while not ending.done():
        await answer_doubts(boss, run.id)
        await asyncio.wait([ending], timeout=0.02)
    return ending.result()


def journal_at(folder: Path, options: Options) -> Journal:
    return ch.open_journal(
        folder / "runs.db",
        lease=timedelta(seconds=options.lease),
        patience=timedelta(seconds=options.patience),
        blob_dir=options.blob_dir or None,
    )


def supervisor_on(journal: Journal, log: Log) -> ch.Supervisor:
    retry = ch.RetryPolicy(first=timedelta(milliseconds=10))
    boss = ch.Supervisor(WORKERS, journal=journal, retry=retry)
    boss.on(*KINDS.values())(log.acknowledge)
    return boss


async def contend(boss: ch.Supervisor, key: str) -> ch.RunResult:
    """Lead the run of this key, or wait until whoever leads it has ended it or has died."""
    while True:
        try:
            return await lead(boss, key)
        except (NotLeading, JournalBusy) as error:
            log.add(refused=key, by=type(error).__name__)
            await asyncio.sleep(0.02)


async def live(folder: Path) -> None:
    journal = journal_at(folder, options)
    log.add(node=journal.leases.node)
    async with supervisor_on(journal, log) as boss:
        stalls = asyncio.ensure_future(watch_loop())
        leading = [lead(boss, key) for key in options.keys]
        if options.shared:
            leading.append(contend(boss, options.shared))
        results = await asyncio.gather(*leading)
        stalls.cancel()
    for result in results:
        log.add(run=result.id, ended=result.status.value)
    await journal.close()


async def watch_loop() -> None:
    """Note how late the event loop is, every few milliseconds."""
    lates: list[float] = []
    try:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            lates.append(time.monotonic() - before - 0.005)
    finally:
        log.add(stall_p99=p99_of(lates))


def p99_of(lates: list[float]) -> float:
    return sorted(lates)[int(len(lates) * 0.99)] if lates else 0.0


def live_sync(folder: Path) -> None:
    boss = supervisor_on(journal_at(folder, options), log)
    try:
        result = boss.run_sync(plan_of(options.shape), key=options.keys[0])
        log.add(run=result.id, ended=result.status.value)
    except ch.RunInterrupted as interrupted:
        log.add(run=interrupted.run, interrupted=str(interrupted))


def main() -> None:
    global log, options  # effects are plain functions, which have nobody else to ask
    logging.basicConfig(level=logging.WARNING)
    folder = Path(sys.argv[1])
    options = msgspec.json.decode(sys.argv[2] if len(sys.argv) > 2 else "{}", type=Options)
    log = Log(folder / "log")
    log.add(born=time.monotonic())
    try:
        if options.sync:
            live_sync(folder)
        else:
            asyncio.run(live(folder))
    except ch.JournalError as error:
        log.add(error=type(error).__name__, words=str(error))
        sys.exit(3)
    log.add(gone=time.monotonic())


if __name__ == "__main__":
    main()
