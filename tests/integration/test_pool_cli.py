"""The command line shows a request of a pool, and reaches it, as it does any run."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.patterns.pool import SharedMemoryPool, SupervisorAgent, WorkerAgent


def fail(brief: ch.Brief) -> str:
    raise ConnectionError("no line")


def echo(brief: ch.Brief) -> str:
    return brief.task.id


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "runs.db")


@pytest.fixture
def request_id(journal: str) -> str:
    """A request of which one task is done, one has failed, and one is still to be had."""
    with SharedMemoryPool(journal) as pool:
        first, second, _ = SupervisorAgent(None, pool).delegate("Do 3 things", ["ann"], 3)
        WorkerAgent(None, pool, "ann", work=echo).execute_task(first)
        WorkerAgent(None, pool, "ann", work=fail).execute_task(second)
    return str(first["request_id"])


def chargehand(journal: str, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--journal", journal])


def test_a_request_is_listed_as_what_it_is(journal: str, request_id: str) -> None:
    (row,) = [
        json.loads(line) for line in chargehand(journal, "runs", "--json").output.splitlines()
    ]
    assert (row["run"], row["status"], row["done"]) == (request_id, "running", 1)


def test_a_request_is_shown_with_what_it_waits_for(journal: str, request_id: str) -> None:
    shown = chargehand(journal, "show", request_id).output
    assert "t2  waiting for an answer, ann" in shown
    assert "no line" in shown
    assert "no single process leads it" in shown
    assert "resume" not in shown


def test_a_request_has_a_trace(journal: str, request_id: str) -> None:
    trace = json.loads(chargehand(journal, "trace", request_id).output)
    assert trace["approach"] == "pool"
    (plan,) = trace["plans"]
    assert len(plan["added"]) == 3
    assert trace["leaders"] == []


def test_what_failed_is_answered_and_done_by_whoever_comes(journal: str, request_id: str) -> None:
    answered = chargehand(journal, "answer", request_id, "try again")
    assert answered.exit_code == 0
    with SharedMemoryPool(journal) as pool:
        assert WorkerAgent(None, pool, "ann", work=echo).serve(request_id) == 2
    assert "succeeded" in chargehand(journal, "show", request_id).output


def test_an_answered_request_says_which_worker_must_run_again(
    journal: str, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(brief: ch.Brief) -> Any:
        return brief.wait(brief.ask("Which team?", choices=["red", "blue"]))

    with SharedMemoryPool(journal) as pool:
        (task,) = SupervisorAgent(None, pool).delegate("Route the ticket", ["ann"])
        WorkerAgent(None, pool, "ann", work=ask).execute_next()
        gap = SupervisorAgent(None, pool).aggregate_results(task["request_id"])["gaps"][0]
    assert gap["why"].startswith(f"it waits for an answer to {task['request_id']}:t1:")
    (command,) = re.findall(r"end the wait with: chargehand (.*)", caplog.text)
    told = CliRunner().invoke(main, ["red" if w == "TEXT" else w for w in shlex.split(command)])
    goes_on = "it continues when a process runs worker 'ann' of its pool again"
    assert goes_on in told.output
    shown, status = (
        chargehand(journal, *words).output for words in (("show", "last"), ("status",))
    )
    for output in (shown, status):
        assert goes_on in output
        assert "waits for" not in output
        assert "waiting for" not in output
    assert "running  1 answered" in status
    with SharedMemoryPool(journal) as pool:
        assert WorkerAgent(None, pool, "ann", work=ask).serve(task["request_id"]) == 1
    assert "succeeded" in chargehand(journal, "show", "last").output


def test_a_failed_task_of_a_pool_says_what_it_waits_for(journal: str, request_id: str) -> None:
    with SharedMemoryPool(journal) as pool:
        gaps = SupervisorAgent(None, pool).aggregate_results(request_id)["gaps"]
    (failed,) = [gap for gap in gaps if gap["status"] == "failed"]
    (question,) = json.loads(chargehand(journal, "show", request_id, "--json").output)["questions"]
    way_out = f"it waits for reassign_task or an answer to {question['id']}"
    assert failed["why"] == f"network: no line; {way_out}"


def test_a_request_is_answered_from_what_there_is(journal: str, request_id: str) -> None:
    told = chargehand(journal, "cancel", request_id, "--answer-now")
    assert "as soon as an agent of its pool sees this" in told.output
    with SharedMemoryPool(journal) as pool:
        assert SupervisorAgent(None, pool).aggregate_results(request_id)["status"] == "partial"


def test_a_request_is_cancelled_at_once(journal: str, request_id: str) -> None:
    assert "has ended: cancelled" in chargehand(journal, "cancel", request_id).output


def test_a_request_is_not_resumed(journal: str, request_id: str) -> None:
    refused = chargehand(journal, "resume", request_id)
    assert refused.exit_code != 0
    assert "belongs to a pool" in refused.output
