"""No silent wait: what a run waits for longer than a second is said once, as a warning."""

import asyncio
import logging
from collections.abc import Iterator

from chargehand.clock import Clock
from chargehand.decisions.kernel import Kernel
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.wait_reasons import Cause, Explainer, WaitReason, way_out

log = logging.getLogger("chargehand")

#: seconds that something may wait without a word
SILENCE = 1.0
#: of a run that are said at once; `chargehand status` has them all
MOST_WAITS = 5
#: tasks in the queue that are looked at while others work
MOST_QUEUED = 100
#: they have ended, or wait for other tasks of their run
_SILENT = {TaskState.WAITING, *(state for state in TaskState if state.is_settled)}


class WaitWarnings:
    """Looks at what waits once nothing has happened for a second, while a question is open or a try put off,
    and while a breaker or the rate of starts keeps tasks from workers."""

    def __init__(self, kernel: Kernel, clock: Clock, place: str) -> None:
        self._kernel = kernel
        self._clock = clock
        self._place = place
        self._timer: asyncio.TimerHandle | None = None
        self._said: set[tuple[str, str, Cause, str]] = set()
        self._is_idle = False
        #: runs with a question or a try that was put off, or paused: they are looked at although other
        #: work goes on
        self._asking: set[str] = set()

    def expect(self, run: str) -> None:
        """Something in this run waits for a person, or for a time."""
        self._asking.add(run)

    def arm(self, *, is_idle: bool) -> None:
        """Nothing is to be decided now: look in a second at what waits, if nothing runs meanwhile."""
        self._is_idle = is_idle
        if self._timer is None and self._kernel.runs and (is_idle or self._asking or self._is_held):
            self._look_in(SILENCE)

    def stir(self) -> None:
        """Something is decided and written down again."""
        self._is_idle = False

    @property
    def _is_held(self) -> bool:
        return self._kernel.dispatch.probes_at is not None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        self._asking &= self._kernel.runs.keys()
        young: list[float] = []
        for run in list(self._kernel.runs if self._is_idle or self._is_held else self._asking):
            waits = list(self._new(run))
            if not waits:
                self._asking.discard(run)
            due: dict[tuple[str, str, Cause, str], WaitReason] = {}
            for each in waits:
                if each.seconds >= SILENCE:
                    due.setdefault(self._key(each), each)
            for wait in list(due.values())[:MOST_WAITS]:
                self._say(wait)
            young += [each.seconds for each in waits if each.seconds < SILENCE]
        if young:
            self._look_in(SILENCE - max(young))

    def _new(self, run: str) -> Iterator[WaitReason]:
        """What waits for something outside of this process's work, and was not said yet."""
        live_run = self._kernel.runs[run]
        explainer = Explainer(run, live_run, self._clock.now(), self._kernel.dispatch)
        # What only stands in the queue while others work gets its turn; there may be thousands.
        is_queue = not self._is_idle and not live_run.schedule.is_paused
        left = MOST_QUEUED if self._is_held else 0
        for task, node in live_run.schedule.nodes.items():
            if node.state in _SILENT:
                continue
            if is_queue and node.state is TaskState.READY:
                left -= 1
                if left < 0:
                    continue
            wait = explainer.why(task)
            # A provider that is waited for is named by the models themselves, once for all tasks.
            if wait is None or wait.cause is Cause.PROVIDER or self._key(wait) in self._said:
                continue
            if wait.question and node.question is None:
                continue  # the task that asks says so for all
            if not (self._kernel.busy and wait.is_behind_work):
                yield wait

    def _say(self, wait: WaitReason) -> None:
        self._said.add(self._key(wait))
        until = "" if wait.until_at is None else f" until={wait.until_at:%Y-%m-%dT%H:%M:%SZ}"
        log.warning(
            "run_waits run=%s task=%s for=%r%s; %s",
            *(wait.run, wait.task, wait.what, until, way_out(wait, self._place)),
        )

    def _key(self, wait: WaitReason) -> tuple[str, str, Cause, str]:
        """Waits with one key are said once: a pause holds up all tasks of a run, and one command ends it."""
        if wait.cause is Cause.PAUSE:
            paused_at = self._kernel.runs[wait.run].schedule.paused_at
            return (wait.run, "", wait.cause, str(paused_at))
        return (wait.run, wait.task, wait.cause, wait.question or str(wait.since_at))
