"""Supervisors below supervisors: what goes down with a task, what comes up of it, and what holds for the tree."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from examples import nested_teams

import chargehand as ch
from chargehand.journal.memory import MemoryJournal
from chargehand.models.base import Abilities, ModelRequest
from chargehand.testing import FakeClock, run_virtual
from tests.watching import watching

SECOND = timedelta(seconds=1)
Work = Callable[[ch.Brief], Awaitable[object]]


def plan_of(worker: str, width: int = 1, **more: Any) -> ch.Plan:
    tasks = [
        ch.Task(id=f"{worker}{n}", description=f"Do part {n}", worker=worker, **more)
        for n in range(1, width + 1)
    ]
    return ch.Plan(goal=f"Have {worker} do it", tasks=tasks)


def team(name: str, member: Any, width: int = 1, **more: Any) -> ch.Supervisor:
    """A supervisor that has its one member do so many tasks for each task of its own."""
    return ch.Supervisor(
        [member],
        name=name,
        description=f"Leads {name}",
        plan_for=lambda _: plan_of(member.name, width),
        **more,
    )


def tree(leaf: Any, width: int = 1, **more: Any) -> ch.Supervisor:
    """Three levels: a top, `mid`, `low`, and the workers below it."""
    low = team("low", leaf, width)
    mid = team("mid", low, width)
    return ch.Supervisor([mid], **more)


def leaf(work: Work) -> ch.FunctionWorker:
    return ch.FunctionWorker(work, "leaf", "Does the work")


def mind(model: ch.ScriptedModel) -> ch.Worker:
    return ch.Worker("leaf", "Thinks", model=model, settings=ch.ModelSettings(max_tokens=100))


def talker(count: int = 1_000, **more: Any) -> ch.ScriptedModel:
    return ch.ScriptedModel(["said"] * count, **more)


async def statuses(journal: Any) -> dict[str, list[str]]:
    """How all runs of the journal ended, by depth."""
    found: dict[str, list[str]] = {}
    for head in await journal.heads():
        depth, status = "", "open"
        async for entry in journal.read(head.stream):
            if isinstance(entry.event, ch.events.RunRequested):
                depth = str(entry.event.depth)
            if isinstance(entry.event, ch.events.RunFinished):
                status = entry.event.status.value
        found.setdefault(depth, []).append(status)
    return found


# What goes down and what comes up


async def test_a_supervisor_does_a_task_of_another_by_a_run_of_its_own() -> None:
    async def work(brief: ch.Brief) -> str:
        return brief.task.description.upper()

    result = await tree(leaf(work)).run(plan_of("mid", 2))
    assert result.status == "succeeded"
    assert [each.output for each in result.tasks.values()] == ["DO PART 1", "DO PART 1"]


async def test_the_task_its_inputs_and_its_rule_are_what_is_asked_below() -> None:
    asked: list[str] = []

    def plan_for(brief: ch.Brief) -> ch.Plan:
        from chargehand.supervisor.nested_requests import request_from

        asked.append(str(request_from(brief)))
        return plan_of("leaf")

    async def work(brief: ch.Brief) -> str:
        return "done"

    below = ch.Supervisor([leaf(work)], name="below", plan_for=plan_for)
    tasks = [
        ch.Task(id="first", description="Begin", worker="leaf"),
        ch.Task(
            id="then",
            description="Go on",
            worker="below",
            needs=["first"],
            args={"in": "ink"},
            accept="it is legible",
        ),
    ]
    await ch.Supervisor([below, leaf(work)]).run(ch.Plan(goal="Both", tasks=tasks))
    assert asked == [
        'Go on\nGiven: {"in":"ink"}\nBEGIN first\ndone\nEND first\n\nIt is accepted if: it is legible'
    ]


async def test_a_task_may_bring_the_plan_for_the_supervisor_below() -> None:
    async def work(brief: ch.Brief) -> str:
        return brief.task.id

    below = ch.Supervisor([leaf(work)], name="below")
    brought = json.loads(plan_of("leaf", 2).to_json())
    task = ch.Task(id="t", description="Carry it out", worker="below", args={"plan": brought})
    result = await ch.Supervisor([below]).run(ch.Plan(goal="Both", tasks=[task]))
    assert result.output == {"leaf1": "leaf1", "leaf2": "leaf2"}


async def test_a_nested_supervisor_plans_and_answers_with_the_model_above_if_it_has_none() -> None:
    plan = {
        "goal": "A word",
        "instruction": "One word",
        "strategy": "merge",
        "tasks": [
            {
                "id": "t1",
                "description": "Say the word",
                "worker": "leaf",
                "needs": [],
                "accept": "",
                "optional": False,
            }
        ],
    }
    model = ch.ScriptedModel([json.dumps(plan), "The word. [t1]"])

    async def work(brief: ch.Brief) -> str:
        return "word"

    below = ch.Supervisor([leaf(work)], name="below")
    task = ch.Task(id="t", description="Find the word", worker="below")
    result = await ch.Supervisor([below], model=model).run(ch.Plan(goal="A word", tasks=[task]))
    assert result.status == "succeeded"
    assert model.requests, "the planner below was asked"


async def test_a_supervisor_keeps_its_own_policy_when_it_works_below_another() -> None:
    tries: list[int] = []

    async def work(brief: ch.Brief) -> str:
        tries.append(brief.attempt)
        raise ch.errors.WorkerError("no line", kind="network")

    below = ch.Supervisor([leaf(work)], name="below", on_failure=ch.OnFailure(["fail"]))
    plan = ch.Plan(goal="g", tasks=[ch.Task(id="a", description="Try it", worker="leaf")])
    task = ch.Task(
        id="t", description="Have it tried", worker="below", args={"plan": plan.to_json()}
    )
    result = await ch.Supervisor([below]).run(ch.Plan(goal="g", tasks=[task]))
    assert result.status == "failed"
    assert tries == [1], "the policy of the one below says to give up at once"


async def test_an_error_three_levels_down_reaches_the_top_with_its_path() -> None:
    async def work(brief: ch.Brief) -> str:
        raise PermissionError("the door is locked")

    result = await tree(leaf(work)).run(plan_of("mid"))
    assert result.status == "failed"
    error = result.tasks["mid1"].error
    assert error is not None
    assert str(error) == "denied: mid › low1 › low › leaf1: denied: the door is locked"
    assert "PermissionError" in error.stack, "where it was raised is kept all the way up"


async def test_gaps_come_up_by_name_and_leave_the_top_partial() -> None:
    async def work(brief: ch.Brief) -> str:
        if brief.task.id == "leaf2":
            raise PermissionError("the door is locked")
        return "open"

    result = await tree(leaf(work), width=2).run(plan_of("mid"))
    assert result.status == "partial"
    assert result.tasks["mid1"].state is ch.TaskState.DONE
    assert result.output == {"low1": {"leaf1": "open"}, "low2": {"leaf1": "open"}}
    assert [gap.why for gap in result.answer.gaps] == [
        "mid › low1 › low › leaf2: denied: the door is locked",
        "mid › low2 › low › leaf2: denied: the door is locked",
    ]


async def test_a_task_below_that_fails_is_not_tried_again_on_every_level() -> None:
    tries: list[str] = []

    async def work(brief: ch.Brief) -> str:
        tries.append(brief.task.id)
        raise ValueError("no")

    result = await tree(leaf(work)).run(plan_of("mid"))
    assert result.status == "failed"
    assert len(tries) == 3, "three tries where the work is, not three to the power of three"


@pytest.mark.parametrize("depth", [1, 2])
async def test_what_is_deeper_than_the_limit_is_refused_before_it_begins(depth: int) -> None:
    began: list[str] = []

    async def work(brief: ch.Brief) -> None:
        began.append(brief.task.id)

    boss = tree(leaf(work), limits=ch.Limits(depth=depth))
    result = await boss.run(plan_of("mid"))
    assert result.status == "failed"
    assert began == []
    name = {1: "mid", 2: "low"}[depth]
    whose = {1: "Limits(depth=1)", 2: "Limits(depth=…) of a supervisor above"}[depth]
    assert (
        f"{name} would lead a run at depth {depth}, and {whose} allows "
        f"runs at depths 0 to {depth - 1}; nest less deeply, or raise it"
    ) in result.tasks["mid1"].why


async def test_a_supervisor_below_may_allow_less_depth_than_the_top_but_not_more() -> None:
    async def work(brief: ch.Brief) -> str:
        return "done"

    low = team("low", leaf(work))
    shallow = team("mid", low, limits=ch.Limits(depth=1))
    refused = await ch.Supervisor([shallow]).run(plan_of("mid"))
    assert "low would lead a run at depth 2" in refused.tasks["mid1"].why
    deep = team("mid", low, limits=ch.Limits(depth=9))
    boss = ch.Supervisor([deep], limits=ch.Limits(depth=2))
    assert (await boss.run(plan_of("mid"))).status == "failed"


# Budgets


@pytest.mark.parametrize("calls", [1, 7, 20])
async def test_a_cap_on_calls_at_the_top_holds_for_the_whole_tree(calls: int) -> None:
    model = talker()
    boss = tree(mind(model), width=4, limits=ch.Limits(calls=calls))
    result = await boss.run(plan_of("mid", 4))
    assert len(model.requests) == calls, "64 were wanted"
    assert result.usage.calls == calls
    assert result.status == "partial"
    assert any("over budget" in gap.why for gap in result.answer.gaps)


async def test_a_cap_on_tokens_at_the_top_holds_for_the_whole_tree() -> None:
    model = talker()
    cap = 5_000
    result = await tree(mind(model), width=4, limits=ch.Limits(tokens=cap)).run(plan_of("mid", 4))
    assert 0 < len(model.requests) < 64
    assert 0 < result.usage.tokens_in + result.usage.tokens_out <= cap
    assert any("over budget" in gap.why for gap in result.answer.gaps)


async def test_a_cap_on_money_at_the_top_holds_for_the_whole_tree() -> None:
    model = talker(name="openai:gpt-4o", abilities=Abilities())
    cap = 0.008
    result = await tree(mind(model), width=4, limits=ch.Limits(money=cap)).run(plan_of("mid", 4))
    assert 0 < len(model.requests) < 64
    assert 0 < result.usage.money <= cap
    assert any("over budget" in gap.why for gap in result.answer.gaps)


async def test_a_model_below_whose_price_nobody_knows_is_refused_under_a_cap_on_money() -> None:
    model = talker(name="openai:nobody-knows", abilities=Abilities())
    with pytest.raises(
        ch.UsageError, match=r"the price of openai:nobody-knows, which worker .* asks, is unknown"
    ):
        await tree(mind(model), limits=ch.Limits(money=1)).run(plan_of("mid"))
    assert model.requests == []


async def test_a_call_waits_for_those_under_way_if_they_may_leave_room_for_it() -> None:
    """Calls reserve their worst case. All sixteen fit, but not if they are held at their worst."""
    model = talker()
    limits = ch.Limits(tokens=6_000)
    result = await tree(mind(model), width=4, limits=limits).run(plan_of("mid"))
    assert result.status == "succeeded"
    reserves = [step.reserve for run in result.trace.family() for step in run.steps()]
    assert sum(each.tokens_in + each.tokens_out for each in reserves) > 6_000
    assert len(model.requests) == 16
    assert result.usage.tokens_in + result.usage.tokens_out <= 6_000


async def test_a_cap_of_a_supervisor_below_holds_for_each_of_its_runs_and_not_for_others() -> None:
    model = talker()
    low = team("low", mind(model), 4, limits=ch.Limits(calls=2))
    result = await ch.Supervisor([low]).run(plan_of("low", 3))
    assert len(model.requests) == 6
    assert result.status == "partial"


async def test_what_runs_below_spent_is_in_the_figures_above_them() -> None:
    model = talker()
    result = await tree(mind(model), width=2).run(plan_of("mid", 2))
    assert result.usage.calls == len(model.requests) == 8
    assert result.trace.usage == result.usage
    assert sum(run.usage.calls for run in result.trace.children) == 8


async def test_a_budget_is_remembered_when_a_run_is_resumed(tmp_path: Path) -> None:
    gate = asyncio.Event()
    model = ch.ScriptedModel(name="scripted:slow")

    async def slowly(request: ModelRequest) -> str:
        if len(model.requests) > 3:
            await gate.wait()
        return "said"

    model.add(*[slowly] * 99)
    limits = ch.Limits(calls=8)
    async with tree(mind(model), width=2, limits=limits, journal=tmp_path / "runs.db") as boss:
        run = await boss.submit(plan_of("mid", 4))
        while len(model.requests) < 8:
            await asyncio.sleep(0)
        await boss.stop(timedelta(0))
    gate.set()
    asked = len(model.requests)
    async with tree(mind(model), width=2, limits=limits, journal=tmp_path / "runs.db") as boss:
        result = await boss.resume(run.id)
    # The five whose end nobody saw count as spent: nobody knows that they were not.
    assert (asked, len(model.requests)) == (8, 8)
    assert result.status == "partial"


# Time


def test_a_deadline_at_the_top_ends_the_whole_tree_with_what_there_is() -> None:
    ended: list[str] = []

    async def work(brief: ch.Brief) -> str:
        try:
            await asyncio.sleep(1 if brief.task.id == "leaf1" else 1_000)
        except asyncio.CancelledError:
            ended.append(brief.task.id)
            raise
        return "in time"

    async def main() -> tuple[ch.RunResult, dict[str, list[str]]]:
        boss = tree(leaf(work), width=2, clock=FakeClock())
        result = await boss.run(plan_of("mid", 2), deadline=10 * SECOND)
        return result, await statuses(boss.journal)

    result, ends = run_virtual(main())
    assert 10 * SECOND <= result.wall <= 11 * SECOND
    assert ends == {"0": ["partial"], "1": ["partial"] * 2, "2": ["partial"] * 4}
    assert result.status == "partial"
    assert result.tasks["mid1"].output == {
        "low1": {"leaf1": "in time"},
        "low2": {"leaf1": "in time"},
    }
    assert len(ended) == 4
    assert [gap.why for gap in result.answer.gaps][:2] == [
        "mid › low1 › low › leaf2: timeout: its deadline has passed",
        "mid › low2 › low › leaf2: timeout: its deadline has passed",
    ]


def test_a_supervisor_below_may_be_in_more_of_a_hurry_than_the_top() -> None:
    async def work(brief: ch.Brief) -> str:
        await asyncio.sleep(1_000)
        return "late"

    async def main() -> ch.RunResult:
        low = team("low", leaf(work), limits=ch.Limits(deadline=3 * SECOND))
        return await ch.Supervisor([low], clock=FakeClock()).run(
            plan_of("low"), deadline=60 * SECOND
        )

    result = run_virtual(main())
    assert result.status == "failed"
    assert 3 * SECOND <= result.wall <= 4 * SECOND


# Stopping


def test_cancelling_the_top_cancels_the_tree() -> None:
    running: list[str] = []
    stopped: list[str] = []

    async def work(brief: ch.Brief) -> None:
        running.append(brief.run)
        try:
            await asyncio.sleep(1_000)
        finally:
            stopped.append(brief.run)

    async def main() -> tuple[ch.RunResult, dict[str, list[str]]]:
        async with tree(leaf(work), width=2, clock=FakeClock()) as boss:
            run = await boss.submit(plan_of("mid", 2))
            while len(running) < 8:
                await asyncio.sleep(0.01)
            await run.cancel("enough")
            return await run.wait(), await statuses(boss.journal)

    result, ends = run_virtual(main())
    assert result.status == "cancelled"
    assert ends == {"0": ["cancelled"], "1": ["cancelled"] * 2, "2": ["cancelled"] * 4}
    assert sorted(stopped) == sorted(running)


def test_a_task_that_takes_too_long_below_is_tried_again_by_another_run() -> None:
    runs: list[str] = []

    async def work(brief: ch.Brief) -> str:
        runs.append(brief.run)
        await asyncio.sleep(1_000 if len(runs) == 1 else 1)
        return "in time"

    async def main() -> tuple[ch.RunResult, dict[str, list[str]]]:
        boss = ch.Supervisor([team("low", leaf(work))], clock=FakeClock())
        limits = ch.TaskLimits(timeout=5 * SECOND)
        result = await boss.run(plan_of("low", limits=limits))
        return result, await statuses(boss.journal)

    result, ends = run_virtual(main())
    assert result.status == "succeeded"
    assert sorted(ends["1"]) == ["cancelled", "succeeded"]
    assert len(set(runs)) == 2


def test_when_an_answer_is_wanted_now_what_there_is_below_comes_up() -> None:
    async def work(brief: ch.Brief) -> str:
        await asyncio.sleep(1 if brief.task.id == "leaf1" else 1_000)
        return "in time"

    async def main() -> ch.RunResult:
        async with tree(leaf(work), width=2, clock=FakeClock()) as boss:
            run = await boss.submit(plan_of("mid"))
            await asyncio.sleep(5)
            await boss.answer_now(run.id)
            return await run.wait()

    result = run_virtual(main())
    assert result.status == "partial"
    assert result.wall < 6 * SECOND
    assert "in time" in str(result.output)


class Steps:
    """Work of two steps; the second waits until it may go on."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.gate = asyncio.Event()
        self.waiting = 0

    async def __call__(self, brief: ch.Brief) -> str:
        await brief.step("first", self.first, f"{brief.run} {brief.task.id}")
        if brief.task.id == "leaf2":
            self.waiting += 1
            await self.gate.wait()
        return "done"

    async def first(self, what: str) -> None:
        self.done.append(what)


