"""The line to one provider and key: who may call now, and who is sent away to wait elsewhere."""

import asyncio
import math
from datetime import timedelta
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from chargehand.decisions.breaker import Breaker, BreakerPolicy, BreakerState
from chargehand.decisions.limiter import Limiter, Rates
from chargehand.errors import ModelDenied, ModelUnreachable
from chargehand.facts.outcome import Parked

SHORT_PATIENCE = 10.0
#: seconds, where another model could be asked instead
FIRST_PATIENCE = 30.0
#: seconds, with somebody who has never answered: a wrong address does not mend itself
PARK = 5.0
#: seconds; whoever would have to wait longer than this, and may park, does
LONGEST_WHY = 200

_Turn: TypeAlias = "tuple[int, int, int, asyncio.Future[None], bool]"
#: minus the priority, a number, tokens, what is set when its turn has come, whether it may park


class Line:
    """One provider and key."""

    def __init__(
        self, provider: str, rates: Rates, breaker: BreakerPolicy, patience: float
    ) -> None:
        self.limiter = Limiter(rates)
        self.breaker = Breaker(breaker)
        self.denial: ModelDenied | None = None
        self.has_answered = False
        #: whether it ever did: what has worked once is waited for, a wrong address is not
        self.troubled_at: float | None = None
        #: since when it has only failed or put calls off
        self._trouble_until = 0.0
        self._provider = provider
        self._patience = patience
        self._forgets = 2 * breaker.longest_rest
        #: seconds without a call after which earlier trouble says nothing of now
        self._waiting: list[_Turn] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

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
            if self.denial is not None:
                heappop(self._waiting)
                turn.set_exception(self.denial)
                continue
            wait = self._wait(tokens, loop.time())
            if wait > 0:
                if self._send_away(loop.time()):
                    continue
                self._pump_in(wait, loop)
                return
            heappop(self._waiting)
            self._start(tokens, loop.time())
            turn.set_result(None)

    def shut(self, now: float) -> float:
        """Seconds for which nobody may call, as far as that is known: it rests, or asked for it."""
        return max(self._rest(now), self.limiter.shut(now))

    def is_at_hand(self, now: float) -> bool:
        """Whether it can be called without waiting long."""
        is_open = self.denial is None and self.breaker.state is BreakerState.CLOSED
        return is_open and self.limiter.shut(now) <= SHORT_PATIENCE

    def put_off(self, first: float, now: float) -> float:
        """How long a call that came first then has been put off, here or parked meanwhile."""
        return now - (first if self.troubled_at is None else min(first, self.troubled_at))

    def note_trouble(self, now: float, wait: float = 0.0) -> None:
        """A call failed or was put off for so long; remember when that began."""
        if self.troubled_at is None or now - self._trouble_until > self._forgets:
            self.troubled_at = now
        self._trouble_until = now + wait

    def _rest(self, now: float) -> float:
        rest = self.breaker.wait(now)
        return rest if math.isfinite(rest) else 0.0

    def _send_away(self, now: float) -> bool:
        """Let those who wait for nothing, or for long, wait elsewhere; whether anybody went."""
        shut = self.shut(now)
        error = self._hopeless(now) if self._rest(now) > 0 else None
        if error is None and shut <= PARK:
            return False
        staying: list[_Turn] = []
        for each in self._waiting:
            *_, turn, may_park = each
            if turn.done():
                continue
            if error is None and not may_park:
                staying.append(each)
            else:
                turn.set_exception(error or self.parked(shut))
        is_any_gone = len(staying) < len(self._waiting)
        self._waiting = staying
        heapify(self._waiting)
        return is_any_gone

    def parked(self, seconds: float) -> Parked:
        """What sends a caller away for so long."""
        why = f"{self._provider} asked to be called later"
        if self.breaker.state is not BreakerState.CLOSED:
            why = f"the breaker of {self._provider} is open: {self.breaker.last_error}"
        return Parked(timedelta(seconds=seconds), why[:LONGEST_WHY])

    def _hopeless(self, now: float) -> ModelUnreachable | None:
        """Why somebody who rests is not worth waiting for; None if it is."""
        patience = self._patience if self.has_answered else min(self._patience, FIRST_PATIENCE)
        down = 0.0 if self.troubled_at is None else now - self.troubled_at
        if down < patience:
            return None
        since = f"has been down for {down:.0f} s" if self.has_answered else "has never answered"
        return ModelUnreachable(f"{self._provider} {since}: {self.breaker.last_error}")

    def _wait(self, tokens: int, now: float) -> float:
        if self.denial is not None:
            raise self.denial
        return max(self.breaker.wait(now), self.limiter.wait(tokens, now))

    def _start(self, tokens: int, now: float) -> None:
        self.limiter.start(tokens, now)
        self.breaker.start()

    def _pump_in(self, wait: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Without a finite wait, whatever comes back will pump.
        self._timer = loop.call_later(wait, self.pump) if math.isfinite(wait) else None
