"""Every page on a phone: nothing is wider than the window, and fingers can hit what they should."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Server, Watched, task

PHONES = [(360, 740), (390, 844)]
#: what is wider than the window, or lower than a finger needs. Links inside text are as tall as their line, and a
#: row of the trace is one target
FAULTS = """() => {
  const width = document.documentElement.clientWidth;
  const found = [];
  if (document.documentElement.scrollWidth > width)
    found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const words = (element) =>
    `${element.tagName}.${element.className} “${(element.getAttribute('aria-label') || element.textContent).slice(0, 40)}”`;
  const scrolls = (element) => /auto|scroll|hidden|clip/.test(getComputedStyle(element).overflowX);
  const isKept = (element) => {
    for (let up = element.parentElement; up; up = up.parentElement) if (scrolls(up)) return true;
    return false;
  };
  for (const element of document.querySelectorAll('body *')) {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || element.closest('.visually-hidden, .skip, svg, thead')) continue;
    if ((box.right > width + 1 || box.left < -1) && !isKept(element)) found.push(`${words(element)} sticks out`);
    const isTarget = element.matches('a[href], button, input, select, textarea, summary, [role=option]');
    const isInText = element.closest('p, dd, .markdown, .causes, .trace-table, label');
    if (isTarget && !isInText && box.height < 40) found.push(`${words(element)} is ${box.height} high`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def runs(server: Server) -> dict[str, str]:
    """Runs that are done, work, ask and have failed."""
    return {
        "done": server.submit(task("read1"), task("report", "writer", "read1"), goal="Two reports"),
        "other": server.submit(task("read1"), goal="One report"),
        "works": server.submit(
            task("read1"),
            task("a-task-with-a-name-that-is-long", "noter", "read1"),
            task("end", "writer", "a-task-with-a-name-that-is-long"),
            goal="Compare the growth of the ten largest companies of northern Europe, and say who is next",
        ),
        "asks": server.submit(task("ask1", "asker"), task("end", "writer", "ask1"), goal="Ask"),
        "failed": server.submit(task("gone", "failing"), task("end", "writer", "gone")),
        "reviewed": server.call(
            "POST", "runs", {"request": "Read the reports of the north", "review_plan": True}
        )["id"],
    }


@pytest.fixture(params=PHONES, ids=["360", "390"])
def phone(request: pytest.FixtureRequest, browser: Browser, server: Server) -> Iterator[Page]:
    width, height = request.param
    context = browser.new_context(
        viewport={"width": width, "height": height},
        has_touch=True,
        is_mobile=True,
        reduced_motion="reduce",
    )
    context.set_default_timeout(15_000)
    opened = context.new_page()
    watched = Watched(opened, server.url)
    opened.goto(f"{server.url}#token={server.token}")
    opened.get_by_role("link", name="chargehand: all runs").wait_for()
    yield opened
    context.close()
    assert watched.errors == []


def check(page: Page, what: str) -> None:
    expect(page.locator(".loading")).to_have_count(0)
    faults: Any = page.evaluate(FAULTS)
    assert faults == [], what


def test_every_page_fits_a_phone(phone: Page, server: Server, runs: dict[str, str]) -> None:
    phone.goto(f"{server.url}runs/{runs['works']}")
    expect(phone.locator(".counts")).to_contain_text("1 running")
    phone.goto(f"{server.url}runs/{runs['done']}")
    expect(phone.locator(".run-title .state")).to_have_text("done")
    paths = ["", "new", "questions", "workers", f"compare?a={runs['done']}&b={runs['other']}"]
    paths += [
        f"runs/{runs['works']}{page}"
        for page in (
            "",
            "/plan",
            "/trace",
            "/workers",
            "/board",
            "/notes",
            "/cost",
            "/questions",
            "/output",
        )
    ]
    paths += [f"runs/{runs['works']}?task=read1", f"runs/{runs['works']}/board?block=towers/eiffel"]
    paths += [f"runs/{runs['asks']}", f"runs/{runs['asks']}/questions", f"runs/{runs['failed']}"]
    paths += [f"runs/{runs['done']}/output", f"runs/{runs['done']}?at=6", "runs/nope"]
    for path in paths:
        phone.goto(f"{server.url}{path}")
        phone.locator("main > *").first.wait_for()
        check(phone, path)


def test_dialogs_and_a_plan_that_is_edited_fit_a_phone(
    phone: Page, server: Server, runs: dict[str, str]
) -> None:
    phone.goto(f"{server.url}runs/{runs['works']}")
    for button in ("Steer…", "Cancel…"):
        phone.get_by_role("button", name=button).click()
        check(phone, button)
        phone.get_by_role("button", name="Back").click()
    phone.get_by_role("button", name="Keys and help").click()
    check(phone, "help")
    phone.keyboard.press("Escape")
    phone.locator(".palette-button").click()
    check(phone, "palette")
    phone.keyboard.press("Escape")
    phone.goto(f"{server.url}runs/{runs['reviewed']}/plan")
    phone.get_by_role("button", name="Edit t1").click()
    check(phone, "an edited plan")
    phone.get_by_role("button", name="Ask for changes…").click()
    check(phone, "ask for changes")


def test_what_matters_most_comes_first_on_a_phone(
    phone: Page, server: Server, runs: dict[str, str]
) -> None:
    """The question, then the graph; and a task that is chosen far below is shown where it can be seen."""
    phone.goto(f"{server.url}runs/{runs['asks']}")
    question = phone.get_by_role("button", name="the report")
    expect(question).to_be_in_viewport()
    graph = phone.locator(".graph-pane")
    tops = [each.bounding_box() for each in (question, graph)]
    assert tops[0] is not None
    assert tops[1] is not None
    assert tops[0]["y"] < tops[1]["y"]
    phone.goto(f"{server.url}runs/{runs['works']}")
    graph.scroll_into_view_if_needed()
    graph.locator("canvas").focus()
    phone.keyboard.press("j")
    expect(phone.locator(".side .panel-head")).to_be_in_viewport()


def test_the_page_that_asks_for_a_token_fits_a_phone(
    phone: Page, browser: Browser, server: Server
) -> None:
    context = browser.new_context(viewport=phone.viewport_size)
    page = context.new_page()
    page.goto(server.url)
    page.get_by_role("heading", name="Sign in").wait_for()
    check(page, "sign in")
    context.close()
