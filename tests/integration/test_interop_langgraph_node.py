"""A supervisor as a node of a LangGraph graph, against the real package."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="needs langgraph: pip install chargehand[langgraph]")

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.interop.langgraph import graph_worker, node
from tests.integration.interop_at_work import AT_ONCE

THREAD: RunnableConfig = {"configurable": {"thread_id": "1"}}


class State(TypedDict, total=False):
    request: Any
    answer: Any
    gaps: list[str]


def graph_of(made: Any, *, state: Any = State, saver: Any = None, **added: Any) -> Any:
    builder = StateGraph(state)
    builder.add_node("team", made, **added)
    builder.add_edge(START, "team")
    return builder.compile(checkpointer=saver)


class Clerk:
    """A worker that counts its calls, and does what it is told to."""

    def __init__(self, does: Callable[[ch.Brief], Awaitable[Any]] | None = None) -> None:
        self.calls = 0
        self._does = does
        self.worker = ch.worker("clerk", "Does things", version="1")(self.work)

    async def work(self, brief: ch.Brief) -> Any:
        self.calls += 1
        return brief.task.description.upper() if self._does is None else await self._does(brief)

    def boss(self, **more: Any) -> ch.Supervisor:
        return ch.Supervisor([self.worker], limits=ch.Limits(attempts=1), **more)


def plan_of(*words: str) -> ch.Plan:
    tasks = [
        ch.Task(id=f"t{n}", description=each, worker="clerk") for n, each in enumerate(words, 1)
    ]
    return ch.Plan(goal="Get it done", tasks=tasks)


def in_json(plan: ch.Plan) -> Any:
    """The plan as a checkpointer can keep it."""
    return json.loads(plan.to_json())


def plan(*words: str) -> Any:
    return in_json(plan_of(*words))


ONE = plan("Count the stars")


# In and out


async def test_a_graph_that_is_awaited_gets_the_answer_into_its_state() -> None:
    graph = graph_of(node(Clerk().boss()))
    assert (await graph.ainvoke({"request": ONE}))["answer"] == "COUNT THE STARS"


def test_a_graph_that_is_not_awaited_does_too() -> None:
    graph = graph_of(node(Clerk().boss()))
    assert graph.invoke({"request": ONE})["answer"] == "COUNT THE STARS"


async def test_a_plan_may_be_in_the_state_as_it_is_where_nothing_keeps_the_state() -> None:
    graph = graph_of(node(Clerk().boss()))
    done = await graph.ainvoke({"request": plan_of("Count the stars")})
    assert done["answer"] == "COUNT THE STARS"


async def test_words_are_planned_for() -> None:
    boss = ch.Supervisor([Clerk().worker], model="offline")
    graph = graph_of(node(boss, approach="route"))
    done = await graph.ainvoke({"request": "Count the stars of the night sky"})
    assert "STARS" in done["answer"]


async def test_messages_go_in_and_out() -> None:
    boss = ch.Supervisor([Clerk().worker], model="offline")
    graph = graph_of(
        node(boss, request="messages", result="messages", approach="route"), state=MessagesState
    )
    done = await graph.ainvoke({"messages": [HumanMessage("Count the stars of the night sky")]})
    said = done["messages"][-1]
    assert said.type == "ai"
    assert "STARS" in said.content


async def test_functions_may_make_the_request_and_the_update() -> None:
    @dataclass
    class Night:
        what: str = ""
        tasks: int = 0

    made = node(
        Clerk().boss(),
        request=lambda state: plan_of(f"Count the {state.what}", "Sleep"),
        result=lambda result: {"tasks": len(result.tasks)},
    )
    assert (await graph_of(made, state=Night).ainvoke({"what": "stars"}))["tasks"] == 2


@pytest.mark.parametrize(
    ("state", "words"),
    [({}, "the graph's state has no key 'request'"), ({"request": 3}, "is of type int; give text")],
)
async def test_a_state_without_a_request_is_refused(state: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        await graph_of(node(Clerk().boss())).ainvoke({"gaps": [], **state})


# What goes wrong


async def half_done(brief: ch.Brief) -> str:
    if brief.task.id == "t2":
        raise PermissionError("the observatory is closed")
    return "done"


async def test_a_run_that_came_to_nothing_is_an_error_of_the_node() -> None:
    async def refuse(_: ch.Brief) -> str:
        raise PermissionError("the observatory is closed")

    with pytest.raises(ch.WorkerError, match=r"failed: .* the observatory is closed") as e:
        await graph_of(node(Clerk(refuse).boss())).ainvoke({"request": ONE})
    assert e.value.kind == "denied"


async def test_a_gap_is_not_passed_off_as_success() -> None:
    boss, asked = Clerk(half_done).boss(), plan("Count the stars", "Count the moons")
    with pytest.raises(ch.WorkerError, match=r"has gaps: .*t2.*; to accept a partial result"):
        await graph_of(node(boss)).ainvoke({"request": asked})
    done = await graph_of(node(boss, gaps="gaps")).ainvoke({"request": asked})
    assert done["answer"] == {"t1": "done"}
    assert len(done["gaps"]) == 1
    assert "the observatory is closed" in done["gaps"][0]


async def test_a_function_takes_a_failed_run_as_it_is_and_does_not_pay_for_another() -> None:
    clerk, seen = Clerk(half_done), []

    def update(result: ch.RunResult) -> dict[str, Any]:
        seen.append(result.status)
        if len(seen) == 1:
            raise RuntimeError("the process died here")
        return {"answer": result.status.value}

    asked = plan("Count the stars", "Count the moons")
    graph = graph_of(node(clerk.boss(), result=update), saver=InMemorySaver())
    with pytest.raises(RuntimeError, match="died here"):
        await graph.ainvoke({"request": asked}, THREAD)
    assert (await graph.ainvoke(None, THREAD))["answer"] == "partial"
    assert clerk.calls == 2


# Once is enough


async def test_a_node_that_is_executed_again_does_not_pay_twice() -> None:
    """It failed after the run had ended, before LangGraph had noted it."""
    clerk, updates = Clerk(), []

    def update(result: ch.RunResult) -> dict[str, Any]:
        updates.append(result.id)
        if len(updates) == 1:
            raise RuntimeError("the process died here")
        return {"answer": result.output}

    graph = graph_of(node(clerk.boss(), result=update), saver=InMemorySaver())
    with pytest.raises(RuntimeError, match="died here"):
        await graph.ainvoke({"request": ONE}, THREAD)
    assert (await graph.ainvoke(None, THREAD))["answer"] == "COUNT THE STARS"
    assert clerk.calls == 1
    assert updates[0] == updates[1]


async def test_each_visit_and_each_thread_has_a_run_of_its_own() -> None:
    clerk = Clerk()
    graph = graph_of(node(clerk.boss()), saver=InMemorySaver())
    await graph.ainvoke({"request": ONE}, THREAD)
    await graph.ainvoke({"request": ONE}, THREAD)
    await graph.ainvoke({"request": ONE}, {"configurable": {"thread_id": "2"}})
    assert clerk.calls == 3


async def test_a_key_of_one_s_own_makes_one_run_of_several_visits() -> None:
    clerk = Clerk()
    graph = graph_of(node(clerk.boss(), key_for=lambda state: state["request"]["goal"]))
    await graph.ainvoke({"request": ONE})
    await graph.ainvoke({"request": ONE})
    assert clerk.calls == 1


async def test_another_try_after_a_failed_run_takes_over_what_was_done() -> None:
    """LangGraph's own retries of a node are tries of the run."""
    is_closed, done = [True], []

    async def work(brief: ch.Brief) -> str:
        if brief.task.id == "t2" and is_closed:
            is_closed.clear()
            raise PermissionError("the observatory is closed")
        done.append(brief.task.id)
        return brief.task.id

    retry = RetryPolicy(max_attempts=2, initial_interval=0.001, retry_on=ch.WorkerError)
    graph = graph_of(node(Clerk(work).boss()), saver=InMemorySaver(), retry_policy=retry)
    result = await graph.ainvoke({"request": plan("Count the stars", "Count the moons")}, THREAD)
    assert result["answer"] == {"t1": "t1", "t2": "t2"}
    assert done == ["t1", "t2"]


