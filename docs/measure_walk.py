"""Measure the walk of a request: which files of the package it enters, over how many calls between files.

    python docs/measure_walk.py            print the figures
    python docs/measure_walk.py --write    and write the walk into docs/design.md
    python docs/measure_walk.py --calls    and print, file by file, which functions were called from where

A file is entered when one of its functions is called after the request was made; the bodies of
modules and classes, which run when they are imported, do not count. An edge is a pair of files of the
package of which one calls the other directly, at least once. All threads of the process count. Beside
edges the calls are printed: triples of the calling file, the called file and the called function.

Two requests are made, each in a process of its own: `run`, a plan of two tasks on a durable journal,
from `Supervisor.run` to the trace of its result; and `pool`, from `SupervisorAgent.delegate` to the
result of `WorkerAgent.execute_task`. "In memory" is the same without a file; "with construction"
counts from the making of the supervisor, or of the pool and its agents.
"""

import asyncio
import inspect
import json
import re
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import chargehand as ch
from chargehand.patterns.pool import AgentConfig, SharedMemoryPool, SupervisorAgent, WorkerAgent

PACKAGE = Path(ch.__file__).parent
PAGE = Path(__file__).parent / "design.md"
#: entered only if the journal happens to be marked while the request is under way
SOMETIMES = {"journal/head_mark.py", "journal/durable_files.py"}
BEGIN, END = "<!-- walk: begin -->", "<!-- walk: end -->"


class Walk(NamedTuple):
    """What was entered."""

    #: by file, in the order of entry: the function that was called first
    files: dict[str, str]
    edges: int
    #: the calling file, the called file and the called function
    calls: list[tuple[str, str, str]]


