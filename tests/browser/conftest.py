"""A server process with the built dashboard, a browser, and workers that wait until a test lets them go on."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

import chargehand

STATIC = Path(chargehand.__file__).parent / "server" / "static"
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
#: who signs in with the token that the server prints
OWNER = "eva"
CREW = '''
"""Workers whose pace the test decides."""
import asyncio, os
import chargehand as ch

@ch.worker("reader", "Reads reports and notes what they say")
async def reader(brief: ch.Brief) -> str:
    async def read() -> str:
        return f"the text of {brief.task.id}"
    await brief.step("read", read)
    return f"**Revenue** rose by 12 % [{brief.task.id}]"

@ch.worker("holder", "Works until the test lets it go on")
async def holder(brief: ch.Brief) -> str:
    link, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["GATE"]))
    await link.read()
    writer.close()
    return "held and let go"

@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    said = await brief.ask(f"Which **source** counts for {brief.task.id}?", choices=["the report", "the press"])
    return f"it was {said}"

@ch.worker("writer", "Writes reports and texts")
async def writer(brief: ch.Brief) -> str:
    if brief.task.id == "hostile":
        return HOSTILE
    return "# Report\\n\\nGrowth was **12 %** [read1]."

@ch.worker("failing", "Fails")
async def failing(brief: ch.Brief) -> str:
    raise ch.WorkerError("the source is gone <b onmouseover=alert(1)>", kind="denied")

@ch.worker("payer", "Pays, then fails")
async def payer(brief: ch.Brief) -> str:
    async def pay() -> str:
        return "paid"
    await brief.step("pay", pay)
    raise ch.WorkerError("the receipt is gone", kind="denied")

@ch.worker("noter", "Writes on the board, then works until the test lets it go on")
async def noter(brief: ch.Brief) -> str:
    await brief.board.write("towers/eiffel", {"metres": 324, "source": "the report"})
    return await holder(brief)

HOSTILE = """<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">
![pixel](https://tracker.example/pixel.png) [click](javascript:window.hacked=3)
[docs](https://example.com/docs) \\u202eevil"""

CREW = [reader, holder, asker, writer, failing, payer, noter]
'''


class Gate:
    """Holds the workers that have come to it, until they are let go."""

    def __init__(self) -> None:
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self._held: list[socket.socket] = []
        self._is_open = False
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                held, _ = self._door.accept()
            except OSError:
                return
            with self._lock:
                if self._is_open:
                    held.close()
                else:
                    self._held.append(held)

    def open(self) -> None:
        """Let all go on, now and later."""
        with self._lock:
            self._is_open = True
            for each in self._held:
                each.close()
            self._held.clear()

    def shut(self) -> None:
        with self._lock:
            self._is_open = False

    def close(self) -> None:
        self.open()
        self._door.close()


def _drain(pipe: IO[str]) -> None:
    with pipe:
        pipe.read()


class Server:
    """`chargehand serve` as a process of its own."""

    def __init__(
        self,
        place: Path,
        *options: str,
        crew: str = CREW,
        source: Sequence[str] = ("crew.py:CREW", "--model", "offline"),
    ) -> None:
        self.place = place
        self.gate = Gate()
        (place / "crew.py").write_text(crew, encoding="utf-8")
        self._source = source
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        self._options = options
        self.token = ""
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """Start the process; returns when it listens."""
        command = [
            *(sys.executable, "-m", "chargehand", "serve", "--crew", *self._source),
            *("--journal", "runs.db", "--http", f"127.0.0.1:{self.port}"),
            *self._options,
        ]
        self.process = subprocess.Popen(
            command,
            cwd=self.place,
            env={
                **os.environ,
                "GATE": str(self.gate.port),
                "NO_COLOR": "1",
                "LOGNAME": OWNER,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"#token=([\w.-]+)", line):
                self.token = found[1]
                # Read on, so that the process is never held up by a full pipe.
                threading.Thread(target=_drain, args=(self.process.stdout,), daemon=True).start()
                return
        pytest.fail(f"the server did not start: {''.join(said)}")

    def kill(self) -> None:
        """End the process as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.gate.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def call(self, method: str, path: str, body: Any = None, *, token: str = "") -> Any:
        """One request to the API, as a script makes it."""
        headers = {"Authorization": f"Bearer {token or self.token}", "X-Chargehand": "1"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.url}api/v1/{path}"
        request = urllib.request.Request(url, method=method, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=20) as reply:
            return json.loads(reply.read() or b"{}")

    def submit(
        self, *tasks: dict[str, Any], goal: str = "Compare the growth of companies", **more: Any
    ) -> str:
        """The id of a run of these tasks."""
        body = {"plan": {"goal": goal, "tasks": tasks}, **more}
        return str(self.call("POST", "runs", body)["id"])


def task(id_: str, worker: str = "reader", *needs: str) -> dict[str, Any]:
    words = f"Read the report of {id_} and note its revenue"
    return {"id": id_, "description": words, "worker": worker, "needs": list(needs)}


def send_now(page: Page) -> None:
    """Send the answer that can still be taken back; on a slow machine it is sent by itself after five seconds."""
    with contextlib.suppress(PlaywrightTimeout):
        page.locator(".toast").get_by_role("button", name="Send now").click(timeout=4_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not (STATIC / "index.html").is_file():
        pytest.skip("needs the built dashboard: make ui")
    served = Server(tmp_path_factory.mktemp("served"))
    yield served
    served.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("needs chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def context(browser: Browser, server: Server) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    made.set_default_timeout(15_000)
    expect.set_options(timeout=15_000)
    yield made
    made.close()


class Watched:
    """What a page has asked for and complained about."""

    def __init__(self, page: Page, home: str) -> None:
        self.outside: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda sent: self._note(sent.url, home))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self._hear(said.type, said.text))

    def _note(self, url: str, home: str) -> None:
        if not url.startswith((home, "data:", "blob:")):
            self.outside.append(url)

    def _hear(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.errors.append(text)


@pytest.fixture
def page(context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page that is signed in. Whatever a test does, nothing goes outside and no script fails."""
    opened = context.new_page()
    watched = Watched(opened, server.url)
    opened.goto(f"{server.url}#token={server.token}")
    opened.get_by_role("navigation", name="Breadcrumb").wait_for()
    yield opened
    with contextlib.suppress(Exception):
        opened.close()
    server.gate.open()
    server.gate.shut()
    assert watched.outside == []
    assert watched.errors == []
