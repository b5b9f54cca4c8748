"""Suites from end to end, through the command line: recordings, repeats, the gate, reports."""

import json
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chargehand.cli import main
from chargehand.crews.default_crew import default_crew
from chargehand.errors import NeedsRefresh, UsageError
from chargehand.evaluation import CaseResult, case_runs, evaluate, load_suite
from chargehand.presentation.display_text import clean
from chargehand.testing import FakeProvider

EXAMPLES = Path(__file__).parents[2] / "examples"
SUITE = EXAMPLES / "evaluation" / "suite.toml"

SMALL = """
[suite]
mode = "plan"
models = ["model.py:model"]
{options}
[[case]]
id = "tiller"
request = "How many units did Tiller deliver?"
files = ["orders.csv"]
workers = ["analyst"]
plan = [{{ id = "units", worker = "analyst", description = "units that Tiller delivered" }}]
"""
MODEL = """
import json, pathlib
from chargehand.models.scripted import ScriptedModel
from chargehand.errors import ModelDenied

def reply(request):
    asked = pathlib.Path(__file__).with_name("asked")
    count = int(asked.read_text()) + 1 if asked.exists() else 1
    asked.write_text(str(count))
    down = pathlib.Path(__file__).with_name("down")
    if down.exists() and count >= int(down.read_text() or 1):
        raise ModelDenied("the key was withdrawn")
    task = {"id": "t1", "needs": [], "worker": "analyst", "description": f"units that Tiller delivered, try {count}",
            "accept": "", "optional": False, "for_each": ""}
    return json.dumps({"goal": "units", "instruction": "", "strategy": "merge", "tasks": [task]})

model = ScriptedModel([reply] * 20, name="model.py:model")
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["eval", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """Writes a suite of one case, which is planned by a model in Python."""

    def written(options: str = "") -> Path:
        (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
        (tmp_path / "orders.csv").write_text("supplier,units\nTiller,7\n", encoding="utf-8")
        suite = tmp_path / "suite.toml"
        suite.write_text(SMALL.format(options=options), encoding="utf-8")
        return suite

    return written


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    """A copy of the bundled suite elsewhere, with the data beside it."""
    for name in ("evaluation", "data"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    return tmp_path / "evaluation" / "suite.toml"


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a model nor a connection can be opened."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a model or a connection was opened")

    monkeypatch.setattr(case_runs, "open_model", refuse)
    monkeypatch.setattr(case_runs, "load", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


# The bundled suite


@pytest.mark.usefixtures("no_models")
def test_the_gate_passes_one_prompt_of_the_bundled_suite_and_fails_the_other() -> None:
    both = run(SUITE, "--json")
    assert both.exit_code == 1
    report = json.loads(both.stdout)
    assert {miss["crew"] for miss in report["misses"]} == {"rules · answers.py:model"}
    assert "accepted_first is 0.6, below 0.8" in both.stderr
    assert all(case["accepted"] for case in report["cases"] if case["accepted"] is not None)
    alone = run(SUITE, "--crew", "example")
    assert alone.exit_code == 0
    assert "written by hand" in alone.stdout


@pytest.mark.usefixtures("no_models")
def test_our_planner_prompt_has_figures_of_a_free_model() -> None:
    """If this needs --refresh, a prompt or a schema has changed: record it anew, and compare (CONTRIBUTING.md)."""
    done = run(SUITE.with_name("local.toml"), "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    (crew,) = report["crews"]
    assert crew["model"] == "local:smollm2"
    assert crew["figures"]["accepted"]["value"] == 0.4
    # Whatever was not accepted was refused for what it names: nothing runs that cannot be done.
    refused = [case["misses"][0] for case in report["cases"] if not case["accepted"]]
    assert len(refused) == 3
    assert all("which is not there" in why for why in refused)


@pytest.mark.usefixtures("no_models")
def test_a_suite_replays_bit_for_bit_in_another_folder(bundled: Path) -> None:
    here, there = (run(suite, "--case", "tiller", "--json") for suite in (SUITE, bundled))
    assert (here.exit_code, here.stdout) == (there.exit_code, there.stdout)


@pytest.mark.usefixtures("no_models")
def test_a_changed_prompt_needs_a_refresh(bundled: Path) -> None:
    prompt = bundled.parent / "prompts" / "example" / "plan.md"
    prompt.write_text(prompt.read_text(encoding="utf-8") + "\nThink well.\n", encoding="utf-8")
    done = run(bundled, "--crew", "example", "--case", "kettles")
    assert done.exit_code == 6
    assert "needs --refresh" in done.stderr
    assert done.stdout == ""


def test_a_refresh_of_one_crew_keeps_the_replies_of_the_others(bundled: Path) -> None:
    prompt = bundled.parent / "prompts" / "example" / "plan.md"
    prompt.write_text(prompt.read_text(encoding="utf-8") + "\nThink well.\n", encoding="utf-8")
    chosen = ("--case", "kettles", "--json")
    assert run(bundled, "--crew", "example", "--refresh", *chosen).exit_code == 0
    assert run(bundled, "--crew", "example", *chosen).exit_code == 0
    assert run(bundled, "--crew", "rules", *chosen).exit_code == 1  # the gate, not a missing reply


@pytest.mark.usefixtures("no_models")
def test_a_tool_that_is_not_allowed_is_a_miss(bundled: Path) -> None:
    text = bundled.read_text(encoding="utf-8")
    allowed = 'tools = ["list_tables", "describe_tables", "query_tables", "calculate"]'
    bundled.write_text(text.replace(allowed, 'tools = ["describe_tables"]'), encoding="utf-8")
    done = run(bundled, "--crew", "example", "--case", "kettles")
    assert done.exit_code == 1
    assert "kettles: the tool query_tables was called" in done.stderr
    assert "isolation is 0, below 1" in done.stderr


@pytest.mark.parametrize("approach", ["stream", "route", "steps"])
def test_every_approach_is_recorded_and_replayed(bundled: Path, approach: str) -> None:
    text = bundled.read_text(encoding="utf-8")
    chosen = text.replace("[suite]", f'[suite]\napproach = "{approach}"', 1)
    bundled.write_text(chosen, encoding="utf-8")
    only = ("--crew", "rules", "--case", "tiller", "--json")
    first = run(bundled, "--refresh", *only)
    again = run(bundled, *only)
    assert (again.exit_code, again.stdout) == (first.exit_code, first.stdout)
    assert "needs --refresh" not in first.stderr
    if approach == "stream":
        case = json.loads(again.stdout)["cases"][0]
        assert (case["accepted_first"], case["accepted"]) == (False, True)


@pytest.mark.parametrize(("name", "count"), [("suite", 20), ("held_back", 5)])
def test_the_requests_for_small_models_have_gold_plans_for_the_default_crew(
    name: str, count: int
) -> None:
    suite = load_suite(EXAMPLES.parent / "benchmarks" / "plan_requests" / f"{name}.toml")
    assert len(suite.cases) == count
    for case in suite.cases:
        crew = {worker.name for worker in default_crew([suite.folder / case.files[0]]).workers}
        assert case.plan is not None
        assert {task.worker for task in case.plan} == set(case.workers or ()) <= crew


# Recordings


def test_without_a_recording_nothing_is_green(small: Callable[..., Path]) -> None:
    suite = small()
    done = run(suite)
    assert done.exit_code == 6
    assert "suite.recording.jsonl is not there" in done.stderr
    assert not (suite.parent / "asked").exists()


def test_a_recorded_suite_asks_no_model_and_a_refresh_asks_again(
    small: Callable[..., Path],
) -> None:
    suite = small()
    first = run(suite, "--refresh", "--json")
    assert first.exit_code == 0
    (suite.parent / "model.py").unlink()
    assert run(suite, "--json").stdout == first.stdout
    (suite.parent / "model.py").write_text(MODEL, encoding="utf-8")
    assert "try 2" in run(suite, "--refresh", "--json").stdout
    assert "try 2" in run(suite, "--json").stdout


def test_each_repeat_has_a_reply_of_its_own(small: Callable[..., Path]) -> None:
    suite = small("repeats = 3")
    run(suite, "--refresh")
    cases = json.loads(run(suite, "--json").stdout)["cases"]
    assert [case["plan"][0]["description"][-5:] for case in cases] == ["try 1", "try 2", "try 3"]


def test_a_refresh_that_fails_leaves_the_recording_as_it_was(small: Callable[..., Path]) -> None:
    suite = small()
    run(suite, "--refresh")
    before = load_suite(suite).recording.read_bytes()
    (suite.parent / "down").touch()
    done = run(suite, "--refresh")
    assert done.exit_code == 2
    assert "the key was withdrawn" in done.stderr
    assert load_suite(suite).recording.read_bytes() == before


def test_a_refresh_that_broke_off_is_gone_on_with(
    small: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    suite = small("repeats = 3")
    (suite.parent / "down").write_text("2", encoding="utf-8")  # from the second call on
    done = run(suite, "--refresh")
    assert done.exit_code == 2
    assert "1 replies are kept in" in done.stderr
    recording = load_suite(suite).recording
    unfinished = recording.with_suffix(".unfinished.jsonl")
    assert not recording.exists()
    unfinished.write_bytes(
        unfinished.read_bytes() + b'{"is":"reply","requ'
    )  # killed while it wrote
    (suite.parent / "down").unlink()
    assert run(suite, "--refresh").exit_code == 0
    assert "refresh_continues replies=1" in caplog.text
    cases = json.loads(run(suite, "--json").stdout)["cases"]
    assert [case["plan"][0]["description"][-5:] for case in cases] == ["try 1", "try 3", "try 4"]
    assert not unfinished.exists(), "the next refresh asks all again"


def test_a_refresh_of_one_case_leaves_what_another_had_begun(small: Callable[..., Path]) -> None:
    suite = small()
    text = suite.read_text(encoding="utf-8")
    more = (
        text[text.index("[[case]]") :].replace("tiller", "bolt").replace("did Tiller", "did Bolt")
    )
    suite.write_text(text + more, encoding="utf-8")
    (suite.parent / "down").write_text("2", encoding="utf-8")
    run(suite, "--refresh")
    (suite.parent / "down").unlink()
    assert run(suite, "--refresh", "--case", "bolt").exit_code == 0
    assert run(suite, "--refresh", "--json").exit_code == 0
    assert (suite.parent / "asked").read_text(encoding="utf-8") == "4", "tiller was asked once"


def test_a_model_that_cannot_be_opened_is_no_figure(
    small: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    suite = small()
    text = suite.read_text(encoding="utf-8").replace('mode = "plan"', 'mode = "run"')
    suite.write_text(text + '[[crew]]\nname = "own"\nfile = "crew.toml"\n', encoding="utf-8")
    worker = '[[worker]]\nname = "analyst"\ndescription = "Counts"\nmodel = "openai:gpt-5-mini"\n'
    (suite.parent / "crew.toml").write_text(worker, encoding="utf-8")
    done = run(suite, "--refresh")
    assert done.exit_code == 2
    assert "OPENAI_API_KEY" in done.stderr
    assert done.stdout == ""
    assert not load_suite(suite).recording.exists()


def test_the_models_of_a_suite_do_not_pass_over_those_of_a_finished_supervisor(
    small: Callable[..., Path],
) -> None:
    suite = small()
    source = "import chargehand as ch\nboss = ch.Supervisor([], model='offline')\n"
    (suite.parent / "boss.py").write_text(source, encoding="utf-8")
    text = suite.read_text(encoding="utf-8") + '[[crew]]\nname = "own"\nfile = "boss.py:boss"\n'
    suite.write_text(text, encoding="utf-8")
    done = run(suite, "--refresh")
    assert done.exit_code == 2
    assert "finished Supervisor with a model of its own" in done.stderr


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data: data.replace(b"try 1", b"try 9"), "does not seal"),
        (lambda data: data[: len(data) // 2], "is not a sound recording"),
        (lambda data: b"".join(data.splitlines(True)[:-1]), "does not seal"),
        (lambda _: b"", "is not a sound recording"),
        (lambda data: data.replace(b'"version":1', b'"version":2', 1), "version 2 of the format"),
    ],
)
def test_a_spoilt_recording_is_refused_by_name(
    small: Callable[..., Path], spoil: Callable[[bytes], bytes], words: str
) -> None:
    suite = small()
    run(suite, "--refresh")
    recording = load_suite(suite).recording
    recording.write_bytes(spoil(recording.read_bytes()))
    done = run(suite)
    assert done.exit_code == 2
    assert words in done.stderr
    assert "suite.recording.jsonl" in done.stderr


CREW = """
[crew]
model = "planner"

