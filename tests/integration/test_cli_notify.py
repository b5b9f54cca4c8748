"""`--notify`: who is told of questions and of the end of a run that is led at the command line."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from chargehand.cli import main

CREW = """
import chargehand as ch

@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return "painted " + await brief.ask("Which colour?", choices=["red", "blue"])

workers = [asker]
boss = ch.Supervisor(workers)
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CHARGEHAND_JOURNAL", raising=False)
    monkeypatch.setenv("CHARGEHAND_MODEL", "offline")
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("crew.py").write_text(CREW)
    task = {"id": "wall", "description": "Paint the wall", "worker": "asker"}
    Path("plan.json").write_text(json.dumps({"goal": "A wall", "tasks": [task]}))
    yield
    sys.modules.pop("crew", None)


def chargehand(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def into(file: str) -> str:
    """A way to notify that puts each notice into a file, one a line."""
    program = f"import sys; open({file!r}, 'a').write(sys.stdin.read() + chr(10))"
    return f'command:{sys.executable} -c "{program}"'


def told(file: str) -> list[tuple[str, str]]:
    notices = [json.loads(line) for line in Path(file).read_text().splitlines() if line]
    return [(notice["kind"], notice.get("status", "")) for notice in notices]


#: whoever is told could bring the answer, so the command would wait for it
RETURN = ("--on-question", "return")


@pytest.mark.parametrize("crew", ["crew.py:workers", "crew.py:boss"])
def test_everybody_who_is_named_is_told_of_questions_and_of_the_end(crew: str) -> None:
    ways = ("--notify", into("one"), "--notify", into("two"))
    asked = chargehand("run", "--plan", "plan.json", "--crew", crew, *ways, *RETURN)
    assert asked.exit_code == 4, asked.stderr
    assert told("one") == told("two") == [("question", "")]
    question = json.loads(Path("one").read_text())["question"]
    assert chargehand("answer", question, "red").exit_code == 0
    sys.modules.pop("crew", None)
    resumed = chargehand("resume", "last", "--crew", crew, "--notify", into("two"))
    assert "painted red" in resumed.stdout
    assert told("one") == [("question", "")]
    assert told("two") == [("question", ""), ("finished", "succeeded")]


def test_the_command_that_goes_on_names_who_is_told() -> None:
    crew = ("--crew", "crew.py:workers", "--notify", "log")
    asked = chargehand("run", "--plan", "plan.json", *crew, *RETURN)
    (go_on,) = [line for line in asked.stderr.splitlines() if "chargehand resume" in line]
    assert "--notify log" in go_on


def test_what_is_no_way_to_tell_anybody_starts_nothing() -> None:
    result = chargehand(
        "run", "--plan", "plan.json", "--crew", "crew.py:boss", "--notify", "mail:me"
    )
    assert result.exit_code == 2
    assert "'mail' is not a way to notify" in result.stderr
    assert "holds no runs" in chargehand("resume", "last", "--crew", "crew.py:workers").stderr
