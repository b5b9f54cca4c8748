"""What is done beside a conversation: every so many turns, by a worker of its own, in a run of its own."""

from collections.abc import Callable
from datetime import timedelta

from msgspec import to_builtins

from chargehand.decisions.conversation import SpokenTurn
from chargehand.errors import RunInterrupted
from chargehand.facts.plan import Need, Plan, Task
from chargehand.patterns.groups.messages import MINUTES, USER
from chargehand.result import RunResult
from chargehand.roles.board import Board
from chargehand.roles.roster import Member
from chargehand.supervisor import Run, Supervisor

WORDS = "Go through what was said, and keep in order what the group shares"
#: the name under which the worker is handed the minutes
SAID = "what was said"


class BackgroundAgent:
    """Has a worker go through conversations while they go on; neither ever waits for the other."""

    def __init__(
        self, worker: Member, clerk: Member, boss_for: Callable[[Board], Supervisor]
    ) -> None:
        self._worker = worker.name
        self._clerk = clerk.name
        #: a supervisor over both of them, on the journal of this board
        self._boss_for = boss_for
        self._runs: list[tuple[Supervisor, Run]] = []

    async def begin(self, board: Board, run: str, turns: int) -> None:
        """Have it go through this run after so many turns; said again, it is the same run beside."""
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
        # A supervisor for each: it ends with its run, whatever becomes of the event loop.
        boss = self._boss_for(board)
        plan = Plan(goal=f"Beside {run}", tasks=tasks)
        self._runs.append((boss, await boss.submit(plan, key=f"{run}:beside:{turns}")))

    async def quiet(self) -> list[RunResult]:
        """What came of all that was begun, once it has ended; what was interrupted is left out."""
        ended: list[RunResult] = []
        while self._runs:
            _, run = self._runs.pop(0)
            try:
                ended.append(await run.wait())
            except RunInterrupted:
                continue
        return ended

    async def stop(self) -> None:
        """Leave all that is under way to be resumed."""
        while self._runs:
            boss, _ = self._runs.pop(0)
            await boss.stop(timedelta(0))
