"""What runs in the children, and what the tests hold them with. Imports no pytest: every child reads it."""

import asyncio
import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from chargehand import worker
from chargehand.decisions.run_outputs_and_steps import StepLog, StepRecord
from chargehand.engines.base import Ending, Job, Lost, outcome_of
from chargehand.engines.brief import AttemptHost, Brief, Fenced
from chargehand.engines.child_processes import Children, importable
from chargehand.engines.child_protocol import EndedFrame
from chargehand.errors import ForkedCopy, WorkerError
from chargehand.facts.events import Effect
from chargehand.facts.outcome import (
    Done,
    Failed,
    Usage,
)
from chargehand.facts.plan import Task
from chargehand.facts.value import Value

MODULE = __name__
#: where this module is imported from
ROOT = Path(__file__).parents[__name__.count(".")]
#: seconds after which a test that waits has failed; none of them should come near it
PATIENCE = 60


# What runs in the children


def double(brief: Brief) -> Any:
    return brief.args["number"] * 2


async def describe(brief: Brief) -> Any:
    return {
        "run": brief.run,
        "task": brief.task.id,
        "description": brief.task.description,
        "attempt": brief.attempt,
        "worker": brief.worker,
        "inputs": brief.inputs,
        "args": brief.args,
        "missing": dict(brief.missing),
    }


def pid(brief: Brief) -> int:
    return os.getpid()


async def pid_async(brief: Brief) -> int:
    return os.getpid()


@worker("decorated", "Says which process it is in", process=True)
async def decorated(brief: Brief) -> int:
    return os.getpid()


def nothing(brief: Brief) -> None:
    pass


def add(a: int, b: int) -> int:
    return a + b


async def two_steps(brief: Brief) -> Any:
    first = await brief.step("add", add, 1, 2, effect="pure")
    return await brief.step("add", add, first, 10)


def two_steps_plainly(brief: Brief) -> Any:
    first = brief.wait(brief.step("add", add, 1, 2, effect="pure"))
    return brief.wait(brief.step("add", add, first, 10))


async def steps_side_by_side(brief: Brief) -> Any:
    return await asyncio.gather(*(brief.step("add", add, n, n) for n in range(20)))


def pid_in_step(brief: Brief) -> Any:
    return brief.wait(brief.step("pid", os.getpid, effect="idempotent"))


async def ask(brief: Brief) -> str:
    return await brief.ask("Which colour?", choices=["red", "green"], patience=timedelta(hours=1))


def report(brief: Brief) -> None:
    for done in range(10):
        brief.progress(f"{done} of 10", done / 10)


def flood(brief: Brief) -> None:
    for number in range(20_000):
        brief.progress(str(number))


def flood_until(brief: Brief) -> str:
    flood(brief)
    while not Path(brief.args["file"]).exists():
        time.sleep(0.01)
    return "seen"


def report_until_fenced(brief: Brief) -> None:
    while True:
        brief.progress("still here")


async def say_more_when_over(brief: Brief) -> Any:
    LEFT_OVER.append(brief)
    if len(LEFT_OVER) == 1:
        return "first"
    try:
        LEFT_OVER[0].progress("too late")
    except Fenced as fenced:
        return str(fenced)


LEFT_OVER: list[Brief] = []


async def say_the_end_of_another(brief: Brief) -> str:
    """The second attempt says that the first has ended, once more."""
    LEFT_OVER.append(brief)
    if len(LEFT_OVER) == 2:
        host: Any = LEFT_OVER[0].host  # its class is of `__main__` in a child
        host._voice.say(EndedFrame(Done(Value.of("of another attempt"))))
    return f"of attempt {len(LEFT_OVER)}"


def copy_process(brief: Brief) -> str:
    """First makes a copy of its process, then has the copy return, and waits for the end of that."""
    if not COPY:
        go, started = os.pipe()
        end, open_while_it_lives = os.pipe()
        if os.fork() == 0:
            os.close(started)
            os.read(go, 1)
            return "of the copy"
        os.close(open_while_it_lives)
        COPY.extend([started, end])
        return "of the first attempt"
    os.write(COPY[0], b"x")
    os.read(COPY[1], 1)
    return "of the second attempt"


async def copy_process_async(brief: Brief) -> str:
    return copy_process(brief)


async def copy_process_in_a_task(brief: Brief) -> str:
    return await asyncio.create_task(copy_process_async(brief))


def report_from_a_copy(brief: Brief) -> list[str]:
    """What a copy that ends by itself, as those of multiprocessing do, meets when it speaks for the attempt."""
    words, written = os.pipe()
    if os.fork() == 0:
        for speak in (
            lambda: brief.progress("copied"),
            lambda: brief.wait(brief.step("pid", os.getpid)),
        ):
            try:
                speak()
            except ForkedCopy as error:
                os.write(written, f"{error}\n".encode())
        os._exit(0)
    os.close(written)
    with os.fdopen(words) as file:
        return [line.partition(";")[0] for line in file]


