"""The pool: a supervisor agent, workers and a coordinator that share one memory."""

from chargehand.patterns.pool.coordinator_agent import CoordinatorAgent
from chargehand.patterns.pool.model_config import AgentConfig, BaseAgentConfig
from chargehand.patterns.pool.shared_memory import SharedMemoryPool
from chargehand.patterns.pool.supervisor_agent import SupervisorAgent
from chargehand.patterns.pool.worker_agent import WorkerAgent
from chargehand.patterns.pool.workflow import supervisor_worker_workflow

__all__ = [
    "AgentConfig",
    "BaseAgentConfig",
    "CoordinatorAgent",
    "SharedMemoryPool",
    "SupervisorAgent",
    "WorkerAgent",
    "supervisor_worker_workflow",
]
