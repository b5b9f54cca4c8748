"""Watches a whole program for waits that nobody was told of.

A wait for a person, a provider, a breaker, a rate or the time of a next try must be said within about a
second, as a warning of the logger `chargehand`. This looks at what the runtime waits for, not at what
says so: the tasks of every run led here, calls that have no turn yet, and pauses in our own code. In a
process of its own it is installed by `sitecustomize` beside it.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

#: seconds: a second, and some for a machine that has other things to do
LATE = 1.5
EVERY = 0.25
#: modules whose pauses hold nobody up
AS_WORK = (
    "chargehand.models.scripted",  # a call in flight is work
    "chargehand.models.offline",
    "chargehand.clock",  # timers of runs, which are looked at themselves
    "chargehand.testing",
    "chargehand.engines.child_processes",  # signs of life of a child that works
    "chargehand.roles.coordinator",  # looks from time to time
    "chargehand.notify",  # beside the run, which never waits for it
)


class Watcher(logging.Handler):
    """Hears every warning, and calls `tell` with each wait: what it was, and whether it was said."""

    def __init__(self, tell: Callable[[bool, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._told: set[str] = set()
        self._late: set[str] = set()
        self._heard: list[tuple[float, str]] = []
        logging.getLogger("chargehand").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._heard.append((_now(), record.getMessage()))

    def is_said(self, *words: str, since: float = 0.0) -> bool:
        return any(at >= since and all(w in line for w in words) for at, line in self._heard)

    def note(self, what: str, *, is_said: bool) -> None:
        """Tell of a wait once; a silent one when it is still silent at the second look."""
        if what in self._told:
            return
        if is_said or what in self._late:
            self._told.add(what)
            self._tell(is_said, what)
        self._late.add(what)

    # what runs wait for

    def watch_runs(self, runtime: Any) -> None:
        asyncio.get_running_loop().call_later(EVERY, self._look, runtime)

    def _look(self, runtime: Any) -> None:
        from chargehand.decisions.wait_reasons import Cause, Explainer

        kernel, now = runtime.kernel, runtime.clock.now()
        for run, live_run in list(kernel.runs.items()):
            for wait in Explainer(run, live_run, now, kernel.dispatch).all():
                if wait.cause is Cause.NEEDS or wait.seconds < LATE:
                    continue
                if kernel.busy and (wait.is_behind_work or wait.cause is Cause.REWRITING):
                    continue
                if wait.cause is Cause.PROVIDER:
                    is_said = self.is_said("model_waits")
                else:
                    lines = [line for _, line in self._heard if f"run_waits run={run} " in line]
                    named = "unpause" if wait.cause is Cause.PAUSE else f" task={wait.task} "
                    # The task that asks says it for all who wait for the answer.
                    is_named = any(
                        named in line or (wait.question or named) in line for line in lines
                    )
                    is_said = is_named or len(lines) >= 5  # of more, five are named
                self.note(f"{wait.cause}: run {run}: {wait.task} {wait.what}", is_said=is_said)
        self.watch_runs(runtime)

    # calls that have no turn yet

    async def watch_call(self, line: Any, waiting: Coroutine[Any, Any, float]) -> float:
        loop, began = asyncio.get_running_loop(), _now()

        def look(again: int) -> None:
            is_said = self.is_said("model_waits", since=began - 60)
            self.note(f"call: {line._provider} at {began}", is_said=is_said)
            if again:
                later[0] = loop.call_later(EVERY, look, again - 1)

        later = [loop.call_later(LATE, look, 1)]
        try:
            return await waiting
        finally:
            later[0].cancel()

    # pauses of our own code

    async def watch_pause(
        self, seconds: float, pause: Coroutine[Any, Any, Any], module: str
    ) -> Any:
        began = _now()
        result = await pause
        if _now() - began > LATE:
            said = [at for at, _ in self._heard if began - 60 < at < began + LATE]
            for _ in range(2):
                self.note(f"pause: {seconds} s in {module} at {began}", is_said=bool(said))
        return result


def _now() -> float:
    """By the loop's clock, which in a test may be ahead."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def install(
    tell: Callable[[bool, str], None], put: Callable[[Any, str, Any], None] = setattr
) -> Callable[[Any], None]:
    """Watch from now on; returns what is to be called with each module of ours that was loaded."""
    watcher = Watcher(tell)
    sleep = asyncio.sleep

    def watched_sleep(delay: float, result: Any = None) -> Coroutine[Any, Any, Any]:
        module = sys._getframe(1).f_globals.get("__name__", "")
        if delay <= 1 or not module.startswith("chargehand.") or module.startswith(AS_WORK):
            return sleep(delay, result)
        return watcher.watch_pause(delay, sleep(delay, result), module)

    put(asyncio, "sleep", watched_sleep)

    def loaded(module: Any) -> None:
        if module.__name__ == "chargehand.runtime.run_leader":
            begin = module.Runtime.__init__

            def watched_begin(self: Any, *args: Any) -> None:
                begin(self, *args)
                watcher.watch_runs(self)

            put(module.Runtime, "__init__", watched_begin)
        elif module.__name__ == "chargehand.models.provider_queue":
            admitted = module.ProviderQueue.admitted

            async def watched_admitted(self: Any, *args: Any, **more: Any) -> Any:
                return await watcher.watch_call(self, admitted(self, *args, **more))

            put(module.ProviderQueue, "admitted", watched_admitted)

    return loaded


MODULES = ("chargehand.runtime.run_leader", "chargehand.models.provider_queue")
