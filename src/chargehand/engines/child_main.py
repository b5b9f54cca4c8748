"""A worker process, `python -m chargehand.engines.child_main module:function`: runs one attempt after another.

It speaks frames over what were its standard input and output when it started. The worker's own
prints go to standard error, and its standard input is empty.
"""

import asyncio
import ctypes
import faulthandler
import inspect
import itertools
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TextIO, assert_never

from msgspec.structs import replace

from chargehand import errors
from chargehand.decisions.run_outputs_and_steps import StepRecord
from chargehand.engines.base import Ending, Job, Lost, Parking, outcome_of
from chargehand.engines.brief import AttemptHost, Brief, Fenced, SharedBoard
from chargehand.engines.child_board import ChildBoard
from chargehand.engines.child_protocol import (
    HEAD_BYTES,
    HELLO,
    NO_ATTEMPT,
    NOTES_AHEAD,
    AskBoard,
    AttemptFrame,
    Beat,
    BeginStep,
    BoardAct,
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
    WrittenFrame,
    for_child,
    pack,
    read_head,
)
from chargehand.engines.function_import import is_async, load
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed, broken, failed_by
from chargehand.facts.value import plain
from chargehand.fork_guard import end_copy, refuse_copy
from chargehand.subreaper import stay_above

PR_SET_PDEATHSIG = 1


class FrameWriter:
    """The way out for frames: whole ones only, whichever thread speaks, and of this process alone.

    A copy that a worker makes of this process with `os.fork` has the pipe too.
    """

    def __init__(self, out: int) -> None:
        self._out = out
        self._home = os.getpid()
        self._lock = threading.Lock()

    def write(self, data: bytes | bytearray) -> None:
        """Raises `ForkedCopy` in a copy of this process."""
        refuse_copy(self._home)  # first: the lock may have been held when the copy was made
        rest = memoryview(data)
        with self._lock:
            while rest:
                rest = rest[os.write(self._out, rest) :]


class AttemptVoice:
    """What one attempt says to the parent, each word with the token of this attempt.

    What a thread of an earlier attempt says late bears the token of that one, and is not heard.
    """

    def __init__(self, pipe: FrameWriter, token: bytes) -> None:
        self.token = token
        self._pipe = pipe
        self._notes_lock = threading.Lock()
        self._room = NOTES_AHEAD
        self._held: NoteProgress | None = None

    def pack(self, frame: FromChild) -> bytearray:
        """The frame as words of this attempt."""
        return pack(frame, self.token)

    def say(self, frame: FromChild) -> None:
        self.write(self.pack(frame))

    def write(self, data: bytes | bytearray) -> None:
        self._pipe.write(data)

    def note(self, note: NoteProgress) -> None:
        """Send a progress note, or keep the newest until there is room: a flood stays in here."""
        with self._notes_lock:
            self._held = note
            if self._room > 0:
                self._send_held()

    def make_room(self) -> None:
        with self._notes_lock:
            self._room += 1
            self._send_held()

    def flush_notes(self) -> None:
        with self._notes_lock:
            self._send_held()

    def _send_held(self) -> None:
        note, self._held = self._held, None
        if note is not None:
            self._room -= 1
            self.say(note)


