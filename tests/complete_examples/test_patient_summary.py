"""The patient summary flags two medicines of two doctors that interact, and the result that is missing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import chargehand as ch
from chargehand import testing as kit
from chargehand.documents import Document
from tests.complete_examples.checks import (
    Example,
    assert_document_holds,
    assert_gaps_are_named,
)


def test_it_flags_the_interaction_between_medicines_of_two_doctors(
    example: Example, result: ch.RunResult, document: Document
) -> None:
    kit.assert_succeeded(result)
    for task, kind in (("t1", "visits"), ("t2", "letters")):
        read = [json.loads(each)["file"] for each in result.tasks[task].output]
        assert read == sorted(f"{kind}/{each.name}" for each in (example.data / kind).iterdir())
    severe = [each for each in result.output.interactions if each.severity.value == "severe"]
    assert [(each.first.value, each.second.value) for each in severe] == [
        ("spironolactone", "trimethoprim")
    ]
    assert severe[0].first_prescriber.value != severe[0].second_prescriber.value
    assert "> **Severe interaction: spironolactone and trimethoprim.**" in document.markdown()


def test_it_flags_the_result_that_is_missing(result: ch.RunResult, document: Document) -> None:
    assert [(e.test, e.ordered_on.value) for e in result.output.missing_results] == [
        ("potassium", "2025-12-02")
    ]
    assert "> **Missing result: potassium.**" in document.markdown()
    assert "potassium, 2025-12-02: missing" in document.html()


def test_every_figure_of_the_document_is_in_the_records(
    example: Example, document: Document
) -> None:
    assert_document_holds(document, example.data, figures=100)
    summary = document.markdown().partition("## Summary")[2].partition("A clinician confirmed")[0]
    cited = re.findall(r"\S+(?: \S+)? \[\d+\]", summary)
    assert len(cited) >= 12
    bare = re.sub(r"\S+(?: \S+)? \[\d+\]|HbA1c", "", summary)
    assert not re.search(r"\d", bare), bare


def test_the_document_holds_exactly_what_the_clinician_confirmed(
    example: Example, result: ch.RunResult
) -> None:
    (confirmed,) = (e.output for e in result.tasks.values() if e.worker == "clinician")
    (draft,) = (e.output for e in result.tasks.values() if e.worker == "writer")
    assert confirmed == {"confirmed": draft.strip()}


def test_without_the_clinicians_consent_there_is_no_summary(example: Example) -> None:
    result = example.run(answer=example.module.REJECT)
    assert result.status is ch.RunStatus.PARTIAL
    page = example.document(result).markdown()
    assert "Not confirmed by a clinician" in page
    assert "## Summary" not in page


def test_without_a_person_it_waits_and_goes_on_after_the_answer(
    example: Example, tmp_path: Path
) -> None:
    def script(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    waits = script(str(example.script))
    assert waits.returncode == 4, waits.stderr
    question = re.search(r"chargehand answer (\S+) TEXT --journal", waits.stderr)
    run = re.search(r"--resume (\S+)", waits.stderr)
    assert question is not None
    assert run is not None
    journal = ["--journal", "patient_summary.db"]
    answered = script("-m", "chargehand", "answer", question[1], example.module.CONFIRM, *journal)
    assert answered.returncode == 0, answered.stderr
    ended = script(str(example.script), "--resume", run[1])
    assert ended.returncode == 0, ended.stderr
    assert "A clinician confirmed" in (tmp_path / "patient_summary.md").read_text()


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["lab_analyst"])
    assert "t5" in {gap.task for gap in result.answer.gaps}
    assert_gaps_are_named(example, result)
