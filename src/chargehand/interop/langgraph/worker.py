"""Runs a compiled LangGraph graph for a task. Imports LangGraph."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs, var_child_runnable_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt, StateSnapshot
from msgspec import Struct, convert
from msgspec.structs import replace
from pydantic_core import to_jsonable_python

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError, WorkerError
from chargehand.facts.events import Effect
from chargehand.facts.outcome import NO_USAGE, ONE_CALL, Done, ErrorClass, Failed, Outcome, Usage
from chargehand.facts.value import Value
from chargehand.interop.attempt_bridge import AttemptBridge, priced
from chargehand.interop.error_classes import class_of, failure_of
from chargehand.interop.langgraph.read_state import MESSAGES, found_in, has
from chargehand.models.http_adapter import usage_of as usage_told
from chargehand.roles.data_fences import words_of
from chargehand.roles.shared_resources import Resources
from chargehand.supervisor.nested_requests import words_from

INTERRUPT = "__interrupt__"
#: the only channel of a graph whose state is not a mapping
ROOT = "__root__"
#: the smallest usage, to check that some budget is left
LEAST = Usage(calls=1, tokens_in=1, tokens_out=1, money=1e-9)
#: the answers at a breakpoint, where a graph was compiled to stop
GO_ON, STOP = "go on", "stop"

Graph: TypeAlias = "Pregel[Any, Any, Any, Any]"
Into: TypeAlias = "str | Callable[[Brief], Any]"
Output: TypeAlias = "str | Callable[[Any], Any]"
Resume: TypeAlias = Callable[[Any, str], Any]


class GraphPause(Struct, frozen=True):
    """An interrupt or a breakpoint at which a graph waits for a person."""

    #: the id of the interrupt; empty: a breakpoint
    id: str
    value: Any
    #: the checkpoint of the breakpoint
    at: str = ""


class Leg(Struct, frozen=True):
    """One uninterrupted part of a graph's execution: up to its end, or to pauses that wait for a person."""

    output: Any = None
    pauses: tuple[GraphPause, ...] = ()


#: the pauses of a leg, and the answers to them
Answered: TypeAlias = tuple[tuple[GraphPause, ...], list[Any]]


class Spending(BaseCallbackHandler):
    """Adds up the usage of all model calls in the graph, also of those that leave no message in the state."""

    # Inline callbacks run one after the other, so no update of the sum is lost.
    run_inline = True

    def __init__(self) -> None:
        self.usage = NO_USAGE

    def on_llm_error(self, error: BaseException, **_: Any) -> None:
        # The provider may have responded and charged for it.
        if class_of(error) is ErrorClass.TIMEOUT:
            self.usage += ONE_CALL

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        for generations in response.generations:
            for generation in generations[:1]:  # several generations of one call share its cost
                message = generation.message if isinstance(generation, ChatGeneration) else None
                if isinstance(message, AIMessage):
                    self.usage += _spent(message)


def _spent(message: AIMessage) -> Usage:
    counts: dict[str, Any] = dict(message.usage_metadata or {})
    details = counts.get("input_token_details") or {}
    told = message.response_metadata
    model = f"{told.get('model_provider', '')}:{told.get('model_name', '')}"
    cached = details.get("cache_read"), details.get("cache_creation")
    usage = usage_told(counts.get("input_tokens"), counts.get("output_tokens"), *cached)
    return priced(model, usage)


