"""What the command line says is so: questions, dead runs, JSON, hints that can be pasted, flags that hold."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.cli.suggested_commands import WITH_JOURNAL, keep_journal, with_journal
from chargehand.crews.python_references import load
from chargehand.facts.answer import Answer, Claim
from chargehand.facts.outcome import ErrorClass, Failed
from chargehand.presentation.display_text import doubt_lines
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.presentation.stack_lines import stack_lines

CREW = """
import os
import chargehand as ch
from chargehand.patterns.groups import Group, RoundRobinManager

@ch.worker("quick", "Is done at once")
async def quick(brief: ch.Brief) -> dict:
    return {"said": "did \\u202e" + brief.task.id, "n": [1, None]}

@ch.worker("busy", "Computes for a moment")
def busy(brief: ch.Brief) -> int:
    return sum(range(2_000_000))

@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return "painted " + await brief.ask("Which colour?", choices=["red", "blue"])

@ch.worker("broken", "Has a fault")
async def broken(brief: ch.Brief) -> str:
    return {}["missing_key"]

@ch.worker("dies", "Ends its process the first time")
async def dies(brief: ch.Brief) -> str:
    if brief.attempt == 1:
        os._exit(9)
    return "lived"

workers = [quick, busy, asker, broken, dies]
boss = ch.Supervisor(workers)
kept = ch.Supervisor(workers, journal="own.db")

group = Group([asker, quick], manager=RoundRobinManager(max_turns=2))

def made(model=None, files=(), journal=None):
    return ch.Supervisor(workers, model=model, name=f"made of {len(files)}", journal=journal)
