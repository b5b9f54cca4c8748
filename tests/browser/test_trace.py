"""The trace counts what failed, and no page shows the ids of the supervisor's own tasks."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import STATIC, Server, task

CREW = """
import chargehand as ch

@ch.worker("lister", "Lists files")
async def lister(brief: ch.Brief) -> list[str]:
    return ["north", "south"]

@ch.worker("counter", "Counts letters")
async def counter(brief: ch.Brief) -> int:
    async def count() -> int:
        return len(brief.item)
    return await brief.step("count", count)

@ch.worker("broken", "Fails before its first call")
async def broken(brief: ch.Brief) -> str:
    raise ch.WorkerError("the source is <i>gone</i>", kind="denied")

CREW = [lister, counter, broken]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not (STATIC / "index.html").is_file():
        pytest.skip("needs the built dashboard: make ui")
    served = Server(tmp_path_factory.mktemp("trace"), crew=CREW)
    yield served
    served.stop()


def test_an_attempt_that_failed_outside_of_a_call_is_an_error_of_the_trace(
    page: Page, server: Server
) -> None:
    each = {**task("count", "counter", "files"), "for_each": "files"}
    run = server.submit(task("files", "lister"), each, task("gone", "broken"))
    page.goto(f"{server.url}runs/{run}")
    expect(page.locator(".run-title .state")).to_have_text("partial")
    # Not the tick of a run that is done.
    expect(page.locator(".run-title .icon.is-partial")).to_be_visible()
    side = page.get_by_role("complementary", name="How it ended")
    expect(side.get_by_role("heading", name="Finished last")).to_be_visible()
    expect(side.get_by_role("link", name="gone")).to_have_count(1)
    page.get_by_role("link", name="Open trace").click()
    rows = page.locator(".trace-table tbody tr")
    expect(rows).to_have_count(1)
    expect(page.get_by_role("button", name="Errors")).to_contain_text("1")
    rows.get_by_role("button").click()
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("the source is <i>gone</i>")
    expect(panel).to_contain_text("The worker failed outside of a call.")
    panel.get_by_role("link", name="gone").click()
    expect(page.get_by_role("complementary", name="Task gone")).to_be_visible()


def test_no_page_shows_the_ids_of_the_supervisors_own_tasks(page: Page, server: Server) -> None:
    each = {**task("count", "counter", "files"), "for_each": "files"}
    run = server.submit(task("files", "lister"), each)
    page.goto(f"{server.url}runs/{run}")
    expect(page.locator(".run-title .state")).to_have_text("done")
    marked = re.compile(r"@(plan|items|lister|collector|answer|budget|refine)")
    for path in ("", "?task=count", "/plan", "/trace", "/workers", "/cost", "/output", "?at=12"):
        page.goto(f"{server.url}runs/{run}{path}")
        expect(page.locator(".loading")).to_have_count(0)
        expect(page.locator("main")).not_to_contain_text(marked)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("listbox")).to_contain_text("count")
    expect(page.get_by_role("listbox")).not_to_contain_text(marked)


def test_a_follow_up_says_what_it_follows(page: Page, server: Server) -> None:
    run = server.submit(task("files", "lister"))
    page.goto(f"{server.url}runs/{run}")
    page.get_by_role("link", name="Follow up…").click()
    expect(page.get_by_role("heading", name="Follow up")).to_be_visible()
    page.get_by_role("link", name=run).click()
    expect(page.locator(".run-title .id")).to_have_text(run)
