"""LLM workers: ask a model, use tools, check their own result.

Every model and tool call is a durable step, so a worker that is resumed asks nothing twice. The model
proposes; which tools may be called, how often, and when it is over are decided here.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypedDict

from chargehand.decisions.dispatch import Place
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.tool_rules import Rule, Rules
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.events import Effect
from chargehand.facts.failure_policy import OnFailure, on_failure_of
from chargehand.facts.outcome import Outcome
from chargehand.facts.value import canonical, digest_of
from chargehand.models.base import ModelSettings, system
from chargehand.roles.function_worker import Where, check_words
from chargehand.roles.prompts import prompt, prompt_folder
from chargehand.roles.refusal_detection import BY_CALL, BY_LINE
from chargehand.roles.shared_resources import ModelChoice, Resources, check_model
from chargehand.roles.tool_loop import ToolLoop, digest_after
from chargehand.tools.base import Tool
from chargehand.tools.toolbox import Toolbox


class WorkerOptions(TypedDict, total=False):
    """Options that `Worker` and `Factory` have in common; `Worker` explains each."""

    model: "ModelChoice | None"
    settings: ModelSettings | None
    skills: Sequence[str]
    secrets: Sequence[str]
    destinations: Sequence[str]
    preapproved: Sequence[str]
    capacity: int | Elastic | None
    weight: float | None
    timeout: Duration | None
    prompts: str | Path | None


class Worker:
    """An LLM worker: a name, a description, instructions, a model and its own tools.

    `model` may be a fallback chain. `rules` say which tools come first, how often, and so on.
    `secrets` and `destinations` are what its tools may use and reach; nothing is granted by
    default.
    """

    where = Where.LOOP

    @checks.arguments_checked(settings=ModelSettings, tools=Sequence, rules=Sequence)
    def __init__(
        self,
        name: str,
        description: str,
        *,
        instructions: str = "",
        tools: Sequence[Tool] = (),
        model: "ModelChoice | None" = None,
        settings: ModelSettings | None = None,
        rules: Sequence[Rule] = (),
        skills: Sequence[str] = (),
        secrets: Sequence[str] = (),
        destinations: Sequence[str] = (),
        preapproved: Sequence[str] = (),
        capacity: int | Elastic | None = None,
        weight: float | None = None,
        timeout: Duration | None = None,
        prompts: str | Path | None = None,
        on_failure: OnFailure | Sequence[str] | None = None,
    ) -> None:
        check_words(name, description)
        checks.text(instructions, f"worker {name!r}: instructions")
        self.name = name
        self.description = description
        self.toolbox = Toolbox(tools)
        check_model(model, f"worker {name!r}")
        self.model = model
        self.settings = settings or ModelSettings()
        self.rules = Rules(rules, self.toolbox.names)
        self.skills = checks.names(skills, f"worker {name!r}: skills")
        self.secrets = frozenset(checks.names(secrets, f"worker {name!r}: secrets"))
        self.destinations = frozenset(checks.hosts(destinations, f"worker {name!r}: destinations"))
        self.preapproved = frozenset(checks.names(preapproved, f"worker {name!r}: preapproved"))
        if unknown := sorted(self.preapproved - frozenset(self.toolbox.names)):
            raise UsageError(f"preapproved names {unknown[0]!r}, which is not a tool of {name!r}")
        self.timeout = checks.duration_or_none(timeout, f"worker {name!r}: timeout")
        self.on_failure = on_failure_of(on_failure)
        self.prompts = (
            None if prompts is None else prompt_folder(prompts, f"worker {name!r}: prompts")
        )
        self.opening = system(
            prompt(
                "worker",
                self.prompts,
                name=name,
                description=description,
                instructions=instructions,
                rules=self.rules.words(),
                failing=BY_CALL if len(self.toolbox) else BY_LINE,
            )
        )
        self.opening_digest = digest_after(b"", self.opening)
        self._capacity = capacity
        self._weight = weight

    def __repr__(self) -> str:
        return f"<worker {self.name!r}: {self.description}>"

    @property
    def place(self) -> Place:
        return Place(
            worker=self.name, skills=self.skills, capacity=self._capacity, weight=self._weight
        )

    def version(self, resources: Resources) -> str:
        """Changes with its prompt, settings, models and tools; empty if one of its tools may not run twice."""
        free = (Effect.PURE, Effect.IDEMPOTENT)
        if any(tool.effect not in free for tool in self.toolbox):
            return ""
        models = [model.name for model in resources.models(self.model, f"worker {self.name!r}")]
        tools = [tool.version for tool in self.toolbox]
        return digest_of(canonical([self.opening.text, self.settings, models, tools]))

    def work(self, resources: Resources) -> Callable[[Brief], Awaitable[Outcome]]:
        """The function that runs an attempt of this worker with these resources."""
        models = resources.models(self.model, f"worker {self.name!r}")

        async def perform(brief: Brief) -> Outcome:
            return await ToolLoop(self, brief, resources, models).hold()

        return perform
