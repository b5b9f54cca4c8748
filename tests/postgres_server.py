"""A real PostgreSQL server for tests: a cluster of its own, in a private folder, as a user of its own."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

#: where Debian keeps the programs of each version
_DEBIAN = Path("/usr/lib/postgresql")


def ending_with_us() -> tuple[str, ...]:
    """What is put before a program that must not outlive this process.

    It ends with the thread that started it, so only the main thread may ask for that.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return ("setpriv", "--pdeathsig", "QUIT") if is_main and shutil.which("setpriv") else ()


def programs() -> Path | None:
    """The folder of `initdb` and `postgres`; None if PostgreSQL is not installed."""
    versions = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    return Path(found).parent if found else None


class PostgresServer:
    """One cluster. It refuses to run as root, so it runs as a user of its own where we are root."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self._bin = bin_folder
        self._data = folder / "data"
        self._user = _user()
        if self._user is not None:
            owner = pwd.getpwnam(self._user)
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        self._run("initdb", "--auth=trust", "--username=test", "--no-sync", "-D", str(self._data))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://test@/postgres?host={self.folder}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *settings: str, inside: Sequence[str] = ()) -> None:
        """Start the server and wait until it takes connections.

        `inside` is put before the command, as root: the server then listens on all addresses there.
        """
        options = ["-k", str(self.folder), "-c", f"listen_addresses={'*' if inside else ''}"]
        options += [part for setting in settings for part in ("-c", setting)]
        before = ending_with_us()
        if inside and self._user is not None:
            become = (f"--reuid={self._user}", f"--regid={self._user}", "--init-groups")
            before = (*inside, *(before or ("setpriv",)), *become)
        command = [*before, str(self._bin / "postgres"), "-D", str(self._data), *options]
        with (self.folder / "log").open("ab") as log:
            user = None if inside else self._user
            self._process = subprocess.Popen(
                command, user=user, stdout=log, stderr=log, cwd=self.folder
            )
        for _ in range(600):
            ready = [str(self._bin / "pg_isready"), "-q", "-h", str(self.folder)]
            if subprocess.run(ready, check=False).returncode == 0:
                found = Path(self.sql("SHOW data_directory"))
                assert found == self._data, f"another server answers: {found}"
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)
        raise AssertionError("PostgreSQL does not start: " + (self.folder / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT breaks all connections, SIGQUIT is a crash without a checkpoint."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(how)
            self._process.wait(30)

    def admit(self, addresses: str) -> None:
        """Let clients in that come from there."""
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write(f"host all test {addresses} trust\n")

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run one statement as the owner of the cluster."""
        command = [str(self._bin / "psql"), "-qAtX", "-h", str(self.folder), "-U", "test"]
        done = subprocess.run(
            [*command, "-d", database, "-c", statement], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._bin / program), *arguments],
            user=self._user,
            check=True,
            capture_output=True,
            cwd=self.folder,
        )


def _user() -> str | None:
    if os.geteuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Pooler:
    """A real pgbouncer in transaction mode, in front of a server."""

    def __init__(self, server: PostgresServer) -> None:
        self.folder = server.folder / "pooler"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.folder.chmod(0o777)
        (self.folder / "users").write_text('"test" ""\n')
        (self.folder / "ini").write_text(
            f"[databases]\n* = host={server.folder}\n[pgbouncer]\nlisten_addr =\nlisten_port = 6543\n"
            f"unix_socket_dir = {self.folder}\nauth_type = trust\nauth_file = {self.folder}/users\n"
            "pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = 20\n"
            "ignore_startup_parameters = extra_float_digits\n"
        )
        self.dsn = f"postgresql://test@/postgres?host={self.folder}&port=6543"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*ending_with_us(), pooler_program(), str(self.folder / "ini")],
                user=_user(),
                stdout=log,
                stderr=log,
            )
        while not (self.folder / ".s.PGSQL.6543").exists():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def pooler_program() -> str:
    """Where pgbouncer is; empty if it is not installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or ""


@contextlib.contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server that is there for as long as this is open, and listens on no address."""
    with server_in((), "") as server:
        yield server


@contextlib.contextmanager
def server_in(inside: Sequence[str], addresses: str) -> Iterator[PostgresServer]:
    """A server in a network namespace of the test: `inside` is put before its command."""
    bin_folder = programs()
    assert bin_folder is not None
    folder = Path(tempfile.mkdtemp(prefix="chargehand-pg-"))
    try:
        server = PostgresServer(folder, bin_folder)
        if inside:
            server.admit(addresses)
        server.start(inside=inside)
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)  # nobody needs it again, so it need not tidy up
    finally:
        shutil.rmtree(folder, ignore_errors=True)
