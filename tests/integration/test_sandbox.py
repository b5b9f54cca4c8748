"""The sandbox: what it gives a program, what it keeps from it, and that it fails closed."""

import asyncio
import functools
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from chargehand.decisions.tool_policy import Traits
from chargehand.errors import ToolError, UsageError
from chargehand.tools.base import Tool, ToolContext
from chargehand.tools.sandbox import cgroup
from chargehand.tools.sandbox import mounts as walls
from chargehand.tools.sandbox import runner as jail
from chargehand.tools.sandbox.runner import (
    ENVIRONMENT,
    Capture,
    SandboxedProcess,
    SandboxLimits,
    SandboxProgram,
)
from chargehand.tools.sandbox.seccomp import call_filter, refused_calls
from chargehand.tools.sandbox.tools import BACKENDS, SandboxTools, sandbox
from tests.integration import escapes

IS_LINUX = sys.platform == "linux"
SECRET = "canary-8f2c1e"
#: an argument by which the programs of these tests are known among all processes
MARK = "98765.4321"

needs_linux = pytest.mark.skipif(not IS_LINUX, reason="needs Linux; run it in a container")
pytestmark = needs_linux
needs_bubblewrap = pytest.mark.skipif(
    IS_LINUX and shutil.which("bwrap") is None,
    reason="needs bwrap; get it with: apt-get install bubblewrap",
)


@functools.cache
def why_not(backend: str) -> str:
    """Why this machine's kernel refuses, if it does."""
    python, _ = sandbox(backend=backend)
    try:
        asyncio.run(call(python, code="print(1)"))
    except ToolError as error:
        return str(error)
    return ""


