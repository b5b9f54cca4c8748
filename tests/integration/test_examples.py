"""The examples run, and say what they should."""

import asyncio
import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples import (
    ask_documents,
    cascade,
    groups_analysis,
    groups_compliance,
    groups_delivery,
    groups_moderation,
    groups_research,
    groups_training,
    pool_batches,
    pool_pipeline,
    pool_reports,
    pool_reviews,
)

import chargehand as ch
from chargehand.models.base import ToolCall
from chargehand.testing.model_server import ModelServer, Received, Say, model_server
from tests.watching import silent_waits, watched, watching

ROOT = Path(__file__).parents[2]


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)],
        env=watched(folder),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert silent_waits(folder) == []
    return done.stdout


@pytest.fixture(autouse=True)
def no_silent_waits() -> Iterator[None]:
    """Those that are run in this process are watched, too."""
    waits: list[str] = []
    with watching(lambda is_said, what: None if is_said else waits.append(what)):
        yield
    assert waits == []


def test_a_run_is_killed_and_goes_on(tmp_path: Path) -> None:
    shown = run("kill_and_resume.py", tmp_path)
    assert "kill -9" in shown
    assert "succeeded: 10 tasks" in shown
    assert "Nothing that was finished before the kill was done again." in shown


def test_answers_over_documents_cite_sources_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask_documents.main()
    shown = capsys.readouterr().out
    assert result.status == "succeeded"
    assert "strap came loose" in result.tasks["strap"].output
    assert "16438.8" in result.tasks["sum"].output
    citations = re.findall(r"\[([\w.]+\.txt):(\d+)\]", shown)
    assert citations
    for file, line in citations:
        text = (ask_documents.DATA / "reviews" / file).read_text()
        assert 1 <= int(line) <= len(text.splitlines())


# The cascade: T1 fails, T3 needs T1, T4 needs T2, T5 needs T3 and T4


def states_in(result: ch.RunResult) -> dict[str, str]:
    return {id_: task.state.value for id_, task in result.tasks.items()}


def test_a_task_that_can_do_without_what_failed_runs_and_is_told_what_is_missing() -> None:
    result = cascade.run(optional=True)
    assert states_in(result) == {
        "T1": "failed",
        "T2": "done",
        "T3": "skipped",
        "T4": "done",
        "T5": "done",
    }
    assert result.status == "partial"
    assert result.answer.output == "T4: 1440; without T3"
    assert [gap.task for gap in result.answer.gaps] == ["T1", "T3"]


def test_a_task_that_cannot_do_without_what_failed_is_skipped_with_the_cause_named() -> None:
    result = cascade.run(optional=False)
    assert states_in(result) == {
        "T1": "failed",
        "T2": "done",
        "T3": "skipped",
        "T4": "done",
        "T5": "skipped",
    }
    assert result.status == "partial"
    assert result.tasks["T5"].why == "T1 was not done"
    assert result.answer.output == {"T4": 1440}
    assert [gap.task for gap in result.answer.gaps] == ["T1", "T3", "T5"]


def test_what_is_denied_is_tried_once() -> None:
    assert cascade.run(optional=True).tasks["T1"].attempts == 1


def test_the_cascade_tells_both_endings(capsys: pytest.CaptureFixture[str]) -> None:
    cascade.main()
    shown = capsys.readouterr().out
    assert "T5's need of T3 is optional: the run is partial." in shown
    assert "missing: T5 (skipped): T1 was not done" in shown


# The pool: reviews, a pipeline, reports, batches

POOL_DATA = ROOT / "examples" / "pool_data"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_hundred_reviews_are_read_once_each_by_five_workers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = pool_reviews.main()
    texts = {row["id"]: row["text"] for row in rows_of(POOL_DATA / "reviews.csv")}
    felt = {each["task_id"]: each["result"]["feeling"] for each in result["results"]}
    assert felt == {number: pool_reviews.feeling(text) for number, text in texts.items()}
    assert {each["completed"] for each in result["progress"]["workers"].values()} == {20}
    shown = capsys.readouterr().out
    assert "  75 of 100 reviews read\n" in shown
    assert "90 of 100 agree with the stars" in shown


@pytest.mark.parametrize(
    ("text", "feeling"),
    [
        ("The best kettle I have owned.", "positive"),
        ("It leaks.", "negative"),
        ("Great value, but it broke.", "mixed"),
        ("Not bad at all.", "positive"),
        ("Nothing about it is good.", "negative"),
    ],
)
def test_a_review_is_read_by_its_words(text: str, feeling: str) -> None:
    assert pool_reviews.feeling(text) == feeling


