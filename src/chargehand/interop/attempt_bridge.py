"""Connects one attempt to the framework that runs it: steps, model calls, questions and the end."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from msgspec.structs import replace
from pydantic import TypeAdapter

from chargehand.decisions.run_outputs_and_steps import MODEL_CALL
from chargehand.engines.brief import Brief
from chargehand.errors import (
    ModelBusy,
    ModelDenied,
    ModelError,
    ModelForbidden,
    ModelRefused,
    ModelTooSlow,
    ModelUnreachable,
    WorkerError,
)
from chargehand.facts.events import Effect
from chargehand.facts.http_statuses import status_of
from chargehand.facts.outcome import MOST_TOLD, NO_USAGE, ONE_CALL, Done, ErrorClass, Usage
from chargehand.facts.value import Value, digest_of
from chargehand.interop.error_classes import failure_of, told_by
from chargehand.models.base import (
    Abilities,
    ModelReply,
    ModelRequest,
    ModelSettings,
    StopReason,
    account_of,
    user,
)
from chargehand.models.prices import is_plausible, price_of, settled, worst_price
from chargehand.models.provider_errors import lasting_kind
from chargehand.roles.shared_resources import Resources, terms_of
from chargehand.roles.tool_loop import APPROVE, REJECT

T = TypeVar("T")
#: maximum tokens of a response in a run with a budget, if the framework sets no maximum
MOST_OUT = ModelSettings().max_tokens
#: the largest usage that is accepted as reported if nothing is capped
_ANYTHING = Usage(tokens_in=MOST_TOLD, tokens_out=MOST_TOLD)
_KINDS: dict[ErrorClass, type[ModelError]] = {
    ErrorClass.RESOURCE: ModelBusy,
    ErrorClass.DENIED: ModelForbidden,
    ErrorClass.TIMEOUT: ModelTooSlow,
    ErrorClass.NETWORK: ModelUnreachable,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCall(Generic[T]):
    """A model call that a framework makes."""

    #: the model as `provider:model`
    model: str
    #: the account whose rate limits it shares
    account: str
    #: calls the framework's own model; may be called several times
    send: Callable[[], Awaitable[T]]
    #: everything that is sent to the model, as JSON
    sent: bytes
    #: maximum tokens of the response
    most: int
    #: what the trace shows of the call
    about: object
    #: converts the response to and from JSON for the journal
    kept_as: TypeAdapter[T]
    #: the usage that a response reports
    usage_of: Callable[[T], Usage]
    #: the tool call that makes this model call, if any
    within: str = ""


class AttemptBridge:
    """Runs one attempt in another framework, and protects the exceptions that end the attempt.

    A question to a person, a lost task or a replay mismatch must reach the engine. The framework may
    report such an exception to a model, wrap it in a group or swallow it. So the bridge records it, and
    raises it again when the framework has returned.
    """

    def __init__(self, brief: Brief, resources: Resources) -> None:
        self.brief = brief
        #: the total of all model calls that are steps, including replayed ones
        self.usage = NO_USAGE
        self._resources = resources
        self._ending: BaseException | None = None
        self._turns = 0
        #: by question without what is told of earlier ones: how often a person approved this call
        self._approved: dict[str, int] = {}
        #: whether the last failed call may have cost money; None: nobody knows
        self._is_paid: bool | None = None

    async def through(self, work: Awaitable[T]) -> T:
        """What the framework returns or raises, unless an exception that ends the attempt was recorded."""
        try:
            result = await work
        except BaseException:
            if self._ending is not None:
                raise self._ending from None
            raise
        if self._ending is not None:
            raise self._ending
        return result

    async def step(
        self,
        name: str,
        identity: object,
        run: Callable[[], Awaitable[Done]],
        *,
        effect: Effect,
        about: object = None,
        reserve: Usage = NO_USAGE,
        counts_itself: bool = False,
    ) -> Done:
        """`brief.durable` for a call of the framework. An exception of `run` is raised to the framework.

        The journal records it with its error class. `counts_itself`: what a failed call has cost is
        reported at the end of the attempt.
        """
        own: Exception | None = None
        if name == MODEL_CALL:
            self._turns += 1
            if self._turns > self.brief.turns_left:
                self._ending = self._ending or self.brief.too_many_turns()
                raise self._ending

        async def told(_: str) -> Done:
            nonlocal own
            self._is_paid = None
            try:
                return await run()
            except Exception as error:
                own, failure = error, told_by(error)
                failure.may_be_paid, failure.is_counted = self._is_paid, counts_itself
                raise failure from error

        try:
            return await self.brief.durable(
                name, identity, told, effect=effect, about=about, reserve=reserve
            )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if own is not None and isinstance(error, WorkerError) and error.__cause__ is own:
                raise own from own.__cause__
            self._ending = self._ending or error
            raise

    async def model_step(self, call: ExternalCall[T]) -> T:
        """The response of the framework's model: requested once, then read from the journal."""

        async def run() -> Done:
            response, usage = await self._asked(call)
            kept = {
                "model": call.model,
                "response": call.kept_as.dump_python(response, mode="json"),
            }
            return Done(Value.of(kept, self.brief.taint), usage)

        is_capped = self.brief.is_capped
        done = await self.step(
            f"{MODEL_CALL} in {call.within}" if call.within else MODEL_CALL,
            [call.model, digest_of(call.sent)],
            run,
            effect=Effect.PURE,
            about=call.about,
            reserve=worst(call.model, len(call.sent), call.most) if is_capped else ONE_CALL,
        )
        response = call.kept_as.validate_python(done.value.read()["response"])
        self.usage += call.usage_of(response)
        return response

    async def _asked(self, call: ExternalCall[T]) -> tuple[T, Usage]:
        """Call the model through the gateway, with its rate limits and retries; returns the response and its usage.

        Raises what the framework's own call raised, and `Parked` during a long outage of the provider.
        """
        model = _QueuedModel(call)
        # A stand-in request of the same size. Unique, so that the gateway shares no response.
        settings = ModelSettings(max_tokens=call.most, extra={"call": uuid.uuid4().hex})
        request = ModelRequest(turns=(user(call.sent.decode()),), settings=settings)
        try:
            answered = await self._resources.gateway.ask(
                [model], request, priority=self.brief.task.priority, terms=terms_of(self.brief)
            )
        except ModelError as error:
            self._is_paid = error.may_be_paid
            cause = error.__cause__
            if cause is None:
                raise
            raise cause from cause.__cause__
        bound = worst(answered.model, len(call.sent), call.most)
        usage = answered.reply.usage
        if self.brief.is_capped or not is_plausible(usage, _ANYTHING, has_parts=True):
            usage = settled(answered.model, usage, bound)
        else:
            usage = priced(answered.model, replace(usage, calls=1))
        for _ in range(answered.doubtful):
            usage += bound
        return model.came[0], usage

    async def ask(self, text: str, choices: Sequence[str] = ()) -> str:
        """Ask a person, as `brief.ask` does."""
        try:
            return await self.brief.ask(text, choices=choices)
        except BaseException as error:
            self._ending = self._ending or error
            raise

    async def approve(self, tool: str, arguments: str) -> bool:
        """Ask a person whether a tool may be called with exactly these arguments."""
        question = f"May {self.brief.worker} call {tool}({arguments})?"
        # Counted here, and without a time: a replayed question must have the same words.
        times = self._approved.get(question, 0)
        again = "" if times == 1 else f" {times} times"
        told = f" The same call was already approved{again} for this task." if times else ""
        is_approved = await self.ask(f"{question}{told}", (APPROVE, REJECT)) == APPROVE
        self._approved[question] = self._approved.get(question, 0) + is_approved
        return is_approved


