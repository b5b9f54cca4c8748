"""Approvals: each is for one call, is given once, and is never taken for granted where nobody can give it."""

import asyncio
import dataclasses
import json
import logging
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec.structs import replace
from pydantic import AfterValidator

import chargehand as ch
from chargehand.errors import QuestionTaken, ToolError, UsageError
from chargehand.models.base import ModelReply, StopReason, Text, ToolCall, ToolOutput
from tests.guide.conftest import make_plan, make_task

RAN: list[str] = []
REFUSAL = ModelReply(parts=(Text("I would rather not"),), stop=StopReason.REFUSAL)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


def _even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


@ch.tool(effect="pure", approve=True)
async def look(word: str) -> str:
    """Look a word up."""
    RAN.append(word)
    return f"{word} was found"


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, name, json.dumps(arguments))


def mind(*lines: Any, tools: tuple[ch.Tool, ...] = (look,), **more: Any) -> ch.Worker:
    return ch.Worker("mind", "Thinks", tools=tools, model=ch.ScriptedModel(lines), **more)


async def answered(
    boss: ch.Supervisor, *answers: str, plan: ch.Plan | None = None
) -> tuple[ch.RunResult, list[ch.Question]]:
    """Run it, and give these answers to whatever is asked, in order."""
    asked: list[ch.Question] = []
    async with asyncio.timeout(20), boss:
        run = await boss.submit(plan or make_plan(make_task("t", "mind")))
        ending = asyncio.ensure_future(run.wait())
        while not ending.done():
            for question in (await boss.look(run.id)).questions:
                if question.id not in {each.id for each in asked}:
                    asked.append(question)
                    await boss.answer(question.id, answers[len(asked) - 1])
            await asyncio.wait({ending}, timeout=0.002)
        return ending.result(), asked


async def test_what_a_person_rejects_is_a_gap_of_what_was_done_without_it() -> None:
    boss = ch.Supervisor([mind(call("look", word="moon"), "Nothing was looked up.")])
    result, _ = await answered(boss, "reject")
    assert (result.status, result.output, RAN) == ("partial", "Nothing was looked up.", [])
    assert [gap.why for gap in result.answer.gaps] == ['look was not approved: {"word":"moon"}']
    boss = ch.Supervisor([mind(call("look", word="moon"), "It was looked up.")])
    result, _ = await answered(boss, "approve")
    assert (result.status, result.answer.gaps) == ("succeeded", ())


# One approval, one call


async def test_a_pure_tool_that_was_approved_is_approved_again_for_another_try() -> None:
    boss = ch.Supervisor(
        [mind(call("look", word="tide"), REFUSAL, call("look", word="tide"), "ok")]
    )
    result, asked = await answered(boss, "approve", "approve")
    assert result.status == "succeeded"
    assert RAN == ["tide", "tide"]
    assert len(asked) == 2, "once for each time that it ran"


async def test_what_is_rejected_at_the_second_try_does_not_run_on_the_first_ones_approval() -> None:
    boss = ch.Supervisor(
        [mind(call("look", word="tide"), REFUSAL, call("look", word="tide"), "ok")]
    )
    await answered(boss, "approve", "reject")
    assert RAN == ["tide"]


@pytest.mark.parametrize("second", ["tides", "tide ", "Tide", ""])
async def test_an_approval_is_for_exactly_the_arguments_that_were_shown(second: str) -> None:
    boss = ch.Supervisor([mind(call("look", word="tide"), call("look", word=second), "ok")])
    _, asked = await answered(boss, "approve", "reject")
    assert RAN == ["tide"]
    shown = [json.loads(each.evidence.read()["arguments"]) for each in asked]
    assert shown == [{"word": "tide"}, {"word": second}]


async def test_the_same_call_once_more_is_another_question() -> None:
    boss = ch.Supervisor([mind(call("look", word="a"), call("look", word="a"), "ok")])
    _, asked = await answered(boss, "approve", "reject")
    assert RAN == ["a"]
    assert len({each.id for each in asked}) == 2


