"""The background worker of a group: reviews the conversation every few turns, in a separate run."""

import logging
from collections.abc import Callable
from datetime import timedelta

from msgspec import to_builtins

from chargehand.decisions.group_conversation import SpokenTurn
from chargehand.errors import RunInterrupted
from chargehand.facts.events import TaskFailed
from chargehand.facts.plan import Need, Plan, Task
from chargehand.patterns.groups.messages import MINUTES, USER
from chargehand.result import RunResult
from chargehand.roles.board import Board
from chargehand.roles.roster import Member
from chargehand.supervisor import Run, Supervisor

WORDS = "Go through what was said, and keep in order what the group shares"
#: the name of the worker's input that contains the minutes
SAID = "what was said"
#: characters of an error in the log
LONGEST = 300

log = logging.getLogger("chargehand.groups")


class BackgroundAgent:
    """Starts background runs over a conversation; the conversation does not wait for them."""

    def __init__(
        self, worker: Member, clerk: Member, boss_for: Callable[[Board], Supervisor]
    ) -> None:
        self._worker = worker.name
        self._clerk = clerk.name
        #: creates a supervisor of both workers, on the journal of a board
        self._boss_for = boss_for
        self._runs: list[tuple[Supervisor, Run]] = []

    async def begin(self, board: Board, run: str, turns: int) -> None:
        """Start a background run for this conversation after `turns` turns; calling it again starts no second run."""
        turn = SpokenTurn(turn=1, round=1, sender=USER, reply_to=USER)
        tasks = [
            Task(
                id=MINUTES,
                description="Read what was said",
                worker=self._clerk,
                args={"runs": [run]},
            ),
            Task(
                id="t1",
                description=WORDS,
                worker=self._worker,
                needs=[Need(MINUTES, name=SAID)],
                args=to_builtins(turn),
            ),
        ]
        # A supervisor per run, which ends with the run.
        boss = self._boss_for(board)
        boss.on(TaskFailed)(self._tell_failed)
        plan = Plan(goal=f"Beside {run}", tasks=tasks)
        self._runs.append((boss, await boss.submit(plan, key=f"{run}:beside:{turns}")))

    def _tell_failed(self, run: str, failed: TaskFailed) -> None:
        """Log it: the conversation goes on, and nobody need ask for the result of a background run."""
        log.warning(
            "background_task_failed run=%s task=%s worker=%s error=%r",
            run,
            failed.task,
            self._worker,
            failed.cause.message[:LONGEST],
        )

    async def quiet(self) -> list[RunResult]:
        """Wait for all background runs; returns their results, without those of interrupted runs."""
        ended: list[RunResult] = []
        while self._runs:
            _, run = self._runs.pop(0)
            try:
                ended.append(await run.wait())
            except RunInterrupted:
                continue
        return ended

    async def stop(self) -> None:
        """Stop all background runs, so that they can be resumed later."""
        while self._runs:
            boss, _ = self._runs.pop(0)
            await boss.stop(timedelta(0))