class _QueuedModel(Generic[T]):
    """A stand-in for a model in the gateway: when it is called, the framework calls its own model."""

    abilities = Abilities()

    def __init__(self, call: ExternalCall[T]) -> None:
        self.name = call.model
        self.account = call.account
        #: the response, once it has arrived
        self.came: list[T] = []
        self._call = call

    async def ask(self, request: ModelRequest) -> ModelReply:  # noqa: ARG002 - `send` has the real request
        try:
            response = await self._call.send()
        except ModelError:
            raise
        except Exception as error:
            raise _model_error(error) from error
        self.came = [response]
        return ModelReply(parts=(), stop=StopReason.END, usage=self._call.usage_of(response))

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        yield await self.ask(request)


def _model_error(error: Exception) -> ModelError:
    failed = failure_of(error)
    status = status_of(error) or 0
    kind = _KINDS.get(failed.kind, ModelRefused)
    if status == HTTPStatus.UNAUTHORIZED:
        kind = ModelDenied  # a bad key fails all calls; any other denial fails only this one
    elif not issubclass(kind, ModelDenied):
        kind = lasting_kind(status, failed.message, failed.retry_after) or kind
    return kind(failed.message, retry_after=failed.retry_after, status=status)


def account_at(provider: str, client: Any) -> str:
    """The account of a provider's client, the same as that of our own adapters with the same key."""
    host = urlsplit(str(getattr(client, "base_url", ""))).netloc
    return account_of(provider, f"{host} {getattr(client, 'api_key', '')}")


def priced(model: str, usage: Usage) -> Usage:
    """The usage with the price of `provider:model`, or 0 if the price is unknown."""
    return replace(usage, money=max(price_of(model, usage) or 0.0, 0.0))


def worst(model: str, sent: int, most: int) -> Usage:
    """The maximum cost of a request of this many bytes, which cannot have more tokens than bytes."""
    bound = Usage(calls=1, tokens_in=sent, tokens_out=most)
    return replace(bound, money=worst_price(model, bound))


def beyond(all_: Usage, seen: Usage) -> Usage:
    """The usage that is not accounted for yet; its price is unknown."""
    return Usage(
        calls=max(all_.calls - seen.calls, 0),
        tokens_in=max(all_.tokens_in - seen.tokens_in, 0),
        tokens_out=max(all_.tokens_out - seen.tokens_out, 0),
    )
