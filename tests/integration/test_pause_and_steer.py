"""Runs that are paused, steered and looked at while they work, here and from another process."""

import asyncio
import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.engines.brief import Fenced
from chargehand.errors import RunEnded
from chargehand.facts.events import PlanAmended, RunLed, RunPaused, RunSteered
from chargehand.runtime.command_inbox import steer_mail
from chargehand.testing import FakeClock, run_virtual
from tests.integration.planner_at_work import BOTH, GRAZ, LYON, Seated, plan_text, task

LENGTH = 5


@ch.worker("walker", "Walks step by step")
async def walker(brief: ch.Brief) -> str:
    async def step(number: int) -> int:
        await asyncio.sleep(1)
        return number

    for number in range(LENGTH):
        await brief.step("walk", step, number, effect="pure")
    return brief.task.id


@ch.worker("sitter", "Sits without a step")
async def sitter(brief: ch.Brief) -> str:
    await asyncio.sleep(LENGTH)
    return brief.task.id


def plan(*workers: str, chained: bool = False) -> ch.Plan:
    tasks = [
        ch.Task(
            id=f"t{number}",
            description=f"Do thing number {number}",
            worker=worker,
            needs=(f"t{number - 1}",) if chained and number else (),
        )
        for number, worker in enumerate(workers)
    ]
    return ch.Plan(goal="Do it", tasks=tasks)


# pausing


def test_a_paused_run_stops_at_a_step_and_repeats_none_when_it_goes_on() -> None:
    walked: list[int] = []

    @ch.worker("counter", "Counts its steps")
    async def counter(brief: ch.Brief) -> int:
        async def step(number: int) -> int:
            walked.append(number)
            await asyncio.sleep(1)
            return number

        return sum([await brief.step("walk", step, n, effect="pure") for n in range(LENGTH)])

    async def story() -> tuple[list[int], list[str], ch.RunResult]:
        async with ch.Supervisor([counter], clock=FakeClock()) as boss:
            run = await boss.submit(plan("counter"))
            await asyncio.sleep(1.5)
            await run.pause("lunch")
            await asyncio.sleep(600)
            before, looked = list(walked), await boss.look(run.id)
            held = [looked.status.value, str(looked.tasks["t0"].waits_for)]
            await run.unpause()
            return before, held, await run.wait()

    before, held, result = run_virtual(story())
    assert before == [0, 1]
    assert held == ["paused", "t0 waits for its run, which is paused, 10 min"]
    assert walked == [0, 1, 2, 3, 4]
    assert result.output == 10
    (pause,) = result.trace.pauses
    assert pause.reason == "lunch"
    assert pause.ended_at is not None
    assert pause.ended_at - pause.at == timedelta(seconds=600)


def test_what_has_no_steps_runs_to_its_end_and_nothing_follows() -> None:
    async def story() -> list[str]:
        async with ch.Supervisor([sitter], clock=FakeClock()) as boss:
            run = await boss.submit(plan("sitter", "sitter", chained=True))
            await asyncio.sleep(1)
            await boss.pause(run.id)
            await asyncio.sleep(60)
            held = [task.state.value for task in (await boss.look(run.id)).tasks.values()]
            await boss.unpause(run.id)
            assert (await run.wait()).status == "succeeded"
            return held

    assert run_virtual(story()) == ["done", "ready"]


def test_a_paused_run_lets_others_have_its_places() -> None:
    async def story() -> float:
        async with ch.Supervisor([walker], parallel=1, clock=FakeClock()) as boss:
            loop = asyncio.get_running_loop()
            first = await boss.submit(plan("walker"))
            await asyncio.sleep(0.5)
            await first.pause()
            began = loop.time()
            second = await boss.submit(plan("walker"))
            await second.wait()
            lasted = loop.time() - began
            await first.unpause()
            await first.wait()
            return lasted

    assert run_virtual(story()) == pytest.approx(LENGTH + 0.5, abs=0.1)


