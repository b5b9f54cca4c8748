"""The campaign itself: it tells, it fails when something broke, and it goes on where it was."""

import json
import subprocess
import sys
from pathlib import Path

from .kills import ROOT


def campaign(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.chaos", "--resume-dir", str(folder), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_campaign_prints_its_table(tmp_path: Path) -> None:
    told = campaign(tmp_path, "--cuts", "5", "--only", "A6", "--jobs", "1")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "power cut" in told.stdout
    assert "nothing broken" in told.stdout
    assert not list(tmp_path.iterdir())


def test_an_interrupted_campaign_goes_on_and_remembers_what_broke(tmp_path: Path) -> None:
    verdict = {"fired": 3, "acknowledged": 7, "lost": 2, "duplicates": 0, "faults": ["x is gone"]}
    line = {"row": "power cut", "seed": 4_000_001, "verdict": verdict}
    (tmp_path / "progress-4.jsonl").write_text(json.dumps(line) + "\n{half a li")
    told = campaign(tmp_path, "--cuts", "3", "--only", "A6", "--seed", "4")
    assert told.returncode == 1
    assert "x is gone" in told.stdout
    assert "BROKEN" in told.stdout
