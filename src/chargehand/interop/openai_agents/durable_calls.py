"""Runs the model and tool calls of an OpenAI Agents SDK agent as durable steps. Imports the SDK."""

import copy
import dataclasses
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

from agents import (
    Agent,
    AgentOutputSchemaBase,
    FunctionTool,
    Handoff,
    Model,
    ModelBehaviorError,
    ModelProvider,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    RunConfig,
    RunContextWrapper,
    Tool,
    TResponseInputItem,
)
from agents import Usage as TheirUsage
from agents.items import TResponseStreamEvent
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from agents.tool_context import ToolContext
from msgspec.structs import replace
from openai.types.responses.response_prompt_param import ResponsePromptParam
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from chargehand.facts.outcome import Done, Usage
from chargehand.facts.value import Value, canonical
from chargehand.interop.agent_worker_base import ToolEffects
from chargehand.interop.attempt_bridge import MOST_OUT, AttemptBridge, ExternalCall, account_at
from chargehand.models.call_ban import refuse_if_forbidden
from chargehand.models.connection_settings import is_loopback
from chargehand.models.http_adapter import usage_of as usage_told
from chargehand.roles.json_reply_check import objection_to

_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
#: the current tool call: an agent used as a tool calls models of its own, in parallel with others
_inside: ContextVar[str] = ContextVar("chargehand_tool_call", default="")


class Journaled:
    """Copies agents so that their model and tool calls are steps of one attempt. The originals are not changed."""

    def __init__(
        self, bridge: AttemptBridge, effects: ToolEffects, shape: dict[str, Any] | None
    ) -> None:
        self.bridge = bridge
        self._effects = effects
        self._shape = shape
        #: each original agent and its copy, by the `id` of the original
        self._agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    def config(self, config: RunConfig) -> RunConfig:
        """The settings of a run, with models whose calls are steps."""
        model = config.model
        return dataclasses.replace(
            config,
            model=DurableAgentModel(model, self) if isinstance(model, Model) else model,
            model_provider=JournaledProvider(config.model_provider, self),
        )

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        """The copy of an agent; the agents of its handoffs are copied too."""
        known = self._agents.get(id(agent))
        if known is not None:
            return known[1]
        changes: dict[str, Any] = {"tools": [self._tool(tool) for tool in agent.tools]}
        if isinstance(agent.model, Model):
            changes["model"] = DurableAgentModel(agent.model, self)
            changes["model_settings"] = agent.model_settings
        if agent.output_type is None and self._shape is not None:
            changes["output_type"] = TaskShape(self._shape)
        twin = agent.clone(**changes)
        # Stored before the handoffs are copied, because agents may hand off to each other in a circle.
        self._agents[id(agent)] = agent, twin
        twin.handoffs = [self._handoff(each) for each in agent.handoffs]
        if agent.mcp_servers:
            self._journal_servers(twin)
        return twin

    def _journal_servers(self, twin: Agent[Any]) -> None:
        """Wrap the tools of MCP servers too. The SDK creates them again for every turn."""
        listed = twin.get_mcp_tools

        async def wrapped(context: RunContextWrapper[Any]) -> list[Tool]:
            return [self._tool(tool) for tool in await listed(context)]

        vars(twin)["get_mcp_tools"] = wrapped

    def has(self, agent: Agent[Any]) -> bool:
        """Whether this is one of the copies."""
        return any(twin is agent for _, twin in self._agents.values())

    def _handoff(self, to: "Agent[Any] | Handoff[Any, Any]") -> "Agent[Any] | Handoff[Any, Any]":
        if not isinstance(to, Handoff):
            return self.agent(to)
        original = to.on_invoke_handoff

        async def hand_over(context: RunContextWrapper[Any], arguments: str) -> Agent[Any]:
            return self.agent(await original(context, arguments))

        twin = copy.copy(to)
        twin.on_invoke_handoff = hand_over
        return twin

    def _tool(self, tool: Tool) -> Tool:
        """Wrap a function tool, so that its calls are steps. Other tools, such as hosted ones, stay as they are."""
        if not isinstance(tool, FunctionTool):
            return tool

        async def invoke(context: ToolContext[Any], arguments: str) -> Any:
            return await self._call(tool, context, arguments)

        twin = copy.copy(tool)
        twin.on_invoke_tool = invoke
        return twin

    async def _call(self, tool: FunctionTool, context: ToolContext[Any], arguments: str) -> Any:
        async def run() -> Done:
            before = _inside.set(context.tool_call_id)
            try:
                result = await tool.on_invoke_tool(context, arguments)
            finally:
                _inside.reset(before)
            kept = {"value": to_jsonable_python(result, fallback=str)}
            return Done(Value.of(kept, self.bridge.brief.taint))

        done = await self.bridge.step(
            f"tool {tool.name}",
            [tool.name, arguments],
            run,
            effect=self._effects.of(tool.name),
            about={"arguments": arguments},
        )
        kept = done.value.read()
        return kept["value"] if isinstance(kept, dict) and "value" in kept else kept