def test_a_paused_run_is_still_paused_when_another_process_goes_on_with_it(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"

    async def story() -> tuple[str, str, ch.RunResult]:
        async with ch.Supervisor([walker], journal=journal) as boss:
            run = await boss.submit(plan("walker"))
            await run.pause()
            await boss.stop(timedelta(0))
        async with ch.Supervisor([walker], journal=journal) as boss:
            left = (await boss.look(run.id)).status.value
            live_run = asyncio.Event()
            boss.on(RunLed)(lambda *_: live_run.set())
            going_on = asyncio.ensure_future(boss.resume(run.id))
            await live_run.wait()
            held = (await boss.look(run.id)).status.value
            await boss.unpause(run.id)
            return left, held, await going_on

    left, held, result = run_virtual(story())
    assert (left, held) == ("paused", "paused")
    assert result.status == "succeeded"


def test_a_run_that_nobody_leads_is_paused_by_whoever_goes_on_with_it(tmp_path: Path) -> None:
    journal = tmp_path / "runs.db"

    async def story() -> tuple[str, ch.RunResult]:
        async with ch.Supervisor([walker], journal=journal) as boss:
            run = await boss.submit(plan("walker"))
            await boss.stop(timedelta(0))
        async with ch.Supervisor([], journal=journal) as outside:
            for _ in range(2):  # each of these has a key of its own
                await outside.pause(run.id)
                await outside.unpause(run.id)
            await outside.pause(run.id)
        async with ch.Supervisor([walker], journal=journal) as boss:
            heard: asyncio.Queue[str] = asyncio.Queue()
            boss.on(RunPaused)(lambda run, _: heard.put_nowait(run))
            going_on = asyncio.ensure_future(boss.resume(run.id))
            for _ in range(3):
                await heard.get()
            held = (await boss.look(run.id)).status.value
            await boss.unpause(run.id)
            return held, await going_on

    held, result = run_virtual(story())
    assert held == "paused"
    assert len(result.trace.pauses) == 3
    assert result.status == "succeeded"


def test_the_run_below_is_paused_too() -> None:
    async def story() -> tuple[list[str], ch.RunResult]:
        clock = FakeClock()
        team = ch.Supervisor([walker], name="team", plan_for=lambda _: plan("walker"), clock=clock)
        async with ch.Supervisor([team], clock=clock) as boss:
            run = await boss.submit(plan("team"))
            await asyncio.sleep(1.5)
            await run.pause()
            await asyncio.sleep(60)
            looked = await boss.look(run.id)
            held = [below.status.value for below in looked.below.values()]
            held += [wait.what for wait in looked.waits]
            await run.unpause()
            return held, await run.wait()

    held, result = run_virtual(story())
    assert held == ["paused", "its run, which is paused"]
    assert result.status == "succeeded"


def test_commands_to_a_run_that_has_ended_are_refused_alike_and_change_nothing() -> None:
    async def story() -> str:
        async with ch.Supervisor([sitter], clock=FakeClock()) as boss:
            done = plan("sitter")
            result = await boss.run(done, limits=ch.Limits(calls=5))
            run = result.id
            for command in (
                partial(boss.pause, run),
                partial(boss.unpause, run),
                partial(boss.steer, run, "faster"),
                partial(boss.change_budget, run, calls=9),
                partial(boss.change_plan, run, done, version=1),
            ):
                with pytest.raises(RunEnded, match=f"run {run} has ended: succeeded; ") as error:
                    await command()
                assert error.value.status == "succeeded"
            await boss.cancel(run)  # these two say what is so already
            await boss.answer_now(run)
            assert (await boss.resume(run)).output == result.output
            return (await boss.look(run)).status.value

    assert run_virtual(story()) == "succeeded"


# status of any task at any time


def test_the_state_of_every_task_can_be_asked_at_any_time() -> None:
    tried: list[str] = []

    @ch.worker("shaky", "Fails once")
    async def shaky(brief: ch.Brief) -> str:
        tried.append(brief.task.id)
        if len(tried) == 1:
            raise ConnectionError("not now")
        return "at last"

    @ch.worker("asker", "Asks a person")
    async def asker(brief: ch.Brief) -> str:
        return await brief.ask("Which colour?")

    async def story() -> dict[float, dict[str, str]]:
        seen: dict[float, dict[str, str]] = {}
        crew = [shaky, asker, sitter]
        async with ch.Supervisor(crew, parallel=3, clock=FakeClock()) as boss:
            given = plan("shaky", "asker", "sitter", "sitter")
            tasks = [
                *given.tasks,
                ch.Task(id="t4", description="Do the last", needs=("t0",), worker="sitter"),
            ]
            run = await boss.submit(ch.Plan(goal="g", tasks=tasks))

            async def look(at: float) -> ch.RunResult:
                result = await boss.look(run.id)
                seen[at] = {
                    id_: f"{each.state} {each.waits_for.cause}"
                    if each.waits_for
                    else each.state.value
                    for id_, each in result.tasks.items()
                }
                return result

            await asyncio.sleep(0.01)
            early = await look(0.01)
            await asyncio.sleep(20)
            await look(20)
            await boss.answer(early.questions[0].id, "red")
            await run.wait()
            await look(99)
        return seen

    seen = run_virtual(story())
    assert seen[0.01] == {
        "t0": "retrying retry",
        "t1": "asking person",
        "t2": "running",
        "t3": "running",
        "t4": "waiting needs",
    }
    assert seen[20] == {
        "t0": "done",
        "t1": "asking person",
        "t2": "done",
        "t3": "done",
        "t4": "done",
    }
    assert set(seen[99].values()) == {"done"}


async def test_a_run_led_elsewhere_is_explained_as_far_as_the_journal_tells(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @ch.worker("gate", "Waits until it is stopped")
    async def gate(brief: ch.Brief) -> None:
        begun.set()
        await asyncio.Event().wait()

    journal = tmp_path / "runs.db"
    async with (
        ch.Supervisor([gate], journal=journal, parallel=1) as boss,
        ch.Supervisor([], journal=journal) as outside,
    ):
        run = await boss.submit(plan("gate", "gate"))
        await begun.wait()
        looked = [await boss.look(run.id), await outside.look(run.id)]
        here, there = (str(each.tasks["t1"].waits_for) for each in looked)
        await run.cancel()
    assert here.startswith("t1 waits for a slot in the pool (1 of 1 taken), ")
    assert there.startswith(
        "t1 waits for its turn with gate; the process that leads its run knows more, "
    )


# steering


def change(*tasks: dict[str, Any], removed: tuple[str, ...] = (), reason: str = "wanted") -> str:
    facts = {"reason": reason, "replaced": [], "removed": list(removed), "tasks": list(tasks)}
    return json.dumps(facts)


PLAN = plan_text(LYON, GRAZ, BOTH)
DANUBE = task("t4", "Find the length of the Danube in Austria")
NOTE = "Leave out Graz; I want the Danube instead"


async def seated(*replies: str, **more: Any) -> tuple[Seated, ch.ScriptedModel]:
    """A run that is planned and under way, and has just got a note."""
    model = ch.ScriptedModel([PLAN, *replies])
    seat = Seated(model, **more)
    await seat.plan()
    seat.done("t1", "165 m")
    seat.tell(RunSteered(note=NOTE, by="eva", at=seat.now()))
    return seat, model


async def test_the_planner_sees_the_note_the_results_and_what_still_runs() -> None:
    seat, model = await seated(change())
    await seat.plan("@plan:2")
    asked = "\n".join(turn.text for turn in model.requests[-1].turns)
    assert "has left a note" in asked
    for told in (NOTE, "165 m", "- t2 (finder)", "- t3 (counter)"):
        assert told in asked
    schema = model.requests[-1].schema
    assert schema is not None
    assert schema["properties"]["removed"]["items"]["enum"] == ["t2", "t3"]


async def test_a_note_takes_tasks_out_of_the_plan_and_adds_others() -> None:
    both = task("t5", "Compare the tower and the river", "counter", "t1", "t4")
    seat, _ = await seated(change(DANUBE, both, removed=("t2", "t3"), reason="Graz is out"))
    await seat.plan("@plan:2")
    amended = [event for event in seat.journal if isinstance(event, PlanAmended)]
    assert [(each.removed, each.reason, each.is_steered) for each in amended] == [
        (("t2", "t3"), "Graz is out", True)
    ]
    nodes = seat.live_run.schedule.nodes
    assert [nodes[id_].state.value for id_ in seat.ids] == [
        *("done", "cancelled", "cancelled"),
        *("ready", "waiting"),
    ]


async def test_a_note_on_the_form_of_the_answer_changes_no_task() -> None:
    seat, _ = await seated(change(reason="only the wording changes"))
    await seat.plan("@plan:2")
    assert seat.kinds == ["PlanAdopted"]
    assert seat.notes[-1] == "the plan stays as it is: only the wording changes"


async def test_a_change_that_leaves_something_without_its_need_goes_back_to_the_model() -> None:
    seat, model = await seated(change(removed=("t2",)), change(removed=("t2", "t3")))
    await seat.plan("@plan:2")
    assert "it needs t2, which is to be removed" in model.requests[-1].turns[-1].text
    assert seat.live_run.schedule.nodes["t3"].state == "cancelled"


async def test_notes_may_change_a_plan_that_may_not_be_planned_again() -> None:
    seat, _ = await seated(change(DANUBE), limits=ch.Limits(replans=0))
    await seat.plan("@plan:2")
    assert "t4" in seat.ids


async def test_planning_that_was_interrupted_asks_the_same_again() -> None:
    seat, model = await seated(change(DANUBE))
    seat.dies_after = 0
    with pytest.raises(Fenced):
        await seat.try_plan("@plan:2")
    seat.tell(RunSteered(note="and in miles", by="eva", at=seat.now()))
    seat.dies_after = None
    await seat.plan("@plan:2")
    assert len(model.requests) == 2  # the second came from the steps of the first
    assert "t4" in seat.ids
    assert "@plan:3" in seat.live_run.schedule.nodes


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_a_note_reaches_the_plan_and_the_answer(where: str, tmp_path: Path) -> None:
    begun = asyncio.Event()

    @ch.worker("finder", "Finds facts about buildings in files")
    async def finder(brief: ch.Brief) -> str:
        begun.set()
        if brief.task.id == "t1":
            await changed.wait()
        return f"result of {brief.task.id}"

    changed = asyncio.Event()
    model = ch.ScriptedModel(
        [
            ch.When("Plan this", plan_text(LYON)),
            ch.When("has left a note", change(task("t2", "Find the length of the Danube"))),
            ch.When("compose the one answer", "The Danube is long [t2]."),
        ]
    )
    journal = tmp_path / "runs.db"
    async with (
        ch.Supervisor([finder], model=model, journal=journal) as boss,
        ch.Supervisor([], journal=journal) as outside,
    ):
        boss.on(PlanAmended)(lambda *_: changed.set())
        run = await boss.submit("How high is the tower of Lyon?", approach="whole")
        await begun.wait()
        whose = boss if where == "here" else outside
        note = "Tell me of the Danube, in miles"
        # The same note under the same key is one note, wherever the run is led.
        await asyncio.gather(*(whose.steer(run.id, note, key="k") for _ in range(2)))
        result = await run.wait()
        with pytest.raises(RunEnded):
            await run.steer("too late")
        trace = await asyncio.to_thread(lambda: result.trace)
    assert result.status == "succeeded"
    assert result.tasks["t2"].output == "result of t2"
    composing = "\n".join(turn.text for turn in model.requests[-1].turns)
    assert "Added later: Tell me of the Danube, in miles" in composing
    assert [steer.text for steer in trace.steers] == ["Tell me of the Danube, in miles"]
    assert [version.how for version in trace.plans] == ["adopted", "steered"]


async def test_a_given_plan_without_a_model_cannot_be_steered() -> None:
    async with ch.Supervisor([sitter]) as boss:
        run = await boss.submit(plan("sitter"))
        with pytest.raises(ch.UsageError, match="its plan was given and it has no model"):
            await run.steer("faster")
        with pytest.raises(ch.UsageError, match="the note is empty"):
            await run.steer("  ")
        await run.cancel()


async def test_a_note_under_one_key_is_posted_once() -> None:
    journal = ch.open_journal(None)
    try:
        for _ in range(2):
            await journal.mail.post(steer_mail("r1", "eva", "faster", key="k"))
        assert [letter.subject for letter in await journal.mail.unread()] == ["steer"]
    finally:
        await journal.close()


@pytest.mark.parametrize("instruction", ["Say where it sat", ""], ids=["composed", "merged"])
async def test_a_given_plan_can_be_steered_where_a_model_answers(instruction: str) -> None:
    begun, changed = asyncio.Event(), asyncio.Event()

    @ch.worker("sitter", "Sits without a step")
    async def sit(brief: ch.Brief) -> str:
        begun.set()
        await changed.wait()
        return f"result of {brief.task.id}"

    model = ch.ScriptedModel(
        [
            ch.When("has left a note", change(task("t1", "Sit in the other room", "sitter"))),
            ch.When("compose the one answer", "Sat twice [t0, t1]."),
        ]
    )
    given = ch.Plan(goal="Sit", tasks=plan("sitter").tasks, instruction=instruction)
    async with ch.Supervisor([sit], model=model) as boss:
        boss.on(PlanAmended)(lambda *_: changed.set())
        run = await boss.submit(given)
        await begun.wait()
        await boss.steer(run.id, "and in the other room")
        result = await run.wait()
    assert result.status == "succeeded"
    assert list(result.tasks) == ["t0", "t1"]


async def test_the_trace_of_a_note_that_changes_nothing_says_why() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @ch.worker("finder", "Finds facts")
    async def find(brief: ch.Brief) -> str:
        begun.set()
        await go_on.wait()
        return "330 m"

    task = {"id": "t", "description": "Find the height", "worker": "finder"}
    plan = {"goal": "Know", "instruction": "", "strategy": "merge", "tasks": [task]}
    nothing = {"reason": "the year is not needed", "replaced": [], "removed": [], "tasks": []}
    lines = [("Plan this", json.dumps(plan)), ("has left a note", json.dumps(nothing))]
    model = ch.ScriptedModel(
        [*(ch.When(*line) for line in lines), ch.When("compose the one answer", "330 m [t].")]
    )
    async with ch.Supervisor([find], model=model) as boss:

        @boss.on(ch.events.AttemptFinished)
        def finished(_: str, event: ch.events.AttemptFinished) -> None:
            if event.task == "@plan:2":
                go_on.set()

        run = await boss.submit("How high is it?", approach="whole")
        await begun.wait()
        await run.steer("I also want the year")
        result = await run.wait()
    planning = [each for each in result.trace.attempts if each.task.startswith("@plan")]
    assert planning[-1].notes[-1].text == "the plan stays as it is: the year is not needed"


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_last_word_about_progress_is_heard(is_plain: bool) -> None:
    """Nothing is awaited between the note and the end of the attempt."""

    async def waiting(brief: ch.Brief) -> str:
        brief.progress("nearly there", 0.9)
        return "done"

    def plain(brief: ch.Brief) -> str:
        brief.progress("nearly there", 0.9)
        return "done"

    doer = ch.worker("doer", "Does it")(plain if is_plain else waiting)
    plan = ch.Plan(goal="Do", tasks=[ch.Task(id="t", description="Do it", worker="doer")])
    heard = [each async for each in ch.Supervisor([doer]).stream(plan)]
    assert [each.text for each in heard if isinstance(each, ch.events.ProgressNoted)] == [
        "nearly there"
    ]
