"""The command line in this process: what each command prints where, and with which exit code."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner, Result

from chargehand.cli import COMMANDS, main
from chargehand.facts import events
from chargehand.journal.open_journal import open_journal
from chargehand.presentation.display_text import clean, clean_json, one_line, table

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"

CREW = """
import chargehand as ch

@ch.worker("quick", "Does things")
async def quick(brief: ch.Brief) -> str:
    return f"did {brief.task.id}\\x1b[2J\\x07\\u202e"

@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return "painted " + await brief.ask("Which \\x1b]0;colour\\x07?", choices=["red", "blue"])

@ch.worker("unlucky", "Fails")
async def unlucky(brief: ch.Brief) -> str:
    raise ch.WorkerError("no \\x1b[5mluck", kind="denied")

workers = [quick, asker, unlucky]
boss = ch.Supervisor(workers)
"""

#: how what `quick` adds to its result is shown
SHOWN = r"\x1b[2J\x07\u202e"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder with a crew in it, no keys, no journal of anybody else."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CHARGEHAND_MODEL", "CHARGEHAND_JOURNAL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("crew.py").write_text(CREW)
    yield
    loaded = [(name, getattr(module, "__file__", "")) for name, module in sys.modules.items()]
    for name, file in loaded:
        if str(file).startswith(str(tmp_path)):
            del sys.modules[name]


def chargehand(*args: str, given: str | None = None) -> Result:
    result = CliRunner().invoke(main, list(args), input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def plan(**workers: str) -> str:
    """A file with a plan: tasks by name, each for this worker and after the one before it if `>`."""
    tasks: list[dict[str, object]] = []
    for id_, worker in workers.items():
        needs = [tasks[-1]["id"]] if worker.startswith(">") else []
        description = f"Do the thing called {id_}"
        tasks.append(
            {"id": id_, "description": description, "worker": worker.strip(">"), "needs": needs}
        )
    file = Path("plan.json")
    file.write_text(json.dumps({"goal": "Get it done", "tasks": tasks}))
    return str(file)


def run(*args: str, **workers: str) -> Result:
    return chargehand("run", "--plan", plan(**workers), "--crew", "crew.py:workers", *args)


# run


def test_the_result_is_on_stdout_and_everything_else_on_stderr() -> None:
    result = run(a="quick", b=">quick")
    assert result.exit_code == 0
    assert result.stdout == f"did b{SHOWN}\n"
    assert "a started by quick" in result.stderr
    assert "b done in" in result.stderr


def test_plain_lines_have_a_time_stamp_and_no_escapes() -> None:
    result = run(a="quick", b="unlucky")
    untimed = ("model:", "missing:", "confidence ")
    lines = [line for line in result.stderr.splitlines() if not line.startswith(untimed)]
    assert all(line[2] == line[5] == ":" for line in lines)
    assert not set(result.stdout + result.stderr) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.parametrize(
    ("workers", "code"),
    [
        ({"a": "quick"}, 0),
        ({"a": "unlucky"}, 1),
        ({"a": "quick", "b": "unlucky"}, 3),
        ({"a": "quick", "b": "asker"}, 4),
    ],
)
def test_the_exit_code_says_how_the_run_ended(workers: dict[str, str], code: int) -> None:
    assert run(**workers).exit_code == code


@pytest.mark.parametrize("manner", [(), ("--quiet",), ("--output", "answer.txt")])
def test_a_gap_is_named_on_stderr_and_the_answer_alone_is_the_output(
    manner: tuple[str, ...],
) -> None:
    result = run(*manner, a="quick", b="quick", c=">unlucky")
    assert r"missing: c (failed): denied: no \x1b[5mluck" in result.stderr
    answer = Path("answer.txt").read_text() if "--output" in manner else result.stdout
    assert "missing" not in answer
    assert answer


def test_json_is_every_event_and_nothing_else() -> None:
    result = run("--json", a="quick", b="unlucky")
    kinds = [json.loads(line)["kind"] for line in result.stdout.splitlines()]
    assert (kinds[0], kinds[-1]) == ("RunRequested", "RunFinished")
    assert set(kinds) <= set(events.KINDS)
    assert "started by" not in result.stderr


def test_quiet_json_is_the_last_event() -> None:
    (line,) = run("--json", "--quiet", a="quick").stdout.splitlines()
    assert json.loads(line)["status"] == "succeeded"


def test_quiet_is_the_result_alone() -> None:
    result = run("--quiet", a="quick")
    assert (result.stdout, result.stderr) == (f"did a{SHOWN}\n", "")


def test_the_result_can_go_to_a_file() -> None:
    result = run("--output", "answer.txt", a="quick")
    assert Path("answer.txt").read_text() == "did a\x1b[2J\x07\u202e\n"  # as it is
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("workers", "more", "why"),
    [
        ({"a": "unlucky"}, (), "there is no result"),
        ({"a": "unlucky"}, ("--json",), "there is no result"),
        ({"a": "unlucky"}, ("--quiet",), "there is no result"),
        ({"a": "asker"}, (), "the run has not ended"),
        ({"a": "quick", "b": "asker"}, (), "the run has not ended"),
    ],
)
def test_a_file_keeps_what_it_holds_if_there_is_no_result(
    workers: dict[str, str], more: tuple[str, ...], why: str
) -> None:
    Path("answer.txt").write_text("of yesterday")
    told = run("--output", "answer.txt", *more, **workers).stderr
    assert Path("answer.txt").read_text() == "of yesterday"
    assert f"{why}, so answer.txt is left as it was" in told
    assert "the result is in" not in told
    told = run("--output", "new.txt", *more, **workers).stderr
    assert f"{why}, so new.txt is not written" in told
    assert not Path("new.txt").exists()


def test_resumed_to_its_end_a_run_writes_its_result() -> None:
    first = run("--output", "answer.txt", a="asker")
    (answer,) = re.findall(r"answer it: +chargehand (answer \S+)", first.stderr)
    invoke = CliRunner().invoke
    assert invoke(main, [*answer.split(), "red"]).exit_code == 0
    assert invoke(main, ["resume", "last", "--output", "answer.txt"]).exit_code == 0
    assert Path("answer.txt").read_text() == "painted red\n"


def test_a_result_that_cannot_be_written_is_printed_rather_than_lost() -> None:
    result = run("--output", "/dev/full", a="quick")
    assert result.exit_code == 1
    assert result.stdout == f"did a{SHOWN}\n"
    assert "cannot be written" in result.stderr


@pytest.mark.parametrize("file", ["no/such/folder.txt", "."])
def test_a_place_for_the_result_is_refused_before_the_work(file: str) -> None:
    result = run("--output", file, a="quick")
    assert result.exit_code == 2
    assert "folder" in result.stderr
    assert result.stdout == ""


def test_a_report_says_where_the_time_went() -> None:
    assert "critical path" in run("--report", a="quick").stderr


def test_a_plan_can_come_from_stdin() -> None:
    text = Path(plan(a="quick")).read_text()
    result = chargehand("run", "--plan", "-", "--crew", "crew.py:boss", given=text)
    assert result.stdout == f"did a{SHOWN}\n"


def test_a_request_is_planned_done_and_answered_with_its_sources() -> None:
    result = chargehand(
        "run", "--model", "offline", "--files", str(DATA), "What is annoying about the kettle?"
    )
    assert result.exit_code == 0, result.stderr
    assert "reviews/kettle.txt" in result.stdout
    assert "planning" in result.stderr


def test_a_request_can_come_from_stdin() -> None:
    result = chargehand(
        "run", "--model", "offline", "--files", str(DATA), "-", given="What is annoying?\n"
    )
    assert "run" in result.stderr
    assert "What is annoying?" in result.stderr


def test_files_takes_all_paths_that_follow() -> None:
    Path("one.md").write_text("The moon is made of rock.\n")
    Path("two.md").write_text("The sea is made of water.\n")
    asked = "What is the sea made of?"
    result = chargehand("run", "--model", "offline", "--files", "one.md", "two.md", asked)
    assert "two.md" in result.stdout, result.stderr


def test_without_a_key_the_offline_model_is_used_and_said_so() -> None:
    result = chargehand("run", "--files", str(DATA), "What is annoying about the kettle?")
    assert "model: offline, which uses rules, not an LLM" in result.stderr


def test_a_follow_up_goes_on_from_an_earlier_run() -> None:
    asked = ("run", "--model", "offline", "--files", str(DATA))
    chargehand(*asked, "What is annoying about the kettle?")
    result = chargehand(*asked, "--after", "last", "What is annoying about the lamp?")
    assert "planning" in result.stderr
    trace = json.loads(chargehand("trace", "last").stdout)
    assert trace["after"]


# bad input


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("run",), "give a REQUEST or --plan FILE"),
        (("run", ""), "the request is empty"),
        (("run", " \n"), "the request is empty"),
        (("run", "x" * 200_001), "longer than 200,000 characters; put the material into a file"),
        (("run", "x", "--deadline", "soon"), "'soon' is not a length of time"),
        (("run", "x", "--crew", "none.toml"), "chargehand init none.toml"),
        (("run", "x", "--crew", "none.py:boss"), "there is no file 'none.py'"),
        (("run", "x", "--crew", "crew"), "'crew' is not a crew"),
        (("run", "x", "--model", "nope:x", "--files", "."), "no model is called 'nope:x'"),
        (("run", "x", "--files", ".", "--after", "zz"), "holds no runs"),
        (("run", "x", "--crew", "crew.py:workers", "--review"), "--review needs a terminal"),
        (("run", "--plan", "none.json"), "the plan none.json cannot be read: No such file"),
        (("run", "--plan", "crew.py"), "crew.py: this is not a plan"),
        (("resume", "zz"), "holds no runs"),
        (("show", "zz"), "holds no runs"),
        (("cancel", "zz"), "holds no runs"),
        (("answer", "zz:t:1", "yes"), "holds no runs"),
        (("trace",), "say which run"),
        (("plan",), "give one of: a REQUEST, --check FILE, --edit FILE"),
        (("plan", "--edit", "none.json"), 'chargehand plan "…" --save none.json'),
        (("runs", "--most", "0"), "--most"),
    ],
)
def test_wrong_usage_is_told_in_words_with_exit_code_2(args: tuple[str, ...], told: str) -> None:
    result = chargehand(*args)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert not Path(".chargehand/runs.db").exists() or "x" in args


@pytest.mark.parametrize("value", ["", " ", "\t"])
@pytest.mark.parametrize(
    "option",
    ["--server", "--crew", "--model", "--journal", "--after", "--reuse", "--output"],
)
def test_an_empty_option_does_not_pass_for_one_left_out(option: str, value: str) -> None:
    """`--server "$UNSET"` must not run the request here, with another crew."""
    result = chargehand("run", option, value, "What is 2 + 5?")
    assert (result.exit_code, result.stdout) == (2, "")
    assert option.strip("-") in result.stderr
    assert not Path(".chargehand").exists(), "nothing was begun"


def test_a_model_that_cannot_be_reached_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    result = chargehand("plan", "--files", str(DATA), "--model", "openai:x", "What is annoying?")
    assert result.exit_code == 1
    assert "no connection to openai" in result.stderr


def test_a_model_without_a_key_is_wrong_usage_and_starts_nothing() -> None:
    result = chargehand("run", "--files", str(DATA), "--model", "openai:x", "What is annoying?")
    assert result.exit_code == 2
    assert "set OPENAI_API_KEY" in result.stderr
    assert chargehand("runs").stdout == ""


def test_a_journal_that_cannot_be_written_is_told_with_the_way_out() -> None:
    Path("file").write_text("")
    result = run("--journal", "file/runs.db", a="quick")
    assert result.exit_code == 2
    assert "--journal or CHARGEHAND_JOURNAL" in result.stderr


def test_a_file_that_is_no_journal_is_left_alone() -> None:
    Path("notes.db").write_text("not a database, but dear to somebody " * 100)
    before = Path("notes.db").read_text()
    result = run("--journal", "notes.db", a="quick")
    assert result.exit_code == 2
    assert Path("notes.db").read_text() == before


def test_an_unknown_run_is_told_with_the_nearest_ones() -> None:
    run(a="quick")
    id_ = json.loads(chargehand("runs", "--json").stdout)["run"]
    result = chargehand("show", id_[:-1] + "!")
    assert result.exit_code == 2
    assert id_ in result.stderr


def test_a_plan_edited_into_a_cycle_starts_nothing() -> None:
    file = Path(plan(a="quick", b=">quick"))
    edited = json.loads(file.read_text())
    edited["tasks"][0]["needs"] = ["b"]
    file.write_text(json.dumps(edited))
    result = chargehand("run", "--plan", str(file), "--crew", "crew.py:workers")
    assert result.exit_code == 2
    assert "in a circle: b → a → b; drop one of these needs" in result.stderr
    assert "started" not in result.stderr.replace("nothing was started", "")


# plan


def test_a_plan_is_written_for_reading_saving_and_drawing() -> None:
    asked = ("plan", "--model", "offline", "--files", str(DATA), "What is said about the kettle?")
    read = chargehand(*asked)
    assert read.exit_code == 0, read.stderr
    assert read.stdout.startswith("Goal: ")
    assert "researcher" in read.stdout
    assert chargehand(*asked, "--mermaid").stdout.startswith("flowchart")
    assert json.loads(chargehand(*asked, "--json").stdout)["tasks"]
    saved = chargehand(*asked, "--save", "saved.json")
    assert "chargehand run --plan saved.json" in saved.stderr
    checked = chargehand("plan", "--check", "saved.json", "--files", str(DATA))
    assert checked.stdout.startswith("saved.json: sound")
    done = chargehand("run", "--plan", "saved.json", "--model", "offline", "--files", str(DATA))
    assert "kettle.txt" in done.stdout, done.stderr


def test_a_plan_file_is_checked_against_the_crew_with_every_fault_named() -> None:
    file = plan(a="quick", b="nobody", c="nobody")
    result = chargehand("plan", "--check", file, "--crew", "crew.py:boss")
    assert result.exit_code == 2
    assert result.stdout.count("worker 'nobody' is not on the roster") == 2


def test_an_edited_plan_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("editor.py").write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('quick', 'nobody'))\n"
    )
    monkeypatch.setenv("VISUAL", f"{sys.executable} editor.py")
    file = plan(a="quick")
    result = chargehand("plan", "--edit", file, "--crew", "crew.py:boss")
    assert result.exit_code == 2
    assert "worker 'nobody' is not on the roster" in result.stdout


# runs, show, trace, cancel, answer


def test_runs_are_listed_the_newest_first() -> None:
    run(a="quick")
    run(a="quick", b="unlucky")
    lines = chargehand("runs").stdout.splitlines()
    assert lines[0].split() == ["run", "status", "age", "tasks", "cost", "request"]
    assert [line.split()[1] for line in lines[1:]] == ["partial", "succeeded"]
    assert "1/2" in lines[1]
    rows = [json.loads(line) for line in chargehand("runs", "--json").stdout.splitlines()]
    assert [row["status"] for row in rows] == ["partial", "succeeded"]


def test_where_there_are_no_runs_none_are_made() -> None:
    result = chargehand("runs")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "there are no runs" in result.stderr
    assert not Path(".chargehand").exists()


def test_a_run_is_shown_in_words() -> None:
    run(a="quick", b=">unlucky", c=">quick")
    shown = chargehand("show", "last").stdout
    for words in (
        "a  done",
        r"b  failed, unlucky: denied: no \x1b[5mluck",
        "c  skipped: b was not done",
    ):
        assert words in shown
    assert "missing: b" in shown
    assert "critical path" in shown
    assert json.loads(chargehand("show", "last", "--json").stdout)["status"] == "partial"


def test_a_run_is_meant_by_the_beginning_of_its_id() -> None:
    run(a="quick")
    id_ = json.loads(chargehand("runs", "--json").stdout)["run"]
    assert f"run {id_}: succeeded" in chargehand("show", id_[:6]).stdout


def test_the_trace_fits_its_published_schema() -> None:
    run(a="quick", b="unlucky")
    schema = json.loads(chargehand("trace", "--schema").stdout)
    trace = json.loads(chargehand("trace", "last").stdout)
    jsonschema.validate(trace, schema)
    assert len(trace["attempts"]) == 2


def test_a_trace_without_content_says_nothing_of_what_was_said() -> None:
    run(a="quick")
    assert "did a" not in chargehand("trace", "last", "--no-content").stdout


def test_a_question_is_shown_answered_and_the_run_resumed() -> None:
    asked = run(a="quick", b="asker")
    assert asked.exit_code == 4
    assert "1  red" in asked.stderr
    command = next(line for line in asked.stderr.splitlines() if line.startswith("answer it:"))
    question = command.split()[4]
    assert "waits for an answer" in chargehand("runs").stdout
    assert question in chargehand("show", "last").stdout
    wrong = chargehand("answer", question, "green")
    assert wrong.exit_code == 2
    assert "choose one of 'red', 'blue'" in wrong.stderr
    assert chargehand("answer", question, "2").exit_code == 0
    resumed = chargehand("resume", "last", "--crew", "crew.py:workers")
    assert resumed.exit_code == 0, resumed.stderr
    assert "painted blue" in resumed.stdout
    assert "(2 of 2)" in resumed.stderr


def test_a_run_is_resumed_from_another_folder_with_the_crew_it_began_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing has to be said again but where the journal is."""
    run(a="asker")
    journal = str(Path(".chargehand/runs.db").absolute())
    other = Path("elsewhere")
    other.mkdir()
    monkeypatch.chdir(other)
    assert chargehand("answer", "last", "red", "--journal", journal).exit_code == 0
    resumed = chargehand("resume", "last", "--journal", journal)
    assert resumed.exit_code == 0, resumed.stderr
    assert "painted red" in resumed.stdout
    assert "crew.py:workers, as when the run was started" in resumed.stderr


