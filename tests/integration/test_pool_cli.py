"""The command line shows a request of a pool, and reaches it, as it does any run."""

import json
from pathlib import Path

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
    assert "nobody leads it" in shown
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


def test_a_request_is_answered_from_what_there_is(journal: str, request_id: str) -> None:
    told = chargehand(journal, "cancel", request_id, "--answer-now")
    assert "as soon as an agent of its pool looks at it" in told.output
    with SharedMemoryPool(journal) as pool:
        assert SupervisorAgent(None, pool).aggregate_results(request_id)["status"] == "partial"


def test_a_request_is_cancelled_at_once(journal: str, request_id: str) -> None:
    assert "has ended: cancelled" in chargehand(journal, "cancel", request_id).output


def test_a_request_is_not_resumed(journal: str, request_id: str) -> None:
    refused = chargehand(journal, "resume", request_id)
    assert refused.exit_code != 0
    assert "belongs to a pool" in refused.output
