"""The pool: agents that share one memory. Plain calls, no event loop, as many threads as you like."""

import threading
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import TaskTaken
from chargehand.patterns.pool import (
    AgentConfig,
    CoordinatorAgent,
    SharedMemoryPool,
    SupervisorAgent,
    WorkerAgent,
    supervisor_worker_workflow,
)


def shout(brief: ch.Brief) -> str:
    return brief.task.description.upper()


def fail(brief: ch.Brief) -> str:
    raise ConnectionError(f"{brief.worker} has no line")


@pytest.fixture
def pool() -> SharedMemoryPool:
    return SharedMemoryPool()


@pytest.fixture
def supervisor(pool: SharedMemoryPool) -> SupervisorAgent:
    return SupervisorAgent(AgentConfig(llm_provider="mock"), pool, agent_id="supervisor_1")


def test_one_call_divides_works_and_puts_together() -> None:
    result = supervisor_worker_workflow(
        "Answer 5 letters", num_workers=3, num_tasks=5, work=lambda brief: brief.task.id
    )
    assert len(result["tasks"]) == 5
    assert sorted(each["result"] for each in result["results"]) == ["t1", "t2", "t3", "t4", "t5"]
    assert result["progress"]["completed_tasks"] == 5
    assert result["final_result"]["t3"] == "t3"


def test_results_are_heard_as_they_arrive() -> None:
    results: list[dict[str, Any]] = []
    counts: list[int] = []
    supervisor_worker_workflow(
        "Answer 4 letters",
        num_workers=2,
        num_tasks=4,
        work=shout,
        on_result=results.append,
        on_progress=lambda progress: counts.append(progress["completed_tasks"]),
    )
    assert sorted(result["task_id"] for result in results) == ["t1", "t2", "t3", "t4"]
    assert counts[-1] == 4