[models.planner]
model = "openai:gpt-4o-mini"
base_url = "{address}"
key_variable = "PLANNER_KEY"

[[worker]]
name = "analyst"
description = "Counts"
"""
PLAN = {
    "goal": "units",
    "instruction": "",
    "strategy": "merge",
    "tasks": [
        {
            "id": "t1",
            "needs": [],
            "worker": "analyst",
            "description": "units that Tiller delivered",
            "accept": "",
            "optional": False,
            "for_each": "",
        }
    ],
}


def test_a_provider_over_http_is_recorded_and_replays_without_its_key(
    small: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was refused for its rate and sent again is one reply."""
    suite = small()
    text = suite.read_text(encoding="utf-8").replace('models = ["model.py:model"]', "")
    suite.write_text(text + '[[crew]]\nname = "own"\nfile = "crew.toml"\n', encoding="utf-8")
    with FakeProvider([json.dumps(PLAN)], faults={1: "429"}) as provider:
        crew = CREW.format(address=provider.url)
        (suite.parent / "crew.toml").write_text(crew, encoding="utf-8")
        monkeypatch.setenv("PLANNER_KEY", "secret-key")
        first = run(suite, "--refresh", "--json")
        assert provider.calls == 2
    assert first.exit_code == 0
    assert b"secret-key" not in load_suite(suite).recording.read_bytes()
    monkeypatch.delenv("PLANNER_KEY")
    again = run(suite, "--json")
    assert (again.exit_code, again.stdout) == (0, first.stdout)
    case = json.loads(again.stdout)["cases"][0]
    assert case["calls"] == 1
    assert 0 < case["cost"] < 0.01  # by the price list, though nothing was sent