@pytest.fixture(params=["namespaces", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def backend(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if refusal := in_a_thread(why_not, name):
        pytest.skip(f"needs a kernel that lets us build a sandbox; run as root. It says: {refusal}")
    return name


def in_a_thread(function: Any, *args: Any) -> Any:
    """Because a fixture may be set up while a loop runs, where `asyncio.run` is not allowed."""
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


async def call(tool: Tool, **arguments: Any) -> dict[str, Any]:
    result = await tool.call(ToolContext(), json.dumps(arguments))
    assert isinstance(result.value, dict), result.value
    return result.value


async def python(backend: str, code: str, **terms: Any) -> dict[str, Any]:
    return await call(sandbox(backend=backend, **terms)[0], code=code)


async def shell(backend: str, command: str, **terms: Any) -> dict[str, Any]:
    return await call(sandbox(backend=backend, **terms)[1], command=command)


def still_there(mark: str) -> list[str]:
    """The host's processes that have this among their arguments."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if mark.encode() in arguments:
            found.append(str(place))
    return found


async def gone(mark: str) -> bool:
    for _ in range(200):
        if not still_there(mark):
            return True
        await asyncio.sleep(0.01)
    return False


# What a program gets


async def test_a_program_runs_and_says_what_it_prints_and_how_it_ended(backend: str) -> None:
    told = await python(
        backend, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    )
    assert told == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}


async def test_python_finds_the_packages_of_this_one(backend: str) -> None:
    told = await python(backend, "import msgspec; print(msgspec.json.encode([1]).decode())")
    assert told["stdout"] == "[1]\n"


async def test_a_command_line_may_use_pipes_and_the_scratch_folder(backend: str) -> None:
    told = await shell(backend, "printf 'b\\na\\n' | sort > list; cat list; pwd; echo $HOME")
    assert told["stdout"] == "a\nb\n/scratch\n/scratch\n"
    assert told["files"] == [{"path": "list", "size": 4}]


async def test_files_are_handed_out_when_asked_for(backend: str) -> None:
    run_python, _ = sandbox(backend=backend)
    code = """
import os
open('text', 'w').write('größer')
open('binary', 'wb').write(b'\\xff\\xfe')
open('large', 'w').write('x' * 100_000)
os.symlink('/usr/bin/env', 'link')
os.mkfifo('pipe')
"""
    told = await call(run_python, code=code, files=["text", "binary", "large", "link", "pipe"])
    files = {file["path"]: file for file in told["files"]}
    assert set(files) == {"text", "binary", "large"}
    assert files["text"]["text"] == "größer"
    assert files["binary"]["base64"] == "//4="
    assert len(files["large"]["text"]) == 16 * 1024
    assert files["large"]["size"] == 100_000


async def test_nothing_is_left_for_the_next_program(backend: str) -> None:
    _, run_shell = sandbox(backend=backend)
    await call(run_shell, command="echo x > kept; echo x > $TMPDIR/kept")
    told = await call(run_shell, command="ls -A . $TMPDIR")
    assert "kept" not in told["stdout"]


async def test_data_can_be_read_and_not_changed(backend: str, tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    (tmp_path / "sales" / "q1.csv").write_text("1,2\n")
    opened_to_all(tmp_path)
    _, run_shell = sandbox(backend=backend, data=tmp_path / "sales")
    assert "/data/sales" in run_shell.description
    assert run_shell.untrusted
    told = await call(run_shell, command="cat /data/sales/q1.csv; echo 3 >> /data/sales/q1.csv")
    assert told["stdout"] == "1,2\n"
    assert told["exit_code"] == 1
    assert (tmp_path / "sales" / "q1.csv").read_text() == "1,2\n"


async def test_several_programs_run_at_once(backend: str) -> None:
    run_python, _ = sandbox(backend=backend)
    told = await asyncio.gather(*(call(run_python, code=f"print({n} ** 2)") for n in range(6)))
    assert [each["stdout"] for each in told] == [f"{n**2}\n" for n in range(6)]


async def test_processes_of_python_can_share_work(backend: str) -> None:
    code = """
from concurrent.futures import ProcessPoolExecutor
if __name__ == '__main__':
    with ProcessPoolExecutor(2) as pool:
        print(sum(pool.map(abs, [-1, -2])))
"""
    assert (await python(backend, code))["stdout"] == "3\n"


def opened_to_all(folder: Path) -> None:
    """As `data` must be where the tests run as root and the program does not."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)


# What it does not get


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Things of the host that a program would like to have, and the facts to find them by."""
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "canary").write_text(SECRET)
    (data / "plain").write_text("plain")
    (data / "link").symlink_to(tmp_path / "canary")
    os.mkfifo(data / "fifo")
    opened_to_all(tmp_path)
    (data / "fifo").chmod(0o777)
    monkeypatch.setenv("CHARGEHAND_TEST_SECRET", SECRET)
    home = Path.home()
    leads_to_python = {
        place.relative_to(home).parts[0]
        for place in map(Path, (sys.prefix, sys.base_prefix))
        if place.is_relative_to(home)
    }
    in_home = [place.name for place in home.iterdir()] if os.access(home, os.R_OK) else []
    pipe = os.open(data / "fifo", os.O_RDWR | os.O_NONBLOCK)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind(f"\0chargehand-{os.getpid()}")
        abstract.listen()
        monkeypatch.chdir(data)  # the whole path may be longer than a socket's may
        named.bind("socket")
        Path("socket").chmod(0o777)
        named.listen()
        tcp.setblocking(False)
        named.setblocking(False)
        abstract.setblocking(False)
        yield {
            "canary": str(tmp_path / "canary"),
            "repository": str(Path(__file__).resolve()),
            "home": str(home),
            "in_home": [name for name in in_home if name not in leads_to_python],
            "data": "/data/data",
            "secret": SECRET,
            "pid": os.getpid(),
            "group": os.getpgrp(),
            "port": tcp.getsockname()[1],
            "abstract": f"chargehand-{os.getpid()}",
        }
        for server in (tcp, abstract, named):
            with pytest.raises(BlockingIOError):
                server.accept()
        with pytest.raises(BlockingIOError):
            os.read(pipe, 1)
        os.close(pipe)


async def test_f9_no_attempt_of_the_corpus_gets_out(
    backend: str, host: dict[str, Any], tmp_path: Path
) -> None:
    """F9: files, environment, network, processes, namespaces, devices, by Python and by ctypes."""
    run_python, _ = sandbox(backend=backend, data=tmp_path / "data", limit=timedelta(seconds=30))
    source = Path(escapes.__file__).read_text(encoding="utf-8")
    facts = f"open('facts.json', 'w').write({json.dumps(host)!r})\n"
    told = await call(run_python, code=facts + source)
    assert told["exit_code"] == 0, told
    report = json.loads(told["stdout"])
    assert report["escaped"] == {}
    assert report["tried"] == len(escapes.ATTEMPTS) > 60
    assert SECRET not in json.dumps(told)


def test_the_corpus_gets_out_where_there_is_no_sandbox(
    host: dict[str, Any], tmp_path: Path
) -> None:
    """Else it would prove nothing. Only attempts that harm nobody are made here."""
    harmless = [
        *("read_passwd", "read_the_canary", "read_the_repository", "follow_a_link_in_the_data"),
        *("read_every_environment", "see_processes_of_the_host", "signal_the_supervisor"),
        *("open_a_descriptor_of_the_supervisor", "find_sockets_and_system_folders"),
        *("open_raw_netlink_and_machine_sockets", "hide_memory_from_the_limits"),
    ]
    code = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import escapes\n"
        "escapes.FACTS.update(json.loads(sys.argv[2]))\n"
        "print(all(escapes.ATTEMPTS[name]() for name in sys.argv[3:]))"
    )
    facts = json.dumps(host | {"data": str(tmp_path / "data")})
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(escapes.__file__).parent), facts, *harmless],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr


# Bombs


async def test_f6_a_fork_storm_is_held(backend: str) -> None:
    """F6: never more than its processes, and all of them gone with it."""
    storm = f"bomb() {{ sleep {MARK} & bomb | bomb & }}; bomb; sleep {MARK}"
    most = 0

    async def count() -> None:
        nonlocal most
        while True:
            most = max(most, len(still_there(MARK)))
            await asyncio.sleep(0.1)

    counting = asyncio.ensure_future(count())
    with pytest.raises(ToolError, match="longer than 1 s") as caught:
        await shell(backend, storm, limit=timedelta(seconds=1), processes=24)
    counting.cancel()
    assert caught.value.kind == "timeout"
    assert 0 < most <= 25
    assert await gone(MARK)


async def test_no_more_processes_are_started_than_allowed(backend: str) -> None:
    code = """
import os, time
started = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        started += 1
except OSError as error:
    print(started, error.strerror)
"""
    told = await python(backend, code, processes=24)
    assert told["stdout"] == "23 Resource temporarily unavailable\n"


async def test_a20_f6_a_memory_bomb_ends_itself_and_not_the_supervisor(backend: str) -> None:
    """A20, F6: twenty in a row, four at a time."""
    run_python, _ = sandbox(backend=backend, memory=128 * 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bomb = "hoard = []\nwhile True: hoard.append(bytearray(2**22))"
    for _ in range(5):
        told = await asyncio.gather(*(call(run_python, code=bomb) for _ in range(4)))
        assert all(each["exit_code"] != 0 for each in told)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 * 1024  # in kB: none of it was ours


async def test_many_processes_together_have_one_memory(backend: str) -> None:
    """Each of them is below its own limit."""
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        hoard = bytearray(os.urandom(1) * (80 * 2**20))
        time.sleep(60)
time.sleep(60)
"""
    started = time.monotonic()
    told = await python(backend, code, memory=256 * 2**20)
    assert told["killed"] == "too much memory"
    assert time.monotonic() - started < 20


async def test_pages_that_are_shared_are_counted_once(backend: str) -> None:
    code = """
import os, time
hoard = bytearray(os.urandom(1) * (100 * 2**20))
children = [os.fork() for _ in range(3)]
time.sleep(0.5)
print('fine') if all(children) else None
"""
    told = await python(backend, code, memory=256 * 2**20)
    assert told["stdout"] == "fine\n"
    assert told["exit_code"] == 0


async def test_f6_a_disk_bomb_fills_only_its_own_folder(backend: str) -> None:
    code = """
import os
try:
    for n in range(100):
        with open(f'part{n}', 'wb') as file:
            for _ in range(3): file.write(bytes(2**20))
except OSError as error:
    print(error.strerror, n)
"""
    told = await python(backend, code, disk=8 * 2**20)
    assert told["stdout"] == "No space left on device 2\n"


async def test_a_bomb_of_small_files_is_held(backend: str) -> None:
    code = """
import itertools, os
for n in itertools.count():
    os.close(os.open(f'tmp/{n}', os.O_CREAT))
"""
    told = await python(backend, code)
    assert told.get("killed") == "too many files" or "No space left" in told["stderr"]


async def test_f6_a_bomb_of_open_files_is_held(backend: str) -> None:
    told = await python(backend, "import os\nwhile True: os.open('/dev/null', 0)")
    assert "Too many open files" in told["stderr"]


async def test_a_flood_of_output_is_cut_and_stopped(backend: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told = await shell(backend, f"echo first; yes {'x' * 1000}")
    assert told["killed"] == "too much output"
    assert told["stdout"].startswith("first\nxxx")
    assert "bytes left out" in told["stdout"]
    assert len(told["stdout"]) < 25 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


# Time


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("while True: pass", id="Python"),  # F4
        pytest.param("import re; re.match('(a+)+$', 'a' * 64 + 'b')", id="C"),  # F5
        pytest.param(
            "import signal, threading\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
            "threading.Event().wait()",
            id="blocking",
        ),
        pytest.param("import os; os.setsid; os.fork(); os.fork()\nwhile True: pass", id="family"),
    ],
)
async def test_f4_f5_an_endless_program_is_killed_at_its_limit(backend: str, code: str) -> None:
    begin = "import time; print('begun', time.time())\n"
    with pytest.raises(ToolError, match="longer than 1 s and was killed") as caught:
        await python(backend, begin + code, limit=timedelta(seconds=1))
    ended = time.time()
    assert caught.value.kind == "timeout"
    begun = float(str(caught.value).split("begun ")[1].split()[0])
    assert ended - begun < 2


async def test_what_stays_behind_ends_with_the_program(backend: str) -> None:
    started = time.monotonic()
    told = await shell(backend, f"setsid sleep {MARK} & (setsid nohup sleep {MARK} &) ; echo done")
    assert told["stdout"] == "done\n"
    assert time.monotonic() - started < 10
    assert await gone(MARK)


async def test_a_cancelled_call_leaves_no_process(backend: str) -> None:
    _, run_shell = sandbox(backend=backend)
    await call(run_shell, command="true")
    calling = asyncio.ensure_future(call(run_shell, command=f"sleep {MARK}"))
    while not still_there(MARK):
        await asyncio.sleep(0.01)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert await gone(MARK)


async def test_a_program_ends_with_a_supervisor_that_is_killed(backend: str) -> None:
    code = (
        "import asyncio\nfrom chargehand.tools.sandbox.tools import sandbox\n"
        f"asyncio.run(sandbox(backend={backend!r})[1].function(command='sleep {MARK}'))"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as supervisor:
        while not still_there(MARK):
            assert supervisor.poll() is None
            await asyncio.sleep(0.01)
        supervisor.kill()
    assert await gone(MARK)


# Fails closed


class Marked:
    """A program that would leave a mark on the host if it ever ran without walls."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "ran-without-walls"
        code = f"open({str(self.mark)!r}, 'w')"
        program = os.path.realpath(sys.executable)
        self.program = SandboxProgram(
            path=program, argv=[program, "-I", "-c", code], env=ENVIRONMENT
        )


ALLOWANCE = SandboxLimits(seconds=10, memory=2**30, processes=16)


def jailed(backend: walls.Backend) -> SandboxedProcess:
    return SandboxedProcess(walls.walls_for([], 2**20), backend, ALLOWANCE)


@needs_bubblewrap
async def test_f8_a_backend_that_disappears_means_refusal(tmp_path: Path) -> None:
    """F8: it worked a moment ago; nothing takes its place."""
    bwrap = tmp_path / "bwrap"
    shutil.copy(str(shutil.which("bwrap")), bwrap)
    bench = SandboxTools([], ALLOWANCE, 2**20, [walls.bubblewrap(str(bwrap))])
    assert (await bench.run_shell("echo fine"))["stdout"] == "fine\n"
    bwrap.unlink()
    for _ in range(3):
        with pytest.raises(ToolError, match="install the package bubblewrap") as caught:
            await bench.run_shell(f"touch {tmp_path}/ran")
        assert caught.value.kind == "denied"
    assert list(tmp_path.iterdir()) == []
    shutil.copy(str(shutil.which("bwrap")), bwrap)
    assert (await bench.run_shell("echo fine"))["stdout"] == "fine\n"


@pytest.mark.parametrize(
    "impostor",
    [
        '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n',
        "#!/bin/sh\nexit 0\n",
        "#!/bin/sh\necho it does not work >&2; exit 1\n",
        "#!/bin/sh\nkill -9 $$\n",
        "not a program",
    ],
    ids=["runs it bare", "does nothing", "fails", "dies", "is none"],
)
def test_f8_a_backend_that_builds_no_walls_means_refusal(tmp_path: Path, impostor: str) -> None:
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(impostor)
    bwrap.chmod(0o755)
    marked = Marked(tmp_path)
    with pytest.raises(ToolError, match="nothing was run") as caught:
        jailed(walls.bubblewrap(str(bwrap))).run(marked.program)
    assert caught.value.kind == "denied"
    assert not marked.mark.exists()


@needs_bubblewrap
@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("--unshare-net", "net namespace is the host's"),
        ("--unshare-ipc", "ipc namespace is the host's"),
        ("--unshare-pid", "pid"),
        ("more", "more of the host is visible"),
    ],
)
def test_each_wall_is_tried_before_every_program(tmp_path: Path, missing: str, reason: str) -> None:
    """A real backend that is told to leave one out."""

    def leaky(wanted: walls.MountPlan) -> list[str]:
        command = walls.bubblewrap()(wanted)
        if missing == "more":
            return [command[0], "--ro-bind", "/etc", "/host-etc", *command[1:]]
        return [word for word in command if word != missing]

    marked = Marked(tmp_path)
    with pytest.raises(ToolError, match=reason) as caught:
        jailed(leaky).run(marked.program)
    assert caught.value.kind == "denied"
    assert not marked.mark.exists()


def test_a_kernel_that_allows_no_namespaces_means_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As inside most containers."""
    blind = tmp_path / "enter.py"
    source = Path(walls.launcher()[-1]).read_text(encoding="utf-8")
    blind.write_text(source.replace("check(libc.unshare(flags)", "check(libc.unshare(-1)"))
    monkeypatch.setattr(jail, "launcher", lambda: [*walls.isolated_python(), str(blind)])
    marked = Marked(tmp_path)
    with pytest.raises(ToolError, match="unshare namespaces: Invalid argument"):
        jailed(walls.own_walls).run(marked.program)
    assert not marked.mark.exists()


def test_another_system_means_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    marked = Marked(tmp_path)
    with pytest.raises(ToolError, match="needs Linux, and this is darwin"):
        jailed(walls.own_walls).run(marked.program)
    assert not marked.mark.exists()


def test_an_unknown_processor_means_refusal() -> None:
    with pytest.raises(ToolError, match="no system call filter for riscv64"):
        call_filter("riscv64")


def test_a_program_that_was_stopped_before_it_began_never_runs(tmp_path: Path) -> None:
    marked = Marked(tmp_path)
    stopped = jailed(walls.own_walls)
    stopped.kill()
    with pytest.raises(ToolError, match="stopped before it began"):
        stopped.run(marked.program)
    assert not marked.mark.exists()


# Its parts


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_whole_number_of_lines(machine: str) -> None:
    assert len(call_filter(machine)) % 8 == 0
    assert len(call_filter(machine)) // 8 < 4096
    assert {"mount", "ptrace", "socket", "unshare", "bpf"} <= set(refused_calls(machine))


def test_a_group_of_its_own_limits_memory_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a folder that looks like the kernel's, as few machines let tests make real groups."""
    monkeypatch.setattr(Path, "read_text", in_a_group(Path.read_text))
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "cgroup.subtree_control").write_text("cpu memory pids\n")
    (tmp_path / "team" / "cgroup.procs").write_text("")
    left = tmp_path / "team" / "chargehand-999999999-gone"
    left.mkdir()
    group = cgroup.new_cgroup(1000, 5, tmp_path)
    assert group is not None
    assert group.path.parent == tmp_path / "team"
    assert (group.path / "memory.max").read_text() == "1000"
    assert (group.path / "pids.max").read_text() == "5"
    assert not left.exists()
    assert not group.ran_out_of_memory
    (group.path / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert group.ran_out_of_memory


def in_a_group(real: Any) -> Any:
    def read(self: Path, *args: Any, **options: Any) -> str:
        if str(self) == "/proc/self/cgroup":
            return "0::/team/supervisor\n"
        return str(real(self, *args, **options))

    return read


def test_without_a_group_there_is_none(tmp_path: Path) -> None:
    assert cgroup.new_cgroup(1000, 5, tmp_path) is None


@pytest.mark.parametrize("pieces", [[b"ab"], [b"a" * 50, b"b" * 50], [b"x"] * 1000])
def test_a_capture_keeps_both_ends(pieces: Sequence[bytes]) -> None:
    capture = Capture(40)
    for piece in pieces:
        capture.add(piece)
    whole = b"".join(pieces).decode()
    if len(whole) <= 40:
        assert capture.text == whole
    else:
        assert capture.text.startswith(whole[:20])
        assert capture.text.endswith(whole[-20:])
        assert f"{len(whole) - 40} bytes left out" in capture.text


async def test_its_terms_are_told_to_the_policy_and_the_model() -> None:
    tools = sandbox(limit=timedelta(seconds=30), memory=2**28)
    for each in tools:
        traits = Traits(name=each.name, effect=each.effect, is_untrusted=each.untrusted)
        assert not traits.acts
        assert "No network; 30 s; 256 MB of memory" in each.description


@pytest.mark.parametrize(
    "terms", [{"backend": "docker"}, {"limit": timedelta(0)}, {"memory": 0}, {"processes": 0}]
)
def test_terms_that_make_no_sense_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        sandbox(**terms)


async def test_data_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        sandbox(data=tmp_path / "nowhere")


async def test_a_program_that_is_too_long_is_refused() -> None:
    with pytest.raises(ToolError, match="too long"):
        await sandbox()[0].function(code="#" * 300_000)


def test_every_way_is_a_known_backend() -> None:
    assert set(BACKENDS) == {"auto", "bubblewrap", "namespaces"}
