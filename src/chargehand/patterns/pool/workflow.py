"""The whole pool in one call: divides a request, runs workers in threads, combines the results."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from reprlib import repr as repr_of
from typing import Any

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.outcome import ErrorClass
from chargehand.facts.plan import Task
from chargehand.patterns.pool.coordinator_agent import CoordinatorAgent
from chargehand.patterns.pool.leaderless_run import LeaderlessRun, has_failed, questions_in
from chargehand.patterns.pool.model_config import AgentConfig, config_of
from chargehand.patterns.pool.shared_memory import SharedMemoryPool, pool_of
from chargehand.patterns.pool.supervisor_agent import SupervisorAgent, checked_number
from chargehand.patterns.pool.worker_agent import WorkerAgent
from chargehand.roles.roster import Member
from chargehand.sync_async_bridge import start_thread
from chargehand.sync_async_bridge import wait_in_background as wait

log = logging.getLogger("chargehand.pool")

OUT_OF_TIME = "out of time"
#: approximate maximum of progress reports per request
TELLINGS = 200


@checks.keywords_checked
def supervisor_worker_workflow(
    request: str,
    num_workers: int = 2,
    num_tasks: int | None = 3,
    *,
    pool: SharedMemoryPool | None = None,
    config: AgentConfig | None = None,
    worker_config: AgentConfig | None = None,
    work: "Callable[[Brief], Any] | Member | None" = None,
    tasks: Sequence[str | Task] | None = None,
    on_result: Callable[[dict[str, Any]], object] | None = None,
    on_progress: Callable[[dict[str, Any]], object] | None = None,
    attempts: int = 3,
    timeout: Duration | None = None,
) -> dict[str, Any]:
    """Run a request on a number of workers, each in its own thread, and return all results.

    Returns when no more work is possible. A failed task goes to the next worker, up to `attempts` tries
    in all. Open questions of workers are waited for only while other work is left; they are returned in
    `questions`.

    The dict has the keys `request_id`, `pool`, `tasks`, `results`, `failures`, `questions`, `progress`,
    `final_result`, `gaps`, `contradictions` and `confidence`. `on_result` gets the result of each attempt,
    `on_progress` the overall progress, up to a few hundred times; calls to both never overlap. After
    `timeout`, the request is closed: the finished tasks are the result, and all others are gaps. `work` is
    what the workers do instead of calling the model of `worker_config`.
    """
    longest = checks.duration_or_none(timeout, "timeout", may_be_zero=True)
    if config is None:
        log.info("pool_without_model; give config=AgentConfig(llm_provider=…, model=…) to have one")
    crew = _Crew(
        SharedMemoryPool() if pool is None else pool_of(pool),
        config_of(config),
        config_of(worker_config or config),
        checked_number(num_workers, "num_workers"),
        work,
        checked_number(attempts, "attempts"),
    )
    if tasks is not None:
        num_tasks = None
    return crew.do(request, num_tasks, tasks, _Listener(on_result, on_progress), longest)


class _Listener:
    """Calls `on_result` and `on_progress`, one call at a time, from any thread."""

    def __init__(
        self,
        on_result: Callable[[dict[str, Any]], object] | None,
        on_progress: Callable[[dict[str, Any]], object] | None,
    ) -> None:
        for name, given in (("on_result", on_result), ("on_progress", on_progress)):
            if given is not None and not callable(given):
                raise UsageError(f"{name}={repr_of(given)} must be a function")
        self._on_result = on_result
        self._on_progress = on_progress
        self._lock = threading.Lock()
        #: results since the last progress report
        self._unheard = 0

    def hear(self, result: dict[str, Any], coordinator: CoordinatorAgent, every: int) -> None:
        """Report a result, and also the progress after every `every` results."""
        request = result["request_id"]
        with self._lock:
            self._call(request, self._on_result, lambda: result)
            self._unheard += 1
        self.tell(request, coordinator, every)

    def tell(self, request: str, coordinator: CoordinatorAgent, every: int = 1) -> None:
        """Report the progress if at least `every` results have come since the last report."""
        with self._lock:
            if self._unheard >= every:
                self._unheard = 0
                self._call(
                    request, self._on_progress, lambda: coordinator.monitor_progress(request)
                )

    def _call(
        self,
        request: str,
        listener: Callable[[dict[str, Any]], object] | None,
        told: Callable[[], dict[str, Any]],
    ) -> None:
        try:
            if listener is not None:
                listener(told())
        except KeyboardInterrupt:
            raise
        except BaseException:  # a listener's SystemExit must not end the work
            log.exception("pool_listener_failed run=%s", request)


class _Crew:
    """The agents of one `supervisor_worker_workflow` call."""

    def __init__(
        self,
        pool: SharedMemoryPool,
        config: AgentConfig,
        worker_config: AgentConfig,
        size: int,
        work: "Callable[[Brief], Any] | Member | None",
        attempts: int,
    ) -> None:
        self._pool = pool
        self._attempts = attempts
        self._supervisor = SupervisorAgent(config, pool)
        self._coordinator = CoordinatorAgent(config, pool)
        self._names = [f"worker_{number}" for number in range(1, size + 1)]
        self._workers = [WorkerAgent(worker_config, pool, name, work=work) for name in self._names]
        #: errors of worker threads, such as an unusable journal; failures of tasks are not errors
        self._errors: list[Exception] = []

    def do(
        self,
        request: str,
        num_tasks: int | None,
        tasks: Sequence[str | Task] | None,
        listener: _Listener,
        timeout: timedelta | None,
    ) -> dict[str, Any]:
        made = self._supervisor.delegate(request, self._names, num_tasks, tasks=tasks)
        request_id, every = made[0]["request_id"], math.ceil(len(made) / TELLINGS)
        ends_at = None if timeout is None else time.monotonic() + timeout.total_seconds()
        # Repeat if there is new work for a worker whose thread has already ended.
        while self._worked(request_id, listener, every, ends_at) and not self._errors:
            if not wait(self._view(request_id)).goes_on(self._names):
                break
        else:
            if self._errors:
                raise self._errors[0]
            self._supervisor.close(request_id, OUT_OF_TIME)
        listener.tell(request_id, self._coordinator)
        return self._told(request_id)

    def _worked(
        self, request_id: str, listener: _Listener, every: int, ends_at: float | None
    ) -> bool:
        """Run all workers, each in its thread; returns False if they did not finish in time."""
        threads = [
            threading.Thread(
                target=self._work,
                args=(worker, request_id, listener, every),
                name=worker.agent_id,
                daemon=True,
            )
            for worker in self._workers
        ]
        for thread in threads:
            start_thread(thread)
        for thread in threads:
            thread.join(None if ends_at is None else max(0.0, ends_at - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _work(self, worker: WorkerAgent, request_id: str, listener: _Listener, every: int) -> None:
        """Do all tasks for this worker until no more can come."""
        try:
            while True:
                result = worker.execute_next(request_id)
                if result is not None:
                    self._reassign(result, worker.agent_id)
                    listener.hear(result, self._coordinator, every)
                elif not wait(worker.has_more(request_id, waits=False)):
                    return
        except Exception as error:  # noqa: BLE001 - raised again in `do`
            self._errors.append(error)

    def _reassign(self, result: dict[str, Any], worker: str) -> None:
        """Give a failed task to the next worker, unless it has had all its tries or its failure is final."""
        if result["status"] != "failed" or result["attempt"] >= self._attempts:
            return
        if ErrorClass(result["class"]).is_final:
            return
        node = wait(self._view(result["request_id"])).node(result["task_id"])
        if has_failed(node) and not node.state.is_settled:
            place = self._names.index(worker) + 1
            self._supervisor.reassign_task(result, self._names[place % len(self._names)])

    async def _view(self, request_id: str) -> LeaderlessRun:
        return await self._pool.requests.view(request_id)

    def _told(self, request_id: str) -> dict[str, Any]:
        aggregated = self._supervisor.aggregate_results(request_id)
        return {
            "request_id": request_id,
            "pool": self._pool,
            "tasks": self._supervisor.get_tasks(request_id),
            "results": aggregated["results"],
            "failures": self._supervisor.check_failures(request_id),
            "questions": questions_in(wait(self._view(request_id))),
            "progress": self._coordinator.monitor_progress(request_id),
            "final_result": aggregated["final_result"],
            "gaps": aggregated["gaps"],
            "contradictions": aggregated["contradictions"],
            "confidence": aggregated["confidence"],
        }
