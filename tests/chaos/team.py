"""Several processes that serve one journal, and what they wrote down."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import chargehand as ch

from . import serving
from .databases import Database
from .fork_server import fork_server
from .kills import Life, kill_group
from .oracle import Line, Runs, Verdict, check_effects, check_ended, verify

#: seconds after which something that should have come is called missing; nothing takes a tenth of it
PATIENCE = 30.0


class Tail:
    """The lines of a log that grows; each is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.lines: list[Line] = []

    def look(self) -> list[Line]:
        """All lines that there are by now."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(end)
            self.lines += [msgspec.json.decode(line) for line in whole.splitlines()]
        return self.lines


class Member:
    """One process that serves."""

    def __init__(self, process: Life, output: Path) -> None:
        self.process = process
        self._output = output
        self.node = ""

    def send(self, sign: signal.Signals) -> None:
        os.kill(self.process.pid, sign)

    def says(self, words: str) -> bool:
        """Whether it has logged this."""
        return words in self.words

    @property
    def words(self) -> str:
        return self._output.read_text("utf-8", "replace") if self._output.exists() else ""

    def wrote(self, line: Line) -> bool:
        return str(line["life"]).startswith(f"{self.process.pid}-")


class Team:
    """All processes that serve in one trial."""

    def __init__(self, folder: Path, database: Database, **options: Any) -> None:
        self.folder = folder
        self.database = database
        self.tail = Tail(folder / "log")
        self.members: list[Member] = []
        self._options = options
        self.verdict = Verdict()
        self.began_at = time.monotonic()
        #: seconds that this process itself was kept from running at most, while it waited
        self.stall = 0.0

    def start(self, launch: "Launch | None" = None, **options: Any) -> Member:
        """Start one more and wait until it serves; `launch` starts it in another way than by forking."""
        how = serving.ServingOptions(
            **{
                "place": self.database.place,
                "namespace": self.database.namespace,
                **self._options,
                **options,
            }
        )
        output = self.folder / f"stderr-{len(self.members)}"
        arguments = (str(self.folder), msgspec.json.encode(how).decode())
        process = (launch or _fork)(arguments, output)
        member = Member(process, output)
        self.members.append(member)
        is_there = self.wait(lambda: any("serving" in line for line in self._of(member)))
        assert is_there, f"it does not serve: {member.words[-2000:]}"
        member.node = next(line["serving"] for line in self._of(member) if "serving" in line)
        return member

    def _of(self, member: Member) -> list[Line]:
        return [line for line in self.tail.lines if member.wrote(line)]

    def wait(self, is_so: Callable[[], bool], patience: float = PATIENCE) -> bool:
        """Wait for what others write down; False if it never comes."""
        deadline = time.monotonic() + patience
        while True:
            self.tail.look()
            if is_so():
                return True
            now = time.monotonic()
            if now > deadline:
                return False
            time.sleep(0.005)
            self.stall = max(self.stall, time.monotonic() - now - 0.005)

    def must_come(self, is_so: Callable[[], bool], what: str, patience: float = PATIENCE) -> bool:
        """Wait for it, and note a fault if it never comes."""
        came = self.wait(is_so, patience)
        words = " | ".join(member.words[-300:] for member in self.members)
        self.verdict.must(came, f"{what} within {patience:.0f} s; they said: {words}")
        return came

    def post(self, plan: ch.Plan, parallel: int = 500) -> str:
        """Leave a run to them."""

        async def post() -> str:
            async with self.database.opened() as journal:
                boss = ch.Supervisor(serving.WORKERS, journal=journal)
                return await boss.post(plan, limits=ch.Limits(parallel=parallel))

        return asyncio.run(post())

    def go(self) -> None:
        """Let the clerks have their second effects."""
        (self.folder / "go").touch()

    def count(self, word: str, run: str = "") -> int:
        """How many lines have this word."""
        return sum(word in line and run in ("", line.get("run")) for line in self.tail.lines)

    def leaders(self, run: str) -> list[tuple[str, float]]:
        """Nodes that led this run, in turn, and when they began to."""
        return [
            (line["led"], line["at"])
            for line in self.tail.lines
            if "led" in line and line["run"] == run
        ]

    def leader(self, run: str) -> Member:
        """The process that leads this run."""
        node = self.leaders(run)[-1][0]
        return next(member for member in self.members if member.node == node)

    def has_ended(self, *runs: str) -> bool:
        return {line["run"] for line in self.tail.lines if "ended" in line} >= set(runs)

    def answer_doubts(self, run: str) -> None:
        """Play the person who is asked about effects in doubt, and who always tells the truth."""

        async def answer() -> None:
            async with self.database.opened() as journal:
                boss = ch.Supervisor(serving.WORKERS, journal=journal)
                for question in (await boss.look(run)).questions:
                    token = self._token(run, question.id.split(":")[1])
                    text = "run it again" if token is None else f'it ran: "{token}"'
                    with contextlib.suppress(ch.UsageError):  # answered since we looked
                        await boss.answer(question.id, text)

        asyncio.run(answer())

    def _token(self, run: str, task: str) -> str | None:
        steps = [line for line in self.tail.look() if line.get("run") == run and "ran" in line]
        for line in steps:
            if line["ran"] == f"{task}/second/once":
                return str(line["token"])
        return None

    def judge(self, *ended: str) -> Runs:
        """Hold the journal against all invariants and against what they wrote down."""
        runs = self.database.read()
        lines = self.tail.look()
        self.verdict.add(verify(runs, lines))
        check_effects(lines, self.verdict)
        if ended:
            check_ended({run: runs[run] for run in ended}, self.verdict)
        return runs

    def end(self) -> None:
        """Kill all of them, also those that were stopped."""
        for member in self.members:
            kill_group(member.process)


Launch = Callable[[tuple[str, str], Path], Life]


def _fork(arguments: tuple[str, str], output: Path) -> Life:
    return fork_server().start("tests.chaos.serving", *arguments, output=output)


@contextlib.contextmanager
def team(folder: Path, database: Database, **options: Any) -> Iterator[Team]:
    """Processes that serve while this is open."""
    made = Team(folder, database, **options)
    try:
        yield made
    finally:
        made.end()


def plan_for(worker: str, count: int) -> ch.Plan:
    """As many tasks of one worker, which do not wait for each other."""
    return ch.Plan(
        goal="serve",
        tasks=[
            ch.Task(id=f"t{number}", description="Have effects for the test", worker=worker)
            for number in range(count)
        ],
    )