def test_a_request_that_is_no_text_is_refused() -> None:
    refused = chargehand("run", "\udcff\udcfe", "--crew", "crew.py:workers")
    assert refused.exit_code == 2
    assert "the request holds a lone surrogate at character 0" in refused.stderr


def test_what_is_no_id_of_a_question_is_told_as_that() -> None:
    run(a="asker")
    wrong = chargehand("answer", "nope", "red")
    assert wrong.exit_code == 2
    assert "'nope' is no run of this journal, and no id of a question" in wrong.stderr
    assert "RUN:TASK:NAME; open questions are listed by: chargehand status" in wrong.stderr
    assert "its open questions: " in chargehand("answer", "last:a", "red").stderr


def test_the_only_question_of_a_run_is_meant_by_the_run() -> None:
    run(a="asker")
    assert chargehand("answer", "last", "red").exit_code == 0
    assert "painted red" in chargehand("resume", "last", "--crew", "crew.py:workers").stdout


def test_a_resumed_run_that_still_waits_for_a_person_says_so_again() -> None:
    run(a="asker")
    result = chargehand("resume", "last", "--crew", "crew.py:workers")
    assert result.exit_code == 4
    assert "chargehand answer" in result.stderr


def test_resuming_a_finished_run_prints_its_answer_again() -> None:
    run(a="quick")
    result = chargehand("resume", "last", "--crew", "crew.py:workers")
    assert (result.exit_code, result.stdout) == (0, f"did a{SHOWN}\n")


