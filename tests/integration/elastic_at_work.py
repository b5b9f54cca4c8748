"""What runs in the children of elastic and limited workers. Imports no pytest: every child reads it."""

import ctypes
import os
import signal
from datetime import timedelta
from pathlib import Path

import chargehand as ch

MEMORY = 2**30


def be_stuck_until_written_to(brief: ch.Brief) -> str:
    """No thread of this process runs meanwhile: C code keeps the interpreter's lock."""
    source = os.open(brief.args["pipe"], os.O_RDWR)
    brief.progress("stuck")
    ctypes.PyDLL(None).read(source, ctypes.create_string_buffer(1), 1)
    os.close(source)
    return "alive"


@ch.worker("glutton", "Takes memory", process=True, capacity=1, memory=MEMORY)
def take_memory(brief: ch.Brief) -> int:
    return len(bytearray(brief.args["size"]))


@ch.worker("spinner", "Uses the processor", process=True, capacity=1, cpu_seconds=1)
def spin(brief: ch.Brief) -> None:
    while True:
        pass


@ch.worker("mortal", "Waits to be killed the first time", process=True, capacity=1)
def be_killed_once(brief: ch.Brief) -> int:
    marker = Path(brief.args["marker"])
    if not marker.exists():
        marker.write_text("seen")
        brief.progress(str(os.getpid()))
        signal.pause()
    return os.getpid()


@ch.worker(
    "holder",
    "Waits at a gate",
    process=True,
    capacity=ch.Elastic(most=3, wait=timedelta(0), period=timedelta(seconds=0.2)),
)
def wait_at_gate(brief: ch.Brief) -> int:
    """Hold one pipe for as long as this process lives, and wait until another is opened."""
    os.write(os.open(brief.args["held"], os.O_WRONLY), b"held")
    brief.progress("here")
    Path(brief.args["gate"]).open().close()
    return os.getpid()
