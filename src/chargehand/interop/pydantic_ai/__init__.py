"""A Pydantic AI agent as a worker. Needs `chargehand[pydantic-ai]`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.outcome import Done, ErrorClass, Outcome
from chargehand.facts.plan import Task
from chargehand.facts.value import Value
from chargehand.interop.agent_worker import (
    AgentOptions,
    AgentWorker,
    Effects,
    ToolEffects,
    needing,
)
from chargehand.interop.attempt_bridge import AttemptBridge, beyond
from chargehand.interop.error_classes import failure_of
from chargehand.roles.resources import Resources
from chargehand.supervisor.nested_runs import words_from

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
    """Make an agent of Pydantic AI a worker.

    It is asked what `prompt` makes of the brief, with the `deps` that are made of it. Each model call
    and each tool call is a durable step: an attempt that is resumed repeats none that has ended. What
    is to happen when a tool call is in doubt follows from `effects`. A tool that needs approval asks
    a person. A task with an `output` schema gets an answer that fits it.
    """
    with needing("pydantic-ai"):
        from pydantic_ai.agent import AbstractAgent
        from pydantic_ai.exceptions import UsageLimitExceeded
        from pydantic_ai.models import infer_model

        from chargehand.interop.pydantic_ai.durable_calls import (
            Journaling,
            is_real,
            name_of,
            spent_in,
        )
    if not isinstance(agent, AbstractAgent):
        raise UsageError(f"worker {name!r}: {agent!r} is no agent of Pydantic AI")
    declared = ToolEffects(effects)

    async def work(brief: Brief, resources: Resources) -> Outcome:
        bridge = AttemptBridge(brief, resources)
        options: dict[str, Any] = _shape(brief.task)
        if deps is not None:
            options["deps"] = deps(brief)
        running = agent.run(
            prompt(brief),
            model=model,
            usage_limits=usage_limits,
            capabilities=[Journaling(bridge, declared)],
            infer_name=False,
            **options,
        )
        try:
            result = await bridge.through(running)
            # Beside its steps: by other agents in its tools, if they pass on what they spend.
            more = beyond(spent_in(result.usage), bridge.usage)
            return Done(Value.of(result.output, brief.taint), more)
        except UsageLimitExceeded as error:
            return failure_of(error, kind=ErrorClass.LOGIC)
        except Exception as error:  # noqa: BLE001 - failure is a value, classed as it deserves
            return failure_of(error)

    def models() -> list[str]:
        chosen = model or agent.model
        opened = infer_model(chosen) if isinstance(chosen, str) else chosen
        return [name_of(opened)] if opened is not None and is_real(opened) else []

    return AgentWorker(work, name, description, untrusted=untrusted, models=models, **standing)


def _shape(task: Task) -> dict[str, Any]:
    """How to ask for an answer of the task's own shape, if it has one."""
    if task.output is None:
        return {}
    from pydantic_ai.output import StructuredDict

    return {"output_type": StructuredDict(task.output, name="answer")}
