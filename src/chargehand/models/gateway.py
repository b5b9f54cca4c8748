"""The gateway: all model calls of a supervisor go through it.

It keeps one line per provider and key: who may call now, by priority and by what the provider bears
(limiter), and whether it is worth calling at all (breaker). A 429 puts the call back in the queue; it
is no failure of the task. A caller that may park is sent away (`Parked`) while nobody can be called for
long, so that it holds no place meanwhile. Several models make a chain: when one cannot be had, the next
is asked.
"""

import asyncio
import inspect
import logging
import math
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from chargehand import errors
from chargehand.decisions.circuit_breaker import OF_PROVIDERS, BreakerPolicy, BreakerState
from chargehand.decisions.rate_limiter import Rates
from chargehand.facts.argument_checks import Duration, arguments_checked, duration, instance
from chargehand.facts.lone_surrogates import without_surrogates
from chargehand.facts.outcome import Parked
from chargehand.facts.value import canonical, digest_of
from chargehand.models.base import Model, ModelReply, ModelRequest, valid_unicode, whole_reply
from chargehand.models.provider_errors import seconds_asked_by
from chargehand.models.provider_queue import (
    FIRST_PATIENCE,
    PARK,
    SHORT_PATIENCE,
    ProviderFault,
    ProviderLoad,
    ProviderQueue,
)
from chargehand.models.shared_calls import SharedCalls

log = logging.getLogger("chargehand")

Hear: TypeAlias = Callable[[str | None], None]
"""Hears the text of a reply piece by piece; None: the reply broke off and begins anew."""

FAILED = (errors.ModelUnreachable, errors.ModelTooSlow, errors.ModelGarbled)
PASSED_OVER = (
    *FAILED,
    errors.ModelBusy,
    errors.ModelDenied,
    errors.ModelExhausted,
    errors.ModelUnknown,
)
#: of one request that fails while others are served, or before anybody was
TRIES = 3
#: seconds before the second try; doubled from then on
FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
#: replies that are remembered
CACHED = 1000


class ModelSource(StrEnum):
    """Where a reply came from."""

    CALL = "call"
    CACHE = "cache"  #: the same was asked before
    SHARED = "shared"  #: the same was being asked


class Call(Struct, frozen=True, kw_only=True, gc=False):
    """A reply and what it took to get it."""

    reply: ModelReply
    model: str
    #: requests that went out, refused ones included
    sends: int = 1
    #: seconds in the queue
    waited: float = 0.0
    source: ModelSource = ModelSource.CALL
    #: of those, requests that timed out or broke off, and may have been paid for
    doubtful: int = 0


class CallTerms(Struct, frozen=True, kw_only=True, gc=False):
    """What a caller bears."""

    may_park: bool = False
    #: before, maybe in another process: then the provider has served somebody once
    has_parked: bool = False
    #: what may have been paid for is not sent again, but raised: its budget is for one
    once: bool = False
    #: by the loop's clock: then it is stopped
    until: float = math.inf

    def share(self, models: int) -> float | None:
        """The seconds that the first of so many models has; None: as long as it takes.

        A call that is broken off may have been paid for, so that a budget for one is for one model.
        """
        if math.isinf(self.until) or self.once or models == 1:
            return None
        return max(self.until - asyncio.get_running_loop().time(), 0) / models


_USUAL = CallTerms()


