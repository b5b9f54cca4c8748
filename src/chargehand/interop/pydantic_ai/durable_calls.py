"""Runs the model and tool calls of a Pydantic AI agent as durable steps. Imports Pydantic AI."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import TypeAdapter
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UsageLimitExceeded,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    tool_return_content_ta,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
    infer_model,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.output import StructuredDict
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, RunContext, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset
from pydantic_core import to_jsonable_python

from chargehand.facts.outcome import Done, ErrorClass, Outcome, Usage
from chargehand.facts.value import Value, canonical
from chargehand.interop.agent_worker_base import ToolEffects
from chargehand.interop.attempt_bridge import (
    MOST_OUT,
    AttemptBridge,
    ExternalCall,
    account_at,
    beyond,
)
from chargehand.interop.error_classes import failure_of
from chargehand.models.call_ban import refuse_if_forbidden
from chargehand.models.connection_settings import is_loopback
from chargehand.models.http_adapter import usage_of as usage_told

_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)
_RETURN: TypeAdapter[ToolReturn] = TypeAdapter(ToolReturn)
#: fields of a message that differ each time, even if the content is the same
_PASSING = {"timestamp", "run_id", "conversation_id"}
_UNREAL = ("test", "function")
#: exceptions with which a tool controls the framework, by name
_RAISED: dict[str, Callable[[Any], Exception]] = {
    kind.__name__: kind for kind in (ModelRetry, ToolFailed, ApprovalRequired, CallDeferred)
}


async def attempt(
    agent: AbstractAgent[Any, Any],
    bridge: AttemptBridge,
    effects: ToolEffects,
    prompt: Any,
    options: dict[str, Any],
) -> Outcome:
    """Run an agent for one attempt; an error is returned as `Failed`."""
    shape = bridge.brief.task.output
    if shape is not None:
        options = {**options, "output_type": StructuredDict(shape, name="answer")}
    journaling = Journaling(bridge, effects)
    running = agent.run(prompt, capabilities=[journaling], infer_name=False, **options)
    try:
        result = await bridge.through(running)
        # Usage outside of its steps: other agents in its tools, if they report their usage.
        run = result.usage
        spent = Usage(calls=run.requests, tokens_in=run.input_tokens, tokens_out=run.output_tokens)
        return Done(Value.of(result.output, bridge.brief.taint), beyond(spent, bridge.usage))
    except Exception as error:  # noqa: BLE001 - failure is a value, classed as it deserves
        kind = ErrorClass.LOGIC if isinstance(error, UsageLimitExceeded) else None
        return failure_of(error, kind=kind)


def real_models(agent: AbstractAgent[Any, Any], model: Model | str | None) -> list[str]:
    """The model that the agent calls, if it is a real model."""
    chosen = model or agent.model
    opened = infer_model(chosen) if isinstance(chosen, str) else chosen
    return [name_of(opened)] if isinstance(opened, Model) and is_real(opened) else []


def tools_of(agent: AbstractAgent[Any, Any]) -> list[str] | None:
    """The names of the agent's tools; None if they are known only at run time, such as those of an MCP server."""
    sets = [each for each in agent.toolsets if isinstance(each, FunctionToolset)]
    return [name for each in sets for name in each.tools] if sets == [*agent.toolsets] else None


