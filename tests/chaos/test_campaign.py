"""The campaign itself: it tells, it fails when something broke, and it goes on where it was."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

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


def test_a_campaign_that_is_killed_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    """Its processes, and those that they started, end with it; what it has tried is not tried again."""
    how = [sys.executable, "-m", "tests.chaos", "--resume-dir", str(tmp_path), "--seed", "9"]
    how += ["--scale", "0.004", "--only", "A1,H1"]
    first = subprocess.Popen(how, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    notes = tmp_path / f"progress-{source()}-9.jsonl"
    assert poll(lambda: notes.exists() and notes.read_bytes().count(b"\n") >= 1, 60.0)
    first.kill()
    first.wait()
    done = notes.read_bytes().count(b"\n")
    assert poll(lambda: not _mentioned(str(tmp_path)))
    told = subprocess.run(how, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"{done} trials are done" in told.stdout


def _mentioned(words: str) -> list[str]:
    """Processes that have this on their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words.encode() in place.read_bytes():
                found.append(place.parent.name)
    return found
