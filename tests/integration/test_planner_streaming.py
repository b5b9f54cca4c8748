"""Plans that are carried out while they are written: the growing JSON, and the planner that hears it."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chargehand as ch
from chargehand.engines.brief import Fenced
from chargehand.errors import ModelUnreachable
from chargehand.facts.events import Approach, CancelRequested, PlanOpened
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Cancelled, Done, ErrorClass, Failed
from chargehand.facts.plan import Strategy
from chargehand.models.base import Abilities, ModelReply, ModelRequest, StopReason, Text
from chargehand.roles.partial_json import PartialJson
from chargehand.testing import run_virtual
from tests.integration.planner_at_work import (
    BOTH,
    GRAZ,
    LYON,
    Seated,
    cut_off,
    plan_text,
    task,
)

# JSON in pieces

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
MEMBERS = st.dictionaries(st.text().filter(lambda name: name != "tasks"), JSON, max_size=4)
FENCES = st.sampled_from([("", ""), ("```json\n", "\n```"), ("\n ```\n", "\n```\n"), (" \n", " ")])


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


def heard(pieces: Sequence[str]) -> list[tuple[str, Any]]:
    growing = PartialJson("tasks")
    return [found for piece in pieces for found in growing.feed(piece)]


@given(
    before=MEMBERS,
    tasks=st.lists(JSON, max_size=5),
    after=MEMBERS,
    fence=FENCES,
    indent=st.sampled_from([None, 0, 2]),
    is_ascii=st.booleans(),
    cuts=st.lists(st.integers(min_value=0), max_size=30),
)
def test_json_cut_anywhere_yields_what_the_whole_of_it_holds(
    before: dict[str, Any],
    tasks: list[Any],
    after: dict[str, Any],
    fence: tuple[str, str],
    indent: int | None,
    is_ascii: bool,
    cuts: list[int],
) -> None:
    after = {name: value for name, value in after.items() if name not in before}
    whole = {**before, "tasks": tasks, **after}
    text = json.dumps(whole, indent=indent, ensure_ascii=is_ascii)
    found = heard(pieces_of(f"{fence[0]}{text}{fence[1]}", cuts))
    expected = [*before.items(), *(("tasks", each) for each in tasks), *after.items()]
    assert found == expected


@given(
    text=st.text(alphabet='{}[]",:\\ tasks01`\n', max_size=60),
    cuts=st.lists(st.integers(min_value=0), max_size=9),
)
def test_whatever_is_no_json_is_heard_alike_however_it_is_cut(text: str, cuts: list[int]) -> None:
    assert heard(pieces_of(text, cuts)) == heard([text])


def test_an_item_is_there_with_its_last_bracket() -> None:
    growing = PartialJson("tasks")
    assert growing.feed('{"goal": "x", "tasks": [{"id": "a}]", "n": [1]') == [("goal", "x")]
    assert growing.feed("}") == [("tasks", {"id": "a}]", "n": [1]})]
    assert growing.feed(', {"id": "b') == []
    assert growing.feed('"}]') == [("tasks", {"id": "b"})]
    assert growing.feed(', "rest": 1}') == [("rest", 1)]
    assert growing.feed('{"tasks": [1]}') == [], "it is over"


@pytest.mark.parametrize(
    "text",
    [
        '[{"tasks": [1]}]',
        '{"tasks": {"a": 1}}',
        '{"a": {"tasks": [1, 2]}}',
        '{"tasks": [1}',
        '{"tasks" [1]}',
        "}",
        "",
    ],
)
def test_nothing_is_taken_for_a_task_that_is_none(text: str) -> None:
    assert [value for name, value in heard(list(text)) if name == "tasks"] == []


def test_a_name_is_known_however_it_is_written() -> None:
    assert heard(['{"t\\u0061sks" : [1]}']) == [("tasks", 1)]


def test_the_time_it_takes_grows_with_the_text_alone() -> None:
    """One long string in pieces of one letter: ten times the text, far from a hundred times the time."""

    def seconds(count: int) -> float:
        growing = PartialJson("tasks")
        began = time.process_time()
        growing.feed('{"tasks": ["')
        for _ in range(count):
            growing.feed("x")
        growing.feed('"]}')
        return time.process_time() - began

    short = min(seconds(3_000) for _ in range(5))
    assert min(seconds(30_000) for _ in range(3)) < 40 * short


# The planner that hears it


class Speaker:
    """A model that says its replies piece by piece, a second each; an error ends a reply early."""

    name = "scripted:speaker"
    account = "scripted:speaker"
    abilities = Abilities(is_real=False)

    def __init__(self, *replies: Sequence[str | Exception], stop: StopReason = StopReason.END):
        self.requests: list[ModelRequest] = []
        self._replies = list(replies)
        self._stop = stop

    async def ask(self, request: ModelRequest) -> ModelReply:
        raise AssertionError("a dictation is heard while it is spoken")

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        self.requests.append(request)
        said = self._replies.pop(0)
        for piece in said:
            await asyncio.sleep(1)
            if isinstance(piece, Exception):
                raise piece
            yield piece
        text = "".join(str(piece) for piece in said)
        yield ModelReply(parts=(Text(text),), stop=self._stop, model="speaker")


class Timed(Seated):
    """Notes when each proposal was made, by the loop's time."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.times: dict[str, float] = {}

    async def propose(self, run: str, event: Any) -> Any:
        written = await super().propose(run, event)
        what = event.task.id if hasattr(event, "task") else type(event).__name__
        self.times[what] = asyncio.get_running_loop().time()
        return written


