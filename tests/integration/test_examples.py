"""The examples run, and say what they should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples import ask_documents, cascade

import chargehand as ch

ROOT = Path(__file__).parents[2]


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_is_killed_and_goes_on() -> None:
    shown = run("kill_and_resume.py")
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
    assert result.tasks["T5"].why == "T1 came to nothing"
    assert result.answer.output == {"T4": 1440}
    assert [gap.task for gap in result.answer.gaps] == ["T1", "T3", "T5"]


def test_what_is_denied_is_tried_once() -> None:
    assert cascade.run(optional=True).tasks["T1"].attempts == 1


def test_the_cascade_tells_both_endings(capsys: pytest.CaptureFixture[str]) -> None:
    cascade.main()
    shown = capsys.readouterr().out
    assert "T5's need of T3 is optional: the run is partial." in shown
    assert "missing: T5 (skipped): T1 came to nothing" in shown
