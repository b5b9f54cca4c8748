"""Compiled LangGraph graphs as workers, against the real package."""

import asyncio
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph", reason="needs langgraph: pip install chargehand[langgraph]")

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.interop.agent_worker_base import AgentWorker
from chargehand.interop.langgraph import graph_worker
from chargehand.interop.langgraph.worker import GraphWork
from chargehand.testing import run_virtual
from tests.integration.interop_at_work import AT_ONCE, plan_for, run, run_answering


class State(TypedDict, total=False):
    task: str
    text: str
    seen: Annotated[list[str], operator.add]


Node = Callable[[State], dict[str, Any]]


def chain(*nodes: Callable[..., Any], state: Any = State, **compiled: Any) -> Any:
    """A graph of these functions, one after the other."""
    builder = StateGraph(state)
    builder.add_sequence(list(nodes))
    builder.add_edge(START, nodes[0].__name__)
    return builder.compile(**compiled)


def shout(state: State) -> dict[str, Any]:
    return {"seen": [state["task"].upper()]}


# The work


async def test_a_graph_does_a_task() -> None:
    worker = graph_worker(chain(shout), "clerk", "Shouts", into="task", output="seen")
    result = await run(worker)
    assert result.output == ["ADD ONE AND TWO"]
    assert [step.name for step in result.trace.attempts[0].steps] == ["thread", "graph"]
    assert [note.text for note in result.trace.attempts[0].notes] == ["shout ended"]


async def test_inputs_that_the_state_has_names_for_are_put_there() -> None:
    def join(state: State) -> dict[str, Any]:
        return {"seen": [state["text"] * 2]}

    worker = graph_worker(chain(join), "clerk", "Joins", into="task", output="seen")
    result = await run(worker, plan_for(args={"text": "ab", "other": 1}))
    assert result.output == ["abab"]


async def test_state_and_result_may_be_made_by_functions() -> None:
    worker = graph_worker(
        chain(shout),
        "clerk",
        "Shouts",
        into=lambda brief: {"task": brief.task.id},
        output=lambda state: {"heard": len(state["seen"])},
    )
    assert (await run(worker)).output == {"heard": 1}