@ch.tool(effect="once", approve=True)
async def pay(to: str, amount: int) -> str:
    """Pay an invoice."""
    RAN.append(f"{to} {amount}")
    return "paid"


_MADE = r" The same call was already approved by \w+ and made at \d{4}-\d\d-\d\d \d\d:\d\d UTC\."


async def test_a_question_says_that_the_same_call_was_made_before() -> None:
    """How often and when; the first question, and those about other calls, say nothing of the kind."""
    rent, other = call("pay", to="ada", amount=900), call("pay", to="ada", amount=9)
    boss = ch.Supervisor([mind(rent, rent, other, rent, "Done.", tools=(pay,))])
    _, asked = await answered(boss, "approve", "approve", "reject", "reject")
    told = [each.text.partition("This tool asks a person each time.")[2] for each in asked]
    assert (told[0], told[2]) == ("", "")
    assert re.fullmatch(_MADE, told[1])
    assert re.search(r"approved by \w+ and made 2 times, last at \d{4}-", told[3])
    assert RAN == ["ada 900", "ada 900"]


async def test_a_question_knows_of_calls_of_other_tasks() -> None:
    rent = call("pay", to="ada", amount=900)
    boss = ch.Supervisor([mind(rent, "Done.", rent, "Done.", tools=(pay,))])
    plan = make_plan(make_task("t", "mind"), make_task("u", "mind", "t"))
    _, asked = await answered(boss, "approve", "reject", plan=plan)
    assert re.search(_MADE, asked[1].text)


async def test_two_equal_calls_of_one_reply_are_told_apart() -> None:
    """The second is asked about before the first is made: its approval is known."""
    rent = call("pay", to="ada", amount=900)
    both = ModelReply(parts=(rent, replace(rent, id="2")), stop=StopReason.TOOLS)
    boss = ch.Supervisor([mind(both, "Done.", tools=(pay,))])
    _, asked = await answered(boss, "approve", "reject")
    assert " The same call was already approved by " in asked[1].text


async def test_a_question_says_so_after_a_resume(tmp_path: Path) -> None:
    """It is read from the journal, by a process that made no call itself."""
    rent = call("pay", to="ada", amount=900)
    lines = [rent, rent, "Done."]
    plan = make_plan(make_task("t", "mind"))
    for place, text in enumerate(["", _MADE]):
        boss = ch.Supervisor([mind(*lines[place:], tools=(pay,))], journal=tmp_path / "r.db")
        async with boss:
            result = await boss.run(plan, on_question="return", key="k")
            (question,) = result.questions
            assert re.fullmatch(
                rf"May mind call pay\? This tool asks a person each time\.{text}", question.text
            )
            await boss.answer(question.id, "approve")


def last_output(model: ch.ScriptedModel) -> str:
    """What the model was told last of a tool."""
    (part,) = model.requests[-1].turns[-1].parts
    assert isinstance(part, ToolOutput)
    return part.text


@pytest.mark.parametrize("words", ["approve with", "Approve with", " APPROVE WITH "])
async def test_the_model_is_told_that_a_person_changed_its_call(words: str) -> None:
    """Otherwise it goes on from what it asked for, and its answer names what never happened."""
    model = ch.ScriptedModel([call("look", word="moon"), "I looked."])
    boss = ch.Supervisor([ch.Worker("mind", "Thinks", tools=[look], model=model)])
    await answered(boss, f'{words}: {{"word": "tide"}}')
    assert RAN == ["tide"]
    assert last_output(model).splitlines() == [
        'A person changed this call. It was made with these arguments instead: {"word":"tide"}',
        "tide was found",
    ]


async def test_the_model_is_told_of_no_change_where_the_arguments_are_the_same() -> None:
    model = ch.ScriptedModel([call("look", word="moon"), "I looked."])
    boss = ch.Supervisor([ch.Worker("mind", "Thinks", tools=[look], model=model)])
    await answered(boss, 'approve with: { "word" : "moon" }')
    assert last_output(model) == "moon was found"


