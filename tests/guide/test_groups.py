"""Groups: members who talk with each other under a manager, and share blocks."""

import json
from datetime import timedelta

import chargehand as ch
from chargehand.models.base import ToolCall
from chargehand.patterns import (
    DynamicManager,
    Group,
    RoundRobinManager,
    SharedBlock,
    SupervisorManager,
)


@ch.worker("cook", "Knows what is in the kitchen")
async def cook(brief: ch.Brief) -> str:
    return f"There is soup; that was asked by {brief.args['sender']}."


@ch.worker("guest", "Knows what it likes")
async def guest(brief: ch.Brief) -> str:
    heard = brief.inputs.get("t1 from cook", "nothing yet")
    return f"I heard: {heard} I like it. DONE!"


async def test_members_speak_in_turn() -> None:
    """The simplest manager goes round the table."""
    group = Group([cook, guest], manager=RoundRobinManager())
    result = await group.send("What shall we eat?")
    assert [message.sender for message in result.messages] == ["user", "cook", "guest"]
    assert result.turns == 2


async def test_a_model_picks_who_speaks_until_the_token() -> None:
    """A dynamic manager asks its model after each turn; the token ends it, and is no part of the answer."""
    picks = [json.dumps({"next": name, "why": "in turn"}) for name in ("cook", "guest")]
    group = Group([cook, guest], manager=DynamicManager(ch.ScriptedModel(picks)))
    result = await group.send("What shall we eat?")
    assert result.ended == "guest said DONE!"
    assert result.output.endswith("I like it.")


async def test_a_supervisor_assigns_and_answers() -> None:
    """A supervising manager calls tools: assign to all, assign to one, finish."""
    ask = ToolCall("1", "assign_to_all", json.dumps({"message": "What is there?"}))
    finish = ToolCall("2", "finish", json.dumps({"answer": "Soup."}))
    group = Group([cook, guest], manager=SupervisorManager(ch.ScriptedModel([ask, finish])))
    result = await group.send("What shall we eat?")
    assert (result.output, result.turns) == ("Soup.", 2)
    assert str(result.messages[1]) == "manager to cook, guest: What is there?"


async def test_everybody_is_asked_at_once() -> None:
    """A broadcast collects what all say; whoever fails is named."""

    @ch.worker("grouch", "Says nothing")
    async def grouch(brief: ch.Brief) -> str:
        raise PermissionError("leave me alone")

    group = Group([cook, grouch], manager=RoundRobinManager())
    replies = await group.broadcast("What is there?", timeout=timedelta(seconds=30))
    assert list(replies.said) == ["cook"]
    assert "leave me alone" in replies.failed["grouch"]


async def test_members_share_blocks() -> None:
    """A block is read and written by those who may, and outlives the conversation."""

    @ch.worker("clerk", "Keeps the list")
    async def clerk(brief: ch.Brief) -> None:
        await brief.board.update("list", lambda old: [*old, "bread"])

    block = SharedBlock("list", ["milk"], writers=["clerk"])
    group = Group([clerk, cook], manager=RoundRobinManager(), blocks=[block])
    await group.send("Put bread on the list")
    assert (await group.board(group.blocks.home).read("list")).value == ["milk", "bread"]


async def test_what_was_said_is_known_in_the_next_message() -> None:
    """A group remembers, as far as its buffer goes."""

    @ch.worker("echo", "Says what it knows of before")
    async def echo(brief: ch.Brief) -> list[str]:
        return [each["said"] for each in brief.inputs.get("what was said before", [])]

    group = Group([echo], manager=RoundRobinManager())
    await group.send("I am Ada")
    assert (await group.send("Who am I?")).output == ["I am Ada", []]
