"""A Pydantic AI agent as a worker. Needs `chargehand[pydantic-ai]`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.outcome import Outcome
from chargehand.interop.agent_worker import (
    AgentOptions,
    AgentWorker,
    Effects,
    ToolEffects,
    needing,
)
from chargehand.interop.attempt_bridge import AttemptBridge
from chargehand.roles.resources import Resources
from chargehand.supervisor.nested_requests import words_from

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.models import Model
    from pydantic_ai.usage import UsageLimits


def agent_worker(
    agent: "Agent[Any, Any]",
    name: str,
    description: str,
    *,
    prompt: Callable[[Brief], Any] = words_from,
    deps: Callable[[Brief], Any] | None = None,
    model: "Model | str | None" = None,
    usage_limits: "UsageLimits | None" = None,
    effects: Effects = "once",
    untrusted: bool = False,
    **standing: Unpack[AgentOptions],
) -> AgentWorker:
    """Turn a Pydantic AI agent into a worker.

    It is asked what `prompt` makes of the brief, with the `deps` that are made of it. Each model call
    and each tool call is a durable step: an attempt that is resumed repeats none that has ended. What
    is to happen when a tool call is in doubt follows from `effects`. A tool that needs approval asks
    a person. A task with an `output` schema gets an answer that fits it.
    """
    with needing("pydantic-ai"):
        from pydantic_ai.agent import AbstractAgent

        from chargehand.interop.pydantic_ai.durable_calls import attempt, real_models, tools_of
    if not isinstance(agent, AbstractAgent):
        raise UsageError(f"worker {name!r}: {agent!r} is not an agent of Pydantic AI")
    declared = ToolEffects(effects)
    declared.refuse_unknown(tools_of(agent), name)

    async def work(brief: Brief, resources: Resources) -> Outcome:
        options = {} if deps is None else {"deps": deps(brief)}
        options |= {"model": model, "usage_limits": usage_limits}
        return await attempt(
            agent, AttemptBridge(brief, resources), declared, prompt(brief), options
        )

    return AgentWorker(
        work,
        name,
        description,
        untrusted=untrusted,
        models=lambda: real_models(agent, model),
        **standing,
    )
