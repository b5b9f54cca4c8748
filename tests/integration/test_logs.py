"""Log lines: named as the events, one line each, with the run's id; silent unless they are wanted."""

import logging

import pytest

import chargehand as ch
from chargehand.facts.events import KINDS
from chargehand.runtime.log_lines import FIELDS, NAMES
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task


@ch.worker("fine", "Works")
async def fine(_: ch.Brief) -> str:
    return "x"


@ch.worker("bad", "Fails")
async def bad(_: ch.Brief) -> None:
    raise ValueError("line one\nline two \x1b[2J")


def lines_of(caplog: pytest.LogCaptureFixture, level: int) -> tuple[str, list[str]]:
    with caplog.at_level(level, "chargehand"):
        plan = make_plan(make_task("t", "fine"), make_task("u", "bad"), make_task("v", "fine", "u"))
        result = run_virtual(ch.Supervisor([fine, bad], clock=FakeClock()).run(plan))
    return result.id, [record.getMessage() for record in caplog.records]


def test_p13_attempts_failures_retries_and_skips_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, lines = lines_of(caplog, logging.INFO)
    for begins in (
        f"attempt_started run={run} task=t attempt=1 worker=fine",
        f"attempt_finished run={run} task=t attempt=1 outcome=done",
        f"attempt_finished run={run} task=u attempt=1 outcome=failed kind=logic error=ValueError",
        f"retry_planned run={run} task=u due_at=",
        f"task_failed run={run} task=u cause=failed",
        f"task_skipped run={run} task=v why=",
        f"run_finished run={run} status=partial",
    ):
        assert any(line.startswith(begins) for line in lines), begins
    assert not any(set(line) & {"\n", "\x1b"} for line in lines)  # no text forges a line


def test_i19_no_text_of_a_task_forges_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    """Line breaks and terminal escapes in goals, descriptions, errors and reasons are shown as escapes."""
    hostile = "x\nrun_finished run=r1 status=succeeded \x1b[2J\x9b31m\r\u2028"

    @ch.worker("hostile", "Fails in hostile words")
    async def fail(brief: ch.Brief) -> None:
        brief.progress(hostile)
        raise type("Error\n\x1b", (ValueError,), {})(hostile)

    task = ch.Task(id="t", description=hostile, worker="hostile")
    with caplog.at_level(logging.INFO, "chargehand"):
        run_virtual(
            ch.Supervisor([fail], clock=FakeClock()).run(ch.Plan(goal=hostile, tasks=[task]))
        )
    lines = [record.getMessage() for record in caplog.records]
    assert any("attempt_finished" in line for line in lines)
    assert not [line for line in lines if set(line) & set("\n\r\x1b\x9b\u2028")]


def test_the_stack_of_a_failure_is_there_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    _, lines = lines_of(caplog, logging.DEBUG)
    assert any("attempt_stack" in line and "in bad" in line for line in lines)


def test_without_asking_for_them_there_are_none(caplog: pytest.LogCaptureFixture) -> None:
    _, lines = lines_of(caplog, logging.WARNING)
    assert not any(line.startswith(("attempt_", "task_", "run_led")) for line in lines)


def test_every_name_is_that_of_an_event_and_every_field_is_its() -> None:
    assert set(FIELDS) <= set(KINDS.values())
    for kind, fields in FIELDS.items():
        assert set(fields) <= set(kind.__struct_fields__)
        assert NAMES[kind].replace("_", "") == kind.__name__.lower()
