"""What it takes to have chargehand at all: its import, its memory when idle, what it brings along."""

import argparse
import compileall
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, in_fresh_process, options_for, report

CPU_BAR, RESIDENT_BAR, DEPENDENCIES_BAR, SIZE_BAR = 0.15, 45.0, 10, 50.0

IMPORT_AND_TELL = """
import json, resource, sys, time
start = time.process_time()
import chargehand
took = time.process_time() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(json.dumps({"cpu": took, "resident": peak, "modules": len(sys.modules)}))
"""


def measure(repeats: int) -> list[Figure]:
    # As an installer does; from a fresh checkout the first import would compile everything.
    compileall.compile_dir(Path(__file__).parents[1] / "src" / "chargehand", quiet=1)
    told = [in_fresh_process("-c", IMPORT_AND_TELL) for _ in range(repeats)]
    figures = [
        Figure(
            name="import chargehand: CPU",
            value=median(each["cpu"] for each in told),
            unit="s",
            bar=CPU_BAR,
            note=f"{told[0]['modules']} modules loaded",
        ),
        Figure(
            name="resident after the import",
            value=median(each["resident"] for each in told) / 1e6,
            unit="MB",
            bar=RESIDENT_BAR,
        ),
    ]
    try:
        installed = distribution("chargehand")
    except PackageNotFoundError:
        return figures  # run from the source, without an installation to look at
    direct = sorted(direct_dependencies(installed))
    size = sum(size_of(each) for each in with_all_below(installed)) / 1e6
    return [
        *figures,
        Figure(
            name="direct dependencies",
            value=len(direct),
            bar=DEPENDENCIES_BAR,
            note=", ".join(direct),
        ),
        Figure(name="installed, dependencies included", value=size, unit="MB", bar=SIZE_BAR),
    ]


def direct_dependencies(installed: Distribution) -> set[str]:
    """Names that it requires without being asked for an extra."""
    needed = [each for each in installed.requires or [] if "extra ==" not in each]
    return {match[0] for each in needed if (match := re.match(r"[\w.-]+", each))}


def with_all_below(installed: Distribution) -> Iterator[Distribution]:
    seen: set[str] = set()
    left = [installed]
    while left:
        here = left.pop()
        if here.name in seen:
            continue
        seen.add(here.name)
        yield here
        for name in direct_dependencies(here):
            try:
                left.append(distribution(name))
            except PackageNotFoundError:  # meant for another platform or Python
                continue


def size_of(installed: Distribution) -> int:
    """Bytes of its files, without what Python compiles from them by itself."""
    files = [Path(str(installed.locate_file(file))) for file in installed.files or []]
    if installed.name == "chargehand" and not any(file.name == "errors.py" for file in files):
        # installed for editing: its files are where the source is
        files += (Path(__file__).parents[1] / "src" / "chargehand").rglob("*")
    return sum(f.stat().st_size for f in files if f.is_file() and f.suffix != ".pyc")


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--repeats", type=int, default=10)

    options = options_for(__doc__, argv, add)
    return report(measure(options.repeats), options)


if __name__ == "__main__":
    sys.exit(main())
