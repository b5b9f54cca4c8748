"""What the command line shows of a run afterwards: show, trace, talk, notes, blocks; and models."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

import chargehand as ch
from chargehand.cli import main, models
from chargehand.decisions.trace import Trace
from chargehand.decisions.trace_types import AttemptSpan, StepKind, StepSpan
from chargehand.models.base import ModelReply, StopReason, Text, ToolCall
from chargehand.patterns.groups import Group, RoundRobinManager
from chargehand.presentation.display_text import cell_width
from chargehand.presentation.live_frame import Line, StyledText, cut_line, line_text
from chargehand.presentation.trace_lines import step_time, timeline_lines, tree_lines

Call = Callable[..., Result]


@ch.worker("reader", "Reads a page")
async def read(brief: ch.Brief) -> str:
    await brief.board.post("found \x1b[2Ja figure", tags=["figure"])
    await brief.board.write("totals", {"ships": 42})
    page: str = await brief.step("fetch", lambda: f"page {brief.task.id}", effect="pure")
    if brief.task.id == "bad":
        raise ValueError("the page is \x1b[31mgone")
    return page


@ch.worker("each", "Does an item")
async def each(brief: ch.Brief) -> str:
    return f"did {brief.item}"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with one run: done, failed, skipped, retried and mapped tasks, and a model's."""
    place = tmp_path_factory.mktemp("details") / "runs.db"
    call = ToolCall("1", "add", '{"a": 1, "b": 2}')

    @ch.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    usage = ch.Usage(tokens_in=900, tokens_out=20)
    replies = [
        ModelReply(parts=(call,), stop=StopReason.TOOLS, usage=usage),
        ModelReply(parts=(Text("It is 3."),), stop=StopReason.END, usage=usage),
    ]
    model = ch.ScriptedModel(replies)
    writer = ch.Worker("writer", "Writes", model=model, tools=[add])
    tasks = [
        ch.Task(id="good", description="Read the good page", worker="reader"),
        ch.Task(id="bad", description="Read the bad page", worker="reader"),
        ch.Task(id="after", description="Read on", worker="reader", needs=["bad"]),
        ch.Task(id="sum", description="Write the sum", worker="writer", needs=["good"]),
        ch.Task(id="many", description="Do each", worker="each", for_each=list(range(20))),
    ]
    plan = ch.Plan(goal="Read and write", tasks=tasks)
    asyncio.run(_run(place, ch.Supervisor([read, writer, each], journal=place), plan))
    return place


async def _run(place: Path, boss: ch.Supervisor, plan: ch.Plan) -> None:
    async with boss:
        result = await boss.run(plan)
    assert result.status.value == "partial", place


@pytest.fixture
def chargehand(journal: Path) -> Call:
    def call(*args: str, **environment: str) -> Result:
        words = [*args, "--journal", str(journal)]
        return CliRunner().invoke(main, words, env=environment, color=True)

    return call


def text_of(lines: list[Line]) -> str:
    return "\n".join("".join(part.text for part in line) for line in lines)


def test_show_has_times_outputs_costs_causes_and_a_timeline(chargehand: Call) -> None:
    shown = chargehand("show", "last").stdout
    for words in (
        "✓ good  done, reader, ",
        "→ page good",
        "✗ bad  failed, reader, attempt 3",
        r"the page is \x1b[31mgone",
        "– after  skipped: bad was not done",
        "✓ sum  done, writer, ",
        "2 calls",
        "✓ many  done, each, ",
        "timeline:",
        "spent: 2 calls, 1,840 tokens",
    ):
        assert words in shown, (words, shown)
    assert "\x1b" not in shown
    assert "\x1b[" in chargehand("show", "last", FORCE_COLOR="1").stdout
    assert "\x1b" not in chargehand("show", "last", FORCE_COLOR="1", NO_COLOR="1").stdout