def streaming(model: Any, **more: Any) -> Seated:
    return Seated(model, Approach.STREAM, **more)


HEAD = '{"goal": "Compare towers", "instruction": "One sentence", "strategy": "select", "tasks": ['
ONE, TWO, THREE = (json.dumps(each) for each in (LYON, GRAZ, BOTH))
WHOLE = plan_text(LYON, GRAZ, BOTH)


def test_a_task_starts_while_the_next_one_is_being_written() -> None:
    model = Speaker([HEAD, ONE, ",", TWO[:20], TWO[20:], ",", THREE, "]}"])
    seat = Timed(model, Approach.STREAM)
    assert isinstance(run_virtual(seat.plan()), Done)
    assert seat.times == {"PlanOpened": 2, "t1": 2, "t2": 5, "t3": 7, "PlanSealed": 8}
    assert seat.kinds == ["PlanOpened", "TaskAdded", "TaskAdded", "TaskAdded", "PlanSealed"]
    opened = next(event for event in seat.journal if isinstance(event, PlanOpened))
    assert (opened.goal, opened.instruction) == ("Compare towers", "One sentence")
    assert opened.strategy is Strategy.SELECT


@given(cuts=st.lists(st.integers(min_value=0), max_size=12))
def test_a_plan_comes_to_the_same_however_it_is_cut(cuts: list[int]) -> None:
    seat = streaming(Speaker(pieces_of(f"```json\n{WHOLE}\n```", cuts)))
    assert isinstance(run_virtual(seat.plan()), Done)
    assert [each.id for each in seat.tasks] == ["t1", "t2", "t3"]


WRITTEN = st.builds(
    lambda id_, words, worker, needs: task(id_, words, worker, *needs),
    st.sampled_from(["t1", "t2", "t3", "t4"]),
    st.sampled_from(["Find the towers of Lyon", "Count the bridges", "Do it", ""]),
    st.sampled_from(["finder", "counter", "nobody"]),
    st.lists(st.sampled_from(["t1", "t2", "t3"]), max_size=2, unique=True),
)


def sound_beginning(tasks: list[dict[str, Any]]) -> list[str]:
    """The ids of the tasks before the first that has a fault, found in the most simple-minded way."""
    ids: list[str] = []
    for each in tasks:
        # A need of itself is dropped: it can only be meant as none.
        is_known = all(need in ids for need in each["needs"] if need != each["id"])
        is_sound = each["description"] not in ("Do it", "") and each["worker"] != "nobody"
        if not is_sound or not is_known or each["id"] in ids:
            break
        ids.append(each["id"])
    return ids


