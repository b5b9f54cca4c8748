"""The coordinator of a pool: reports progress, conflicts and health; reads everything, writes nothing."""

from typing import Any

from chargehand.decisions.coordination.conflicts import Conflict
from chargehand.decisions.coordination.progress_counts import Load, Progress
from chargehand.facts import argument_checks as checks
from chargehand.facts.board import NoteQuery, Segment
from chargehand.facts.value import canonical, digest_of
from chargehand.patterns.pool.leaderless_run import has_failed, tasks_in
from chargehand.patterns.pool.model_config import AgentConfig, config_of
from chargehand.patterns.pool.shared_memory import EVERYTHING, SETTLES, SharedMemoryPool, pool_of
from chargehand.roles.coordinator import Coordinator
from chargehand.sync_async_bridge import blocking


class CoordinatorAgent:
    """Monitors a pool and all other runs of its journal."""

    @checks.keywords_checked
    def __init__(
        self,
        config: AgentConfig | None,
        pool: SharedMemoryPool,
        agent_id: str = "coordinator",
    ) -> None:
        self.config = config_of(config)
        self.pool = pool_of(pool)
        self.agent_id = checks.name(agent_id, "agent_id")
        self._coordinator = Coordinator(pool.journal, pool.clock, boards=[pool.name])

    def __repr__(self) -> str:
        return f"<coordinator agent {self.agent_id!r}>"

    @blocking
    async def monitor_progress(self, request_id: str = "") -> dict[str, Any]:
        """The progress of one request, or of the whole journal: tasks by state, and each worker.

        A failed task counts as failed until it is reassigned.
        """
        progress = await self._coordinator.progress(checks.text(request_id, "request_id"))
        nodes = [
            node for view in await self.pool.requests.of(request_id) for node in tasks_in(view)
        ]
        # Failures without a decision; in the schedule, these tasks are asking.
        return _form(progress, sum(has_failed(n) and not n.state.is_settled for n in nodes))

    @blocking
    async def resolve_conflicts(self, request_id: str = "") -> list[dict[str, Any]]:
        """The open conflicts and their resolution by rule; `SupervisorAgent.apply_resolution` applies it.

        Conflicts that are already settled are left out.
        """
        found = await self._coordinator.conflicts(checks.text(request_id, "request_id"))
        forms = [_conflict(each) for each in found if not each.is_settled]
        query = NoteQuery(segments=(Segment.CONFLICTS,), tags=("conflict",), limit=EVERYTHING)
        notes = await self.pool.journal.boards.notes(self.pool.name, query) if forms else []
        settled = {note.metadata.get(SETTLES) for note in notes}
        return [form for form in forms if form["id"] not in settled]

    @blocking
    async def check_health(self) -> list[dict[str, Any]]:
        """The current health problems, with advice."""
        health = await self._coordinator.health()
        return [
            {
                "kind": str(trouble.kind),
                "name": trouble.name,
                "fact": trouble.fact,
                "advice": trouble.advice,
                "request_id": trouble.run,
                "task_id": trouble.task,
            }
            for trouble in health.troubles
        ]


def _form(progress: Progress, unanswered: int) -> dict[str, Any]:
    return {
        "active_workers": list(progress.active_workers),
        "pending_tasks": progress.pending,
        "running_tasks": progress.running,
        "completed_tasks": progress.completed,
        "failed_tasks": progress.failed + unanswered,
        "asking_tasks": progress.asking - unanswered,
        "skipped_tasks": progress.skipped,
        "cancelled_tasks": progress.cancelled,
        "total_tasks": progress.total,
        "workers": {name: _load(load) for name, load in progress.workers.items()},
    }


def _load(load: Load) -> dict[str, Any]:
    mean = load.mean
    return {
        "running": load.running,
        "completed": load.completed,
        "failed": load.failed,
        "mean_seconds": None if mean is None else mean.total_seconds(),
    }


def _conflict(conflict: Conflict) -> dict[str, Any]:
    parties = sorted(conflict.parties)
    which = [conflict.kind, conflict.run, conflict.board, conflict.block, parties, conflict.fact]
    return {
        "id": digest_of(canonical(which)),
        "kind": str(conflict.kind),
        "request_id": conflict.run,
        "task_id": conflict.task,
        "tasks": list(conflict.tasks),
        "kept_task": conflict.resolution.task,
        "keeper": conflict.resolution.keeper,
        "parties": list(conflict.parties),
        "fact": conflict.fact,
        "resolution": str(conflict.resolution),
    }