# The gate and the reports


def test_a_gate_on_what_nothing_measures_is_missed(small: Callable[..., Path]) -> None:
    suite = small("[gate]\nright = { min = 0.5 }\n")
    done = run(suite, "--refresh")
    assert done.exit_code == 1
    assert "no case measures it" in done.stderr


def test_a_scripted_model_costs_nothing(small: Callable[..., Path]) -> None:
    free = run(small("[gate]\ncost = { max = 0 }\n"), "--refresh")
    assert free.exit_code == 0
    assert re.search(r"dollars\W+0\b", free.stdout)


def test_a_gate_on_the_cost_of_a_model_of_unknown_price_is_missed(
    small: Callable[..., Path],
) -> None:
    suite = small("[gate]\ncost = { max = 1.0 }\n")
    model = suite.parent / "model.py"
    text = model.read_text(encoding="utf-8") + "from chargehand.models.base import Abilities\n"
    model.write_text(f"{text}model.abilities = Abilities(is_real=True)\n", encoding="utf-8")
    done = run(suite, "--refresh")
    assert done.exit_code == 1
    assert "cost is in the gate, and no price list knows a model that was asked" in done.stderr
    assert re.search(r"dollars\W+unknown", done.stdout)
    again = run(suite, "--json")
    assert json.loads(again.stdout)["cases"][0]["cost"] is None