def talking(*messages: AIMessage) -> Any:
    model = GenericFakeChatModel(messages=iter(messages))

    async def talk(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return chain(talk, state=MessagesState)


async def test_a_graph_of_messages_needs_no_more_words_and_its_spending_is_counted() -> None:
    said = AIMessage(
        "It is 3.",
        usage_metadata={"input_tokens": 50, "output_tokens": 5, "total_tokens": 55},
        response_metadata={"model_provider": "openai", "model_name": "gpt-4.1"},
    )
    result = await run(graph_worker(talking(said), "clerk", "Adds"))
    assert result.output == "It is 3."
    usage = result.usage
    assert (usage.calls, usage.tokens_in, usage.tokens_out) == (1, 50, 5)
    assert usage.money == pytest.approx(50 * 2e-6 + 5 * 8e-6)


@pytest.mark.parametrize(
    "limits", [{"calls": 1}, {"tokens": 55}, {"money": 0.00014}], ids=["calls", "tokens", "money"]
)
async def test_where_nothing_is_left_to_spend_no_graph_is_begun(limits: dict[str, Any]) -> None:
    said = AIMessage(
        "It is 3.",
        usage_metadata={"input_tokens": 50, "output_tokens": 5, "total_tokens": 55},
        response_metadata={"model_provider": "openai", "model_name": "gpt-4.1"},
    )
    tasks = [
        ch.Task(id="a", description="Add one and two", worker="clerk"),
        ch.Task(id="b", description="Add two and three", worker="clerk", needs=["a"]),
    ]
    worker = graph_worker(talking(said, said), "clerk", "Adds")
    boss = ch.Supervisor([worker], limits=ch.Limits(**limits))
    result = await boss.run(ch.Plan(goal="Sums", tasks=tasks))
    assert result.status == "partial"
    assert result.usage.calls == 1


async def test_what_a_graph_writes_to_its_stream_is_progress() -> None:
    def dig(state: State) -> dict[str, Any]:
        get_stream_writer()("two metres deep")
        return {"seen": ["water"]}

    result = await run(graph_worker(chain(dig), "clerk", "Digs", into="task", output="seen"))
    notes = [note.text for note in result.trace.attempts[0].notes]
    assert notes == ["two metres deep", "dig ended"]


async def test_a_graph_without_the_key_of_its_result_says_so() -> None:
    result = await run(graph_worker(chain(shout), "clerk", "Shouts", into="task", output="text"))
    error = result.tasks["t"].error
    assert error is not None
    assert error.message.startswith("graph 'clerk' ended without 'text' in its state")


@pytest.mark.parametrize("option", ["into", "output"])
def test_a_key_that_the_state_cannot_have_is_refused_with_those_it_has(option: str) -> None:
    keys: dict[str, Any] = {"into": "task", "output": "seen", option: "tusk"}
    said = f"worker 'clerk': {option}='tusk' is not a key of .*; it has task, text, seen"
    with pytest.raises(UsageError, match=said):
        graph_worker(chain(shout), "clerk", "Shouts", **keys)


@dataclass
class Desk:
    brief: ch.Brief


async def test_nodes_may_have_the_brief_in_their_context() -> None:
    def whose(state: State, runtime: Runtime[Desk]) -> dict[str, Any]:
        return {"text": f"{runtime.context.brief.worker} at {runtime.context.brief.task.id}"}

    builder = StateGraph(State, context_schema=Desk)
    builder.add_node("whose", whose)
    builder.add_edge(START, "whose")
    worker = graph_worker(
        builder.compile(), "clerk", "Knows", into="task", output="text", context=Desk
    )
    assert (await run(worker)).output == "clerk at t"


async def test_a_graph_of_the_functional_api_is_a_worker_too() -> None:
    @entrypoint(checkpointer=InMemorySaver())
    async def double(text: str) -> str:
        return text * 2

    worker = graph_worker(
        double, "clerk", "Doubles", into=lambda _: "ab", output=lambda state: state
    )
    assert (await run(worker)).output == "abab"


# People


def asking(*questions: Any) -> Callable[[State], dict[str, Any]]:
    def ask(state: State) -> dict[str, Any]:
        return {"seen": [str(interrupt(question)) for question in questions]}

    return ask


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["none", "its own"])
async def test_an_interrupt_is_a_question_and_its_answer_goes_back(saver: Any) -> None:
    begun: list[str] = []

    def begin(state: State) -> dict[str, Any]:
        begun.append(state["task"])
        return {"seen": ["begun"]}

    ask = asking("Which colour?", {"question": "How large?", "choices": ["S", "L"]})
    graph = chain(begin, ask, checkpointer=saver)
    worker = graph_worker(graph, "clerk", "Paints", into="task", output="seen")
    result, asked = await run_answering(worker, "blue", "L")
    assert result.output == ["begun", "blue", "L"]
    assert asked == ["Which colour?", "How large?"]
    assert len(begun) == 1


async def test_interrupts_of_nodes_side_by_side_are_all_asked() -> None:
    def left(state: State) -> dict[str, Any]:
        return {"seen": [f"left {interrupt('left?')}"]}

    def right(state: State) -> dict[str, Any]:
        return {"seen": [f"right {interrupt('right?')}"]}

    builder = StateGraph(State)
    for node in (left, right):
        builder.add_node(node)
        builder.add_edge(START, node.__name__)
    worker = graph_worker(builder.compile(), "clerk", "Asks", into="task", output="seen")
    result, asked = await run_answering(worker, "1", "2")
    assert sorted(asked) == ["left?", "right?"]
    told = dict(zip(asked, ("1", "2"), strict=True))
    assert result.output == [f"left {told['left?']}", f"right {told['right?']}"]


async def test_an_interrupt_of_a_graph_within_the_graph_is_a_question_too() -> None:
    inner = chain(asking("Which colour?"))
    builder = StateGraph(State)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    worker = graph_worker(builder.compile(), "clerk", "Paints", into="task", output="seen")
    result, asked = await run_answering(worker, "blue")
    assert result.output == ["blue"]
    assert asked == ["Which colour?"]


async def test_what_the_graph_hears_can_be_made_of_the_answer() -> None:
    graph = chain(asking({"question": "Pay?", "choices": ["yes", "no"]}))
    worker = graph_worker(
        graph,
        "clerk",
        "Pays",
        into="task",
        output="seen",
        resume=lambda value, answer: {"ok": answer == value["choices"][0]},
    )
    result, _ = await run_answering(worker, "yes")
    assert result.output == ["{'ok': True}"]


