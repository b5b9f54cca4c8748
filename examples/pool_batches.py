"""Batches of jobs with live progress: four batches of payments, five workers, the urgent batch first.

The payments are in `pool_data/payments.csv`. All batches are given to the pool at once; each worker takes the most
urgent task that waits for it. The coordinator reports the progress of each batch, result by result.
"""

import csv
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

import chargehand as ch
from chargehand.patterns.pool import (
    CoordinatorAgent,
    SharedMemoryPool,
    SupervisorAgent,
    WorkerAgent,
)

PAYMENTS = Path(__file__).parent / "pool_data" / "payments.csv"
WORKERS = [f"worker_{number}" for number in range(1, 6)]
#: by batch; the others have 0
URGENT = {"thursday": 9}
LENGTHS = {"AT": 20, "BE": 16, "DE": 22, "ES": 24}
#: seconds a payment takes where people watch
PACE = 0.1 if sys.stdout.isatty() else 0.0


def objection(payment: dict[str, str]) -> str:
    """The objection to a payment; empty if there is none."""
    iban, amount = payment["iban"], float(payment["amount"])
    if len(iban) != LENGTHS[iban[:2]]:
        return f"an IBAN of {iban[:2]} has {LENGTHS[iban[:2]]} characters, not {len(iban)}"
    digits = "".join(str(int(character, 36)) for character in iban[4:] + iban[:4])
    if int(digits) % 97 != 1:
        return f"the check digits of {iban} are wrong"
    return "" if amount > 0 else f"{amount:.2f} cannot be paid"


def batches() -> dict[str, dict[str, dict[str, str]]]:
    """By batch and number, all payments."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    with PAYMENTS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["batch"], {})[row["payment"]] = row
    return found


def checker(payments: dict[str, dict[str, str]]) -> Callable[[ch.Brief], dict[str, Any]]:
    """What a worker does: check the payment that its task names."""

    def check(brief: ch.Brief) -> dict[str, Any]:
        time.sleep(PACE)
        number = brief.task.description.removeprefix("Check payment ")
        return {"payment": number, "objection": objection(payments[number])}

    return check


def give_out(pool: SharedMemoryPool, found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Submit each batch as a request; returns the request ids by batch."""
    supervisor = SupervisorAgent(None, pool)
    requests = {}
    for name, payments in found.items():
        tasks = supervisor.delegate(
            f"Check the payments of {name}",
            WORKERS,
            tasks=[f"Check payment {number}" for number in payments],
            priority=URGENT.get(name, 0),
        )
        requests[name] = tasks[0]["request_id"]
    return requests


def work(worker: WorkerAgent) -> None:
    """Do the tasks of this worker, most urgent first, until none is left."""
    while worker.execute_next() is not None:
        pass


def watch(pool: SharedMemoryPool, requests: dict[str, str]) -> list[str]:
    """Show the progress of each batch after every result; returns the order in which they ended."""
    coordinator, order = CoordinatorAgent(None, pool), list[str]()
    look = TextColumn("  {task.description:<10}"), BarColumn(50), MofNCompleteColumn()
    with Progress(*look, disable=not sys.stdout.isatty()) as bars:
        bar = {name: bars.add_task(name) for name in requests}
        for _ in pool.follow(segments=["results"], timeout=5):
            for name in [name for name in requests if name not in order]:
                far = coordinator.monitor_progress(requests[name])
                done, total = far["completed_tasks"], far["total_tasks"]
                bars.update(bar[name], completed=done, total=total)
                if done == total:
                    order.append(name)
                    if bars.disable:
                        print(f"  {name}: {done} of {total} payments checked")
            if len(order) == len(requests):
                break
    return order


def main() -> dict[str, Any]:
    found = batches()
    print(f"Payments in {len(found)} batches for {len(WORKERS)} workers; thursday's are urgent:\n")
    payments = {number: row for batch in found.values() for number, row in batch.items()}
    pool = SharedMemoryPool()
    requests = give_out(pool, found)
    agents = [WorkerAgent(None, pool, name, work=checker(payments)) for name in WORKERS]
    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    order = watch(pool, requests)
    for thread in threads:
        thread.join()
    supervisor = SupervisorAgent(None, pool)
    results = {name: supervisor.aggregate_results(requests[name]) for name in requests}
    tell(results, payments)
    return {"order": order, "results": results}


def tell(results: dict[str, Any], payments: dict[str, dict[str, str]]) -> None:
    """Print which payments may be made, batch by batch, and which may not."""
    print("\n  batch       payments  refused        to pay")
    refused: list[dict[str, str]] = []
    for name, result in results.items():
        checked = [each["result"] for each in result["results"]]
        bad = [each for each in checked if each["objection"]]
        good = [each for each in checked if not each["objection"]]
        total = sum(float(payments[each["payment"]]["amount"]) for each in good)
        print(f"  {name:<11} {len(checked):>8} {len(bad):>8} {total:>13,.2f}")
        refused += bad
    print("\nRefused:\n")
    for each in refused[:6]:
        print(f"  {each['payment']}  {payments[each['payment']]['payee']}: {each['objection']}")
    print(f"  and {len(refused) - 6} more" if len(refused) > 6 else "")
    print(
        "\nNext: SharedMemoryPool('runs.db'), and start workers in as many processes as you like."
    )


if __name__ == "__main__":
    main()