def tools_of(agent: Agent[Any]) -> list[str] | None:
    """The names of the function tools of an agent and of the agents that it can hand off to.

    None if they are known only at run time, because of an MCP server or a `Handoff` object.
    """
    names: list[str] = []
    seen: list[Agent[Any]] = []
    left = [agent]
    while left:
        each = left.pop()
        if any(each is known for known in seen):
            continue  # agents may hand off to each other in a circle
        seen.append(each)
        if each.mcp_servers or any(isinstance(to, Handoff) for to in each.handoffs):
            return None
        names += [tool.name for tool in each.tools if isinstance(tool, FunctionTool)]
        left += [to for to in each.handoffs if isinstance(to, Agent)]
    return names


class JournaledProvider(ModelProvider):
    """A model provider that wraps the models of another provider, so that their calls are steps."""

    def __init__(self, wrapped: ModelProvider, journaled: Journaled) -> None:
        self._wrapped = wrapped
        self._journaled = journaled

    def get_model(self, model_name: str | None) -> Model:
        return DurableAgentModel(self._wrapped.get_model(model_name), self._journaled)

    async def aclose(self) -> None:
        await self._wrapped.aclose()


class DurableAgentModel(Model):
    """A model whose calls are steps."""

    def __init__(self, wrapped: Model, journaled: Journaled) -> None:
        self._wrapped = wrapped
        self._journaled = journaled
        self._name = name_of(wrapped)

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002 - as the SDK calls it
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        if is_real(self._wrapped):
            refuse_if_forbidden(self._name)
        bridge = self._journaled.bridge
        shown = _shown(tools, handoffs)
        said = [system_instructions, to_jsonable_python(input), prompt, previous_response_id]
        most = model_settings.max_tokens or MOST_OUT
        settings = model_settings
        if bridge.brief.is_capped:  # the cost must have an upper bound
            settings = dataclasses.replace(settings, max_tokens=most)

        async def send() -> ModelResponse:
            return await self._wrapped.get_response(
                system_instructions,
                input,
                settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )

        return await bridge.model_step(
            ExternalCall(
                model=self._name,
                account=account_of(self._wrapped),
                send=send,
                sent=canonical([said, shown, _shape_of(output_schema)]),
                most=most,
                about={"models": [self._name], "turns": said[1], "tools": list(shown)},
                kept_as=_RESPONSE,
                usage_of=lambda response: usage_of(response.usage),
                within=_inside.get(),
            )
        )

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Not a step. A worker never streams; an agent used as a tool may, but its tool call is a step."""
        return self._wrapped.stream_response(*args, **kwargs)

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        return self._wrapped.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._wrapped._cleanup_on_run_end(owner)  # noqa: SLF001 - a wrapper passes the call on

    async def close(self) -> None:
        await self._wrapped.close()


class TaskShape(AgentOutputSchemaBase):
    """The JSON schema of a task as the output type of an agent that has none."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def is_plain_text(self) -> bool:
        return False

    def name(self) -> str:
        return "answer"

    def json_schema(self) -> dict[str, Any]:
        return self._schema

    def is_strict_json_schema(self) -> bool:
        return False

    def validate_json(self, json_str: str) -> Any:
        value, objection = objection_to(json_str, self._schema)
        if objection is not None:
            raise ModelBehaviorError(objection)
        return value


def _shown(tools: list[Tool], handoffs: list[Handoff[Any, Any]]) -> dict[str, Any]:
    """The tools and handoffs that a model sees, with their descriptions and schemas."""
    shown: dict[str, Any] = {
        tool.name: [tool.description, tool.params_json_schema]
        if isinstance(tool, FunctionTool)
        else None
        for tool in tools
    }
    return shown | {to.tool_name: [to.tool_description, to.input_json_schema] for to in handoffs}


def _shape_of(schema: AgentOutputSchemaBase | None) -> dict[str, Any] | None:
    return None if schema is None or schema.is_plain_text() else schema.json_schema()


def name_of(model: Model) -> str:
    """The model as `provider:model`."""
    return _full(str(getattr(model, "model", type(model).__name__)))


def account_of(model: Model) -> str:
    """The account whose rate limits the model shares."""
    return account_at(name_of(model).partition(":")[0], getattr(model, "_client", None))


def is_real(model: Model) -> bool:
    """Whether it is one of the SDK's own models, and not on this machine."""
    client = getattr(model, "_client", None)
    host = urlsplit(str(getattr(client, "base_url", ""))).hostname or ""
    module = type(model).__module__
    is_theirs = module.startswith("agents.") and not module.startswith("agents.testing.")
    return is_theirs and not is_loopback(host)


def _full(name: str) -> str:
    return name.replace("/", ":", 1) if "/" in name else f"openai:{name}"


def real_models(agent: Agent[Any], config: RunConfig | None) -> list[str]:
    """The models that the agent and its handoff agents call by name, without `Model` objects."""
    found: dict[int, Agent[Any]] = {}
    open_ = [agent]
    while open_:
        each = open_.pop()
        if id(each) not in found:
            found[id(each)] = each
            open_ += [to for to in each.handoffs if isinstance(to, Agent)]
    over = None if config is None else config.model
    chosen = [over or each.model for each in found.values()]
    return [_full(model) for model in chosen if isinstance(model, str)]


def usage_of(theirs: TheirUsage) -> Usage:
    cached = theirs.input_tokens_details.cached_tokens
    told = usage_told(theirs.input_tokens, theirs.output_tokens, cached, 0)
    return replace(told, calls=max(theirs.requests, 0))
