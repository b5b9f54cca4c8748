"""How the dashboard holds up with large runs: real Chromium, the real page, a real server and real runs.

For each size a server leads a run of as many tasks. Half of them are quick and make ten calls each; the rest take a second
or two and keep the run live while its updates are measured. It is paused while the page is panned, so that the server does
not take the same cores. The last run is over, with all its calls loaded: that is the memory figure. Script time is CPU time
of the page's thread, less what it takes while nothing happens. Frames are what Chromium shows, in software, so a busy
machine makes them slower.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, folder_on_disk, options_for, report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

ROOT = Path(__file__).parents[1]
SIZES = (100, 2_000, 5_000)
CALLS = 10
#: siblings of a fan-out; each is fetched, then read, and all are joined
WIDTH = 100
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --enable-precise-memory-info"
)
#: of 2,000 tasks; the memory is that of 5,000 with 50,000 calls
USABLE_BAR, PAN_BAR, UPDATE_BAR, LAYOUT_BAR, HEAP_BAR = 500, 33, 4, 50, 120
PAGE = ROOT / "src/chargehand/server/static/index.html"
#: live updates that a mean is made of, at least
FEWEST_UPDATES = 20
#: seconds of live updates that are measured
LIVE = 8.0

PAN = """async () => {
  const canvas = document.querySelector("canvas");
  const frames = [];
  let last = 0;
  for (let at = 0; at < 90; at++) {
    const now = await new Promise(requestAnimationFrame);
    if (at > 5) frames.push(now - last);
    last = now;
    const deltaX = at % 40 < 20 ? 30 : -30;
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaX, deltaY: at % 20 < 10 ? 12 : -12, cancelable: true }));
  }
  frames.sort((a, b) => a - b);
  return frames[Math.floor(frames.length * 0.95)];
}"""
LAYOUT = """() => performance.getEntriesByName("graph-layout").at(-1)?.duration ?? 0"""
LOADED = """() => performance.getEntriesByType("resource").filter((each) => each.name.includes("/calls?")).length"""
SHOWN = """() => performance.getEntriesByName("graph-shown")[0]?.startTime"""


@dataclass(frozen=True)
class PageFigures:
    """What one run's page took, in milliseconds; memory in megabytes."""

    usable: float
    layout: float
    pan: float
    pan_unfolded: float
    layout_unfolded: float
    update: float
    frames: int
    heap: float


def plan_of(size: int) -> dict[str, Any]:
    """Fan-outs of fetch and read, joined one after another."""
    tasks: list[dict[str, Any]] = []
    join: list[str] = []

    def add(kind: str, worker: str, needs: Sequence[str]) -> str:
        name = f"{kind}-{len(tasks)}"
        tasks.append(
            {
                "id": name,
                "description": f"{kind} part {len(tasks)}",
                "worker": worker,
                "needs": list(needs),
            }
        )
        return name

    while len(tasks) < size:
        pages = min(WIDTH, (size - len(tasks)) // 2)
        ends = [add("read", "reader", [add("fetch", "fetcher", join)]) for _ in range(pages)]
        if len(tasks) < size:
            join = [add("join", "writer", ends or join)]
    return {"goal": f"Read {size:,} pages", "tasks": tasks}


class Server:
    """`chargehand serve` in a process of its own, and what can be asked of it."""

    def __init__(self, folder: Path, quick: int, pace: float) -> None:
        journal = folder / "runs.db"
        environment = {
            **os.environ,
            "BENCH_JOURNAL": str(journal), "BENCH_QUICK": str(quick), "BENCH_PACE": str(pace), "BENCH_CALLS": str(CALLS),
            "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        crew = f"{ROOT / 'benchmarks/_dashboard_crew.py'}:boss"
        command = [
            sys.executable, "-m", "chargehand", "serve", "--crew", crew, "--journal", str(journal), "--http", "127.0.0.1:0",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.url, self.token = self._address()

    def _address(self) -> tuple[str, str]:
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if found := re.search(r"(http://\S+?)/?#token=(\S+)", line):
                return found[1], found[2]
        raise SystemExit("the server did not start:\n" + "".join(said))

    def ask(self, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/api/v1/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token}", "X-Chargehand": "1", "Content-Type": "application/json",
            },
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)

    def run_until(self, size: int, done: int) -> str:
        """Submit a run, and return its id once so many of its tasks are done."""
        run: str = self.ask("runs", {"plan": plan_of(size)})["id"]
        while True:
            row = self.ask(f"runs/{run}/snapshot")["run"]
            if row["tasks"]["done"] >= done:
                return run
            if row["state"] in ("failed", "cancelled", "partial"):
                raise SystemExit(f"the run {row['state']}: {row['reason']}")
            time.sleep(0.5)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)


@contextmanager
def serving(quick: int, pace: float) -> Iterator[Server]:
    with folder_on_disk() as folder:
        server = Server(folder.absolute(), quick, pace)
        try:
            yield server
        finally:
            server.stop()


def measured(browser: "Browser", server: Server, run: str, *, is_live: bool) -> PageFigures:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(
        f"{server.url}/#token={server.token}"
    )  # for the cookie, and so that the assets are cached
    page.wait_for_selector("text=chargehand")
    page.wait_for_timeout(500)
    page.goto(f"{server.url}/runs/{run}")
    page.wait_for_function(SHOWN)
    usable, layout = page.evaluate(SHOWN), page.evaluate(LAYOUT)
    debug = page.context.new_cdp_session(page)
    debug.send("Performance.enable", {"timeDomain": "threadTicks"})
    spent, frames = _live_script(page, debug) if is_live else (0.0, 0)
    update = 0.0
    if is_live:
        server.ask(f"runs/{run}/pause", {})
        page.wait_for_timeout(4_000)  # what was started ends
        before = _script(debug)
        page.wait_for_timeout(LIVE * 1_000)
        update = (spent - (_script(debug) - before)) * 1_000 / max(frames, 1)
    pan = _pan(page)
    if not is_live:
        _load_calls(page)
    heap = _heap(debug)
    page.goto(f"{server.url}/runs/{run}?fold=0")
    page.wait_for_function(SHOWN)
    unfolded, layout_unfolded = _pan(page), page.evaluate(LAYOUT)
    page.close()
    return PageFigures(usable, layout, pan, unfolded, layout_unfolded, update, frames, heap)