def test_a_maximum_is_held_as_well(small: Callable[..., Path]) -> None:
    assert run(small("[gate]\ncalls = { max = 0 }\n"), "--refresh").exit_code == 1
    assert run(small("[gate]\ncalls = { max = 1 }\n"), "--refresh").exit_code == 0


def test_a_report_is_compared_with_an_earlier_one(
    small: Callable[..., Path], tmp_path: Path
) -> None:
    suite = small()
    earlier = tmp_path / "before.json"
    earlier.write_text(run(suite, "--refresh", "--json").stdout, encoding="utf-8")
    done = run(suite, "--compare", earlier)
    assert "against before" in done.stdout
    earlier.write_text("{}", encoding="utf-8")
    done = run(suite, "--compare", earlier)
    assert done.exit_code == 2
    assert "before.json is not a report" in done.stderr


def test_the_page_is_escaped_and_loads_nothing(small: Callable[..., Path], tmp_path: Path) -> None:
    hidden = "\\u202E \\u200B \\u2066 \\U000E0041 \\u001B[31m"
    suite = small(f'name = "<script>alert(1)</script>"\nnote = "{hidden}"')
    run(suite, "--refresh", "--html", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert clean(page) == page, "nothing that hides or turns text around is left"
    assert "\\u202e \\u200b \\u2066 \\U000e0041 \\x1b[31m" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "src=" not in page


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("workers =", "wrokers =", "wrokers: is not a known key; did you mean 'workers'?"),
        ('files = ["orders.csv"]', 'files = ["none.csv"]', "there is no file 'none.csv'"),
        ('mode = "plan"', 'mode = "fast"', "[suite], mode: must be one of run, plan, not 'fast'"),
        ('mode = "plan"', "repeats = 0", "repeats = 0 must be 1 or more"),
        ("[[case]]", "[gate]\nrigth = { min = 1 }\n[[case]]", "did you mean 'right'?"),
        (
            "[[case]]",
            "[[case]]\nid = 'x'\nrequest = 'y'\nchecks = { judge = 'ok?' }\n[[case]]",
            "judge =",
        ),
        ('description = "units', 'needs = ["x"], description = "units', "no task 'x'"),
        ("[[case]]", "[[case", "is not TOML"),
        *(
            ("[[case]]", f"[gate]\n{bound}\n[[case]]", words)
            for bound, words in {
                "": "[gate] has no metric",
                "accepted = {}": "accepted has no bound",
                "accepted = { min = nan }": "accepted = { min = nan } is no bound",
                "accepted = { min = -inf }": "min = -inf",
                "calls = { max = nan }": "max = nan",
                "calls = { max = inf }": "max = inf",
                "calls = { min = 1, max = nan }": "max = nan",
                "calls = { min = 2, max = 1 }": "min = 2 above max = 1",
            }.items()
        ),
        *(
            ("workers =", f"checks = {checks}\nworkers =", f"case 'tiller': checks{words}")
            for checks, words in {
                "{}": " states nothing",
                "{ refuses = false }": " states nothing",
                '{ contains = ["7", ""] }': ".contains has an empty text",
                '{ cited = [" "] }': ".cited has an empty text",
                "{ number = { value = nan } }": ".number: value = nan",
                "{ number = { value = -inf } }": ".number: value = -inf",
                "{ number = { value = 7, within = -1 } }": ".number: within = -1",
                "{ number = { value = 7, within = nan } }": ".number: within = nan",
                "{ number = { value = 7, within = inf } }": ".number: within = inf",
            }.items()
        ),
        *(
            ("plan = [", f"plan = [{tasks}, ", f"case 'tiller': {words}")
            for tasks, words in {
                '{ id = "units", description = "d" }': "two tasks of the gold plan have the id 'units'",
                '{ id = "a", description = "d", needs = ["a"] }': "tasks of the gold plan need each other: a → a",
                '{ id = "a", description = "d", needs = ["b"] }, { id = "b", description = "d", needs = ["a"] }': (
                    "tasks of the gold plan need each other"
                ),
            }.items()
        ),
    ],
)
def test_a_fault_of_a_suite_is_named(
    small: Callable[..., Path], old: str, new: str, words: str
) -> None:
    suite = small()
    suite.write_text(suite.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=r"suite\.toml") as caught:
        load_suite(suite)
    assert words in str(caught.value)


