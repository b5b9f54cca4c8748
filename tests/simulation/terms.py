"""Random terms of work: what is done about failures, between which bounds places follow the work."""

from collections.abc import Sequence
from datetime import timedelta
from random import Random

from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.quorum import quorum
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.outcome import ErrorClass
from chargehand.facts.plan import Task
from tests.simulation.faults import Dice, FaultKind


def draw_policies(dice: Dice, workers: Sequence[str]) -> dict[str, OnFailure]:
    """For some of the workers, and perhaps for all who have none."""
    return {
        worker: draw_policy(dice.random, workers)
        for worker in ("", *workers)
        if dice.hits(FaultKind.POLICY)
    }


def draw_policy(chance: Random, workers: Sequence[str]) -> OnFailure:
    kinds = {}
    if chance.random() < 0.4:
        kinds = {chance.choice(list(ErrorClass)).value: _draw_steps(chance, workers)}
    patience = timedelta(seconds=chance.randint(1, 60)) if chance.random() < 0.5 else None
    return OnFailure(_draw_steps(chance, workers), kinds, patience)


def _draw_steps(chance: Random, workers: Sequence[str]) -> tuple[str, ...]:
    tries = ("again", "again", "elsewhere", f"elsewhere:{chance.choice(workers)}", "rewritten")
    steps = [chance.choice((*tries, "ask")) for _ in range(chance.randint(0, 2))]
    return (*steps, chance.choice((*tries[:1], "ask", "ask", "without", "fail", "fail_run")))


def draw_bounds(dice: Dice) -> Elastic | None:
    """Between which a number of places follows the work, if it does."""
    if not dice.hits(FaultKind.ELASTIC):
        return None
    chance = dice.random
    least = chance.choice((1, 1, 2))
    return Elastic(
        least=least,
        most=least + chance.randint(0, 5),
        wait=timedelta(seconds=chance.choice((0, 0, 0.2, 2))),
        period=timedelta(seconds=chance.choice((1, 3, 20))),
    )


def asked_of_several(dice: Dice, task: Task, workers: Sequence[str]) -> list[Task]:
    """The task itself, or those that stand for it where enough are to agree."""
    if task.for_each is not None or task.expect is not None or not dice.hits(FaultKind.QUORUM):
        return [task]
    of = dice.random.randint(1, 4)
    return quorum(
        task, dice.random.randint(1, of), of, workers=workers[: dice.random.randint(0, 2)]
    )
