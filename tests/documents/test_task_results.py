"""A run without its answer still gives a document: the results of its tasks, as people read them."""

import json
from typing import Any

import chargehand as ch
from chargehand.documents import Bullets, Document, Paragraph, Section, Table, task_results
from tests.complete_examples.checks import assert_valid_html


def run_of(**outputs: Any) -> ch.RunResult:
    """A run with a task for each output; an exception is what its task fails with."""

    @ch.worker("clerk", "Looks things up")
    async def clerk(brief: ch.Brief) -> Any:
        output = outputs[brief.task.id]
        if isinstance(output, Exception):
            raise output
        return output

    tasks = [ch.Task(id=id_, description=f"Find {id_}", worker="clerk") for id_ in outputs]
    return ch.Supervisor([clerk]).run_sync(ch.Plan(goal="Find", tasks=tasks))


def test_structures_become_tables_and_lists() -> None:
    rows = [
        {"name": "a", "eur": 1.5},
        {"name": "b", "eur": 2, "terms": [{"line": 3, "is_new": True}]},
    ]
    fields = {"day": "2026-01-31", "by": None, "found": ["one", "two"]}
    result = run_of(rows=rows, json=json.dumps(fields), text="**Done.**", lost=ValueError("gone"))
    assert task_results(result)[1:] == [
        Section("Find rows"),
        Table(["name", "eur", "terms"], [["a", 1.5, ""], ["b", 2, "line: 3, is_new: yes"]]),
        Section("Find json"),
        Table(["", ""], [["day", "2026-01-31"], ["by", "none"]]),
        Paragraph(["found:"]),
        Bullets(["one", "two"]),
        Section("Find text"),
        "**Done.**",
    ]
    document = Document("Partial", task_results(result), result=result)
    assert_valid_html(document.html())
    assert "lost (failed): " in document.markdown()


def test_items_without_a_result_are_counted() -> None:
    result = run_of(some=[None, {"day": "2026-01-31"}, None], lost=ValueError("gone"))
    assert task_results(result)[2:] == [Table(["day"], [["2026-01-31"]]), "Missing: 2 of 3."]


def test_large_and_deep_results_are_cut() -> None:
    deep: Any = "end"
    for _ in range(30):
        deep = {"a": [deep]}
    blocks = task_results(run_of(many=list(range(250)), deep=deep, broken="[not json"))
    assert "… and 150 more." in blocks
    assert "[not json" in blocks
    assert_valid_html(Document("Large", blocks).html())


def test_a_text_is_the_answer_and_nothing_is_said() -> None:
    assert task_results(run_of(text="It is 3.")) == ["It is 3."]
    assert task_results(run_of(lost=ValueError("gone"))) == [
        "There is no answer, and no task was done."
    ]
