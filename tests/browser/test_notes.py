"""The page of a run's notes: who wrote what in which task, as text, filtered and live."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import STATIC, Server, task

CREW = """
import asyncio, os
import chargehand as ch

async def gate() -> None:
    link, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["GATE"]))
    await link.read()
    writer.close()

@ch.worker("scout", "Posts what it finds")
async def scout(brief: ch.Brief) -> str:
    await brief.board.post(f"{brief.task.id} found **gold**", tags=["gold", brief.task.id])
    brief.distrust("web:evil.example")
    await brief.board.post("<img src=x onerror=alert(1)>", tags=["pages"], segment="doubts")
    return "done"

@ch.worker("clerk", "Posts when it is let go on")
async def clerk(brief: ch.Brief) -> str:
    await gate()
    await brief.board.post({"ounces": 3}, tags=["gold"])
    await asyncio.Event().wait()
    return "never"

@ch.worker("quiet", "Writes nothing")
async def quiet(brief: ch.Brief) -> str:
    return "nothing to say"

CREW = [scout, clerk, quiet]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not (STATIC / "index.html").is_file():
        pytest.skip("needs the built dashboard: make ui")
    served = Server(tmp_path_factory.mktemp("notes"), crew=CREW)
    yield served
    served.stop()


def test_notes_say_who_wrote_what_in_which_task_and_appear_as_they_are_written(
    page: Page, server: Server
) -> None:
    run = server.submit(task("east", "scout"), task("sum", "clerk", "east"))
    page.goto(f"{server.url}runs/{run}")
    page.get_by_role("link", name="Notes", exact=True).click()
    notes = page.get_by_role("list", name="Notes, newest first").locator("> li")
    expect(notes).to_have_count(2)
    # What came from outside is text, and says so in words.
    expect(notes.nth(0)).to_contain_text("untrusted: web:evil.example")
    expect(notes.nth(0)).to_contain_text("<img src=x onerror=alert(1)>")
    expect(notes.nth(0)).to_contain_text("doubts")
    expect(notes.nth(0).locator("img")).to_have_count(0)
    expect(notes.nth(1)).to_contain_text("east found gold")
    expect(notes.nth(1)).not_to_contain_text("untrusted")
    server.gate.open()
    expect(notes).to_have_count(3)
    expect(notes.nth(0)).to_contain_text('{"ounces":3}')
    notes.nth(0).get_by_role("link", name="sum").click()
    expect(page.get_by_role("complementary", name="Task sum")).to_be_visible()


def test_notes_are_filtered_by_author_and_tag_and_the_address_keeps_it(
    page: Page, server: Server
) -> None:
    server.gate.open()
    run = server.submit(task("east", "scout"), task("sum", "clerk", "east"))
    page.goto(f"{server.url}runs/{run}/notes")
    notes = page.get_by_role("list", name="Notes, newest first").locator("> li")
    expect(notes).to_have_count(3)
    notes.nth(2).get_by_role("button", name="#gold").click()
    expect(notes).to_have_count(2)
    page.get_by_label("Author").select_option("scout")
    expect(notes).to_have_count(1)
    page.reload()
    expect(notes).to_have_count(1)
    expect(page.get_by_label("Tag", exact=True)).to_have_value("gold")
    page.get_by_label("Tag", exact=True).select_option("pages")
    expect(notes.first).to_contain_text("onerror")
    page.keyboard.press("Escape")
    expect(notes).to_have_count(3)


def test_a_run_without_notes_says_what_notes_are(page: Page, server: Server) -> None:
    run = server.submit(task("a", "quiet"))
    page.goto(f"{server.url}runs/{run}")
    expect(page.locator(".run-title .state")).to_have_text("done")
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="No notes were written")).to_be_visible()
    expect(page.get_by_text("A note is something that a worker tells the others")).to_be_visible()
