"""A tool is a typed function that a model may call; some come ready-made."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from chargehand.errors import ToolError
from chargehand.tools.base import Tool, ToolContext, tool
from chargehand.tools.calculator import calculate
from chargehand.tools.files import files
from chargehand.tools.sql_tables import data
from chargehand.tools.tool_output import ToolResult
from chargehand.tools.toolbox import Toolbox

HERE = ToolContext(run="r1", task="t1", worker="clerk")


async def call(called: Tool, context: ToolContext = HERE, /, **arguments: Any) -> ToolResult:
    """Call it as a model does: with JSON."""
    return await called.call(context, json.dumps(arguments))


@tool(effect="pure")
def word_count(text: str, unit: Literal["words", "lines"] = "words") -> int:
    """Count the words or lines of a text.

    Args:
        text: what to count in
        unit: what to count
    """
    return len(text.split() if unit == "words" else text.splitlines())


async def test_a_typed_function_becomes_a_tool_that_a_model_can_call() -> None:
    result = await call(word_count, text="three small words")
    assert (result.value, result.text) == (3, "3")


def test_a_tool_is_still_the_function_it_was() -> None:
    assert word_count("one two") == 2


def test_the_docstring_and_the_types_are_what_the_model_sees() -> None:
    assert word_count.spec.name == "word_count"
    assert word_count.spec.description == "Count the words or lines of a text."
    assert word_count.spec.parameters == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to count in"},
            "unit": {
                "type": "string",
                "enum": ["words", "lines"],
                "default": "words",
                "description": "what to count",
            },
        },
        "required": ["text"],
        "additionalProperties": False,
    }


async def test_wrong_arguments_come_back_as_words_that_say_what_to_change() -> None:
    with pytest.raises(ToolError) as caught:
        await call(word_count, txt="hello", unit="pages")
    assert str(caught.value).splitlines() == [
        "word_count was not run, because its arguments do not fit:",
        "- 'text' is missing; add it",
        "- 'unit': Input should be 'words' or 'lines'; you gave \"pages\"",
        "- 'txt' is not an argument (did you mean 'text'?); leave it out",
    ]


def test_an_undeclared_effect_means_once() -> None:
    @tool
    def send(text: str) -> None:
        """Send a text."""

    assert send.effect == "once"
    assert word_count.effect == "pure"


async def test_a_tool_takes_models_and_returns_them() -> None:
    class Address(BaseModel):
        street: str
        city: str = "Bern"

    def label(address: Address, copies: int = 1) -> list[Address]:
        return [address] * copies

    label.__doc__ = "Write a label."
    label.__annotations__["address"] = Address
    result = await call(tool(label), address={"street": "Aarweg 1"}, copies=2)
    assert result.value == [{"street": "Aarweg 1", "city": "Bern"}] * 2


@tool(effect="keyed")
async def charge(context: ToolContext, amount: int) -> str:
    """Charge an amount."""
    context.progress(f"charging {amount}")
    return f"{context.deps['shop']} charged {amount} under {context.key}"


async def test_a_context_brings_the_callers_own_things_and_is_not_shown_to_the_model() -> None:
    heard: list[str] = []
    context = ToolContext(run="r1", key="k-17", deps={"shop": "Ada's"}, report=heard.append)
    assert (await call(charge, context, amount=5)).value == "Ada's charged 5 under k-17"
    assert heard == ["charging 5"]
    assert set(charge.spec.parameters["properties"]) == {"amount"}


async def test_a_secret_reaches_the_tool_and_nobody_else() -> None:
    @tool
    def log_in(context: ToolContext) -> str:
        """Log in."""
        return f"sent {context.secret('PASSWORD')}"

    granted = ToolContext(secrets={"PASSWORD": "correct horse"})
    assert (await call(log_in, granted)).text == "sent [redacted: PASSWORD]"
    with pytest.raises(ToolError, match="'PASSWORD' is not granted") as caught:
        await call(log_in)
    assert caught.value.kind == "denied"


async def test_a_stream_is_read_as_far_as_the_limit() -> None:
    @tool(limit=1_000)
    async def count() -> AsyncIterator[str]:
        """Count for ever."""
        number = 0
        while True:
            number += 1
            yield f"{number} "

    result = await call(count)
    assert result.is_truncated
    assert result.text.startswith("1 2 3 ")
    assert len(result.text) <= 1_000
    assert "[cut: this is the beginning of more than" in result.text


async def test_what_others_wrote_is_marked_as_untrusted() -> None:
    @tool(untrusted=True)
    def fetch() -> str:
        """Fetch a page."""
        return "hello"

    assert (await call(fetch)).taint == ("tool:fetch",)


async def test_a_tool_that_takes_too_long_is_given_up() -> None:
    @tool(timeout=timedelta(milliseconds=20))
    async def wait() -> None:
        """Wait."""
        import asyncio

        await asyncio.Event().wait()

    with pytest.raises(ToolError, match=r"took longer than 0\.02 s") as caught:
        await call(wait)
    assert caught.value.kind == "timeout"


def test_a_toolbox_finds_tools_by_name() -> None:
    box = Toolbox([word_count, calculate])
    assert box.find("calculate") is calculate
    assert [spec.name for spec in box.specs] == ["word_count", "calculate"]
    with pytest.raises(ToolError, match="did you mean 'word_count'"):
        box.find("wordcount")


async def test_calculate_works_exactly() -> None:
    assert (await call(calculate, expression="0.1 + 0.2")).text == "0.3"
    assert (await call(calculate, expression="round(1250 * 1.19 / 12, 2)")).text == "123.96"


async def test_files_can_be_listed_read_and_searched(tmp_path: Path) -> None:
    (tmp_path / "bees.md").write_text("# Bees\n\nA queen lays up to 2000 eggs a day.\n")
    (tmp_path / "ants.md").write_text("# Ants\n\nAnts carry many times their weight.\n")
    list_files, read_file, search_files = files(tmp_path)
    listed = (await call(list_files, pattern="b*")).value["files"]
    assert [file["path"] for file in listed] == ["bees.md"]
    assert (await call(read_file, path="ants.md")).text.startswith("# Ants")
    best = (await call(search_files, query="how many eggs does a queen lay")).value["passages"][0]
    assert best["where"] == "bees.md:1"
    assert "2000 eggs" in best["text"]


async def test_data_can_be_queried_with_sql(tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("city,people\nBern,134000\nZug,31000\n")
    describe_tables, query_tables = data(tmp_path)
    described = (await call(describe_tables)).value["tables"]["cities"]
    assert described["columns"] == {"city": "VARCHAR", "people": "BIGINT"}
    answer = await call(query_tables, sql="select sum(people) as people from cities")
    assert answer.value == {"columns": ["people"], "rows": [[165000]]}
