"""The demo runs with no network, and what its answer cites stands where it says."""

import csv
import importlib.util
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from examples import demo

import chargehand as ch
from chargehand.supervisor_factory import Choice, supervisor_for
from tests.watching import silent_waits, watched

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


class Statement(NamedTuple):
    """One thing that an answer says, with what it cites for that."""

    text: str
    file: str
    #: 0: the whole file
    line: int


def statements_in(text: str) -> Iterator[Statement]:
    """The statements of an answer; every line that states something cites a place."""
    for line in text.split("\n"):
        if not line or line.endswith(":"):
            continue
        found = re.fullmatch(r"(.+) \[([\w./-]+?)(?::(\d+))?\]", line)
        assert found is not None, f"no source: {line}"
        yield Statement(found[1], found[2], int(found[3] or 0))


def check(statement: Statement) -> None:
    """The cited line exists, and has the words or the figures that are claimed."""
    lines = (demo.DATA / statement.file).read_text(encoding="utf-8").splitlines()
    assert statement.line <= len(lines), statement
    if not statement.line:
        assert statement.file.endswith(".csv"), statement
        check_total(statement)
    elif statement.file.endswith(".csv"):
        cells = lines[statement.line - 1].split(",")
        figure = NUMBER.findall(statement.text)[-1].replace(",", "")
        assert float(figure) in [float(cell) for cell in cells if NUMBER.fullmatch(cell)], statement
        assert any(cell in statement.text for cell in cells if cell.isalpha()), statement
    else:
        assert statement.text in lines[statement.line - 1], statement


def check_total(statement: Statement) -> None:
    """A figure over many lines is worked out anew, from the file itself."""
    with (demo.DATA / statement.file).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    totals: dict[str, float] = {}
    for row in rows:
        totals[row["product"]] = totals.get(row["product"], 0) + float(row["revenue"])
    if statement.text.startswith("Total units where product = lamp"):
        lamps = [row for row in rows if row["product"] == "lamp" and row["month"] == "2025-06"]
        assert statement.text.endswith(f": {sum(int(row['units']) for row in lamps)}")
        return
    found = re.fullmatch(r"Highest total revenue: (\w+) \(([\d,.]+)\)", statement.text)
    assert found is not None, statement
    assert found[1] == max(totals, key=lambda product: totals[product])
    assert float(found[2].replace(",", "")) == pytest.approx(totals[found[1]])


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, and no way out of this machine."""

    def refuse(*address: object) -> None:
        raise AssertionError(f"somebody wanted to reach {address}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("offline")
def test_the_demo_answers_with_citations_that_hold() -> None:
    result = demo.main()
    assert result.status == "succeeded"
    assert not result.answer.gaps
    statements = list(statements_in(result.answer.text))
    assert {statement.file for statement in statements} == {
        "sales.csv",
        "reviews/headphones.txt",
        "notes/2025-06-product-meeting.md",
        "policies/returns.md",
    }
    for statement in statements:
        check(statement)
    assert all(claim.tasks for claim in result.answer.claims)


@pytest.mark.usefixtures("offline")
def test_the_demo_waits_for_nothing_that_a_task_does_not_need() -> None:
    """The one task that speaks of another's result waits for it; all others begin at once."""
    result = demo.main()
    needs = {id_: [need.task for need in task.task.all_needs] for id_, task in result.tasks.items()}
    assert needs == {"t1": [], "t2": ["t1"], "t3": [], "t4": [], "t5": []}


def test_the_commands_that_the_demo_names_work(tmp_path: Path) -> None:
    """Run as `make demo` runs it, in a terminal of 80 columns; then what it says to try is tried."""
    shown = _printed([sys.executable, str(ROOT / "examples" / "demo.py")], tmp_path)
    text, _, commands = shown.partition("Look at the run")
    assert max(map(len, text.splitlines())) < 80
    named = [line.split() for line in commands.splitlines() if " --journal " in line]
    assert [words[1] for words in named] == ["show", "trace", "serve"]
    for words in named[:-1]:
        program = [sys.executable, "-m", "chargehand"]
        told = _printed([*program, *words[1:]], tmp_path)
        assert "headphones" in told


