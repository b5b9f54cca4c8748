"""A worker whose work is done by another framework, and what the frameworks have in common."""

import functools
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict, Unpack, cast

from msgspec.structs import replace

from chargehand.decisions.elastic_capacity import Elastic
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.events import Effect
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.outcome import Done, Usage
from chargehand.models.prices import price_of, unpriced_words
from chargehand.roles.function_worker import FunctionWorker, Work
from chargehand.roles.refusal_detection import refusal_of
from chargehand.roles.resources import Resources

Effects: TypeAlias = "Effect | str | Mapping[str, Effect | str]"
"""The effect of all tools of another framework, or by the name of the tool; one that is not named is `once`."""


class AgentOptions(TypedDict, total=False):
    """How a worker stands on a roster, as for `chargehand.worker`; all of it may be left out."""

    skills: Sequence[str]
    capacity: int | Elastic | None
    weight: float | None
    timeout: timedelta | None
    version: str
    on_failure: OnFailure | None


class AgentWorker(FunctionWorker):
    """An agent or a graph of another framework. With `untrusted`, whatever it returns is tainted."""

    def __init__(
        self,
        work: Callable[[Brief, Resources], Awaitable[Any]],
        name: str,
        description: str,
        *,
        untrusted: bool = False,
        models: Callable[[], Sequence[str]] = tuple,
        **standing: Unpack[AgentOptions],
    ) -> None:
        async def attempt(brief: Brief, resources: Resources | None = None) -> Any:
            if untrusted:
                brief.distrust(f"worker:{name}")
            return _judged(await work(brief, resources or Resources()))

        super().__init__(attempt, name, description, **standing)
        self._attempt = attempt
        #: the real ones that it is known to ask, as `provider:model`
        self._models = models

    def work(self, resources: object) -> Work:
        """What an attempt of it is: its models are asked through the gateway of these resources."""
        return functools.partial(self._attempt, resources=cast("Resources", resources))

    def refuse_unpriced(self, resources: object) -> None:  # noqa: ARG002 - as all who ask models
        """Raise `UsageError` if it asks a model whose price nobody knows: a cap on money could not be kept."""
        one = Usage(calls=1, tokens_in=1, tokens_out=1)
        for model in self._models():
            if price_of(model, one) is None:
                raise UsageError(unpriced_words(model, f"worker {self.name!r}"))


def _judged(outcome: Any) -> Any:
    """The outcome; a text that says that the task cannot be done is a failure, as of our own workers."""
    if not isinstance(outcome, Done) or outcome.value.blob:
        return outcome
    text = outcome.value.read()
    refused = refusal_of(text) if isinstance(text, str) else None
    return outcome if refused is None else replace(refused, usage=outcome.usage)


class ToolEffects:
    """The effect of each tool, as it was declared."""

    def __init__(self, effects: Effects) -> None:
        self._all = _effect(effects) if isinstance(effects, str) else Effect.ONCE
        named = {} if isinstance(effects, str) else effects
        self._named = {tool: _effect(effect) for tool, effect in named.items()}

    def of(self, tool: str) -> Effect:
        return self._named.get(tool, self._all)

    def refuse_unknown(self, tools: Collection[str] | None, worker: str) -> None:
        """Raise `UsageError` for a name that no tool has. None: which tools there are shows only during the work."""
        unknown = [] if tools is None else [name for name in self._named if name not in tools]
        if unknown:
            raise UsageError(
                f"worker {worker!r}: effects names {unknown[0]!r}, which is not a tool of the agent; "
                f"it has {', '.join(tools or ()) or 'none'}"
            )


def _effect(word: str) -> Effect:
    # Not keyed: there is no way to hand such a tool its key.
    known = [each for each in Effect if each is not Effect.KEYED]
    if word not in known:
        words = ", ".join(each.value for each in known)
        raise UsageError(f"{word!r} is not an effect that a tool can have here; there are {words}")
    return Effect(word)


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Say which extra to install if what is imported inside is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{error}; pip install 'chargehand[{extra}]'") from error
