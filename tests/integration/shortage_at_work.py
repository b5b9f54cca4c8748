"""A program that runs short of file descriptors, or of threads and processes, while it leads a run."""

import asyncio
import ctypes
import logging
import os
import resource
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import chargehand as ch
from chargehand.engines import local_engine as local
from chargehand.runtime import run_leader as rounds

local.RETRY_START = 0.05
rounds.RETRY_WRITE = rounds.RETRY_WRITE / 20

#: a user of its own: limits on processes do not hold for root
NOBODY = 54_321


class Ear(logging.Handler):
    """Sets an event when something is logged that says what is short."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self._words = words
        self._loop = asyncio.get_running_loop()
        self.heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if any(word in record.getMessage() for word in self._words):
            self._loop.call_soon_threadsafe(self.heard.set)


def listen(*words: str) -> Ear:
    ear = Ear(*words)
    logging.getLogger("chargehand").addHandler(ear)
    return ear


@ch.worker("plain", "Works in a thread", capacity=4)
def plain(_: ch.Brief) -> str:
    return "thread"


@ch.worker("apart", "Works in a process", process=True)
def apart(_: ch.Brief) -> str:
    return "process"


@ch.worker("large", "Makes something large")
async def large(_: ch.Brief) -> str:
    return "x" * 100_000


def plan() -> ch.Plan:
    names = ["plain", "apart", "large"]
    tasks = [ch.Task(id=name, description=f"Work as {name}", worker=name) for name in names]
    return ch.Plan(goal="Work through a shortage", tasks=tasks)


def without_files() -> list[int]:
    """Take all file descriptors there are."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    held: list[int] = []
    with suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    return held


async def short_of_files(journal: Path) -> None:
    boss = ch.Supervisor([plain, apart, large], journal=journal)
    async with boss:
        marks, starts = listen("cannot be used just now"), listen("no_process_available")
        run = await boss.submit(plan())
        held = without_files()
        await starts.heard.wait()
        await run.pause("to have something to commit")
        await run.unpause()
        await marks.heard.wait()
        for handle in held:
            os.close(handle)
        told(await run.wait())
        told(await boss.run(plan()))


async def short_of_threads(journal: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    boss = ch.Supervisor([plain, apart, large], journal=journal)
    async with boss:
        threads, processes = listen("no_thread_available"), listen("no_process_available")
        resource.setrlimit(resource.RLIMIT_NPROC, (1, most))
        running = asyncio.create_task(boss.run(plan()))
        await threads.heard.wait()
        await processes.heard.wait()
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        told(await running)


def be_limited() -> None:
    """Have limits on processes hold for this one, though root reads its files."""
    os.setresuid(NOBODY, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    most = 0xFFFF_FFFF & ~(1 << 21 | 1 << 24)  # all but CAP_SYS_ADMIN and CAP_SYS_RESOURCE
    header = (ctypes.c_uint32 * 2)(0x2008_0522, 0)
    capabilities = (
        ctypes.c_uint32 * 6
    )()  # effective, permitted, inheritable: the lower and the upper half
    if libc.capget(header, capabilities):
        raise OSError(ctypes.get_errno(), "capget")
    capabilities[0] &= most
    if libc.capset(header, capabilities):
        raise OSError(ctypes.get_errno(), "capset")


def told(result: ch.RunResult) -> None:
    print(result.status, *(task.attempts for task in result.tasks.values()), flush=True)


def main(what: str) -> None:
    if what == "threads" and os.getuid() == 0:
        be_limited()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)  # whoever we really are
        short = short_of_files if what == "files" else short_of_threads
        asyncio.run(short(Path(folder) / "runs.db"))


if __name__ == "__main__":
    main(sys.argv[1])
