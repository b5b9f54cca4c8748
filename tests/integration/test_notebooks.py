"""Notebooks: values that show themselves, live progress, and the example, which a real kernel executes."""

import json
import re
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import nbclient
import nbformat
import pytest
from pydantic import BaseModel

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.facts.answer import Answer, Claim, Gap
from chargehand.presentation import notebook
from chargehand.presentation.live_state import LiveState
from chargehand.presentation.notebook import html_of, progress_html

EXAMPLES = Path(__file__).parents[2] / "examples"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\u202e"


class Ships(BaseModel):
    ships: int


@ch.worker("reader", "Reads a page")
async def read(brief: ch.Brief) -> str:
    if brief.task.id == "bad":
        raise ch.WorkerError(HOSTILE, kind="denied")
    return f"page {HOSTILE}"


def hostile_plan() -> ch.Plan:
    tasks = [
        ch.Task(id="good", description=HOSTILE, worker="reader"),
        ch.Task(id="bad", description="Read", worker="reader"),
        ch.Task(id="after", description="Read on", worker="reader", needs=["bad"]),
    ]
    return ch.Plan(goal=HOSTILE, tasks=tasks)


class Tags(HTMLParser):
    """The tags and attributes of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def check_harmless(html: str) -> None:
    tags = Tags(html)
    assert not tags.names & {"script", "img", "iframe", "object", "link", "a", "foreignobject"}
    assert not {name for name in tags.attributes if name.startswith("on")} | (
        tags.attributes & {"href", "src", "xlink:href"}
    )
    assert "\x1b" not in html
    assert "\u202e" not in html


async def test_a_plan_a_result_and_a_trace_show_themselves_as_harmless_html() -> None:
    boss = ch.Supervisor([read])
    result = await boss.run(hostile_plan())
    for value in (hostile_plan(), result, result.trace):
        html = value._repr_html_()
        assert html is not None
        assert "<svg" in html
        assert "&lt;script&gt;" in html
        check_harmless(html)
    shown = html_of(result)
    for words in ("partial after", "page &lt;script&gt;", "missing", "after (skipped)", "timeline"):
        assert words in shown, words


def test_an_answer_names_what_it_rests_on() -> None:
    answer = Answer(
        output="42 ships",
        claims=(Claim("42 ships", ("read", "count")),),
        gaps=(Gap("south", "failed", "no page"),),
    )
    html = "".join(notebook._answer_parts(answer))
    assert "42 ships [read, count]" in html
    assert "south (failed): no page" in html


async def test_a_run_that_has_not_ended_shows_its_question() -> None:
    @ch.worker("asker", "Asks")
    async def ask(brief: ch.Brief) -> str:
        return await brief.ask("Which <colour>?")

    async with ch.Supervisor([ask]) as boss:
        task = ch.Task(id="a", description="Ask", worker="asker")
        run = await boss.submit(ch.Plan(goal="Ask", tasks=[task]))
        async for event in boss.watch(run.id):
            if isinstance(event, ch.events.AttemptFinished):
                break
        html = html_of(await boss.look(run.id))
        assert "asks: Which &lt;colour&gt;?" in html
        assert "await boss.answer(" in html
        await boss.cancel(run.id)


def test_progress_is_the_view_of_the_terminal_in_colours() -> None:
    state = LiveState()
    at = datetime(2026, 5, 4, tzinfo=UTC)
    state.hear(ch.events.PlanAdopted(plan=hostile_plan(), at=at))
    state.hear(ch.events.AttemptStarted(task="good", attempt=1, worker=HOSTILE, at=at))
    html = progress_html(state, at)
    assert "0 of 3 done" in html
    check_harmless(html)


async def test_without_ipython_a_run_in_a_notebook_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(UsageError, match="needs IPython"):
        await ch.run_in_notebook(ch.Supervisor([read]), hostile_plan())


async def test_a_run_in_a_notebook_has_its_typed_output(capsys: pytest.CaptureFixture[str]) -> None:
    """Outside of a kernel it runs all the same."""
    facts = {"answer": {"ships": 42}, "claims": [], "contradictions": [], "confidence": 1.0}
    boss = ch.Supervisor([read], model=ch.ScriptedModel([json.dumps(facts)]))
    task = ch.Task(id="c", description="Count", worker="reader")
    plan = ch.Plan(goal="Count", tasks=[task])
    result = await ch.run_in_notebook(boss, plan, output=Ships)
    assert result.output == Ships(ships=42)
    capsys.readouterr()


def test_the_example_runs_in_a_kernel(tmp_path: Path) -> None:
    """Every cell, with top-level await; the values are pictures, the progress is live."""
    book = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)  # type: ignore[no-untyped-call]  # it has none
    (tmp_path / "data").symlink_to(EXAMPLES / "data")
    client = nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    html = {
        number: "".join(
            output.data.get("text/html", "") for output in cell.outputs if "data" in output
        )
        for number, cell in enumerate(cells)
    }
    plan, progress, result, trace = (html[number] for number in (1, 2, 3, 4))
    assert "<svg" in plan
    assert re.search(r"\d of \d done", progress)
    assert "headphones" in result
    assert result.count("<svg") == 2
    assert "<svg" in trace
    text = "".join(output.text for output in cells[-1].outputs if output.output_type == "stream")
    assert "t1 |" in text