class Journaling(AbstractCapability[Any]):
    """Makes each model call and tool call of an agent run a step of the attempt."""

    def __init__(self, bridge: AttemptBridge, effects: ToolEffects) -> None:
        super().__init__()
        self._bridge = bridge
        self._effects = effects
        #: number of messages that the last model call contained
        self._told = 0

    def get_wrapper_model(self, model: Model) -> Model:
        return DurablePydanticModel(model, self)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return JournaledTools(toolset, self._bridge, self._effects)

    async def handle_deferred_tool_calls(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - as the framework calls it
        *,
        requests: DeferredToolRequests,
    ) -> DeferredToolResults:
        """Ask a person to approve a call, or for the result of a call that is executed externally."""
        approvals: dict[str, bool | ToolDenied] = {}
        for call in requests.approvals:
            is_fine = await self._bridge.approve(call.tool_name, call.args_as_json_str())
            approvals[call.tool_call_id] = is_fine or ToolDenied()
        calls: dict[str, Any] = {
            call.tool_call_id: await self._told_by_person(call) for call in requests.calls
        }
        return requests.build_results(approvals=approvals, calls=calls)

    async def _told_by_person(self, call: ToolCallPart) -> str:
        arguments = call.args_as_json_str()
        return await self._bridge.ask(f"What is the result of {call.tool_name}({arguments})?")

    async def ask(
        self,
        model: Model,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """The model's response to these messages: requested once, then read from the journal."""
        name, said, tools = name_of(model), _lasting(messages), _tools_in(parameters)
        if is_real(model):
            refuse_if_forbidden(name)
        settings, most = self._bounded(settings)
        about = {"models": [name], "turns": said[self._told :], "tools": list(tools)}
        self._told = len(said)
        return await self._bridge.model_step(
            ExternalCall(
                model=name,
                account=account_of(model),
                send=lambda: model.request(messages, settings, parameters),
                sent=canonical([said, tools, parameters.output_object]),
                most=most,
                about=about,
                kept_as=_RESPONSE,
                usage_of=usage_of,
            )
        )

    def _bounded(self, settings: ModelSettings | None) -> tuple[ModelSettings | None, int]:
        """The model settings and the maximum tokens of the response. A capped run needs a maximum, so one is set."""
        most = (settings or {}).get("max_tokens") or MOST_OUT
        if not self._bridge.brief.is_capped:
            return settings, most
        return cast(ModelSettings, {**(settings or {}), "max_tokens": most}), most


class DurablePydanticModel(WrapperModel):
    """A model whose calls are steps."""

    def __init__(self, wrapped: Model, journaling: Journaling) -> None:
        super().__init__(wrapped)
        self._journaling = journaling

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await self._journaling.ask(
            self.wrapped, messages, model_settings, model_request_parameters
        )

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,  # noqa: ARG002 - as the framework calls it
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream the whole response in one go, because the journal stores whole responses."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(
            response, model_request_parameters=model_request_parameters, replay_events=True
        )


@dataclass
class JournaledTools(WrapperToolset[Any]):
    """Tools whose calls are steps. A control exception, such as `ModelRetry`, is recorded as a result."""

    bridge: AttemptBridge
    effects: ToolEffects

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        arguments = to_jsonable_python(tool_args, serialize_unknown=True)

        async def run() -> Done:
            kept = await self._kept(name, tool_args, ctx, tool)
            return Done(Value.of(kept, self.bridge.brief.taint))

        done = await self.bridge.step(
            f"tool {name}",
            [name, arguments, bool(ctx.tool_call_approved)],
            run,
            effect=self.effects.of(name),
            about={"arguments": arguments},
        )
        return _handed_out(done.value.read())

    async def _kept(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> dict[str, Any]:
        """What the tool returned or raised, in the form that the journal stores."""
        try:
            result = await self.wrapped.call_tool(name, tool_args, ctx, tool)
        except (ModelRetry, ToolFailed) as error:
            return {"raised": type(error).__name__, "is_error": True, "text": error.message}
        except (ApprovalRequired, CallDeferred) as error:
            return {"raised": type(error).__name__, "metadata": error.metadata}
        if isinstance(result, ToolReturn):
            return {"return": _RETURN.dump_python(result, mode="json")}
        return {"value": tool_return_content_ta.dump_python(result, mode="json")}


def _handed_out(kept: Any) -> Any:
    """What the framework gets from a tool call: the same when it runs and when it is replayed."""
    if not isinstance(kept, dict):
        return kept  # the answer of a person about a step in doubt
    raised = _RAISED.get(kept.get("raised", ""))
    if raised is not None:
        raise raised(kept["text"] if "text" in kept else kept["metadata"])
    if "return" in kept:
        return _RETURN.validate_python(kept["return"])
    return tool_return_content_ta.validate_python(kept.get("value", kept))


def name_of(model: Model) -> str:
    """The model as `provider:model`."""
    return f"{model.system}:{model.model_name}"


def account_of(model: Model) -> str:
    """The account whose rate limits the model shares."""
    return account_at(model.system, getattr(model, "client", model))


def is_real(model: Model) -> bool:
    """Whether the model is real: not a test model, and not on this machine."""
    return model.system not in _UNREAL and not is_loopback(
        urlsplit(str(model.base_url or "")).hostname or ""
    )


def _lasting(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """The messages without the fields that differ each time."""
    said = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [
        {**_without_passing(message), "parts": [_without_passing(p) for p in message["parts"]]}
        for message in said
    ]


def _without_passing(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _PASSING}


def _tools_in(parameters: ModelRequestParameters) -> dict[str, Any]:
    """The tools that a model sees, with their descriptions and schemas."""
    tools = (*parameters.function_tools, *parameters.output_tools)
    return {tool.name: [tool.description, tool.parameters_json_schema] for tool in tools}


def usage_of(response: ModelResponse) -> Usage:
    counts = response.usage
    cached = counts.cache_read_tokens, counts.cache_write_tokens
    return usage_told(counts.input_tokens, counts.output_tokens, *cached)