class Recorder:
    """Notes every call of a function of the package, in whatever thread, while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self._root = f"{PACKAGE}/"
        self._files: dict[str, str] = {}
        self._edges: set[tuple[str, str]] = set()
        self._calls: set[tuple[str, str, str]] = set()
        threading.setprofile(self._hear)  # threads that are started later
        sys.setprofile(self._hear)

    def walk(self) -> Walk:
        """What was entered so far, and no more."""
        self.is_on = False
        sys.setprofile(None)
        threading.setprofile(None)
        return Walk(self._files, len(self._edges), sorted(self._calls))

    def _hear(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self.is_on:
            return
        callee = self._file_of(frame)
        if not callee:
            return
        name = frame.f_code.co_qualname
        self._files.setdefault(callee, name)
        caller = self._file_of(frame.f_back)
        if caller and caller != callee:
            self._edges.add((caller, callee))
            self._calls.add((caller, callee, name))

    def _file_of(self, frame: FrameType | None) -> str:
        """The file of the package whose function this is; empty for the body of a module or a class."""
        code = None if frame is None else frame.f_code
        if code is None or not code.co_flags & inspect.CO_OPTIMIZED:
            return ""
        is_ours = code.co_filename.startswith(self._root)
        return code.co_filename.removeprefix(self._root) if is_ours else ""


async def look(brief: ch.Brief) -> int:
    return len(brief.task.description)


async def count(brief: ch.Brief) -> int:
    return int(brief.inputs["look"]) + 1


def walk_run(journal: str | None, *, constructing: bool) -> Walk:
    recorder = Recorder()
    recorder.is_on = constructing
    workers = [ch.worker("looker", "Looks")(look), ch.worker("counter", "Counts")(count)]
    boss = ch.Supervisor(workers, journal=journal)
    tasks = [
        ch.Task(id="look", description="Look at it", worker="looker"),
        ch.Task(id="count", description="Count what was seen", worker="counter", needs=["look"]),
    ]
    plan = ch.Plan(goal="Count", tasks=tasks)
    recorder.is_on = True
    result = asyncio.run(boss.run(plan))
    seen = result.output, len(result.trace.attempts)
    walk = recorder.walk()
    asyncio.run(boss.close())
    if seen != (11, 2):
        raise SystemExit(f"the run came to {seen}")
    return walk


def walk_pool(journal: str | None, *, constructing: bool) -> Walk:
    recorder = Recorder()
    recorder.is_on = constructing
    config = AgentConfig(llm_provider="mock")
    with SharedMemoryPool(journal) as pool:
        supervisor = SupervisorAgent(config, pool)
        worker = WorkerAgent(config, pool, "looker", work=lambda brief: brief.task.id)
        recorder.is_on = True
        (task,) = supervisor.delegate("Look at it", ["looker"], tasks=["Look at it"])
        done = worker.execute_task(task)
        walk = recorder.walk()
    if done["status"] != "completed":
        raise SystemExit(f"the task came to {done}")
    return walk


WALKS: dict[str, Callable[..., Walk]] = {"run": walk_run, "pool": walk_pool}


def measured(name: str, *, durable: bool = True, constructing: bool = False) -> Walk:
    """One of the walks, in a process of its own: threads of an earlier one would not be heard."""
    command = [sys.executable, __file__, "--one", name, str(int(durable)), str(int(constructing))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - this file
    return Walk(*json.loads(done.stdout.splitlines()[-1]))


def one(name: str, durable: str, constructing: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = str(Path(folder) / "runs.db") if int(durable) else None
        print(json.dumps(WALKS[name](journal, constructing=bool(int(constructing)))))


def section(run: Walk, pool: Walk) -> str:
    """The walk as it stands in docs/design.md."""
    counted = "files of this list. They form {edges} pairs of a calling file and a called file."
    first = (
        "`Supervisor.run(plan)` on a durable journal, including the trace of its result, executes code in the "
        f"{len(run.files)} {counted.format(edges=run.edges)}"
    )
    second = (
        "`delegate` and `execute_task` of a [pool](pool.md) execute code in the "
        f"{len(pool.files)} {counted.format(edges=pool.edges)}"
    )
    lines = [
        BEGIN,
        textwrap.fill(first, 140),
        "",
        *(f"{n}. `{file}`: `{name}`" for n, (file, name) in enumerate(run.files.items(), 1)),
        "",
        textwrap.fill(second, 140),
        "",
        *(f"{n}. `{file}`: `{name}`" for n, (file, name) in enumerate(pool.files.items(), 1)),
        END,
    ]
    return "\n".join(lines)


def faults_in(page: str, run: Walk, pool: Walk) -> list[str]:
    """Where the page and the walks differ: files that are missing in its lists, or gone."""
    listed = page.partition(BEGIN)[2].partition(END)[0]
    head, _, rest = listed.partition("`delegate`")
    faults = []
    for name, walk, text in (("run", run, head), ("pool", pool, rest)):
        told = set(re.findall(r"^\d+\. `([\w/.]+)`", text, re.MULTILINE))
        entered = walk.files.keys() - SOMETIMES
        faults += [f"{name} enters {file}, which is not listed" for file in entered - told]
        faults += [f"{name} does not enter {file}" for file in told - entered - SOMETIMES]
    return sorted(faults)


def calls_of(walk: Walk) -> str:
    """File by file: which of its functions other files call, and which files these are."""
    lines = []
    for file, first in walk.files.items():
        callers: dict[str, list[str]] = {}
        for caller, callee, function in walk.calls:
            if callee == file:
                callers.setdefault(function, []).append(caller)
        lines += [file] + [f"    {name}  ← {', '.join(known)}" for name, known in callers.items()]
        if not callers:  # by the event loop, a thread, or the one who made the request
            lines.append(f"    {first}  ← outside the package")
    return "\n".join(lines)


def write(run: Walk, pool: Walk) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + section(run, pool) + after, encoding="utf-8")


def main() -> None:
    run, pool = measured("run"), measured("pool")
    print(f"{'':28}files  edges  calls")
    for name, shortest in (("run", run), ("pool", pool)):
        for words, walk in (
            (name, shortest),
            (f"{name}, in memory", measured(name, durable=False)),
            (f"{name}, with construction", measured(name, constructing=True)),
        ):
            print(f"{words:28}{len(walk.files):5}{walk.edges:7}{len(walk.calls):7}")
    if "--write" in sys.argv:
        write(run, pool)
    if "--calls" in sys.argv:
        for name, walk in (("run", run), ("pool", pool)):
            print(f"\n{name}, file by file\n\n{calls_of(walk)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(*sys.argv[2:])
    else:
        main()