def leave_a_tracer(brief: Brief) -> str:
    def tracer(*event: Any) -> None:
        raise ValueError("in a tracer")

    sys.settrace(tracer)
    return "traced"


async def leave_a_tracer_async(brief: Brief) -> str:
    return leave_a_tracer(brief)


#: the ends of the pipes to a copy of this process
COPY: list[int] = []


def tainted(brief: Brief) -> str:
    brief.distrust("the web")
    return "maybe"


def read_missing_file(brief: Brief) -> None:
    Path("there/is/no/such/file").read_text()


def run_out_of_quota(brief: Brief) -> None:
    raise WorkerError("quota", kind="resource", retry_after=timedelta(minutes=1))


def leave(brief: Brief) -> None:
    sys.exit(3)


async def leave_async(brief: Brief) -> None:
    sys.exit(3)


async def leave_in_a_task(brief: Brief) -> None:
    await asyncio.gather(leave_async(brief), asyncio.sleep(0))


def leave_in_a_step(brief: Brief) -> None:
    brief.wait(brief.step("leave", sys.exit, 3))


def interrupt(brief: Brief) -> None:
    raise KeyboardInterrupt


class Worse(BaseException):
    pass


def do_worse(brief: Brief) -> None:
    raise Worse("than an exception")


async def cancel_itself(brief: Brief) -> None:
    raise asyncio.CancelledError


def fail_illegibly(brief: Brief) -> None:
    raise ValueError("no such file: \udce4.txt")


def fail_without_a_class(brief: Brief) -> None:
    class Shy(Exception):
        @property  # type: ignore[misc]  # the very fault
        def __class__(self) -> type:
            raise RuntimeError("do not ask")

    raise Shy("no")


def earn_money(brief: Brief) -> Any:
    return Done(Value.of("x"), usage=Usage(calls=-100, money=-1e9))


async def forge_usage(brief: Brief) -> Any:
    async def run(_: str) -> Done:
        return Done(Value.of(1), usage=Usage(calls=-100))

    await brief.durable("look", [1], run, effect=Effect.PURE)