class ChildHost(AttemptHost):
    """The host of one attempt in a worker process: the parent writes down what it reports."""

    def __init__(self, voice: AttemptVoice, numbers: "itertools.count[int]") -> None:
        self._voice = voice
        self._home = os.getpid()
        self._numbers = numbers
        self._unanswered: dict[int, asyncio.Future[WrittenFrame | BoardAnswer]] = {}
        self._stopped = ""

    async def begin_step(self, brief: Brief, step: StepRecord, *, is_urgent: bool) -> None:  # noqa: ARG002 - the parent knows which attempt it is
        number = next(self._numbers)
        await self._tell(number, BeginStep(number, step, is_urgent))

    async def end_step(self, brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:  # noqa: ARG002 - as above
        number = next(self._numbers)
        if isinstance(outcome, Failed):
            outcome = _legible(outcome)
        await self._tell(number, EndStep(number, step, outcome))

    async def ask_board(self, act: BoardAct, arguments: dict[str, Any]) -> BoardAnswer:
        number = next(self._numbers)
        answer = await self._tell(number, AskBoard(number, act, arguments))
        if not isinstance(answer, BoardAnswer):
            raise errors.InternalError(f"the parent did not say what came of {act!r} on the board")
        return answer

    def note_progress(self, brief: Brief, text: str, fraction: float | None) -> None:  # noqa: ARG002 - as above
        self._refuse_if_stopped()
        self._voice.note(NoteProgress(plain(text), fraction))

    def board_for(self, brief: Brief) -> SharedBoard:
        return ChildBoard(self.ask_board, brief)

    def distrust(self, sources: tuple[str, ...]) -> None:
        """Let the parent know at once: what is said from now on carries it, even if this process dies."""
        if not self._stopped:
            self._voice.say(Distrusted(sources))

    def settle(self, answer: WrittenFrame | RefusedFrame | BoardAnswer) -> None:
        """The parent has answered. To be called on the loop."""
        waiting = self._unanswered.pop(answer.number, None)
        if waiting is None or waiting.done():
            return  # whoever asked was cancelled meanwhile
        if isinstance(answer, RefusedFrame):
            waiting.set_exception(_refusal(answer))
        else:
            waiting.set_result(answer)

    def stop(self, reason: str) -> None:
        """From now on every word is refused. May be called from any thread."""
        self._stopped = reason

    async def _tell(self, number: int, frame: FromChild) -> WrittenFrame | BoardAnswer:
        self._refuse_if_stopped()
        answer: asyncio.Future[WrittenFrame | BoardAnswer] = (
            asyncio.get_running_loop().create_future()
        )
        data = self._voice.pack(frame)
        self._unanswered[number] = answer
        self._voice.write(data)
        return await answer

    def _refuse_if_stopped(self) -> None:
        refuse_copy(self._home)
        if self._stopped:
            raise Fenced(self._stopped)


class ChildProcess:
    """Runs what the parent sends, one attempt at a time.

    The loop runs only during attempts: between them nothing happens here, and modules are imported
    as they would be anywhere else, in the main thread with no loop running.
    """

    def __init__(self, target: str, pipe: FrameWriter, loop: asyncio.AbstractEventLoop) -> None:
        self._target = target
        self._pipe = pipe
        self._loop = loop
        self._home = os.getpid()
        self._orders: queue.SimpleQueue[Setup | AttemptFrame | None] = queue.SimpleQueue()
        #: of the attempt that was heard of last
        self._voice = AttemptVoice(pipe, NO_ATTEMPT)
        self._numbers = itertools.count(1)  # over all attempts, so that no late answer fits
        self._host: ChildHost | None = None
        self._function: Callable[..., Any] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chargehand-worker")
        self._setup: Setup | None = None
        self._unfit: Failed | None = None
        self._is_busy = False
        self._busy = threading.Event()  #: the same, for who waits for it

    def listen(self, source: int) -> None:
        """Hear the parent out. Runs in a thread, so that not even a blocked loop outlives the parent."""
        try:
            while (heard := _frame_from(source)) is not None:
                self._hear(*heard)
        finally:
            if self._is_busy:
                _end_at_once()
            self._orders.put(None)

    def serve(self) -> None:
        """Run attempts until the parent has no more."""
        while (order := self._orders.get()) is not None:
            if isinstance(order, Setup):
                self._set_up(order)
            else:
                self._end(self._run(order))

    def _hear(self, token: bytes, data: bytes) -> None:
        try:
            frame = for_child(data)
        except errors.ChargehandError as error:  # only an attempt can be so deep or strange
            AttemptVoice(self._pipe, token).say(EndedFrame(failed_by(error)))
            return
        match frame:
            case Setup():
                self._orders.put(frame)
            case AttemptFrame():
                self._voice = AttemptVoice(self._pipe, token)
                self._is_busy = True
                self._busy.set()
                self._orders.put(frame)
            case WrittenFrame() | RefusedFrame() | BoardAnswer():
                self._loop.call_soon_threadsafe(self._settle, frame)
            case StopFrame():
                if self._host is not None:
                    self._host.stop(frame.reason)
            case Room():
                if token == self._voice.token:
                    self._voice.make_room()
            case _:
                assert_never(frame)

    def _set_up(self, setup: Setup) -> None:
        self._setup = setup
        sys.path[:] = setup.path
        sys.argv[:] = setup.argv
        os.environ.pop("PYTHONPATH", None)
        if setup.pythonpath is not None:
            os.environ["PYTHONPATH"] = setup.pythonpath
        # The threads are made now: under a tight limit there may be no room for them later.
        self._thread.submit(int).result()
        threading.Thread(target=self._beat, args=(setup.beat,), daemon=True).start()
        if setup.memory is not None:
            self._limit("RLIMIT_AS", setup.memory)

    def _beat(self, pause: float) -> None:
        """Give signs of life while there is work, from a thread: the work may block the loop."""
        with suppress(OSError):  # the parent is gone
            while self._busy.wait():
                time.sleep(pause)
                if self._is_busy:
                    self._voice.say(Beat())

    def _limit(self, name: str, most: int) -> None:
        """Set a limit of this process, or refuse all work: better none than work without its limit."""
        try:
            import resource  # not everywhere, and seldom needed

            kind: int = getattr(resource, name)
            resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))
        except Exception as error:  # noqa: BLE001 - whatever the reason, there is no limit
            self._unfit = Failed(
                kind=ErrorClass.DENIED,
                message=f"{name} cannot be set to {most} here ({error}); run it without this limit",
                error=type(error).__name__,
            )

    def _settle(self, answer: WrittenFrame | RefusedFrame | BoardAnswer) -> None:
        if self._host is not None:
            self._host.settle(answer)

    def _run(self, attempt: AttemptFrame) -> Ending:
        if self._setup is not None and self._setup.cpu is not None:
            # What earlier attempts have used does not count against this one.
            self._limit("RLIMIT_CPU", math.ceil(time.process_time()) + self._setup.cpu)
        if self._unfit is not None:
            return self._unfit
        try:
            function = self._function = self._function or load(self._target)
        except BaseException as error:  # noqa: BLE001 - a module may even exit while it is imported
            return _not_found(self._target, error)
        finally:
            end_copy(self._home)  # made by a module while it was imported
        self._host = ChildHost(self._voice, self._numbers)
        working = self._loop.create_task(self._work(function, _brief_of(attempt, self._host)))
        while not working.done():
            # Out of a worker's own tasks, these come up through the loop. Whoever awaits such a
            # task gets them too, so here they are not needed.
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_until_complete(working)
        self._host.stop("the attempt has ended")
        return working.result()

    async def _work(self, function: Callable[..., Any], brief: Brief) -> Ending:
        async def work(job: Job) -> Ending:
            return await outcome_of(lambda job: self._call(function, job.brief), job)

        try:
            return await work(Job(brief, work))
        except asyncio.CancelledError:
            return Cancelled(reason="its worker cancelled itself")
        except BaseException as error:  # noqa: BLE001 - as in `LocalEngine`: nothing is to keep an attempt from ending
            return broken(error)

    async def _call(self, function: Callable[..., Any], brief: Brief) -> Any:
        if is_async(function):
            return await function(brief)
        brief.serve_thread(self._loop)
        is_fine, value = await self._loop.run_in_executor(self._thread, _caught, function, brief)
        if not is_fine:
            raise value
        return await value if inspect.isawaitable(value) else value

    def _end(self, outcome: Ending) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a worker may have put anything there
                stream.flush()
        if isinstance(outcome, Lost):
            ended = EndedFrame(Cancelled(), lost=outcome.reason or "its worker said so")
        elif isinstance(outcome, Parking):  # no provider of ours is called here: a library's doing
            ended = EndedFrame(_put_off(outcome))
        elif isinstance(outcome, Failed):
            ended = EndedFrame(_legible(self._explained(outcome)))
        else:
            ended = EndedFrame(outcome)
        try:
            data = self._voice.pack(ended)
        except errors.UsageError as error:
            data = self._voice.pack(EndedFrame(_legible(failed_by(error))))
        self._voice.flush_notes()
        # Before the word is out, because the parent may hang up as soon as it hears it.
        self._is_busy = False
        self._busy.clear()
        self._voice.write(data)

    def _explained(self, failed: Failed) -> Failed:
        """A want of memory in words that name the limit, if there is one."""
        most = None if self._setup is None else self._setup.memory
        if most is None or failed.error != MemoryError.__name__:
            return failed
        words = f"it used more than {_size(most)} of memory, the limit of a process of this worker"
        return replace(failed, kind=ErrorClass.RESOURCE, message=words)


