"""Rows C4 and C7 of the faults: what kills its workers is set aside, and nobody else suffers by it."""

import chargehand as ch
from chargehand.facts.events import AttemptLost
from tests.integration.poison_at_work import work

LOSSES = 3


async def test_c4_c7_a_task_that_kills_its_workers_is_set_aside_and_its_neighbours_are_not() -> (
    None
):
    worker = ch.FunctionWorker(
        work, "hand", "Works in a process of its own", process=True, capacity=2
    )
    words = ["Do the first thing", "Take the poison", "Do the second thing", "Do the third thing"]
    tasks = [
        ch.Task(id=f"t{number}", description=each, worker="hand")
        for number, each in enumerate(words)
    ]
    lost: list[str] = []
    # Its breaker would have the neighbours wait; that they do is tested elsewhere.
    without = ch.BreakerPolicy(failures=0)
    boss = ch.Supervisor([worker], limits=ch.Limits(losses=LOSSES), breaker=without)
    async with boss:
        boss.on(AttemptLost)(lambda _, event: lost.append(event.task))
        result = await boss.run(ch.Plan(goal="Do it all", tasks=tasks))
    assert result.status == "partial"
    assert lost == ["t1"] * (LOSSES + 1)
    (gap,) = result.answer.gaps
    assert gap.task == "t1"
    assert "its worker was lost 4 times" in gap.why
    neighbours = [task for id_, task in result.tasks.items() if id_ != "t1"]
    assert {(task.state.value, task.attempts) for task in neighbours} == {("done", 1)}