def _printed(command: list[str], folder: Path) -> str:
    environment = {**watched(folder), "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr}"
    assert silent_waits(folder) == []
    return done.stdout


# Further questions over the same files


async def asked(request: str, **terms: str) -> ch.RunResult:
    async with supervisor_for(Choice(files=[demo.DATA], model="offline")) as boss:
        return await boss.run(request, **terms)  # type: ignore[arg-type]  # approaches are words here


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("request_", "workers", "found"),
    [
        ("What does the cheapest product cost?", ["analyst"], "umbrella (15) [prices.csv:9]"),
        ("Which three products sold the most?", ["analyst"], "notebook (930) [prices.csv:7]"),
        ("Which products cost less than 20?", ["analyst"], "price < 20: notebook, umbrella"),
        ("What is the average price?", ["analyst"], "Average price: 74.18 [prices.csv]"),
        ("Total revenue per category?", ["analyst"], "home 2,940, kitchen 25,150.80"),
        (
            "How much did backpacks bring in from March to May?",
            ["analyst"],
            "from 2025-03 to 2025-05: 11,376",
        ),
        ("Which month had the highest revenue?", ["analyst"], "2025-06 (23,024.30)"),
        ("What is annoying about the kettle?", ["researcher"], "[reviews/kettle.txt:1]"),
        ("What do reviewers say about the battery?", ["researcher"], "battery lasts two days"),
        ("What does a kettle cost?", ["analyst"], "Price where product = kettle: 39.90"),
        ("Is the chair comfortable?", ["researcher"], "Comfortable from the first"),
        ("Who pays the postage?", ["analyst", "researcher"], "The customer pays the postage"),
        ("Calculate 39.90 * 412", ["analyst"], "16438.8"),
        (
            "Summarise what reviewers say about the chair.",
            ["researcher", "writer"],
            "Comfortable from the first hour. [reviews/chair.txt:1]",
        ),
    ],
)
async def test_a_question_goes_to_who_can_answer_it(
    request_: str, workers: list[str], found: str
) -> None:
    result = await asked(request_)
    assert result.status == "succeeded"
    assert [task.worker for task in result.tasks.values()] == workers
    assert found in result.answer.text


@pytest.mark.usefixtures("offline")
async def test_a_bare_install_answers_the_question_of_the_readme(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without DuckDB, SQLite holds the tables, with the same answer."""
    question = "What does the cheapest product cost?"
    with_duckdb = await asked(question)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "duckdb" else find(name)
    )
    bare = await asked(question)
    assert bare.status == with_duckdb.status == "succeeded"
    assert (
        bare.answer.text == with_duckdb.answer.text == "Lowest price: umbrella (15) [prices.csv:9]"
    )
    assert bare.answer.confidence == with_duckdb.answer.confidence >= 0.99


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "request_",
    [
        "How many lamps were sold in August?",
        "How much revenue did Berlin bring in?",
        "Who won the world cup?",
    ],
)
async def test_what_the_files_do_not_hold_is_said_to_be_missing(request_: str) -> None:
    """No figure is better than that of another month. Nothing found is no success."""
    result = await asked(request_)
    assert result.status == "failed"
    assert result.answer.confidence == 0
    assert "no language model" in str(result.answer)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("approach", "workers"),
    [
        ("whole", ["researcher", "analyst"]),
        ("steps", ["researcher", "analyst"]),
        ("route", ["researcher"]),
    ],
)
async def test_every_approach_comes_to_an_answer(approach: str, workers: list[str]) -> None:
    question = "What do reviewers say about the battery"
    more = "" if approach == "route" else ", and what does the cheapest product cost"
    result = await asked(f"{question}{more}?", approach=approach)
    assert result.status == "succeeded"
    assert [task.worker for task in result.tasks.values()] == workers
    assert "battery lasts two days" in result.answer.text