async def test_a_gentle_stop_in_the_middle_leaves_everything_resumable(tmp_path: Path) -> None:
    steps, journal = Steps(), tmp_path / "runs.db"
    async with tree(leaf(steps), width=2, journal=journal) as boss:
        run = await boss.submit(plan_of("mid", 2))
        while steps.waiting < 4:
            await asyncio.sleep(0.001)
        await boss.stop(timedelta(milliseconds=50))
        with pytest.raises(ch.RunInterrupted):
            await run.wait()
    steps.gate.set()
    async with tree(leaf(steps), width=2, journal=journal) as boss:
        before = await statuses(boss.journal)
        result = await boss.resume(run.id)
        after = await statuses(boss.journal)
    assert before == {"0": ["open"], "1": ["open"] * 2, "2": ["open"] * 4}
    assert result.status == "succeeded"
    assert after == {"0": ["succeeded"], "1": ["succeeded"] * 2, "2": ["succeeded"] * 4}
    assert len(steps.done) == len(set(steps.done)) == 8, "no step was done twice"


def test_once_told_to_stop_nothing_new_begins_below_either() -> None:
    began: list[str] = []

    async def work(brief: ch.Brief) -> str:
        began.append(brief.task.id)
        await asyncio.sleep(5)
        return "done"

    async def main() -> float:
        low = team("low", leaf(work), 10, parallel=2)
        async with ch.Supervisor([team("mid", low)], clock=FakeClock()) as boss:
            run = await boss.submit(plan_of("mid"))
            await asyncio.sleep(1)
            began_at = asyncio.get_running_loop().time()
            await boss.stop(timedelta(hours=1))
            with pytest.raises(ch.RunInterrupted):
                await run.wait()
            return asyncio.get_running_loop().time() - began_at

    took = run_virtual(main())
    assert len(began) == 2, "the others wait for whoever resumes the run"
    assert took < 10, "when what runs has ended, nobody waits for the rest of the grace"


