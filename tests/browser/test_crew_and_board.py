"""Pages about who works and what they share: the workers of a new run, the board, and a graph that is laid out again."""

import json
import re
import urllib.request
from typing import Any

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Server, task
from tests.browser.test_canvases import PIXELS, RUNNING, pixels, until_drawn


def test_a_new_run_gets_only_the_workers_that_are_chosen(page: Page, server: Server) -> None:
    page.goto(f"{server.url}new")
    page.get_by_label("Request", exact=True).fill("Read the report of Acme and write a report")
    workers = page.get_by_role("group", name="Workers")
    expect(workers).to_contain_text("The plan may name all of them.")
    for name in ("asker", "failing", "holder", "noter", "payer", "reader", "writer"):
        workers.get_by_role("checkbox", name=re.compile(f"^{name} ")).uncheck()
    expect(workers).to_contain_text("Choose at least one worker.")
    expect(page.get_by_role("button", name="Plan it")).to_be_disabled()
    for name in ("reader", "writer"):
        workers.get_by_role("checkbox", name=re.compile(f"^{name} ")).check()
    expect(workers).to_contain_text("The plan may name 2 of 7 workers.")
    expect(page.locator(".command code")).to_contain_text("--worker reader --worker writer")
    page.get_by_role("button", name="Plan it").click()
    page.wait_for_url(re.compile(r"/runs/\w+"))
    run = page.url.split("/runs/")[1].split("/")[0]
    page.goto(f"{server.url}runs/{run}/plan")
    page.get_by_role("button", name=re.compile("^Edit ")).first.click()
    choices = page.locator("select").first.locator("option")
    assert set(choices.all_text_contents()) == {"reader", "writer"}
    server.call("POST", f"runs/{run}/cancel", {})


def written(server: Server, run: str, value: Any, version: int) -> None:
    """Write a block as another person does."""
    headers = {
        "Authorization": f"Bearer {server.token}",
        "X-Chargehand": "1",
        "Content-Type": "application/json",
        "If-Match": str(version),
    }
    url = f"{server.url}api/v1/runs/{run}/board/towers/eiffel"
    body = json.dumps({"value": value}).encode()
    sent = urllib.request.Request(url, method="PUT", data=body, headers=headers)
    with urllib.request.urlopen(sent, timeout=20) as reply:
        assert reply.status == 200


def test_a_block_is_edited_while_the_run_is_paused(page: Page, server: Server) -> None:
    run = server.submit(task("note", "noter"))
    page.goto(f"{server.url}runs/{run}")
    until_drawn(page, "graph", RUNNING)
    page.goto(f"{server.url}runs/{run}/board?block=towers/eiffel")
    side = page.get_by_role("complementary")
    expect(side).to_contain_text("Pause the run to edit this block.")
    expect(side.get_by_role("button", name="Edit")).to_be_disabled()
    page.get_by_role("button", name="Pause").click()
    side.get_by_role("button", name="Edit").click()
    field = side.get_by_label("Version 2")
    field.fill("{")
    expect(side).to_contain_text("This is not JSON")
    expect(side.get_by_role("button", name="Save")).to_be_disabled()
    field.fill('{"metres": 330}')
    written(server, run, {"metres": 325}, 1)
    field.press("Control+Enter")
    expect(side).to_contain_text("wrote version 2 meanwhile")
    expect(side.locator(".diff .removed")).to_contain_text("325")
    side.get_by_role("button", name="Go on with mine").click()
    side.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name="towers/eiffel")).to_contain_text("330")
    expect(side.locator(".history > li")).to_have_count(3)
    found = server.call("GET", f"runs/{run}/board/towers/eiffel")
    assert (found["value"], found["version"]) == ({"metres": 330}, 3)
    server.call("POST", f"runs/{run}/cancel", {})


#: lets the test hold what the page sends to its Web Worker
HELD = """
const send = Worker.prototype.postMessage;
window.held = [];
window.isHeld = false;
Worker.prototype.postMessage = function (...told) {
  if (window.isHeld) window.held.push(() => send.apply(this, told));
  else send.apply(this, told);
};
"""


