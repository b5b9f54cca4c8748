"""The graph and the timeline as they are drawn: by the colours of their pixels."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Server, send_now, task

RUNNING, DONE, DARK_RUNNING = (47, 111, 237), (203, 229, 216), (76, 139, 255)
FAILED = (207, 52, 52)
#: where a canvas has a colour: how many pixels, and the middle and the width of their bounding box on the page
PIXELS = """([name, [red, green, blue]]) => {
  const canvas = document.querySelector(`.${name}-pane canvas`);
  if (!canvas?.width || !canvas.height) return { count: -1 };
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0, left = 1e9, right = 0, top = 1e9, bottom = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (data[at] !== red || data[at + 1] !== green || data[at + 2] !== blue || data[at + 3] !== 255) continue;
    const x = (at / 4) % width, y = Math.floor(at / 4 / width);
    count++;
    left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y);
  }
  const place = canvas.getBoundingClientRect();
  return { count, x: place.left + (left + right) / 2, y: place.top + (top + bottom) / 2, width: right - left };
}"""
HAS = f"([name, colour, least, most]) => {{ const {{ count }} = ({PIXELS})([name, colour]); return count >= least && count <= most; }}"

#: whether the timeline has some orange: of any strength, for thin lines and narrow bars are blended with what is behind
HAS_ORANGE = """() => {
  const canvas = document.querySelector(".timeline-pane canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.length; at += 4)
    if (data[at] - data[at + 1] > 40 && data[at + 1] - data[at + 2] > 20 && data[at + 3] === 255) return true;
  return false;
}"""
#: done once what is known now has been drawn
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def pixels(page: Page, canvas: str, colour: tuple[int, int, int]) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(PIXELS, [canvas, colour])
    return found


def until_drawn(
    page: Page, canvas: str, colour: tuple[int, int, int], least: int = 400, most: int = 10**9
) -> None:
    page.wait_for_function(HAS, arg=[canvas, colour, least, most])


def test_graph_and_timeline_follow_a_live_run(page: Page, server: Server) -> None:
    run = server.submit(task("read1"), task("held", "holder"), task("last", "writer", "held"))
    page.goto(f"{server.url}runs/{run}")
    for canvas in ("graph", "timeline"):
        until_drawn(page, canvas, RUNNING, 50)
    server.gate.open()
    for canvas in ("graph", "timeline"):
        until_drawn(page, canvas, RUNNING, 0, 0)
        until_drawn(page, canvas, DONE, 20)


def test_a_click_on_the_graph_selects_a_task_and_beside_it_nothing(
    page: Page, server: Server
) -> None:
    run = server.submit(task("read1"), task("held", "holder", "read1"))
    page.goto(f"{server.url}runs/{run}")
    until_drawn(page, "graph", RUNNING)
    box = pixels(page, "graph", RUNNING)
    page.mouse.click(box["x"], box["y"])
    page.wait_for_url(re.compile(r"task=held"))
    expect(page.get_by_role("complementary")).to_contain_text("held")
    page.mouse.click(box["x"], box["y"] + 150)
    page.wait_for_url(lambda url: "task=" not in url)


def test_the_wheel_pans_and_with_control_zooms(page: Page, server: Server) -> None:
    run = server.submit(task("held", "holder"))
    page.goto(f"{server.url}runs/{run}")
    until_drawn(page, "graph", RUNNING)
    before = pixels(page, "graph", RUNNING)
    page.mouse.move(before["x"], before["y"])
    page.mouse.wheel(60, 0)
    page.wait_for_function(
        f"(x) => ({PIXELS})(['graph', {list(RUNNING)}]).x < x - 50", arg=before["x"]
    )
    page.keyboard.down("Control")
    page.mouse.wheel(0, -60)
    page.keyboard.up("Control")
    page.wait_for_function(
        f"(w) => ({PIXELS})(['graph', {list(RUNNING)}]).width > w + 20", arg=before["width"]
    )
    page.keyboard.press("0")
    page.wait_for_function(
        f"(w) => ({PIXELS})(['graph', {list(RUNNING)}]).width === w", arg=before["width"]
    )


def test_the_theme_reaches_the_canvases(page: Page, server: Server) -> None:
    run = server.submit(task("held", "holder"))
    page.emulate_media(color_scheme="light")
    page.goto(f"{server.url}runs/{run}")
    until_drawn(page, "graph", RUNNING)
    page.emulate_media(color_scheme="dark")
    until_drawn(page, "graph", DARK_RUNNING)
    until_drawn(page, "timeline", DARK_RUNNING, 50)


def test_a_brush_over_the_timeline_names_the_tasks_at_work(page: Page, server: Server) -> None:
    """Of a task that has ended, one that works and one that waits, the brush names the second."""
    run = server.submit(
        task("read1"), task("held", "holder", "read1"), task("last", "writer", "held")
    )
    page.goto(f"{server.url}runs/{run}")
    # The bar is that of the second task once the first has ended and this is drawn.
    expect(page.locator(".counts")).to_contain_text("1 done")
    expect(page.locator(".counts")).to_contain_text("1 running")
    page.evaluate(FRAMES)
    page.wait_for_function(f"() => ({PIXELS})(['timeline', {list(RUNNING)}]).width > 80")
    bar = pixels(page, "timeline", RUNNING)
    top = page.locator(".timeline-pane canvas").bounding_box()
    assert top is not None
    # The axis grows with the bar: towards its right end, a place stays within it.
    middle = bar["x"] + 0.3 * bar["width"]
    page.mouse.move(middle - 4, top["y"] + 30)
    page.mouse.down()
    page.mouse.move(middle + 4, top["y"] + 30, steps=4)
    page.mouse.up()
    expect(page.locator("[aria-live=polite]").first).to_contain_text("1 task at work in")
    page.keyboard.press("Escape")
    expect(page.locator("[aria-live=polite]").first).not_to_contain_text("at work")


def test_what_happened_and_what_is_expected_look_apart_and_have_a_legend(
    page: Page, server: Server
) -> None:
    """While a run waits for a person, the past is idle; the future is tinted, and holds only what is expected.

    Orange ends with the need for a person: before, what had asked stayed orange in runs that were over.
    """
    run = server.submit(
        task("read1"), task("asks", "asker", "read1"), task("last", "writer", "asks")
    )
    page.emulate_media(color_scheme="light")
    page.goto(f"{server.url}runs/{run}")
    legend = page.get_by_role("list", name="Legend of the timeline")
    asks, asked = (
        ("a person is asked", "idle, shortened"),
        ("a person was asked", "idle, shortened"),
    )
    for words in ("done", "critical path", "expected, by estimates", *asks):
        expect(legend.get_by_text(words, exact=True)).to_be_visible()
    page.wait_for_function(HAS_ORANGE)
    expect(legend).not_to_contain_text("idle expected")
    page.get_by_role("complementary").get_by_role("button", name="the press").click()
    send_now(page)
    expect(page.locator(".run-title .state")).to_have_text("done")
    # That a person was asked is part of what happened.
    for words in ("done", *asked):
        expect(legend.get_by_text(words, exact=True)).to_be_visible()
    expect(legend).not_to_contain_text("expected")
    page.wait_for_function(f"() => !({HAS_ORANGE})()")


FLAKY = """
import chargehand as ch

@ch.worker("flaky", "Works at the third try")
async def flaky(brief: ch.Brief) -> str:
    if brief.attempt < 3:
        raise ch.WorkerError("the site is down", kind="network")
    return "done"

CREW = [flaky]
"""


def test_attempts_that_failed_stay_on_the_timeline(
    browser: Browser, tmp_path: Path, server: Server
) -> None:
    """Before, only the last attempt was drawn: the lanes were empty where the strip above counted work."""
    assert server.process is not None  # skips as the others do without a built dashboard
    own = Server(tmp_path, crew=FLAKY)
    try:
        page = browser.new_page(color_scheme="light", reduced_motion="reduce")
        page.goto(f"{own.url}#token={own.token}")
        page.get_by_role("navigation", name="Breadcrumb").wait_for()
        run = own.submit(task("fetch", "flaky"))
        page.goto(f"{own.url}runs/{run}")
        expect(page.locator(".run-title .state")).to_have_text("done", timeout=30_000)
        legend = page.get_by_role("list", name="Legend of the timeline")
        expect(legend.get_by_text("earlier attempt", exact=True)).to_be_visible()
        until_drawn(page, "timeline", FAILED, 2)
    finally:
        own.stop()
