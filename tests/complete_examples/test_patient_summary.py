"""The patient summary flags two medicines of two doctors that interact, and the result that is missing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import testing as kit
from chargehand.documents import Document
from tests.complete_examples.checks import (
    Example,
    assert_data_is_made_by,
    assert_document_holds,
    assert_suite_passes,
    assert_survives_kills,
    assert_valid_html,
)


@pytest.fixture(scope="module")
def example() -> Example:
    return Example("patient_summary")


@pytest.fixture(scope="module")
def result(example: Example) -> ch.RunResult:
    return example.run()


@pytest.fixture(scope="module")
def document(example: Example, result: ch.RunResult) -> Document:
    return example.document(result)


def test_the_data_is_made_by_its_script(example: Example, tmp_path: Path) -> None:
    assert_data_is_made_by(example, tmp_path)


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


def test_another_request_says_that_it_needs_a_model(example: Example) -> None:
    boss = example.module.boss(example.written(), example.data)
    result = boss.run_sync("What is the weather?", output=example.module.OUTPUT)
    assert result.status is ch.RunStatus.FAILED
    assert "--model" in str(result.answer)


def test_its_suite_passes(example: Example) -> None:
    assert_suite_passes(example)


def test_killed_twice_it_goes_on(example: Example, tmp_path: Path) -> None:
    assert_survives_kills(example, tmp_path, [6, 30], "--yes")


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["lab_analyst"])
    assert result.status is ch.RunStatus.PARTIAL
    assert "t5" in {gap.task for gap in result.answer.gaps}
    page = example.document(result).html()
    assert_valid_html(page)
    assert "What is missing" in page


def test_a_provider_with_429s_is_waited_for(example: Example) -> None:
    model = kit.FaultyModel(example.written(), faults=kit.at_random("429", rate=0.1, seed=3))
    kit.assert_succeeded(example.run(model))
    assert model.struck


def test_half_of_the_budget_gives_the_best_partial_document(
    example: Example, result: ch.RunResult
) -> None:
    half = example.run(limits=kit.half_budget(result))
    assert half.status is ch.RunStatus.PARTIAL
    page = example.document(half).markdown()
    assert "What is missing" in page
    assert "Not confirmed by a clinician" in page
