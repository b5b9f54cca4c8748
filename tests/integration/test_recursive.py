"""The recursive supervisor: simple tasks in one call, complex ones divided, to a depth and no deeper."""

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand.models.base import ModelRequest
from chargehand.patterns import RecursiveSupervisor, recursive
from chargehand.testing import FakeClock, run_virtual

LATENCY = timedelta(seconds=1)


def words(request: ModelRequest) -> str:
    return "\n".join(getattr(part, "text", "") for part in request.turns[-1].parts)


def division(answer: str = "", *parts: str, needs: "dict[str, list[str]] | None" = None) -> str:
    written = [
        {"id": f"p{n}", "description": each, "needs": (needs or {}).get(f"p{n}", [])}
        for n, each in enumerate(parts, 1)
    ]
    together = "Put the parts together" if parts else ""
    return json.dumps({"answer": answer, "parts": written, "instruction": together})


class Halver:
    """A model that sums the numbers from a to b: by halves, as long as it may divide."""

    def __init__(self, most: int = 2, latency: timedelta = timedelta(0)) -> None:
        self.most = most
        self.asked: list[tuple[str, str]] = []
        self.model = ch.ScriptedModel([self.say] * 200, latency=latency)

    def say(self, request: ModelRequest) -> str:
        said = words(request)
        if "BEGIN" in said:  # the results of parts, to be put together
            self.asked.append(("compose", said))
            return str(sum(int(n) for n in re.findall(r"^(\d+)$", said, re.MULTILINE)))
        first, last = (int(n) for n in re.findall(r"\d+", said)[:2])
        if request.schema is None:
            self.asked.append(("solve", said))
            return str(sum(range(first, last + 1)))
        self.asked.append(("divide", said))
        if last - first < self.most:
            return division(str(sum(range(first, last + 1))))
        middle = (first + last) // 2
        halves = (
            f"Sum the numbers from {first} to {middle}",
            f"Sum those from {middle + 1} to {last}",
        )
        return division("", *halves)

    def count(self, kind: str) -> int:
        return sum(each == kind for each, _ in self.asked)


async def test_a_simple_task_takes_one_call() -> None:
    halver = Halver()
    result = await recursive("Sum the numbers from 1 to 2", model=halver.model)
    assert (result.status, result.output) == ("succeeded", "3")
    assert [kind for kind, _ in halver.asked] == ["divide"]
    assert result.trace.child_runs == []


async def test_a_complex_task_is_divided_and_put_together() -> None:
    halver = Halver()
    result = await recursive("Sum the numbers from 1 to 8", model=halver.model)
    assert (result.status, result.output) == ("succeeded", "36")
    # 1 to 8, two halves of it, and four quarters at the last level.
    assert (halver.count("divide"), halver.count("solve"), halver.count("compose")) == (3, 4, 3)
    assert [level.runs for level in result.trace.levels()] == [1, 1, 2]


async def test_at_the_last_level_everything_is_done_in_one_go() -> None:
    halver = Halver()
    result = await recursive(
        "Sum the numbers from 1 to 64", model=halver.model, limits=ch.Limits(depth=1)
    )
    assert result.output == str(sum(range(65)))
    assert [kind for kind, _ in halver.asked] == ["solve"]


async def test_it_goes_as_deep_as_the_top_allows() -> None:
    halver = Halver()
    result = await recursive(
        "Sum the numbers from 1 to 64", model=halver.model, limits=ch.Limits(depth=6)
    )
    assert result.output == str(sum(range(65)))
    assert [level.runs for level in result.trace.levels()] == [1, 1, 2, 4, 8, 16]
    assert halver.count("solve") == 32


def test_siblings_run_at_the_same_time() -> None:
    async def main() -> ch.RunResult:
        halver = Halver(latency=LATENCY)
        solver = RecursiveSupervisor(model=halver.model)
        boss = ch.Supervisor([solver], clock=FakeClock())
        task = ch.Task(id="t", description="Sum the numbers from 1 to 8", worker="solver")
        return await boss.run(ch.Plan(goal="Sum", tasks=[task]))

    result = run_virtual(main())
    assert result.output == "36"
    # Divide, divide, solve, compose, compose: five calls one after another, of ten in all.
    assert 5 * LATENCY <= result.wall < 5.5 * LATENCY