@pytest.mark.parametrize(("answer", "status"), [("go on", "succeeded"), ("stop", "failed")])
async def test_a_graph_that_was_compiled_to_stop_asks_whether_to_go_on(
    answer: str, status: str
) -> None:
    def first(state: State) -> dict[str, Any]:
        return {"seen": ["first"]}

    def second(state: State) -> dict[str, Any]:
        return {"seen": ["second"]}

    graph = chain(first, second, interrupt_before=["second"])
    worker = graph_worker(graph, "clerk", "Walks", into="task", output="seen")
    result, asked = await run_answering(worker, answer)
    assert asked == ["Graph 'clerk' stops before second. Continue?"]
    assert result.status == status
    assert result.output == (["first", "second"] if status == "succeeded" else None)


# Going on


class Trips:
    """Nodes that count their runs; the second breaks off as often as it is told."""

    def __init__(self, *errors: Exception) -> None:
        self.runs: list[str] = []
        self._errors = list(errors)

    def first(self, state: State) -> dict[str, Any]:
        self.runs.append("first")
        return {"seen": ["first"]}

    def second(self, state: State) -> dict[str, Any]:
        self.runs.append("second")
        if self._errors:
            raise self._errors.pop(0)
        return {"seen": ["second"]}

    def graph(self, **compiled: Any) -> Any:
        return chain(self.first, self.second, **compiled)


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["none", "its own"])
def test_a_graph_whose_node_failed_goes_on_with_that_node(saver: Any) -> None:
    trips = Trips(ConnectionError("line cut"))
    worker = graph_worker(
        trips.graph(checkpointer=saver), "clerk", "Walks", into="task", output="seen"
    )
    result = run_virtual(ch.Supervisor([worker]).run(plan_for()))
    assert result.output == ["first", "second"]
    assert result.tasks["t"].attempts == 2
    assert trips.runs == ["first", "second", "second"]


def test_a_graph_that_failed_for_what_it_does_starts_over() -> None:
    trips = Trips(ValueError("no such thing"))
    worker = graph_worker(trips.graph(), "clerk", "Walks", into="task", output="seen")
    result = run_virtual(ch.Supervisor([worker]).run(plan_for()))
    assert result.output == ["first", "second"]
    assert trips.runs == ["first", "second", "first", "second"]


class Halting:
    """A graph that hangs in its second node the first time."""

    def __init__(self, saver: BaseCheckpointSaver[Any] | None) -> None:
        self.runs: list[str] = []
        self.hangs = asyncio.Event()
        self.graph = chain(self.first, self.second, checkpointer=saver)

    async def first(self, state: State) -> dict[str, Any]:
        self.runs.append("first")
        return {"seen": [str(interrupt("Which colour?"))]}

    async def second(self, state: State) -> dict[str, Any]:
        self.runs.append("second")
        if not self.hangs.is_set():
            self.hangs.set()
            await asyncio.Event().wait()
        return {"seen": ["second"]}


@pytest.mark.parametrize("is_kept", [True, False], ids=["checkpoints kept", "forgotten"])
async def test_a_resumed_attempt_goes_on_from_the_last_checkpoint(
    tmp_path: Path, is_kept: bool
) -> None:
    """The supervisor stops in the second node. The answer given before is not asked for again."""
    halting = Halting(InMemorySaver() if is_kept else None)
    answered: list[asyncio.Task[None]] = []

    def boss_now() -> ch.Supervisor:
        worker = graph_worker(halting.graph, "clerk", "Walks", into="task", output="seen")
        boss = ch.Supervisor([worker], journal=tmp_path / "runs.db")

        @boss.on(ch.events.AttemptFinished)
        def reply(_: str, event: ch.events.AttemptFinished) -> None:
            if isinstance(event.outcome, ch.NeedsInput):
                answering = boss.answer(event.outcome.question.id, "blue")
                answered.append(asyncio.ensure_future(answering))

        return boss

    async with boss_now() as boss:
        begun = await boss.submit(plan_for())
        await halting.hangs.wait()
        await boss.stop(AT_ONCE)
    async with boss_now() as again:
        result = await again.resume(begun.id)
    assert result.output == ["blue", "second"]
    assert len(answered) == 1
    # A node runs again when its interrupt is answered; that is LangGraph's way.
    again_from_start = [] if is_kept else ["first", "first"]
    assert halting.runs == ["first", "first", "second", *again_from_start, "second"]


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["none", "its own"])
async def test_a_thread_is_kept_in_the_graph_s_own_checkpointer_only(saver: Any) -> None:
    graph = chain(shout, checkpointer=saver)
    work = GraphWork(graph, "clerk", into="task", output="seen")
    await run(AgentWorker(work, "clerk", "Shouts"))
    kept = work.graph.checkpointer
    assert isinstance(kept, InMemorySaver)
    assert bool(list(kept.list(None))) is (saver is not None)


