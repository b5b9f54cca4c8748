"""The parent's side of worker processes: starts them, hands them attempts, hears them out, ends them."""

import asyncio
import codecs
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from math import ceil
from typing import Any, assert_never, cast

import msgspec

from chargehand import subreaper
from chargehand.decisions.run_outputs_and_steps import StepRecord
from chargehand.engines.base import Job, Lost
from chargehand.engines.brief import Brief, Fenced
from chargehand.engines.child_protocol import (
    HEAD_BYTES,
    HELLO,
    NO_ATTEMPT,
    AskBoard,
    AttemptFrame,
    Beat,
    BeginStep,
    BoardAnswer,
    Distrusted,
    EndedFrame,
    EndStep,
    FromChild,
    NoteProgress,
    RefusedFrame,
    Room,
    Setup,
    StopFrame,
    ToChild,
    WrittenFrame,
    from_child,
    new_token,
    pack,
    read_head,
)
from chargehand.engines.function_import import importable
from chargehand.engines.local_engine import RETRY_START, refuse_while_loading, say_short
from chargehand.errors import ChargehandError, UsageError
from chargehand.facts.outcome import (
    SHORTAGE,
    Done,
    ErrorClass,
    Failed,
    Outcome,
    checked,
    checked_step,
    failed_by,
    why_untrue,
)

__all__ = ["Children", "importable"]

#: seconds that a process gets to end by itself, and its pipes to run dry
GRACE = 1.0
#: seconds until a progress note that was passed on makes room for another
NOTE_PAUSE = 0.1
#: between two signs of life of a process at work
BEAT = timedelta(seconds=1)
#: of these, after which it is looked at
MOST_MISSED = 2
#: of what a process wrote to standard error: as much as is told of one that died
TAIL_CHARACTERS, TAIL_LINES = 4_000, 20

Listener = Callable[[str], None]


