"""The switchboard: all model calls of a supervisor go through it.

It keeps one line per provider and key: who may call now, by priority and by what the provider bears
(limiter), and whether it is worth calling at all (breaker). A 429 puts the call back in the queue; it
is no failure of the task. A caller that may park is sent away (`Parked`) while nobody can be called for
long, so that it holds no place meanwhile. Several models make a chain: when one cannot be had, the next
is asked.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Struct

from chargehand.decisions.breaker import BreakerPolicy, BreakerState
from chargehand.decisions.limiter import Rates
from chargehand.errors import (
    ModelBusy,
    ModelDenied,
    ModelError,
    ModelGarbled,
    ModelTooSlow,
    ModelUnreachable,
)
from chargehand.facts.outcome import Parked
from chargehand.facts.value import canonical, digest_of
from chargehand.models.base import Model, ModelReply, ModelRequest
from chargehand.models.line import PARK, SHORT_PATIENCE, Line
from chargehand.models.shared_calls import SharedCalls

log = logging.getLogger("chargehand")

Hear: TypeAlias = Callable[[str | None], None]
"""Hears the text of a reply piece by piece; None: the reply broke off and begins anew."""

TRIES = 3
#: of one call to somebody who has never answered yet
FIRST_WAIT = 0.5
#: seconds before the second try; doubled from then on
LONGEST_WAIT = 30.0
CACHED = 1000
#: replies that are remembered


class Source(StrEnum):
    """Where a reply came from."""

    CALL = "call"
    CACHE = "cache"  #: the same was asked before
    SHARED = "shared"  #: the same was being asked


class Call(Struct, frozen=True, kw_only=True, gc=False):
    """A reply and what it took to get it."""

    reply: ModelReply
    model: str
    sends: int = 1
    #: requests that went out, refused ones included
    waited: float = 0.0
    #: seconds in the queue
    source: Source = Source.CALL


class _Ear:
    """Listens to the replies of all models of a chain while they come."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear
        self._is_begun = False

    async def ask(self, model: Model, request: ModelRequest) -> ModelReply:
        if self._is_begun:
            self._is_begun = False
            self._hear(
                None
            )  # what was heard belongs to a reply that broke off, maybe of another model
        async with aclosing(model.stream(request)) as pieces:  # type: ignore[type-var]  # generators, all of them
            async for piece in pieces:
                if isinstance(piece, ModelReply):
                    return piece
                self._is_begun = True
                self._hear(piece)
        raise ModelGarbled(f"{model.name} ended its stream without a whole reply")


