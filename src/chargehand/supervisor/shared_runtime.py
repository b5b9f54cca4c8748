"""When a supervisor is at work: from the first run that needs it until the last caller has gone."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from chargehand.decisions.kernel import Kernel
from chargehand.engines.local_engine import refuse_while_loading
from chargehand.facts.events import Event
from chargehand.runtime import Runtime, RuntimeParts
from chargehand.runtime.attempt_factory import AttemptFactory, PlanningCrew
from chargehand.supervisor.config import SupervisorConfig

#: what running attempts have left when the supervisor is stopped gently
GRACE = timedelta(seconds=30)


class Runtimes:
    """Starts a runtime when the first run needs one, and stops it when the last caller has gone."""

    def __init__(
        self, config: SupervisorConfig, refuse_unkept: Callable[[Event], None] = lambda _: None
    ) -> None:
        self._config = config
        #: raises `UsageError` for what another process wants and our workers could not keep
        self._refuse_unkept = refuse_unkept
        #: while there is one at work
        self.current: Runtime | None = None
        #: in its `async with`: a program that serves, and can bring answers
        self.is_entered = False
        self._users = 0

    def leading(self, run_id: str) -> Runtime | None:
        """The runtime, if it leads this run."""
        runtime = self.current
        return runtime if runtime is not None and runtime.runs.leads(run_id) else None

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Runtime]:
        runtime = self.enter()
        try:
            yield runtime
        finally:
            ended = self.leave()
            if ended is not None:
                await ended.closed()
                await self._send_notices()

    def enter(self) -> Runtime:
        """The runtime, which stays at work until `leave`. One that has failed is replaced."""
        runtime = self.current
        if runtime is not None:
            runtime.refuse_other_loop()
        if runtime is None or runtime.is_gone:
            runtime = self.current = self._start()
            runtime.is_open = self.is_entered
        self._users += 1
        return runtime

    def _start(self) -> Runtime:
        refuse_while_loading()
        config = self._config
        journal, workers, resources = config.journal.current, config.workers, config.resources
        kernel = Kernel(workers.new_dispatch(), config.runs.retry)
        attempts = AttemptFactory(
            workers.roster,
            resources,
            journal.blobs,
            config.clock,
            kernel.dispatch.most,
            PlanningCrew(workers.roster, config.runs.planner),
        )
        runtime = Runtime(
            RuntimeParts(
                kernel=kernel,
                journal=journal,
                roster=workers.roster,
                attempts=attempts,
                engine=config.engine(),
                clock=config.clock,
                hooks=config.hooks,
                notices=resources.notices,
                texts=config.text_streams,
                refuse_unkept=self._refuse_unkept,
            )
        )
        workers.serve(runtime)
        return runtime

    def leave(self) -> Runtime | None:
        """One who needed the runtime has gone. Returns it if nobody is left, and it ends."""
        self._users -= 1
        if self._users:
            return None
        ended, self.current = self.current, None
        if ended is not None:
            ended.close()
        return ended

    async def stop(self, grace: timedelta) -> None:
        if self.current is not None:
            await self.current.drain(grace)

    def open(self) -> None:
        """Stay at work until `exit`: here is who can bring answers."""
        self.enter().is_open = True
        self.is_entered = True

    async def exit(self) -> None:
        """Let go of runs that wait for people, and end when the others have."""
        runtime = self.current
        if runtime is not None:
            self.is_entered = runtime.is_open = False
            runtime.leave_waiting()
            self.leave()
            await runtime.closed()

    async def close(self) -> None:
        """Let go of what is in progress, to be resumed, and of the journal."""
        runtime = self.current
        if runtime is not None and not runtime.is_gone:
            runtime.refuse_other_loop()
            await runtime.drain(timedelta())
        await self._send_notices()
        await self._config.journal.close()

    async def _send_notices(self) -> None:
        """Let notices that are under way be sent before the event loop may end, for a few seconds."""
        notices = None if self._config.is_nested else self._config.resources.notices
        if notices is not None:
            await notices.settle()
