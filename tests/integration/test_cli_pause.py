"""`pause`, `unpause`, `steer` and `status` as people have them: from another terminal, on the journal."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.integration.test_cli_runs import chargehand, plan, read_until, start

CREW = """
import asyncio
from pathlib import Path
import chargehand as ch

@ch.worker("walker", "Walks until it is enough")
async def walker(brief: ch.Brief) -> str:
    async def step(number: int) -> int:
        await asyncio.sleep(0.05)
        return number

    number = 0
    while not Path("enough").exists():
        number = await brief.step("walk", step, number + 1, effect="pure")
    return "far enough"

boss = ch.Supervisor([walker])
"""
Leader: TypeAlias = "subprocess.Popen[str]"
BY_HAND = ("--crew", "crew.py:boss", "--journal", "runs.db")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "crew.py").write_text(CREW)
    return tmp_path


@pytest.fixture
def leader(place: Path) -> Iterator[Leader]:
    process = start(place, "run", "--plan", plan(place, "walker", "walker"), *BY_HAND)
    try:
        read_until(process, "t0 started")
        yield process
    finally:
        process.kill()
        process.communicate()


def on(place: Path, *args: str) -> str:
    done = chargehand(place, *args, "--journal", "runs.db")
    assert done.returncode == 0, done.stderr
    return done.stdout or done.stderr


def test_a_run_is_paused_and_goes_on_from_another_terminal(place: Path, leader: Leader) -> None:
    assert "will be paused as soon as" in on(place, "pause", "last", "--reason", "lunch")
    said = read_until(leader, "t0 stopped for now")
    assert "lunch" in said

    told = json.loads(on(place, "status", "--json"))
    assert (told["status"], told["is_paused"]) == ("paused", True)
    assert [(wait["task"], wait["cause"]) for wait in told["waits"]] == [
        ("t0", "pause"),
        ("t1", "needs"),
    ]
    assert "t0 waits for its run, which is paused" in on(place, "status")
    shown = on(place, "show", "last")
    assert "run" in shown
    assert "t1 waits for t0 (ready)" in shown

    assert "continue it with: chargehand unpause" in shown
    (place / "enough").touch()
    assert "will continue as soon as" in on(place, "unpause", "last")
    read_until(leader, "t1 done")


def test_whoever_resumes_a_paused_run_is_told_how_to_let_it_go_on(
    place: Path, leader: Leader
) -> None:
    on(place, "pause", "last")
    read_until(leader, "t0 stopped for now")
    leader.send_signal(signal.SIGINT)
    leader.communicate()
    assert "paused, interrupted" in on(place, "status")
    again = start(place, "resume", "last", *BY_HAND)
    try:
        read_until(again, "the run is paused; continue it with:  chargehand unpause")
        (place / "enough").touch()
        on(place, "unpause", "last")
        read_until(again, "t1 done")
    finally:
        again.kill()
        again.communicate()


def test_a_given_plan_cannot_be_steered_and_the_error_says_why(place: Path, leader: Leader) -> None:
    done = chargehand(place, "steer", "last", "faster", "--journal", "runs.db")
    assert done.returncode == 2
    assert "its plan was given and it has no model that could change it" in done.stderr


def test_status_lists_nothing_where_nothing_is_under_way(place: Path, leader: Leader) -> None:
    (place / "enough").touch()
    read_until(leader, "t1 done")
    leader.wait()
    assert "no unfinished runs" in on(place, "status")
    assert on(place, "status", "--json") == ""
    for command in (("pause", "last"), ("unpause", "last"), ("steer", "last", "faster")):
        refused = chargehand(place, *command, "--journal", "runs.db")
        assert (refused.returncode, refused.stdout) == (2, ""), command
        assert "has ended: succeeded" in refused.stderr
    assert "has ended: succeeded" in on(place, "cancel", "last")  # there is nothing left to end


def test_status_says_how_far_the_items_of_a_task_are_and_a_pause_is_said_once(place: Path) -> None:
    task = {"id": "each", "worker": "walker", "description": "Walk", "for_each": list(range(30))}
    (place / "each.json").write_text(json.dumps({"goal": "Walk", "tasks": [task]}))
    (place / "crew.py").write_text(CREW.replace("[walker]", "[walker], parallel=2"))
    leader = start(place, "run", "--plan", "each.json", *BY_HAND)
    try:
        read_until(leader, "each started by walker for 30 items")
        shown = on(place, "status")
        while "2 running" not in shown:
            shown = on(place, "status")
        assert "  running  1 running  Walk" in shown
        assert "each: 0 of 30 items done, 2 running" in shown
        assert "each[2] and 27 more wait for its turn with walker" in shown
        assert shown.count("each[") == 1
        on(place, "pause", "last")
        said = read_until(leader, "chargehand unpause")
        shown = on(place, "status")
        assert "each[0] and 29 more wait for its run, which is paused" in shown
        assert shown.count("chargehand unpause") == 1
        (place / "enough").touch()
        on(place, "unpause", "last")
        said += leader.communicate(timeout=30)[1]
        assert said.count("chargehand unpause") == 1
    finally:
        leader.kill()
        leader.communicate()


def test_status_says_how_to_go_on_with_a_run_whose_leader_was_killed(
    place: Path, leader: Leader
) -> None:
    leader.kill()
    leader.wait()
    told = chargehand(place, "status", "--journal", "runs.db")
    while "interrupted" not in told.stdout:
        told = chargehand(place, "status", "--journal", "runs.db")
    run = json.loads(on(place, "runs", "--json"))["run"]
    way_out = f"continue it with: chargehand resume {run} --journal runs.db\n"
    assert way_out in told.stdout
    assert "chargehand resume" not in told.stderr, "told once"
