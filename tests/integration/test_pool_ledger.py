"""Ledgers of several processes over one stream, in every order that chance makes up.

Nothing is run here: nodes claim, report, die, reassign, pause and close, each through a ledger of its own
that is as far behind as it happens to be. What the stream holds in the end must be what one run can hold.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest

import chargehand as ch
from chargehand.decisions.task_graph import TaskState
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptPreempted,
    AttemptStarted,
    Event,
    PlanAdopted,
    ResultRefused,
    RunFinished,
    RunPaused,
    RunRequested,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.outcome import Done, ErrorClass, Failed
from chargehand.facts.value import Value
from chargehand.journal.base import Entry
from chargehand.patterns.pool.leaderless_run import Decision, DecisionTime, LeaderlessRun

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODES = ("n1", "n2", "n3")


class Stream:
    """The entries of one request, and the end of it as a decision sees it."""

    def __init__(self, *events: Event) -> None:
        self.entries: list[Entry] = []
        self.alive = set(NODES)
        self.add("n1", events)

    def add(self, node: str, events: Any) -> None:
        for event in events:
            self.entries.append(Entry("r", len(self.entries) + 1, 0, node, event, b""))

    @property
    def seq(self) -> int:
        return len(self.entries)

    def read(self, after: int) -> list[Entry]:
        return self.entries[after:]

    def is_alive(self, node: str) -> bool:
        return node in self.alive

    def take(self, mail: int) -> None:
        raise AssertionError(f"there is no mail {mail} here")


class World:
    """Three processes and their ledgers, moved by chance."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.now = NOON
        tasks = [
            ch.Task(
                id=f"t{n}",
                description=f"Do thing {n}",
                worker=self.draw.choice(["ann", "bob"]),
                needs=[f"t{m}" for m in range(n) if self.draw.random() < 0.2],
            )
            for n in range(6)
        ]
        requested = RunRequested(
            at=NOON,
            run="r",
            request="Do 6 things",
            limits=ch.Limits(active=timedelta(days=1), losses=100),
            seed=seed,
            rules=1,
            crew="",
            approach=Approach.POOL,
            policies={"": ch.OnFailure(("ask",))},
        )
        plan = ch.Plan(goal="Do 6 things", tasks=tasks)
        self.stream = Stream(requested, PlanAdopted(at=NOON, plan=plan))
        self.ledgers = {node: LeaderlessRun("r") for node in NODES}
        #: attempts that somebody is really at work on, the dead and the late included
        self.held: dict[tuple[str, int], str] = {}

    def decide(self, node: str, act: Any) -> Decision:
        """What a journal does: let the ledger catch up, have it decide, append."""
        self.now += timedelta(seconds=self.draw.random())
        ledger = self.ledgers[node]
        assert ledger.catch_up(self.stream)
        before = self.stream.seq
        move: Decision = act(ledger, DecisionTime(self.now, node, self.stream.is_alive))
        self.stream.add(node, move.events)
        assert ledger.seq == self.stream.seq == before + len(move.events)
        ledger.schedule.check()
        return move

    def claim(self, node: str, task: str) -> None:
        worker = self.draw.choice(["ann", "bob", "cid"])
        move = self.decide(node, lambda ledger, moment: ledger.claim(task, worker, moment))
        for event in move.events:
            if isinstance(event, AttemptStarted):
                self.held[event.task, event.attempt] = node

    def claim_next(self, node: str) -> None:
        self.decide(node, LeaderlessRun.reap)
        ledger = self.ledgers[node]
        task = ledger.next_for(["ann", "bob", "cid"])
        if task is not None:
            self.claim(node, task)

    def report(self, node: str) -> None:
        mine = [attempt for attempt, holder in self.held.items() if holder == node]
        if not mine:
            return
        task, number = self.draw.choice(mine)
        del self.held[task, number]
        outcome = Done(Value.of(f"{task} by {node}"))
        if self.draw.random() < 0.2:
            kind = self.draw.choice([ErrorClass.LOGIC, ErrorClass.NETWORK])
            outcome = Failed(kind=kind, message="no luck")  # type: ignore[assignment]  # or it fails
        said = AttemptFinished(task=task, attempt=number, outcome=outcome, at=self.now)
        self.decide(node, lambda ledger, moment: Decision(ledger.write(said, moment.node)))

    def reassign(self, node: str, task: str) -> None:
        worker = self.draw.choice(["ann", "bob", "cid"])
        self.decide(node, lambda ledger, moment: ledger.reassign(task, worker, moment))

    def toggle(self, node: str) -> None:
        is_paused = self.ledgers[node].schedule.is_paused
        said = RunUnpaused(at=self.now) if is_paused else RunPaused(at=self.now)
        self.decide(node, lambda ledger, moment: Decision(ledger.write(said, moment.node)))

    def live_and_die(self) -> None:
        """A process falls silent for so long that it is given up; or one that was is heard of again."""
        node = self.draw.choice(NODES)
        if node in self.stream.alive and len(self.stream.alive) > 1:
            self.stream.alive.discard(node)
        else:
            self.stream.alive.add(node)

    def step(self) -> None:
        node, task = self.draw.choice(NODES), f"t{self.draw.randrange(6)}"
        chance = self.draw.random()
        if chance < 0.25:
            self.claim(node, task)
        elif chance < 0.45:
            self.claim_next(node)
        elif chance < 0.75:
            self.report(node)
        elif chance < 0.88:
            self.reassign(node, task)
        elif chance < 0.93:
            self.live_and_die()
        elif chance < 0.97:
            self.toggle(node)
        else:
            self.decide(node, LeaderlessRun.reap)

    def end(self) -> None:
        """Have all that is left done, or stopped if it cannot be."""
        self.stream.alive = set(NODES)
        self.held.clear()
        for _ in range(200):
            ledger = self.ledgers["n1"]
            self.decide("n1", LeaderlessRun.reap)
            if ledger.is_ended:
                return
            if ledger.schedule.is_paused:
                self.toggle("n1")
            for task, holder in list(ledger.holders.items()):
                said = AttemptFinished(
                    task=task, attempt=holder.attempt, outcome=Done(), at=self.now
                )
                self.decide(
                    "n1", lambda ledger, moment, said=said: Decision(ledger.write(said, "n1"))
                )
            for task, node in list(ledger.schedule.nodes.items()):
                if node.state is TaskState.ASKING:
                    self.reassign("n1", task)
            self.claim_next("n1")
        stopped = WorkStopped(reason="enough", at=self.now)
        self.decide("n1", lambda ledger, moment: Decision(ledger.write(stopped, "n1")))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_processes_do_a_request_stays_one_run(seed: int) -> None:
    world = World(seed)
    for _ in range(80):
        world.step()
    world.end()
    events = [entry.event for entry in world.stream.entries]
    assert [type(event) for event in events].count(RunFinished) == 1
    assert type(events[-1]) is RunFinished
    done = Counter(
        event.task
        for event in events
        if isinstance(event, AttemptFinished) and isinstance(event.outcome, Done)
    )
    assert set(done.values()) == {1}
    assert all(a.at <= b.at for a, b in pairwise(events))


