"""A process whose threads work for a pool: `python pool_at_work.py JOURNAL REQUEST PROCESS THREADS WRITES`.

With `hang` for WRITES, the first task that it begins is never ended.
"""

import json
import sys
import threading
from typing import Any

import chargehand as ch
from chargehand.errors import TaskTaken
from chargehand.patterns.pool import SharedMemoryPool, WorkerAgent

LABEL = "seen"


class Told:
    """What is told of what was done here."""

    def __init__(self, *, hangs: bool) -> None:
        self.done: list[str] = []
        self.versions: list[int] = []
        self._hangs = hangs

    def work(self, brief: ch.Brief) -> str:
        if self._hangs:
            print(json.dumps(brief.task.id), flush=True)
            threading.Event().wait()
        self.done.append(brief.task.id)
        return brief.task.id


def serve(worker: WorkerAgent, request: str, told: Told, writes: int) -> None:
    tasks: list[dict[str, Any]] = worker.get_assigned_tasks(request)
    tasks += [{"request_id": request, "task_id": f"r{n}"} for n in range(int(sys.argv[6]))]
    for task in tasks:
        try:
            worker.execute_task(task)
        except TaskTaken:
            continue
    for _ in range(writes):
        block = worker.pool.write_block(LABEL, worker.agent_id, agent_id=worker.agent_id)
        told.versions.append(block["version"])


def main() -> None:
    path, request, process, threads, writes, _ = sys.argv[1:]
    told = Told(hangs=writes == "hang")
    with SharedMemoryPool(path) as pool:
        workers = [
            WorkerAgent(None, pool, f"worker_{process}_{n}", work=told.work)
            for n in range(int(threads))
        ]
        count = 0 if writes == "hang" else int(writes)
        serving = [
            threading.Thread(target=serve, args=(worker, request, told, count))
            for worker in workers
        ]
        for thread in serving:
            thread.start()
        for thread in serving:
            thread.join()
    print(json.dumps({"done": told.done, "versions": told.versions}), flush=True)


if __name__ == "__main__":
    main()
