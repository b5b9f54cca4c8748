"""The pool where it gets difficult: claims that race, workers that die or are late, requests that end early."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

import chargehand as ch
from chargehand.errors import (
    JournalBusy,
    JournalFull,
    NotLeading,
    TaskTaken,
    UnknownQuestion,
    UnknownRun,
    UsageError,
)
from chargehand.facts.outcome import Parked
from chargehand.journal.memory import MemoryJournal
from chargehand.journal.sqlite import SqliteJournal
from chargehand.journal.sqlite_writer import Transaction
from chargehand.past_runs import fold
from chargehand.patterns.pool import (
    CoordinatorAgent,
    SharedMemoryPool,
    SupervisorAgent,
    WorkerAgent,
    supervisor_worker_workflow,
)
from chargehand.patterns.pool.leaderless_run import Decision, DecisionTime, LeaderlessRun
from chargehand.patterns.pool.worker_agent import PoolAttempt
from chargehand.sync_async_bridge import run_in_background

Task = dict[str, Any]


def echo(brief: ch.Brief) -> str:
    return brief.task.id


class Gate:
    """Work that waits until it is let through."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()

    def __call__(self, brief: ch.Brief) -> str:
        self.begun.set()
        assert self.opened.wait(20), "it was never let through"
        return f"{brief.task.id} by {brief.worker}"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as executor:
        yield executor


