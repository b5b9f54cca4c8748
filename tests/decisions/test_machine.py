"""Anything may happen to a run, in any order; a naive model watches what can be seen from outside.

The model knows sets only: what was started, what has ended and how. It has no counters and no
graph of its own, so that it cannot repeat a mistake of the schedule.
"""

from datetime import datetime

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    CancelRequested,
    DeadlinePassed,
    RetryPlanned,
    RunFinished,
    RunStatus,
    TaskFailed,
    TaskRewritten,
    TaskSkipped,
    WorkStopped,
)
from chargehand.facts.outcome import Done
from chargehand.facts.plan import Need, Task
from chargehand.facts.scheduler_commands import StartAttempt
from tests.decisions.virtual_kernel import VirtualKernel, kernel_of, seconds

PICK = st.integers(0, 99)
KINDS = st.sampled_from(["network", "timeout", "resource", "logic", "denied"])


class Run(RuleBasedStateMachine):
    """One run of a random plan, perhaps with a planner, a refiner and an answer at its end.

    Rules that do not fit the moment report nonsense, on purpose.
    """

    resources: VirtualKernel
    read = 0  # how much of the journal has been looked at

    @initialize(data=st.data(), attempts=st.integers(1, 3), pool=st.integers(1, 3))
    def submit(self, data: st.DataObject, attempts: int, pool: int) -> None:
        size = data.draw(st.integers(1, 6))
        tasks = {}
        for place in range(size):
            upstream = data.draw(st.sets(st.integers(0, place - 1), max_size=2)) if place else ()
            needs = [Need(f"t{up}", optional=data.draw(st.booleans())) for up in sorted(upstream)]
            deadline = seconds(30) if data.draw(st.integers(0, 5)) == 0 else None
            tasks[f"t{place}"] = {
                "needs": needs,
                "optional": data.draw(st.booleans()),
                "deadline": deadline,
            }
        self.tasks: dict[str, Task] = {}
        self.done: set[str] = set()
        self.given_up: set[str] = set()
        self.running: dict[str, int] = {}
        self.given: list[tuple[str, int]] = []
        self.is_stopped = self.is_cancelled = False
        self.due: dict[str, datetime] = {}
        self.removed: set[str] = set()
        self.replaced: set[str] = set()
        self.places: set[tuple[str, int]] = set()
        self.pool = pool
        self.is_planned = data.draw(st.booleans())
        self.is_answered = data.draw(st.booleans())
        asked = {
            "approach": Approach.WHOLE if self.is_planned else Approach.GIVEN,
            "answers": self.is_answered,
            "refines": data.draw(st.booleans()),
        }
        self.resources = kernel_of(
            ", ".join(tasks), pool=pool, tasks=tasks, asked=asked, attempts=attempts, losses=3
        )
        nodes = self.resources.schedule.nodes
        self.tasks = {id_: node.task for id_, node in nodes.items() if not is_own(id_)}
        self.look()

    # what happens

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        self.resources.finish(self.pick_running(pick))
        self.look()

    @precondition(lambda self: self.running)
    @rule(pick=PICK, kind=KINDS)
    def fail(self, pick: int, kind: str) -> None:
        self.resources.fail(self.pick_running(pick), kind)
        self.look()

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def lose(self, pick: int) -> None:
        self.resources.lose(self.pick_running(pick))
        self.look()

    @precondition(lambda self: self.running)
    @rule(pick=PICK, count=st.sampled_from([0.5, 5, 40]))
    def park(self, pick: int, count: float) -> None:
        self.resources.park(self.pick_running(pick), count)
        self.look()

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def ask(self, pick: int) -> None:
        task = self.pick_running(pick)
        if is_own(task):
            self.resources.finish(task)  # the supervisor asks nobody
        else:
            self.resources.ask(task, id_=task)
        self.look()

    @precondition(lambda self: any(task.startswith("@refine") for task in self.running))
    @rule(pick=PICK)
    def rewrite(self, pick: int) -> None:
        system_tasks = [task for task in self.running if task.startswith("@refine")]
        _, task, attempt = system_tasks[pick % len(system_tasks)].split(":")
        words = f"better {len(self.resources.journal)}"
        self.resources.tell(
            TaskRewritten(task=task, description=words, attempt=int(attempt), at=self.resources.now)
        )
        if self.resources.kinds()[-1] == "TaskRewritten":
            assert task not in self.running, "nobody gets other words while at it"
            assert self.resources.schedule.nodes[task].task.description == words
        self.look()

    @rule(pick=PICK)
    def answer(self, pick: int) -> None:
        task = list(self.tasks)[pick % len(self.tasks)]
        self.resources.answer(task, "yes", id_=task)
        self.look()

    @precondition(lambda self: self.strays())
    @rule(pick=PICK)
    def let_a_stray_end(self, pick: int) -> None:
        stray = self.strays()[pick % len(self.strays())]
        self.places.discard(stray)
        self.resources.kernel.free_place("r", *stray)
        self.resources.tell()
        self.look()

    @precondition(lambda self: self.given)
    @rule(pick=PICK)
    def report_again_or_too_late(self, pick: int) -> None:
        """Some attempt of long ago, which may have ended or been given up, reports success."""
        task, number = self.given[pick % len(self.given)]
        if self.running.get(task) != number and not self.is_over():
            before = self.resources.states()
            late = AttemptFinished(task=task, attempt=number, outcome=Done(), at=self.resources.now)
            assert not any(isinstance(e, AttemptFinished) for e in self.resources.tell(late))
            after = self.resources.states()
            assert {k: v for k, v in before.items() if after[k] != v} == {}
        self.look()

    @rule(count=st.sampled_from([0.1, 0.5, 1, 5]))
    def tick(self, count: float) -> None:
        if not self.is_over():
            self.resources.wait(count)
        self.look()

    @rule(jump=st.sampled_from([0.0, 0.0, 1.0, 20.0, 7200.0]))
    def crash_and_jump_the_clock(self, jump: float) -> None:
        if not self.is_over():
            self.resources.now += seconds(jump)
            self.places.clear()
            self.resources.crash()
        self.look()

    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        if pick > 90 or self.is_stopped:  # rarely the first time, or no run would get far
            self.resources.cancel()
        self.look()

    @rule(pick=PICK)
    def stop_the_work(self, pick: int) -> None:
        if pick > 90 or self.is_stopped:
            self.resources.tell(WorkStopped(reason="answer now", by="me", at=self.resources.now))
        self.look()

    @precondition(lambda self: not self.is_over())
    @rule(pick=PICK, size=st.integers(0, 2))
    def amend(self, pick: int, size: int) -> None:
        known = list(self.tasks)
        removed = known[pick % len(known)]
        added = [
            Task(
                id=f"n{len(known)}.{n}",
                description="d",
                worker="ann",
                needs=[known[(pick + n) % len(known)]],
            )
            for n in range(1, size + 1)
        ]
        replaced = tuple(sorted(self.given_up))[: pick % 2]
        for task in self.resources.amend(added, [] if pick % 3 else [removed], replaced=replaced)[
            :1
        ]:
            self.tasks |= {new.id: new for new in getattr(task, "added", ())}
            self.removed |= set(getattr(task, "removed", ()))
            self.replaced |= set(getattr(task, "replaced", ()))
            self.given_up |= self.removed - set(self.running) - self.done
        self.look()

    # what the model sees

    def pick_running(self, pick: int) -> str:
        """One that runs; whatever is reported of it, it leaves its place now."""
        task = list(self.running)[pick % len(self.running)]
        self.places.discard((task, self.running[task]))
        return task

    def strays(self) -> list[tuple[str, int]]:
        """Attempts that were given up and work on: they did not stop when told to."""
        return sorted(self.places - set(self.running.items()))

    def is_over(self) -> bool:
        return isinstance(self.resources.journal[-1], RunFinished)

    def look(self) -> None:
        """Read what was journaled since the last look, and hold it against what is known."""
        for event in self.resources.journal[self.read :]:
            self.read += 1
            if isinstance(event, AttemptStarted):
                self.see_start(event)
            elif isinstance(event, AttemptFinished):
                assert self.running.pop(event.task) == event.attempt
                if isinstance(event.outcome, Done):
                    assert event.task not in self.done
                    self.done.add(event.task)
                elif event.task in self.removed:
                    self.given_up.add(event.task)
            elif isinstance(event, (TaskFailed, TaskSkipped)):
                assert event.task not in self.done
                if isinstance(event, TaskSkipped):
                    assert self.is_hopeless(event.task), "only the hopeless are skipped"
                self.given_up.add(event.task)
            elif isinstance(event, RetryPlanned):
                self.due[event.task] = event.due_at
            elif isinstance(event, (AttemptLost, AttemptPreempted, AttemptParked)):
                self.running.pop(event.task)
                if isinstance(event, AttemptParked):
                    self.due[event.task] = event.due_at
                if event.task in self.removed:
                    self.given_up.add(event.task)
            elif isinstance(event, (CancelRequested, WorkStopped)) or event_is_run_deadline(event):
                assert not (self.is_cancelled and isinstance(event, CancelRequested))
                self.is_stopped = True
                self.is_cancelled = isinstance(event, CancelRequested)
            elif isinstance(event, RunFinished):
                self.see_end(event)

    def see_start(self, event: AttemptStarted) -> None:
        if event.task == "@answer":
            assert self.is_answered, "nobody wants an answer"
            assert not self.is_cancelled, "nor is there one of a cancelled run"
            assert not self.running, "it is made of what has ended"
        else:
            assert not self.is_stopped, "nothing else starts in a run that stops"
        assert event.task not in self.running, "one attempt at a time"
        ended = self.done | self.given_up | self.removed
        assert event.task not in ended, "what has ended stays ended"
        assert (event.task, event.attempt) not in self.given, "no attempt starts twice"
        for need in () if is_own(event.task) else self.tasks[event.task].all_needs:
            met = need.task in self.done or (need.optional and need.task in self.given_up)
            assert met, f"{event.task} started before {need.task}"
        assert event.at >= self.due.get(event.task, event.at), "no try before it is due"
        self.running[event.task] = event.attempt
        if not is_own(event.task):
            self.places.add((event.task, event.attempt))
        self.given.append((event.task, event.attempt))

    def is_hopeless(self, task: str) -> bool:
        needs = self.tasks[task].all_needs
        return any(not need.optional and need.task in self.given_up for need in needs)

    def see_end(self, event: RunFinished) -> None:
        assert not self.running, "nothing runs in a run that has ended"
        assert event is self.resources.journal[-1], "nothing is written after the end"
        required = {id_ for id_, task in self.tasks.items() if not task.optional}
        is_any_done = not self.done.isdisjoint(self.tasks)
        expected = RunStatus.PARTIAL if is_any_done else RunStatus.FAILED
        is_all_done = required - self.removed - self.replaced <= self.done
        is_composed = "@answer" not in self.given_up
        is_void = not is_any_done and not self.tasks.keys() <= self.removed | self.replaced
        is_planned = "@plan" in self.done or not self.is_planned
        if is_all_done and is_composed and is_planned and not is_void:
            expected = RunStatus.SUCCEEDED
        assert event.status is (RunStatus.CANCELLED if self.is_cancelled else expected)

    @invariant()
    def what_is_acted_upon_is_what_is_written(self) -> None:
        starts = [(a.task, a.attempt) for a in self.resources.acts if isinstance(a, StartAttempt)]
        assert starts == self.given

    @invariant()
    def nothing_that_could_run_is_left(self) -> None:
        """The hopeless have been given up, and whatever is ready has every place there is.

        A worker that keeps failing is no place for a while.
        """
        if self.is_over() or self.is_stopped:
            return
        states = self.resources.states()
        for task, state in states.items():
            if state == "waiting":
                assert not self.is_hopeless(task), f"{task} waits for what will never be"
            elif state == "ready":
                waits_for = self.resources.kernel.dispatch.why_waiting("r", task)
                is_resting = waits_for.startswith("the circuit breaker of worker ann")
                assert is_resting or len(self.places) >= self.pool, f"{task} could run"
            elif state == "retrying" and not self.is_being_rewritten(task):
                assert self.due[task] > self.resources.now, f"{task} is due"
            elif state == "running":
                assert task in self.running

    def is_being_rewritten(self, task: str) -> bool:
        ended = self.done | self.given_up
        system_tasks = [
            each for each in self.resources.states() if each.startswith(f"@refine:{task}:")
        ]
        return any(system_task not in ended for system_task in system_tasks)

    @invariant()
    def a_reader_of_the_journal_comes_to_the_same_states(self) -> None:
        if not self.is_over():
            other = kernel_of("").kernel
            other.open("copy", self.resources.journal)
            nodes = other.runs["copy"].schedule.nodes
            assert {id_: node.state.value for id_, node in nodes.items()} == self.resources.states()


def is_own(task: str) -> bool:
    """Whether this is what the supervisor does itself."""
    return task.startswith("@")


def event_is_run_deadline(event: object) -> bool:
    return isinstance(event, DeadlinePassed) and not event.task


Run.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRun = pytest.mark.timeout(110)(Run.TestCase)
