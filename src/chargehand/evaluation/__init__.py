"""Evaluates crews, prompts and models on suites of cases: `load_suite`, `evaluate`, and the results."""

from collections.abc import Callable
from pathlib import Path

from chargehand.evaluation.case_runs import CaseResult, run_cases
from chargehand.evaluation.figures import (
    Comparison,
    CrewFigures,
    GateMiss,
    Result,
    compare,
    result_of,
)
from chargehand.evaluation.html_report import html_of
from chargehand.evaluation.intervals import Interval
from chargehand.evaluation.plan_scores import PlanScore, PlanTask, score
from chargehand.evaluation.suite_file import Case, CrewEntry, Suite, load_suite
from chargehand.sync_async_bridge import wait_in_background

__all__ = [
    "Case",
    "CaseResult",
    "Comparison",
    "CrewEntry",
    "CrewFigures",
    "GateMiss",
    "Interval",
    "PlanScore",
    "PlanTask",
    "Result",
    "Suite",
    "compare",
    "evaluate",
    "evaluate_sync",
    "html_of",
    "load_suite",
    "score",
]


async def evaluate(
    suite: Suite | str | Path,
    *,
    refresh: bool = False,
    progress: Callable[[CaseResult], None] = lambda _: None,
) -> Result:
    """Evaluate a suite from its recorded model replies; with `refresh`, call the models and record their replies.

    Raises `NeedsRefresh` if a reply is not recorded. `progress` is called with the result of each case when it ends.
    """
    found = suite if isinstance(suite, Suite) else load_suite(suite)
    cases = await run_cases(found, refresh=refresh, progress=progress)
    return result_of(found.name, found.options.note, cases, found.gate)


def evaluate_sync(suite: Suite | str | Path, *, refresh: bool = False) -> Result:
    """`evaluate` for callers without an event loop, such as a pytest function."""
    return wait_in_background(evaluate(suite, refresh=refresh))