class Children:
    """Processes that run one importable function, `module:function`, for one attempt after another.

    Started when needed, at most `most` at once, kept for the next attempt. `memory` limits the
    address space of each, in bytes; `cpu` the processor time of each attempt, to whole seconds. One
    that is stopped (by SIGSTOP, say) and so misses two of its signs of life, one every `beat`, is
    killed and its attempt lost; one that only computes without a pause is not.
    What they print goes to `heard`, by default to our standard error. To be used from one event
    loop, whose thread has to live on: the kernel ends the children together with it.
    """

    def __init__(
        self,
        target: str,
        most: int,
        *,
        memory: int | None = None,
        cpu: timedelta | None = None,
        beat: timedelta = BEAT,
        heard: Listener | None = None,
    ) -> None:
        if most < 1:
            raise UsageError(f"{target}: {most} processes cannot do anything; allow at least one")
        self._target = target
        self._places = asyncio.Semaphore(most)
        self._memory = memory
        self._cpu = None if cpu is None else max(1, ceil(cpu.total_seconds()))
        self._beat = beat.total_seconds()
        self._heard = heard or _to_stderr
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        #: were let go, and may not have ended yet
        self._going: set[_Child] = set()
        self._is_closed = False

    async def call(self, brief: Brief, job: Job) -> Outcome | Lost:
        """Run one attempt in a child and return what came of it; `Lost` if the child died.

        Cancelled, it kills the child and all that it started before it passes that on.
        """
        refuse_while_loading()
        async with self._places:
            if self._is_closed:
                raise UsageError(f"{self._target}: its processes were closed; start a new engine")
            while (child := self._take_idle()) is None:
                try:
                    child = await self._start()
                    break
                except OSError as error:
                    if error.errno not in SHORTAGE:
                        return _not_started(error)
                    say_short("process", brief, error)
                    await asyncio.sleep(RETRY_START)
            return await self._run(child, brief, job)

    def fit(self, size: int) -> None:
        """Let idle children go until no more than so many are left; the rest have work to do."""
        while self._idle and len(self._all) > size:
            child = self._idle.pop(0)  # the one that was not used for longest
            child.hang_up()
            self._all.discard(child)
            self._going.add(child)

    async def close(self) -> None:
        """End all children: idle ones are let go, the rest and the slow are killed."""
        self._is_closed = True
        for child in self._all - set(self._idle):
            child.kill("its process was ended, because its engine was closed")
        for child in self._idle:
            child.hang_up()
        self._idle.clear()
        self._all |= self._going
        await self._wait_gone()
        for child in self._all:
            child.kill()
        await self._wait_gone()

    async def _wait_gone(self) -> None:
        if self._all:
            await asyncio.wait({child.gone for child in self._all}, timeout=2 * GRACE)

    def _take_idle(self) -> "_Child | None":
        while self._idle:
            child = self._idle.pop()  # the one used last: its memory is the warmest
            if child.is_alive:
                return child
        return None

    async def _start(self) -> "_Child":
        child = _Child(self._heard, self._beat, self._cpu)
        # -P, because what lies in the working folder must not hide modules that we import.
        command = (sys.executable, "-P", "-m", "chargehand.engines.child_main", self._target)
        setup = Setup(
            path=list(sys.path),
            argv=list(sys.argv),
            pythonpath=os.environ.get("PYTHONPATH"),
            memory=self._memory,
            cpu=self._cpu,
            beat=self._beat,
        )
        # Enough to find us wherever we were found here; the exact path comes with the setup.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.curdir for p in sys.path)}
        await asyncio.get_running_loop().subprocess_exec(
            lambda: child,
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=env,
            start_new_session=True,
        )
        self._all.add(child)
        child.gone.add_done_callback(lambda _: self._forget(child))
        child.send(setup)
        return child

    def _forget(self, child: "_Child") -> None:
        self._all.discard(child)
        self._going.discard(child)

    async def _run(self, child: "_Child", brief: Brief, job: Job) -> Outcome | Lost:
        try:
            outcome = await child.run(brief)
        except BaseException:
            child.kill()
            job.leftover = child.gone  # until then its place is taken
            await asyncio.wait({child.gone}, timeout=GRACE)
            raise
        if child.is_alive and not self._is_closed:
            self._idle.append(child)
        return outcome