def test_resuming_with_another_crew_needs_to_be_accepted() -> None:
    run(a="asker")
    chargehand("answer", "last", "red")
    text = CREW.replace("Does things", "Does other things")
    Path("other.py").write_text(text)
    refused = chargehand("resume", "last", "--crew", "other.py:workers")
    assert refused.exit_code == 2
    assert "changed" in refused.stderr
    accepted = chargehand("resume", "last", "--crew", "other.py:workers", "--accept")
    assert "painted red" in accepted.stdout, accepted.stderr


def test_a_run_that_nobody_leads_can_be_cancelled() -> None:
    run(a="asker")
    assert "has ended: cancelled" in chargehand("cancel", "last").stderr
    assert "cancelled" in chargehand("runs").stdout
    assert "has ended: cancelled" in chargehand("cancel", "last").stderr  # twice changes nothing


def test_a_run_can_be_made_to_answer_from_what_there_is() -> None:
    run(a="quick", b="asker")
    assert chargehand("cancel", "last", "--answer-now").exit_code == 0
    resumed = chargehand("resume", "last", "--crew", "crew.py:workers")
    assert resumed.exit_code == 3, resumed.stderr
    assert "missing: b" in resumed.stderr


# crews in crews


NESTED = """
import chargehand as ch
from crew import asker, quick

paint = ch.Plan(goal="Paint", tasks=[ch.Task(id="p", description="Paint it red", worker="asker")])

def boss():
    painters = ch.Supervisor(
        [asker], name="painters", description="Paint things", plan_for=lambda brief: paint
    )
    return ch.Supervisor([painters, quick])
"""


