"""50 department reports on 10 workers: some fail, the supervisor reassigns them, and none is missing.

The figures are in `pool_data/departments.csv`. A few departments still write 12.345,50 for 12345.50, which the ten
workers cannot read: their tasks fail. The supervisor gives the failed tasks to a worker that can.
"""

import csv
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import chargehand as ch
from chargehand.patterns.pool import (
    CoordinatorAgent,
    SupervisorAgent,
    WorkerAgent,
    supervisor_worker_workflow,
)

FIGURES = Path(__file__).parent / "pool_data" / "departments.csv"
WORKERS = 10
#: seconds a report takes where people watch
PACE = 0.4 if sys.stdout.isatty() else 0.0


@cache
def figures() -> dict[str, list[dict[str, str]]]:
    """The quarterly figures of each department, as written."""
    quarters: dict[str, list[dict[str, str]]] = {}
    with FIGURES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            quarters.setdefault(row["department"], []).append(row)
    return quarters


def report(department: str, number: Callable[[str], float]) -> dict[str, Any]:
    """How well a department kept to its budget; `number` parses its figures."""
    time.sleep(PACE)
    quarters = figures()[department]
    over = {row["quarter"]: number(row["spent"]) - number(row["budget"]) for row in quarters}
    worst = max(over, key=lambda quarter: over[quarter])
    return {"department": department, "over": round(sum(over.values()), 2), "worst": worst}


def department_in(brief: ch.Brief) -> str:
    return brief.task.description.removeprefix("Report on ")


def write_report(brief: ch.Brief) -> dict[str, Any]:
    """What the ten workers do."""
    return report(department_in(brief), float)


def write_old_report(brief: ch.Brief) -> dict[str, Any]:
    """What the backup worker does: it can parse the old number format."""
    return report(department_in(brief), lambda it: float(it.replace(".", "").replace(",", ".")))


def first_round(names: list[str]) -> dict[str, Any]:
    """Give each department to one of the workers and show the results."""
    look = TextColumn("  {task.description:<8}"), BarColumn(50), MofNCompleteColumn()
    with Progress(*look, disable=not sys.stdout.isatty()) as bars:
        done = bars.add_task("done", total=len(names))
        failed = bars.add_task("failed", total=len(names))
        marks = [10, 20, 30, 40, 50]

        def hear(progress: dict[str, Any]) -> None:
            bars.update(done, completed=progress["completed_tasks"])
            bars.update(failed, completed=progress["failed_tasks"])
            ended = progress["completed_tasks"] + progress["failed_tasks"]
            while bars.disable and marks and ended >= marks[0]:
                print(f"  {marks.pop(0)} of {len(names)} reports tried")

        return supervisor_worker_workflow(
            "Report on 50 departments",
            num_workers=WORKERS,
            tasks=[f"Report on {name}" for name in names],
            work=write_report,
            on_progress=hear,
        )


def second_round(supervisor: SupervisorAgent, backup: WorkerAgent, result: dict[str, Any]) -> None:
    """Give the failed tasks to the backup worker."""
    tasks = {task["task_id"]: task for task in result["tasks"]}
    for failure in supervisor.check_failures(result["request_id"]):
        task = tasks[failure["metadata"]["task_id"]]
        why = failure["content"].removeprefix("logic: ")
        print(f"  {failure['agent_id']:<10} {task['description']}: {why}")
        supervisor.reassign_task(task, new_worker=backup.agent_id)
    print()
    while (done := backup.execute_next()) is not None:
        print(f"  {done['agent_id']}: {done['status']} {tasks[done['task_id']]['description']}")


def tell(reports: list[dict[str, Any]]) -> None:
    ranked = sorted(reports, key=lambda each: -each["over"])
    print("\n  furthest over budget            over  worst quarter")
    for each in ranked[:5]:
        print(f"  {each['department']:<22} {each['over']:>13,.2f}  {each['worst']}")
    kept = sum(each["over"] <= 0 for each in reports)
    print(f"\n{len(reports)} reports; {kept} departments kept within their budget.")


def main() -> dict[str, Any]:
    print(f"50 departments for {WORKERS} workers:\n")
    result = first_round(list(figures()))
    pool = result["pool"]
    supervisor = SupervisorAgent(None, pool)
    backup = WorkerAgent(None, pool, "worker_backup", work=write_old_report)
    print(f"\n{len(result['results'])} done. What failed is given to {backup.agent_id}:\n")
    second_round(supervisor, backup, result)
    final = supervisor.aggregate_results(result["request_id"])
    far = CoordinatorAgent(None, pool).monitor_progress(result["request_id"])
    tell([each["result"] for each in final["results"]])
    print(
        f"The request {final['status']}: {far['failed_tasks']} failed, {len(final['gaps'])} missing."
    )
    print("\nNext: docs/failures.md says how a supervisor does this by itself, with a policy.")
    return final


if __name__ == "__main__":
    main()
