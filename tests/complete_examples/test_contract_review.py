"""The contract review finds the annex that takes back what section 4 promises."""

import json
import shutil
from pathlib import Path

import chargehand as ch
from chargehand import testing as kit
from tests.complete_examples.checks import (
    Example,
    assert_document_holds,
    assert_gaps_are_named,
)


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
    assert "for the whole term (4.2) [t1], but: The fee of Norvale may rise" in document.html()


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["analyst"])
    assert "t2" in {gap.task for gap in result.answer.gaps}
    page = assert_gaps_are_named(example, result)
    assert "224,450" not in page


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