def test_a_question_of_a_nested_run_is_asked_answered_and_the_run_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "crew", raising=False)  # of another folder
    Path("nested.py").write_text(NESTED)
    crew = ("--crew", "nested.py:boss")
    asked = chargehand("run", "--plan", plan(a="painters", b="quick"), *crew)
    assert asked.exit_code == 4, asked.stderr
    assert "a › painters › p started by asker" in asked.stderr
    assert "b done" in asked.stderr  # the rest is done first
    assert "1  red" in chargehand("show", "last").stdout
    assert len(chargehand("runs").stdout.splitlines()) == 2  # the nested run is part of the other
    assert len(chargehand("runs", "--all").stdout.splitlines()) == 3
    assert chargehand("resume", "last", *crew).exit_code == 4
    assert chargehand("answer", "last", "red").exit_code == 0
    resumed = chargehand("resume", "last", *crew)
    assert resumed.exit_code == 0, resumed.stderr
    assert "a › painters › p done" in resumed.stderr
    assert "painted red" in resumed.stdout
    trace = json.loads(chargehand("trace", "last").stdout)
    assert [child["task"] for child in trace["children"]] == ["a"]


def test_a_crew_of_crews_answers_offline() -> None:
    Path("inner.toml").write_text(
        '[crew]\nname = "scholars"\ndescription = "Find facts in documents"\n'
        '[[worker]]\nname = "reader"\ndescription = "Finds facts in files"\ntools = ["files"]\n'
    )
    Path("outer.toml").write_text(
        '[[worker]]\ncrew = "inner.toml"\n'
        '[[worker]]\nname = "calculator"\ndescription = "Calculates"\ntools = ["maths"]\n'
    )
    asked = ("--crew", "outer.toml", "--model", "offline", "--files", str(DATA))
    result = chargehand("run", *asked, "What is annoying about the kettle?")
    assert result.exit_code == 0, result.stderr
    assert "kettle.txt" in result.stdout
    assert "scholars › " in result.stderr


