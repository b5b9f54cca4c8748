"""A manager that supervises: it assigns, hears all, finishes; and a disobedient one breaks no rule."""

import asyncio
import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.models.base import ModelReply, ModelRequest, StopReason, Text, ToolCall
from chargehand.models.scripted import ScriptedModel
from chargehand.patterns.groups import (
    DynamicManager,
    Group,
    GroupResult,
    Message,
    SupervisorManager,
)
from chargehand.patterns.groups.managers import specs_for


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"call-{name}", name, json.dumps(arguments))


def to_all(message: str = "What do you know?") -> ToolCall:
    return call("assign_to_all", message=message)


def to_one(worker: str, message: str = "What do you know?") -> ToolCall:
    return call("assign_to_one", worker=worker, message=message)


def finish(answer: str = "That is all.") -> ToolCall:
    return call("finish", answer=answer)


def member(name: str, *, fails: bool = False) -> ch.FunctionWorker:
    async def answer(brief: ch.Brief) -> str:
        if fails:
            raise PermissionError("not today")
        return f"{name} on {brief.task.description!r} from {brief.args['sender']}"

    return ch.FunctionWorker(answer, name, f"Is {name}")


async def lead(*script: Any, members: "list[ch.FunctionWorker] | None" = None, **more: Any) -> Any:
    """A conversation led by a model that says these things; with the model."""
    model = ScriptedModel(script)
    group = Group(
        members or [member("ada"), member("bob")], manager=SupervisorManager(model, **more)
    )
    return await group.send("Know everything"), model


def refusals(request: ModelRequest) -> list[str]:
    """What the model was told in the last turn of this request."""
    return [getattr(part, "text", "") for part in request.turns[-1].parts]


def names(request: ModelRequest) -> list[str]:
    return [spec.name for spec in request.tools]


# In order


async def test_a_manager_assigns_hears_all_and_finishes() -> None:
    result, model = await lead(to_all("Say hello"), finish("They said hello."))
    assert isinstance(result, GroupResult)
    assert [(m.sender, m.to, m.text) for m in result.messages] == [
        ("user", ("everyone",), "Know everything"),
        ("manager", ("ada", "bob"), "Say hello"),
        ("ada", ("manager",), "ada on 'Say hello' from manager"),
        ("bob", ("manager",), "bob on 'Say hello' from manager"),
        ("manager", ("user",), "They said hello."),
    ]
    assert (result.status, result.output) == ("succeeded", "They said hello.")
    assert result.ended == "manager gave the answer"
    model.assert_complete()


async def test_assignments_and_the_answer_are_heard_as_they_are_said() -> None:
    model = ScriptedModel([to_all("Say hello"), finish("They said hello.")])
    group = Group([member("ada"), member("bob")], manager=SupervisorManager(model))
    told: list[Message] = []
    result = await group.send("Know everything", hear=told.append)
    assert [(m.sender, m.to) for m in told] == [(m.sender, m.to) for m in result.messages]
    assert told[-1].text == "They said hello."


async def test_a_manager_that_is_interrupted_is_asked_nothing_twice(tmp_path: Path) -> None:
    model = ScriptedModel([to_all(), to_one("ada", "And more?"), finish("That is all.")])
    begun = asyncio.Event()

    async def hang_once(brief: ch.Brief) -> str:
        if brief.args["turn"] == 3 and not begun.is_set():
            begun.set()
            await asyncio.sleep(60)
        return f"turn {brief.args['turn']}"

    def group() -> Group:
        members = [ch.FunctionWorker(hang_once, name, "Speaks") for name in ("ada", "bob")]
        return Group(members, manager=SupervisorManager(model), journal=tmp_path / "runs.db")

    async with group() as first:
        run = await first.submit("Know everything")
        await begun.wait()
        await first.stop(timedelta(0))
    async with group() as second:
        result = await second.told(await second.resume(run.id))
    assert (result.status, result.output, result.turns) == ("succeeded", "That is all.", 3)
    model.assert_complete()


async def test_several_members_are_asked_side_by_side_in_one_go() -> None:
    calls = [to_one("ada", "Count apples"), to_one("bob", "Count pears")]
    result, _ = await lead(calls, finish())
    first = result.run.tasks
    assert [task.task.description for task in first.values()][:2] == ["Count apples", "Count pears"]
    assert not first["t2"].task.needs, "neither waits for the other"


async def test_the_same_said_twice_in_one_go_is_asked_once() -> None:
    result, _ = await lead([to_one("ada"), to_one("ada"), to_one("bob")], finish())
    assert result.turns == 2


async def test_what_was_said_before_is_handed_to_whoever_is_asked_next() -> None:
    result, _ = await lead(to_all(), to_one("ada", "And what does bob mean?"), finish())
    assert [need.task for need in result.run.tasks["t3"].task.all_needs] == ["t1", "t2"]