# What goes wrong


async def test_a_graph_that_makes_no_end_fails_for_what_it_does() -> None:
    def turn(state: State) -> Command[Any]:
        return Command(goto="turn", update={"seen": ["again"]})

    builder = StateGraph(State)
    builder.add_node("turn", turn)
    builder.add_edge(START, "turn")
    worker = graph_worker(
        builder.compile(),
        "clerk",
        "Turns",
        into="task",
        output="seen",
        config={"recursion_limit": 5},
    )
    result = await run(worker)
    error = result.tasks["t"].error
    assert error is not None
    assert (error.kind, error.error) == ("logic", "GraphRecursionError")
    assert error.message.startswith("graph 'clerk' did not finish: Recursion limit of 5 reached")
    assert "raise recursion_limit in config=…" in error.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionError("cut"), "network"),
        (TimeoutError("slow"), "timeout"),
        (PermissionError("no"), "denied"),
        (MemoryError("full"), "resource"),
        (KeyError("id"), "logic"),
    ],
)
async def test_what_a_node_raises_decides_what_is_done(error: Exception, kind: str) -> None:
    worker = graph_worker(Trips(error).graph(), "clerk", "Walks", into="task", output="seen")
    failed = (await run(worker)).tasks["t"].error
    assert failed is not None
    assert failed.kind == kind


async def test_what_was_spent_before_a_failure_is_counted() -> None:
    model = GenericFakeChatModel(
        messages=iter(
            [
                AIMessage(
                    "hm",
                    usage_metadata={"input_tokens": 50, "output_tokens": 5, "total_tokens": 55},
                )
            ]
        )
    )

    async def talk(state: MessagesState) -> dict[str, Any]:
        await model.ainvoke(state["messages"])
        raise ValueError("after all, no")

    result = await run(graph_worker(chain(talk, state=MessagesState), "clerk", "Adds"))
    assert result.status == "failed"
    assert (result.usage.calls, result.usage.tokens_in) == (1, 50)


def test_a_graph_that_takes_too_long_is_stopped() -> None:
    ended: list[str] = []

    async def wait(state: State) -> dict[str, Any]:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")
        return {}

    worker = graph_worker(
        chain(wait), "clerk", "Waits", into="task", output="seen", timeout=timedelta(minutes=1)
    )
    boss = ch.Supervisor([worker], limits=ch.Limits(attempts=1))
    error = run_virtual(boss.run(plan_for())).tasks["t"].error
    assert error is not None
    assert error.kind == "timeout"
    assert ended == ["cancelled"]


async def test_a_graph_is_stopped_with_its_task() -> None:
    halting = Halting(None)
    graph = chain(halting.second)
    worker = graph_worker(graph, "clerk", "Waits", into="task", output="seen")
    async with ch.Supervisor([worker]) as boss:
        begun = await boss.submit(plan_for())
        await halting.hangs.wait()
        await begun.cancel()
        assert (await begun.wait()).status == "cancelled"


def test_a_checkpointer_that_cannot_be_awaited_is_refused_with_the_way_out() -> None:
    class SqliteLike(BaseCheckpointSaver[str]): ...

    graph = chain(shout, checkpointer=SqliteLike())
    with pytest.raises(UsageError, match="compile the graph with AsyncSqliteLike"):
        graph_worker(graph, "clerk", "Shouts")


def test_a_graph_that_was_not_compiled_is_refused() -> None:
    builder: Any = StateGraph(State)
    with pytest.raises(UsageError, match="StateGraph is not a compiled graph; compile it first"):
        graph_worker(builder, "clerk", "Shouts")