def test_the_old_graph_is_drawn_until_the_new_layout_is_there(page: Page, server: Server) -> None:
    run = server.submit(task("held", "holder"))
    page.add_init_script(HELD)

    def multiply(route: Route) -> None:
        snapshot = route.fetch().json()
        (first,) = [row for row in snapshot["tasks"] if row["id"] == "held"]
        snapshot["tasks"] += [
            {**first, "id": f"more{n}", "state": "waiting", "needs": ["held"]} for n in range(3_100)
        ]
        snapshot["run"]["tasks"]["total"] += 3_100
        route.fulfill(json=snapshot)

    page.route("**/snapshot", multiply)
    page.goto(f"{server.url}runs/{run}")
    until_drawn(page, "graph", RUNNING)
    before = pixels(page, "graph", RUNNING)
    page.evaluate("window.isHeld = true")
    page.get_by_role("button", name="Fold fan-outs").click()
    page.wait_for_function("() => window.held.length === 1")
    page.mouse.move(before["x"], before["y"])
    page.mouse.wheel(30, 0)  # it is drawn again, and can be moved
    page.wait_for_function(
        f"(x) => ({PIXELS})(['graph', {list(RUNNING)}]).x < x - 20", arg=before["x"]
    )
    assert pixels(page, "graph", RUNNING)["count"] > 400
    page.evaluate("window.held.shift()()")
    # One of 3,101 boxes is smaller, or elsewhere, but never gone: the view goes to what is running.
    page.wait_for_function("() => performance.getEntriesByName('graph-layout').length > 0")
    until_drawn(page, "graph", RUNNING, 50)


def test_the_workers_page_says_who_is_busy_late_or_not_known(page: Page, server: Server) -> None:
    run = server.submit(task("held", "holder"))
    page.goto(f"{server.url}workers")
    row = page.get_by_role("row", name=re.compile("^holder"))
    expect(row).to_contain_text("busy")
    expect(row.get_by_role("link", name="held")).to_be_visible()
    expect(row.locator(".strip .is-now")).to_have_count(1)
    process = page.get_by_role("table", name="Processes").get_by_role("row").nth(1)
    expect(process).to_contain_text(re.compile(r"alive.* ago.*" + run))

    def elsewhere(route: Route) -> None:
        told = route.fetch().json()
        own = next(each for each in told["workers"] if each["name"] == "holder")
        far = {**own, "node": "n-far", "here": False, "capacity": None, "active": None, "busy": []}
        told["workers"] += [
            {**far, "name": "quiet", "state": None},
            {**far, "name": "hung", "state": "late", "heartbeat_age": 9.4, "rate_waits": 3},
        ]
        told["servers"].append(
            {**told["servers"][0], "node": "n-far", "here": False, "state": "lost", "pid": None}
            | {"host": None, "since": None, "heartbeat_age": None}
        )
        line = {"provider": "openai", "in_flight": 4, "most": 4, "waiting": 7, "shut": 12.0}
        told["providers"] = [
            {**line, "breaker": "closed", "served": 90, "trouble": "429 slow down"}
        ]
        route.fulfill(json=told)

    page.route("**/api/v1/workers", elsewhere)
    expect(page.get_by_role("row", name=re.compile("^hung"))).to_contain_text(
        re.compile(r"late.*heartbeat 9\.4 s ago")
    )
    quiet = page.get_by_role("row", name=re.compile("^quiet"))
    expect(quiet.locator(".col-state")).to_have_text("–")
    expect(quiet.get_by_role("button")).to_have_count(0)  # only its own process can drain it
    lost = page.get_by_role("row", name=re.compile("^n-far"))
    expect(lost.get_by_role("cell").nth(1)).to_have_text("–")
    expect(page.get_by_role("table", name=re.compile("^Model providers"))).to_contain_text(
        re.compile(r"openai.*4 of 4.*7.*it may be called again in 12 s: 429 slow down")
    )
    server.call("POST", f"runs/{run}/cancel", {})
