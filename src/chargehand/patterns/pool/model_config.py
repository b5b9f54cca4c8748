"""The model and the model settings of a pool agent."""

from collections.abc import AsyncIterator, Sequence
from functools import cached_property
from reprlib import repr as repr_of

from msgspec import Struct
from msgspec.structs import replace

from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.models.base import (
    Abilities,
    Model,
    ModelReply,
    ModelRequest,
    ModelSettings,
    StopReason,
    Text,
    why_no_model,
)
from chargehand.models.open_model import IN_PROCESS, PROVIDERS, open_model

MOCK = "mock"
ABILITIES = Abilities(tools=False, schema=False, images=False, files=False, is_real=False)
#: characters of the task that the mock model repeats
LONGEST = 500

#: providers with one model only, which is no real one
_NAMELESS = ("offline", MOCK)
HOTTEST = 2.0
MOST_TOKENS = 10_000_000


class MockModel:
    """A model for tests and demos: repeats the task, marked as a mock reply."""

    name = MOCK
    account = MOCK
    abilities = ABILITIES

    async def ask(self, request: ModelRequest) -> ModelReply:
        """Repeat the last turn of the request, marked as a mock reply."""
        words = " ".join(request.turns[-1].text.split())
        given = words.removeprefix("Task: ")[:LONGEST]
        said = Text(f"[mock] no model was asked; the task was: {given}")
        return ModelReply(parts=(said,), stop=StopReason.END)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """Yield the text in one piece, and then the reply."""
        reply = await self.ask(request)
        yield reply.text
        yield reply


class AgentConfig(Struct, metaclass=checks.CheckedKeywords, frozen=True, kw_only=True, dict=True):
    """The provider, the model and the model settings of one agent.

    The provider `mock` calls no model: requests are divided by rule, and a worker without a function of
    its own repeats its task. `model` is the name of a model, or a model object, for which the provider is
    ignored. `base_url` is the address of a server that speaks the provider's protocol.
    """

    llm_provider: str = MOCK
    model: str | Model = ""
    logging_enabled: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    #: reasoning effort: low, medium or high; empty: the default of the model
    reasoning: str = ""
    base_url: str = ""

    def __post_init__(self) -> None:
        checks.name(self.llm_provider, "llm_provider")
        checks.text(self.reasoning, "reasoning", most=checks.LONGEST_NAME)
        checks.text(self.base_url, "base_url")
        if not isinstance(self.logging_enabled, bool):
            raise UsageError(
                f"logging_enabled={repr_of(self.logging_enabled)} must be True or False"
            )
        if self.temperature is not None:
            checks.amount(self.temperature, "temperature", most=HOTTEST)
        if self.max_tokens is not None:
            checks.count(self.max_tokens, "max_tokens", least=1, most=MOST_TOKENS)
        if isinstance(self.model, str):
            self._check_names(checks.text(self.model, "model"))
        elif not hasattr(self.model, "ask"):
            raise UsageError(f"model={repr_of(self.model)} is neither a name nor a model")
        elif why := why_no_model(self.model):
            raise UsageError(f"model: {why}")
        elif self.base_url:
            raise UsageError("base_url is for a model that is given by name; leave it out")

    def _check_names(self, model: str) -> None:
        known = (*PROVIDERS, *IN_PROCESS, MOCK)
        if self.llm_provider not in known:
            raise UsageError(
                f"llm_provider={self.llm_provider!r} is none of {', '.join(known)}; give one of "
                "these, or a model as model="
            )
        provider, _, name = model.partition(":")
        if self.is_mock and name and provider in known:
            raise UsageError(
                f"model={model!r} names a provider, but llm_provider={MOCK!r} calls no model; write "
                f"llm_provider={provider!r}, model={name!r}"
            )
        if model and self.is_mock:
            raise UsageError(
                f"model={model!r}: llm_provider={MOCK!r} calls no model; name the provider: "
                f"llm_provider='openai', or one of {', '.join((*PROVIDERS, *IN_PROCESS))}"
            )
        if not model and self.llm_provider not in _NAMELESS:
            raise UsageError(
                f"llm_provider={self.llm_provider!r} has many models; name one: model='…'"
            )
        if self.base_url and self.llm_provider not in PROVIDERS:
            raise UsageError(
                f"base_url={self.base_url!r}: {self.llm_provider} takes no base_url; give "
                "llm_provider='openai' for an OpenAI-compatible server"
            )

    @cached_property
    def choice(self) -> str | Model:
        """The model, in the form that supervisors and workers accept."""
        if not isinstance(self.model, str):
            return self.model
        if self.llm_provider == MOCK:
            return MockModel()
        if self.base_url:
            return open_model(self.spec, base_url=self.base_url)
        return self.llm_provider if self.llm_provider in _NAMELESS else self.spec

    @property
    def spec(self) -> str:
        """The model as one string, such as `openai:gpt-5-mini`."""
        return f"{self.llm_provider}:{self.model}"

    @property
    def is_mock(self) -> bool:
        """Whether no model is called."""
        return isinstance(self.model, str) and self.llm_provider == MOCK

    @property
    def settings(self) -> ModelSettings:
        """The settings of model calls."""
        settings = ModelSettings(temperature=self.temperature, reasoning=self.reasoning)
        most = self.max_tokens
        return settings if most is None else replace(settings, max_tokens=most)


def config_of(config: AgentConfig | None) -> AgentConfig:
    """The config of an agent; the default is the mock provider."""
    if config is None:
        return AgentConfig()
    if not isinstance(config, AgentConfig):
        raise UsageError(
            f"config={repr_of(config)} is not a config; write AgentConfig(llm_provider=…, model=…)"
        )
    return config


def is_by_rule(models: Sequence[Model]) -> bool:
    """Whether none of the models is a real one, so that a rule must do its work."""
    return all(model.name in _NAMELESS for model in models)


#: an alias that other frameworks use
BaseAgentConfig = AgentConfig
