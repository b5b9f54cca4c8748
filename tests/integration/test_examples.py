"""The examples run, and say what they should."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from examples import ask_documents

ROOT = Path(__file__).parents[2]


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_is_killed_and_goes_on() -> None:
    shown = run("demo.py")
    assert "kill -9" in shown
    assert "succeeded: 10 tasks" in shown
    assert "Nothing that was finished before the kill was done again." in shown


def test_answers_over_documents_cite_sources_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask_documents.main()
    shown = capsys.readouterr().out
    assert result.status == "succeeded"
    assert "strap came loose" in result.tasks["strap"].output
    assert "16438.8" in result.tasks["sum"].output
    citations = re.findall(r"\[([\w.]+\.txt):(\d+)\]", shown)
    assert citations
    for file, line in citations:
        text = (ask_documents.DATA / "reviews" / file).read_text()
        assert 1 <= int(line) <= len(text.splitlines())