class _Ear:
    """Listens to the replies of all models of a chain while they come."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._is_begun = False

    async def ask(self, model: Model, line: ProviderQueue, request: ModelRequest) -> ModelReply:
        if self._is_begun:
            self._is_begun = False
            # What was heard belongs to a reply that broke off, maybe of another model.
            self._hear(None)
        async with aclosing(_pieces_of(model, request)) as pieces:
            async for piece in pieces:
                if not isinstance(piece, str):
                    return whole_reply(piece, model.name, "stream")
                self._is_begun = line.is_reached = True
                self._hear(without_surrogates(piece))
        # A reply that breaks off raises an error of its own, so that this is a fault of the model's code.
        raise errors.InvalidModelReply(model.name, "stream", "ended without a ModelReply")


def _pieces_of(model: Model, request: ModelRequest) -> AsyncGenerator[str | ModelReply, None]:
    stream: object = model.stream(request)
    if hasattr(stream, "__aiter__") and hasattr(stream, "aclose"):
        return cast("AsyncGenerator[str | ModelReply, None]", stream)
    if inspect.iscoroutine(stream):
        stream.close()  # it is never awaited, which Python would warn of
    raise errors.InvalidModelReply(
        model.name,
        "stream",
        f"is no async generator: it returned an object of type {type(stream).__name__}",
    )


async def _answer_of(
    model: str,
    asking: Callable[[ModelRequest], Awaitable[ModelReply]],
    request: ModelRequest,
) -> ModelReply:
    answering = asking(request)
    if not inspect.isawaitable(answering):
        raise errors.InvalidModelReply(model, "ask", "is not async: write `async def ask`")
    return valid_unicode(whole_reply(await answering, model, "ask"))


class ModelGateway:
    """Sends model calls with rate limits, priorities, fallback and circuit breakers. Shared by all workers."""

    @arguments_checked(breaker=BreakerPolicy, cache=bool)
    def __init__(
        self,
        rates: Mapping[str, Rates] | None = None,
        *,
        breaker: BreakerPolicy | None = None,
        patience: Duration = timedelta(minutes=10),
        cache: bool | None = None,
    ) -> None:
        instance(rates or {}, "ModelGateway: rates", Mapping)
        self._rates = dict(rates or {})
        for provider, agreed in self._rates.items():
            instance(agreed, f"ModelGateway: rates of {provider!r}", Rates)
        #: by provider ("openai") or by account
        self._breaker = (breaker or BreakerPolicy()).over(OF_PROVIDERS)
        #: how long a provider that is busy or down is waited for; then runs park, and other calls fail
        self._patience = duration(
            patience, "ModelGateway: patience", may_be_zero=True
        ).total_seconds()
        #: None: only calls that are meant to repeat themselves (temperature 0)
        self._cache = cache
        self._lines: dict[str, ProviderQueue] = {}
        self._known: OrderedDict[str, Call] = OrderedDict()
        self._asking: SharedCalls[Call] = SharedCalls()

    async def ask(
        self,
        models: Sequence[Model],
        request: ModelRequest,
        *,
        priority: int = 0,
        hear: Hear | None = None,
        terms: CallTerms = _USUAL,
    ) -> Call:
        """Ask the first of these models that is available; `hear` is called with the text as it arrives.

        Raises `Parked` for a caller that may park, if no model is available within a few
        seconds.
        """
        if not self._is_repeatable(request):
            return await self._ask_chain(models, request, priority, hear, terms=terms)
        key = digest_of(canonical([[model.name for model in models], request]))
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            if hear is not None:
                hear(known.reply.text)
            return replace(known, source=ModelSource.CACHE, sends=0, waited=0.0, doubtful=0)
        return await self._ask_shared(key, models, request, priority, hear, terms=terms)

    def states(self) -> dict[str, BreakerState]:
        """The state of the circuit breaker of every account that was called."""
        return {account: line.breaker.state for account, line in self._lines.items()}

    def loads(self) -> list[ProviderLoad]:
        """The current load of every account that was called in this event loop."""
        return [line.load() for line in self._lines.values()]

    def _is_repeatable(self, request: ModelRequest) -> bool:
        return request.settings.temperature == 0 if self._cache is None else self._cache

    async def _ask_shared(
        self,
        key: str,
        models: Sequence[Model],
        request: ModelRequest,
        priority: int,
        hear: Hear | None,
        *,
        terms: CallTerms,
    ) -> Call:
        """Ask once for all who want the same just now; the first of them hears it piece by piece."""
        is_first = key not in self._asking
        chain = self._ask_chain(models, request, priority, hear, terms=terms)
        try:
            call, pays = await self._asking.join(key, chain)
        except Parked:
            if terms.may_park or is_first:
                raise
            return await self._ask_chain(models, request, priority, hear, terms=terms)
        if not is_first and hear is not None:
            hear(call.reply.text)
        if not pays:
            return replace(call, source=ModelSource.SHARED, sends=0, doubtful=0)
        self._known[key] = call
        if len(self._known) > CACHED:
            self._known.popitem(last=False)
        return call

    async def _ask_chain(
        self,
        models: Sequence[Model],
        request: ModelRequest,
        priority: int,
        hear: Hear | None = None,
        *,
        terms: CallTerms,
    ) -> Call:
        error: errors.ModelError | None = None
        doubtful = 0
        ear = None if hear is None else _Ear(hear)
        for place, model in enumerate(models):
            is_last = place == len(models) - 1
            line = self._line(model)
            line.has_served |= terms.has_parked
            if not is_last and not line.is_at_hand(asyncio.get_running_loop().time()):
                continue  # rather than wait for it
            asking = model.ask if ear is None else partial(ear.ask, model, line)
            patience = self._patience if is_last else min(self._patience, SHORT_PATIENCE)
            share = terms.share(len(models) - place)
            call = _Calling(model.name, asking, line, request, priority, patience)
            try:
                making = call.made(terms if is_last else replace(terms, may_park=False))
                made = await (making if share is None else _within(share, making, model.name))
                return replace(made, doubtful=made.doubtful + doubtful) if doubtful else made
            except PASSED_OVER as failed:
                error = failed
                doubtful += call.doubtful + isinstance(failed, _OutOfShare)
                if not is_last:
                    log.warning("model_passed_over model=%s error=%s", model.name, failed)
                    if terms.once and failed.may_be_paid:
                        failed.untried = len(models) - place - 1
                        raise
        raise error or errors.ModelUnreachable("no model was given")

    def _line(self, model: Model) -> ProviderQueue:
        line = self._lines.get(model.account)
        if line is None:
            provider = model.name.partition(":")[0]
            rates = self._rates.get(model.account) or self._rates.get(provider) or Rates()
            # With its host, if that is not the provider's own.
            named = getattr(model, "shown_provider", provider)
            line = ProviderQueue(named, rates, self._breaker, self._patience)
            self._lines[model.account] = line
        return line


class _OutOfShare(errors.ModelTooSlow):
    """A model did not answer in its share of the time; there are others who may."""


async def _within(seconds: float, making: Coroutine[Any, Any, Call], model: str) -> Call:
    """What this comes to, if it does so in time."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await making
    except TimeoutError:
        if not limit.expired():
            raise
        raise _OutOfShare(
            f"{model} did not answer within {seconds:g} s, its share of the attempt's time"
        ) from None