"""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CHARGEHAND_MODEL", "CHARGEHAND_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("crew.py").write_text(CREW)
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def chargehand(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run(*args: str, crew: str = "crew.py:workers", **workers: str) -> Result:
    tasks = [
        {"id": id_, "description": f"Do the thing called {id_}", "worker": worker}
        for id_, worker in workers.items()
    ]
    Path("plan.json").write_text(json.dumps({"goal": "Get it done", "tasks": tasks}))
    return chargehand("run", "--plan", "plan.json", "--crew", crew, *args)


def pasted(words: str) -> Result:
    """What becomes of a command line that was printed."""
    program, *args = shlex.split(words)
    assert program == "chargehand"
    return chargehand(*args)


# --json


def test_every_event_carries_the_id_of_the_run_and_values_are_json() -> None:
    result = run("--json", a="quick")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert len({event["run"] for event in events}) == 1
    assert "msgspec" not in result.stdout
    (finished,) = [each for each in events if each["kind"] == "AttemptFinished"]
    assert finished["outcome"]["value"]["json"] == {"said": "did \u202ea", "n": [1, None]}
    assert "\u202e" not in result.stdout  # written as an escape


def test_json_and_quiet_is_one_object() -> None:
    told = json.loads(run("--json", "--quiet", a="quick", b="broken").stdout)
    assert (told["status"], told["answer"]["a"]["n"]) == ("partial", [1, None])
    assert [gap["task"] for gap in told["gaps"]] == ["b"]
    assert told.keys() >= {"run", "claims", "confidence", "usage"}


def test_a_run_that_waits_for_a_person_prints_no_answer_yet() -> None:
    """What is done so far could be taken for the answer by whoever reads stdout."""
    for flags in ([], ["--quiet"]):
        result = run(*flags, a="quick", b="asker")
        assert (result.exit_code, result.stdout) == (4, "")
        assert "Which colour?" in result.stderr
    assert "did" in chargehand("show", "last").stdout


def test_json_and_quiet_has_all_fields_of_the_usage() -> None:
    told = json.loads(run("--json", "--quiet", a="quick").stdout)
    assert told["usage"].keys() >= {"calls", "tokens_in", "tokens_out", "money"}


def test_json_and_quiet_of_a_run_that_waits_has_its_questions() -> None:
    result = run("--json", "--quiet", a="asker")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["status"]) == (4, "waiting")
    assert told["questions"][0]["text"] == "Which colour?"


@pytest.mark.parametrize("command", ["trace", "show"])
def test_nothing_that_turns_text_around_is_printed_raw(command: str) -> None:
    run(a="quick")
    for args in ((command, "last"), (command, "last", "--json")):
        if args == ("trace", "last", "--json"):
            continue  # it is JSON anyway
        shown = chargehand(*args)
        assert "\u202e" not in shown.stdout
        assert "u202e" in shown.stdout


def test_the_confidence_of_an_answer_is_printed_with_it_and_left_out_if_nothing_was_done() -> None:
    told = run(a="quick", b="broken")
    assert "confidence 0.5" in told.stderr.splitlines()
    assert "confidence" not in told.stdout
    assert "answer, confidence 0.5:" in chargehand("show", "last").stdout
    assert "confidence" not in run("--quiet", a="quick").stderr
    assert "confidence" not in run(a="broken").stderr


def test_claims_without_a_task_are_counted_among_the_doubts() -> None:
    claims = (Claim("It is so", ("a",)), Claim("It may be", ()), Claim("Perhaps", ()))
    assert doubt_lines(Answer(output="x", claims=claims)) == ["2 claims without a basis: It may be"]
    assert doubt_lines(Answer(output="x", claims=claims[:1])) == []


# hints


def test_every_command_in_a_hint_names_the_journal() -> None:
    """Pasted without it, the command would look into another journal."""
    place = ("--journal", "own.db")
    run(*place, a="quick")
    assert (
        chargehand("submit", "Sum up the file", "--crew", "crew.py:workers", *place).exit_code == 0
    )
    submitted = json.loads(chargehand("runs", "--json", *place).stdout.splitlines()[0])["run"]
    run(*place, a="asker")
    told = [
        chargehand(*args, *place)
        for args in (
            ("status",),
            ("show", "nosuch"),
            ("show", submitted),
            ("talk", "last"),
            ("show", "last"),
            ("resume", "last"),
        )
    ]
    chargehand("cancel", "last", *place)
    chargehand("cancel", submitted, *place)
    told.append(chargehand("status", *place))
    told.append(chargehand("show", "last", "--journal", "empty.db"))
    hints = [
        line[line.index("chargehand ") :]
        for result in told
        for line in result.output.splitlines()
        if re.search(r"chargehand [a-z]", line)
    ]
    assert len(hints) >= len(told)
    assert [hint for hint in hints if "--journal" not in hint] == []


@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_plan_for_another_crew_says_how_to_pass_that_crew(command: str) -> None:
    run(a="quick", b="busy")  # writes plan.json
    result = chargehand(command, "--plan", "plan.json", "--model", "offline")
    assert result.exit_code == 2
    assert "the plan names 'busy', 'quick', and the default crew has only" in result.stderr
    assert "--crew FILE.py:NAME" in result.stderr


# failures


def test_p12_the_stack_of_a_failure_is_shown() -> None:
    result = run("--verbose", a="broken")
    assert "missing_key" in result.stderr
    assert "in broken" in result.stderr
    assert "missing: a (failed): logic: KeyError" in result.stderr
    assert result.stdout == ""  # and no {}
    for args in (("show", "last"), ("show", "last", "--json"), ("trace", "last")):
        shown = chargehand(*args).stdout
        assert "KeyError" in shown
        assert "in broken" in shown


def test_a_stack_is_shown_without_the_frames_that_call_the_workers_code() -> None:
    run("--quiet", a="broken")
    stack = json.loads(chargehand("show", "last", "--json").stdout)["tasks"]["a"]["error"]["stack"]
    assert "chargehand/engines/base.py" in stack
    shown = chargehand("show", "last").stdout
    frames = [line for line in shown.splitlines() if line.lstrip().startswith("File ")]
    assert frames
    assert all("in broken" in frame for frame in frames), shown
    inner = (
        'Traceback\n  File "/x/site-packages/chargehand/a.py", line 1, in a\n    a()\nValueError: b'
    )
    assert stack_lines(inner) == inner.splitlines(), "nothing else is left"


FAILED = [(), ("--quiet",), ("--verbose",), ("--json", "--quiet")]


@pytest.mark.parametrize("flags", FAILED, ids=" ".join)
def test_p12_a_run_in_which_nothing_was_done_has_no_answer_and_no_speed(
    flags: tuple[str, ...],
) -> None:
    result = run(*flags, a="broken")
    assert result.exit_code == 1
    assert "times as fast" not in result.stderr
    if "--json" in flags:
        assert json.loads(result.stdout)["answer"] is None
    else:
        assert "{}" not in result.stdout
    shown = json.loads(chargehand("show", "last", "--json").stdout)
    assert (shown["speedup"], shown["answer"]["output"]) == (None, None)
    run(a="busy")
    assert json.loads(chargehand("show", "last", "--json").stdout)["speedup"] > 0


def test_p12_what_was_stopped_by_a_cancel_does_not_go_on_later() -> None:
    at, said = datetime.now(UTC), list[str]()
    lines = ProgressLines(said.append)
    stopped = ch.events.AttemptPreempted(task="b", attempt=1, at=at)
    lines.hear(stopped)
    lines.hear(ch.events.CancelRequested(at=at))
    lines.hear(stopped)
    assert said[0].endswith("b stopped for now; it will continue from there later")
    assert said[-1].endswith("b was stopped")


def test_a_task_that_is_given_up_at_its_first_failure_is_one_line_with_its_stack() -> None:
    at, said = datetime.now(UTC), list[str]()
    failed = Failed(kind=ErrorClass.DENIED, message="closed", stack="Traceback\n  here")
    lines = ProgressLines(said.append, verbose=True)
    lines.hear(ch.events.AttemptStarted(task="a", attempt=1, worker="w", at=at))
    lines.hear(ch.events.AttemptFinished(task="a", attempt=1, outcome=failed, at=at))
    lines.hear(ch.events.TaskFailed(task="a", cause=failed, at=at))
    told = [line.partition("  ")[2] for line in said[1:]]
    assert told == ["gave up on a after 0.0s: denied: closed", "    Traceback", "      here"]


def test_a_failed_attempt_is_told_before_whatever_happens_next() -> None:
    at, said = datetime.now(UTC), list[str]()
    failed = Failed(kind=ErrorClass.DENIED, message="closed")
    lines = ProgressLines(said.append)
    lines.hear(ch.events.AttemptFinished(task="@plan", attempt=1, outcome=failed, at=at))
    lines.hear(ch.events.TaskFailed(task="@plan", cause=failed, at=at))
    lines.hear(ch.events.AttemptFinished(task="b", attempt=1, outcome=failed, at=at))
    lines.hear(ch.events.RunReleased(node="n", at=at))
    assert [line.partition("  ")[2] for line in said] == [
        "planning failed after 0.0s: denied: closed",
        "b failed after 0.0s: denied: closed",
        "this process starts nothing more",
    ]


# questions


@pytest.mark.parametrize(
    ("how", "code"), [(None, 4), ("return", 4), ("fail", 1), ("supervisor", 4)]
)
def test_on_question_decides_how_a_command_ends(how: str | None, code: int) -> None:
    result = run(*(["--on-question", how] if how else []), a="asker")
    assert result.exit_code == code, result.stderr
    if code == 4:
        (answer,) = re.findall(r"answer it: +(chargehand answer .*) TEXT", result.stderr)
        (resume,) = re.findall(r"then: +(chargehand resume .*)", result.stderr)
        assert pasted(f"{answer} red").exit_code == 0
        assert pasted(resume).stdout == "painted red\n"


def test_an_answered_question_is_shown_as_answered_before_anybody_leads_the_run() -> None:
    run(a="asker")
    assert "waits for an answer" in chargehand("runs").stdout
    assert "end the wait with: chargehand answer" in chargehand("status").stdout
    chargehand("answer", "last", "red")
    assert "waits for an answer" not in chargehand("runs").stdout
    assert json.loads(chargehand("runs", "--json").stdout)["questions"] == []
    shown = chargehand("show", "last").stdout
    assert "is answered: red (by " in shown
    assert "tasks: 1 answered" in shown
    assert "waits for a person" not in shown
    assert "answer it:" not in shown
    assert "is answered: red" in chargehand("status").stdout


# dead processes


def test_a_run_whose_process_died_is_interrupted_and_the_hint_can_be_pasted(tmp_path: Path) -> None:
    place = str(tmp_path / "kept.db")
    run("--journal", place, a="quick")  # writes plan.json
    tasks = [{"id": "a", "description": "Die at first", "worker": "dies"}]
    Path("plan.json").write_text(json.dumps({"goal": "Die", "tasks": tasks}))
    program = Path(sys.executable).with_name("chargehand")
    args = ["run", "--plan", "plan.json", "--crew", "crew.py:workers", "--journal", place]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    died = subprocess.run([program, *args], capture_output=True, check=False, env=environment)
    assert died.returncode == 9
    assert "interrupted" in chargehand("runs", "--journal", place).stdout
    shown = chargehand("show", "last", "--journal", place).stdout
    assert "tasks: 1 interrupted" in shown
    assert "missing: a (interrupted)" in shown
    assert "running" not in shown
    (hint,) = re.findall(r"continue it with: (chargehand resume .*)", shown)
    status = chargehand("status", "--journal", place)
    assert "interrupted  1 interrupted  Die" in status.stdout
    assert re.findall(r"chargehand resume .*", status.output) == [hint], "told once"
    assert pasted(hint).stdout == "lived\n"


# crews


def test_a_function_that_takes_a_model_is_given_it_and_the_supervisor_is_taken() -> None:
    result = run("--model", "offline", "--journal", "here.db", crew="crew.py:made", a="quick")
    assert result.exit_code == 0, result.stderr
    assert Path("here.db").exists()


@pytest.mark.parametrize("crew", ["crew.py:boss", "crew.py:kept"])
def test_journal_says_where_a_finished_supervisor_keeps_its_runs(crew: str) -> None:
    assert run("--journal", "x.db", crew=crew, a="quick").exit_code == 0
    assert "succeeded" in chargehand("runs", "--journal", "x.db").stdout


OWN_JOURNAL = """
[crew]
journal = "mine.db"
[[worker]]
name = "asker"
description = "Asks"
function = "crew.py:asker"
"""
#: a supervisor is closed at the end of a command, and the next command is another process
OWN_SUPERVISOR = """
import chargehand as ch
from crew import asker

