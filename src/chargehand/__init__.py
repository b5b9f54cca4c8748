"""chargehand: a supervisor for teams of agents."""

# plans
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.plan import Need, Plan, Strategy, Task

# workers
from chargehand.engines.brief import Brief
from chargehand.roles.function import FunctionWorker, worker

# outcomes
from chargehand.facts.outcome import (
    Cancelled,
    Done,
    ErrorClass,
    Failed,
    NeedsInput,
    Question,
    Usage,
)

# events
from chargehand.facts import events
from chargehand.facts.events import Effect, Event, RunStatus

# running
from chargehand.decisions.dispatch import Balance
from chargehand.decisions.graph import TaskState
from chargehand.decisions.retry import RetryPolicy
from chargehand.decisions.trace import Trace
from chargehand.journal.opening import open_journal
from chargehand.result import Answer, Gap, RunResult, TaskResult
from chargehand.supervisor import Run, Supervisor

# errors
from chargehand import errors
from chargehand.errors import (
    ChargehandError,
    JournalError,
    PlanRefused,
    RunInterrupted,
    UsageError,
    WorkerError,
)

__version__ = "0.1.0.dev0"

__all__ = [
    "Answer",
    "Balance",
    "Brief",
    "Cancelled",
    "ChargehandError",
    "Done",
    "Effect",
    "ErrorClass",
    "Event",
    "Failed",
    "FunctionWorker",
    "Gap",
    "JournalError",
    "Limits",
    "Need",
    "NeedsInput",
    "Plan",
    "PlanRefused",
    "Question",
    "RetryPolicy",
    "Run",
    "RunInterrupted",
    "RunResult",
    "RunStatus",
    "Strategy",
    "Supervisor",
    "Task",
    "TaskLimits",
    "TaskResult",
    "TaskState",
    "Trace",
    "Usage",
    "UsageError",
    "WorkerError",
    "errors",
    "events",
    "open_journal",
    "worker",
]
