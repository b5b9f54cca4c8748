"""The pool: agents that share one memory, one dividing the work, many doing it, one watching."""

from chargehand.patterns.pool.config import AgentConfig, BaseAgentConfig
from chargehand.patterns.pool.memory import SharedMemoryPool
from chargehand.patterns.pool.supervising import SupervisorAgent
from chargehand.patterns.pool.watching import CoordinatorAgent
from chargehand.patterns.pool.workflow import supervisor_worker_workflow
from chargehand.patterns.pool.working import WorkerAgent

__all__ = [
    "AgentConfig",
    "BaseAgentConfig",
    "CoordinatorAgent",
    "SharedMemoryPool",
    "SupervisorAgent",
    "WorkerAgent",
    "supervisor_worker_workflow",
]