def _size(count: int) -> str:
    for unit, size in (("GB", 2**30), ("MB", 2**20)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,} bytes"


def _put_off(parking: Parking) -> Failed:
    return Failed(kind=ErrorClass.RESOURCE, message=parking.why, retry_after=parking.wait)


def main() -> None:
    """Serve the parent until it hangs up."""
    stay_above()
    source, out = _take_pipes()
    _die_with_parent()
    # Ctrl-C is the parent's. Not SIG_IGN: programs that a worker starts would inherit that.
    signal.signal(signal.SIGINT, lambda *_: None)
    faulthandler.enable(2, all_threads=False)  # the parent passes on where it crashed
    pipe = FrameWriter(out)
    pipe.write(HELLO)
    with asyncio.Runner() as runner:
        child = ChildProcess(sys.argv[1], pipe, runner.get_loop())
        threading.Thread(target=child.listen, args=(source,), daemon=True).start()
        child.serve()


def _take_pipes() -> tuple[int, int]:
    """The two ends that lead to the parent, moved to where no worker's print or read reaches them."""
    source, out = os.dup(0), os.dup(1)  # not inherited by what a worker starts
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    for stream in (sys.stdout, sys.stderr):
        _by_line(stream)  # what a worker printed before it crashed should have left
    return source, out