@dataclass
class GraphWork:
    """Runs the attempts of a graph. Each attempt has a thread, in the checkpointer of the graph if it has one."""

    graph: Graph
    name: str
    into: Into
    output: Output
    context: Callable[[Brief], Any] | None = None
    config: RunnableConfig | None = None
    resume: Resume | None = None
    #: whether the threads outlive the attempt, because the graph has a checkpointer
    is_kept: bool = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.graph, Pregel):
            kind = type(self.graph).__name__
            raise UsageError(
                f"worker {self.name!r}: {kind} is not a compiled graph; compile it first"
            )
        saver = self.graph.checkpointer
        self.is_kept = isinstance(saver, BaseCheckpointSaver)
        if isinstance(saver, BaseCheckpointSaver):
            _refuse_without_async(saver, self.name)
        self._refuse_unknown_key("into", self.into)
        self._refuse_unknown_key("output", self.output)
        if not self.is_kept:
            self.graph = self.graph.copy({"checkpointer": InMemorySaver()})

    def _refuse_unknown_key(self, option: str, key: object) -> None:
        """Raise `UsageError` for a key that is not in the state. Only a `StateGraph` can be checked."""
        if not isinstance(key, str) or not isinstance(self.graph, CompiledStateGraph):
            return
        keys = list(self.graph.builder.channels)
        if key not in keys and ROOT not in keys:
            raise UsageError(
                f"worker {self.name!r}: {option}={key!r} is not a key of the state of the graph; "
                f"it has {', '.join(keys) or 'none'}"
            )

    async def __call__(self, brief: Brief, resources: Resources) -> Outcome:
        # Do not run as a part of another graph, of which the supervisor may be a node.
        var_child_runnable_config.set(None)
        # A step, so that an attempt that continues this one uses the same thread, and an attempt that
        # starts over uses a new one.
        name = f"{brief.run}:{brief.task.id}:{brief.attempt}"
        thread = await brief.step("thread", lambda: name, effect=Effect.PURE)
        return await _Attempt(self, AttemptBridge(brief, resources), thread).hold()

    def entry(self, brief: Brief) -> Any:
        """The initial state."""
        if callable(self.into):
            return self.into(brief)
        words = words_from(brief)
        given = {**brief.inputs, **brief.args}
        named = {name: value for name, value in given.items() if name in self.graph.channels}
        return {**named, self.into: [HumanMessage(words)] if self.into == MESSAGES else words}

    def read(self, state: Any) -> Any:
        """The result, from the final state."""
        if callable(self.output):
            return self.output(state)
        if not has(state, self.output):
            raise WorkerError(
                f"graph {self.name!r} ended without {self.output!r} in its state; say where its result "
                "is with output=…"
            )
        return found_in(state, self.output)