class Switchboard:
    """Shared by all workers of a supervisor, and by the supervisors nested in it."""

    def __init__(
        self,
        rates: Mapping[str, Rates] | None = None,
        *,
        breaker: BreakerPolicy | None = None,
        patience: timedelta = timedelta(hours=2),
        cache: bool | None = None,
    ) -> None:
        self._rates = dict(rates or {})
        #: by provider ("openai") or by account
        self._breaker = breaker or BreakerPolicy()
        self._patience = patience.total_seconds()
        #: how long a call may be put off by a provider that is busy or down
        self._cache = cache
        #: None: only calls that are meant to repeat themselves (temperature 0)
        self._lines: dict[str, Line] = {}
        self._known: OrderedDict[str, Call] = OrderedDict()
        self._asking: SharedCalls[Call] = SharedCalls()

    async def ask(
        self,
        models: Sequence[Model],
        request: ModelRequest,
        *,
        priority: int = 0,
        hear: Hear | None = None,
        may_park: bool = False,
    ) -> Call:
        """Ask the first of these models that can be had; `hear` is told the text as it comes.

        Raises `Parked` for a caller that may park, when none can be had for more than a few seconds.
        """
        if hear is not None or not self._is_repeatable(request):
            return await self._ask_chain(models, request, priority, hear, may_park=may_park)
        key = digest_of(canonical([[model.name for model in models], request]))
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return msgspec.structs.replace(known, source=Source.CACHE, sends=0, waited=0.0)
        return await self._ask_shared(key, models, request, priority, may_park=may_park)

    def states(self) -> dict[str, BreakerState]:
        """The breaker of every account that was called."""
        return {account: line.breaker.state for account, line in self._lines.items()}

    def _is_repeatable(self, request: ModelRequest) -> bool:
        return request.settings.temperature == 0 if self._cache is None else self._cache

    async def _ask_shared(
        self,
        key: str,
        models: Sequence[Model],
        request: ModelRequest,
        priority: int,
        *,
        may_park: bool,
    ) -> Call:
        """Ask once for all who want the same just now."""
        is_first = key not in self._asking
        chain = self._ask_chain(models, request, priority, may_park=may_park)
        try:
            call, pays = await self._asking.join(key, chain)
        except Parked:
            if may_park or is_first:
                raise
            return await self._ask_chain(models, request, priority, may_park=False)
        if not pays:
            return msgspec.structs.replace(call, source=Source.SHARED, sends=0)
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
        may_park: bool,
    ) -> Call:
        error: ModelError | None = None
        ear = None if hear is None else _Ear(hear)
        for place, model in enumerate(models):
            is_last = place == len(models) - 1
            line = self._line(model)
            if not is_last and not line.is_at_hand(asyncio.get_running_loop().time()):
                continue  # rather than wait for it
            asking = model.ask if ear is None else partial(ear.ask, model)
            try:
                return await self._ask_one(
                    model,
                    asking,
                    line,
                    request,
                    priority,
                    is_last=is_last,
                    may_park=may_park and is_last,
                )
            except (ModelUnreachable, ModelTooSlow, ModelGarbled, ModelBusy, ModelDenied) as failed:
                error = failed
                if not is_last:
                    log.warning("model_passed_over model=%s error=%s", model.name, failed)
        raise error or ModelUnreachable("no model was given")

    async def _ask_one(
        self,
        model: Model,
        asking: Callable[[ModelRequest], Awaitable[ModelReply]],
        line: Line,
        request: ModelRequest,
        priority: int,
        *,
        is_last: bool,
        may_park: bool,
    ) -> Call:
        loop = asyncio.get_running_loop()
        patience = self._patience if is_last else min(self._patience, SHORT_PATIENCE)
        tokens = _bound_on_tokens(request)
        waited, sends, failures, first = 0.0, 0, 0, loop.time()
        while True:
            waited += await line.admitted(priority, tokens, may_park=may_park)
            began = loop.time()
            sends += 1
            try:
                reply = await asking(request)
            except ModelBusy as error:
                wait = None if error.retry_after is None else error.retry_after.total_seconds()
                line.limiter.slow_down(began, loop.time(), wait)
                line.breaker.withdraw()
                line.note_trouble(loop.time(), wait or 0.0)
                if line.put_off(first, loop.time()) + (wait or 0) > patience:
                    raise
            except (ModelUnreachable, ModelTooSlow, ModelGarbled) as error:
                line.limiter.fail()
                line.breaker.fail(loop.time(), str(error))
                line.note_trouble(loop.time())
                failures += 1
                put_off = line.put_off(first, loop.time())
                is_worth_waiting = line.has_answered and put_off < patience
                if failures >= TRIES and not is_worth_waiting:
                    raise
                longest = min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT)
                pause = longest * random.uniform(0.5, 1)  # noqa: S311 - jitter
                if may_park and pause > PARK:
                    raise line.parked(pause) from error
                await asyncio.sleep(pause)
            except ModelDenied as error:
                line.limiter.fail()
                line.breaker.withdraw()
                if error.is_of_key:
                    line.denial = error  # one call found out; nobody else need try
                raise
            except BaseException:
                line.limiter.fail()
                line.breaker.withdraw()
                raise
            else:
                used = reply.usage.tokens_in + reply.usage.tokens_out
                line.limiter.succeed(tokens, used, loop.time())
                if reply.allowance is not None:
                    line.limiter.agree(reply.allowance.requests, reply.allowance.tokens)
                line.breaker.succeed()
                line.has_answered, line.troubled_at = True, None
                return Call(reply=reply, model=model.name, sends=sends, waited=waited)
            finally:
                line.pump()

    def _line(self, model: Model) -> Line:
        line = self._lines.get(model.account)
        if line is None:
            provider = model.name.partition(":")[0]
            rates = self._rates.get(model.account) or self._rates.get(provider) or Rates()
            line = Line(provider, rates, self._breaker, self._patience)
            self._lines[model.account] = line
        return line


def _bound_on_tokens(request: ModelRequest) -> int:
    """No request has more tokens than bytes; a quarter of them is the usual measure of text."""
    sent = 0
    for turn in request.turns:
        for part in turn.parts:
            sent += len(getattr(part, "text", ""))
    return sent // 4 + request.settings.max_tokens