async def test_runs_below_a_run_that_another_process_leads_are_left_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Losing(MemoryJournal):
        lost = ""

        async def append(self, stream: str, events: Any, **how: Any) -> Any:
            if stream == self.lost:
                raise ch.errors.NotLeading("another process leads it")
            return await super().append(stream, events, **how)

    journal, working = Losing(), asyncio.Event()

    async def work(brief: ch.Brief) -> None:
        working.set()
        await asyncio.sleep(1_000)

    async with tree(leaf(work), journal=journal) as boss:
        run = await boss.submit(plan_of("mid"))
        await working.wait()
        journal.lost = run.id
        await boss.answer_now(run.id)  # the next thing that would be written
        with pytest.raises(ch.errors.NotLeading):
            await run.wait()
    assert f"run_lost run={run.id}; another process has taken it over" in caplog.text
    assert await statuses(journal) == {"0": ["open"], "1": ["open"], "2": ["open"]}


async def test_a_question_from_below_is_answered_by_its_id() -> None:
    async def work(brief: ch.Brief) -> str:
        return await brief.ask("Which colour?", choices=["red", "blue"])

    async with tree(leaf(work)) as boss:
        run = await boss.submit(plan_of("mid"))
        question = ""
        while not question:
            await asyncio.sleep(0.005)
            for head in await boss.journal.heads():
                for each in (await boss.look(head.stream)).questions:
                    question = each.id
        await boss.answer(question, "blue")
        result = await run.wait()
    assert result.output == "blue"


