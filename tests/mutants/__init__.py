"""Planted bugs: a suite that has never failed proves nothing.

Each mutant is data (see `decisions.toml`): one line of the source changed, and the fast check that
must notice. Other areas have files of their own beside it, in the same form.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
#: where the sound source is; another place to try out a change of it
SOURCE = Path(os.environ.get("MUTANTS_SOURCE", ROOT / "src"))
#: fault schedules a mutant has to survive
SEEDS = "0:300"
#: checks without an event loop of their own
PLAIN = (
    "tests/decisions/",
    "tests/tools/",
    "tests/guide/test_pool",
    "tests/integration/test_pool",
)
#: seconds; a check that hangs has noticed something, too
PATIENCE = 60


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    what: str
    file: str
    old: str
    new: str
    caught: str

    def plant(self, package: Path) -> None:
        """Change the copy of the source in `package`."""
        path = package / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


def mutants() -> list[Mutant]:
    """All of them, file by file."""
    return [
        Mutant(**fields)
        for path in sorted(HERE.glob("*.toml"))
        for fields in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]
    ]


def stale(chosen: Sequence[Mutant]) -> list[str]:
    """Complaints about mutants whose old text is not in the source exactly once any more."""
    complaints = []
    for mutant in chosen:
        path = SOURCE / "chargehand" / mutant.file
        count = path.read_text(encoding="utf-8").count(mutant.old) if path.exists() else 0
        if count != 1:
            complaints.append(
                f"{mutant.what!r}: its old text is {count} times in {mutant.file}, not once; "
                "bring the mutant up to date"
            )
    return complaints


def is_caught(mutant: Mutant) -> bool:
    """Whether the check that the mutant names fails on a source that has it."""
    with copied_source() as source:
        mutant.plant(source / "chargehand")
        return not passes(mutant.caught, source)


def passes(check: str, source: Path) -> bool:
    """Whether a fast check is content with this source."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
    with subprocess.Popen(
        [sys.executable, "-m", *_command(check)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as checking:
        try:
            said, _ = checking.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(checking.pid, signal.SIGKILL)  # the servers that it started, too
            return False
    if checking.returncode not in (0, 1):  # 1 is a failed test; more is a check that could not run
        raise RuntimeError(f"{check!r} did not run: {said[-2000:]}")
    return checking.returncode == 0


def _command(check: str) -> list[str]:
    if check == "simulation":
        return ["tests.simulation", "--seeds", SEEDS, "--fail-fast"]
    return ["pytest", "-x", "-q", "-p", "no:cacheprovider", *_plugins(check), *check.split()]


def _plugins(check: str) -> list[str]:
    """What pytest is to load. Its plugins take longer than tests that need none, having no event loop."""
    if check.startswith(PLAIN):
        return ["--disable-plugin-autoload", "-c", os.devnull, "--rootdir", str(ROOT)]
    return ["-p", "no:randomly", "-p", "no:xdist"]


@contextmanager
def copied_source() -> Iterator[Path]:
    """A private copy of the source, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        source = Path(folder) / "src"
        # Compiled files are copied too: they stay valid for all but the mutated module.
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("static"))
        yield source


def survivors(chosen: Sequence[Mutant], at_once: int = 2) -> Iterator[Mutant]:
    """Those that no check noticed."""
    with ThreadPoolExecutor(at_once) as pool:
        for mutant, caught in zip(chosen, pool.map(is_caught, chosen), strict=True):
            if not caught:
                yield mutant


def unfit(checks: Sequence[str]) -> list[str]:
    """The checks that fail without any bug planted: they would catch everything, and prove nothing."""
    with copied_source() as source:
        return [check for check in checks if not passes(check, source)]
