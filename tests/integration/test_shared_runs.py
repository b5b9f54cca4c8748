"""Serving supervisors share submitted runs: each leads its part, and nothing is done twice."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import serving

from tests.postgres_server import programs, running_server


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "runs.db")
        return
    if programs() is None:
        pytest.skip("needs PostgreSQL; get it with: apt-get install postgresql")
    with running_server() as server:
        yield server.dsn


async def test_four_servers_share_posted_runs_evenly_and_do_nothing_twice(place: str) -> None:
    _, led = await serving.shared_runs(place, count=4, runs=40, tasks=10)
    assert len(led) == 4
    assert min(led.values()) >= 5  # an even share is ten; a server that is slow gets fewer


def test_the_share_of_each_server_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--json", "--servers", "2", "--runs", "8", "--tasks", "2", "--sqlite-only"]
    assert serving.main(few) == 0
    told = [each["name"] for each in json.loads(capsys.readouterr().out)["figures"]]
    assert told[-1] == "SQLite, 2 servers, 8 runs of 2: least share ÷ even share"