def test_a_crew_that_the_suite_lacks_is_refused(small: Callable[..., Path]) -> None:
    done = run(small(), "--crew", "other")
    assert done.exit_code == 2
    assert "it has default" in done.stderr


async def test_python_evaluates_as_the_command_does(small: Callable[..., Path]) -> None:
    suite = load_suite(small())
    with pytest.raises(NeedsRefresh):
        await evaluate(suite)
    seen: list[CaseResult] = []
    result = await evaluate(suite, refresh=True, progress=seen.append)
    assert result.passes
    assert result.figure("node_f1").value == 1
    assert [case.case for case in seen] == ["tiller"]
    with pytest.raises(UsageError, match="nothing measures right"):
        result.figure("right")


WRITTEN_SUITE = """
[suite]
models = ["written:replies.toml"]

[[crew]]
name = "painters"
file = "painters.py:boss"

[[case]]
id = "wall"
request = "Paint the wall"
output = "painters.py:Wall"
answers = ["blue", "red"]
checks = { contains = ['"colour":"red"'] }

[gate]
right = { min = 1.0 }
"""
PAINTERS = """
import chargehand as ch
from pydantic import BaseModel

class Wall(BaseModel):
    colour: str

@ch.worker("painter", "Paints walls")
async def painter(brief: ch.Brief) -> str:
    return "a wall in " + await brief.ask("Which colour?", choices=["green", "red"])

def boss(model):
    return ch.Supervisor([painter], model=model)
"""
REPLIES = """
note = "written by hand"
request = "Paint the wall"

[[reply]]
to = "plan"
when = ["Paint the wall"]
say = '{"goal": "A wall", "instruction": "", "strategy": "merge", "tasks": [{"id": "t1", "needs": [], "worker": "painter", "description": "Paint the wall", "accept": "", "optional": false, "for_each": ""}]}'

[[reply]]
to = "answer"
when = ["a wall in red"]
say = '{"answer": {"colour": "red"}, "claims": [], "contradictions": [], "confidence": 1}'
"""