# limits


def test_a_run_over_budget_ends_with_exit_code_5() -> None:
    asked = ("run", "--model", "offline", "--files", str(DATA), "What is annoying?")
    result = chargehand(*asked, "--calls", "1")
    assert result.exit_code == 5, result.stderr
    assert "over budget" in result.stderr
    assert chargehand("resume", "last", *asked[1:5]).exit_code == 5


def test_what_has_not_changed_is_taken_over_from_another_run() -> None:
    asked = (
        "run",
        "--model",
        "offline",
        "--files",
        str(DATA),
        "What is annoying about the kettle?",
    )
    first = chargehand(*asked)
    again = chargehand(*asked, "--reuse", "last")
    assert again.stdout == first.stdout


# init


def test_init_writes_a_crew_file_that_works_and_never_writes_over_one() -> None:
    result = chargehand("init", "mine.toml")
    assert "chargehand run --crew mine.toml" in result.stderr
    asked = ("--crew", "mine.toml", "--files", str(DATA), "--model", "offline")
    assert chargehand("plan", *asked, "What is said about the kettle?").exit_code == 0
    before = Path("mine.toml").read_text()
    again = chargehand("init", "mine.toml")
    assert again.exit_code == 2
    assert "was not changed" in again.stderr
    assert Path("mine.toml").read_text() == before