async def test_parts_may_need_earlier_parts() -> None:
    heard: list[str] = []

    def say(request: ModelRequest) -> str:
        said = words(request)
        heard.append(said)
        if "compose" in said or "BEGIN p2" in said:
            return "all of it"
        if "whole" in said:
            return division("", "find the number 7", "double the number", needs={"p2": ["p1"]})
        return division("14" if "BEGIN p1\n7\nEND p1" in said else "7")

    result = await recursive("the whole", model=ch.ScriptedModel([say] * 9))
    assert result.status == "succeeded"
    assert any("double the number" in each and "BEGIN p1\n7\nEND p1" in each for each in heard)


@pytest.mark.parametrize(
    ("bad", "objection"),
    [
        (division("both", "Sum a thing", "Sum another"), "either the answer or the parts"),
        (division(), "either the answer or the parts"),
        (division("", "Sum all of it"), "One part is not a division"),
        (division("", "Sum a", "Sum b", needs={"p1": ["p2"]}), "which is written after it"),
        (division("", "Do it", "Sum b"), "too vague"),
    ],
    ids=["both", "neither", "one part", "a later need", "vague"],
)
async def test_a_division_that_is_none_goes_back_to_the_model(bad: str, objection: str) -> None:
    model = ch.ScriptedModel([bad, division("3")])
    result = await recursive("Sum the numbers from 1 to 2", model=model)
    assert result.output == "3"
    assert objection in words(model.requests[1])


async def test_an_error_deep_down_comes_up_with_its_path() -> None:
    def say(request: ModelRequest) -> str:
        said = words(request)
        if "BEGIN" in said:
            return "what there is"
        if "cellar" in said:
            return ""
        if "house" in said:
            return division("", "Look at the ground floor", "Look at the attic")
        if "ground floor" in said:
            return division("", "Look into the cellar", "Look into the hall")
        return "seen" if request.schema is None else division("seen")

    result = await recursive("Look at the house", model=ch.ScriptedModel([say] * 30))
    assert result.status == "partial"
    gaps = [gap.why for gap in result.answer.gaps]
    assert gaps == ["solver › p1 › solver › p1: logic: the model answered nothing (tried 3 times)"]


async def test_a_budget_of_the_top_holds_for_the_tree() -> None:
    halver = Halver()
    result = await recursive(
        "Sum the numbers from 1 to 64", model=halver.model, limits=ch.Limits(depth=6, calls=20)
    )
    assert len(halver.asked) <= 20
    assert result.status in ("partial", "failed")
    assert result.usage.calls <= 20


async def test_it_is_a_member_of_a_roster_like_any_other() -> None:
    halver = Halver()
    boss = ch.Supervisor([RecursiveSupervisor("summer", "Sums", model=halver.model), shout])
    tasks = [
        ch.Task(id="sum", description="Sum the numbers from 1 to 4", worker="summer"),
        ch.Task(id="loud", description="Say it loudly", worker="shout", needs=["sum"]),
    ]
    result = await boss.run(ch.Plan(goal="A loud sum", tasks=tasks))
    assert result.output == "10!"
    assert [task for task, _ in result.trace.child_runs] == ["sum"]


@ch.worker("shout", "Shouts")
async def shout(brief: ch.Brief) -> str:
    return f"{brief.inputs['sum']}!"


async def test_what_is_stopped_in_the_middle_goes_on_without_asking_twice(tmp_path: Any) -> None:
    halver = Halver(latency=timedelta(milliseconds=20))
    solver = RecursiveSupervisor(model=halver.model)
    task = ch.Task(id="t", description="Sum the numbers from 1 to 16", worker="solver")
    plan = ch.Plan(goal="Sum", tasks=[task])
    limits = ch.Limits(depth=4)
    async with ch.Supervisor([solver], journal=tmp_path / "runs.db", limits=limits) as boss:
        run = await boss.submit(plan)
        while halver.count("divide") < 3:
            await asyncio.sleep(0.005)
        await boss.stop(timedelta(0))
        with pytest.raises(ch.RunInterrupted):
            await run.wait()
    asked_before = len(halver.asked)
    async with ch.Supervisor([solver], journal=tmp_path / "runs.db", limits=limits) as boss:
        result = await boss.resume(run.id)
    assert (result.status, result.output) == ("succeeded", "136")
    twice = [each for each in halver.asked[:asked_before] if halver.asked.count(each) > 1]
    # What was being asked at the moment of the stop has no answer yet, and is asked again.
    assert len(twice) <= 2


def test_dividing_takes_two_parts() -> None:
    with pytest.raises(ch.UsageError, match="parts=1 must be at least 2"):
        RecursiveSupervisor(parts=1)


async def test_an_empty_request_is_refused() -> None:
    with pytest.raises(ch.UsageError, match="the request is empty"):
        await recursive("  ", model=ch.ScriptedModel())
