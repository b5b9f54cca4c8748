"""A member of a roster whose work is done by somebody else's code."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypedDict, Unpack, cast

from msgspec.structs import replace

from chargehand.decisions.elastic_capacity import Elastic
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.outcome import Done, Usage
from chargehand.models.prices import price_of
from chargehand.roles.function_worker import FunctionWorker, Work
from chargehand.roles.resources import Resources
from chargehand.roles.worker_refusal import refusal_of


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
                raise UsageError(
                    f"Limits(money=…) cannot be kept: nobody knows the price of {model}, which worker "
                    f"{self.name!r} asks; limit calls or tokens instead, or install chargehand[prices]"
                )


def _judged(outcome: Any) -> Any:
    """The outcome; a text that says that the task cannot be done is a failure, as of our own workers."""
    if not isinstance(outcome, Done) or outcome.value.blob:
        return outcome
    text = outcome.value.read()
    refused = refusal_of(text) if isinstance(text, str) else None
    return outcome if refused is None else replace(refused, usage=outcome.usage)
