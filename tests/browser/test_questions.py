"""Everything that a run asks people, raised by real runs and answered in the browser; and who was first."""

import json
import re
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from chargehand.server.http.access_tokens import AccessTokens, Scope
from tests.browser.conftest import OWNER, STATIC, Server, send_now, task
from tests.pseudo_terminal import USUAL, Terminal, terminal

CREW = '''
"""Workers that ask a person about everything there is to ask about."""
import asyncio, json, os
from pathlib import Path
import chargehand as ch
from chargehand.models.base import ToolCall

def note(line):
    with Path("ledger.txt").open("a") as ledger:
        ledger.write(line + "\\n")

async def gate():
    link, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["GATE"]))
    await link.read()
    writer.close()

@ch.tool(approve=True)
def pay(to: str, amount: int) -> str:
    """Pay an amount."""
    note(f"paid {amount} to {to}")
    return f"paid {amount} to {to}"

def payment(request):
    """Ask for one payment, then repeat what came of it."""
    last = request.turns[-1]
    if last.role == "tool":
        return f"It says: {last.parts[0].text}"
    return ToolCall("c1", "pay", json.dumps({"to": "Acme", "amount": 400}))

@ch.worker("sender", "Sends letters, each once")
async def sender(brief):
    async def send():
        note(f"sent {brief.task.id}")
        await gate()
        return "by the first post"
    return f"{brief.task.id} went {await brief.step('send', send, effect='once')}"

@ch.worker("asker", "Asks a person")
async def asker(brief):
    return await brief.ask(f"Which source counts for {brief.task.id}?", choices=["the report", "the press"])

@ch.worker("reader", "Reads reports")
async def reader(brief):
    return f"read for {brief.task.id}"

@ch.worker("holder", "Works until the test lets it go on")
async def holder(brief):
    await gate()
    return "held and let go"

def planned(id, worker, *needs, words="Produce the result of"):
    return {"id": id, "description": f"{words} {id}", "worker": worker, "needs": list(needs), "accept": "", "optional": False}

def lead(request):
    """The plan, the change that a note asks for, and the answer."""
    words = request.turns[0].text
    if "has left a note" in words:
        since = "five years" if any("Added later" in turn.text for turn in request.turns) else "last year"
        new = planned("t4", "reader", "t2", words=f"Compare with {since} in")
        return json.dumps({"reason": "Last year is wanted too", "replaced": [], "removed": ["t3"], "tasks": [new]})
    if "you write the tasks" in words:
        tasks = [planned("t1", "reader"), planned("t2", "holder", "t1"), planned("t3", "asker", "t2")]
        return json.dumps({"goal": "Growth of Acme", "instruction": "", "strategy": "merge", "tasks": tasks})
    return "It is done. [t1]"

payer = ch.Worker("payer", "Pays", tools=[pay], model=ch.ScriptedModel([payment] * 99))
mind = ch.Worker("mind", "Says yes", model=ch.ScriptedModel(["yes"] * 99))
boss = ch.Supervisor([payer, mind, sender, asker, reader, holder], model=ch.ScriptedModel([lead] * 99))
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not (STATIC / "index.html").is_file():
        pytest.skip("needs the built dashboard: make ui")
    served = Server(tmp_path_factory.mktemp("asked"), crew=CREW, source=["crew.py:boss"])
    yield served
    served.stop()


def ledger(server: Server) -> list[str]:
    """What has taken effect, in order."""
    file = server.place / "ledger.txt"
    return file.read_text().splitlines() if file.exists() else []


def asked(page: Page, server: Server, run: str, kind: str) -> Locator:
    """The question of a run, open in the browser."""
    page.goto(f"{server.url}runs/{run}/questions")
    card = page.locator(".split-item .question")
    expect(card.locator(".kind")).to_have_text(kind)
    expect(card.locator(".ways")).to_be_visible()
    return card


def send(page: Page) -> None:
    """Do not wait until an answer cannot be taken back any more."""
    send_now(page)


def outcome(page: Page, server: Server, run: str, state: str) -> Any:
    """The result of a run, once the page shows that it is in this state."""
    expect(page.locator(".run-title .state")).to_have_text(state)
    return server.call("GET", f"runs/{run}/result")


def answer_of(result: Any) -> str:
    return str(result["answer"])


def test_a_tool_call_is_approved(page: Page, server: Server) -> None:
    before = ledger(server)
    run = server.submit(task("pay1", "payer"))
    card = asked(page, server, run, "Tool approval")
    expect(card).to_contain_text("May payer call pay?")
    expect(card.locator(".call")).to_contain_text('"amount": 400')
    assert ledger(server) == before
    card.get_by_role("button", name="Approve", exact=False).first.click()
    send(page)
    assert "paid 400 to Acme" in answer_of(outcome(page, server, run, "done"))
    assert ledger(server) == [*before, "paid 400 to Acme"]
    expect(card).to_contain_text("You answered “approve”")


def test_a_tool_call_is_edited_and_approved(page: Page, server: Server) -> None:
    """What does not fit the tool is refused where it is typed, or by the server; nothing is lost by it."""
    before = ledger(server)
    run = server.submit(task("pay1", "payer"))
    card = asked(page, server, run, "Tool approval")
    card.get_by_text("Edit the arguments…").click()
    arguments = card.get_by_label("Arguments", exact=True)
    button = card.get_by_role("button", name="Edit and approve")
    arguments.fill('{"to": "Acme", "amount": ')
    expect(card.locator(".fault")).to_have_text("this is no JSON")
    expect(button).to_be_disabled()
    arguments.fill('{"to": "Acme", "amount": "much"}')
    button.click()
    send(page)
    expect(card.get_by_role("alert")).to_contain_text("does not fit the tool")
    card.get_by_role("button", name="Change the answer").click()
    expect(arguments).to_have_value(re.compile("much"))
    arguments.fill('{"to": "Acme", "amount": 40}')
    button.click()
    send(page)
    assert "paid 40 to Acme" in answer_of(outcome(page, server, run, "done"))
    assert ledger(server) == [*before, "paid 40 to Acme"]


def test_a_tool_call_is_denied(page: Page, server: Server) -> None:
    """The worker hears of it and goes on without; the tool was not called."""
    before = ledger(server)
    run = server.submit(task("pay1", "payer"))
    card = asked(page, server, run, "Tool approval")
    card.get_by_role("button", name="Reject and revise").click()
    send(page)
    expect(page.locator(".run-title .state")).not_to_have_text("needs you")
    expect(page.locator(".run-title .state")).not_to_have_text("running")
    result = server.call("GET", f"runs/{run}/result")
    assert "a person rejected this call" in json.dumps(result)
    assert ledger(server) == before


def test_a_budget_is_raised(page: Page, server: Server) -> None:
    run = server.submit(
        *(task(f"say{n}", "mind") for n in range(3)), limits={"calls": 2}, on_budget="ask"
    )
    card = asked(page, server, run, "Budget")
    # A sentence with amounts, what happens without an answer, and a field with an amount that would do.
    expect(card).to_contain_text("The run has made 2 of its 2 model calls.")
    expect(card).to_contain_text("the run waits, and nothing new starts")
    expect(card).not_to_contain_text("Limits(")
    expect(card).not_to_contain_text("@budget")
    raised = card.get_by_label("Raise to, in model calls")
    expect(raised).to_have_value("4")
    raised.fill("-1")
    expect(card.locator(".fault")).to_have_text("a number above 0")
    raised.fill("9")
    card.get_by_role("button", name="Raise and go on").click()
    send(page)
    outcome(page, server, run, "done")
    snapshot = server.call("GET", f"runs/{run}/snapshot")
    assert [each["state"] for each in snapshot["tasks"] if not each["system"]] == ["done"] * 3


def test_a_run_without_budget_is_stopped(page: Page, server: Server) -> None:
    run = server.submit(
        *(task(f"say{n}", "mind") for n in range(3)), limits={"calls": 2}, on_budget="ask"
    )
    card = asked(page, server, run, "Budget")
    card.get_by_role("button", name=re.compile("^stop", re.IGNORECASE)).click()
    send(page)
    result = outcome(page, server, run, "partial")
    assert len(result["gaps"]) == 1


def test_a_step_in_doubt_is_settled_in_each_way(page: Page, server: Server) -> None:
    """The process died between the beginning and the end of steps that must not happen twice."""
    before = ledger(server)
    runs = {name: server.submit(task(name, "sender")) for name in ("told", "ran", "again", "given")}
    begun = sorted(f"sent {name}" for name in runs)
    while sorted(ledger(server)[len(before) :]) != begun:
        pass
    server.kill()
    server.start()
    server.gate.open()

    card = asked(page, server, runs["told"], "Decision")
    expect(card).to_contain_text("Step 'send' began, and its end is unknown")
    card.get_by_text("Answer with a result…").click()
    card.get_by_label("it ran: result as JSON").fill('"by pigeon"')
    card.get_by_role("button", name="Send with result").click()
    send(page)
    assert answer_of(outcome(page, server, runs["told"], "done")) == "told went by pigeon"

    card = asked(page, server, runs["ran"], "Decision")
    card.get_by_role("button", name="it ran").click()
    send(page)
    assert answer_of(outcome(page, server, runs["ran"], "done")) == "ran went None"
    assert sorted(ledger(server)[len(before) :]) == begun

    card = asked(page, server, runs["again"], "Decision")
    card.get_by_role("button", name="run it again").click()
    send(page)
    assert answer_of(outcome(page, server, runs["again"], "done")) == "again went by the first post"

    card = asked(page, server, runs["given"], "Decision")
    card.get_by_role("button", name="give up").click()
    send(page)
    outcome(page, server, runs["given"], "failed")
    page.goto(f"{server.url}runs/{runs['given']}")
    expect(page.locator(".causes")).to_contain_text("was given up by a person")
    assert sorted(ledger(server)[len(before) :]) == sorted([*begun, "sent again"])


def test_after_a_replan_only_what_changed_asks_again(page: Page, server: Server) -> None:
    """What was approved goes on while a person looks at the change that a note has led to."""
    run = server.call("POST", "runs", {"request": "How did Acme grow?", "review_plan": True})["id"]
    page.goto(f"{server.url}runs/{run}/plan")
    rows = page.locator(".plan-table tbody tr")
    foot = page.locator(".plan-foot")
    expect(rows).to_have_count(3)
    expect(foot).to_contain_text("The plan waits for your approval")
    page.get_by_role("button", name="Approve and run").click()
    page.wait_for_url(re.compile(rf"/runs/{run}$"))
    expect(page.locator(".counts")).to_contain_text("1 running")

    page.get_by_role("button", name="Steer…").click()
    page.get_by_label("What else is wanted?").fill("Compare with last year instead")
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.get_by_role("link", name="Review the plan").first.click()
    expect(foot).to_contain_text("The plan was changed: 2 tasks to look at")
    expect(page.locator(".plan-page .note")).to_contain_text("Last year is wanted too")
    expect(page.locator(".plan-row.is-added th")).to_have_text(["t4"])
    expect(page.locator(".plan-row.is-removed th")).to_have_text(["t3"])
    expect(page.locator(".plan-row:not(.is-added, .is-removed) th")).to_have_text(["t1", "t2"])
    page.get_by_role("button", name="Ask for changes…").click()
    page.get_by_label("What should be different?").fill("The last five years")
    page.get_by_role("dialog").get_by_role("button", name="Ask").click()
    expect(page.locator(".plan-row.is-added")).to_contain_text("Compare with five years")
    server.gate.open()  # what was approved goes on to its end, unasked
    expect(page.locator("#task-t2 .col-state")).to_contain_text("done")
    expect(foot).to_contain_text("what was approved before goes on meanwhile")
    page.get_by_role("button", name="Approve the change").click()
    outcome(page, server, run, "done")
    states = {
        each["id"]: each["state"]
        for each in server.call("GET", f"runs/{run}/snapshot")["tasks"]
        if not each["system"]
    }
    assert states == {"t1": "done", "t2": "done", "t3": "cancelled", "t4": "done"}
    questions = server.call("GET", f"runs/{run}/questions")["questions"]
    answers = [each["answered"]["text"] for each in questions if each["kind"] == "plan"]
    assert answers == ["approve", "The last five years", "approve"]


class Script:
    """A program with a token of its own."""

    name = "script"

    def __init__(self, server: Server) -> None:
        self._server = server
        _, self._token = AccessTokens(server.place / "tokens.json").add(self.name, Scope.OPERATE)

    def answer(self, question: str, text: str) -> dict[str, Any] | None:
        """Answer a question; returns who was first and with what, if this was not."""
        try:
            self._server.call(
                "POST", f"questions/{question}/answer", {"text": text}, token=self._token
            )
        except urllib.error.HTTPError as error:
            return {"status": error.code, **json.loads(error.read())}
        return None


def open_question(server: Server, run: str, id_: str) -> str:
    questions = server.call("GET", f"runs/{run}/questions")["questions"]
    return next(str(each["id"]) for each in questions if each["task"] == id_)


def test_the_first_who_answers_counts_and_the_others_are_told(page: Page, server: Server) -> None:
    """Asked by a run of one process: a browser, two terminals and a script. Each wins once."""
    tasks = [task("ask1", "asker"), task("ask2", "asker", "ask1"), task("ask3", "asker", "ask2")]
    plan = {"goal": "Choose the sources", "tasks": tasks}
    (server.place / "plan.json").write_text(json.dumps(plan))
    lead = ("run", "--crew", "crew.py:boss", "--plan", "plan.json", "--here")
    script, anna = Script(server), USUAL["LOGNAME"]
    gate = {"GATE": str(server.gate.port)}
    with terminal(110, 30, server.place, *lead, "--journal", "runs.db", **gate) as leader:
        leader.wait_for("› █")
        (run,) = set(re.findall(r"\br[0-9a-f]{15}\b", leader.shown()))
        card = asked(page, server, run, "Question")
        with terminal(110, 30, server.place, "watch", run, "--journal", "runs.db") as watching:
            watching.wait_for("› █")

            def told(id_: str, words: str, *terminals: Terminal) -> None:
                for each in terminals:
                    each.wait_for(f"{id_} was answered by {words}")

            expect(card).to_contain_text("counts for ask1?")
            question = open_question(server, run, "ask1")
            card.get_by_role("button", name="the report").click()
            send(page)
            told("ask1", f"{OWNER}: the report", leader, watching)
            late = script.answer(question, "the press")
            assert late is not None
            assert (late["status"], late["by"], late["text"]) == (409, OWNER, "the report")

            expect(card).to_contain_text("counts for ask2?")
            expect(card.locator(".ways")).to_be_visible()
            card.get_by_role("button", name="the report").click()
            expect(page.locator(".toast")).to_contain_text("“the report” is sent in")
            assert script.answer(open_question(server, run, "ask2"), "the press") is None
            told("ask2", "script: the press", leader, watching)
            expect(page.locator(".toast")).to_have_text(re.compile("^ask2 was answered by script"))
            expect(card).to_contain_text("Answered by script: “the press”")

            page.keyboard.press("n")
            expect(card).to_contain_text("counts for ask3?")
            expect(card.locator(".ways")).to_be_visible()
            for each in (leader, watching):
                each.wait_for(
                    lambda text: "▌ Which source counts for ask3?" in text and "› █" in text
                )
            watching.type("1\r")
            told("ask3", f"{anna}: the report", leader)
            expect(card).to_contain_text(f"Answered by {anna}: “the report”")
            late = script.answer(open_question(server, run, "ask3"), "the press")
            assert late is not None
            assert (late["status"], late["by"], late["text"]) == (409, anna, "the report")
            assert [leader.finish(), watching.finish()] == [0, 0]


def test_a_link_to_an_answered_question_never_shows_another_one(page: Page, server: Server) -> None:
    """Before, the page went on to the question of another run, and the next key press answered that."""
    runs = [server.submit(task("ask1", "asker")) for _ in range(2)]
    for run in runs:
        asked(page, server, run, "Question")
    ours, theirs = (open_question(server, run, "ask1") for run in runs)
    page.goto(f"{server.url}questions?question={ours}")
    card = page.locator(".split-item .question")
    expect(card.locator(".ways")).to_be_visible()
    page.keyboard.press("1")
    send(page)
    expect(card).to_contain_text("You answered “the report”")
    listed = page.locator(".split-list li")
    expect(listed.and_(page.locator("[aria-current=true]"))).to_have_count(0)
    page.keyboard.press("1")
    expect(page.locator(".toast")).to_have_count(0)
    page.reload()
    expect(card).to_contain_text(f"Answered by {OWNER}: “the report”")
    expect(listed).to_have_count(1)  # the open questions come after the one that the link names
    page.keyboard.press("1")
    expect(page.locator(".toast")).to_have_count(0)
    assert open_question(server, runs[1], "ask1") == theirs
    questions = server.call("GET", f"runs/{runs[1]}/questions")["questions"]
    assert questions[0]["answered"] is None
    page.keyboard.press("n")
    expect(card.locator(".ways")).to_be_visible()
    server.call("POST", f"runs/{runs[1]}/cancel", {})


def test_keys_answer_only_the_question_that_the_url_names(page: Page, server: Server) -> None:
    run = server.submit(task("ask1", "asker"), task("ask2", "asker"))
    page.goto(f"{server.url}runs/{run}")
    beside = page.get_by_role("complementary").locator(".ways")
    expect(beside).to_have_count(2)
    expect(beside.locator("kbd")).to_have_count(0)
    page.keyboard.press("1")
    expect(page.locator(".toast")).to_have_count(0)
    # The page of questions names the one that it shows.
    card = asked(page, server, run, "Question")
    page.wait_for_url(re.compile(r"[?]question="))
    expect(card.locator("kbd").first).to_have_text("1")
    page.keyboard.press("1")
    expect(page.locator(".toast")).to_contain_text("“the report” is sent in")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    server.call("POST", f"runs/{run}/cancel", {})


def test_a_rejected_plan_can_be_taken_back_for_a_while_and_is_shown_afterwards(
    page: Page, server: Server
) -> None:
    """Before, one click was final, and the page then said that the run had no plan."""
    body = {"request": "Say something about the north", "review_plan": True}
    run = str(server.call("POST", "runs", body)["id"])
    page.goto(f"{server.url}runs/{run}/plan")
    foot = page.locator(".plan-foot")
    foot.get_by_role("button", name="Reject").click()
    expect(foot).to_contain_text("The plan is rejected in a few seconds")
    page.keyboard.press("Control+Enter")  # nor is it approved meanwhile
    foot.get_by_role("button", name="Undo").click()
    expect(foot).to_contain_text("The plan waits for your approval")
    assert server.call("GET", f"runs/{run}/plan")["review"] is not None
    foot.get_by_role("button", name="Reject").click()
    send(page)
    expect(page.locator(".run-title .state")).to_have_text("failed")
    expect(page.locator(".plan-page .note")).to_contain_text(f"{OWNER} rejected this plan")
    expect(page.locator(".plan-row th")).to_have_text(["t1", "t2", "t3"])
    expect(foot).to_have_count(0)
    page.goto(f"{server.url}runs/{run}")
    expect(page.locator(".causes")).to_contain_text(f"plan: rejected by {OWNER}")


def test_a_cancelled_run_needs_nobody(page: Page, server: Server) -> None:
    """Before, the orange bar and the plan's approval stayed, and led nowhere."""
    body = {"request": "Say something about the north", "review_plan": True}
    run = str(server.call("POST", "runs", body)["id"])
    page.goto(f"{server.url}runs/{run}")
    bar = page.get_by_role("region", name="Needs you")
    expect(bar).to_be_visible()
    page.get_by_role("button", name="Cancel…").click()
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".run-title .state")).to_have_text("cancelled")
    expect(bar).to_have_count(0)
    expect(page.get_by_role("link", name="Review the plan")).to_have_count(0)
    expect(page.locator(".tabs .badge")).to_have_count(0)
    page.get_by_role("link", name=re.compile("^Questions")).last.click()
    expect(page.locator(".split-item")).to_contain_text("The plan was submitted for approval")
    expect(page.locator(".split-item")).not_to_contain_text("If nobody answers")
