"""How an agent of a pool thinks: which model it asks, and how."""

from dataclasses import dataclass

from chargehand.errors import UsageError
from chargehand.models.base import Model, ModelSettings
from chargehand.models.opening import INSIDE, PROVIDERS
from chargehand.patterns.pool.mock import MOCK, MockModel

_NAMELESS = ("offline", MOCK)
#: providers with one model only


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """The provider and model of one agent, and what it is to do with them.

    `mock` asks no model at all: requests are divided by rule, and a worker without a function of its
    own says what it was given. `model` may also be a model, whatever the provider.
    """

    llm_provider: str = MOCK
    model: str | Model = ""
    logging_enabled: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    reasoning: str = ""
    #: effort: low, medium, high; empty: none asked for

    def __post_init__(self) -> None:
        if not isinstance(self.model, str):
            return
        known = (*PROVIDERS, *INSIDE, MOCK)
        if self.llm_provider not in known:
            raise UsageError(
                f"llm_provider={self.llm_provider!r} is none of {', '.join(known)}; give one of "
                "these, or a model as model="
            )
        if not self.model and self.llm_provider not in _NAMELESS:
            raise UsageError(
                f"llm_provider={self.llm_provider!r} has many models; name one: model='…'"
            )

    @property
    def choice(self) -> str | Model:
        """The model, as supervisors and workers take it."""
        if not isinstance(self.model, str):
            return self.model
        if self.llm_provider == MOCK:
            return MockModel()
        return self.llm_provider if self.llm_provider in _NAMELESS else self.spec

    @property
    def spec(self) -> str:
        """The model in one word: `openai:gpt-5-mini`."""
        return f"{self.llm_provider}:{self.model}"

    @property
    def is_mock(self) -> bool:
        """Whether no model is asked."""
        return isinstance(self.model, str) and self.llm_provider == MOCK

    @property
    def settings(self) -> ModelSettings:
        """How the model is to answer."""
        plain = ModelSettings(temperature=self.temperature, reasoning=self.reasoning)
        if self.max_tokens is None:
            return plain
        return ModelSettings(
            temperature=self.temperature, reasoning=self.reasoning, max_tokens=self.max_tokens
        )


BaseAgentConfig = AgentConfig
"""The name that others have for it."""