@pytest.mark.parametrize("columns", ["99999999999", "-5", "0", "9" * 5_000])
def test_an_absurd_width_of_the_terminal_is_shown_as_a_wide_one(
    chargehand: Call, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in (["show", "last"], ["runs"], ["status"]):
        shown = chargehand(*command)
        assert shown.exit_code == 0, shown.output
        assert max(map(len, shown.stdout.splitlines()), default=0) <= 1_100


def test_what_the_supervisor_does_itself_is_told_in_words(chargehand: Call) -> None:
    shown, tree = chargehand("show", "last").stdout, chargehand("trace", "last", "--tree").stdout
    assert "@" not in shown + tree, shown + tree
    assert "─ ✓ listing the items of many  supervisor" in tree
    assert "─ ✓ many  puts the results of its items together" in tree
    assert "listing" not in shown.partition("timeline:")[2].partition("\nanswer, ")[0]


def test_trace_is_json_in_a_pipe_and_a_tree_where_asked_for(chargehand: Call) -> None:
    assert json.loads(chargehand("trace", "last").stdout)["status"] == "partial"
    assert json.loads(chargehand("trace", "last", "--json").stdout)["status"] == "partial"
    tree = chargehand("trace", "last", "--tree").stdout
    for words in (
        "partial in",
        "─ ✓ good  reader",
        "─ ✗ bad  reader, attempt 2",
        "tool add",
        '{"a": 1, "b": 2} → 3',
        "model scripted:model",
        "→ It is 3.",
        "900 → 20 tokens",
        "… 15 more items of many; --json has them all",
        "– after  skipped",
    ):
        assert words in tree, (words, tree)
    assert "\x1b" not in tree
    bare = chargehand("trace", "last", "--tree", "--no-content").stdout
    assert "gone" not in bare
    assert "It is 3" not in bare
    assert "Read and write" not in bare
    refused = chargehand("trace", "last", "--tree", "--json")
    assert refused.exit_code == 2


def test_notes_and_blocks_are_those_of_the_board(chargehand: Call) -> None:
    notes = chargehand("notes", "last", "--segment", "notes").stdout
    assert r"found \x1b[2Ja figure" in notes
    assert "#figure" in notes
    lines = chargehand("notes", "last", "--author", "reader", "--json").stdout.splitlines()
    assert {json.loads(line)["author"] for line in lines} == {"reader"}
    assert "no such notes" in chargehand("notes", "last", "--segment", "none").stderr
    assert "did you mean notes?" in chargehand("note", "last").stderr
    written = chargehand("notes", "last", "--json").stdout.splitlines()
    assert {json.loads(line)["segment"] for line in written} == {"notes"}, "nothing of the run"
    assert len(chargehand("notes", "last", "--all", "--json").stdout.splitlines()) > len(written)
    assert "use --all" in chargehand("notes", "last", "--tag", "none").stderr
    block = chargehand("blocks", "last").stdout
    assert block.startswith("totals  version ")
    versions = chargehand("blocks", "last", "totals", "--json").stdout.splitlines()
    assert [json.loads(line)["version"] for line in versions] == list(range(1, len(versions) + 1))
    assert chargehand("blocks", "last", "nothing").exit_code == 2


def test_a_group_is_read_as_it_talked(tmp_path: Path, chargehand: Call) -> None:
    assert "no group conversation" in chargehand("talk", "last").stderr
    place = tmp_path / "runs.db"
    members = [
        ch.Worker(name, f"Speaks as {name}", model=ch.ScriptedModel([f"I am {name}."]))
        for name in ("anna", "ben")
    ]

    async def talk() -> None:
        async with Group(members, manager=RoundRobinManager(max_turns=2), journal=place) as group:
            await group.send("Who are you?")

    asyncio.run(talk())
    said = CliRunner().invoke(main, ["talk", "last", "--journal", str(place)]).stdout
    assert said.index("Who are you?") < said.index("I am anna.") < said.index("I am ben.")
    assert "anna to everyone" in said
    told = CliRunner().invoke(main, ["talk", "last", "--json", "--journal", str(place)]).stdout
    assert [json.loads(line)["sender"] for line in told.splitlines()][1:3] == ["anna", "ben"]


def test_models_are_listed_with_what_they_lack() -> None:
    environment = {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "sk-test"}
    told = CliRunner().invoke(main, ["models", "list", "--json"], env=environment).stdout
    states = {row["model"]: row for row in map(json.loads, told.splitlines())}
    assert states["openai:…"]["how"] == "set OPENAI_API_KEY"
    assert states["anthropic:…"]["state"] == "ready"
    assert states["offline"]["state"] == "ready"
    assert "sk-test" not in told


def test_a_local_model_is_ready_only_with_the_package_that_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "path_of", lambda name: tmp_path / name)
    states = []
    for is_there in (True, False):
        monkeypatch.setattr(models, "is_installed", lambda is_there=is_there: is_there)
        told = CliRunner().invoke(main, ["models", "list", "--json"]).stdout
        rows = [json.loads(line) for line in told.splitlines()]
        states.append(next(row for row in rows if row["model"].startswith("local:")))
    assert states[0]["state"] == "ready"
    assert (states[1]["state"], states[1]["how"]) == (
        "no xllamacpp",
        "pip install 'chargehand[local]'",
    )


def test_a_trace_without_attempts_is_shown_too() -> None:
    empty = ch.Trace(run="r1", request="Do \x1b[2J it")
    assert timeline_lines(empty, 80) == []
    assert text_of(list(tree_lines(empty))) == r"run r1  not ended in 0.0s: Do \x1b[2J it"


def test_the_tree_tells_how_long_a_call_waited_for_its_provider_and_how_often_it_was_sent() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    step = StepSpan(
        "model",
        0,
        "pure",
        began,
        StepKind.MODEL,
        began + timedelta(seconds=4),
        model="m",
        sends=3,
        waited=3.2,
    )
    assert step_time(step) == "0.8s, waited 3.2s, sent 3 times"
    assert step_time(replace(step, sends=1, waited=0.01)) == "4.0s"
    assert step_time(replace(step, ended_at=None)) == "no end"


def test_a_row_of_the_tree_is_cut_to_the_width_of_the_terminal() -> None:
    line = (StyledText("├─ ", "dim"), StyledText("a long value " * 20, "ink"))
    for width in (20, 80, 120):
        cut = cut_line(line, width)
        assert cell_width(line_text(cut)) <= width
        assert line_text(cut).endswith("…")
    assert cut_line(line, 0) == line


def test_items_that_are_not_shown_are_counted_behind_those_of_their_task() -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    names = [f"each[{n}]" for n in range(30)] + ["each", "last"]
    spans = [
        AttemptSpan(name, 1, "w", "", began + timedelta(seconds=n), began, ending="done")
        for n, name in enumerate(names)
    ]
    trace = Trace(run="r1", attempts=spans)
    lines = [line_text(line) for line in tree_lines(trace)]
    assert "… 25 more items of each; --json has them all" in lines[6]
    assert "last" in lines[-1]