boss = ch.Supervisor([asker], journal="mine.db")
"""


@pytest.mark.parametrize("crew", ["own.toml", "own.py:boss"])
def test_commands_about_a_run_name_the_journal_that_its_crew_names(crew: str) -> None:
    Path("own.toml").write_text(OWN_JOURNAL)
    Path("own.py").write_text(OWN_SUPERVISOR)
    asked = run("--on-question", "return", crew=crew, a="asker")
    assert asked.exit_code == 4, asked.stderr
    (answer,) = re.findall(r"answer it: +(chargehand answer .*) TEXT", asked.stderr)
    (resume,) = re.findall(r"then: +(chargehand resume .*)", asked.stderr)
    assert pasted(f"{answer} red").exit_code == 0
    sys.modules.pop("own", None)
    assert pasted(resume).stdout == "painted red\n"
    assert not Path(".chargehand").exists()


@pytest.mark.parametrize("crew", ["own.toml", "own.py:boss"])
def test_a_run_is_submitted_to_the_journal_that_its_crew_names_and_found_there(crew: str) -> None:
    Path("own.toml").write_text(OWN_JOURNAL)
    Path("own.py").write_text(OWN_SUPERVISOR)
    assert run("--on-question", "return", crew=crew, a="asker").exit_code == 4
    for command, code in (("resume", 4), ("fork", 0)):
        sys.modules.pop("own", None)
        options = ["--on-question", "return"] if command == "resume" else ["--dry-run"]
        told = chargehand(command, "last", "--crew", crew, *options)
        assert told.exit_code == code, told.stderr
    sys.modules.pop("own", None)
    submitted = chargehand("submit", "--plan", "plan.json", "--crew", crew)
    (serve,) = re.findall(r"start a server for it: (.*)", submitted.stderr)
    (watch,) = re.findall(r"follow it: +(chargehand watch .*)", submitted.stderr)
    for hint in (serve, watch):
        assert Path(shlex.split(hint)[-1]).samefile("mine.db")
    assert "submitted" in chargehand("runs", "--journal", "mine.db").stdout
    assert not Path(".chargehand").exists()


@pytest.mark.parametrize("command", [("runs",), ("status",), ("show", "last")])
def test_where_there_are_no_runs_another_journal_can_be_named(command: tuple[str, ...]) -> None:
    assert "--journal FILE, or CHARGEHAND_JOURNAL" in chargehand(*command).stderr


def test_a_run_begun_in_python_says_that_it_needs_its_crew() -> None:
    plan = ch.Plan(goal="g", tasks=[ch.Task(id="a", description="Ask for it", worker="asker")])
    workers: Any = load("crew.py:workers", Path.cwd())
    ch.Supervisor(workers, journal="py.db").run_sync(plan)
    shown = chargehand("show", "last", "--journal", "py.db").stdout
    assert "--crew FILE.py:NAME" in shown
    assert "--crew" in chargehand("resume", "last", "--journal", "py.db").stderr
    chargehand("answer", "last", "red", "--journal", "py.db")
    done = chargehand("resume", "last", "--journal", "py.db", "--crew", "crew.py:workers")
    assert done.stdout == "painted red\n"


@pytest.mark.parametrize("named", [(), ("--crew", "crew.py:group")], ids=["found", "named"])
def test_a_group_defined_in_python_is_resumed(named: tuple[str, ...]) -> None:
    if named:
        found: Any = load("crew.py:group", Path.cwd())
        found.keep_in(Path("x.db"))
        found.run_sync("Which wall?", on_question="return")
    else:
        asked = chargehand("run", "Which wall?", "--crew", "crew.py:group", "--journal", "x.db")
        assert asked.exit_code == 4, asked.stderr
    del sys.modules["crew"]  # another process loads it again
    chargehand("answer", "last", "red", "--journal", "x.db")
    done = chargehand("resume", "last", *named, "--journal", "x.db")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["said"] == "did \u202et2"
    assert "t1  done, asker, attempt 2" in chargehand("show", "last", "--journal", "x.db").stdout


@pytest.mark.parametrize(
    "named",
    [(), ("--crew", "crew.py:made", "--files", "crew.py", "--model", "offline")],
    ids=["found", "named"],
)
def test_a_run_of_a_function_that_takes_model_and_files_is_resumed(named: tuple[str, ...]) -> None:
    flags = ("--model", "offline", "--files", "crew.py")
    asked = run(*flags, "--journal", "x.db", crew="crew.py:made", a="asker")
    assert asked.exit_code == 4, asked.stderr
    chargehand("answer", "last", "red", "--journal", "x.db")
    done = chargehand("resume", "last", *named, "--journal", "x.db")
    assert (done.exit_code, done.stdout) == (0, "painted red\n"), done.stderr


def test_the_answer_of_a_finished_run_is_printed_again_without_its_crew_or_a_model() -> None:
    run("--model", "offline", a="quick")
    Path("crew.py").unlink()
    for name in [name for name in sys.modules if name == "crew"]:
        del sys.modules[name]
    again = chargehand("resume", "last")
    assert (again.exit_code, json.loads(again.stdout)["n"]) == (0, [1, None])


def test_a_working_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        result = CliRunner().invoke(main, ["run", "Say hello", "--journal", str(tmp_path / "j.db")])
    finally:
        os.chdir(tmp_path)
    assert result.exit_code == 2
    assert "the working folder was deleted" in result.output


# what is refused before anything starts


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("gpt-5", "no model is called 'gpt-5'"),
        ("opnai:gpt", "no model is called 'opnai:gpt'"),
        ("openai:gpt-5-mini", "set OPENAI_API_KEY"),
    ],
)
@pytest.mark.parametrize("instruction", ["", "One paragraph"])
def test_a_model_that_cannot_be_opened_is_refused_before_a_plan_is_run(
    model: str, why: str, instruction: str
) -> None:
    tasks = [{"id": "a", "description": "Do it", "worker": "quick"}]
    plan = {"goal": "Get it done", "tasks": tasks, "instruction": instruction}
    Path("plan.json").write_text(json.dumps(plan))
    words = ("run", "--plan", "plan.json", "--crew", "crew.py:workers", "--model", model)
    refused = chargehand(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert why in refused.stderr
    assert "no runs" in chargehand("runs").stderr


def test_a_model_that_cannot_be_opened_is_refused_before_a_request_is_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHARGEHAND_MODEL", "opnai:gpt")
    refused = chargehand("run", "Anything", "--crew", "crew.py:workers")
    assert refused.exit_code == 2
    assert "no model is called 'opnai:gpt'" in refused.stderr
    assert "no runs" in chargehand("runs").stderr


def test_a_run_is_not_resumed_without_the_model_that_composes_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHARGEHAND_MODEL", "offline")
    tasks = [{"id": "a", "description": "Do it", "worker": "asker"}]
    Path("plan.json").write_text(
        json.dumps({"goal": "Get it done", "tasks": tasks, "instruction": "One paragraph"})
    )
    assert chargehand("run", "--plan", "plan.json", "--crew", "crew.py:workers").exit_code == 4
    monkeypatch.setenv("CHARGEHAND_MODEL", "opnai:gpt")
    refused = chargehand("resume", "last")
    assert refused.exit_code == 2
    assert "no model is called 'opnai:gpt'" in refused.stderr
    monkeypatch.setenv("CHARGEHAND_MODEL", "offline")
    assert chargehand("resume", "last", "--on-question", "fail").exit_code != 2


@pytest.mark.parametrize(
    ("option", "typed", "plain"),
    [
        ("--money", "ten", "'ten' is not a number of at least 0"),
        ("--money", "-1", "'-1' is not a number of at least 0"),
        ("--calls", "1.5", "'1.5' is not a whole number of at least 0"),
        ("--parallel", "0", "'0' is not a whole number of at least 1"),
    ],
)
def test_a_number_that_is_none_is_told_in_plain_words(option: str, typed: str, plain: str) -> None:
    told = run(option, typed, a="quick")
    assert (told.exit_code, plain in told.stderr) == (2, True), told.stderr


def test_a_crew_file_in_python_without_a_name_is_answered_with_the_names_that_it_has() -> None:
    told = run(a="quick", crew="crew.py")
    assert told.exit_code == 2
    assert "name the crew in crew.py, as crew.py:NAME; it has workers, boss, kept, " in told.stderr
    assert "made" in told.stderr


def test_a_mistyped_question_is_answered_with_those_that_are_open() -> None:
    run(a="asker", b="asker")
    ids = re.findall(r"chargehand answer (\S+) TEXT", chargehand("show", "last").stdout)
    assert len(ids) == 2
    told = chargehand("answer", f"{ids[0]}x", "red")
    assert told.exit_code == 2
    assert f"asks no question '{ids[0]}x'; its open questions: {', '.join(ids)}; " in told.stderr
    assert chargehand("answer", ids[0], "red").exit_code == 0
    assert "already answered" in chargehand("answer", ids[0], "blue").stderr


def test_a_submitted_run_has_no_conversation_and_no_plan_yet() -> None:
    chargehand("submit", "Find out", "--crew", "crew.py:workers", "--model", "offline")
    assert "submitted  no plan yet  Find out" in chargehand("status").stdout
    told = chargehand("talk", "last")
    assert (told.exit_code, "was submitted and has no events yet" in told.stderr) == (2, True)


# commands in messages


def test_every_command_that_takes_a_journal_is_completed_in_messages() -> None:
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    takers = {
        name
        for name, command in commands.items()
        if command is not None and any(each.name == "journal" for each in command.params)
    }
    assert set(WITH_JOURNAL) == takers


def texts_of(node: ast.AST) -> Iterator[str]:
    """The texts in a piece of source; what an f-string puts in is `r0123456789abcde`."""
    for each in ast.walk(node):
        if isinstance(each, ast.JoinedStr):
            parts = [
                p.value if isinstance(p, ast.Constant) else "r0123456789abcde" for p in each.values
            ]
            yield "".join(map(str, parts))
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def test_each_command_in_a_message_names_the_journal_that_was_given() -> None:
    command = re.compile(
        rf"[a-z]: chargehand (?:{'|'.join(WITH_JOURNAL)})\b|; chargehand \w+ r0123"
    )
    texts = {
        text
        for path in Path(ch.__file__).parent.rglob("*.py")
        for text in texts_of(ast.parse(path.read_text(encoding="utf-8")))
        if command.search(text) and "\n" not in text
    }
    assert len(texts) > 5
    with click.Context(main) as context:
        keep_journal(context, "my runs.db")
        for text in texts:
            found = [
                part
                for part in re.split("(?=chargehand )", with_journal(text))
                if command.search(f"a: {part}")
            ]
            assert all("--journal 'my runs.db'" in part for part in found), text
        whole = "a; chargehand show r1 --journal x; see chargehand diff, or is chargehand serve running?"
        assert with_journal(whole).count("--journal") == 2
    assert with_journal("chargehand show r1") == "chargehand show r1"


def test_the_command_that_an_error_suggests_can_be_pasted() -> None:
    run("--journal", "other runs.db", a="quick")
    refused = chargehand("fork", "last", "--journal", "other runs.db", "--at", "999", "--dry-run")
    (command,) = re.findall(r"chargehand (replay .*--events)", refused.stderr)
    listed = chargehand(*shlex.split(command))
    assert (listed.exit_code, "RunRequested" in listed.stdout) == (0, True), listed.output


def test_a_saved_plan_is_run_with_the_crew_and_the_journal_that_it_was_made_with() -> None:
    given = ("--crew", "crew.toml", "--journal", "other.db")
    assert chargehand("init", "crew.toml").exit_code == 0
    made = chargehand("plan", *given, "--save", "p.json", "What is 2 + 5?")
    (command,) = re.findall(r"run it with: +chargehand (.*)", made.stderr)
    assert shlex.split(command) == ["run", "--journal", "other.db", "--plan", "p.json", "--crew", "crew.toml"]  # fmt: skip
