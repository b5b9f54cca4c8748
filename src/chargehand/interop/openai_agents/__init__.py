"""An agent of the OpenAI Agents SDK as a worker. Needs `chargehand[openai-agents]`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.outcome import Outcome
from chargehand.interop.agent_worker_base import (
    AgentOptions,
    AgentWorker,
    Effects,
    ToolEffects,
    needing,
)
from chargehand.interop.attempt_bridge import AttemptBridge
from chargehand.roles.shared_resources import Resources
from chargehand.supervisor.nested_requests import words_from

if TYPE_CHECKING:
    from agents import Agent, RunConfig


def agent_worker(
    agent: "Agent[Any]",
    name: str,
    description: str,
    *,
    prompt: Callable[[Brief], Any] = words_from,
    context: Callable[[Brief], Any] | None = None,
    config: "RunConfig | None" = None,
    max_turns: int | None = None,
    effects: Effects = "once",
    untrusted: bool = False,
    tracing: bool = False,
    **standing: Unpack[AgentOptions],
) -> AgentWorker:
    """Turn an OpenAI Agents SDK agent into a worker, including the agents that it can hand off to.

    `prompt` and `context` compute the prompt and the context of the agent from the brief. Each model call
    and each call of a function tool is a durable step: a resumed attempt does not repeat finished calls.
    `effects` decides what happens to a tool call that may or may not have taken effect. For a tool that
    needs approval, a person is asked. Nothing is sent to the SDK's tracing service unless `tracing` is set.
    """
    with needing("openai-agents"):
        from agents import Agent as TheirAgent

        from chargehand.interop.openai_agents.attempt import AgentAttempt
        from chargehand.interop.openai_agents.durable_calls import Journaled, real_models, tools_of
    if not isinstance(agent, TheirAgent):
        raise UsageError(f"worker {name!r}: {agent!r} is not an agent of the OpenAI Agents SDK")
    declared = ToolEffects(effects)
    declared.refuse_unknown(tools_of(agent), name)

    async def work(brief: Brief, resources: Resources) -> Outcome:
        journaled = Journaled(AttemptBridge(brief, resources), declared, brief.task.output)
        deps = None if context is None else context(brief)
        turns = min(max_turns or brief.turns_left, brief.turns_left)
        attempt = AgentAttempt(agent, journaled, deps, turns)
        return await attempt.hold(prompt(brief), config, tracing=tracing)

    return AgentWorker(
        work,
        name,
        description,
        untrusted=untrusted,
        models=lambda: real_models(agent, config),
        **standing,
    )
