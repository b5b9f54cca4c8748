"""The parts of a supervisor, each alone: its workers, its runtime, its control of runs, the host of an attempt."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import chargehand as ch
from chargehand.clock import SystemClock
from chargehand.decisions.dispatch import Balance
from chargehand.engines.base import Job, Reports
from chargehand.engines.brief import NO_HOST, Brief
from chargehand.engines.local_engine import LocalEngine
from chargehand.facts.on_question import OnQuestion
from chargehand.journal.memory import MemoryJournal
from chargehand.past_runs import JournalHandle
from chargehand.roles.roster import Roster
from chargehand.supervisor.requests import asking_for
from chargehand.supervisor.run_control import RunControl
from chargehand.supervisor.run_start import RunStart
from chargehand.supervisor.shared_runtime import Runtimes
from chargehand.supervisor.worker_membership import PoolOptions, WorkerPool
from tests.guide.conftest import make_plan, make_task


@ch.worker("ann", "Does what is asked")
async def ann(brief: Brief) -> str:
    return brief.task.description


PLAN = make_plan(make_task("a", "ann"))


def test_workers_join_and_drain_without_a_runtime() -> None:
    pool = WorkerPool(Roster([ann]), PoolOptions(parallel=2, balance=Balance.LEAST_BUSY))
    pool.drain("ann")
    pool.join(ann)  # takes it back
    with pytest.raises(ch.UsageError, match="'bob' is not on the roster"):
        pool.drain("bob")
    with pytest.raises(ch.UsageError):
        WorkerPool(Roster([ann]), PoolOptions(parallel=0))


async def test_runs_are_controlled_with_a_journal_a_clock_and_no_supervisor() -> None:
    journal = MemoryJournal()
    boss = ch.Supervisor([ann], journal=journal)
    done = await boss.run(PLAN)
    idle = Runtimes(boss._config)
    control = RunControl(JournalHandle(journal), idle, SystemClock())
    seen = await control.look(done.id)
    assert (seen.status, seen.output) == (done.status, done.output)
    await control.cancel(done.id)  # it has ended: nothing changes
    with pytest.raises(ch.UsageError, match="has ended"):
        await control.change_budget(done.id, calls=1)
    assert idle.current is None


class Counting:
    """An engine that counts what it is handed."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._local = LocalEngine()
        self.stop: Callable[..., None] = self._local.stop
        self.preempt: Callable[..., None] = self._local.preempt

    def start(self, job: Job, to: Reports) -> None:
        self.started.append(job.brief.task.id)
        self._local.start(job, to)

    async def close(self) -> None:
        await self._local.close()


async def test_the_engine_is_handed_in() -> None:
    engine = Counting()
    config = replace(ch.Supervisor([ann])._config, engine=lambda: engine)
    start = RunStart(config)
    runtimes = start.runtimes
    async with runtimes.at_work() as runtime:
        run, _ = await start.begin(runtime, PLAN, {})
        result = await run.wait()
    assert result.status is ch.RunStatus.SUCCEEDED
    assert engine.started == ["a"]
    assert runtimes.current is None


async def test_steps_of_a_brief_without_a_run_are_done_and_written_nowhere() -> None:
    brief = Brief("r", PLAN.tasks[0], 1, "ann", {}, None)
    assert await brief.step("add", lambda: 1 + 1, effect="pure") == 2
    brief.progress("half way", 0.5)
    assert brief.host is NO_HOST
    assert (brief.host.nesting, brief.host.planning) == (None, None)


@pytest.mark.parametrize(
    ("mode", "given", "expected"),
    [
        (None, (True, True, False), ("wait", True, "wait")),
        (None, (True, False, True), ("wait", True, "return")),
        (None, (True, False, False), ("return", False, "return")),
        (None, (False, False, False), ("fail", False, "fail")),
        (OnQuestion.WAIT, (False, False, False), ("wait", True, "wait")),
        (OnQuestion.RETURN, (True, True, False), ("return", True, "return")),
        (OnQuestion.FAIL, (True, False, False), ("fail", False, "return")),
        (OnQuestion.SUPERVISOR, (False, False, False), ("fail", False, "fail")),
    ],
)
def test_what_becomes_of_questions_goes_by_the_caller_and_by_who_is_there(
    mode: OnQuestion | None, given: tuple[bool, bool, bool], expected: tuple[Any, ...]
) -> None:
    is_kept, is_there, is_watched = given
    asking = asking_for(mode, is_kept=is_kept, is_there=is_there, is_watched=is_watched)
    assert (asking.mode, asking.can_ask, asking.on_outage) == expected
    assert asking.by_model is (mode is OnQuestion.SUPERVISOR)