# People


async def colour(brief: ch.Brief) -> str:
    return await brief.ask(f"{brief.task.description}?", choices=["red", "blue"])


async def test_a_question_is_an_interrupt_and_its_resume_value_the_answer() -> None:
    clerk = Clerk(colour)
    graph = graph_of(node(clerk.boss()), saver=InMemorySaver())
    stopped = await graph.ainvoke({"request": plan("Paint the door")}, THREAD)
    (put,) = stopped["__interrupt__"]
    assert put.value["question"] == "Paint the door?"
    assert put.value["choices"] == ["red", "blue"]
    done = await graph.ainvoke(Command(resume="blue"), THREAD)
    assert done["answer"] == "blue"
    assert clerk.calls == 2  # the second call gets the answer


async def test_several_questions_are_put_one_after_the_other() -> None:
    graph = graph_of(node(Clerk(colour).boss()), saver=InMemorySaver())
    asked = plan("Paint the door", "Paint the wall", "Paint the roof")
    stopped = await graph.ainvoke({"request": asked}, THREAD)
    told = {}
    for answer in ("red", "blue", "red"):
        (put,) = stopped["__interrupt__"]
        told[put.value["question"]] = answer
        stopped = await graph.ainvoke(Command(resume=answer), THREAD)
    assert told == {"Paint the door?": "red", "Paint the wall?": "blue", "Paint the roof?": "red"}
    assert stopped["answer"] == {"t1": "red", "t2": "blue", "t3": "red"}


