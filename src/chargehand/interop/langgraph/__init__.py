"""LangGraph: a compiled graph as a worker, a supervisor as a node. Needs `chargehand[langgraph]`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from chargehand.engines.brief import Brief
from chargehand.facts.plan import Plan
from chargehand.interop.agent_worker import AgentOptions, AgentWorker, needing
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor
from chargehand.supervisor.requests import RunOptions

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable, RunnableConfig
    from langgraph.pregel import Pregel


def graph_worker(
    graph: "Pregel[Any, Any, Any, Any]",
    name: str,
    description: str,
    *,
    into: str | Callable[[Brief], Any] = "messages",
    output: str | Callable[[Any], Any] = "messages",
    context: Callable[[Brief], Any] | None = None,
    config: "RunnableConfig | None" = None,
    resume: Callable[[Any, str], Any] | None = None,
    untrusted: bool = False,
    **standing: Unpack[AgentOptions],
) -> AgentWorker:
    """Make a compiled LangGraph graph a worker.

    `into` is the key of its state that gets the task in words, or a function that makes the whole
    state of the brief; `output` is the key that holds the result, or a function that reads it from the
    last state. Where the graph interrupts, a person is asked; `resume` makes of the interrupt's value
    and the answer what the graph gets to hear. A graph with a checkpointer goes on from its last
    checkpoint when an attempt is resumed; one without is run again from its start.
    """
    with needing("langgraph"):
        from chargehand.interop.langgraph.worker import GraphWork
    work = GraphWork(graph, name, into, output, context, config, resume)
    return AgentWorker(work, name, description, untrusted=untrusted, **standing)


def node(
    boss: Supervisor,
    *,
    request: "str | Callable[[Any], str | Plan]" = "request",
    result: "str | Callable[[RunResult], Any]" = "answer",
    gaps: str = "",
    key_for: Callable[[Any], str] | None = None,
    stream: bool = True,
    **terms: Unpack[RunOptions],
) -> "Runnable[Any, Any]":
    """Make a supervisor a node of a LangGraph graph: `builder.add_node("team", node(boss))`.

    `request` is the key of the state that holds what is asked (words, messages or a plan), or a
    function of the state; `result` the key that gets the output, or a function of the result that
    makes the update. A run that fails is an error of the node; so is a partial one, unless `gaps`
    names the key that gets its gaps. A node that LangGraph executes again goes on with the run it
    began, known by the thread and the checkpoint or by what `key_for` makes of the state. A question to a
    person is an interrupt; what the graph is resumed with answers it. Each event of the run goes to
    the graph's stream of mode `custom`. Works in graphs that are awaited and in graphs that are not.
    """
    with needing("langgraph"):
        from chargehand.interop.langgraph.node import SupervisorNode
    return SupervisorNode(boss, request, result, gaps, key_for, stream, terms).runnable()