def in_order(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first order, of all there are, in which every task stands behind what it needs."""
    for order in itertools.permutations(tasks):
        before: set[str] = set()
        for each in order:
            if not before.issuperset(set(each["needs"]) - {each["id"]}):
                break
            before.add(each["id"])
        else:
            return list(order)
    return tasks


@given(
    tasks=st.lists(WRITTEN, max_size=5, unique_by=lambda each: each["id"]),
    cuts=st.lists(st.integers(min_value=0), max_size=12),
)
def test_of_any_plan_the_sound_beginning_is_carried_out(
    tasks: list[dict[str, Any]], cuts: list[int]
) -> None:
    text = plan_text(*tasks)
    seat = streaming(Speaker(pieces_of(text, cuts), [text], [text]))
    outcome = run_virtual(seat.plan())
    ids = [each.id for each in seat.tasks]
    is_whole = 0 < len(tasks) == len(sound_beginning(in_order(tasks)))
    assert ids[: len(sound_beginning(tasks))] == sound_beginning(tasks)
    assert sorted(ids) == sorted(each["id"] for each in tasks if is_whole or each["id"] in ids)
    assert isinstance(outcome, Done) == is_whole
    assert is_whole or ids == sound_beginning(tasks)


async def test_tasks_written_before_the_goal_wait_for_it() -> None:
    text = json.dumps({"tasks": [LYON], "goal": "g", "instruction": "i", "strategy": "reduce"})
    seat = streaming(ch.ScriptedModel([text]))
    assert isinstance(await seat.plan(), Done)
    opened = next(event for event in seat.journal if isinstance(event, PlanOpened))
    assert (opened.goal, opened.strategy) == ("g", Strategy.REDUCE)


LATE_FAULTS = [
    (task("t2", "Find the towers of Graz", "nobody"), "worker 'nobody' is not on the roster"),
    (task("t2", "Compare the heights", "counter", "t3"), "'t3', which is not in the plan"),
    (task("t1", "Find something else"), "an accepted task has this id"),
    (task("t2", "Handle the rest"), "too vague"),
    (task("t2", ""), "the description is empty"),
    ({"id": "t2", "worker": "finder"}, "description: is missing"),
]


@pytest.mark.parametrize(("faulty", "fault"), LATE_FAULTS)
async def test_a_late_fault_undoes_nothing(faulty: dict[str, Any], fault: str) -> None:
    rest = json.dumps({"tasks": [GRAZ, BOTH]})
    model = ch.ScriptedModel([plan_text(LYON, faulty), rest])
    seat = streaming(model)
    assert isinstance(await seat.plan(), Done)
    assert seat.kinds == ["PlanOpened", "TaskAdded", "TaskAdded", "TaskAdded", "PlanSealed"]
    said = model.requests[1].turns[-1].text
    assert fault in said
    assert f"- t1 (finder): {LYON['description']}" in said
    schema: Any = model.requests[1].schema
    assert list(schema["properties"]) == ["tasks"]
    ids = schema["properties"]["tasks"]["items"]["properties"]["id"]["enum"]
    assert ids[:2] == ["t2", "t3"]


async def test_nothing_after_a_fault_is_let_in() -> None:
    wrong = task("t2", "Find the towers of Graz", "nobody")
    model = ch.ScriptedModel([plan_text(LYON, wrong, task("t3", "Count towers", "counter"))] * 3)
    seat = streaming(model)
    outcome = await seat.plan()
    assert isinstance(outcome, Failed)
    assert [each.id for each in seat.tasks] == ["t1"]


async def test_what_is_missing_may_turn_out_to_be_nothing() -> None:
    model = ch.ScriptedModel([plan_text(LYON, task("t2", "Do it")), '{"tasks": []}'])
    seat = streaming(model)
    assert isinstance(await seat.plan(), Done)
    assert seat.kinds == ["PlanOpened", "TaskAdded", "PlanSealed"]


async def test_a_plan_that_cannot_be_mended_fails_with_its_faults_and_keeps_its_tasks() -> None:
    wrong = json.dumps({"tasks": [task("t2", "Find x", "nobody")]})
    model = ch.ScriptedModel([plan_text(LYON, task("t2", "Find x", "nobody")), wrong, wrong])
    seat = streaming(model)
    outcome = await seat.plan()
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorClass.LOGIC
    assert outcome.message.startswith("no plan: ")
    assert "task 't2': worker 'nobody' is not on the roster" in outcome.message
    assert seat.kinds == ["PlanOpened", "TaskAdded"]
    seat.done("t1")
    assert seat.live_run.schedule.status == "partial"


async def test_nonsense_three_times_opens_no_plan() -> None:
    model = ch.ScriptedModel(["Sure!", '{"tasks": 3}', plan_text(LYON, strategy="vote")])
    seat = streaming(model)
    outcome = await seat.plan()
    assert isinstance(outcome, Failed)
    assert "not a plan:" in outcome.message
    assert "vote" in outcome.message
    assert seat.kinds == []
    schemas: list[Any] = [request.schema for request in model.requests]
    assert [next(iter(schema["properties"])) for schema in schemas] == ["goal"] * 3


async def test_more_tasks_than_the_cap_are_not_let_in() -> None:
    model = ch.ScriptedModel([WHOLE, '{"tasks": []}'])
    seat = streaming(model, limits=Limits(tasks=2))
    assert isinstance(await seat.plan(), Done)
    assert "3 tasks are more than the cap of 2" in model.requests[1].turns[-1].text
    assert [each.id for each in seat.tasks] == ["t1", "t2"]


def test_a_reply_that_breaks_off_and_begins_anew_loses_nothing() -> None:
    broken: list[str | Exception] = [HEAD, ONE, ",", TWO[:15], ModelUnreachable("reset")]
    model = Speaker(broken, [HEAD, ONE, ",", TWO, "]}"])
    seat = streaming(model)
    assert isinstance(run_virtual(seat.plan()), Done)
    assert seat.kinds == ["PlanOpened", "TaskAdded", "TaskAdded", "PlanSealed"]


def test_a_reply_that_begins_anew_otherwise_is_mended() -> None:
    broken: list[str | Exception] = [HEAD, ONE, ModelUnreachable("reset")]
    other = plan_text(
        task("t1", "Find the towers of Graz"), task("t2", "Count them", "counter", "t1")
    )
    rest = json.dumps({"tasks": [GRAZ, BOTH]})
    model = Speaker(broken, [other], [rest])
    seat = streaming(model)
    assert isinstance(run_virtual(seat.plan()), Done)
    assert [each.description for each in seat.tasks] == [
        each["description"] for each in (LYON, GRAZ, BOTH)
    ]
    assert "an accepted task has this id" in model.requests[-1].turns[-1].text


async def test_a_reply_cut_at_its_maximum_length_is_gone_on_from() -> None:
    model = ch.ScriptedModel([cut_off(f"{HEAD}{ONE}, {TWO[:30]}"), json.dumps({"tasks": [GRAZ]})])
    seat = streaming(model)
    assert isinstance(await seat.plan(), Done)
    assert [each.id for each in seat.tasks] == ["t1", "t2"]
    assert "cut off at the maximum length" in model.requests[1].turns[-1].text


async def test_a_reply_cut_before_its_first_task_is_no_plan() -> None:
    outcome = await streaming(ch.ScriptedModel([cut_off(HEAD)])).plan()
    assert isinstance(outcome, Failed)
    assert "raise max_tokens" in outcome.message


async def test_a_provider_that_is_down_is_not_a_bad_plan() -> None:
    """The error comes up by its own kind, not in a group, so that the system task is tried again."""
    with pytest.raises(ModelUnreachable):
        await streaming(ch.ScriptedModel([ModelUnreachable("down")] * 3)).plan()


async def test_a_run_that_stops_takes_no_more_tasks() -> None:
    seat = streaming(ch.ScriptedModel([WHOLE]))
    seat.tell(CancelRequested(at=seat.now()))
    assert isinstance(await seat.try_plan(), Cancelled)


# After a restart


SCRIPTS = [
    [WHOLE],
    [plan_text(LYON, task("t2", "Do it")), json.dumps({"tasks": [GRAZ, BOTH]})],
    [
        plan_text(LYON, GRAZ, task("t3", "Compare", "nobody")),
        json.dumps({"tasks": [task("t3", "Handle it")]}),
        json.dumps({"tasks": [BOTH]}),
    ],
]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("dies_after", range(6))
async def test_wherever_its_process_ends_a_plan_is_gone_on_from(
    script: list[str], dies_after: int
) -> None:
    """Nothing is asked twice that was answered, nothing added twice, and the same questions are asked."""
    model = ch.ScriptedModel(script)
    seat = streaming(model)
    seat.dies_after = dies_after
    try:
        await seat.try_plan()
    except Fenced:
        seat.dies_after = None
        model.add(script[len(model.requests) - 1])  # in case its end was not written down
    seat.dies_after = None
    assert isinstance(await seat.plan(), Done)
    assert seat.kinds == ["PlanOpened", "TaskAdded", "TaskAdded", "TaskAdded", "PlanSealed"]
    assert [each.id for each in seat.tasks] == ["t1", "t2", "t3"]


@pytest.mark.parametrize(
    "again",
    [
        [[HEAD, ONE, ",", TWO, "]}"]],
        [[plan_text(task("t1", "Find the towers of Graz"))], [json.dumps({"tasks": [GRAZ]})]],
    ],
)
def test_a_plan_whose_process_ends_in_the_middle_of_a_reply_is_gone_on_from(
    again: list[list[str]],
) -> None:
    """The reply was not recorded and is asked for again; the new one may say otherwise."""
    model = Speaker([HEAD, ONE, ",", TWO, "]}"], *again)
    seat = streaming(model)
    seat.dies_after = 2

    async def die_and_go_on() -> Any:
        with pytest.raises(Fenced):
            await seat.try_plan()
        assert seat.kinds == ["PlanOpened", "TaskAdded"]
        seat.dies_after = None
        return await seat.plan()

    assert isinstance(run_virtual(die_and_go_on()), Done)
    assert [each.description for each in seat.tasks] == [LYON["description"], GRAZ["description"]]
    assert seat.kinds == ["PlanOpened", "TaskAdded", "TaskAdded", "PlanSealed"]
