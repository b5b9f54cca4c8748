"""The benchmark of many requests: what it counts, on cases that can be seen by eye."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import many_requests
from benchmarks.many_requests import Crowd, Job, dues_of, ends_of, live_run

from chargehand.decisions.dispatch import Starts
from chargehand.facts.events import RunStatus


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_WORKLOADS", raising=False)


def chains(count: int, links: int = 2, seconds: float = 1.0) -> Crowd:
    """So many requests, each a chain."""
    jobs = [
        Job(f"r{n}.{k}", "w", seconds, (f"r{n}.{k - 1}",) if k else (), f"r{n:02}")
        for n in range(count)
        for k in range(links)
    ]
    return Crowd("chains", tuple(jobs))


def test_runs_of_one_instant_end_one_after_the_other_and_not_all_at_the_end() -> None:
    """Two chains of two on one place: FIFO ends them at 3 and 4, the kernel at 2 and 4."""
    crowd = chains(2)
    assert many_requests.first_come_first_served(crowd, 1).of == {"r00": 3, "r01": 4}
    assert ends_of(live_run(crowd, 1, "unknown")).of == {"r00": 2, "r01": 4}


def test_deadlines_are_drawn_in_the_order_of_the_ids() -> None:
    dues = dues_of(chains(5, seconds=10))
    assert list(dues) == ["r00", "r01", "r02", "r03", "r04"]
    assert all(due / 20 in (1.5, 3.0, 6.0) for due in dues.values())
    assert dues == dues_of(Crowd("turned", chains(5, seconds=10).jobs[::-1]))


def test_a_request_counts_as_in_time_only_when_all_of_it_was_done() -> None:
    """Each takes 2 s of one place: two of four are through within 4 s, whatever the order."""
    crowd = chains(4)
    ends = live_run(crowd, 1, "known", dict.fromkeys(crowd.requests, 4.5)).runs
    assert [end.status for end in ends.values()].count(RunStatus.SUCCEEDED) == 2


def test_a_rate_of_starts_spaces_them_out() -> None:
    crowd = chains(5, links=1, seconds=0.5).as_one
    gated = live_run(crowd, 16, "known", starts=Starts(a_minute=60))
    assert [round(span.start.total_seconds(), 1) for span in gated.spans] == [0, 1, 2, 3, 4]


def workloads(folder: Path, name: str, crowd: Crowd) -> None:
    tasks = [{**job.__dict__, "deps": list(job.deps)} for job in crowd.jobs]
    (folder / "dags").mkdir(exist_ok=True)
    (folder / "dags" / f"{name}.json").write_text(json.dumps({"tasks": tasks}))


def test_every_figure_is_told_with_its_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workloads(tmp_path, "trail-batch-32", chains(16))
    workloads(tmp_path, "agentic-24", chains(20, links=3))
    workloads(tmp_path, "small", chains(3))
    assert many_requests.main(["--json", "--workloads", str(tmp_path)]) == 0
    told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["figures"]
    held = [(figure["name"], figure["bar"]) for figure in told if "known" in figure["name"]][:5]
    assert [bar for _, bar in held] == [0.87, 1.0, 88, 66, 123]
    assert len(told) == 15
    assert "2 workloads" in told[0]["note"]


def test_without_workloads_it_is_skipped_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert many_requests.main([]) == 0
    assert capsys.readouterr().out.startswith("skipped: ")