def test_the_pipeline_loses_no_receipt_and_counts_none_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool_pipeline.main()
    shown = capsys.readouterr().out
    texts = "".join(path.read_text(encoding="utf-8") for path in pool_pipeline.SOURCES.iterdir())
    sent = re.findall(r"\b[A-Z]{2}1\d\d\b", texts)
    assert f"{len(sent)} receipts were sent, {len(sent) - len(set(sent))} of them twice." in shown
    prices = {
        row["product"]: float(row["price"]) for row in rows_of(ROOT / "examples/data/prices.csv")
    }
    sums = re.findall(r"^  (\w+) +(\d+) +([\d,.]+)$", shown, re.MULTILINE)
    assert len(sums) == 5
    for product, units, euros in sums:
        assert float(euros.replace(",", "")) == pytest.approx(int(units) * prices[product])
    assert "20 of 20 tasks done in three requests" in shown


def test_reports_that_fail_are_done_by_the_backup(capsys: pytest.CaptureFixture[str]) -> None:
    final = pool_reports.main()
    rows = rows_of(POOL_DATA / "departments.csv")
    old = {row["department"] for row in rows if "," in row["spent"]}
    done = {each["result"]["department"]: each["agent_id"] for each in final["results"]}
    assert set(done) == {row["department"] for row in rows}
    assert {name for name, worker in done.items() if worker == "worker_backup"} == old
    assert (final["status"], final["gaps"]) == ("succeeded", [])
    shown = capsys.readouterr().out
    assert "could not convert string to float" in shown
    assert "The request succeeded: 0 failed, 0 missing." in shown


def test_the_urgent_batch_is_done_first_and_every_payment_is_checked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = pool_batches.main()
    assert told["order"][0] == "thursday"
    refused = {
        each["result"]["payment"]
        for result in told["results"].values()
        for each in result["results"]
        if each["result"]["objection"]
    }
    rows = rows_of(POOL_DATA / "payments.csv")
    assert sum(len(result["results"]) for result in told["results"].values()) == len(rows)
    assert refused == {row["payment"] for row in rows if not is_payable(row)}
    assert "thursday: 42 of 42 payments checked" in capsys.readouterr().out


def is_payable(row: dict[str, str]) -> bool:
    """The rule for check digits once more, digit by digit."""
    rest = 0
    for character in row["iban"][4:] + row["iban"][:4]:
        for digit in str(int(character, 36)):
            rest = (rest * 10 + int(digit)) % 97
    return rest == 1 and float(row["amount"]) > 0


@pytest.mark.parametrize("name", ["reviews", "pipeline", "reports", "batches"])
def test_an_example_of_the_pool_tells_progress_in_plain_lines_where_it_is_piped(
    name: str, tmp_path: Path
) -> None:
    shown = run(f"pool_{name}.py", tmp_path)
    assert "\x1b" not in shown
    assert re.search(r"^  .*\d+ of \d+ ", shown, re.MULTILINE)
    assert "\nNext: " in shown


# Groups: research, delivery, analysis, training, moderation, compliance

GROUPS_DATA = ROOT / "examples" / "groups_data"


def test_scientists_find_what_the_algae_go_with_and_check_each_other() -> None:
    result = groups_research.main()
    names = ["plankton", "phosphate", "nitrate", "temperature", "light"]
    strongest = max(names, key=lambda name: abs(groups_research.strength(name)))
    assert f"The algae go with {strongest} (" in result.output
    assert (result.status, result.turns) == ("succeeded", 7)
    assert [m.sender for m in result.messages][:2] == ["user", "lead"], "it had to assign first"


def test_what_is_released_passes_all_tests() -> None:
    broken = (GROUPS_DATA / "slugs.py.txt").read_text(encoding="utf-8")
    assert groups_delivery.run_tests(broken)[:2] == (3, 5)
    result, changes = asyncio.run(groups_delivery.deliver())
    assert [message.sender for message in result.messages[1:]] == [
        "tester",
        "developer",
        "tester",
        "developer",
        "tester",
        "operator",
    ]
    assert "5 of 5 tests pass" in result.messages[-2].text
    assert "tried it: 'it-works'" in result.output
    assert len([line for line in changes if line.startswith("+")]) == 2


def test_power_is_counted_once_and_without_mistakes_of_the_meter() -> None:
    result, log = asyncio.run(groups_analysis.work())
    rows = rows_of(GROUPS_DATA / "power.csv")
    once = {row["at"]: row["kw"] for row in rows}
    good = [kw for kw in once.values() if re.fullmatch(r"\d\d\.\d", kw)]
    assert result.messages[1].text == f"{len(good)} of {len(rows)} rows are left"
    assert f"cleaner: rows that came twice: {len(rows) - len(once)}" in log
    assert "Most power is used at" in result.output
    assert result.output.count("█ ") == 12


def test_the_model_that_is_taken_does_best_on_grains_it_has_not_seen() -> None:
    result = groups_training.main()
    right = {name: int(n) for name, n in re.findall(r"(\w+) (\d+) of 60[,)]", result.output)}
    taken = re.findall(r"Take (\w+):", result.output)[0]
    assert right.keys() == groups_training.SPEEDS.keys()
    assert right[taken] == max(right.values()) > 54
    assert (result.status, result.turns) == ("succeeded", 5)