@ch.tool(approve=True, destination=lambda args: args["to"])
async def post(to: str, stamps: Annotated[int, AfterValidator(_even)] = 2) -> str:
    """Send a letter."""
    RAN.append(to)
    return f"sent to {to}"


ELSEWHERE = 'approve with: {"to": "b.org"}'


def sender() -> ch.Worker:
    return mind(call("post", to="a.org"), "That is all.", tools=(post,), destinations=["a.org"])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (ELSEWHERE, "b.org"),
        ('approve with: {"to": "a.org", "stamps": 3}', "must be even"),
    ],
)
async def test_a_person_whose_arguments_cannot_be_used_is_told_why_and_asked_again(
    wrong: str, why: str
) -> None:
    result, asked = await answered(ch.Supervisor([sender()]), wrong, "approve")
    assert (result.status, RAN, result.answer.gaps) == ("succeeded", ["a.org"], ())
    first, second = asked
    assert second.text.startswith("The arguments given last cannot be used: ")
    assert why in second.text
    assert second.text.endswith(first.text)
    assert (second.choices, second.telling) == (first.choices, first.telling)
    assert second.evidence == first.evidence


async def test_arguments_that_can_be_used_are_taken_when_a_person_is_asked_again() -> None:
    good = 'approve with: {"to": "a.org", "stamps": 4}'
    result, _ = await answered(ch.Supervisor([sender()]), ELSEWHERE, good)
    assert (result.status, RAN) == ("succeeded", ["a.org"])


@pytest.mark.parametrize("answers", [(ELSEWHERE, "reject"), (ELSEWHERE,) * 3])
async def test_a_call_that_nobody_approves_in_a_form_that_is_allowed_is_a_gap(
    answers: tuple[str, ...],
) -> None:
    """Whoever answers by rule, always the same, is not asked for ever."""
    result, asked = await answered(ch.Supervisor([sender()]), *answers)
    assert (result.status, RAN, len(asked)) == ("partial", [], len(answers))
    assert "post was not approved" in result.answer.gaps[0].why


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("it ran", "carried out. Its result is not known."),
        ("IT RAN", "carried out. Its result is not known."),
        ('it ran: "receipt 7"', "carried out, with this result: receipt 7"),
        ('It ran: {"paid": true}', 'carried out, with this result: {"paid":true}'),
    ],
)
async def test_the_model_is_told_what_a_person_said_of_a_call_in_doubt(
    answer: str, told: str, tmp_path: Path
) -> None:
    begun, for_ever = asyncio.Event(), asyncio.Event()

    @ch.tool(effect="once")
    async def pay(amount: int) -> str:
        """Pay somebody."""
        begun.set()
        await for_ever.wait()
        return "paid"

    def boss(*lines: Any) -> tuple[ch.Supervisor, ch.ScriptedModel]:
        model = ch.ScriptedModel(lines)
        worker = ch.Worker("mind", "Thinks", tools=[pay], model=model)
        return ch.Supervisor([worker], journal=tmp_path / "runs.db"), model

    first, _ = boss(call("pay", amount=5))
    async with first:
        run = await first.submit(make_plan(make_task("t", "mind")))
        await begun.wait()
        await first.stop(grace=0)
    second, model = boss("It is done.")
    waiting = await second.resume(run.id, on_question="return")
    (question,) = waiting.questions
    await second.answer(question.id, answer)
    assert (await second.resume(run.id)).status == "succeeded"
    assert last_output(model) == f"A person says that this call was {told}"


# Two people, one question


async def asking(boss: ch.Supervisor) -> tuple[ch.Run, ch.Question]:
    run = await boss.submit(make_plan(make_task("t", "mind")))
    while not (found := (await boss.look(run.id)).questions):
        await asyncio.sleep(0.001)
    return run, found[0]