async def test_an_answer_that_is_none_of_the_choices_is_asked_for_anew() -> None:
    graph = graph_of(node(Clerk(colour).boss()), saver=InMemorySaver())
    await graph.ainvoke({"request": plan("Paint the door")}, THREAD)
    stopped = await graph.ainvoke(Command(resume="green"), THREAD)
    assert stopped["__interrupt__"][0].value["question"] == "Paint the door?"
    assert (await graph.ainvoke(Command(resume="red"), THREAD))["answer"] == "red"


async def test_a_question_answered_elsewhere_does_not_take_the_next_one_s_answer() -> None:
    boss = Clerk(colour).boss()
    graph = graph_of(node(boss), saver=InMemorySaver())
    asked = plan("Paint the door", "Paint the wall")
    stopped = await graph.ainvoke({"request": asked}, THREAD)
    (put,) = stopped["__interrupt__"]
    await boss.answer(put.value["id"], "blue")
    stopped = await graph.ainvoke(Command(resume="red"), THREAD)
    assert stopped["__interrupt__"][0].value["question"] == "Paint the wall?"
    done = await graph.ainvoke(Command(resume="red"), THREAD)
    assert done["answer"] == {"t1": "blue", "t2": "red"}


async def test_a_run_that_ended_meanwhile_needs_no_answer() -> None:
    boss = Clerk(colour).boss()
    graph = graph_of(node(boss), saver=InMemorySaver())
    stopped = await graph.ainvoke({"request": plan("Paint the door")}, THREAD)
    question = stopped["__interrupt__"][0].value["id"]
    await boss.answer(question, "blue")
    await boss.resume(question.partition(":")[0])
    assert (await graph.ainvoke(None, THREAD))["answer"] == "blue"


def test_questions_work_in_graphs_that_are_not_awaited() -> None:
    graph = graph_of(node(Clerk(colour).boss()), saver=InMemorySaver())
    stopped = graph.invoke({"request": plan("Paint the door", "Paint the wall")}, THREAD)
    assert stopped["__interrupt__"][0].value["question"] == "Paint the door?"
    stopped = graph.invoke(Command(resume="red"), THREAD)
    assert stopped["__interrupt__"][0].value["question"] == "Paint the wall?"
    assert graph.invoke(Command(resume="blue"), THREAD)["answer"] == {"t1": "red", "t2": "blue"}


async def test_a_question_from_a_supervisor_below_is_put_too() -> None:
    below = ch.Supervisor(
        [Clerk(colour).worker],
        name="painters",
        description="Paint",
        plan_for=lambda _: plan_of("Paint the door"),
    )
    task = ch.Task(id="paint", description="Have the house painted", worker="painters")
    graph = graph_of(node(ch.Supervisor([below])), saver=InMemorySaver())
    asked = in_json(ch.Plan(goal="A painted house", tasks=[task]))
    stopped = await graph.ainvoke({"request": asked}, THREAD)
    assert stopped["__interrupt__"][0].value["question"] == "Paint the door?"
    assert (await graph.ainvoke(Command(resume="red"), THREAD))["answer"] == "red"