class _Attempt:
    """Runs a graph leg by leg. Each leg is a step, so no leg runs twice and no question is asked twice."""

    def __init__(self, work: GraphWork, bridge: AttemptBridge, thread: str) -> None:
        self._work = work
        self._bridge = bridge
        self._brief = bridge.brief
        self._thread = thread
        #: the usage of the current leg
        self._spending = Spending()

    async def hold(self) -> Outcome:
        """Run the attempt; an error is returned as `Failed`."""
        walked: list[Answered] = []
        try:
            while True:
                leg = await self._step(walked)
                if not leg.pauses:
                    await self._forget()
                    return Done(Value.of(leg.output, self._brief.taint))
                answers = [await self._answer(pause) for pause in leg.pauses]
                walked.append((leg.pauses, answers))
        except Exception as error:  # noqa: BLE001 - failure is a value, classed as it deserves
            return await self._failed(error)

    async def _failed(self, error: Exception) -> Failed:
        failed = failure_of(error, self._spending.usage)
        if not failed.kind.backs_off:
            await self._forget()  # no later attempt continues from here
        if not isinstance(error, GraphRecursionError):
            return failed
        way_out = "raise recursion_limit in config=… if that is too few"
        line = str(error).partition("\n")[0].rstrip(".")
        said = f"graph {self._work.name!r} did not finish: {line}; {way_out}"
        return replace(failed, message=said)

    async def _step(self, walked: "list[Answered]") -> Leg:
        async def run() -> Done:
            leg = await self._go_on(walked)
            return Done(Value.of(leg, self._brief.taint), self._spending.usage)

        self._spending = Spending()
        given = [answers for _, answers in walked]
        about = {"thread": self._thread, "answers": given[-1:]}
        done = await self._bridge.step(
            "graph",
            [self._thread, given],
            run,
            # An interrupted leg runs again: LangGraph requires idempotent nodes, too.
            effect=Effect.IDEMPOTENT,
            about=about,
            # The cost is unknown beforehand, but a leg does not start if no budget is left.
            reserve=LEAST if self._brief.is_capped else NO_USAGE,
            counts_itself=True,
        )
        self._spending = Spending()
        return convert(done.value.read(), Leg)

    async def _answer(self, pause: GraphPause) -> Any:
        """Ask a person; returns the value that the graph resumes with."""
        if not pause.id:
            question = f"Graph {self._work.name!r} stops before {pause.value}. Continue?"
            if await self._brief.ask(question, choices=(GO_ON, STOP)) == STOP:
                raise WorkerError(f"a person stopped it before {pause.value}", kind="denied")
            return GO_ON
        told = pause.value if isinstance(pause.value, dict) else {}
        choices = [str(choice) for choice in told.get("choices", ())]
        text = words_of(told.get("question", pause.value))
        said = await self._brief.ask(text, choices=choices)
        return said if self._work.resume is None else self._work.resume(pause.value, said)

    async def _go_on(self, walked: "list[Answered]") -> Leg:
        """Run the next leg, from the last checkpoint of the thread, or from the start if there is none."""
        state = await self._work.graph.aget_state(self._config)
        if state.created_at is None:
            return await self._walk_again(walked)
        waiting = {each.id for each in state.interrupts}
        pauses, answers = walked[-1] if walked else ((), [])
        is_answered = bool(waiting) and waiting <= {pause.id for pause in pauses}
        if waiting and not is_answered:
            return Leg(pauses=_pauses(state.interrupts))  # reached before a crash, but not recorded
        if not waiting and not state.next:
            return Leg(output=_kept(self._work.read(state.values)))
        if not waiting and self._may_stop(state) and _stop(state) not in pauses:
            return Leg(pauses=(_stop(state),))
        return await self._walk(_resumed(pauses, answers) if is_answered else None)

    async def _walk_again(self, walked: "list[Answered]") -> Leg:
        leg = await self._walk(self._work.entry(self._brief))
        for pauses, answers in walked:
            if len(leg.pauses) != len(pauses):
                raise WorkerError(
                    f"graph {self._work.name!r} does not repeat its earlier question; compile it with "
                    "a checkpointer, so that it continues where it stopped"
                )
            leg = await self._walk(_resumed(leg.pauses, answers))
        return leg

    async def _walk(self, entry: Any) -> Leg:
        """Run the graph until it ends or pauses."""
        graph, work = self._work.graph, self._work
        context = None if work.context is None else work.context(self._brief)
        interrupts: list[Interrupt[Any]] = []
        last: Any = None
        stream: AsyncIterator[Any] = graph.astream(
            entry,
            self._config,
            context=context,
            stream_mode=["updates", "values", "custom"],
            durability="sync",
        )
        async for mode, chunk in stream:
            if mode == "values":
                last = chunk
            elif mode == "custom":
                self._brief.progress(words_of(_kept(chunk)))
            elif INTERRUPT in chunk:
                interrupts += chunk[INTERRUPT]
            else:
                self._brief.progress(f"{', '.join(chunk)} ended")
        if interrupts:
            return Leg(pauses=_pauses(interrupts))
        state = await graph.aget_state(self._config)
        if state.next:
            return Leg(pauses=(_stop(state),))
        return Leg(output=_kept(work.read(last)))

    def _may_stop(self, state: StateSnapshot) -> bool:
        """Whether the graph may be at a breakpoint, as far as its state shows."""
        before = self._work.graph.interrupt_before_nodes
        is_before = before == "*" or not set(before).isdisjoint(state.next)
        return is_before or bool(self._work.graph.interrupt_after_nodes)

    async def _forget(self) -> None:
        """Delete the thread of this attempt if it is only in memory."""
        saver = self._work.graph.checkpointer
        if not self._work.is_kept and isinstance(saver, InMemorySaver):
            await saver.adelete_thread(self._thread)

    @property
    def _config(self) -> RunnableConfig:
        ours: RunnableConfig = {
            "configurable": {"thread_id": self._thread},
            "callbacks": [self._spending],
        }
        return merge_configs(self._work.config or {}, ours)


def _resumed(pauses: Sequence[GraphPause], answers: Sequence[Any]) -> "Command[Any] | None":
    """The input that resumes a graph from these pauses."""
    told = {pause.id: answer for pause, answer in zip(pauses, answers, strict=True) if pause.id}
    return Command(resume=told) if told else None


def _stop(state: StateSnapshot) -> GraphPause:
    at = (state.config.get("configurable") or {}).get("checkpoint_id", "")
    return GraphPause("", ", ".join(state.next), at)


def _pauses(interrupts: "Iterable[Interrupt[Any]]") -> tuple[GraphPause, ...]:
    return tuple(GraphPause(each.id, _kept(each.value)) for each in interrupts)


def _kept(value: Any) -> Any:
    return to_jsonable_python(value, fallback=str)


def _refuse_without_async(saver: BaseCheckpointSaver[Any], name: str) -> None:
    if type(saver).aget_tuple is BaseCheckpointSaver.aget_tuple:
        kind = type(saver).__name__
        raise UsageError(
            f"graph {name!r}: its checkpointer {kind} cannot be used from async code; compile the graph "
            f"with Async{kind}, or with the async checkpointer of its package"
        )
