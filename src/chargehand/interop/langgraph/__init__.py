"""LangGraph: a compiled graph as a worker, a supervisor as a node. Needs `chargehand[langgraph]`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from chargehand.engines.brief import Brief
from chargehand.facts.plan import Plan
from chargehand.interop.agent_worker_base import AgentOptions, AgentWorker, needing
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
    """Turn a compiled LangGraph graph into a worker.

    `into` is the key of the state that gets the task as text, or a function that creates the initial state
    from the brief; `output` is the key that contains the result, or a function that gets it from the final
    state. An interrupt of the graph asks a person; `resume` turns the interrupt's value and the person's
    answer into the value that the graph resumes with. When an attempt is resumed, a graph with a
    checkpointer continues from its last checkpoint; a graph without one starts again.
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
    """Turn a supervisor into a node of a LangGraph graph: `builder.add_node("team", node(boss))`.

    `request` is the key of the state that contains the request (text, messages or a plan), or a function
    of the state; `result` is the key that gets the output, or a function that turns the result into a state
    update. A failed run raises an error in the node; so does a partial run, unless `gaps` names the key
    that gets its gaps. If LangGraph executes the node again, the node continues its run, which it finds by
    thread and checkpoint, or by the key that `key_for` computes from the state. A question to a person is
    an interrupt; the value that the graph is resumed with is the answer. With `stream`, each event of the
    run goes to the graph's stream of mode `custom`. Works in async and in sync graphs.
    """
    with needing("langgraph"):
        from chargehand.interop.langgraph.node import SupervisorNode
    return SupervisorNode(boss, request, result, gaps, key_for, stream, terms).runnable()