async def forge_a_step(brief: Brief) -> Any:
    """As a child would that does not check what it sends."""

    async def run(_: str) -> Done:
        return Done()

    forged = Done(Value(json=Raw(b'"\xff"')))
    end_step = brief.host.end_step

    async def end(brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:
        await end_step(brief, step, forged)

    brief.host.end_step = end  # type: ignore[method-assign]  # what the parent hears is to be forged
    await brief.durable("look", [1], run, effect=Effect.PURE)


def exit_hard(brief: Brief) -> None:
    print("about to go")
    os._exit(7)


def kill_itself(brief: Brief) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash(brief: Brief) -> None:
    ctypes.string_at(0)


def close_everything(brief: Brief) -> None:
    os.closerange(3, 200)
    time.sleep(PATIENCE)


def die_leaving_a_program(brief: Brief) -> None:
    hold(brief)
    os._exit(7)


def spin(brief: Brief) -> None:
    brief.progress(str(os.getpid()))
    while True:
        pass


async def spin_async(brief: Brief) -> None:
    spin(brief)


def hold(brief: Brief) -> None:
    """Start a program; it and this process hold the pipe whose path was given."""
    held = os.open(brief.args["pipe"], os.O_WRONLY)
    os.write(held, b"held")
    if brief.args.get("program", True):
        subprocess.Popen(["sleep", str(PATIENCE * 10)], pass_fds=[held])


def hold_and_spin(brief: Brief) -> None:
    hold(brief)
    spin(brief)


def hold_and_be_stuck(brief: Brief) -> None:
    """No thread of this process runs any more: C code keeps the interpreter's lock."""
    hold(brief)
    brief.progress("stuck")
    ctypes.PyDLL(None).pause()


def start_and_leave_session(brief: Brief) -> None:
    """What this starts is in no group of ours, and keeps our standard error."""
    outside = subprocess.Popen(["sleep", str(PATIENCE * 10)], start_new_session=True)
    brief.progress(str(outside.pid))
    os._exit(7)


def spin_until(brief: Brief) -> str:
    brief.progress("spinning")
    while not Path(brief.args["file"]).exists():
        sum(range(1_000))
    return "seen"


def chatter(brief: Brief) -> Any:
    print("printed")
    print("half a line", end="")
    sys.stderr.write("written\n")
    os.write(1, b"\0\0\0\5raw")
    os.system("echo from a program")
    return [sys.stdin.read(), input_or_error()]


def input_or_error() -> str:
    try:
        return input()
    except EOFError:
        return "no input"


def interrupted_by_signal(brief: Brief) -> str:
    os.kill(os.getpid(), signal.SIGINT)
    return "still here"


def not_json(brief: Brief) -> object:
    return {1, 2, object()}


def of_size(brief: Brief) -> Any:
    return "x" * brief.args["size"]


def echo_input(brief: Brief) -> Any:
    return brief.inputs["text"]


def meet(brief: Brief) -> str:
    """Opening a named pipe waits for the other side, so both return or neither does."""
    one, two = brief.args["pipes"]
    if brief.args["first"]:
        with Path(one).open("w"), Path(two).open():
            return "met"
    with Path(one).open(), Path(two).open("w"):
        return "met"


def take_memory(brief: Brief) -> int:
    return len(bytearray(brief.args["size"]))


def where(brief: Brief) -> Any:
    return {"path": sys.path, "argv": sys.argv, "pythonpath": os.environ.get("PYTHONPATH")}


def return_lost(brief: Brief) -> Lost:
    return Lost("I cannot go on")


# What the tests hold them with


class FakeLine(AttemptHost):
    """Writes down what it is told, in memory; refuses as it is told to."""

    def __init__(self, refusal: BaseException | None = None) -> None:
        self.refusal = refusal
        self.words: list[tuple[str, str, int]] = []
        self.urgent: list[bool] = []
        self.notes: list[tuple[str, float | None]] = []
        self.noted = asyncio.Event()
        self.log = StepLog()

    async def begin_step(self, brief: Brief, step: StepRecord, *, is_urgent: bool) -> None:
        await asyncio.sleep(0)
        self._refuse()
        self.words.append(("begin", step.name, step.ordinal))
        self.urgent.append(is_urgent)
        self.log.keep(step)

    async def end_step(self, brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:
        await asyncio.sleep(0)
        self._refuse()
        self.words.append(("end", step.name, step.ordinal))
        self.log.keep(replace(step, outcome=outcome))

    def note_progress(self, brief: Brief, text: str, fraction: float | None) -> None:
        self._refuse()
        self.notes.append((text, fraction))
        self.noted.set()

    async def wait_noted(self, text: str = "") -> str:
        """The newest note, once there is one, or once it is this."""
        async with asyncio.timeout(PATIENCE):
            await self.noted.wait()
            while text and self.notes[-1][0] != text:
                self.noted.clear()
                await self.noted.wait()
        return self.notes[-1][0]

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal


def brief_of(line: FakeLine | None = None, *, attempt: int = 1, **given: Any) -> Brief:
    task = Task(id="t1", description="Do it well", worker="w", args=given.pop("args", {}))
    return Brief("r1", task, attempt, "w", given.pop("values", {}), line or FakeLine(), **given)


@asynccontextmanager
async def children_of(
    function: Callable[..., Any] | str, most: int = 1, **options: Any
) -> AsyncIterator[Children]:
    target = function if isinstance(function, str) else importable(function)
    children = Children(target, most, **options)
    try:
        yield children
    finally:
        await children.close()
        gc.collect()  # so that a transport left open is this test's error


async def outcome_in(children: Children, brief: Brief) -> Ending:
    """As the supervisor does it."""

    async def work(job: Job) -> Ending:
        return await outcome_of(lambda job: children.call(job.brief, job), job)

    async with asyncio.timeout(PATIENCE):
        return await work(Job(brief, work))


async def outcome_of_one(
    function: Callable[..., Any] | str, brief: Brief | None = None, **options: Any
) -> Ending:
    async with children_of(function, **options) as children:
        return await outcome_in(children, brief or brief_of())


async def result_of(function: Callable[..., Any], brief: Brief | None = None) -> Any:
    return read(await outcome_of_one(function, brief))


def read(outcome: Ending) -> Any:
    assert isinstance(outcome, Done), outcome
    return outcome.value.read()


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


class HeldPipe:
    """A named pipe. When it is read to its end, every process that had opened it has let go of it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        # Open before anybody writes, who would have to wait, and without waiting for them.
        self._end = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)

    async def wait_let_go(self) -> None:
        """To be called when at least one process has opened it."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._end
        )
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b"held"
        transport.close()


async def lead(state: str, pipe: str) -> None:
    """A parent whose child is busy, or idle, when it says that it is ready."""
    line = FakeLine()
    function = {"busy": hold_and_spin, "stuck": hold_and_be_stuck, "idle": hold}[state]
    children = Children(importable(function), 1)
    brief = brief_of(line, args={"pipe": pipe, "program": False})
    attempt = asyncio.create_task(children.call(brief, Job(brief, never)))
    await (attempt if state == "idle" else line.wait_noted())
    print("ready", flush=True)
    await asyncio.Event().wait()


async def never(job: Job) -> Ending:
    raise AssertionError(f"{job} is run by the test itself")