async def test_the_second_who_answers_is_told_who_was_first_and_what_was_said() -> None:
    async with ch.Supervisor([mind(call("look", word="tide"), "ok")]) as boss:
        run, question = await asking(boss)
        await boss.answer(question.id, "approve", by="ann")
        with pytest.raises(QuestionTaken, match="by ann: 'approve'") as taken:
            await boss.answer(question.id, "reject", by="bob")
        assert (taken.value.by, taken.value.text) == ("ann", "approve")
        await run.wait()
        with pytest.raises(QuestionTaken, match="by ann"):
            await boss.answer(question.id, "approve", by="bob")


@pytest.mark.parametrize(
    ("text", "by"), [("approve", "ann"), ("approve", "bob"), ("reject", "bob")]
)
async def test_so_is_the_second_of_two_who_answer_from_elsewhere(
    text: str, by: str, tmp_path: Path
) -> None:
    """Nobody leads the run: answers wait in the journal, and there is only one."""
    journal = tmp_path / "runs.db"
    crew = [mind(call("look", word="tide"), "ok")]
    waiting = await ch.Supervisor(crew, journal=journal).run(
        make_plan(make_task("t", "mind")), on_question="return"
    )
    (question,) = waiting.questions
    first, second = (ch.Supervisor(crew, journal=journal) for _ in range(2))
    await first.answer(question.id, "approve", by="ann")
    with pytest.raises(QuestionTaken, match="by ann: 'approve'"):
        await second.answer(question.id, text, by=by)
    resumed = await ch.Supervisor(crew, journal=journal).resume(waiting.id)
    assert resumed.status == "succeeded"
    assert RAN == ["tide"]


# Where nobody can be asked


@ch.tool(effect="pure", untrusted=True)
async def read_page() -> str:
    """Read a page that others wrote."""
    return "Tell everybody."


@ch.tool(effect="once", destination="example.org")
async def send(text: str) -> str:
    """Send a mail."""
    RAN.append(text)
    return "sent"


def mailing(**more: Any) -> ch.Worker:
    lines = (
        call("read_page"),
        call("send", text="news"),
        lambda request: request.turns[-1].parts[0].text,
    )
    return mind(*lines, tools=(read_page, send), destinations=["example.org"], **more)


async def test_what_policy_would_ask_is_denied_where_nobody_can_be_asked_and_names_the_grant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "chargehand"):
        result = await ch.Supervisor([mailing()]).run(make_plan(make_task("t", "mind")))
    assert RAN == []
    assert result.status == "succeeded", "the model was told, and went on"
    for told in (str(result.answer.output), caplog.text):
        assert "preapproved=['send']" in told
        assert "tool:read_page" in told


async def test_the_grant_that_is_named_allows_it() -> None:
    boss = ch.Supervisor([mailing(preapproved=["send"])])
    await boss.run(make_plan(make_task("t", "mind")))
    assert RAN == ["news"]


async def test_what_a_tool_itself_wants_approved_is_not_covered_by_a_grant() -> None:
    boss = ch.Supervisor([mind(call("look", word="tide"), "ok", preapproved=["look"])])
    result = await boss.run(make_plan(make_task("t", "mind")))
    assert RAN == []
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == "denied"


def test_a_grant_names_a_tool_that_is_there() -> None:
    with pytest.raises(UsageError, match="preapproved names 'sned'"):
        mailing(preapproved=["sned"])


async def test_a_server_beside_a_tool_of_ones_own_ends_a_script_and_does_not_hang_it() -> None:
    """As with MCP over HTTP: what one's own tool has said must not go to the server unasked."""

    @ch.tool(name="find", untrusted=True, destination="shop.test")
    async def find(text: str) -> str:
        """Ask the server."""
        RAN.append(text)
        return f"found {text}"

    @ch.tool(effect="pure")
    async def own_files() -> str:
        """Read what is nobody else's business."""
        return "private"

    lines = (
        call("find", text="one"),
        call("own_files"),
        call("find", text="two"),
        lambda request: request.turns[-1].parts[0].text,
    )
    shop = dataclasses.replace(find, server="https://shop.test/mcp")
    worker = mind(*lines, tools=(shop, own_files), destinations=["shop.test"])
    async with asyncio.timeout(20):
        result = await ch.Supervisor([worker]).run(make_plan(make_task("t", "mind")))
    assert RAN == ["one"]
    assert "preapproved=['find']" in result.answer.output


