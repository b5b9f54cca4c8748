"""The line to one provider and key: who may call now, who waits elsewhere, and whose fault a failure is."""

import asyncio
import logging
import math
import random
from collections import OrderedDict
from datetime import timedelta
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from msgspec import Struct

from chargehand.decisions.circuit_breaker import Breaker, BreakerState
from chargehand.decisions.rate_limiter import Limiter, Rates, ReachedLimit
from chargehand.errors import ModelDenied, ModelError, ModelGarbled, ModelUnreachable
from chargehand.facts.breaker_figures import BreakerFigures
from chargehand.facts.outcome import Parked
from chargehand.models.provider_errors import seconds_asked_by

log = logging.getLogger("chargehand")

#: seconds, where another model could be asked instead
SHORT_PATIENCE = 10.0
#: seconds, with an address that has never answered: a wrong one does not mend itself
FIRST_PATIENCE = 5.0
#: seconds for which nobody else tries an address that was found dead
DEAD = 10.0
#: seconds; whoever would have to wait longer than this, and may park, does
PARK = 5.0
#: seconds; a longer wait is said aloud
SAID = 1.0
LONGEST_WHY = 300
#: requests that failed, remembered at most
SUSPECTS = 1000

#: statuses that speak of the provider (0: no answer at all); of any other, the request may be the cause
_AWAY = {0, 502, 503, 520, 521, 522, 523, 529}
#: minus the priority, a number, tokens, what is set when its turn has come, whether it may park
_Turn: TypeAlias = "tuple[int, int, int, asyncio.Future[None], bool]"


class ProviderFault(Enum):
    """Whose fault it is that a call failed."""

    REQUEST = "request"  #: others are served, or nothing speaks against the provider
    PROVIDER = "provider"  #: it has answered before, and serves nobody now
    ADDRESS = "address"  #: nobody has ever answered there


class Suspect(Struct):
    """A request that failed and was not served since."""

    #: how many calls had been served when it was sent first
    sent: int
    #: how many when it failed first
    failed: int
    failed_at: float
    failures: int = 0


class ProviderLoad(Struct, frozen=True, kw_only=True):
    """What calls do at one provider and key now."""

    provider: str
    #: calls under way, and how many there may be at once
    in_flight: int
    most: int
    #: calls that wait for a rate limit, a slot or the breaker
    waiting: int
    #: seconds until the provider may be called again, if it has said so
    shut: float
    #: closed, open or half_open
    breaker: BreakerState
    #: calls that were answered
    served: int
    #: in the provider's words, while it serves nobody
    trouble: str