def test_a_model_learns_what_it_is_shown() -> None:
    rows = [[1.0, side * (1 + step / 10), float(side > 0)] for side in (-1, 1) for step in range(9)]
    weights, loss = groups_training.train(rows, speed=1.0)
    assert all((groups_training.chance_of(weights, row) > 0.5) == (row[-1] == 1) for row in rows)
    assert loss < 0.2


def test_posts_are_judged_by_the_policy_which_nobody_could_change() -> None:
    done = groups_moderation.main()
    assert (done["keep"], done["hide"], done["remove"]) == (4, 1, 4)
    assert (done["refused"], done["versions"]) == (9, 1)
    assert done["no answer"] == 9 + 1, (
        "one who may not write, every time; one who fell asleep, once"
    )


def test_payments_are_reported_by_rule_and_audited_beside() -> None:
    result, trail = asyncio.run(groups_compliance.watch())
    rows = rows_of(GROUPS_DATA / "payments.csv")
    flagged = set(re.findall(r"P\d+", result.output))
    assert flagged >= {r["payment"] for r in rows if float(r["amount"]) > 10_000}
    assert flagged >= {r["payment"] for r in rows if r["country"] in ("KP", "SY")}
    assert result.output.startswith("6 cases, as reported before")
    assert sorted(trail) == [
        "6 cases",
        "6 cases, as reported before",
        *["audit: 6 cases checked against the payments, 0 of them wrong"] * 2,
    ]


@pytest.mark.parametrize(
    "name", ["research", "delivery", "analysis", "training", "moderation", "compliance"]
)
def test_an_example_of_a_group_tells_who_says_what_in_plain_lines_where_it_is_piped(
    name: str, tmp_path: Path
) -> None:
    shown = run(f"groups_{name}.py", tmp_path)
    assert "\x1b" not in shown
    assert len(re.findall(r"^  \w+ (?:to \w+|\w)", shown, re.MULTILINE)) >= 4
    assert "\nNext: docs/groups.md" in shown


# Examples with a model: what they say about that is so


def reach(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "none")


MODEL = ("--model", "openai:small")


async def test_a_model_reads_the_reviews_and_is_held_against_the_stars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(received: Received) -> Say:
        is_bad = "broke" in json.dumps(received.body["messages"])
        return Say(text=json.dumps({"feeling": "negative" if is_bad else "positive"}))

    async with model_server() as server:
        server.always = answer
        reach(server, monkeypatch)
        result = await asyncio.to_thread(pool_reviews.main, [*MODEL, "--first", "12"])
        assert len(server.requests) == 12
    assert (len(result["results"]), result["gaps"]) == (12, [])
    shown = capsys.readouterr().out
    assert "12 reviews for 5 workers, who ask openai:small" in shown
    assert " of 12 agree with the stars" in shown


def tool_call(name: str, **arguments: str) -> Say:
    return Say(calls=(ToolCall("c1", name, json.dumps(arguments)),))


LOOKED = [
    tool_call("assign_to_all", message=groups_research.LOOK),
    tool_call("assign_to_all", message=groups_research.CHECK.upper()),
    tool_call("assign_to_one", worker="chemist", message=groups_research.WRITE),
]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([*LOOKED, tool_call("finish", answer="It is phosphate.")], "It names what was computed"),
        ([*LOOKED, tool_call("finish", answer="It is the sun.")], "it leaves out phosphate"),
        (
            [
                tool_call("assign_to_all", message="Tell me everything about algae"),
                tool_call("finish", answer="It is phosphate."),
            ],
            "nothing was found to hold",
        ),
    ],
)
async def test_a_model_leads_the_research_and_its_answer_is_held_against_what_was_computed(
    lines: list[Say],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with model_server() as server:
        server.say(*lines)
        reach(server, monkeypatch)
        result = await asyncio.to_thread(groups_research.main, MODEL)
        told = json.dumps(server.requests[0].body["messages"])
    assert groups_research.LOOK in told, "the lead is told which messages are understood"
    assert says in " ".join(capsys.readouterr().out.split())
    assert result.status == ("partial" if len(lines) == 2 else "succeeded")


async def test_nothing_is_released_that_fails_its_tests_whoever_is_chosen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with model_server() as server:
        server.always = Say(text=json.dumps({"next": "operator", "why": "let us be quick"}))
        reach(server, monkeypatch)
        result = await asyncio.to_thread(groups_delivery.main, MODEL)
    assert "Nothing was released." in capsys.readouterr().out
    assert result.status != "succeeded"


async def test_a_model_leads_the_training_and_its_answer_is_held_against_the_test(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = tool_call("assign_to_one", worker="splitter", message="Get them ready")
    trained = tool_call("assign_to_all", message="Do what you do")
    async with model_server() as server:
        server.say(ready, trained, tool_call("finish", answer="Take them all."))
        reach(server, monkeypatch)
        await asyncio.to_thread(groups_training.main, MODEL)
    assert "Not to be trusted" in capsys.readouterr().out
