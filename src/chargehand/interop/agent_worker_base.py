"""A worker that runs an agent or graph of another framework, and code that all frameworks share."""

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
from chargehand.roles.shared_resources import Resources

#: one effect for all tools of another framework, or effects by tool name; a tool that is not named is `once`
Effects: TypeAlias = "Effect | str | Mapping[str, Effect | str]"


class AgentOptions(TypedDict, total=False):
    """Options of a worker, as for `chargehand.worker`; all are optional."""

    skills: Sequence[str]
    capacity: int | Elastic | None
    weight: float | None
    timeout: timedelta | None
    version: str
    on_failure: OnFailure | None


class AgentWorker(FunctionWorker):
    """An agent or graph of another framework. With `untrusted`, everything that it returns is tainted."""

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
        #: returns the known real models that it calls, as `provider:model`
        self._models = models

    def work(self, resources: object) -> Work:
        """The function that runs an attempt; model calls go through the gateway of these resources."""
        return functools.partial(self._attempt, resources=cast("Resources", resources))

    def refuse_unpriced(self, resources: object) -> None:  # noqa: ARG002 - as all workers that call models
        """Raise `UsageError` if it calls a model of unknown price, because a cap on money could not be enforced."""
        one = Usage(calls=1, tokens_in=1, tokens_out=1)
        for model in self._models():
            if price_of(model, one) is None:
                raise UsageError(unpriced_words(model, f"worker {self.name!r}"))


def _judged(outcome: Any) -> Any:
    """The outcome; a text that refuses the task becomes a failure, as with chargehand's own workers."""
    if not isinstance(outcome, Done) or outcome.value.blob:
        return outcome
    text = outcome.value.read()
    refused = refusal_of(text) if isinstance(text, str) else None
    return outcome if refused is None else replace(refused, usage=outcome.usage)


class ToolEffects:
    """The declared effect of each tool."""

    def __init__(self, effects: Effects) -> None:
        self._all = _effect(effects) if isinstance(effects, str) else Effect.ONCE
        named = {} if isinstance(effects, str) else effects
        self._named = {tool: _effect(effect) for tool, effect in named.items()}

    def of(self, tool: str) -> Effect:
        return self._named.get(tool, self._all)

    def refuse_unknown(self, tools: Collection[str] | None, worker: str) -> None:
        """Raise `UsageError` for a declared tool that does not exist. None: the tools are known only at run time."""
        unknown = [] if tools is None else [name for name in self._named if name not in tools]
        if unknown:
            raise UsageError(
                f"worker {worker!r}: effects names {unknown[0]!r}, which is not a tool of the agent; "
                f"it has {', '.join(tools or ()) or 'none'}"
            )


def _effect(word: str) -> Effect:
    # Not keyed: there is no way to pass the key to such a tool.
    known = [each for each in Effect if each is not Effect.KEYED]
    if word not in known:
        words = ", ".join(each.value for each in known)
        raise UsageError(f"{word!r} is not an effect that a tool can have here; there are {words}")
    return Effect(word)


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """If an import inside fails, raise `UsageError` with the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(f"{error}; pip install 'chargehand[{extra}]'") from error
