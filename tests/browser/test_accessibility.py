"""Every page, light and dark: nothing serious by axe, contrast by measure, and a small first load."""

import gzip
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import STATIC, Server, task

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
STYLES = Path(__file__).parents[2] / "web" / "src" / "styles.css"
#: what a browser loads before the list of runs, or one run, can be seen
MOST_FIRST_LOAD = 90_000


@pytest.fixture(scope="module")
def run(server: Server) -> str:
    """A run that has failed in part and asks a person."""
    run = server.submit(
        *(task("read1"), task("broken", "failing"), task("ask1", "asker", "read1")),
        task("last", "writer", "ask1", "read1"),
    )
    while server.call("GET", f"runs/{run}/snapshot")["run"]["state"] != "waiting":
        pass
    return run


PAGES = [
    *("", "new", "questions", "workers", "runs/{run}", "runs/{run}?task=read1", "runs/{run}?at=9"),
    *("runs/{run}/plan", "runs/{run}/trace", "runs/{run}/workers", "runs/{run}/board"),
    *("runs/{run}/questions", "runs/{run}/cost", "runs/{run}/output", "compare?a={run}&b={run}"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_on_any_page(
    page: Page, server: Server, run: str, scheme: str
) -> None:
    if not AXE.is_file():
        pytest.skip("needs the packages of web/: make ui")
    source = AXE.read_text(encoding="utf-8")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    found = []
    for path in PAGES:
        page.goto(server.url + path.format(run=run))
        expect(page.locator("main h1, main h2").first).to_be_attached()
        expect(page.locator(".loading")).to_have_count(0)
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        page.evaluate(source)  # a script tag would be refused by the content security policy
        result = page.evaluate("axe.run({resultTypes: ['violations']})")
        found += [
            f"{path}: {each['id']} {node['target']} {node['failureSummary']}"
            for each in result["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"][:3]
        ]
    assert found == []


def test_targets_are_large_enough_to_hit(page: Page, server: Server, run: str) -> None:
    """Buttons, fields and links that are no part of a sentence are at least 24 px high."""
    small = []
    for path in ("", "new", "runs/{run}", "runs/{run}/plan", "runs/{run}/questions"):
        page.goto(server.url + path.format(run=run))
        expect(page.locator(".loading")).to_have_count(0)
        small += page.evaluate(
            """() => [...document.querySelectorAll("button, .button, select, input[type=search], .tabs a, .top a")]
            .filter((each) => each.offsetParent && each.getBoundingClientRect().height < 24)
            .map((each) => each.outerHTML.slice(0, 120))"""
        )
    assert small == []


def _tokens(block: str) -> dict[str, tuple[float, float, float]]:
    found = re.findall(r"--([\w-]+): #([0-9a-f]{6});", block)
    return {
        name: (int(hex_[:2], 16) / 255, int(hex_[2:4], 16) / 255, int(hex_[4:], 16) / 255)
        for name, hex_ in found
    }


def _contrast(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    def light(colour: tuple[float, float, float]) -> float:
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    bright, dim = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("theme", [":root {", ':root[data-theme="dark"] {'])
def test_text_has_contrast_enough_in_both_themes(theme: str) -> None:
    """Text 4.5:1 and marks 3:1, by the definition of WCAG."""
    colours = _tokens(STYLES.read_text(encoding="utf-8").partition(theme)[2].partition("}")[0])
    text = [(ink, back) for ink in ("ink", "ink2", "ink3", "failed") for back in ("bg", "panel")]
    text += [("on-needs", "needs-button"), ("done-ink", "done-soft"), ("bg", "ink")]
    marks = [
        (mark, "panel") for mark in ("running", "retrying", "failed", "needs", "done", "selection")
    ]
    low = [
        f"{ink} on {back}: {_contrast(colours[ink], colours[back]):.2f}"
        for least, pairs in ((4.5, text), (3.0, marks))
        for ink, back in pairs
        if _contrast(colours[ink], colours[back]) < least
    ]
    assert low == []


def test_the_first_load_is_small(browser: Browser, server: Server, run: str) -> None:
    """Everything that opening a run loads from the server's files, compressed, is at most 90 kB."""
    context = browser.new_context()
    page = context.new_page()
    loaded: set[str] = set()
    page.on("request", lambda sent: loaded.add(sent.url.removeprefix(server.url).partition("#")[0]))
    page.goto(f"{server.url}#token={server.token}")
    page.goto(f"{server.url}runs/{run}")
    expect(page.locator("canvas")).to_have_count(2)
    files = [STATIC / name for name in loaded if (STATIC / name).is_file()]
    context.close()
    assert len(files) > 3
    size = sum(len(gzip.compress(file.read_bytes())) for file in [*files, STATIC / "index.html"])
    assert size <= MOST_FIRST_LOAD


def test_the_licences_of_what_is_shipped_are_shipped() -> None:
    shipped = (STATIC / "THIRD_PARTY_LICENSES.txt").read_text(encoding="utf-8")
    assert "preact" in shipped
    assert "@preact/signals" in shipped
    assert "Permission is hereby granted" in shipped