async def test_the_tools_that_may_be_called_are_shown_and_one_must_be() -> None:
    _, model = await lead(to_one("ada"), to_one("bob"), finish())
    assert [names(request) for request in model.requests] == [
        ["assign_to_all", "assign_to_one"],
        ["assign_to_all", "assign_to_one"],
        ["assign_to_all", "assign_to_one", "finish"],
    ]
    assert {request.choice for request in model.requests} == {"required"}
    assert specs_for(["ada"])[1].parameters["properties"]["worker"]["enum"] == ["ada"]


async def test_a_member_that_could_not_answer_was_heard_and_stays_a_gap() -> None:
    members = [member("ada"), member("bob", fails=True)]
    result, model = await lead(to_all(), finish("Only ada knows."), members=members)
    assert (result.status, result.output) == ("partial", "Only ada knows.")
    assert [gap.task for gap in result.gaps] == ["t2"]
    told = model.requests[1].turns[1].text
    assert "bob (t2) did not answer.\nBEGIN reason\ndenied: not today\nEND reason" in told


async def test_instructions_and_the_rules_stand_in_its_prompt() -> None:
    _, model = await lead(to_all(), finish(), instructions="Be brief.", max_count=2)
    words = model.requests[0].turns[0].text
    assert "Be brief." in words
    assert "Call assign_to_all at most 2 times." in words


async def test_without_a_language_model_everybody_is_asked_once() -> None:
    """The offline model leads by rules, as both kinds of manager."""
    members = [member("ada"), member("bob")]
    result = await Group(members, manager=SupervisorManager("offline")).send("Count the apples")
    assert (result.status, result.turns) == ("succeeded", 2)
    assert [str(message) for message in result.messages][
        1
    ] == "manager to ada, bob: Count the apples"
    assert result.output.startswith("ada: ada on 'Count the apples'")
    result = await Group(members, manager=DynamicManager("offline")).send("Ask bob for apples")
    assert [message.sender for message in result.messages] == ["user", "bob", "ada"]
    assert result.ended == "manager chose DONE!"


@pytest.mark.parametrize("names", [("ada", "bob"), tuple(f"m{n}" for n in range(40))])
@pytest.mark.parametrize("fails", ["one", "all"])
async def test_without_a_language_model_one_that_failed_is_not_asked_again(
    names: tuple[str, ...], fails: str
) -> None:
    """However many there are: what was said long ago is not shown to the manager any more."""
    asked: list[str] = []

    def speaks(name: str) -> Any:
        def say(_: ch.Brief) -> str:
            asked.append(name)
            if fails == "all" or name == names[-1]:
                raise ValueError("no line")
            return "fine"

        return ch.worker(name, "Counts")(say)

    manager = DynamicManager("offline", max_turns=50)
    group = Group([speaks(name) for name in names], manager=manager)
    result = await group.send("Count the apples")
    assert (result.turns, {*asked}) == (len(names), {*names})
    assert (result.status, result.ended) == (
        "partial" if fails == "one" else "failed",
        "manager chose DONE!",
    )
    assert len(result.gaps) == (1 if fails == "one" else len(names))


# Disobedience


async def test_it_cannot_finish_first() -> None:
    result, model = await lead(finish("I know already."), to_all(), finish("Now I know."))
    assert refusals(model.requests[1]) == ["call assign_to_all or assign_to_one first"]
    assert result.output == "Now I know."


async def test_it_cannot_talk_instead_of_assigning() -> None:
    result, model = await lead("I know it all: 42.", to_all(), finish("They know."))
    assert refusals(model.requests[1]) == ["call a tool: assign_to_all or assign_to_one"]
    assert result.output == "They know."


async def test_it_cannot_finish_with_an_apology() -> None:
    sorry = finish("I'm sorry, I cannot help with that.")
    result, model = await lead(to_all(), sorry, finish("They know."))
    assert "this is not an answer" in refusals(model.requests[2])[0]
    assert result.output == "They know."
    result, _ = await lead(to_all(), sorry, sorry, sorry)
    assert result.status == "partial"
    assert "sorry" not in str(result.output)


async def test_it_cannot_call_tools_that_are_not_there() -> None:
    result, model = await lead(call("delete_all"), to_all(), finish("They know."))
    assert "there is no tool 'delete_all'" in refusals(model.requests[1])[0]
    assert (result.status, result.turns) == ("succeeded", 2)


async def test_it_cannot_finish_while_one_was_not_heard() -> None:
    result, model = await lead(to_one("ada"), finish("Enough."), to_one("bob"), finish("All said."))
    assert "bob was not heard yet" in refusals(model.requests[2])[0]
    assert result.output == "All said."


