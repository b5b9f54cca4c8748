"""Groups at their edges: who is asked, what a model writes, what is told of a conversation under way."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.cli.find_run import FoundRun
from chargehand.cli.run_details import shown
from chargehand.errors import ChargehandError, ToolError, UsageError
from chargehand.facts.board import Block
from chargehand.facts.value import Value
from chargehand.models.base import ModelRequest, ToolCall
from chargehand.models.scripted import Line
from chargehand.patterns.groups import (
    DynamicManager,
    Group,
    RoundRobinManager,
    SharedBlock,
    SupervisorManager,
)
from chargehand.patterns.groups.shared_blocks import fitting
from chargehand.presentation.live_frame import line_text


def member(name: str, says: object = "here") -> ch.FunctionWorker:
    async def work(brief: ch.Brief) -> object:
        return says

    return ch.FunctionWorker(work, name, f"Is {name}")


def group(*members: Any, **terms: Any) -> Group:
    manager = terms.pop("manager", None) or RoundRobinManager()
    return Group([*members] or [member("ann"), member("bob")], manager=manager, **terms)


# Who is asked


async def test_p08_a_broadcast_to_nobody_asks_nobody() -> None:
    replies = await group().broadcast("Are you there?", to=[])
    assert (replies.said, replies.failed, len(replies), replies.id) == ({}, {}, 0, "")
    with pytest.raises(UsageError, match="no member was asked"):
        _ = replies.run


async def test_p08_a_broadcast_asks_all_or_those_who_are_named() -> None:
    assert set((await group().broadcast("Hello")).said) == {"ann", "bob"}
    assert set((await group().broadcast("Hello", to=["bob", "bob"])).said) == {"bob"}


@pytest.mark.parametrize("timeout", [5, 5.0, timedelta(seconds=5)])
async def test_p09_a_broadcast_takes_seconds_or_a_timedelta(timeout: Any) -> None:
    assert len(await group().broadcast("Hello", timeout=timeout)) == 2


# What a model writes


@pytest.mark.parametrize("value", ['["milk", "tea"]', ["milk", "tea"]])
async def test_p06_a_block_that_a_model_writes_keeps_its_kind(value: Any) -> None:
    """Whether the model sends JSON, or JSON as text."""
    wrote = json.dumps({"label": "list", "value": value, "version": 1})
    model = ch.ScriptedModel([ToolCall("1", "write_block", wrote), "done"])

    async def add(brief: ch.Brief) -> Any:
        return (await brief.board.update("list", lambda old: [*old, "bread"])).value

    clerk = ch.FunctionWorker(add, "clerk", "Keeps the list")
    blocks = [SharedBlock("list", ["milk"])]
    crew = group(ch.Worker("llm", "Writes", model=model), clerk, blocks=blocks)
    assert (await crew.send("Put tea on the list")).output == ["milk", "tea", "bread"]


async def test_p06_a_model_is_told_when_what_it_writes_is_of_another_kind() -> None:
    wrote = json.dumps({"label": "list", "value": "some milk", "version": 1})
    heard: list[str] = []

    def hear(request: ModelRequest) -> str:
        heard.append(str(request.turns[-1]))
        return "given up"

    lines: list[Line] = [ToolCall("1", "write_block", wrote), hear]
    blocks = [SharedBlock("list", ["milk"])]
    crew = group(ch.Worker("llm", "Writes", model=ch.ScriptedModel(lines)), blocks=blocks)
    async with crew:
        await crew.send("Put tea on the list")
        assert (await crew.board(crew.blocks.home).read("list")).value == ["milk"]
    assert "list holds a list, and this is text; nothing was written" in heard[0]


HELD = ["text", 7, 1.5, True, [1], {"a": 1}]


@pytest.mark.parametrize("old", HELD)
@pytest.mark.parametrize("new", HELD)
def test_p06_what_is_written_is_of_the_kind_that_was_there(old: Any, new: Any) -> None:
    """As itself or as JSON in a text; all else is refused. What was empty takes anything."""
    kinds = {int: float}
    is_same = kinds.get(type(old), type(old)) is kinds.get(type(new), type(new))
    assert fitting("b", None, new) == new
    for given in (new, json.dumps(new)):
        if is_same:
            assert fitting("b", old, given) == (given if isinstance(old, str) else new)
        elif isinstance(old, str) and isinstance(given, str):
            assert fitting("b", old, given) == given
        else:
            with pytest.raises(ToolError, match="nothing was written"):
                fitting("b", old, given)


async def test_p06_what_is_added_to_a_list_is_of_the_kind_of_its_items() -> None:
    added = json.dumps({"label": "rows", "text": '{"id": 2}'})
    model = ch.ScriptedModel([ToolCall("1", "append_block", added), "done"])
    blocks = [SharedBlock("rows", [{"id": 1}])]
    crew = group(ch.Worker("llm", "Writes", model=model), blocks=blocks)
    async with crew:
        await crew.send("Add a row")
        assert (await crew.board(crew.blocks.home).read("rows")).value == [{"id": 1}, {"id": 2}]


# What is told


async def test_a_conversation_under_way_is_not_told_as_over() -> None:
    begun, let_on = asyncio.Event(), asyncio.Event()

    async def slow(brief: ch.Brief) -> str:
        begun.set()
        await let_on.wait()
        return "at last"

    async with group(member("ann"), ch.FunctionWorker(slow, "sam", "Is slow")) as crew:
        talking = asyncio.create_task(crew.send("Hello"))
        await begun.wait()
        (run,) = [head.stream for head in await crew.journal.heads()]
        told = await crew.told(run)
        let_on.set()
        ended = await talking
    assert (told.ended, told.turns) == ("", 1)
    assert ended.ended == "all 2 turns were spoken"


async def test_show_tells_who_said_what_to_whom(tmp_path: Path) -> None:
    crew = group(member("ann", "It is " + "very " * 200 + "late"), member("bob", {"at": 9}))
    result = await crew.send("Talk")
    lines = list(map(line_text, shown(FoundRun(result.run, "succeeded", []), "runs.db")))
    assert '      bob to everyone: {"at":9}' in lines
    (long,) = [line for line in lines if line.startswith("      ann to everyone: It is very")]
    assert len(long) < 320
    assert not any(line.strip() == "Talk" for line in lines)


async def test_the_answer_is_the_last_message_also_if_a_member_failed_after_it() -> None:
    async def away(brief: ch.Brief) -> str:
        raise ch.WorkerError("on holiday", kind="denied")

    crew = group(member("ann", "There is soup."), ch.FunctionWorker(away, "bob", "Is away"))
    result = await crew.send("What shall we eat?")
    assert result.output == result.answer.text == result.run.output == "There is soup."
    assert [gap.task for gap in result.gaps] == ["t2"]
    lines = list(map(line_text, shown(FoundRun(result.run, "partial"), "runs.db")))
    (head,) = [n for n, line in enumerate(lines) if line.startswith("\nanswer, confidence ")]
    assert lines[head + 1].splitlines()[0] == "There is soup."


async def test_the_answer_has_no_word_that_ends_the_conversation_wherever_it_is_read() -> None:
    pick = json.dumps({"next": "ann", "why": "it fits"})
    manager = DynamicManager(ch.ScriptedModel([pick]), termination_token="DONE!")
    result = await group(member("ann", "Soup. DONE!"), manager=manager).send("What shall we eat?")
    assert result.output == result.answer.text == "Soup."


async def test_a_plan_with_arguments_like_those_of_a_turn_is_no_conversation() -> None:
    task = ch.Task(id="t", description="Go", worker="ann", args={"turn": "left", "reply_to": "me"})
    async with ch.Supervisor([member("ann")]) as boss:
        assert (await boss.run(ch.Plan(goal="Go", tasks=[task]))).output == "here"


async def test_a_timeline_has_one_row_for_all_that_was_planned() -> None:
    result = await group(manager=RoundRobinManager(max_turns=4)).send("Talk")
    lines = list(map(line_text, shown(FoundRun(result.run, "succeeded"), "runs.db")))
    rows = lines[lines.index("timeline:") + 1 :]
    assert [row.split()[1] for row in rows[:5]] == ["planning", "t1", "t2", "t3", "t4"]


async def test_show_tells_what_a_manager_asked_and_what_was_answered() -> None:
    asked = ToolCall("1", "assign_to_all", json.dumps({"message": "What time is it?"}))
    end = ToolCall("2", "finish", json.dumps({"answer": "Nine"}))
    manager = SupervisorManager(ch.ScriptedModel([asked, end]), name="lead")
    result = await group(member("ann", "nine"), manager=manager).send("Talk")
    found = FoundRun(result.run, "succeeded", [])
    lines = [line_text(line).strip() for line in shown(found, "runs.db")]
    place = lines.index("lead to ann: What time is it?")
    assert lines[place + 1] == "ann to lead: nine"


def test_the_repr_of_a_block_shows_its_value_as_far_as_there_is_room() -> None:
    now = datetime.now(UTC)
    block = Block(label="list", version=2, stored=Value.of(["tea"]), author="ann", at=now)
    assert repr(block) == "<block 'list', version 2 by 'ann': [\"tea\"]>"
    large = Block(label="b", version=1, stored=Value.of("x" * 9_000), author="ann", at=now)
    assert len(repr(large)) < 300
    far = Value(blob="0" * 32, size=70_000)
    assert "70000 bytes" in repr(Block(label="b", version=1, stored=far, author="ann", at=now))


# What is refused by name


class Hostile:
    """Says nothing about itself, in no way."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


