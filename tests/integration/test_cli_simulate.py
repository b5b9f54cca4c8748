"""`chargehand simulate`: from a plan in a file to a table and two charts, with no key and no model."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CHARGEHAND_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


PLAN = ch.Plan(
    goal="Compare two offers",
    tasks=[
        ch.Task(id="a", description="Read the first offer", worker="reader"),
        ch.Task(id="b", description="Read the second offer", worker="reader"),
        ch.Task(id="letter", description="Write the letter", worker="writer", needs=["a", "b"]),
    ],
)


def simulated(*options: str, plan: ch.Plan = PLAN, durations: object = None) -> Result:
    Path("plan.json").write_text(plan.to_json(), encoding="utf-8")
    if durations is not None:
        Path("durations.json").write_text(json.dumps(durations), encoding="utf-8")
        options = (*options, "--durations", "durations.json")
    return CliRunner().invoke(main, ["simulate", "plan.json", *options])


def told(*options: str, **more: Any) -> Any:
    done = simulated("--json", *options, **more)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_durations_from_a_file_tell_the_end_and_the_best_pool() -> None:
    content = told("--parallel", "1", durations={"reader": 10, "writer": 5})
    assert content["seconds"] == {"p50": 25.0, "p95": 25.0}
    assert content["best"] == 2
    assert [level["seconds"]["p50"] for level in content["sweep"]] == [25.0, 15.0]
    assert content["guessed"] == []
    assert [span["task"] for span in content["typical"]] == ["a", "b", "letter"]


def test_ranges_and_money_can_be_given_too() -> None:
    given = {"reader": [5, 20], "writer": {"seconds": 5, "money": 0.5}}
    content = told(durations=given)
    assert 10 <= content["seconds"]["p50"] < content["seconds"]["p95"] <= 25
    assert (content["cost"], content["unpriced"]) == (0.5, ["reader"])


def test_the_charts_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("60", "80", "140"):
        monkeypatch.setenv("COLUMNS", width)
        shown = simulated("--parallel", "1", durations={"reader": 10, "writer": 5}).stdout
        assert max(map(len, shown.splitlines())) <= int(width)
        assert "█" in shown


def test_what_is_shown_can_be_read() -> None:
    shown = simulated("--parallel", "1", durations={"reader": 10, "writer": 5}).stdout
    lines = shown.splitlines()
    assert lines[0] == "Compare two offers"
    assert "time       25s (p50), 25s (p95)" in lines
    assert "best       2 slots: more would save less than 5 %" in lines
    (row,) = [line for line in lines if line.startswith("b reader")]
    assert "·" in row.split("█")[0], "it waited for the place that a held"
    assert lines[-1].endswith("best")


def test_wide_plans_show_what_matters_most() -> None:
    tasks = [ch.Task(id=f"t{n}", description="Read it", worker="reader") for n in range(50)]
    wide = ch.Plan(goal="Read a lot", tasks=tasks)
    shown = simulated("--runs", "5", plan=wide, durations={"reader": 3}).stdout
    assert "20 shorter tasks are not shown" in shown


def test_with_nothing_known_it_guesses_and_says_so() -> None:
    shown = simulated().stdout
    assert "guessed    30s per task of reader, writer" in shown


def test_past_runs_in_the_journal_teach_lengths_and_prices() -> None:
    @ch.worker("reader", "Reads")
    async def reader(brief: ch.Brief) -> str:
        return "read"

    @ch.worker("writer", "Writes")
    async def writer(brief: ch.Brief) -> str:
        return "written"

    async def main() -> None:
        async with ch.Supervisor([reader, writer], journal="runs.db") as boss:
            await boss.run(PLAN)

    asyncio.run(main())
    content = told("--journal", "runs.db")
    assert content["guessed"] == content["unpriced"] == []
    assert content["seconds"]["p95"] < 30


def test_past_runs_of_a_model_of_unknown_price_teach_no_price() -> None:
    @ch.worker("reader", "Reads")
    async def reader(brief: ch.Brief) -> str:
        return "read"

    writer = ch.Worker("writer", "Writes", model=ch.ScriptedModel(["a letter"]))

    async def main() -> None:
        async with ch.Supervisor([reader, writer], journal="runs.db") as boss:
            await boss.run(PLAN)

    asyncio.run(main())
    assert told("--journal", "runs.db")["unpriced"] == ["writer"]


def test_the_same_seed_says_the_same() -> None:
    assert told("--seed", "7") == told("--seed", "7")
    assert told("--seed", "7") != told("--seed", "8")


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ("[1]", "must be an object"),
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"reader": "long"}', "'reader' is 'long'"),
        ('{"reader": -1}', "'reader' is -1"),
        ('{"reader": [9, 5]}', "the smaller first"),
        ('{"reader": {"cost": 5}}', "'cost'"),
        ('{"raeder": 5}', "no task of the plan is for 'raeder'; did you mean 'reader'?"),
        ('{"xyz": 5}', "no task of the plan is for 'xyz'; its tasks are for "),
        ('{"reader": 5, "t1": {"seconds": 5}}', "no task of the plan is for 't1'"),
    ],
)
def test_durations_that_make_no_sense_are_refused(content: str, fact: str) -> None:
    Path("durations.json").write_text(content)
    done = simulated("--durations", "durations.json")
    assert done.exit_code == 2
    assert fact in done.stderr


def test_a_missing_file_is_named() -> None:
    done = simulated("--durations", "nowhere.json")
    assert (done.exit_code, "nowhere.json" in done.stderr) == (2, True)
    gone = CliRunner().invoke(main, ["simulate", "gone.json"])
    assert (gone.exit_code, "gone.json" in gone.stderr) == (2, True)


def test_a_plan_that_would_not_be_led_is_refused() -> None:
    bad = ch.Plan(goal="x", tasks=[ch.Task(id="a", description="Do", worker="w", needs=["gone"])])
    done = simulated(plan=bad)
    assert done.exit_code == 2
    assert "gone" in done.stderr