def _pan(page: "Page") -> float:
    """The 95th percentile of a frame's time: the best of seven pans, since other work only makes frames later."""
    return min(float(page.evaluate(PAN)) for _ in range(7))


def _load_calls(page: "Page") -> None:
    """Go to the page of all calls, and wait until it has loaded them."""
    page.get_by_role("link", name="Trace").click()
    before, loaded = -1, 0
    while loaded != before or not loaded:
        page.wait_for_timeout(3_000)
        before, loaded = loaded, page.evaluate(LOADED)


def _live_script(page: "Page", debug: "CDPSession") -> tuple[float, int]:
    """CPU seconds of script while the run is live, and how many frames of its stream came."""
    streams: set[str] = set()
    frames = 0

    def began(event: dict[str, Any]) -> None:
        if "/events" in event["request"]["url"]:
            streams.add(event["requestId"])

    def heard(event: dict[str, Any]) -> None:
        nonlocal frames
        frames += event["requestId"] in streams

    debug.on("Network.requestWillBeSent", began)
    debug.on("Network.dataReceived", heard)
    debug.send("Network.enable")
    page.reload()
    page.wait_for_function(SHOWN)
    page.wait_for_timeout(2_000)
    frames, before = 0, _script(debug)
    page.wait_for_timeout(LIVE * 1_000)
    spent = _script(debug) - before
    debug.send("Network.disable")
    return spent, frames


def _script(debug: "CDPSession") -> float:
    """CPU seconds of script so far."""
    metrics = debug.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "ScriptDuration"))


def _heap(debug: "CDPSession") -> float:
    for _ in range(3):
        debug.send("HeapProfiler.collectGarbage")
    return float(debug.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def figures_of(sizes: Sequence[int], browser: "Browser") -> Iterator[Figure]:
    small: PageFigures | None = None
    for size in sizes:
        with serving(quick=size // 2, pace=max(1.5, 1_600 / size)) as server:
            run = server.run_until(size, size // 2)
            found = measured(browser, server, run, is_live=True)
        small = small or found
        yield from _rows(size, found, small)
    size = sizes[-1]
    with serving(quick=size, pace=0) as server:
        run = server.run_until(size, size)
        over = measured(browser, server, run, is_live=False)
    calls = f"{size:,} tasks, {size * CALLS:,} calls"
    yield Figure(name=f"{calls}, over: usable in", value=round(over.usable), unit="ms")
    bar = HEAP_BAR if size == SIZES[-1] else None
    yield Figure(
        name=f"{calls}: heap after collection", value=round(over.heap, 1), unit="MB", bar=bar
    )


def _rows(size: int, found: PageFigures, small: PageFigures) -> Iterator[Figure]:
    is_held = size == 2_000

    def row(
        name: str, value: float, reference: float, bar: float | None, unit: str = "ms"
    ) -> Figure:
        note = (
            f"{value / reference:.1f} × the first size" if found is not small and reference else ""
        )
        held = bar if is_held else None
        return Figure(
            name=f"{size:,} tasks: {name}", value=round(value, 2), unit=unit, bar=held, note=note
        )

    yield row("page usable in", found.usable, small.usable, USABLE_BAR)
    yield row("layout, folded", found.layout, small.layout, LAYOUT_BAR)
    yield row("layout, every task", found.layout_unfolded, small.layout_unfolded, LAYOUT_BAR)
    yield row("pan, p95 per frame", found.pan, small.pan, PAN_BAR)
    yield row("pan, every task", found.pan_unfolded, small.pan_unfolded, None)
    if found.frames >= FEWEST_UPDATES:
        # No ratio: the small run is over after a few updates, too few to tell.
        yield Figure(
            name=f"{size:,} tasks: script per live update",
            value=round(found.update, 2),
            unit="ms",
            bar=UPDATE_BAR if is_held else None,
            note=f"mean of {found.frames}",
        )
    yield row("heap after collection", found.heap, small.heap, None, "MB")


def missing() -> str:
    """What this machine lacks for it; empty: nothing."""
    try:
        import fastapi  # noqa: F401 - whether it is there
        import playwright  # noqa: F401 - whether it is there
    except ImportError as error:
        return f"needs {error.name}; run `make` first, which installs the development group"
    if not Path(CHROMIUM).exists():
        return f"needs Chromium at {CHROMIUM}; set CHROMIUM to its path"
    if not PAGE.exists() and shutil.which("npm") is None:
        return "needs node, to build the dashboard"
    return ""


def build() -> None:
    if not PAGE.exists():
        subprocess.run(["make", "ui"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def main(argv: Sequence[str] | None = None) -> int:
    options = options_for(
        __doc__,
        argv,
        lambda parser: parser.add_argument(
            "--sizes", type=int, nargs="+", default=SIZES, help="tasks"
        ),
    )
    if reason := missing():
        print(json.dumps({"skipped": reason}) if options.json else f"skipped: {reason}")
        return 0
    build()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        figures = list(figures_of(options.sizes, browser))
        browser.close()
    return report(figures, options)


if __name__ == "__main__":
    sys.exit(main())
