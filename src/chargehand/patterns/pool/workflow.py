"""The whole pattern in one call: divide, work in threads at once, watch, put together."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from chargehand.engines.brief import Brief
from chargehand.facts.plan import Task
from chargehand.patterns.pool.config import AgentConfig
from chargehand.patterns.pool.memory import SharedMemoryPool
from chargehand.patterns.pool.splitting import check_number
from chargehand.patterns.pool.supervising import SupervisorAgent
from chargehand.patterns.pool.watching import CoordinatorAgent
from chargehand.patterns.pool.working import WorkerAgent
from chargehand.roles.roster import Member

log = logging.getLogger("chargehand.pool")

OUT_OF_TIME = "out of time"


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
    timeout: float | None = None,
) -> dict[str, Any]:
    """Have a request done by so many workers, each in a thread of its own, and return all about it.

    The dict has `request_id`, `pool`, `tasks`, `results`, `failures`, `progress` and `final_result`.
    `on_result` hears each result as it arrives, `on_progress` how far all is by then; both are called one
    at a time. After `timeout` seconds nobody is waited for: what is done is the result, the rest is named
    as missing. `work` is what the workers do, instead of asking the model of `worker_config`.
    """
    check_number(num_workers, "num_workers")
    if config is None:
        log.info("pool_without_model; give config=AgentConfig(llm_provider=…, model=…) to have one")
    crew = _Crew(
        pool or SharedMemoryPool(),
        config or AgentConfig(),
        worker_config or config or AgentConfig(),
    )
    if tasks is not None:
        num_tasks = None
    return crew.do(
        request, num_workers, num_tasks, tasks, work, _Listener(on_result, on_progress), timeout
    )


class _Listener:
    """Whoever wants to hear of results; told of one at a time, whichever thread brings it."""

    def __init__(
        self,
        on_result: Callable[[dict[str, Any]], object] | None,
        on_progress: Callable[[dict[str, Any]], object] | None,
    ) -> None:
        self._on_result = on_result
        self._on_progress = on_progress
        self._lock = threading.Lock()

    def hear(self, result: dict[str, Any], coordinator: CoordinatorAgent) -> None:
        with self._lock:
            try:
                if self._on_result is not None:
                    self._on_result(result)
                if self._on_progress is not None:
                    self._on_progress(coordinator.monitor_progress(result["request_id"]))
            except Exception:
                log.exception("pool_listener_failed request=%s", result["request_id"])


class _Crew:
    """The agents of one call."""

    def __init__(
        self, pool: SharedMemoryPool, config: AgentConfig, worker_config: AgentConfig
    ) -> None:
        self._pool = pool
        self._worker_config = worker_config
        self._supervisor = SupervisorAgent(config, pool)
        self._coordinator = CoordinatorAgent(config, pool)
        self._errors: list[Exception] = []
        #: of threads: no failures of tasks, but of what keeps them

    def do(
        self,
        request: str,
        num_workers: int,
        num_tasks: int | None,
        tasks: Sequence[str | Task] | None,
        work: "Callable[[Brief], Any] | Member | None",
        listener: _Listener,
        timeout: float | None,
    ) -> dict[str, Any]:
        names = [f"worker_{number}" for number in range(1, num_workers + 1)]
        workers = [WorkerAgent(self._worker_config, self._pool, name, work=work) for name in names]
        made = self._supervisor.delegate(request, names, num_tasks, tasks=tasks)
        request_id = made[0]["request_id"]
        threads = [
            threading.Thread(
                target=self._work,
                args=(worker, request_id, listener),
                name=worker.agent_id,
                daemon=True,
            )
            for worker in workers
        ]
        for thread in threads:
            thread.start()
        is_over = _joined(threads, timeout)
        if self._errors:
            raise self._errors[0]
        if not is_over:
            self._supervisor.close(request_id, OUT_OF_TIME)
        return self._told(request_id)

    def _work(self, worker: WorkerAgent, request_id: str, listener: _Listener) -> None:
        """Do all that is meant for this worker, until nothing is left."""
        try:
            while (result := worker.execute_next(request_id)) is not None:
                listener.hear(result, self._coordinator)
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits for it
            self._errors.append(error)

    def _told(self, request_id: str) -> dict[str, Any]:
        aggregated = self._supervisor.aggregate_results(request_id)
        return {
            "request_id": request_id,
            "pool": self._pool,
            "tasks": self._supervisor.get_tasks(request_id),
            "results": aggregated["results"],
            "failures": self._supervisor.check_failures(request_id),
            "progress": self._coordinator.monitor_progress(request_id),
            "final_result": aggregated["final_result"],
            "gaps": aggregated["gaps"],
            "contradictions": aggregated["contradictions"],
            "confidence": aggregated["confidence"],
        }


def _joined(threads: Sequence[threading.Thread], timeout: float | None) -> bool:
    """Whether all have ended within this time."""
    ends_at = None if timeout is None else time.monotonic() + timeout
    for thread in threads:
        thread.join(None if ends_at is None else max(0.0, ends_at - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)