async def test_it_cannot_finish_in_the_same_breath_as_it_assigns() -> None:
    both = [to_all(), finish("I need no answers.")]
    result, model = await lead(both, to_all(), finish("They know."))
    assert any("was not heard yet" in told for told in refusals(model.requests[1]))
    assert (result.output, result.turns) == ("They know.", 2)
    again = [to_one("ada", "More?"), finish("I need no answers.")]
    result, model = await lead(to_all(), again, finish("They know."))
    assert all("stands alone" in told for told in refusals(model.requests[2]))
    assert (result.output, result.turns) == ("They know.", 2), (
        "nothing of the refused reply was done"
    )


async def test_it_cannot_assign_to_somebody_who_is_not_there() -> None:
    result, model = await lead(to_one("eve"), to_all(), finish("They know."))
    assert "'eve' is not one of ['ada', 'bob']" in refusals(model.requests[1])[0]
    assert result.turns == 2


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"message": 7}', '{"message": "  "}', "{}"])
async def test_it_cannot_assign_nonsense(arguments: str) -> None:
    result, _ = await lead(ToolCall("1", "assign_to_all", arguments), to_all(), finish("Fine."))
    assert (result.status, result.turns, result.output) == ("succeeded", 2, "Fine.")


async def test_it_cannot_assign_for_ever() -> None:
    """With a count of three it is let to finish only, and when it will not, the run ends by itself."""
    script = [to_all(f"Question {number}") for number in range(100)]
    result, model = await lead(*script, max_count=3)
    assert (result.status, result.turns) == ("partial", 6)
    assert names(model.requests[3]) == ["assign_to_one", "finish"]
    assert len(model.requests) == 6, "three that were carried out, three that were refused"
    assert "assign_to_all was called 3 times, the most allowed" in result.ended


async def test_it_cannot_ask_the_same_for_ever() -> None:
    result, model = await lead(*[to_all("Again?")] * 100, max_count=50)
    assert (result.turns, len(model.requests)) == (4, 5)
    assert "was asked exactly this 2 times" in result.ended


async def test_it_cannot_ask_one_who_could_not_answer_the_same_again() -> None:
    members = [member("ada"), member("bob", fails=True)]
    script = [
        to_all(),
        to_one("bob"),
        to_one("bob", "Then what do you guess?"),
        finish("Only ada."),
    ]
    result, model = await lead(*script, members=members)
    assert "bob could not answer exactly this" in refusals(model.requests[2])[0]
    assert (result.status, result.turns) == ("partial", 3)


async def test_it_cannot_say_nothing_for_ever() -> None:
    result, model = await lead(*["Let me think."] * 100)
    assert (result.status, result.turns, len(model.requests)) == ("failed", 0, 3)
    assert "call a tool" in result.ended


async def test_an_empty_reply_is_no_decision() -> None:
    result, model = await lead(ModelReply(parts=(), stop=StopReason.END), to_all(), finish("Fine."))
    assert result.output == "Fine."
    assert all(turn.parts for turn in model.requests[1].turns), "providers refuse empty turns"


@pytest.mark.parametrize("stop", [StopReason.LENGTH, StopReason.REFUSAL])
async def test_a_reply_that_is_no_decision_is_not_taken_for_one(stop: StopReason) -> None:
    cut = ModelReply(parts=(Text("I will"), to_all()), stop=stop)
    result, _ = await lead(cut)
    assert (result.status, result.turns) == ("failed", 0)


async def test_at_random_it_breaks_no_rule() -> None:
    """Whatever a model calls: assigned first, all heard before the end, no count passed."""
    finished = 0
    for seed in range(60):
        chance = random.Random(seed)

        def wild(_: ModelRequest, chance: random.Random = chance) -> Any:
            choices = [
                to_all(f"Q{chance.randrange(3)}"),
                to_one(chance.choice(["ada", "bob", "eve"]), f"Q{chance.randrange(3)}"),
                finish("Done."),
                call("other"),
                "Words.",
            ]
            picked = chance.choices(choices, k=chance.randrange(1, 3))
            return picked if all(isinstance(each, ToolCall) for each in picked) else "Words."

        result, model = await lead(*[wild] * 200, max_count=3)
        acts = [m for m in result.messages if m.sender == "manager"]
        if result.ended == "manager gave the answer":
            finished += 1
            heard = {m.sender for m in result.messages}
            assert {"ada", "bob"} <= heard
            assert acts[-1].to == ("user",)
        assert not acts or acts[0].to != ("user",)
        assert result.turns <= 3 * 2 + 3
        assert len(model.requests) < 60
    assert 10 < finished < 60, "both endings are met"