async def test_the_rest_of_the_run_goes_on_before_anybody_is_asked() -> None:
    async def work(brief: ch.Brief) -> str:
        return await colour(brief) if brief.task.id == "t1" else "done"

    clerk = Clerk(work)
    boss = clerk.boss()
    graph = graph_of(node(boss), saver=InMemorySaver())
    tasks = [
        ch.Task(id="t1", description="Paint the door", worker="clerk"),
        ch.Task(id="t2", description="Sweep the floor", worker="clerk"),
        ch.Task(id="t3", description="Sweep the stairs", worker="clerk", needs=["t2"]),
    ]
    stopped = await graph.ainvoke(
        {"request": in_json(ch.Plan(goal="A clean house", tasks=tasks))}, THREAD
    )
    seen = await boss.look(stopped["__interrupt__"][0].value["id"].partition(":")[0])
    assert [task.state for task in seen.tasks.values()] == ["asking", "done", "done"]


def test_a_question_outlives_the_process(tmp_path: Path) -> None:
    """Another supervisor on the same journal, in another event loop, goes on with the run."""
    saver = InMemorySaver()

    async def lead(entry: Any) -> Any:
        async with Clerk(colour).boss(journal=tmp_path / "runs.db") as boss:
            done = await graph_of(node(boss), saver=saver).ainvoke(entry, THREAD)
            await boss.stop(AT_ONCE)
            return done

    stopped = asyncio.run(lead({"request": plan("Paint the door")}))
    assert stopped["__interrupt__"][0].value["question"] == "Paint the door?"
    assert asyncio.run(lead(Command(resume="blue")))["answer"] == "blue"


# Watching, stopping, nesting


@pytest.mark.parametrize("is_awaited", [True, False])
async def test_events_of_the_run_are_streamed_as_they_happen(is_awaited: bool) -> None:
    graph = graph_of(node(Clerk().boss()))
    if is_awaited:
        heard = [event async for event in graph.astream({"request": ONE}, stream_mode="custom")]
    else:
        stream = graph.stream({"request": ONE}, stream_mode="custom")
        heard = await asyncio.to_thread(list, stream)
    kinds = [event["chargehand"]["kind"] for event in heard]
    assert kinds[0] == "RunRequested"
    assert "AttemptFinished" in kinds
    assert kinds[-1] == "RunFinished"


async def test_nothing_is_streamed_if_it_is_not_wanted() -> None:
    graph = graph_of(node(Clerk().boss(), stream=False))
    assert [e async for e in graph.astream({"request": ONE}, stream_mode="custom")] == []


async def test_a_graph_that_is_cancelled_cancels_its_run_and_may_try_again() -> None:
    begun, runs = asyncio.Event(), []

    async def wait(brief: ch.Brief) -> str:
        runs.append(brief.run)
        if len(runs) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "done"

    boss = Clerk(wait).boss()
    graph = graph_of(node(boss), saver=InMemorySaver())
    running = asyncio.ensure_future(graph.ainvoke({"request": ONE}, THREAD))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await boss.look(runs[0])).status == "cancelled"
    assert (await graph.ainvoke(None, THREAD))["answer"] == "done"


async def test_a_graph_in_a_supervisor_in_a_graph_keeps_its_own_counsel() -> None:
    def shout(state: State) -> dict[str, Any]:
        return {"answer": state["request"].upper()}

    inner = StateGraph(State)
    inner.add_node("shout", shout)
    inner.add_edge(START, "shout")
    worker = graph_worker(inner.compile(), "clerk", "Shouts", into="request", output="answer")
    saver = InMemorySaver()
    graph = graph_of(node(ch.Supervisor([worker])), saver=saver)
    done = await graph.ainvoke({"request": ONE}, THREAD)
    assert done["answer"] == "COUNT THE STARS"
    threads = {each.config["configurable"]["thread_id"] for each in saver.list(None)}
    assert threads == {"1"}
