"""The contract review finds the annex that takes back what section 4 promises."""

import json
import shutil
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import testing as kit
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
    return Example("contract_review")


def test_the_data_is_made_by_its_script(example: Example, tmp_path: Path) -> None:
    assert_data_is_made_by(example, tmp_path)


@pytest.fixture(scope="module")
def result(example: Example) -> ch.RunResult:
    return example.run()


def test_it_flags_the_annex_that_contradicts_the_fixed_fee(
    example: Example, result: ch.RunResult
) -> None:
    kit.assert_succeeded(result)
    read = [json.loads(each)["file"] for each in result.tasks["t1"].output]
    assert read == sorted(f"contracts/{e.name}" for e in (example.data / "contracts").iterdir())
    flagged = [each for each in result.output.contradictions if each.supplier == "Norvale Cloud"]
    assert {term.source for each in flagged for term in each.terms} == {
        "contracts/norvale.md:23",
        "contracts/norvale.md:40",
    }
    document = example.document(result)
    assert_document_holds(document, example.data, figures=30)
    assert "two terms contradict each other" in document.markdown()
    assert "last day for notice" in document.html()


def test_another_request_says_that_it_needs_a_model(example: Example) -> None:
    boss = example.module.boss(example.written(), example.data)
    result = boss.run_sync("What is the weather?", output=example.module.OUTPUT)
    assert result.status is ch.RunStatus.FAILED
    assert "--model" in str(result.answer)


def test_its_suite_passes(example: Example) -> None:
    assert_suite_passes(example)


def test_killed_twice_it_goes_on(example: Example, tmp_path: Path) -> None:
    assert_survives_kills(example, tmp_path, at_steps=[4, 9])


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["analyst"])
    assert result.status is ch.RunStatus.PARTIAL
    assert "t2" in {gap.task for gap in result.answer.gaps}
    page = example.document(result).html()
    assert_valid_html(page)
    assert "What is missing" in page
    assert "224,450" not in page


def test_a_provider_with_429s_is_waited_for(example: Example) -> None:
    model = kit.FaultyModel(example.written(), faults=kit.at_random("429", rate=0.2, seed=3))
    boss = example.module.boss(model, example.data)
    kit.assert_succeeded(boss.run_sync(example.request, output=example.module.OUTPUT))
    assert model.struck


def test_half_of_the_budget_gives_the_best_partial_document(
    example: Example, result: ch.RunResult
) -> None:
    result = example.run(limits=kit.half_budget(result))
    assert result.status is ch.RunStatus.PARTIAL
    assert "What is missing" in example.document(result).markdown()


def test_reuse_reads_only_the_contract_that_changed(example: Example, tmp_path: Path) -> None:
    folder = shutil.copytree(example.data, tmp_path / "data")
    journal = str(tmp_path / "runs.db")
    first = example.module.boss(example.written(), folder, journal).run_sync(
        example.request, output=example.module.OUTPUT
    )
    pellham = folder / "contracts" / "pellham.md"
    pellham.write_text(pellham.read_text() + "\n8.1 Nothing else.\n")
    second = example.module.boss(example.written(), folder, journal).run_sync(
        example.request, output=example.module.OUTPUT, reuse=first.id
    )
    kit.assert_succeeded(second)
    read = [e.task for e in second.trace.attempts if e.task.startswith("t1[") and not e.reused]
    assert read == ["t1[5]"]
