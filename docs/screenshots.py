"""Takes the screenshots of docs/dashboard.md and the README from a real run in a real browser.

Needs the built dashboard (`make ui`) and Chromium. Writes docs/images/dashboard_*.png.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

FOLDER = Path(__file__).parent
IMAGES = FOLDER / "images"
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
SIZE: Any = {"width": 1440, "height": 900}
REQUEST = "Read the trade reports of the north and write a summary for the board"


class Shown:
    """A server with a crew whose tasks end when they are told to."""

    def __init__(self, folder: Path) -> None:
        self.gates = folder / "gates"
        self.gates.mkdir()
        # The workers alone: the server adds the model that plans.
        crew = (FOLDER / "terminal_crew.py").read_text()
        (folder / "crew.py").write_text(f"{crew}\n\ncrew = [read, compare, write, check]\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}/"
        command = [sys.executable, "-m", "chargehand", "serve", "--crew", "crew.py:crew"]
        command += [
            "--model",
            "offline",
            "--parallel",
            "5",
            "--journal",
            "runs.db",
            "--http",
            self.url[7:-1],
        ]
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            cwd=folder,
            env={**os.environ, "CHARGEHAND_GATES": str(self.gates)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = iter(self.process.stdout or ())
        self.token = next(
            found[1] for line in printed if (found := re.search(r"#token=(\S+)", line))
        )

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "X-Chargehand": "1",
            "Content-Type": "application/json",
        }
        data = json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 - our own server
            f"{self.url}api/v1/{path}", data=data, headers=headers
        )
        with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310
            told: dict[str, Any] = json.loads(reply.read())
        return told

    def end(self, *tasks: str) -> None:
        for task in tasks:
            (self.gates / task).touch()


def plan() -> dict[str, Any]:
    """The plan of the screens of the terminal."""
    spec = spec_from_file_location("terminal_crew", FOLDER / "terminal_crew.py")
    if spec is None or spec.loader is None:
        raise RuntimeError("docs/terminal_crew.py is gone")
    crew = module_from_spec(spec)
    spec.loader.exec_module(crew)
    made: dict[str, Any] = json.loads(crew.plan().to_json())
    return made


@contextmanager
def opened(shown: Shown) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport=SIZE, reduced_motion="reduce")
        page.goto(f"{shown.url}#token={shown.token}")
        page.get_by_role("navigation", name="Breadcrumb").wait_for()
        yield page
        browser.close()


def take(page: Page, name: str, *schemes: str) -> None:
    """The page as it is now, in these themes."""
    for scheme in schemes:
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        expect(page.locator(f":root[data-theme={scheme}]")).to_have_count(1)
        expect(page.locator(".loading")).to_have_count(0)
        page.wait_for_timeout(400)  # the canvases draw with the next frames
        page.screenshot(path=IMAGES / f"dashboard_{name}_{scheme}.png")


def walk(page: Page, shown: Shown) -> None:
    """Do a run step by step, and take its pictures on the way."""
    run = shown.post("runs", {"plan": plan()})["id"]
    page.goto(f"{shown.url}runs/{run}")
    expect(page.locator(".counts")).to_contain_text("5 running")
    shown.end("north-1", "north-2", "north-3", "south-1")
    expect(page.locator(".counts")).to_contain_text("4 done")
    take(page, "working", "light", "dark")
    shown.end("south-2", "south-3", "checks", "compare-north", "compare-south")
    expect(page.locator(".run-title .state")).to_have_text("needs you")
    take(page, "run", "light")
    page.goto(f"{shown.url}runs/{run}/questions")
    expect(page.locator(".split-item .question")).to_be_visible()
    take(page, "questions", "dark")
    reviewed = shown.post("runs", {"request": REQUEST, "review_plan": True})["id"]
    page.goto(f"{shown.url}runs/{reviewed}/plan")
    expect(page.get_by_role("button", name="Approve and run")).to_be_visible()
    take(page, "plan", "light")
    page.goto(f"{shown.url}runs/{run}")
    page.get_by_role("complementary").get_by_role("button", name="engineers").click()
    page.get_by_role("button", name="Send now").click()
    shown.end("summary")
    expect(page.locator(".run-title .state")).to_have_text("done")
    page.goto(f"{shown.url}runs/{run}/trace")
    page.locator(".trace-table tbody button").first.click()
    take(page, "trace", "dark")
    page.goto(f"{shown.url}runs/{run}/output")
    expect(page.locator(".output")).to_be_visible()
    take(page, "output", "light")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        shown = Shown(Path(place))
        try:
            with opened(shown) as page:
                walk(page, shown)
        finally:
            shown.process.terminate()
            shown.process.wait()


if __name__ == "__main__":
    main()
