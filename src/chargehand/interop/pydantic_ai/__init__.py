"""A Pydantic AI agent as a worker. Needs `chargehand[pydantic-ai]`."""

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

    `prompt` and `deps` compute the prompt and the dependencies of the agent from the brief. Each model
    call and each tool call is a durable step: a resumed attempt does not repeat finished calls. `effects`
    decides what happens to a tool call that may or may not have taken effect. For a tool that needs
    approval, a person is asked. If the task has an `output` schema, the answer matches it.
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
