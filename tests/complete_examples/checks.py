"""What must hold for every complete example."""

import importlib
import re
from collections.abc import Sequence
from contextlib import chdir
from functools import cache, cached_property
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import chargehand as ch
from chargehand import testing as kit
from chargehand.documents import Document, FigureCheck
from chargehand.evaluation import evaluate_sync, load_suite
from chargehand.models.replies_from_file import WrittenModel
from chargehand.presentation.ask_at_terminal import answer_questions

EXAMPLES = Path(__file__).parents[2] / "examples"
#: elements of HTML that have no end
_VOID = {"meta", "br", "rect", "line", "circle", "polyline", "path", "link", "hr", "img", "input"}
_OUTSIDE = re.compile(r"""(?:src|href)=["'](?!#)|url\(|@import|<script""", re.IGNORECASE)


class Example:
    """A folder of `examples/`: its script, its data, its replies."""

    def __init__(self, name: str) -> None:
        self.folder = EXAMPLES / name
        self.script = self.folder / f"{name}.py"
        self.module: ModuleType = importlib.import_module(f"examples.{name}.{name}")
        self.data: Path = self.module.DATA
        self.request: str = self.module.REQUEST

    def written(self) -> WrittenModel:
        return WrittenModel(self.folder / "replies.toml")

    def run(
        self, model: Any = None, *, breaks: Sequence[str] = (), answer: str = "", **terms: Any
    ) -> ch.RunResult:
        """Run the request with replies of the file, with workers that fail for good.

        Questions get `answer`, or what the example answers with `--yes`.
        """
        boss = self.module.boss(model or self.written(), self.data)
        for worker in breaks:
            kit.replace_worker(boss, worker, kit.fails)
        output, text = self.module.OUTPUT, answer or getattr(self.module, "YES", "")
        result = boss.run_sync(self.request, output=output, on_question="return", **terms)
        return answer_questions(boss, result, lambda _: text or None, output=output)

    @cached_property
    def finished(self) -> ch.RunResult:
        """The whole run, done once."""
        with TemporaryDirectory() as folder, chdir(folder):
            return self.run()

    def document(self, result: ch.RunResult) -> Document:
        made: Document = self.module.document(result, self.data, "label")
        return made


@cache
def example_of(name: str) -> Example:
    """The example of this name, the same each time."""
    return Example(name)


def llm_workers(boss: ch.Supervisor) -> list[ch.Worker]:
    """The LLM workers of a supervisor and of those below it."""
    found: list[ch.Worker] = []
    for each in boss.roster:
        if isinstance(each, ch.Supervisor):
            found += llm_workers(each)
        elif isinstance(each, ch.Worker):
            found.append(each)
    return found


def assert_document_holds(document: Document, data: Path, *, figures: int) -> None:
    """Valid pages, nothing from outside, and every figure in the data that it cites."""
    page = document.html()
    assert_valid_html(page)
    assert not _OUTSIDE.search(page), _OUTSIDE.search(page)
    assert len(document.figures) >= figures
    assert not [e for e in FigureCheck(data).all(document.figures) if e.fault]
    numbers = f"Figures found in their sources: {len(document.figures)} of {len(document.figures)}"
    assert numbers in document.markdown()


def assert_gaps_are_named(example: Example, result: ch.RunResult) -> str:
    """The run is partial, and its document says what is missing and why; returns the page."""
    assert result.status is ch.RunStatus.PARTIAL
    assert result.answer.gaps
    document = example.document(result)
    page = document.html()
    assert_valid_html(page)
    missing = page.partition("<h2>What is missing</h2>")[2].partition("<h2>")[0]
    assert [gap for gap in result.answer.gaps if escape(str(gap)) not in missing] == []
    assert "## What is missing" in document.markdown()
    for text in (page, document.markdown()):
        beginning = text.partition("What is missing")[0]
        assert "This document is incomplete." in beginning, "who reads on no further knows"
    return page


def assert_data_is_made_by(example: Example, tmp_path: Path) -> None:
    """The script that makes the data makes exactly the files that ship."""
    maker = importlib.import_module(f"examples.{example.folder.name}.make_data")
    maker.main(tmp_path)
    made = {
        path.relative_to(tmp_path): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    shipped = {
        p.relative_to(example.data): p.read_bytes() for p in example.data.rglob("*") if p.is_file()
    }
    assert made == shipped


def assert_survives_kills(
    example: Example,
    tmp_path: Path,
    at_steps: Sequence[int],
    *options: str,
    ends: str = "succeeded",
) -> str:
    """Killed with SIGKILL at these steps, one after another, it goes on and ends as if nothing had been.

    Returns the documents that it has written.
    """
    ended = kit.kill_and_resume(
        example.script,
        "--journal",
        "runs.db",
        "--key",
        "one",
        *options,
        at_steps=list(at_steps),
        cwd=tmp_path,
    )
    assert ends in ended.stdout
    written = "".join(each.read_text() for each in tmp_path.rglob("*.md"))
    assert "Figures found in their sources" in written  # the typed result, and not only its text
    return written


def assert_suite_passes(example: Example) -> None:
    """`chargehand eval suite.toml` passes its gate, and asks what the example asks."""
    suite = load_suite(example.folder / "suite.toml")
    assert suite.cases[0].request == example.request
    result = evaluate_sync(suite)
    assert [each.misses for each in result.cases] == [()] * len(suite.cases)
    assert result.passes
    assert "right" in suite.gate


def assert_valid_html(page: str) -> None:
    """Every element that is opened is closed, in order."""
    open_: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            if tag not in _VOID:
                open_.append(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in _VOID:
                assert open_, f"</{tag}> closes nothing"
                assert open_.pop() == tag

    Reader().feed(page)
    assert not open_, f"never closed: {open_}"