class _Child(asyncio.SubprocessProtocol):
    """One process and the pipes to it.

    Not asyncio's own streams: with those, waiting for a process also waits for whatever it
    started that still holds its pipes.
    """

    def __init__(self, heard: Listener, beat: float, cpu: int | None) -> None:
        loop = asyncio.get_running_loop()
        #: done when the process is reaped and its pipes are read to their end
        self.gone: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._exited: asyncio.Future[int] = loop.create_future()
        self._frames = asyncio.StreamReader(loop=loop)
        self._tail = _Tail(heard)
        self._patience = MOST_MISSED * beat
        self._cpu = cpu
        self._heard_at = 0.0
        #: of the attempt that it has
        self._token = NO_ATTEMPT
        self._is_greeted = False
        self._is_done_for = False
        self._why = ""

    @property
    def is_alive(self) -> bool:
        return not (self._is_done_for or self._exited.done())

    def send(self, frame: ToChild) -> None:
        """Say something to the child; if it is gone, nobody hears. Raises `UsageError` if too large."""
        self._write(pack(frame, self._token))

    async def run(self, brief: Brief) -> Outcome | Lost:
        """Have the child do one attempt."""
        self._token = new_token()
        self._tail.clear()
        try:
            self.send(_attempt_of(brief))
        except UsageError as error:
            return failed_by(error)
        pulse = self._loop.create_task(self._feel_pulse())
        try:
            return await self._attend(brief)
        finally:
            pulse.cancel()

    async def _attend(self, brief: Brief) -> Outcome | Lost:
        # What was said about steps before the end is still written down after it.
        async with asyncio.TaskGroup() as relays:
            try:
                return await self._hear_out(brief, relays)
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return await self._lost()
            except (
                ChargehandError
            ) as error:  # it sent what cannot be read, so what follows cannot either
                self.kill()
                return failed_by(error)
            except asyncio.CancelledError:
                self.kill()  # at once, not after the relays have ended
                raise

    def hang_up(self) -> None:
        """Let an idle child go."""
        self._is_done_for = True
        self._input.close()

    def kill(self, why: str = "") -> None:
        """Kill the process with all that it has started, unless it has ended already."""
        self._is_done_for = True
        if not self._exited.done():
            self._why = self._why or why
            self._kill_group()

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._input = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))
        output = self._transport.get_pipe_transport(1)
        self._frames.set_transport(cast("asyncio.Transport", output))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self._frames.feed_data(data)
        else:
            self._tail.feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - how it was lost shows in the exit code
        if fd == 1:
            self._frames.feed_eof()

    def process_exited(self) -> None:
        # What it started must not outlive it. On Linux its subreaper has seen to that. Elsewhere its
        # number is not given to another as long as any of its group lives, and not soon otherwise.
        if sys.platform != "linux":
            self._kill_group()
        self._exited.set_result(self._transport.get_returncode() or 0)
        # Normally the pipes end by now. What left the group may hold them; that is not waited for.
        self._closing = self._loop.call_later(GRACE, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as above
        self._closing.cancel()
        self._transport.close()
        self._tail.end()
        self.gone.set_result(None)

    # talking

    async def _hear_out(self, brief: Brief, relays: asyncio.TaskGroup) -> Outcome | Lost:
        while True:
            frame = await self._receive()
            match frame:
                case EndedFrame():
                    return Lost(frame.lost) if frame.lost else frame.outcome
                case BeginStep() | EndStep() | AskBoard():
                    # Each in its own task: steps that run side by side share one flush.
                    relays.create_task(self._relay(brief, frame))
                case Distrusted():
                    brief.distrust(*frame.sources)  # here too, for it may die before its end
                case NoteProgress():
                    self._pass_on(brief, frame)
                case Beat():
                    pass  # that it came is all it says
                case _:
                    assert_never(frame)

    async def _receive(self) -> FromChild:
        """The next frame of this attempt. Whatever an earlier one still says is no word of this one."""
        if not self._is_greeted:
            await self._frames.readuntil(HELLO)
            self._is_greeted = True
        while True:
            length, token = read_head(await self._frames.readexactly(HEAD_BYTES))
            data = await self._frames.readexactly(length)
            if token == self._token:
                self._heard_at = self._loop.time()
                return from_child(data)

    async def _feel_pulse(self) -> None:
        """Kill the process if it is silent because somebody has stopped it: it may never go on.

        Silence alone says little: code that never lets go of the interpreter is silent, too.
        """
        self._heard_at = self._loop.time()
        while True:
            silent = self._loop.time() - self._heard_at
            if silent < self._patience:
                await asyncio.sleep(self._patience - silent)
            elif subreaper.is_below_stopped(self._transport.get_pid()):
                self.kill(f"its process was stopped and gave no sign of life for {silent:.3g} s")
                return
            else:
                await asyncio.sleep(self._patience)

    async def _relay(self, brief: Brief, frame: BeginStep | EndStep | AskBoard) -> None:
        try:
            self.send(await _done(brief, frame))
        except Fenced as fenced:
            self.send(RefusedFrame(frame.number, str(fenced)))
        except Exception as error:  # noqa: BLE001 - the worker meets it, as it would in this process
            self.send(RefusedFrame(frame.number, str(error), failed_by(error), _facts_of(error)))

    def _pass_on(self, brief: Brief, note: NoteProgress) -> None:
        try:
            brief.host.note_progress(brief, note.text, note.fraction)
        except Fenced as fenced:
            self.send(StopFrame(str(fenced)))
        # The line takes every note without waiting, so the pace has to be kept here.
        self._loop.call_later(NOTE_PAUSE, self._write, pack(Room(), self._token))

    def _write(self, data: bytearray) -> None:
        if self.is_alive:
            self._input.write(data)

    # ending

    async def _lost(self) -> Failed | Lost:
        """What to say of a child that hung up on us."""
        await asyncio.wait({self._exited}, timeout=GRACE)
        self.kill("its process closed the pipe to its supervisor")
        await asyncio.wait({self.gone}, timeout=2 * GRACE)
        if not self._exited.done():
            return Lost("its process does not react, not even to SIGKILL")
        code = self._exited.result()
        if code < 0 and -code == getattr(signal, "SIGXCPU", None):
            message = f"it used more than {self._cpu} s of processor time, the limit of an attempt"
            return Failed(kind=ErrorClass.RESOURCE, message=message)
        reason = self._why or f"its process {_ending(code)}"
        return Lost(f"{reason}{self._tail.told()}")

    def _kill_group(self) -> None:
        subreaper.kill(self._transport.get_pid())


class _Tail:
    """Passes on what a process writes to standard error, and remembers the end of it."""

    def __init__(self, heard: Listener) -> None:
        self._heard = heard
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    def feed(self, data: bytes) -> None:
        self._take(self._decoder.decode(data))

    def end(self) -> None:
        self._take(self._decoder.decode(b"", final=True))

    def clear(self) -> None:
        self._text = ""

    def told(self) -> str:
        lines = self._text.strip().splitlines()[-TAIL_LINES:]
        return "; the last that it wrote:\n" + "\n".join(lines) if lines else ""

    def _take(self, text: str) -> None:
        if text:
            self._text = (self._text + text)[-TAIL_CHARACTERS:]
            self._heard(text)


def _attempt_of(brief: Brief) -> AttemptFrame:
    own = f"{brief.run}:{brief.task.id}:"  # a child is told the answers to its own questions only
    return AttemptFrame(
        run=brief.run,
        task=brief.task,
        attempt=brief.attempt,
        worker=brief.worker,
        values=dict(brief.values),
        missing=dict(brief.missing),
        log=brief.log,
        answers={q: answer for q, answer in brief.answers.items() if q.startswith(own)},
        taint=brief.taint,
    )


async def _done(brief: Brief, frame: BeginStep | EndStep | AskBoard) -> WrittenFrame | BoardAnswer:
    """Do in this process what the worker has asked for in its own."""
    match frame:
        case BeginStep():
            _refuse_untrue(frame.step)
            await brief.host.begin_step(brief, frame.step, is_urgent=frame.is_urgent)
        case EndStep():
            _refuse_untrue(frame.step)
            outcome = frame.outcome
            known = checked_step(outcome) if isinstance(outcome, Done) else checked(outcome)
            await brief.host.end_step(brief, frame.step, cast("Done | Failed", known))
        case AskBoard():
            act = getattr(brief.board, frame.act)
            found = msgspec.json.encode(await act(**frame.arguments))
            return BoardAnswer(frame.number, msgspec.Raw(found), brief.taint)
    return WrittenFrame(frame.number)


def _refuse_untrue(step: StepRecord) -> None:
    """Raise `UsageError` for a step that no brief has written down so: what holds the pipe may send anything."""
    why = why_untrue(step.reserve)
    if why is not None:
        raise UsageError(f"step {step.name!r}: reserve: {why}")
    step.about.refuse_unreadable()


def _facts_of(error: Exception) -> dict[str, Any]:
    """What an error of ours says beside its words."""
    said = vars(error) if isinstance(error, ChargehandError) else {}
    return {name: fact for name, fact in said.items() if isinstance(fact, (str, int))}


def _not_started(error: OSError) -> Failed:
    return Failed(
        kind=ErrorClass.RESOURCE,
        message=f"no process could be started: {error}",
        error=type(error).__name__,
    )


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError, ValueError):  # closed, or nobody reads it any more
            sys.stderr.write(text)