@pytest.fixture
def painters(tmp_path: Path) -> Path:
    """A suite whose crew asks a person, with written replies."""
    (tmp_path / "painters.py").write_text(PAINTERS)
    (tmp_path / "replies.toml").write_text(REPLIES)
    (tmp_path / "suite.toml").write_text(WRITTEN_SUITE)
    return tmp_path / "suite.toml"


@pytest.mark.parametrize("arguments", [[], ["--refresh"]])
def test_written_replies_are_not_recorded(
    painters: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """From any folder: the path of the replies is relative to the suite."""
    monkeypatch.chdir("/")
    done = run(painters, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["cases"][0]["calls"] == 2
    assert not painters.with_name("suite.recording.jsonl").exists()


def test_a_type_whose_file_ends_the_program_is_named(painters: Path) -> None:
    (painters.parent / "exits.py").write_text("raise SystemExit(7)\n", encoding="utf-8")
    text = painters.read_text(encoding="utf-8")
    painters.write_text(text.replace("painters.py:Wall", "exits.py:x"), encoding="utf-8")
    done = run(painters)
    assert done.exit_code == 2
    assert "exits.py cannot be loaded: it ends the program (SystemExit: 7)" in done.stderr


def test_a_question_that_no_answer_of_the_case_fits_fails(painters: Path) -> None:
    painters.write_text(WRITTEN_SUITE.replace('"blue", "red"', '"blue"'))
    done = run(painters)
    assert done.exit_code == 1
    assert "gate: " in done.stderr


def test_a_case_with_a_type_and_a_schema_is_refused(painters: Path) -> None:
    checks = "checks = { schema = { type = 'object' } }"
    painters.write_text(
        WRITTEN_SUITE.replace('checks = { contains = [\'"colour":"red"\'] }', checks)
    )
    done = run(painters)
    assert done.exit_code == 2
    assert "either output or checks.schema" in done.stderr
