"""What all benchmarks share: figures with their bars, samples of time and memory, fresh processes.

Run by itself, it says what machine the figures of the others would be of.
"""

import argparse
import gc
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number, and the bar it is held to if there is one."""

    name: str
    value: float
    unit: str = ""
    bar: float | None = None
    #: the bar is the least it may be, not the most
    is_floor: bool = False
    #: to the same thing done with bare asyncio, in the same run
    ratio: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        is_met = self.value >= self.bar if self.is_floor else self.value <= self.bar
        return "ok" if is_met else "short"

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "verdict": self.verdict}

    def as_row(self) -> list[str]:
        bar = "" if self.bar is None else f"{'≥' if self.is_floor else '≤'} {_number(self.bar)}"
        ratio = "" if self.ratio is None else f"{self.ratio:.1f} × bare"
        value = f"{_number(self.value)} {self.unit}".strip()
        return [self.name, value, bar, self.verdict, ratio, self.note]


@dataclass(frozen=True)
class Sample:
    """What one thing took, in seconds; the CPU time is that of all threads of this process."""

    cpu: float
    wall: float


def options_for(
    description: str | None,
    argv: Sequence[str] | None,
    add: Callable[[argparse.ArgumentParser], object] = lambda _: None,
) -> argparse.Namespace:
    """Read the command line: the options that every benchmark has, and those that `add` adds."""
    lines = (description or "").splitlines()
    parser = argparse.ArgumentParser(description=lines[0] if lines else None)
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a bar is missed")
    add(parser)
    return parser.parse_args(argv)


def workload_options(description: str | None, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of a benchmark over recorded workloads, which are not part of this repository."""
    usual = os.environ.get("CHARGEHAND_WORKLOADS", "")

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--workloads", metavar="FOLDER", default=usual)

    return options_for(description, argv, add)


def workloads_or_skip(options: argparse.Namespace, wanted: Path) -> Path | None:
    """The folder of the workloads; None if it has no such file or folder in it, which is said."""
    if options.workloads and (Path(options.workloads) / wanted).exists():
        return Path(options.workloads)
    reason = "no workloads found; name their folder with --workloads or CHARGEHAND_WORKLOADS"
    print(json.dumps({"skipped": reason}) if options.json else f"skipped: {reason}")
    return None


def report(figures: Sequence[Figure], options: argparse.Namespace, **more: Any) -> int:
    """Print the figures and return the exit status. A missed bar fails only a strict run."""
    if options.json:
        content = {"machine": machine(), "figures": [f.as_json() for f in figures], **more}
        print(json.dumps(content, indent=1))
    else:
        print_table(["figure", "value", "bar", "", "ratio", ""], [f.as_row() for f in figures])
        print(f"\nload {os.getloadavg()[0]:.1f} on {cores()} cores")  # a busy machine is a slow one
    missed = [figure.name for figure in figures if figure.verdict == "short"]
    return 1 if options.strict and missed else 0


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as they need to be; columns without anything in them are left out."""
    kept = [n for n, _ in enumerate(head) if any(row[n] for row in rows)]
    lines = [[line[n] for n in kept] for line in (head, *rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(kept))]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


async def sampled(work: Callable[[], Awaitable[T]]) -> tuple[Sample, T]:
    """What it takes to await `work()` once, and what it returned."""
    gc.collect()  # so that the garbage of whatever came before is not counted
    cpu, wall = time.process_time(), time.perf_counter()
    returned = await work()
    return Sample(time.process_time() - cpu, time.perf_counter() - wall), returned


def middle(samples: Sequence[Sample]) -> Sample:
    """The median of the CPU times and that of the wall times."""
    return Sample(median(s.cpu for s in samples), median(s.wall for s in samples))


def resident_bytes() -> int:
    """Memory that this process holds now; its peak where the system does not tell the present."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_fresh_process(script: str, *arguments: str) -> Any:
    """Run one of these scripts anew and return the JSON that it printed last."""
    command = [sys.executable, script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """A folder that is gone afterwards, below the working folder.

    Not in the system's place for temporary files: that is often memory, where a flush costs nothing.
    """
    parent = Path(".bench")
    parent.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not any(parent.iterdir()):
            parent.rmdir()


def machine() -> dict[str, str]:
    """What the figures are figures of."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(cores()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "flush": f"{flush_seconds() * 1000:.2f} ms",
    }


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def flush_seconds(times: int = 20) -> float:
    """What it takes this disk to make a small write durable, in the median."""
    taken = []
    with folder_on_disk() as folder, (folder / "flush").open("wb", buffering=0) as file:
        for _ in range(times):
            start = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - start)
    return median(taken)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.3f}".rstrip("0")


def main(argv: Sequence[str] | None = None) -> int:
    options = options_for(__doc__, argv)
    content = machine()
    print(
        json.dumps(content) if options.json else "\n".join(f"{k}: {v}" for k, v in content.items())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
