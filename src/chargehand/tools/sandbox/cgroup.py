"""A cgroup that limits the memory and the processes of a whole sandbox, if the system allows it."""

import contextlib
import os
import time
from pathlib import Path
from uuid import uuid4

ROOT = Path("/sys/fs/cgroup")
_PREFIX = "chargehand-"
#: seconds to wait until the kernel has emptied a group whose processes were killed
_CLOSING = 0.5


class Cgroup:
    """A cgroup next to that of the supervisor; the limits of their common parent hold for both."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def ran_out_of_memory(self) -> bool:
        with contextlib.suppress(OSError):
            events = (self.path / "memory.events").read_text(encoding="ascii").split()
            return events[events.index("oom_kill") + 1] != "0"
        return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1", encoding="ascii")
        patience = time.monotonic() + _CLOSING
        while time.monotonic() < patience:
            try:
                self.path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.01)  # busy until the last process is gone, which is not signalled
            else:
                return


def new_cgroup(memory: int, processes: int, root: Path = ROOT) -> Cgroup | None:
    """A new group with these limits; None if this process may not create cgroups (version 2)."""
    parent = _parent(root)
    if parent is None:
        return None
    _sweep(parent)
    group = Cgroup(parent / f"{_PREFIX}{os.getpid()}-{uuid4().hex[:12]}")
    try:
        group.path.mkdir()
        for name, value in (
            ("memory.max", memory),
            ("memory.swap.max", 0),
            ("memory.oom.group", 1),
            ("pids.max", processes),
        ):
            if (group.path / name).exists() or name in ("memory.max", "pids.max"):
                (group.path / name).write_text(str(value), encoding="ascii")
    except OSError:
        group.close()
        return None
    return group


def _parent(root: Path) -> Path | None:
    """The parent of our group: a group that contains processes cannot have limited subgroups."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        ours = next((line[3:] for line in lines if line.startswith("0::/")), "/")
        parent = root / Path(ours).parent.relative_to("/")
        shared = (parent / "cgroup.subtree_control").read_text(encoding="ascii").split()
        # Moving a process between two groups needs write access to their common parent.
        may_move = os.access(parent / "cgroup.procs", os.W_OK)
        if ours != "/" and may_move and {"memory", "pids"} <= set(shared):
            return parent
    return None


def _sweep(parent: Path) -> None:
    """Remove the groups of supervisors that were killed."""
    for left in parent.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):
                left.rmdir()