class _Calling:
    """One call to one model, sent as often as it takes."""

    def __init__(
        self,
        model: str,
        asking: Callable[[ModelRequest], Awaitable[ModelReply]],
        line: ProviderQueue,
        request: ModelRequest,
        priority: int,
        patience: float,
    ) -> None:
        self._model = model
        self._asking = asking
        self._line = line
        self._request = request
        self._priority = priority
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._first = self._loop.time()
        #: what the request is known by, once it has failed
        self._key: str | None = None
        #: requests that timed out or broke off, and may have been paid for
        self.doubtful = 0

    async def made(self, terms: CallTerms) -> Call:
        """The reply. Raises the error of the last try, or `Parked`."""
        line, loop = self._line, self._loop
        tokens = _bound_on_tokens(self._request)
        waited, sends = 0.0, 0
        while True:
            waited += await line.admitted(self._priority, tokens, may_park=terms.may_park)
            began, sent = loop.time(), line.served
            sends += 1
            pause = 0.0
            try:
                reply = await _answer_of(self._model, self._asking, self._request)
            except errors.ModelBusy as error:
                line.put_back(error, began, loop.time(), terms.until)
                self._refuse_to_wait(error, terms)
            except FAILED as error:
                pause = self._pause_after(error, sent, terms)
            except BaseException as error:
                line.limiter.fail()
                line.breaker.withdraw()
                if isinstance(error, errors.ModelDenied) and error.is_of_key:
                    line.denial = error  # one call found out; nobody else need try
                raise
            else:
                used = reply.usage.tokens_in + reply.usage.tokens_out
                line.limiter.succeed(tokens, used, loop.time())
                if reply.allowance is not None:
                    line.limiter.agree(reply.allowance.requests, reply.allowance.tokens)
                line.serve(self._key)
                return Call(
                    reply=reply,
                    model=self._model,
                    sends=sends,
                    waited=waited,
                    doubtful=self.doubtful,
                )
            finally:
                line.pump()
            if pause:
                await asyncio.sleep(pause)

    def _refuse_to_wait(self, error: errors.ModelBusy, terms: CallTerms) -> None:
        """Raise for a call that was put off for too long: an error, or `Parked` if it may park."""
        now = self._loop.time()
        wait = seconds_asked_by(error) or 0.0
        parks = terms.may_park and self._patience > 0
        if parks and self._is_long(max(wait, self._line.limiter.shut(now)), now, terms):
            raise self._line.parked(max(wait, self._line.limiter.shut(now)), now) from error
        if not parks and self._line.put_off(self._first, now) + wait > self._patience:
            raise error

    def _is_long(self, wait: float, now: float, terms: CallTerms) -> bool:
        """Whether a call that may park does: short waits add up, and none outlasts its caller."""
        return wait > PARK or now - self._first > PARK or now + wait >= terms.until

    def _pause_after(self, error: errors.ModelError, sent: int, terms: CallTerms) -> float:
        """Seconds before the next try; raises if there is none, or none here."""
        line, now = self._line, self._loop.time()
        if self._key is None:
            request = self._request
            self._key = digest_of(canonical([request.turns, request.tools, request.schema]))
        self.doubtful += error.may_be_paid
        fault, failures = line.fail(error, self._key, sent, now, terms.until)
        if fault is ProviderFault.ADDRESS and (
            failures >= TRIES or now - self._first >= FIRST_PATIENCE
        ):
            line.bury(error, now)
            raise error
        is_waited_for = fault is ProviderFault.PROVIDER and self._patience > 0
        if failures >= TRIES and not is_waited_for:
            raise error
        if terms.once and error.may_be_paid:
            raise error
        longest = min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT)
        pause: float = longest * random.uniform(0.5, 1)  # noqa: S311 - jitter
        if is_waited_for:
            if terms.may_park and self._is_long(pause, now, terms):
                raise line.parked(pause, now) from error
            if not terms.may_park and line.put_off(self._first, now) >= self._patience:
                raise line.given_up(now) from error
        return pause


def _bound_on_tokens(request: ModelRequest) -> int:
    """No request has more tokens than bytes; a quarter of them is the usual measure of text."""
    sent = 0
    for turn in request.turns:
        for part in turn.parts:
            sent += len(getattr(part, "text", ""))
    return sent // 4 + request.settings.max_tokens