# words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\x1b]0;title\x07b", r"a\x1b]0;title\x07b"),
        ("a\x1b]8;;http://x\x1b\\b", r"a\x1b]8;;http://x\x1b\b"),
        ("a\x9b31mb\x85", r"a\x9b31mb\x85"),
        ("over\rwritten\b\x7f", r"over\x0dwritten\x08\x7f"),
        ("kept\n\tas it is\r\n", "kept\n\tas it is\n"),
        ("gnp.\u202eexe", r"gnp.\u202eexe"),
        ("half \ud800", r"half \ud800"),
        ("hid\u200bden\U000e0041", r"hid\u200bden\U000e0041"),
    ],
)
def test_i19_what_a_terminal_would_obey_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_json_for_a_terminal_is_the_same_data() -> None:
    hostile = "a\x9b\x7fb\x85\u202e\u2066\u2028\U000e0041 \N{GRINNING FACE}"
    data = json.dumps(hostile, ensure_ascii=False).encode()
    assert json.loads(clean_json(data)) == hostile
    shown = clean_json(data).decode()
    assert clean(shown) == shown  # nothing is left that a terminal would obey
    assert "\N{GRINNING FACE}" in shown


def test_long_texts_are_cut_to_one_line() -> None:
    assert one_line("a\nb " * 50, 10) == "a b a b a…"