def test_tasks_go_round_and_are_found_by_whom_they_are_for(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    tasks = supervisor.delegate("Read 3 books", ["ann", "bob"], num_tasks=3)
    assert [task["assigned_to"] for task in tasks] == ["ann", "bob", "ann"]
    ann = WorkerAgent(None, pool, agent_id="ann", work=shout)
    assert [task["task_id"] for task in ann.get_assigned_tasks()] == ["t1", "t3"]


def test_a_worker_that_can_hold_twice_as_much_gets_twice_as_much(
    supervisor: SupervisorAgent,
) -> None:
    tasks = supervisor.delegate("Read 9 books", [("ann", 10), ("bob", 5)], 9)
    assert [task["assigned_to"] for task in tasks].count("ann") == 6


def test_the_least_busy_worker_gets_the_next_task(supervisor: SupervisorAgent) -> None:
    supervisor.delegate("Read 3 books", ["ann"], 3)
    tasks = supervisor.delegate("Write 4 letters", ["ann", "bob"], 4, balance="least_busy")
    assert [task["assigned_to"] for task in tasks] == ["bob", "bob", "bob", "ann"]


def test_a_result_is_returned_and_in_the_pool(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    (task,) = supervisor.delegate("Say hello", ["ann"])
    result = WorkerAgent(None, pool, agent_id="ann", work=shout).execute_task(task)
    assert (result["status"], result["result"]) == ("completed", "SAY HELLO")
    (insight,) = pool.read_relevant(tags=["result", "completed", task["request_id"]], match="all")
    assert insight["content"] == "SAY HELLO"
    assert (insight["agent_id"], insight["importance"]) == ("ann", 0.8)


def test_a_task_is_done_by_one_worker_only(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    (task,) = supervisor.delegate("Say hello", ["ann"])
    WorkerAgent(None, pool, agent_id="ann", work=shout).execute_task(task)
    with pytest.raises(TaskTaken, match="was done by ann"):
        WorkerAgent(None, pool, agent_id="bob", work=shout).execute_task(task)


def test_a_failure_is_reassigned_and_done_by_another(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    tasks = supervisor.delegate("Say hello", ["ann"])
    assert WorkerAgent(None, pool, "ann", work=fail).execute_task(tasks[0])["status"] == "failed"
    request_id = tasks[0]["request_id"]
    for failure in supervisor.check_failures(request_id):
        task_id = failure["metadata"]["task_id"]
        task = next(t for t in tasks if t["task_id"] == task_id)
        supervisor.reassign_task(task, new_worker="backup")
    backup = WorkerAgent(None, pool, agent_id="backup", work=shout)
    (moved,) = backup.get_assigned_tasks()
    assert backup.execute_task(moved)["result"] == "SAY HELLO"
    assert supervisor.check_all_tasks_completed(request_id)
    assert supervisor.check_failures(request_id) == []


def test_an_answer_names_what_is_missing(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    first, second = supervisor.delegate("Say 2 things", ["ann", "bob"])
    WorkerAgent(None, pool, "ann", work=shout).execute_task(first)
    WorkerAgent(None, pool, "bob", work=fail).execute_task(second)
    answer = supervisor.aggregate_results(first["request_id"])
    (gap,) = answer["gaps"]
    assert (gap["task_id"], gap["status"]) == ("t2", "failed")
    assert "bob has no line" in gap["why"]
    assert answer["confidence"] == 0.5


def test_workers_work_in_threads(pool: SharedMemoryPool, supervisor: SupervisorAgent) -> None:
    tasks = supervisor.delegate("Read 12 books", [f"worker_{n}" for n in range(4)], 12)

    def work(name: str) -> None:
        worker = WorkerAgent(None, pool, agent_id=name, work=shout)
        for task in worker.get_assigned_tasks():
            worker.execute_task(task)

    threads = [threading.Thread(target=work, args=(f"worker_{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert supervisor.check_all_tasks_completed(tasks[0]["request_id"])


def test_a_pool_with_a_file_goes_on_in_another_process_or_later(tmp_path: Path) -> None:
    with SharedMemoryPool(tmp_path / "runs.db") as pool:
        tasks = SupervisorAgent(None, pool).delegate("Say hello", ["ann"])
    with SharedMemoryPool(tmp_path / "runs.db") as pool:
        ann = WorkerAgent(None, pool, agent_id="ann", work=shout)
        for task in ann.get_assigned_tasks():
            ann.execute_task(task)
        answer = SupervisorAgent(None, pool).aggregate_results(tasks[0]["request_id"])
    assert answer["final_result"] == "SAY HELLO"


def test_the_coordinator_counts(pool: SharedMemoryPool, supervisor: SupervisorAgent) -> None:
    first, second, _ = supervisor.delegate("Say 3 things", ["ann", "bob", "cid"])
    WorkerAgent(None, pool, "ann", work=shout).execute_task(first)
    WorkerAgent(None, pool, "bob", work=fail).execute_task(second)
    progress = CoordinatorAgent(None, pool).monitor_progress()
    assert progress["completed_tasks"] == 1
    assert progress["failed_tasks"] == 1
    assert progress["pending_tasks"] == 1
    assert progress["workers"]["ann"]["completed"] == 1


def test_the_same_work_given_out_twice_is_named_and_resolved(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    (first, _) = supervisor.delegate("Greet", ["ann", "bob"], tasks=["Say hello", "Say hello"])
    (conflict,) = CoordinatorAgent(None, pool).resolve_conflicts()
    assert conflict["parties"] == ["ann", "bob"]
    supervisor.apply_resolution(conflict)
    assert [task["status"] for task in supervisor.get_tasks(first["request_id"])] == [
        "pending",
        "cancelled",
    ]
    (note,) = pool.read_relevant(segments=["conflicts"])
    assert note["importance"] == 0.9


def test_insights_are_written_and_read_by_what_they_are_about(pool: SharedMemoryPool) -> None:
    pool.write_insight(
        {"agent_id": "ann", "content": "prices rose", "tags": ["prices"], "importance": 0.9}
    )
    pool.write_insight({"agent_id": "bob", "content": "it rains", "tags": ["weather"]})
    found = pool.read_relevant(agent_id="bob", tags=["prices", "weather"], exclude_own=True)
    assert [insight["content"] for insight in found] == ["prices rose"]
    assert len(pool.read_all()) == 2


def test_a_block_is_updated_by_many_and_loses_nothing(pool: SharedMemoryPool) -> None:
    for _ in range(3):
        pool.update_block("count", lambda old: (old or 0) + 1)
    assert pool.read_block("count")["value"] == 3
    assert pool.read_block("count", version=1)["value"] == 1


def test_what_a_supervisor_does_is_read_in_a_pool() -> None:
    @ch.worker("ann", "Says hello")
    async def hello(brief: ch.Brief) -> str:
        return "hello"

    boss = ch.Supervisor([hello])
    task = ch.Task(id="t1", description="Say hello to everybody", worker="ann")
    run = boss.run_sync(ch.Plan(goal="Be polite", tasks=[task]))
    pool = SharedMemoryPool.of(boss)
    (insight,) = pool.read_relevant(tags=[run.id], segments=["results"])
    assert insight["content"] == "hello"
    assert CoordinatorAgent(None, pool).monitor_progress()["completed_tasks"] == 1