ODD: list[Any] = [
    None, True, -1, 1.5, float("inf"), float("nan"), 2**70, "", "\ud800", "a\x00b", b"bytes",
    [], {}, object(), Hostile(), timedelta.max,
]  # fmt: skip

BORDERS: dict[str, Callable[[Any], object]] = {
    "members": lambda odd: Group(odd, manager=RoundRobinManager()),
    "member": lambda odd: Group([odd], manager=RoundRobinManager()),
    "manager": lambda odd: Group([member("ann")], manager=odd),
    "name": lambda odd: group(name=odd),
    "description": lambda odd: group(description=odd),
    "every": lambda odd: group(every=odd),
    "max_buffer": lambda odd: group(max_buffer=odd),
    "min_buffer": lambda odd: group(min_buffer=odd),
    "max_turns": lambda odd: RoundRobinManager(odd),
    "most_turns": lambda odd: DynamicManager(max_turns=odd),
    "token": lambda odd: DynamicManager(termination_token=odd),
    "manager_name": lambda odd: DynamicManager(name=odd),
    "max_count": lambda odd: SupervisorManager(max_count=odd),
    "instructions": lambda odd: SupervisorManager(instructions=odd),
    "label": lambda odd: SharedBlock(odd),
    "value": lambda odd: SharedBlock("b", odd),
    "readers": lambda odd: SharedBlock("b", readers=odd),
    "writer": lambda odd: SharedBlock("b", writers=[odd]),
    "board": lambda odd: SharedBlock("b", board=odd),
    "message": lambda odd: group().send(odd),
    "broadcast": lambda odd: group().broadcast(odd),
    "timeout": lambda odd: group().broadcast("Hello", timeout=odd),
    "to": lambda odd: group().broadcast("Hello", to=odd),
    "to_one": lambda odd: group().broadcast("Hello", to=[odd]),
    "attach": lambda odd: group().attach(odd),
    "attached": lambda odd: group().attach("b", odd),
    "detach": lambda odd: group().detach(odd),
}


@pytest.mark.parametrize("border", BORDERS)
async def test_j1_what_is_odd_is_taken_or_refused_by_a_typed_error(border: str) -> None:
    for odd in ODD:
        try:
            done = BORDERS[border](odd)
            if asyncio.iscoroutine(done):
                await done
        except ChargehandError:
            continue