def test_columns_are_as_wide_as_what_is_in_them() -> None:
    assert table(("a", "bb", "c"), [("日本", "x", "y")], 40).splitlines() == [
        "a     bb  c",
        "日本  x   y",
    ]


# the whole


def test_every_command_has_help() -> None:
    assert isinstance(main, click.Group)
    for name, (_, line) in COMMANDS.items():
        result = chargehand(name, "--help")
        assert result.exit_code == 0
        assert line in chargehand("--help").stdout.replace("\n", " ")


def test_help_loads_neither_models_nor_journals() -> None:
    program = (
        "import sys\nfrom chargehand.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('aiohttp', 'pydantic', 'apsw', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_the_page_on_the_command_line_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate_cli.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_result_never_replaces_a_journal(tmp_path: Path) -> None:
    database = tmp_path / "runs.db"

    async def made() -> None:
        journal = open_journal(database)
        await journal.heads()
        await journal.close()

    asyncio.run(made())
    for name in ("runs.db", "runs.db-head"):
        told = CliRunner().invoke(main, ["run", "Anything", "--output", str(tmp_path / name)])
        assert told.exit_code == 2
        assert "belongs to a journal" in told.output
    kept = database.read_bytes()
    CliRunner().invoke(
        main, ["record", "last", "--journal", str(database), "-o", str(database), "--force"]
    )
    assert database.read_bytes()[:16] == kept[:16]