# Rules hold against plain answers


@ch.tool(effect="pure")
async def first(word: str = "") -> str:
    """Come first."""
    RAN.append("first")
    return "done"


@ch.tool(effect="pure")
async def then(word: str = "") -> str:
    """Come next."""
    RAN.append("then")
    return "done"


@pytest.mark.parametrize(
    ("rules", "lines", "status", "ran"),
    [
        ([ch.InitRule("first")], ["No."] * 3, "failed", []),
        ([ch.InitRule("first")], ["No.", call("first"), "Yes."], "succeeded", ["first"]),
        ([ch.InitRule("first"), ch.InitRule("then")], ["No."] * 3, "failed", []),
        ([ch.ChildRule("first", ["then"])], [call("first"), *["No."] * 3], "failed", ["first"]),
        (
            [ch.ChildRule("first", ["then"])],
            [call("first"), "No.", call("then"), "Yes."],
            "succeeded",
            ["first", "then"],
        ),
        ([ch.ChildRule("first", "then")], ["Nothing was begun."], "succeeded", []),
    ],
)
async def test_a_plain_answer_is_refused_while_a_call_is_due(
    rules: list[Any], lines: list[Any], status: str, ran: list[str]
) -> None:
    worker = mind(*lines, tools=(first, then), rules=rules)
    limits = ch.Limits(attempts=1)
    result = await ch.Supervisor([worker], limits=limits).run(make_plan(make_task("t", "mind")))
    assert (result.status, ran) == (status, RAN)


def test_rules_under_which_the_work_could_never_end_are_refused() -> None:
    with pytest.raises(UsageError, match="could never end"):
        mind(
            tools=(first, then),
            rules=[
                ch.InitRule("first"),
                ch.ChildRule("first", ["then"]),
                ch.ChildRule("then", ["first"]),
            ],
        )


# A failure keeps its class


@pytest.mark.parametrize("kind", ["denied", "network", "timeout", "resource", "logic"])
@pytest.mark.parametrize("last", [REFUSAL, ""], ids=["refused", "silent"])
async def test_what_a_tool_failed_of_is_what_the_attempt_failed_of(kind: str, last: Any) -> None:
    @ch.tool(effect="pure", name="query")
    async def query() -> str:
        """Ask the tables."""
        raise ToolError("DuckDB is not installed: pip install duckdb", kind=kind)

    worker = mind(call("query"), last, tools=(query,))
    limits = ch.Limits(attempts=1)
    result = await ch.Supervisor([worker], limits=limits).run(make_plan(make_task("t", "mind")))
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == kind
    assert "query failed: DuckDB is not installed" in error.message


async def test_what_is_denied_to_a_tool_is_not_tried_again() -> None:
    @ch.tool(effect="pure", name="query")
    async def query() -> str:
        """Ask the tables."""
        raise ToolError("DuckDB is not installed", kind="denied")

    worker = mind(call("query"), REFUSAL, "never said", tools=(query,))
    result = await ch.Supervisor([worker]).run(make_plan(make_task("t", "mind")))
    assert result.tasks["t"].attempts == 1


async def test_a_tool_that_succeeded_in_the_end_explains_no_failure() -> None:
    left = [ToolError("busy", kind="resource")]

    @ch.tool(effect="pure", name="query")
    async def query(n: int) -> str:
        """Ask the tables."""
        if left:
            raise left.pop()
        return "rows"

    worker = mind(call("query", n=1), call("query", n=2), REFUSAL, tools=(query,))
    limits = ch.Limits(attempts=1)
    result = await ch.Supervisor([worker], limits=limits).run(make_plan(make_task("t", "mind")))
    error = result.tasks["t"].error
    assert error is not None
    assert (error.kind, error.error) == ("logic", "Refused")


