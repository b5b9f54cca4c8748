"""The dashboard as a person uses it: submit, watch, answer, approve, cancel, replay, compare."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import OWNER, Server, send_now, task

#: the label beside the title of a run
STATE = ".run-title .state"


def goto(page: Page, server: Server, path: str) -> None:
    page.goto(server.url + path)


def until_state(page: Page, word: str) -> None:
    expect(page.locator(STATE)).to_have_text(word)


def test_a_request_is_submitted_and_answered(page: Page, server: Server) -> None:
    page.get_by_role("link", name="New run").first.click()
    page.get_by_label("Request", exact=True).fill("Read the report of Acme and write a report")
    page.get_by_label("Review the plan first").uncheck()
    expect(page.locator(".command code")).to_have_text(re.compile(r"^chargehand submit 'Read the"))
    page.get_by_role("button", name="Run it").click()
    page.wait_for_url(re.compile(r"/runs/\w+$"))
    until_state(page, "done")
    page.get_by_role("navigation", name="Pages of this run").get_by_text("Output").click()
    expect(page.locator(".output")).to_contain_text("12 %")
    expect(page.get_by_role("heading", name="What it rests on")).to_be_visible()


def test_tasks_go_live_and_end_while_one_looks(page: Page, server: Server) -> None:
    run = server.submit(task("read1"), task("held", "holder"), task("last", "writer", "held"))
    goto(page, server, f"runs/{run}")
    side = page.get_by_role("complementary")
    expect(side.get_by_role("heading", name="Working (1)")).to_be_visible()
    expect(page.locator(".counts")).to_contain_text("1 running")
    expect(page.locator(".dot")).to_contain_text("live")
    server.gate.open()
    until_state(page, "done")
    expect(side.get_by_role("heading", name="Finished last")).to_be_visible()
    expect(page.locator(".figures")).to_contain_text("3 of 3")


def test_a_task_shows_its_facts_calls_needs_and_output(page: Page, server: Server) -> None:
    run = server.submit(task("read1"), task("last", "writer", "read1"))
    goto(page, server, f"runs/{run}?task=read1")
    side = page.get_by_role("complementary")
    for words in ("read1", "reader", "1 call", "Unblocks", "Revenue rose by 12 %"):
        expect(side).to_contain_text(words)
    side.get_by_role("link", name=re.compile("^last")).click()
    expect(side.get_by_role("heading", name="Needs")).to_be_visible()
    page.keyboard.press("Escape")
    expect(side.get_by_role("heading", name="How it ended")).to_be_visible()


def test_a_question_is_answered_by_keyboard_taken_back_and_sent(page: Page, server: Server) -> None:
    run = server.submit(task("ask1", "asker"), task("last", "writer", "ask1"))
    goto(page, server, f"runs/{run}")
    until_state(page, "needs you")
    expect(page.locator(".needs-bar")).to_contain_text("1 task waits behind it")
    expect(page).to_have_title(re.compile(r"^\(\d+\) "))
    page.keyboard.press("n")
    page.wait_for_url(re.compile("/questions"))
    expect(page.locator(".split-item .choices")).to_be_visible()
    page.keyboard.press("2")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_have_count(0)
    expect(page.locator(".split-item .choices")).to_be_visible()
    page.keyboard.press("1")
    send_now(page)
    expect(page.locator(".question")).to_contain_text("You answered “the report”")
    until_state(page, "done")
    assert server.call("GET", f"runs/{run}/questions")["questions"][0]["answered"]["text"] == (
        "the report"
    )


def test_keys_work_after_a_click_on_a_checkbox(page: Page, server: Server) -> None:
    """The checkbox keeps the focus, and takes no letters."""
    for name in ("read1", "read2"):
        server.submit(task(name))
    goto(page, server, "")
    for at in (0, 1):
        page.locator(".runs-table input[type=checkbox]").nth(at).click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.locator(".runs-table input[type=checkbox]").nth(1).focus()
    page.keyboard.press("c")
    page.wait_for_url(re.compile("/compare"))


def test_amounts_that_cannot_be_are_marked_and_stand_in_no_command(
    page: Page, server: Server
) -> None:
    goto(page, server, "new")
    page.get_by_label("Request").fill("Read the reports")
    command = page.locator(".command")
    expect(command).to_contain_text("chargehand submit 'Read the reports'")
    page.get_by_label("Tokens, at most").fill("-5")
    expect(page.locator(".fault")).to_have_text("a whole number above 0, or nothing")
    expect(command).to_have_count(0)
    expect(page.get_by_role("button", name="Plan it")).to_be_disabled()
    page.get_by_label("Tokens, at most").fill("5000")
    expect(command).to_contain_text("--tokens 5000")
    page.get_by_label("Request").fill("")


def test_a_question_answered_elsewhere_says_by_whom(page: Page, server: Server) -> None:
    """Also where the page only hears of it when it sends an answer of its own, too late."""
    run = server.submit(task("ask1", "asker"), task("ask2", "asker"))
    goto(page, server, f"runs/{run}/questions")
    expect(page.locator(".split-list li")).to_have_count(2)
    (question, _) = server.call("GET", f"runs/{run}/questions")["questions"]

    def answer_first(route: Route) -> None:
        """Whenever the page sends its answer, another one has just come in."""
        server.call("POST", f"questions/{question['id']}/answer", {"text": "the press"})
        route.continue_()

    page.route("**/answer", answer_first)
    goto(page, server, f"questions?question={question['id']}")
    expect(page.locator(".split-item .question")).to_contain_text(question["task"])
    # The keys work once their choices are shown.
    expect(page.locator(".split-item").get_by_role("button", name="the report")).to_be_visible()
    page.keyboard.press("1")
    send_now(page)
    expect(page.locator(".split-item .question")).to_contain_text(f"Answered by {OWNER}")
    expect(page.locator(".split-item .question")).to_contain_text("the press")
    server.call("POST", f"runs/{run}/cancel", {})


def test_a_plan_is_edited_and_approved(page: Page, server: Server) -> None:
    """Faults are shown as one types; a draft survives a reload; nothing runs before the approval."""
    body = {"request": "Read the report of Acme and write a report", "review_plan": True}
    run = server.call("POST", "runs", body)["id"]
    goto(page, server, f"runs/{run}")
    page.get_by_role("link", name="Review the plan").first.click()
    rows = page.locator(".plan-table tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Edit t2").click()
    page.get_by_label("Needs, ids with commas between").fill("t1, nowhere")
    expect(page.locator(".plan-table .fault").first).to_contain_text("there is no task nowhere")
    expect(page.get_by_role("button", name="Approve and run")).to_be_disabled()
    page.get_by_label("Needs, ids with commas between").fill("t1")
    page.get_by_label("What is to be done").fill("Write a short report of one page")
    page.get_by_role("button", name="Done").click()
    page.reload()
    expect(rows.nth(1)).to_contain_text("one page")
    page.get_by_role("button", name="Approve and run").click()
    page.wait_for_url(re.compile(rf"/runs/{run}$"))
    until_state(page, "done")
    done = server.call("GET", f"runs/{run}/snapshot")
    assert [row["description"] for row in done["tasks"] if row["id"] == "t2"] == [
        "Write a short report of one page"
    ]


def test_unstarted_tasks_of_a_running_plan_can_be_changed(page: Page, server: Server) -> None:
    run = server.submit(task("held", "holder"), task("last", "reader", "held"))
    goto(page, server, f"runs/{run}/plan")
    expect(page.get_by_role("button", name="Edit held")).to_have_count(0)
    page.get_by_role("button", name="Edit last").click()
    page.get_by_label("Accept when").fill("names the page")
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Save as a new version").click()
    expect(page.get_by_role("heading", name=re.compile("Plan v[2-9]"))).to_be_visible()
    expect(page.locator(".plan-table")).to_contain_text("names the page")
    server.gate.open()
    goto(page, server, f"runs/{run}")
    until_state(page, "done")


def test_a_run_is_paused_continued_and_cancelled(page: Page, server: Server) -> None:
    run = server.submit(task("held", "holder"), task("last", "writer", "held"))
    goto(page, server, f"runs/{run}")
    until_state(page, "running")
    page.get_by_role("button", name="Pause").click()
    until_state(page, "paused")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_label("Reason").fill("not needed any more")
    page.get_by_role("button", name="Cancel the run").click()
    until_state(page, "cancelled")


def test_a_failed_run_shows_its_causes_and_is_tried_again(page: Page, server: Server) -> None:
    run = server.submit(task("broken", "failing"), task("last", "writer", "broken"))
    goto(page, server, f"runs/{run}")
    causes = page.locator(".causes")
    expect(causes).to_contain_text("broken failed")
    expect(causes).to_contain_text("the source is gone <b onmouseover=alert(1)>")
    expect(causes).to_contain_text("1 task was skipped because of that")
    causes.get_by_role("button", name="Retry failed").click()
    page.wait_for_url(lambda url: "/runs/" in url and run not in url)


def test_a_retry_that_would_pay_again_asks_first(page: Page, server: Server) -> None:
    run = server.submit(task("pay", "payer"))
    goto(page, server, f"runs/{run}")
    until_state(page, "failed")
    page.get_by_role("button", name="Retry failed").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("changed something outside (pay: pay)")
    dialog.get_by_role("button", name="Back").click()
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Retry failed").first.click()
    dialog.get_by_role("button", name="Do them again").click()
    page.wait_for_url(lambda url: "/runs/" in url and run not in url)
    until_state(page, "failed")


def test_the_budget_is_changed_and_shown_on_every_page(page: Page, server: Server) -> None:
    plan = {"goal": "Hold on", "tasks": [task("held", "holder")]}
    body = {"plan": plan, "limits": {"tokens": 1_000, "money": 2}}
    run = server.call("POST", "runs", body)["id"]
    goto(page, server, f"runs/{run}/cost")
    tokens = page.locator(".card", has=page.get_by_role("heading", name="Tokens"))
    expect(tokens).to_contain_text("of 1,000")
    page.get_by_role("button", name="Budget…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Change")).to_be_disabled()
    dialog.get_by_label("Tokens").fill("0")
    dialog.get_by_role("button", name="Change").click()
    expect(tokens).to_contain_text("0 of 0")
    expect(page.locator(".figures")).to_contain_text("0 of 0")
    expect(page.locator(".figures")).to_contain_text("$0 of $2.00")
    server.call("POST", f"runs/{run}/cancel", {"reason": "enough cheese"})
    expect(page.locator(".run-reason")).to_contain_text("enough cheese")


def test_a_replay_shows_every_moment_and_changes_nothing(page: Page, server: Server) -> None:
    run = server.submit(task("read1"), task("last", "writer", "read1"))
    goto(page, server, f"runs/{run}")
    until_state(page, "done")
    page.get_by_role("link", name="Replay").click()
    bar = page.get_by_role("region", name="Replay")
    expect(bar).to_contain_text("RunRequested")
    until_state(page, "submitted")
    for at in (2, 3, 4):  # a step at a time, as the address shows it
        page.keyboard.press(".")
        page.wait_for_url(re.compile(rf"at={at}$"))
    expect(page.locator(".figures")).to_contain_text("0 of 2")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_have_count(0)
    page.get_by_label("Speed").select_option("100")
    page.keyboard.press("Escape")
    goto(page, server, f"runs/{run}?at=3")
    page.get_by_role("button", name="Play the replay").click()
    until_state(page, "done")
    bar.get_by_role("link", name="Leave the replay").click()
    page.wait_for_url(re.compile(rf"/runs/{run}$"))


def test_two_runs_are_marked_and_compared(page: Page, server: Server) -> None:
    first = server.submit(task("read1"), goal="Alpha of the comparison")
    second = server.submit(task("read1"), task("more"), goal="Beta of the comparison")
    goto(page, server, "?q=of+the+comparison")
    expect(page.locator(".runs-table tbody tr")).to_have_count(2)
    expect(page.locator(".runs-table .state.is-done")).to_have_count(2)
    page.get_by_label(f"Compare {first}").check()
    page.get_by_label(f"Compare {second}").check()
    page.get_by_role("button", name="Compare 2 of 2").click()
    page.wait_for_url(re.compile("/compare"))
    expect(page.locator(".compare-page")).to_contain_text("only in the second")
    expect(page.locator("canvas")).to_have_count(2)


def test_the_trace_lists_calls_with_their_bodies(page: Page, server: Server) -> None:
    run = server.submit(task("read1"), task("read2"))
    goto(page, server, f"runs/{run}/trace")
    rows = page.locator(".trace-table tbody tr")
    expect(rows).to_have_count(2)
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("read2")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("button").click()
    expect(page.get_by_role("complementary")).to_contain_text("the text of read2")
    page.get_by_role("button", name="Replay from here").click()
    expect(page.get_by_role("region", name="Replay")).to_contain_text("StepStarted read2")


def test_what_models_write_stays_text(page: Page, server: Server) -> None:
    """No script runs, no image is loaded, links say where they lead."""
    run = server.submit(
        {"id": "hostile", "description": "<script>window.hacked = 4</script>", "worker": "writer"},
        goal='"><img src=x onerror="window.hacked = 5">',
    )
    for path in ("", "/output", "/plan", "/trace", "/cost", "?task=hostile"):
        goto(page, server, f"runs/{run}{path}")
        expect(page.locator(".run-title h1")).to_contain_text("<img src=x")
    goto(page, server, f"runs/{run}/output")
    answer = page.locator(".output .markdown")
    expect(answer).to_contain_text("<script>window.hacked = 1</script>")
    expect(answer).to_contain_text("docs (example.com)")
    assert answer.locator("img, script").count() == 0
    assert [link.get_attribute("href") for link in answer.locator("a").all()] == [
        "https://example.com/docs"
    ]
    assert "\u202e" not in answer.inner_text()
    assert page.evaluate("window.hacked") is None


def test_everything_can_be_done_by_keyboard(page: Page, server: Server) -> None:
    run = server.submit(task("read1"), task("broken", "failing"), task("last", "writer", "read1"))
    goto(page, server, f"runs/{run}")
    until_state(page, "partial")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("e")
    side = page.get_by_role("complementary")
    expect(side).to_contain_text("the source is gone")
    page.keyboard.press("Escape")
    expect(side.get_by_role("heading", name="How it ended")).to_be_visible()
    page.keyboard.press("j")
    expect(page.get_by_role("complementary", name=re.compile("^Task "))).to_be_visible()
    for keys, part in {
        "p": "plan",
        "t": "trace",
        "w": "workers",
        "m": "board",
        "e": "cost",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(keys)
        page.wait_for_url(re.compile(f"/runs/{run}/{part}"))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Page, task or run")).to_be_focused()
    page.keyboard.type("last")
    expect(page.get_by_role("option", selected=True)).to_contain_text("last")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"/runs/{run}.task=last"))
    page.keyboard.press("g")
    page.keyboard.press("g")
    page.wait_for_url(server.url)
    expect(page.locator(".runs-table tbody tr").first).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator(".runs-table tr.is-current")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/runs/"))


@pytest.mark.parametrize("path", ["nowhere", "runs/r000000000000000"])
def test_an_address_that_leads_nowhere_says_so(page: Page, server: Server, path: str) -> None:
    goto(page, server, path)
    expect(page.get_by_role("heading", name=re.compile("There is no"))).to_be_visible()
    page.get_by_role("link", name="All runs", exact=True).click()
    page.wait_for_url(server.url)


def test_a_browser_without_a_token_is_told_where_it_was_printed(page: Page, server: Server) -> None:
    page.context.clear_cookies()
    page.goto(server.url)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#token-fault")).not_to_be_empty()
    page.get_by_label("Token").fill(server.token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Breadcrumb")).to_be_visible()
    assert "token" not in page.url


def test_the_page_survives_a_server_that_dies_and_comes_back(page: Page, server: Server) -> None:
    """The question asked before is answered after; the stream goes on where it was cut."""
    run = server.submit(task("read1"), task("ask1", "asker"), task("last", "writer", "ask1"))
    goto(page, server, f"runs/{run}")
    until_state(page, "needs you")
    server.kill()
    expect(page.get_by_role("alert")).to_contain_text("No connection to the server")
    expect(page.locator(".dot")).to_contain_text("offline")
    server.start()
    expect(page.locator(".dot")).to_contain_text("live")
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("complementary").get_by_role("button", name="the press").click()
    send_now(page)
    until_state(page, "done")


def test_a_lost_stream_is_taken_up_again(page: Page, server: Server) -> None:
    run = server.submit(task("held", "holder"), task("last", "writer", "held"))
    goto(page, server, f"runs/{run}")
    until_state(page, "running")
    page.context.set_offline(True)
    page.evaluate("dispatchEvent(new Event('offline'))")
    expect(page.locator(".dot")).to_contain_text("offline")
    server.gate.open()
    page.context.set_offline(False)
    until_state(page, "done")