class ProviderQueue:
    """One provider and key."""

    def __init__(
        self, provider: str, rates: Rates, breaker: BreakerFigures, patience: float
    ) -> None:
        self.limiter = Limiter(rates)
        self.breaker = Breaker(breaker)
        self.denial: ModelDenied | None = None
        #: whether it ever did: what has worked once is waited for, a wrong address is not
        self.has_served = False
        #: since when it has only failed or put calls off
        self.troubled_at: float | None = None
        #: calls
        self.served = 0
        #: whether anything ever came back, if only an error or half an answer
        self.is_reached = False
        self._dead: tuple[float, ModelError] | None = None
        self._suspects: OrderedDict[str, Suspect] = OrderedDict()
        #: of the suspects, those that failed first when nobody was served any more
        self._fresh: set[str] = set()
        #: the last, in the provider's words
        self._trouble = ""
        self._trouble_until = 0.0
        #: when the last of those that wait is stopped
        self._needed_until = math.inf
        self._provider = provider
        self._patience = patience
        #: seconds without a call after which earlier trouble says nothing of now
        self._forgets = 2 * breaker.longest_rest
        self._waiting: list[_Turn] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._said_until = -math.inf
        self._saying: asyncio.TimerHandle | None = None

    async def admitted(self, priority: int, tokens: int, *, may_park: bool) -> float:
        """Wait for this call's turn and take it; returns how long that was.

        Raises `Parked` if it may and would have to wait long, and `ModelUnreachable` if waiting is of
        no use any more.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        if not self._waiting and self._wait(tokens, began) == 0:
            self._start(tokens, began)
            return 0.0
        turn: asyncio.Future[None] = loop.create_future()
        self._count += 1
        heappush(self._waiting, (-priority, self._count, tokens, turn, may_park))
        self.pump()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.limiter.fail()  # its turn had come in the same moment
                self.breaker.withdraw()
            self.pump()
            raise
        return loop.time() - began

    def pump(self) -> None:
        """Let everybody go whose turn it is."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            _, _, tokens, turn, _ = self._waiting[0]
            if turn.done():
                heappop(self._waiting)
                continue
            now = loop.time()
            if (error := self._closed(now)) is not None:
                heappop(self._waiting)
                turn.set_exception(error)
                continue
            wait = self._wait(tokens, now)
            if wait > 0:
                if self._send_away(now):
                    continue
                self._pump_in(wait, loop)
                self._announce(wait, tokens, loop)
                return
            heappop(self._waiting)
            self._start(tokens, now)
            turn.set_result(None)
        self._fall_silent()

    def load(self) -> ProviderLoad:
        """What calls do here now."""
        now = asyncio.get_running_loop().time()
        return ProviderLoad(
            provider=self._provider,
            in_flight=self.limiter.in_flight,
            most=max(math.floor(self.limiter.window), 1),
            waiting=sum(not turn.done() for *_, turn, _ in self._waiting),
            shut=self.limiter.shut(now),
            breaker=self.breaker.state,
            served=self.served,
            trouble="" if self.troubled_at is None else self._trouble[:LONGEST_WHY],
        )

    def is_at_hand(self, now: float) -> bool:
        """Whether it can be called without waiting long."""
        is_open = self._closed(now) is None and self.breaker.state is BreakerState.CLOSED
        return is_open and self.limiter.shut(now) <= SHORT_PATIENCE

    def put_off(self, first: float, now: float) -> float:
        """How long a call that came first then has been put off, here or parked meanwhile."""
        return now - (first if self.troubled_at is None else min(first, self.troubled_at))

    # what calls tell of the provider

    def serve(self, key: str | None) -> None:
        """A call was answered; `key` is that of a request that had failed before."""
        self.breaker.succeed()
        if self.troubled_at is not None:
            self.troubled_at, self._said_until = None, -math.inf
        self.has_served = True
        self.served += 1
        if self._fresh:
            self._fresh.clear()
        if key is not None:
            self._suspects.pop(key, None)

    def put_back(
        self, error: ModelError, began: float, now: float, until: float = math.inf
    ) -> None:
        """A call that is stopped at `until` was told to come later."""
        draw = random.random()  # noqa: S311 - jitter
        self.limiter.slow_down(began, now, seconds_asked_by(error), draw)
        self.breaker.withdraw()
        self.is_reached = True
        self._note_trouble(str(error), now, until, self.limiter.shut(now))

    def fail(
        self, error: ModelError, key: str, sent: int, now: float, until: float = math.inf
    ) -> tuple[ProviderFault, int]:
        """A call failed: whose fault that is, and how often this request has failed by now.

        `sent` is how many calls had been served when it was sent, `until` when it is stopped.
        """
        self.limiter.fail()
        self.is_reached |= bool(error.status) or isinstance(error, ModelGarbled)
        suspect = self._suspect(key, sent, now)
        fault = self._judged(suspect, error)
        # One request that always fails must not keep everybody else from being served: unless nothing
        # came back at all, a breaker opens for several requests only.
        is_silent = isinstance(error, ModelUnreachable) and not error.status
        if fault is ProviderFault.PROVIDER and (is_silent or len(self._fresh) > 1):
            self.breaker.fail(now, str(error))
        else:
            self.breaker.withdraw()
        if fault is ProviderFault.PROVIDER:
            self._note_trouble(str(error), now, until)
            if suspect.failures > 1:
                self.say(self._patience - self.put_off(now, now), self._trouble, now)
        return fault, suspect.failures

    def bury(self, error: ModelError, now: float) -> None:
        """Nobody has ever answered at this address: let nobody else wait for it to be found out."""
        error.is_final = True
        self._dead = (now + DEAD, error)

    def _suspect(self, key: str, sent: int, now: float) -> Suspect:
        suspect = self._suspects.get(key)
        if suspect is None or now - suspect.failed_at > self._forgets:
            suspect = self._suspects[key] = Suspect(sent, self.served, now)
            if len(self._suspects) > SUSPECTS:
                self._fresh.discard(self._suspects.popitem(last=False)[0])
        suspect.failures += 1
        if suspect.failed == self.served:
            self._fresh.add(key)
        return suspect

    def _judged(self, suspect: Suspect, error: ModelError) -> ProviderFault:
        if not self.has_served:
            return ProviderFault.REQUEST if self.is_reached else ProviderFault.ADDRESS
        if len(self._fresh) > 1:
            return ProviderFault.PROVIDER  # several requests fail, and none was served since
        if self.served > suspect.sent:
            return ProviderFault.REQUEST  # while it was under way, or since it failed
        is_away = isinstance(error, ModelUnreachable) and error.status in _AWAY
        return ProviderFault.PROVIDER if is_away else ProviderFault.REQUEST

    def _note_trouble(self, why: str, now: float, until: float, wait: float = 0.0) -> None:
        """A call failed or was put off for so long; remember when that began."""
        if self.troubled_at is None or now - self._trouble_until > self._forgets:
            self.troubled_at, self._needed_until = now, -math.inf
        self._needed_until = max(self._needed_until, until)
        self._trouble, self._trouble_until = why, now + wait

    # who waits elsewhere, or not at all

    def parked(self, seconds: float, now: float) -> Parked:
        """What sends a caller away for so long."""
        down = 0.0 if self.troubled_at is None else now - self.troubled_at
        is_long = down >= self._patience
        is_down = self.limiter.shut(now) == 0  # else it has said itself for how long
        self.say(max(seconds, self._patience - down) if is_down else seconds, self._trouble, now)
        if is_long:
            self._said_until = math.inf  # until it serves somebody again
        why = self._trouble[:LONGEST_WHY] or f"{self._provider} asked to be called later"
        return Parked(timedelta(seconds=seconds), why, is_long=is_long)

    def _send_away(self, now: float) -> bool:
        """Let those who wait for nothing, or for long, wait elsewhere; whether anybody went."""
        rest = self.breaker.wait(now)
        shut = max(rest if math.isfinite(rest) else 0.0, self.limiter.shut(now))
        down = 0.0 if self.troubled_at is None else now - self.troubled_at
        is_hopeless = 0 < rest < math.inf and down >= self._patience
        if shut <= PARK and not is_hopeless:
            return False
        staying: list[_Turn] = []
        for each in self._waiting:
            *_, turn, may_park = each
            if turn.done():
                continue
            parks = may_park and self._patience > 0
            if parks and shut > PARK:
                turn.set_exception(self.parked(shut, now))
            elif is_hopeless and not parks:
                turn.set_exception(self.given_up(now))
            else:
                staying.append(each)
        is_any_gone = len(staying) < len(self._waiting)
        self._waiting = staying
        heapify(self._waiting)
        return is_any_gone

    def given_up(self, now: float) -> ModelUnreachable:
        """What ends a call that cannot park, once the provider was waited for long enough."""
        down = 0.0 if self.troubled_at is None else now - self.troubled_at
        return ModelUnreachable(
            f"{self._provider} has served no call for {down:.0f} s: {self._trouble}"
        )

    def _closed(self, now: float) -> ModelError | None:
        """Why nobody need call."""
        if self.denial is not None:
            return self.denial
        return self._dead[1] if self._dead is not None and now < self._dead[0] else None

    def _wait(self, tokens: int, now: float) -> float:
        if (error := self._closed(now)) is not None:
            raise error
        return max(self.breaker.wait(now), self.limiter.wait(tokens, now))

    def _start(self, tokens: int, now: float) -> None:
        self.limiter.start(tokens, now)
        self.breaker.start()

    def _pump_in(self, wait: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Without a finite wait, whatever comes back will pump.
        self._timer = loop.call_later(wait, self.pump) if math.isfinite(wait) else None

    # waits are said aloud

    def say(self, seconds: float, reason: str, now: float) -> None:
        """Say that calls wait for so long, once for each wait; short ones add up."""
        down = 0.0 if self.troubled_at is None else now - self.troubled_at
        if down > SAID:  # it put calls off before, and nobody knows how often it will
            seconds = max(seconds, self._patience - down)
        if max(down, seconds) > SAID and now + seconds > self._said_until + SAID:
            self._said_until = now + seconds
            left = max(min(seconds, self._needed_until - now), 0.0)
            self._log(left, reason or "it asked to be called later")

    def _log(self, seconds: float, reason: str, *, is_own: bool = False) -> None:
        log.warning(
            "model_waits provider=%s up_to_seconds=%.0f waiting=%d reason=%s; it continues by itself; to end "
            "the wait, cancel the run, or give it another model%s",
            self._provider,
            max(seconds, 1),  # never "0": it waits
            max(len(self._waiting), 1),
            reason[:LONGEST_WHY],
            " or other Rates" if is_own else "",
        )

    def _announce(self, wait: float, tokens: int, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        if self.breaker.state is not BreakerState.CLOSED or self.limiter.shut(now) > 0:
            if math.isfinite(wait):
                self.say(wait, self._trouble, now)
        elif self._saying is None:
            # Short waits add up, and a place comes free nobody knows when: said once for a queue.
            hold = self.limiter.hold(tokens, now)
            in_ = 0 if SAID < wait < math.inf else SAID
            self._saying = loop.call_later(in_, self._say_queue, hold)

    def _say_queue(self, hold: ReachedLimit) -> None:
        waiting = sum(not turn.done() for *_, turn, _ in self._waiting)
        if waiting:
            self._log(max(self.limiter.time_for(waiting), SAID), hold.words, is_own=hold.is_own)

    def _fall_silent(self) -> None:
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None