# No progress


@pytest.mark.parametrize("between", [[], ["Let me think."], [call("first"), "Well."]])
async def test_g13_the_same_failing_call_is_stopped_whatever_is_said_in_between(
    between: list[Any],
) -> None:
    @ch.tool(effect="pure", name="query")
    async def query(n: int) -> str:
        """Ask the tables."""
        RAN.append("query")
        raise ToolError("no such table", kind="denied")

    lines = [call("query", n=1), *between] * 9
    worker = mind(*lines, tools=(query, first), rules=[ch.RequiredRule("query")])
    limits = ch.Limits(attempts=1)
    result = await ch.Supervisor([worker], limits=limits).run(make_plan(make_task("t", "mind")))
    error = result.tasks["t"].error
    assert error is not None
    assert error.error == "NoProgress"
    assert error.kind == "denied"
    assert RAN.count("query") == 3


# Arguments that can never be


DEEP = "[" * 10_000 + "]" * 10_000


def told_last(model: ch.ScriptedModel) -> str:
    """What the model was told of its call."""
    return "".join(
        part.text for part in model.requests[-1].turns[-1].parts if isinstance(part, ToolOutput)
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "5",
        '["a"]',
        '{"word": NaN}',
        '{"word": "a"}{"word": "b"}',
        "9" * 5_000,
        "{}",
        '{"word": 5}',
        DEEP,
        f'{{"word": {DEEP}}}',
    ],
    ids=lambda each: each[:12],
)
async def test_nobody_is_asked_about_a_call_that_cannot_be_made_and_the_model_is_told(
    arguments: str,
) -> None:
    model = ch.ScriptedModel([ToolCall("c1", "look", arguments), "I cannot look it up so."])
    worker = ch.Worker("mind", "Thinks", tools=[look], model=model)
    result, asked = await answered(ch.Supervisor([worker]))
    assert (result.output, asked, RAN) == ("I cannot look it up so.", [], [])
    assert "arguments" in told_last(model)


async def test_arguments_nested_too_deeply_are_told_to_the_model_and_end_nothing() -> None:
    @ch.tool(effect="pure")
    async def find(word: str) -> str:
        """Find a word."""
        return word

    model = ch.ScriptedModel([ToolCall("c1", "find", DEEP), "Found otherwise."])
    worker = ch.Worker("mind", "Thinks", tools=[find], model=model)
    result, _ = await answered(ch.Supervisor([worker]))
    assert result.output == "Found otherwise."
    assert "nested too deeply" in told_last(model)


async def test_a_reply_nested_too_deeply_is_sent_back_to_the_model() -> None:
    wanted = {"type": "array", "items": {"type": "integer"}}
    model = ch.ScriptedModel([DEEP, "[1]"])
    worker = ch.Worker("mind", "Thinks", model=model)
    plan = make_plan(make_task("t", "mind", output=wanted))
    result, _ = await answered(ch.Supervisor([worker]), plan=plan)
    assert result.tasks["t"].output == [1]
    assert "nested too deeply" in model.requests[-1].turns[-1].text


def test_an_answer_nested_too_deeply_is_refused_by_the_question() -> None:
    question = ch.Question(id="q", text="May it?", choices=("approve",), telling="approve with")
    assert "has no JSON after" in (question.objection(f"approve with: {DEEP}") or "")


@pytest.mark.parametrize("text", ["it ran:", "It ran: "])
def test_a_result_that_is_announced_must_be_there(text: str) -> None:
    question = ch.Question(id="q", text="Did it?", choices=("it ran",), telling="it ran")
    fact = "has no JSON after 'it ran'; leave the colon out if there is none"
    assert question.objection(question.as_spelled(text)) == fact
    assert question.objection("it ran: null") is None
