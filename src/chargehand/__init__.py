"""chargehand: a supervisor for teams of agents."""

from importlib import import_module
from typing import TYPE_CHECKING

# plans
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.plan import Need, Plan, Strategy, Task
from chargehand.facts.policy import OnFailure

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
from chargehand.facts.events import Approach, Effect, Event, RunStatus

# running
from chargehand.decisions.dispatch import Balance, Starts
from chargehand.decisions.elastic import Elastic
from chargehand.decisions.graph import TaskState
from chargehand.decisions.retry import RetryPolicy
from chargehand.decisions.report import Report
from chargehand.decisions.trace import Trace
from chargehand.journal.opening import open_journal
from chargehand.facts.answer import (
    Answer,
    AnswerPiece,
    Candidate,
    Claim,
    Contradiction,
    Gap,
)
from chargehand.result import RunResult, TaskResult
from chargehand.supervisor import Run, Supervisor

# memory
from chargehand.facts.board import Block, Hit, Note, Segment

# people
from chargehand import notify

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

if TYPE_CHECKING:
    # agents
    from chargehand.decisions.breaker import BreakerPolicy
    from chargehand.decisions.coordination.conflicts import Conflict
    from chargehand.decisions.coordination.health import Health, Trouble
    from chargehand.decisions.coordination.progress import Load, Progress
    from chargehand.decisions.limiter import Rates
    from chargehand.decisions.quorum import quorum
    from chargehand.decisions.rules import (
        ApprovalRule,
        ChildRule,
        InitRule,
        MaxCountRule,
        RequiredRule,
        TerminalRule,
    )
    from chargehand.models.base import ModelSettings
    from chargehand.models.opening import open_model
    from chargehand.models.scripted import ScriptedModel, When
    from chargehand.models.switchboard import Switchboard
    from chargehand.roles.board import Board
    from chargehand.roles.coordinator import Coordinator
    from chargehand.roles.factory import Factory
    from chargehand.roles.voting import vote
    from chargehand.roles.worker import Worker
    from chargehand.tools.base import Tool, ToolContext, tool
    from chargehand.tools.mcp import McpServer, mcp_server

#: public names that are imported when first asked for: runs of plain functions need none of them
_LATER = {
    "ApprovalRule": "decisions.rules",
    "Board": "roles.board",
    "BreakerPolicy": "decisions.breaker",
    "ChildRule": "decisions.rules",
    "Conflict": "decisions.coordination.conflicts",
    "Coordinator": "roles.coordinator",
    "Factory": "roles.factory",
    "Health": "decisions.coordination.health",
    "InitRule": "decisions.rules",
    "Load": "decisions.coordination.progress",
    "McpServer": "tools.mcp",
    "MaxCountRule": "decisions.rules",
    "ModelSettings": "models.base",
    "Progress": "decisions.coordination.progress",
    "Rates": "decisions.limiter",
    "RequiredRule": "decisions.rules",
    "ScriptedModel": "models.scripted",
    "Switchboard": "models.switchboard",
    "TerminalRule": "decisions.rules",
    "Tool": "tools.base",
    "ToolContext": "tools.base",
    "Trouble": "decisions.coordination.health",
    "When": "models.scripted",
    "Worker": "roles.worker",
    "mcp_server": "tools.mcp",
    "open_model": "models.opening",
    "quorum": "decisions.quorum",
    "tool": "tools.base",
    "vote": "roles.voting",
}


def __getattr__(name: str) -> object:
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module 'chargehand' has no attribute {name!r}")
    value: object = getattr(import_module(f"chargehand.{room}"), name)
    globals()[name] = value
    return value


__all__ = [
    "Answer",
    "AnswerPiece",
    "Approach",
    "ApprovalRule",
    "Balance",
    "Block",
    "Board",
    "BreakerPolicy",
    "Brief",
    "Cancelled",
    "Candidate",
    "ChargehandError",
    "ChildRule",
    "Claim",
    "Conflict",
    "Contradiction",
    "Coordinator",
    "Done",
    "Effect",
    "Elastic",
    "ErrorClass",
    "Event",
    "Factory",
    "Failed",
    "FunctionWorker",
    "Gap",
    "Health",
    "Hit",
    "InitRule",
    "JournalError",
    "Limits",
    "Load",
    "MaxCountRule",
    "McpServer",
    "ModelSettings",
    "Need",
    "NeedsInput",
    "Note",
    "OnFailure",
    "Plan",
    "PlanRefused",
    "Progress",
    "Question",
    "Rates",
    "Report",
    "RequiredRule",
    "RetryPolicy",
    "Run",
    "RunInterrupted",
    "RunResult",
    "RunStatus",
    "ScriptedModel",
    "Segment",
    "Starts",
    "Strategy",
    "Supervisor",
    "Switchboard",
    "Task",
    "TaskLimits",
    "TaskResult",
    "TaskState",
    "TerminalRule",
    "Tool",
    "ToolContext",
    "Trace",
    "Trouble",
    "Usage",
    "UsageError",
    "When",
    "Worker",
    "WorkerError",
    "errors",
    "events",
    "mcp_server",
    "notify",
    "open_journal",
    "open_model",
    "quorum",
    "tool",
    "vote",
    "worker",
]
