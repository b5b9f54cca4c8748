"""The campaign itself: it tells, it fails when something broke, and it goes on where it was."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .campaign import source
from .kills import ROOT
from .leaders import poll
from .table import table_of


def campaign(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.chaos", "--resume-dir", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_campaign_prints_its_table(tmp_path: Path) -> None:
    told = campaign(tmp_path, "--scale", "0.005", "--only", "A6,sim", "--jobs", "1")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "power cut" in told.stdout
    assert "nothing broken" in told.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    result = json.loads((tmp_path / "result.json").read_text("utf-8"))
    assert result["commit"] == source()
    assert [(row["row"], row["is_sound"]) for row in result["rows"]] == [
        ("A6", True),
        ("sim", True),
    ]
    page = table_of(result)
    assert "| A6 | power cut | 25 | 0 |" in page
    assert source() in page


NOTE = {
    "row": "A6 power cut",
    "seed": 4_000_001,
    "took": 1.0,
    "verdict": {
        "fired": 5,
        "acknowledged": 7,
        "lost": 2,
        "duplicates": 0,
        "faults": ["x is gone"],
        "figures": {},
    },
}


def test_a_campaign_that_was_cut_off_goes_on_and_remembers_what_broke(tmp_path: Path) -> None:
    """A line that was only half written is left out."""
    notes = tmp_path / f"progress-{source()}-4.jsonl"
    notes.write_text(json.dumps(NOTE) + "\n{half a li")
    told = campaign(tmp_path, "--scale", "0.005", "--only", "A6", "--seed", "4")
    assert told.returncode == 1
    assert "x is gone" in told.stdout
    assert "BROKEN" in told.stdout
    assert not notes.exists()


def test_a_campaign_of_another_source_begins_anew_unless_it_is_kept(tmp_path: Path) -> None:
    notes = tmp_path / "progress-0123456789ab-4.jsonl"
    notes.write_text(json.dumps(NOTE) + "\n")
    how = ("--scale", "0.005", "--only", "A6", "--seed", "4")
    assert campaign(tmp_path, *how).returncode == 0
    told = campaign(tmp_path, *how, "--keep")
    assert told.returncode == 1
    assert "x is gone" in told.stdout


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
def test_a_campaign_that_is_cut_off_leaves_no_process_and_goes_on(
    sign: signal.Signals, tmp_path: Path
) -> None:
    """Its processes, and those that they started, end with it; what it has tried is not tried again."""
    how = [sys.executable, "-m", "tests.chaos", "--resume-dir", str(tmp_path), "--seed", "9"]
    how += ["--scale", "0.01", "--only", "H1"]
    first = subprocess.Popen(
        how,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert poll(lambda: len(_users_of(tmp_path)) >= 2, 60.0)  # two that serve
    if sign is signal.SIGKILL:
        first.kill()
    else:
        os.killpg(first.pid, sign)  # as a terminal does it
    first.wait(60)
    assert poll(lambda: not _users_of(tmp_path))
    notes = tmp_path / f"progress-{source()}-9.jsonl"
    done = notes.read_bytes().count(b"\n") if notes.exists() else 0
    told = subprocess.run(how, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert not done or f"{done} trials are done" in told.stdout


def _users_of(folder: Path) -> set[str]:
    """Processes that have a file of this folder open."""
    found = set()
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if handle.readlink().is_relative_to(folder):
                found.add(handle.parts[2])
    return found