@pytest.mark.parametrize("seed", range(20))
def test_no_task_has_two_attempts_at_once(seed: int) -> None:
    world = World(seed)
    for _ in range(150):
        world.step()
    open_: set[str] = set()
    for entry in world.stream.entries:
        match entry.event:
            case AttemptStarted(task=task):
                assert task not in open_
                open_.add(task)
            case AttemptFinished(task=task) | AttemptLost(task=task) | AttemptPreempted(task=task):
                open_.discard(task)


def test_chance_makes_up_what_is_to_be_tested() -> None:
    """Otherwise the two above would hold for nothing."""
    kinds: Counter[type[Event]] = Counter()
    for seed in range(20):
        world = World(seed)
        for _ in range(80):
            world.step()
        kinds.update(type(entry.event) for entry in world.stream.entries)
    assert min(kinds[kind] for kind in (AttemptLost, ResultRefused, RunPaused, RunFinished)) >= 5


@pytest.mark.parametrize("seed", range(10))
def test_a_ledger_that_reads_all_at_once_knows_what_one_knows_that_wrote_it(seed: int) -> None:
    world = World(seed)
    for _ in range(80):
        world.step()
    fresh, known = LeaderlessRun("r"), world.ledgers["n2"]
    assert fresh.catch_up(world.stream)
    assert known.catch_up(world.stream)
    assert fresh.holders == known.holders
    assert fresh.given_back == known.given_back
    assert fresh.next_for(["ann", "bob", "cid"]) == known.next_for(["ann", "bob", "cid"])
    states = [{t: n.state for t, n in each.schedule.nodes.items()} for each in (fresh, known)]
    assert states[0] == states[1]


def test_a_ledger_that_knows_more_than_is_stored_is_void() -> None:
    world = World(1)
    world.claim_next("n2")
    ledger = world.ledgers["n2"]
    del world.stream.entries[-1]
    assert not ledger.catch_up(world.stream)
    assert ledger.is_void
