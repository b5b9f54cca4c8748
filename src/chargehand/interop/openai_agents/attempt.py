"""One attempt of an OpenAI Agents SDK agent, from its prompt to its outcome. Imports the SDK."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import (
    Agent,
    AgentsException,
    InputGuardrailTripwireTriggered,
    MultiProvider,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)

from chargehand.errors import WorkerError
from chargehand.facts.outcome import NO_USAGE, Done, ErrorClass, Outcome, Usage
from chargehand.facts.value import Value
from chargehand.interop.attempt_bridge import beyond
from chargehand.interop.error_classes import failure_of
from chargehand.interop.openai_agents.durable_calls import Journaled, usage_of

TRIPWIRES = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)


class AgentAttempt:
    """Runs an agent until it has an answer, and asks a person for approvals."""

    def __init__(
        self, agent: Agent[Any], journaled: Journaled, context: Any, max_turns: int
    ) -> None:
        self._agent = journaled.agent(agent)
        self._journaled = journaled
        self._context = context
        self._max_turns = max_turns
        #: the usage of the whole run, as the SDK counts it
        self._spent = NO_USAGE

    async def hold(self, prompt: Any, config: RunConfig | None, *, tracing: bool) -> Outcome:
        """Run the attempt; an error is returned as `Failed`."""
        taint = self._journaled.bridge.brief.taint
        try:
            async with _configured(config, tracing=tracing) as chosen:
                result = await self._run(prompt, self._journaled.config(chosen))
            return Done(Value.of(result.final_output, taint), self._unseen())
        except Exception as error:  # noqa: BLE001 - failure is a value, classed as it deserves
            if isinstance(error, AgentsException) and error.run_data is not None:
                self._spent = usage_of(error.run_data.context_wrapper.usage)
            kind = ErrorClass.DENIED if isinstance(error, TRIPWIRES) else None
            return failure_of(error, self._unseen(), kind)

    async def _run(self, prompt: Any, config: RunConfig) -> RunResult:
        result = await self._go_on(prompt, config)
        while result.interruptions:
            result = await self._go_on(await self._decided(result), config)
        return result

    async def _go_on(self, entry: Any, config: RunConfig) -> RunResult:
        running = Runner.run(
            self._agent,
            entry,
            context=self._context,
            max_turns=self._max_turns,
            run_config=config,
        )
        result = await self._journaled.bridge.through(running)
        self._spent = usage_of(result.context_wrapper.usage)
        return result

    async def _decided(self, result: RunResult) -> RunState[Any]:
        """The state to continue from, after a person has decided about all waiting calls."""
        state = result.to_state()
        for item in result.interruptions:
            if not self._journaled.has(item.agent):
                raise WorkerError(
                    f"{item.agent.name}, which is used as a tool, wants approval for {item.name}; ask "
                    "for it before the agent is used: agent.as_tool(…, needs_approval=True)",
                    kind="denied",
                )
            approved = await self._journaled.bridge.approve(
                item.name or "a tool", item.arguments or ""
            )
            (state.approve if approved else state.reject)(item)
        return state

    def _unseen(self) -> Usage:
        """The usage outside of the steps: agents used as tools that have models of their own."""
        return beyond(self._spent, self._journaled.bridge.usage)


@asynccontextmanager
async def _configured(config: RunConfig | None, *, tracing: bool) -> AsyncIterator[RunConfig]:
    """The settings of a run. The default model provider is closed on exit; one in `config` is not."""
    own = MultiProvider() if config is None else None
    chosen = config or RunConfig(model_provider=own or MultiProvider())
    try:
        yield dataclasses.replace(chosen, tracing_disabled=chosen.tracing_disabled or not tracing)
    finally:
        if own is not None:
            await own.aclose()