# Killing

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
import chargehand as ch

journal, log, life = sys.argv[1:4]

def note(what):
    with Path(log).open("a") as file:
        file.write(what + "\\n")

async def first(what):
    note(what)

@ch.worker("leaf", "Does the work")
async def work(brief):
    await brief.step("first", first, f"{brief.task.args['of']} {brief.task.id}")
    if life == "dies" and brief.task.id == "leaf2" and brief.task.args["of"] == "low2":
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"

def plan_of(worker, of=""):
    tasks = [
        ch.Task(id=f"{worker}{n}", description="Do it", worker=worker, args={"of": of}, needs=[f"{worker}{n - 1}"] if n > 1 else [])
        for n in (1, 2)
    ]
    return ch.Plan(goal="Do it all", tasks=tasks)

low = ch.Supervisor([work], name="low", description="Low", plan_for=lambda b: plan_of("leaf", b.task.id))
mid = ch.Supervisor([low], name="mid", description="Mid", plan_for=lambda b: plan_of("low"))

async def main():
    async with ch.Supervisor([mid], journal=journal, limits=ch.Limits(calls=1000)) as boss:
        task = ch.Task(id="t", description="Do it", worker="mid")
        result = await boss.run(ch.Plan(goal="All", tasks=[task]), key="k")
        print(result.status, [level.runs for level in result.trace.levels()], flush=True)