@pytest.fixture(params=["memory", "sqlite"])
def journals(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Opens journals on the same streams, each a node of its own, as processes would."""
    opened: list[Any] = []

    def open_one() -> Any:
        if request.param == "sqlite":
            opened.append(SqliteJournal(tmp_path / "runs.db"))
        else:
            opened.append(opened[0].neighbour() if opened else MemoryJournal())
        return opened[-1]

    yield open_one
    for journal in reversed(opened):
        run_in_background(journal.close()).result()


@pytest.fixture
def pool(journals: Callable[[], Any]) -> SharedMemoryPool:
    return SharedMemoryPool(journals())


@pytest.fixture
def other(pool: SharedMemoryPool, journals: Callable[[], Any]) -> SharedMemoryPool:
    """A pool on the same journal, as another process has it."""
    return SharedMemoryPool(journals())


@pytest.fixture
def supervisor(pool: SharedMemoryPool) -> SupervisorAgent:
    return SupervisorAgent(None, pool)


def begun(
    threads: ThreadPoolExecutor, worker: WorkerAgent, task: Task, gate: Gate
) -> "Future[Task]":
    """A task that a worker has begun, and that waits at the gate."""
    doing = threads.submit(worker.execute_task, task)
    assert gate.begun.wait(20)
    return doing


def check(pool: SharedMemoryPool, request: str) -> None:
    """What the journal holds is what a schedule can hold."""
    live_run = run_in_background(fold(pool.journal, request, None)).result()
    live_run.schedule.check()


# Claims


def test_a_task_that_somebody_does_is_not_given_to_another(
    pool: SharedMemoryPool,
    other: SharedMemoryPool,
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
) -> None:
    (task,) = supervisor.delegate("Wait", ["ann"])
    gate = Gate()
    doing = begun(threads, WorkerAgent(None, pool, "ann", work=gate), task, gate)
    for where in (pool, other):
        with pytest.raises(TaskTaken, match=r"is being done by ann since \d{4}-") as caught:
            WorkerAgent(None, where, "bob", work=echo).execute_task(task)
        assert (caught.value.holder, caught.value.is_done) == ("ann", False)
        with pytest.raises(TaskTaken, match="ann"):
            SupervisorAgent(None, where).reassign_task(task, "bob")
    gate.opened.set()
    assert doing.result()["result"] == "t1 by ann"
    check(pool, task["request_id"])


def test_of_many_that_race_for_a_task_one_does_it(
    pool: SharedMemoryPool,
    other: SharedMemoryPool,
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
) -> None:
    tasks = supervisor.delegate("Race for 10 things", ["anybody"], 10)
    done: list[str] = []

    def work(brief: ch.Brief) -> None:
        done.append(brief.task.id)

    def race(name: str, where: SharedMemoryPool) -> int:
        worker = WorkerAgent(None, where, name, work=work)
        won = 0
        for task in tasks:
            try:
                won += worker.execute_task(task)["status"] == "completed"
            except TaskTaken:
                continue
        return won

    races = [threads.submit(race, f"w{n}", (pool, other)[n % 2]) for n in range(8)]
    assert sum(each.result() for each in races) == 10
    assert sorted(done) == sorted(task["task_id"] for task in tasks)
    assert supervisor.aggregate_results(tasks[0]["request_id"])["status"] == "succeeded"
    check(pool, tasks[0]["request_id"])


def test_whoever_has_the_skill_takes_the_most_urgent_task(
    pool: SharedMemoryPool,
    other: SharedMemoryPool,
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
) -> None:
    """Any number of workers may come and go: each that asks gets another task, or none."""
    tasks = [
        ch.Task(id=f"t{n}", description=f"Read book {n}", skill="reading", priority=n % 3)
        for n in range(30)
    ]
    request = supervisor.delegate("Read", ["ann"], tasks=tasks)[0]["request_id"]
    assert WorkerAgent(None, pool, "ann", work=echo).execute_next() is None
    order: list[str] = []

    def work(brief: ch.Brief) -> None:
        order.append(brief.task.id)

    def read(name: str, where: SharedMemoryPool) -> None:
        worker = WorkerAgent(None, where, name, work=work, skills=["reading"])
        while worker.execute_next(request) is not None:
            continue

    alone = WorkerAgent(None, pool, "eve", work=work, skills=["reading"])
    for _ in range(12):
        alone.execute_next()
    reading = [threads.submit(read, f"w{n}", (pool, other)[n % 2]) for n in range(6)]
    for each in reading:
        each.result()
    assert [int(task[1:]) % 3 for task in order[:12]] == [2] * 10 + [1] * 2
    assert Counter(order) == Counter(task.id for task in tasks)
    assert supervisor.check_all_tasks_completed(request)
    check(pool, request)


def test_what_a_dead_worker_had_begun_is_done_by_another(
    pool: SharedMemoryPool,
    journals: Callable[[], Any],
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
) -> None:
    """Its journal is closed under it: to the others it is gone, and its result comes too late."""
    (task,) = supervisor.delegate("Wait", ["ann"])
    gate, journal = Gate(), journals()
    dying = SharedMemoryPool(journal)
    doing = begun(threads, WorkerAgent(None, dying, "ann", work=gate), task, gate)
    bob = WorkerAgent(None, pool, "bob", work=echo)
    assert bob.get_assigned_tasks(lost=True) == []
    run_in_background(journal.close()).result()
    (lost,) = bob.get_assigned_tasks(lost=True)
    assert bob.execute_task(lost)["status"] == "completed"
    gate.opened.set()
    with pytest.raises(UsageError, match="closed"):
        doing.result()
    errors = pool.read_relevant(tags=[task["request_id"]], segments=["errors"])
    assert [error["tags"][1] for error in errors] == ["lost"]
    check(pool, task["request_id"])


def test_a_late_result_changes_nothing(
    pool: SharedMemoryPool,
    other: SharedMemoryPool,
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
) -> None:
    """A worker that was silent for too long has lost its task; what it brings in the end is refused."""
    (task,) = supervisor.delegate("Wait", ["ann"])
    gate = Gate()
    doing = begun(threads, WorkerAgent(None, pool, "ann", work=gate), task, gate)

    def as_if_gone(ledger: LeaderlessRun, moment: DecisionTime) -> Decision:
        return ledger.claim("t1", "bob", DecisionTime(moment.at, moment.node, lambda _: False))

    run_in_background(other.requests.decide(task["request_id"], as_if_gone)).result()
    gate.opened.set()
    late = doing.result()
    assert (late["status"], late["result"]) == ("refused", None)
    (refused,) = pool.read_relevant(segments=["conflicts"])
    assert refused["tags"][1] == "refused"
    (held,) = supervisor.get_tasks(task["request_id"])
    assert (held["status"], held["assigned_to"]) == ("running", "bob")
    check(pool, task["request_id"])


# Failures


def test_nothing_is_tried_again_before_the_supervisor_says_so(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    def fail(brief: ch.Brief) -> None:
        raise ConnectionError("no line")

    (task,) = supervisor.delegate("Try", ["ann"])
    ann = WorkerAgent(None, pool, "ann", work=fail)
    assert ann.execute_task(task)["error"] == "network: no line"
    assert ann.get_assigned_tasks() == []
    with pytest.raises(UsageError, match="reassign_task"):
        ann.execute_task(task)
    (failure,) = supervisor.check_failures(task["request_id"])
    assert failure["metadata"]["worker"] == "ann"
    assert (failure["segment"], failure["importance"]) == ("errors", 0.9)
    moved = supervisor.reassign_task(task, "ann")
    assert moved["status"] == "pending"
    assert len(ann.get_assigned_tasks()) == 1
    check(pool, task["request_id"])


def test_a_task_that_is_reassigned_goes_on_from_its_finished_steps(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    calls: list[str] = []

    def fetch(page: str) -> str:
        calls.append(page)
        return f"page {page}"

    def read(brief: ch.Brief) -> str:
        page = brief.wait(brief.step("fetch", fetch, "one", effect="idempotent"))
        if brief.worker == "ann":
            raise ConnectionError("no line")
        return f"{page} read by {brief.worker}"

    (task,) = supervisor.delegate("Read a page", ["ann"])
    WorkerAgent(None, pool, "ann", work=read).execute_task(task)
    supervisor.reassign_task(task, "bob")
    bob = WorkerAgent(None, pool, "bob", work=read)
    assert bob.execute_task(task)["result"] == "page one read by bob"
    assert calls == ["one"]
    check(pool, task["request_id"])


def test_what_was_reassigned_is_not_lost(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    def fail(brief: ch.Brief) -> None:
        raise ConnectionError("no line")

    (task,) = supervisor.delegate("Try", ["ann"])
    WorkerAgent(None, pool, "ann", work=fail).execute_task(task)
    supervisor.reassign_task(task, "bob")
    assert WorkerAgent(None, pool, "cid", work=echo).get_assigned_tasks(lost=True) == []


def test_a_task_with_a_policy_of_its_own_is_tried_again_when_it_is_due(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    def work(brief: ch.Brief) -> int:
        if brief.attempt == 1:
            raise ValueError("not yet")
        return brief.attempt

    policy = ch.OnFailure(("again", "ask"))
    task = ch.Task(id="a", description="Do a first", on_failure=policy)
    (form,) = supervisor.delegate("Try", ["ann"], tasks=[task])
    ann = WorkerAgent(None, pool, "ann", work=work)
    assert ann.execute_task(form)["status"] == "failed"
    assert ann.execute_next()["result"] == 2  # type: ignore[index]  # it is due at once
    check(pool, form["request_id"])


def test_a_task_that_nobody_has_begun_is_moved(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    (task,) = supervisor.delegate("Say hello", ["ann"])
    assert supervisor.reassign_task(task, "bob")["assigned_to"] == "bob"
    assert WorkerAgent(None, pool, "ann", work=echo).get_assigned_tasks() == []
    (insight,) = pool.read_relevant(tags=["task", "pending", "bob"], match="all")
    assert insight["importance"] == 0.9
    assert set(insight["tags"]) == {"task", "pending", task["request_id"], "bob", "reassigned"}
    WorkerAgent(None, pool, "bob", work=echo).execute_task(task)
    with pytest.raises(TaskTaken, match="was done by bob"):
        supervisor.reassign_task(task, "cid")
    check(pool, task["request_id"])


# Needs, questions, the end


def test_tasks_that_need_others_wait_for_them_and_get_their_results(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    tasks = [
        ch.Task(id="read", description="Read the text"),
        ch.Task(id="sum", description="Sum it up", needs=["read"]),
    ]
    first, second = supervisor.delegate("Sum up a text", ["ann"], tasks=tasks)
    assert second["status"] == "waiting"

    def work(brief: ch.Brief) -> str:
        return f"{brief.task.id}({brief.inputs.get('read', '')})"

    ann = WorkerAgent(None, pool, "ann", work=work)
    with pytest.raises(UsageError, match="the tasks it needs"):
        ann.execute_task(second)
    with pytest.raises(UsageError, match="the tasks it needs"):
        supervisor.reassign_task(second, "bob")
    ann.execute_task(first)
    (ready,) = ann.get_assigned_tasks()
    assert ann.execute_task(ready)["result"] == "sum(read())"
    assert supervisor.aggregate_results(first["request_id"])["final_result"] == "sum(read())"


def test_a_question_of_a_worker_is_answered_by_the_supervisor(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    async def paint(brief: ch.Brief) -> str:
        return await brief.ask("Which colour?", choices=["red", "blue"])

    (task,) = supervisor.delegate("Paint", ["ann"])
    ann = WorkerAgent(None, pool, "ann", work=paint)
    asked = ann.execute_task(task)
    assert (asked["status"], asked["question"]["text"]) == ("asking", "Which colour?")
    assert supervisor.check_failures(task["request_id"]) == []
    with pytest.raises(UsageError, match="'red', 'blue'"):
        supervisor.answer(asked["question"]["id"], "green")
    supervisor.answer(asked["question"]["id"], "blue")
    with pytest.raises(UnknownQuestion):
        supervisor.answer(asked["question"]["id"], "red")
    (ready,) = ann.get_assigned_tasks()
    assert ann.execute_task(ready)["result"] == "blue"


def test_a_closed_request_keeps_what_is_done_and_stops_the_rest(
    pool: SharedMemoryPool, supervisor: SupervisorAgent, threads: ThreadPoolExecutor
) -> None:
    first, second, third = supervisor.delegate("Do 3 things", ["ann", "bob", "cid"])
    WorkerAgent(None, pool, "ann", work=echo).execute_task(first)
    gate = Gate()
    doing = begun(threads, WorkerAgent(None, pool, "bob", work=gate), second, gate)
    supervisor.close(first["request_id"], "enough")
    assert doing.result()["status"] == "cancelled"
    gate.opened.set()
    answer = supervisor.aggregate_results(first["request_id"])
    assert answer["status"] == "partial"
    assert [gap["task_id"] for gap in answer["gaps"]] == ["t2", "t3"]
    with pytest.raises(UsageError, match="skipped"):
        WorkerAgent(None, pool, "cid", work=echo).execute_task(third)
    check(pool, first["request_id"])


def test_nobody_waits_for_a_straggler_longer_than_is_said() -> None:
    gate = Gate()

    def work(brief: ch.Brief) -> str:
        return gate(brief) if brief.task.id == "t2" else brief.task.id

    result = supervisor_worker_workflow(
        "Do 3 things", num_workers=3, num_tasks=3, work=work, timeout=2
    )
    gate.opened.set()
    assert {each["task_id"] for each in result["results"]} == {"t1", "t3"}
    assert [gap["task_id"] for gap in result["gaps"]] == ["t2"]
    assert set(result["final_result"]) == {"t1", "t3"}


def test_a_pool_that_is_closed_leaves_what_it_had_begun_to_others(
    pool: SharedMemoryPool, supervisor: SupervisorAgent, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    (task,) = supervisor.delegate("Wait", ["ann"])
    gate = Gate()
    doing = begun(threads, WorkerAgent(None, pool, "ann", work=gate), task, gate)
    pool.close()  # the journal stays open: it was not opened by this pool
    assert doing.result()["status"] == "cancelled"
    gate.opened.set()
    (ready,) = WorkerAgent(None, pool, "ann", work=echo).get_assigned_tasks()
    assert WorkerAgent(None, pool, "ann", work=echo).execute_task(ready)["status"] == "completed"
    check(pool, task["request_id"])


# From elsewhere


async def test_a_supervisor_neither_resumes_nor_steers_a_request_of_a_pool() -> None:
    pool = SharedMemoryPool()
    boss = ch.Supervisor([], journal=pool.journal)
    (task,) = await asyncio.to_thread(SupervisorAgent(None, pool).delegate, "Wait", ["ann"])
    with pytest.raises(UsageError, match=r"belongs to a pool.*get_assigned_tasks"):
        await boss.resume(task["request_id"])
    with pytest.raises(UsageError, match="cannot be steered"):
        await boss.steer(task["request_id"], "faster")


async def test_a_supervisor_looks_at_a_request_and_cancels_it() -> None:
    pool = SharedMemoryPool()
    boss = ch.Supervisor([], journal=pool.journal)
    supervisor = SupervisorAgent(None, pool)
    first, second = await asyncio.to_thread(supervisor.delegate, "Do 2 things", ["ann"], 2)
    ann = WorkerAgent(None, pool, "ann", work=echo)
    await asyncio.to_thread(ann.execute_task, first)
    looked = await boss.look(first["request_id"])
    assert looked.tasks["t1"].output == "t1"
    assert looked.trace.approach is ch.Approach.POOL
    await boss.cancel(first["request_id"])
    assert (await boss.look(first["request_id"])).status == "cancelled"
    with pytest.raises(UsageError, match="cancelled"):
        await asyncio.to_thread(ann.execute_task, second)


async def test_what_people_send_to_a_request_is_taken_by_whoever_comes() -> None:
    pool = SharedMemoryPool()
    boss = ch.Supervisor([], journal=pool.journal)
    supervisor = SupervisorAgent(None, pool)
    (task,) = await asyncio.to_thread(supervisor.delegate, "Wait", ["ann"])
    ann = WorkerAgent(None, pool, "ann", work=echo)
    await boss.pause(task["request_id"])
    assert await asyncio.to_thread(ann.get_assigned_tasks) == []
    with pytest.raises(UsageError, match="paused"):
        await asyncio.to_thread(ann.execute_task, task)
    await boss.unpause(task["request_id"])
    assert len(await asyncio.to_thread(ann.get_assigned_tasks)) == 1
    await boss.answer_now(task["request_id"])
    assert await asyncio.to_thread(ann.get_assigned_tasks, task["request_id"]) == []
    assert await pool.journal.mail.unread() == []


async def test_what_a_supervisor_does_is_read_while_it_does_it() -> None:
    """Through a pool and a coordinator on the same journal, live and afterwards."""
    is_seen = asyncio.Event()

    @ch.worker("ann", "Reads")
    async def read(brief: ch.Brief) -> str:
        brief.progress("half way", 0.5)
        await is_seen.wait()
        return "read"

    boss = ch.Supervisor([read])
    pool = SharedMemoryPool.of(boss)
    coordinator = CoordinatorAgent(None, pool)
    task = ch.Task(id="t1", description="Read the book", worker="ann")
    following = pool.follow(segments=["progress"], timeout=20)

    run = await boss.submit(ch.Plan(goal="Read", tasks=[task]))
    live = await asyncio.to_thread(lambda: [next(following) for _ in range(2)])
    assert [insight["tags"][1] for insight in live] == ["started", "working"]
    progress = await asyncio.to_thread(coordinator.monitor_progress)
    assert (progress["running_tasks"], progress["active_workers"]) == (1, ["ann"])
    is_seen.set()
    await run.wait()
    (last,) = await asyncio.to_thread(lambda: [next(following)])
    assert last["content"] == {"status": "succeeded", "missing": []}
    (result,) = await asyncio.to_thread(lambda: pool.read_relevant(segments=["results"]))
    assert (result["content"], result["metadata"]["request_id"]) == ("read", run.id)
    after = await asyncio.to_thread(coordinator.monitor_progress, run.id)
    assert (after["completed_tasks"], after["active_workers"]) == (1, [])


def test_a_run_that_a_supervisor_leads_is_none_of_the_pools(tmp_path: Path) -> None:
    @ch.worker("ann", "Says hello")
    async def hello(brief: ch.Brief) -> str:
        return "hello"

    boss = ch.Supervisor([hello])
    task = ch.Task(id="t1", description="Say hello to everybody", worker="ann")
    run = boss.run_sync(ch.Plan(goal="Be polite", tasks=[task]))
    pool = SharedMemoryPool.of(boss)
    with pytest.raises(UsageError, match="belongs to a supervisor"):
        SupervisorAgent(None, pool).get_tasks(run.id)
    with pytest.raises(UsageError, match="belongs to a supervisor"):
        WorkerAgent(None, pool, "ann", work=echo).execute_task(
            {"request_id": run.id, "task_id": "t1"}
        )
    assert WorkerAgent(None, pool, "ann", work=echo).get_assigned_tasks() == []


# What does the work


def test_a_worker_writes_on_the_board_and_says_how_far_it_is(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    async def note(brief: ch.Brief) -> int:
        brief.progress("half way", 0.5)
        await brief.board.post("found something", tags=["finding"])
        return len(await brief.board.notes(tags=["finding"]))

    (task,) = supervisor.delegate("Look", ["ann"])
    assert WorkerAgent(None, pool, "ann", work=note).execute_task(task)["result"] == 1
    texts = [insight["content"] for insight in pool.read_relevant(tags=["working"])]
    assert texts == [{"text": "half way", "fraction": 0.5}]


def test_a_result_may_be_large(pool: SharedMemoryPool, supervisor: SupervisorAgent) -> None:
    (task,) = supervisor.delegate("Write a lot", ["ann"])
    large = "x" * 200_000
    result = WorkerAgent(None, pool, "ann", work=lambda _: large).execute_task(task)
    assert result["result"] == large
    assert supervisor.aggregate_results(task["request_id"])["final_result"] == large
    (insight,) = pool.read_relevant(segments=["results"])
    assert insight["content"] == large


def test_any_worker_may_do_the_work_under_the_name_of_the_agent(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    @ch.worker("shouter", "Shouts", timeout=timedelta(seconds=20))
    async def shout(brief: ch.Brief) -> str:
        return f"{brief.worker}!"

    team = ch.Supervisor(
        [shout],
        name="team",
        plan_for=lambda brief: ch.Plan(
            goal="Shout",
            tasks=[ch.Task(id="s", description=brief.task.description, worker="shouter")],
        ),
    )
    first, second = supervisor.delegate("Shout in 2 ways", ["ann", "bob"])
    assert WorkerAgent(None, pool, "ann", work=shout).execute_task(first)["result"] == "ann!"
    assert WorkerAgent(None, pool, "bob", work=team).execute_task(second)["result"] == "shouter!"


def test_an_async_worker_that_waits_for_its_own_pool_is_told_not_to(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    async def ask(brief: ch.Brief) -> int:
        return len(pool.read_all())

    (task,) = supervisor.delegate("Look", ["ann"])
    result = WorkerAgent(None, pool, "ann", work=ask).execute_task(task)
    assert result["status"] == "failed"
    assert "make the worker a plain function" in result["error"]


def test_a_plain_worker_may_use_its_pool(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    def note(brief: ch.Brief) -> str:
        return pool.write_insight({"agent_id": brief.worker, "content": "found"})

    (task,) = supervisor.delegate("Look", ["ann"])
    assert WorkerAgent(None, pool, "ann", work=note).execute_task(task)["status"] == "completed"


# What is stored is what is known


def test_what_could_not_be_stored_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while a task is being claimed: it is still to be had when there is room again."""
    with SharedMemoryPool(tmp_path / "runs.db") as pool:
        (task,) = SupervisorAgent(None, pool).delegate("Say hello", ["ann"])
        ann = WorkerAgent(None, pool, "ann", work=echo)
        write = Transaction.write

        def refuse(transaction: Transaction) -> None:
            write(transaction)
            raise apsw.FullError("no room")

        monkeypatch.setattr(Transaction, "write", refuse)
        with pytest.raises(JournalFull):
            ann.execute_task(task)
        monkeypatch.setattr(Transaction, "write", write)
        assert len(ann.get_assigned_tasks()) == 1
        assert ann.execute_task(task)["attempt"] == 1


def test_a_request_that_is_not_there_is_refused(pool: SharedMemoryPool) -> None:
    nowhere = {"request_id": "request_0", "task_id": "t1"}
    with pytest.raises(UnknownRun, match="request_0"):
        WorkerAgent(None, pool, "ann", work=echo).execute_task(nowhere)
    with pytest.raises(UnknownRun, match="request_0"):
        SupervisorAgent(None, pool).check_failures("request_0")


def test_a_task_that_is_not_there_is_refused(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    (task,) = supervisor.delegate("Say hello", ["ann"])
    ann = WorkerAgent(None, pool, "ann", work=echo)
    with pytest.raises(UsageError, match="has no task 't9'"):
        ann.execute_task({**task, "task_id": "t9"})
    with pytest.raises(UsageError, match="is not a task of a pool"):
        ann.execute_task({"description": "something"})
    assert ann.execute_task(task)["status"] == "completed"


# Closing


def test_a_pool_of_its_own_writes_down_what_it_breaks_off(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    gate = Gate()
    with SharedMemoryPool(tmp_path / "runs.db") as pool:
        (task,) = SupervisorAgent(None, pool).delegate("Wait", ["ann"])
        ann = WorkerAgent(None, pool, "ann", work=gate)
        doing = begun(threads, ann, task, gate)
    assert doing.result()["status"] == "cancelled"
    gate.opened.set()
    with pytest.raises(UsageError, match="closed"):
        ann.execute_task(task)
    with SharedMemoryPool(tmp_path / "runs.db") as pool:
        (left,) = SupervisorAgent(None, pool).get_tasks(task["request_id"])
        assert (left["status"], left["attempts"]) == ("pending", 1)
        check(pool, task["request_id"])


def test_a_worker_that_waits_for_its_provider_goes_on_when_it_may_be_called(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    calls: list[int] = []

    async def work(brief: ch.Brief) -> str:
        calls.append(brief.attempt)
        if len(calls) == 1:
            raise Parked(timedelta(milliseconds=20), "the provider rests")
        return "called"

    (task,) = supervisor.delegate("Call", ["ann"])
    result = WorkerAgent(None, pool, "ann", work=work).execute_task(task)
    assert (result["result"], calls) == ("called", [1, 2])
    (told,) = supervisor.get_tasks(task["request_id"])
    assert told["attempts"] == 1
    check(pool, task["request_id"])


def test_a_worker_that_waits_for_its_provider_does_not_outlive_its_pool(
    pool: SharedMemoryPool, supervisor: SupervisorAgent, threads: ThreadPoolExecutor
) -> None:
    has_begun = threading.Event()

    async def work(brief: ch.Brief) -> str:
        has_begun.set()
        raise Parked(timedelta(hours=1), "the provider rests")

    (task,) = supervisor.delegate("Call", ["ann"])
    doing = threads.submit(WorkerAgent(None, pool, "ann", work=work).execute_task, task)
    assert has_begun.wait(20)
    pool.close()
    assert doing.result()["status"] == "cancelled"


def test_what_breaks_in_a_thread_of_the_workflow_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(worker: WorkerAgent, request_id: str) -> None:
        raise JournalFull(f"no room for {worker.agent_id}")

    monkeypatch.setattr(WorkerAgent, "execute_next", refuse)
    with pytest.raises(JournalFull, match="no room for worker_"):
        supervisor_worker_workflow("Do 2 things", num_tasks=2, work=echo)


# Serving


def test_a_worker_that_serves_does_what_is_to_come_until_the_request_has_ended(
    pool: SharedMemoryPool,
    other: SharedMemoryPool,
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
) -> None:
    first, second = supervisor.delegate(
        "Do 2 things",
        ["ann"],
        tasks=[
            ch.Task(id="a", description="Do a", worker="ann"),
            ch.Task(id="b", description="Do b", worker="bob", needs=["a"]),
        ],
    )
    heard: list[dict[str, Any]] = []
    bob = WorkerAgent(None, other, "bob", work=echo)
    serving = threads.submit(bob.serve, first["request_id"], on_result=heard.append)
    assert WorkerAgent(None, pool, "ann", work=echo).serve(first["request_id"], idle=0.0) == 1
    assert serving.result(20) == 1
    assert [result["task_id"] for result in heard] == [second["task_id"]]


def test_a_worker_that_serves_all_requests_ends_when_its_pool_is_closed(
    pool: SharedMemoryPool, supervisor: SupervisorAgent, threads: ThreadPoolExecutor
) -> None:
    heard = threading.Event()
    ann = WorkerAgent(None, pool, "ann", work=echo)
    serving = threads.submit(ann.serve, on_result=lambda _: heard.set())
    supervisor.delegate("Say hello", ["ann"])
    assert heard.wait(20)
    pool.close()
    assert serving.result(20) == 1


def test_a_worker_that_serves_takes_over_what_a_dead_one_had(
    pool: SharedMemoryPool,
    journals: Callable[[], Any],
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
) -> None:
    (task,) = supervisor.delegate("Wait", ["ann"])
    gate, journal = Gate(), journals()
    dying = SharedMemoryPool(journal)
    doing = begun(threads, WorkerAgent(None, dying, "ann", work=gate), task, gate)
    heir = WorkerAgent(None, pool, "ann", work=echo)
    serving = threads.submit(heir.serve, task["request_id"])
    run_in_background(journal.close()).result()
    assert serving.result(20) == 1
    gate.opened.set()
    assert isinstance(doing.exception(), UsageError)


# What nobody can have meant


def test_an_error_that_quotes_a_broken_name_is_kept_and_the_task_goes_on(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    """Names of files may hold what is no Unicode, and so may errors and progress that quote them."""

    def fails(brief: ch.Brief) -> None:
        brief.progress("reading \udcff")
        raise ValueError("no such file: \udcff")

    (task,) = supervisor.delegate("Read it", ["ann"])
    failed = WorkerAgent(None, pool, "ann", work=fails).execute_task(task)
    assert (failed["status"], failed["error"]) == ("failed", "logic: no such file: \\udcff")
    supervisor.reassign_task(task, "bob")
    assert WorkerAgent(None, pool, "bob", work=echo).execute_task(task)["status"] == "completed"
    said = [each["content"] for each in pool.read_relevant(segments=["progress"])]
    assert {"text": "reading \\udcff", "fraction": None} in said


def test_what_cannot_be_stored_is_refused_before_it_is_in_the_way_of_all_others(
    pool: SharedMemoryPool, supervisor: SupervisorAgent
) -> None:
    (task,) = supervisor.delegate("Say hello", ["ann"])
    before = len(pool.read_all())
    attempts: list[Callable[[], object]] = [
        lambda: supervisor.delegate("Say \ud800", ["ann"]),
        lambda: supervisor.delegate("Say it", ["ann"], tasks=["Say \ud800"]),
        lambda: supervisor.delegate("Say it", ["ann"], priority="high"),  # type: ignore[arg-type]
        lambda: supervisor.delegate("Say it", ["ann"], tasks=[1]),  # type: ignore[list-item]
        lambda: supervisor.delegate("Say it", [("ann", float("inf"))]),
        lambda: supervisor.delegate("Say it", ["ann"], balance="by luck"),
        lambda: supervisor.reassign_task(task, "\ud800"),
        lambda: supervisor.reassign_task(task, None),  # type: ignore[arg-type]
        lambda: supervisor.close(task["request_id"], "\ud800"),
        lambda: pool.write_insight({"content": "x", "metadata": [1]}),
        lambda: pool.read_relevant(match="some"),
        lambda: pool.read_relevant(order="oldest"),
        lambda: pool.read_relevant(tags="result"),
    ]
    for attempt in attempts:
        with pytest.raises(UsageError):
            attempt()
    assert len(pool.read_all()) == before
    assert WorkerAgent(None, pool, "ann", work=echo).execute_next() is not None


def test_whoever_leads_a_request_for_a_moment_is_waited_for(
    pool: SharedMemoryPool,
    other: SharedMemoryPool,
    supervisor: SupervisorAgent,
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A supervisor that cancels a request leads it meanwhile; that must not end those who serve."""
    supervisor.delegate("Say hello", ["ann"])
    (task,) = supervisor.get_tasks(supervisor.delegate("Say more", ["ann"])[0]["request_id"])
    request, leases = task["request_id"], other.journal.leases
    epoch = run_in_background(leases.lead(request)).result()
    is_refused, decide = threading.Event(), pool.journal.decide

    async def told(*args: Any, **more: Any) -> Any:
        try:
            return await decide(*args, **more)
        except NotLeading:
            is_refused.set()
            raise

    monkeypatch.setattr(pool.journal, "decide", told)
    ann = WorkerAgent(None, pool, "ann", work=echo)
    serving = threads.submit(ann.serve, request)
    assert is_refused.wait(20)
    run_in_background(leases.release(request, epoch)).result()
    assert serving.result(20) == 1


async def test_what_was_held_back_is_written_once_however_often_the_journal_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """First there is no room, then the file is locked before anything is decided."""
    monkeypatch.setattr("chargehand.patterns.pool.worker_agent.RETRY_WRITE", timedelta(0))
    written: list[str] = []
    tries = iter([JournalFull("no room"), JournalBusy("locked"), None])

    class Refusing:
        async def decide(self, _: str, act: Callable[[Any, Any], Decision]) -> None:
            refusal = next(tries)
            events = [] if isinstance(refusal, JournalBusy) else act(self, self).events
            if refusal is not None:
                raise refusal
            written.extend(str(event) for event in events)

        node, clock, spill = "n", None, None

        def write(self, event: Any, _: str) -> list[Any]:
            return [event]

    requests: Any = Refusing()
    attempt = PoolAttempt(requests, requests, requests)
    attempt.take(SimpleNamespace(run="r"))  # type: ignore[arg-type]
    attempt._held.append("half way")  # type: ignore[arg-type]
    await attempt.say("the end")  # type: ignore[arg-type]
    assert written == ["half way", "the end"]


@pytest.mark.parametrize("place", ["memory", "file"])
def test_whoever_follows_a_pool_stops_when_it_is_closed(
    place: str, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    pool = SharedMemoryPool(tmp_path / "runs.db" if place == "file" else None)
    pool.write_insight({"content": "first"})
    heard = threading.Event()

    def follow() -> list[str]:
        found: list[str] = []
        for insight in pool.follow():
            found.append(insight["content"])
            heard.set()
        return found

    following = threads.submit(follow)
    assert heard.wait(20)
    pool.close()
    assert following.result(20) == ["first"]
