"""Replies of models without measure: long plans, long lines, many calls. None of them holds up the process."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import chargehand as ch
from chargehand.facts.limits import Limits
from chargehand.models.base import ToolCall, ToolOutput
from chargehand.models.provider_errors import words_in
from chargehand.roles.aggregate.answer_claims import SourceMarks
from chargehand.roles.aggregate.answer_stream import AnswerStream, JsonMemberStream
from chargehand.roles.aggregate.draft_parser import Draft
from chargehand.roles.partial_json import PartialJson
from chargehand.roles.plan_drafts import Bounds, read_draft
from chargehand.roles.roster import Roster
from chargehand.roles.tool_loop import MOST_CALLS, REPEATS
from tests.guide.conftest import make_plan, make_task
from tests.integration.planner_at_work import CREW, task


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds


@pytest.mark.parametrize("step", [-1, 1, 0])
def test_a_plan_of_ten_thousand_tasks_is_refused_in_no_time(step: int) -> None:
    tasks = [
        task(
            f"t{n}", f"Count the words of chapter {n}", "finder", *([f"t{n + step}"] * (step != 0))
        )
        for n in range(10_000)
    ]
    text = json.dumps({"goal": "g", "tasks": tasks})
    with within(2):  # an old machine; it took a minute
        written, _ = read_draft(text)
        assert written is not None
        faults = Bounds(Roster(CREW), Limits()).faults_in([each.task for each in written.tasks])
    assert [str(fault.message) for fault in faults] == [
        "10,000 tasks are more than the cap of 50; write 50 at most"
    ]


HOSTILE = {
    "one item": json.dumps({"tasks": [{"id": "t1", "for_each": [*range(20_000)]}]}),
    "another member": json.dumps({"other": [1] * 50_000, "tasks": [1]}),
    "no JSON": '{"tasks": [{bad}, ' + '{"a": 1}, ' * 20_000,
    "many items": json.dumps({"tasks": [{"id": n} for n in range(20_000)]}),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [5, 50, 10**9])
def test_a_streamed_plan_is_read_once(name: str, size: int) -> None:
    text, growing = HOSTILE[name], PartialJson("tasks")
    with within(2):
        found = [x for at in range(0, len(text), size) for x in growing.feed(text[at : at + size])]
    expected = {"one item": 1, "another member": 2, "no JSON": 0, "many items": 20_000}
    assert len(found) == expected[name]


@pytest.mark.parametrize("piece", ["some words ", "CONFIDENCE", "  ", "[a", "{", "]"])
def test_a_line_of_many_pieces_is_read_once(piece: str) -> None:
    said: list[str | None] = []
    voice = AnswerStream(said.append)
    hear, member = voice.reading(SourceMarks({"t1": ("t1",)})), JsonMemberStream("answer")
    draft = Draft(SourceMarks({"t1": ("t1",)}))
    with within(5):
        for _ in range(60_000):
            hear(piece)
            draft.hear(piece)
            member.hear(piece)
        voice.settle(draft.finish().text)
    assert "".join(each or "" for each in said) == draft.text


@pytest.mark.parametrize(
    "page", ["<" * 60_000, "<script " * 9_000, "<" + "a" * 60_000, "‹" * 60_000]
)
def test_a_page_in_place_of_an_error_is_read_in_no_time(page: str) -> None:
    with within(0.5):
        words_in(page.encode())
        words_in(json.dumps({"error": {"message": page}}).encode())


def test_tags_and_scripts_are_no_words() -> None:
    page = b"<style>a < b</style><h1>Bad <b>gateway</b></h1><script>if (a<b) c()</script>"
    assert words_in(page)[0].split() == ["Bad", "gateway"]


async def _outputs(*calls: ToolCall) -> tuple[list[str], list[ToolOutput], str]:
    """What a tool was called with by one reply, what the model was told, and how the task ended."""
    made: list[str] = []

    @ch.tool
    def pay(to: str) -> str:
        """Pay."""
        made.append(to)
        return "paid"

    model = ch.ScriptedModel([calls, "done"])
    worker = ch.Worker("w", "Pays", tools=[pay], model=model)
    one = make_task("a", worker="w", limits=ch.TaskLimits(attempts=1))
    async with ch.Supervisor([worker]) as boss:
        result = await boss.run(make_plan(one), on_question="fail")
    last = model.requests[-1].turns[-1].parts
    return made, [each for each in last if isinstance(each, ToolOutput)], str(result.answer.gaps)


async def test_the_same_call_many_times_in_one_reply_is_made_three_times() -> None:
    calls = [ToolCall(str(n), "pay", '{"to":%s"Ada"}' % (" " * (n % 3))) for n in range(300)]
    made, _, gaps = await _outputs(*calls)
    assert made == ["Ada"] * REPEATS
    assert "3 times" in gaps


async def test_calls_past_the_most_of_one_reply_are_refused() -> None:
    calls = [ToolCall(str(n), "pay", json.dumps({"to": f"Ada {n}"})) for n in range(300)]
    made, outputs, _ = await _outputs(*calls)
    assert sorted(made) == sorted(f"Ada {n}" for n in range(MOST_CALLS))
    assert [each.id for each in outputs] == [call.id for call in calls]
    assert {each.is_error for each in outputs[:MOST_CALLS]} == {False}
    assert {each.is_error for each in outputs[MOST_CALLS:]} == {True}
    assert f"may make {MOST_CALLS} calls, and this one makes 300" in outputs[-1].text
