"""chargehand: a supervisor for teams of agents."""

from importlib import import_module
from typing import TYPE_CHECKING

# plans
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.retention import Retention
from chargehand.facts.plan import Need, Plan, Strategy, Task
from chargehand.facts.failure_policy import OnFailure

# workers
from chargehand.engines.brief import Brief
from chargehand.roles.function_worker import FunctionWorker, worker

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

# notebooks
from chargehand.facts.jupyter_html_hook import render_with

# running
from chargehand.decisions.dispatch import Balance, Starts
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.task_graph import TaskState
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.decisions.time_and_cost_report import Report
from chargehand.decisions.trace import Trace
from chargehand.journal.open_journal import open_journal
from chargehand.facts.answer import (
    Answer,
    AnswerPiece,
    Candidate,
    Claim,
    Contradiction,
    Gap,
    TaskPiece,
)
from chargehand.result import FailedItem, RunResult, TaskResult
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
    from chargehand.decisions.circuit_breaker import BreakerPolicy
    from chargehand.decisions.coordination.conflicts import Conflict
    from chargehand.decisions.coordination.troubles import Health, Trouble
    from chargehand.decisions.coordination.progress_counts import Load, Progress
    from chargehand.decisions.rate_limiter import Rates
    from chargehand.decisions.quorum import quorum
    from chargehand.decisions.tool_rules import (
        ApprovalRule,
        ChildRule,
        InitRule,
        MaxCountRule,
        RequiredRule,
        TerminalRule,
    )
    from chargehand.models.base import ModelSettings
    from chargehand.models.open_model import open_model
    from chargehand.models.scripted import ScriptedModel, When
    from chargehand.models.gateway import ModelGateway
    from chargehand.presentation.notebook import run_in_notebook
    from chargehand.roles.board import Board
    from chargehand.roles.coordinator import Coordinator
    from chargehand.roles.worker_per_task import Factory
    from chargehand.roles.vote_count import vote
    from chargehand.roles.llm_worker import Worker
    from chargehand.tools.base import Tool, ToolContext, tool
    from chargehand.tools.mcp import McpServer, mcp_server

#: public names that are imported when first asked for: runs of plain functions need none of them
_LATER = {
    "ApprovalRule": "decisions.tool_rules",
    "Board": "roles.board",
    "BreakerPolicy": "decisions.circuit_breaker",
    "ChildRule": "decisions.tool_rules",
    "Conflict": "decisions.coordination.conflicts",
    "Coordinator": "roles.coordinator",
    "Factory": "roles.worker_per_task",
    "Health": "decisions.coordination.troubles",
    "InitRule": "decisions.tool_rules",
    "Load": "decisions.coordination.progress_counts",
    "McpServer": "tools.mcp",
    "MaxCountRule": "decisions.tool_rules",
    "ModelSettings": "models.base",
    "Progress": "decisions.coordination.progress_counts",
    "Rates": "decisions.rate_limiter",
    "RequiredRule": "decisions.tool_rules",
    "ScriptedModel": "models.scripted",
    "ModelGateway": "models.gateway",
    "TerminalRule": "decisions.tool_rules",
    "Tool": "tools.base",
    "ToolContext": "tools.base",
    "Trouble": "decisions.coordination.troubles",
    "When": "models.scripted",
    "Worker": "roles.llm_worker",
    "mcp_server": "tools.mcp",
    "open_model": "models.open_model",
    "quorum": "decisions.quorum",
    "run_in_notebook": "presentation.notebook",
    "tool": "tools.base",
    "vote": "roles.vote_count",
}


def _shown_in_notebook(value: object) -> str:
    html: str = import_module("chargehand.presentation.notebook").html_of(value)
    return html


render_with(_shown_in_notebook)


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
    "FailedItem",
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
    "ModelGateway",
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
    "Retention",
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
    "Task",
    "TaskLimits",
    "TaskPiece",
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
    "run_in_notebook",
    "tool",
    "vote",
    "worker",
]