asyncio.run(main())
"""


def test_a_tree_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    script, log = tmp_path / "life.py", tmp_path / "log"
    script.write_text(KILLED)

    def live(life: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(script), str(tmp_path / "runs.db"), str(log), life]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    died = live("dies")
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert log.read_text().split("\n")[:-1] == [
        "low1 leaf1",
        "low1 leaf2",
        "low2 leaf1",
        "low2 leaf2",
    ]
    lived = live("lives")
    assert lived.stdout == "succeeded [1, 1, 2]\n", lived.stderr
    assert len(log.read_text().split("\n")[:-1]) == 4, "no step was repeated, and no run below"


# The record


def test_the_trace_shows_the_tree_and_what_each_level_took() -> None:
    async def work(brief: ch.Brief) -> str:
        await asyncio.sleep(2)
        return "done"

    async def main() -> ch.RunResult:
        boss = tree(leaf(work), width=2, clock=FakeClock())
        return await boss.run(plan_of("mid"))

    trace = run_virtual(main()).trace
    assert [task for task, _ in trace.child_runs] == ["mid1"]
    assert [run.depth for run in trace.family()] == [0, 1, 2, 2]
    assert [run.task for run in trace.family()] == ["", "mid1", "low1", "low2"]
    levels = trace.levels()
    assert [(level.runs, round(level.wall), round(level.own)) for level in levels] == [
        (1, 2, 0),
        (1, 2, 0),
        (2, 4, 4),
    ]
    assert json.loads(trace.to_json())["children"][0]["children"][1]["parent"]


def test_the_example_of_two_teams_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    waits: list[tuple[bool, str]] = []
    with watching(lambda is_said, what: waits.append((is_said, what))):
        result = nested_teams.main()
    assert waits == []
    shown = capsys.readouterr().out
    assert result.status == "partial"
    assert "figures (done in part): sales › lamp: denied: there is no file on the lamp" in shown
    assert "depth 1: 2 runs" in shown


def reviewing(calls: int = 20) -> ch.Supervisor:
    """A supervisor with a nested one, whose three tasks call a model once each."""
    model = ch.ScriptedModel(["fine"] * calls)
    reviewer = ch.Worker("reviewer", "Reviews", model=model)
    tasks = [
        ch.Task(id=f"r{n}", description=f"Review part {n}", worker="reviewer") for n in range(3)
    ]
    plan = ch.Plan(goal="Review", tasks=tasks)
    audit = ch.Supervisor([reviewer], name="audit", description="Audits", plan_for=lambda _: plan)
    return ch.Supervisor([audit], clock=FakeClock())


AUDIT = ch.Plan(
    goal="Audit", tasks=[ch.Task(id="a", description="Audit the books", worker="audit")]
)


def test_the_run_whose_cap_is_reached_below_ends_over_budget_with_what_there_is() -> None:
    result = run_virtual(reviewing().run(AUDIT, limits=ch.Limits(calls=2)))
    assert (result.status, result.reason) == ("partial", "over budget")
    assert set(result.output) == {"r0", "r1"}
    (gap,) = result.answer.gaps
    assert gap.task == "a"
    assert "over budget" in gap.why


def test_a_run_that_waits_for_more_budget_below_returns_and_goes_on() -> None:
    async def main() -> None:
        boss = reviewing()
        terms: dict[str, Any] = {"limits": ch.Limits(calls=2), "on_budget": "ask"}
        asked = await asyncio.wait_for(boss.run(AUDIT, on_question="return", **terms), 60)
        assert asked.status == "waiting"
        (question,) = asked.questions
        assert question.about == "budget"
        async with boss:
            await boss.answer(question.id, "raise to: 5")
            result = await boss.resume(asked.id)
            assert (result.status, len(result.output)) == ("succeeded", 3)

    run_virtual(main())


def test_who_stops_a_run_for_want_of_budget_gets_what_there_is_below() -> None:
    async def main() -> None:
        boss = reviewing()
        async with boss:
            run = await boss.submit(AUDIT, limits=ch.Limits(calls=2), on_budget="ask")
            while not (await boss.look(run.id)).questions:
                await asyncio.sleep(0.1)
            looked = await boss.look(run.id)
            assert looked.status == "waiting"
            await boss.answer(looked.questions[0].id, "stop")
            result = await run.wait()
            assert (result.status, result.reason) == ("partial", "over budget")
            assert "over budget" in result.answer.gaps[0].why

    run_virtual(main())
