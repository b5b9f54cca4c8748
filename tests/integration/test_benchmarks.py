"""Every benchmark runs and says what it is asked to say. No time is judged here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import (
    chain,
    fanin,
    fanout,
    for_each,
    layers,
    makespan,
    material,
    measure,
    memory,
    resume,
    startup,
    streaming,
)
from benchmarks.measure import Figure

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_WORKLOADS", raising=False)


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def names_told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [figure["name"] for figure in told(capsys)["figures"]]


# The engine


def test_fan_out_tells_the_cost_of_a_task_beside_that_of_bare_asyncio(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "HELD_AT", 20)
    assert fanout.main(["--json", "--sizes", "20", "--rounds", "1"]) == 0
    figures = {figure["name"]: figure for figure in told(capsys)["figures"]}
    assert figures["durable, 20 tasks: CPU a task"]["ratio"] > 0
    assert figures["durable, 20 tasks: CPU a task"]["bar"] == 0.06
    assert figures["durable, 20 tasks: tasks a second"]["bar"] == 12_000
    assert not list(Path.cwd().iterdir()), "it leaves nothing behind"


def test_a_streamed_plan_starts_before_it_is_whole_and_ends_a_quarter_sooner() -> None:
    """On a virtual clock, so that this is a fact and no measurement."""
    assert streaming.main(["--strict"]) == 0


def test_a_chain_tells_its_flushes(capsys: pytest.CaptureFixture[str]) -> None:
    assert chain.main(["--json", "--links", "20"]) == 0
    figures = {figure["name"]: figure["value"] for figure in told(capsys)["figures"]}
    assert figures["durable, 20 links: flushes a link"] >= 1


def test_what_planners_are_told_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    assert material.main(["--json", "--files", "400", "--repeats", "1"]) in (0, 1)
    figures = {figure["name"]: figure for figure in told(capsys)["figures"]}
    assert figures["400 files: tokens at the most"]["value"] <= 2_000


def test_an_item_stands_next_to_a_plain_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert for_each.main(["--json", "--size", "20", "--repeats", "1"]) in (0, 1)
    assert "durable, 20: item ÷ plain task" in names_told(capsys)


def test_a_fan_in_is_told_beside_a_fan_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert fanin.main(["--json", "--size", "20"]) == 0
    assert "memory, 20 → 1: fan-in ÷ fan-out" in names_told(capsys)


def test_layers_and_equal_calls_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert layers.main(["--json", "--call", "0.001", "--counts", "5"]) == 0
    assert names_told(capsys) == [
        "three layers of ten with stragglers ÷ critical path",
        "5 calls of 1 ms at once",
    ]


def test_memory_is_told_of_processes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory.main(["--json", "--sizes", "10", "20"]) == 0
    assert len(names_told(capsys)) == 4


def test_a_leader_is_killed_and_its_run_taken_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert resume.main(["--json", "--tasks", "10", "--repeats", "1"]) == 0
    assert names_told(capsys) == ["from resume to the first attempt"]


def test_startup_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert startup.main(["--json", "--repeats", "1"]) == 0
    assert "import chargehand: CPU" in names_told(capsys)


# The schedule


def test_without_workloads_the_makespans_are_skipped_with_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert makespan.main([]) == 0
    assert capsys.readouterr().out.startswith("skipped: ")


def workload(folder: Path) -> Path:
    """One workload of five tasks and one everyday plan, in the shape of the shared ones."""
    tasks = [{"id": f"s{n}", "worker": "w", "seconds": 1.0, "deps": []} for n in range(4)]
    tasks.append({"id": "long", "worker": "w", "seconds": 4.0, "deps": []})
    known = {str(slots): {"best": 4.0, "bound": 4.0} for slots in makespan.SLOTS}
    dag = {"critical_path": 4.0, "work": 8.0, "known": known, "tasks": tasks}
    item = {"id": "tea", "optimum_unlimited": 4.0, "tasks": tasks}
    (folder / "dags").mkdir()
    (folder / "plans").mkdir()
    (folder / "dags" / "small.json").write_text(json.dumps(dag))
    (folder / "plans" / "asynchow.json").write_text(json.dumps({"items": [item]}))
    return folder


def test_makespans_are_told_beside_those_of_the_usual_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On two slots the longest first takes 4; in plan order 6, with or without barriers."""
    assert makespan.main(["--json", "--workloads", str(workload(tmp_path))]) == 0
    content = told(capsys)
    assert content["cases"] == {
        "small on 2": {"known": 1, "learned": 1.5, "unknown": 1.5, "fifo": 1.5, "barrier": 1.5}
    }
    assert content["figures"][-1]["value"] == 100
    assert makespan.main(["--workloads", str(tmp_path)]) == 0
    assert "worst five, durations unknown" in capsys.readouterr().out


# What they share


def test_a_missed_bar_fails_only_a_strict_run(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [
        Figure(name="most", value=2, bar=1),
        Figure(name="least", value=2, bar=1, is_floor=True),
    ]
    assert [figure.verdict for figure in figures] == ["short", "ok"]
    assert measure.report(figures, measure.options_for("", [])) == 0
    assert measure.report(figures, measure.options_for("", ["--strict"])) == 1
    assert "short" in capsys.readouterr().out


def test_the_machine_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure.main(["--json"]) == 0
    assert told(capsys).keys() == {"python", "system", "cores", "load", "flush"}


@pytest.mark.parametrize(
    "script", sorted(path.name for path in (ROOT / "benchmarks").glob("[!_]*.py"))
)
def test_every_script_is_one_command(script: str) -> None:
    """Also from a folder that is not this repository."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "--json" in shown
    assert "--strict" in shown
