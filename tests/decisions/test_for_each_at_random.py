"""Tasks with `for_each` under random faults: whatever happens, no item is lost or done twice, and every run ends."""

import random
from datetime import timedelta

import pytest

from chargehand.decisions.dispatch import Place
from chargehand.decisions.live_run import LiveRun
from chargehand.facts.events import AttemptFinished, AttemptStarted, ItemsListed, WorkStopped
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Need, Task, item_of
from chargehand.facts.value import Value
from tests.chaos.share import SCALE
from tests.decisions.virtual_kernel import RUN, VirtualKernel, kernel_of

STEPS = 80
POLICIES = [None, None, OnFailure(("again", "without")), OnFailure(("fail_run",))]


class Trial:
    """One run with mapped tasks, and somebody who breaks things."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        mapped = {
            id_: {
                "for_each": "a" if id_ == "m" else ["x"],
                "at_least": self.dice.choice([None, None, 0, 2]),
                "deadline": self.dice.choice([None, None, timedelta(seconds=40)]),
                "priority": self.dice.randint(0, 2),
                "optional": self.dice.random() < 0.2,
                "on_failure": self.dice.choice(POLICIES),
            }
            for id_ in ("m", "n")
        }
        self.kernel: VirtualKernel = kernel_of(
            "a -> m -> b, n ~> b, n -> c",
            tasks=mapped,
            places=[Place(worker="ann")],
            pool=self.dice.randint(1, 5),
            attempts=self.dice.randint(1, 3),
            parallel=self.dice.randint(1, 6),
            items=self.dice.choice([7, 40]),
        )
        self.added = 0

    def is_over(self) -> bool:
        return RUN not in self.kernel.kernel.runs

    def open(self) -> list[str]:
        nodes = self.kernel.schedule.nodes.values()
        return [node.task.id for node in nodes if node.is_open]

    def step(self) -> None:
        opened = self.open()
        what = self.dice.random()
        if not opened or what < 0.1:
            self.kernel.wait(self.dice.choice([1, 10, 100]))
        elif what < 0.72:
            self.do(self.dice.choice(opened))
        elif what < 0.82:
            self.kernel.fail(self.dice.choice(opened), self.dice.choice(["logic", "network"]))
        elif what < 0.88:
            self.kernel.lose(self.dice.choice(opened))
        elif what < 0.91:
            self.kernel.park(self.dice.choice(opened), 5)
        elif what < 0.94:
            self.kernel.crash()
        elif what < 0.97:
            self.amend()
        elif what < 0.98:
            self.kernel.tell(WorkStopped(reason="over budget", at=self.kernel.now))
        elif what < 0.985:
            self.kernel.cancel()

    def do(self, task: str) -> None:
        if not task.startswith("@items:"):
            self.kernel.finish(task, task)
            return
        mapped, first = task.removeprefix("@items:"), 0
        for _ in range(self.dice.randint(1, 3)):
            items = tuple(Value.of(f"{mapped} {n}") for n in range(self.dice.randint(0, 4)))
            written = self.kernel.tell(
                ItemsListed(task=mapped, first=first, items=items, at=self.kernel.now)
            )
            if not written or self.dice.random() < 0.1:
                break  # refused, or the lister dies here
            first += len(items)
        if not self.is_over() and task in self.open():
            self.kernel.finish(task, {"items": first})

    def amend(self) -> None:
        if self.dice.random() < 0.5:
            self.kernel.amend(removed=[self.dice.choice(["m", "n", "b", "c", "m[0]"])])
            return
        self.added += 1
        need = Need(self.dice.choice(["m", "n", "m[0]", "@items:m"]), optional=True)
        task = Task(
            id=f"z{self.added}",
            description=f"Go on with {self.added}",
            worker="ann",
            needs=[need],
            priority=5,
        )
        self.kernel.amend([task])

    def finish(self) -> None:
        """All is well from here on: everything ends."""
        for _ in range(2_000):
            if self.is_over():
                return
            opened = self.open()
            if opened:
                self.do(opened[0])
            else:
                self.kernel.wait(300)
        raise AssertionError(f"it does not end: {self.kernel.states()}")

    def check(self) -> None:
        kernel = self.kernel
        replayed = LiveRun()
        replayed.replay(kernel.journal)
        replayed.schedule.check()
        assert replayed.schedule.status is not None
        done: set[str] = set()
        for event in kernel.journal:
            if isinstance(event, AttemptStarted):
                assert event.task not in done, f"{event.task} is begun again"
            if isinstance(event, AttemptFinished) and isinstance(event.outcome, Done):
                assert event.task not in done, f"{event.task} is done twice"
                done.add(event.task)
        for task, count in replayed.schedule.mapped.items():
            node = replayed.schedule.nodes[task]
            items = [
                each for each in replayed.schedule.nodes if (item_of(each) or ("",))[0] == task
            ]
            assert len(items) == count <= replayed.schedule.limits.items
            if node.state == "done":  # by its own attempt, behind all items
                assert all(replayed.schedule.nodes[each].state.is_settled for each in items)


@pytest.mark.parametrize("block", range(8))
def test_no_item_is_lost_or_done_twice_whatever_breaks(block: int) -> None:
    count = int(50 * SCALE)
    for seed in range(block * count, (block + 1) * count):
        trial = Trial(seed)
        try:
            for _ in range(STEPS):
                if trial.is_over():
                    break
                trial.step()
            trial.finish()
            trial.check()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