def _by_line(stream: TextIO) -> None:
    stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[attr-defined]  # as it is at the start


def _die_with_parent() -> None:
    """Be killed by the kernel when the parent's thread ends; elsewhere than on Linux, EOF must do."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _end_at_once() -> None:
    """The parent is gone: end this process and all that the worker has started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _frame_from(source: int) -> tuple[bytes, bytes] | None:
    """The next frame, after the token of its attempt; None when the parent has hung up."""
    head = _read(source, HEAD_BYTES)
    if head is None:
        return None
    length, token = read_head(head)
    data = _read(source, length)
    return None if data is None else (token, data)


def _read(source: int, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        more = os.read(source, count - len(data))
        if not more:
            return None
        data += more
    return bytes(data)


def _brief_of(attempt: AttemptFrame, host: ChildHost) -> Brief:
    brief = Brief(
        attempt.run,
        attempt.task,
        attempt.attempt,
        attempt.worker,
        attempt.values,
        host,
        missing=attempt.missing,
        log=attempt.log,
        answers=attempt.answers,
    )
    brief.distrust(*attempt.taint)
    brief.on_taint = host.distrust
    return brief


def _caught(function: Callable[[Brief], Any], brief: Brief) -> tuple[bool, Any]:
    # SystemExit and the like would end the thread or, set on a future, the event loop.
    home = os.getpid()
    try:
        try:
            return True, function(brief)
        finally:
            # Also the first call after the function: what a tracer that it left behind (`sys.settrace`)
            # raises comes up here, where it is a failure of the attempt, and not in the thread's own code.
            end_copy(home)
    except BaseException as error:  # noqa: BLE001 - handed on to the attempt as it is
        return False, error


def _not_found(target: str, error: BaseException) -> Failed:
    failed = _legible(failed_by(error))
    where, _, name = target.rpartition(":")
    words = failed.message.removeprefix(f"{failed.error}: ")
    return Failed(
        kind=ErrorClass.LOGIC,
        message=f"{name} cannot be imported from {where}: {failed.error}: {words}",
        error=failed.error,
        stack=failed.stack,
    )


def _refusal(refused: RefusedFrame) -> BaseException:
    """What the worker would have met if it had spoken to the journal itself."""
    failure = refused.failure
    if failure is None:
        return Fenced(refused.reason)
    kind = getattr(errors, failure.error, None)
    if isinstance(kind, type) and issubclass(kind, (errors.JournalError, errors.UsageError)):
        error = kind.__new__(kind, refused.reason)  # not made anew: its words are complete
        vars(error).update(refused.facts)
        return error
    return errors.WorkerError(refused.reason, kind=failure.kind)


def _legible(failed: Failed) -> Failed:
    """The failure with nothing in its texts that cannot be written: names of files may hold such."""
    message, error, stack = map(plain, (failed.message, failed.error, failed.stack))
    return replace(failed, message=message, error=error, stack=stack)


if __name__ == "__main__":
    main()
