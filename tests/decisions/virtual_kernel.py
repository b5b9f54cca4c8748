"""A kernel that leads one run, for tests: no event loop, no clock but the one the test turns."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from chargehand.decisions.circuit_breaker import BreakerPolicy
from chargehand.decisions.dispatch import Balance, Dispatch, Place
from chargehand.decisions.kernel import Act, Kernel, RunMessage, StopAct
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.schedule import Schedule
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    CancelRequested,
    Effect,
    Event,
    PlanAdopted,
    PlanAmended,
    QuestionAnswered,
    RunRequested,
    StepFinished,
    StepStarted,
)
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Done, ErrorClass, Failed, NeedsInput, Outcome, Question
from chargehand.facts.plan import Need, Plan, Task
from chargehand.facts.scheduler_commands import StartAttempt
from chargehand.facts.value import Value

BREAKER = BreakerPolicy(failures=5, rest=15, longest_rest=300)
START = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "r"


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def tasks_of(arrows: str, **changes: dict[str, Any]) -> list[Task]:
    """Tasks from a picture of them: `"read -> write, read ~> check"`; `~>` is an optional need."""
    needs: dict[str, list[Need]] = {}
    for chain in arrows.split(","):
        words = chain.split()
        needs.setdefault(words[0], [])
        for upstream, arrow, task in zip(words[::2], words[1::2], words[2::2], strict=False):
            needs.setdefault(task, []).append(Need(upstream, optional=arrow == "~>"))
    return [
        Task(
            id=id_,
            **{
                "description": f"bring forth {id_}",
                "worker": "ann",
                "needs": upstream,
                **changes.get(id_, {}),
            },
        )
        for id_, upstream in needs.items()
    ]


def requested(limits: Limits | None = None, run: str = RUN, **more: Any) -> RunRequested:
    limits = limits or Limits()
    deadline_at = None if limits.deadline is None else START + limits.deadline
    given = {"at": START, "deadline_at": deadline_at, **more}
    return RunRequested(run=run, request="", limits=limits, seed=7, rules=1, crew="", **given)


class VirtualKernel:
    """Everything a supervisor would do around a kernel, done at once and without fail."""

    def __init__(
        self,
        tasks: Sequence[Task],
        limits: Limits,
        places: Sequence[Place],
        parallel: int,
        asked: dict[str, Any],
    ) -> None:
        self.now = START
        self.journal: list[Event] = []
        self.acts: list[Act] = []
        self._places = places
        self._parallel = parallel
        self._epoch = 1
        self.kernel = self._new_desk()
        self.kernel.open(RUN)
        plan = Plan(goal="a test", tasks=tasks)
        self.tell(
            requested(limits, **asked),
            self.kernel.led_by("n1", 1, START),
            *([PlanAdopted(plan=plan, at=START)] if tasks else []),
        )

    def _new_desk(self) -> Kernel:
        # Sooner and longer than a supervisor's usual one, so that few failures show what it does.
        dispatch = Dispatch(self._parallel, Balance.LEAST_BUSY, BREAKER)
        for place in self._places:
            dispatch.join(place)
        return Kernel(dispatch)

    # what is asked of it

    @property
    def schedule(self) -> Schedule:
        if RUN in self.kernel.runs:
            return self.kernel.runs[RUN].schedule
        ended = LiveRun()
        ended.replay(self.journal)
        return ended.schedule

    def state(self, task: str) -> str:
        return self.schedule.nodes[task].state.value

    def states(self) -> dict[str, str]:
        return {task: node.state.value for task, node in self.schedule.nodes.items()}

    @property
    def status(self) -> str:
        """How the run ended; empty while it goes on."""
        last = self.journal[-1]
        return str(getattr(last, "status", ""))

    def started(self) -> list[str]:
        """All attempts that were started, in order: `read#1`."""
        return [f"{a.task}#{a.attempt}" for a in self.acts if isinstance(a, StartAttempt)]

    def stopped(self) -> list[str]:
        return [f"{act.task}#{act.attempt}" for act in self.acts if isinstance(act, StopAct)]

    def kinds(self, since: int = 0) -> list[str]:
        return [type(event).__name__ for event in self.journal[since:]]

    # what happens to it

    def tell(self, *events: Event) -> list[Event]:
        """Report these things at this moment; returns what was journaled."""
        batch = self.kernel.decide([RunMessage(RUN, event) for event in events], self.now)
        entries = batch.entries.get(RUN, [])
        self.journal += entries
        self.acts += batch.acts
        self.kernel.check()
        return entries

    def end(self, task: str, outcome: Outcome, attempt: int = 0) -> list[Event]:
        """The attempt (the newest, if not told) ends with this and leaves its place."""
        number = attempt or self.schedule.nodes[task].attempt
        self.kernel.free_place(RUN, task, number)
        return self.tell(AttemptFinished(task=task, attempt=number, outcome=outcome, at=self.now))

    def finish(self, task: str, output: object = None, attempt: int = 0) -> list[Event]:
        return self.end(task, Done(Value.of(output)), attempt)

    def fail(self, task: str, kind: str = "network", **more: Any) -> list[Event]:
        return self.end(task, Failed(kind=ErrorClass(kind), message="it broke", **more))

    def ask(self, task: str, id_: str = "q", **more: Any) -> list[Event]:
        question = Question(**{"id": id_, "text": "which?", **more})
        return self.end(task, NeedsInput(question=question))

    def lose(self, task: str) -> list[Event]:
        number = self.schedule.nodes[task].attempt
        self.kernel.free_place(RUN, task, number)
        return self.tell(AttemptLost(task=task, attempt=number, reason="gone", at=self.now))

    def park(self, task: str, count: float, why: str = "it is down") -> list[Event]:
        number = self.schedule.nodes[task].attempt
        self.kernel.free_place(RUN, task, number)
        due_at = self.now + seconds(count)
        return self.tell(
            AttemptParked(task=task, attempt=number, due_at=due_at, why=why, at=self.now)
        )

    def answer(self, task: str, text: str, id_: str = "q") -> list[Event]:
        return self.tell(QuestionAnswered(question=id_, task=task, text=text, by="me", at=self.now))

    def cancel(self) -> list[Event]:
        return self.tell(CancelRequested(at=self.now))

    def amend(
        self, added: Sequence[Task] = (), removed: Sequence[str] = (), **more: Any
    ) -> list[Event]:
        change = PlanAmended(
            version=self.schedule.version + 1,
            added=tuple(added),
            removed=tuple(removed),
            at=self.now,
            **more,
        )
        return self.tell(change)

    def adopt(self, arrows: str) -> list[Event]:
        plan = Plan(goal="a test", tasks=tasks_of(arrows))
        return self.tell(PlanAdopted(plan=plan, at=self.now))

    def wait(self, count: float) -> list[Event]:
        """Let time pass; timers that fall due on the way go off when they do."""
        until = self.now + seconds(count)
        entries: list[Event] = []
        while (due_at := self.kernel.next_due()) is not None and due_at <= until:
            self.now = max(due_at, self.now)
            entries += self.tell()
        self.now = until
        return entries + self.tell()

    def crash(self) -> list[Event]:
        """The process dies with all its attempts; another reads the journal and leads."""
        self._epoch += 1
        self.kernel = self._new_desk()
        self.kernel.open(RUN, self.journal)
        return self.tell(self.kernel.led_by(f"n{self._epoch}", self._epoch, self.now))

    def begin_step(self, task: str, name: str = "send", effect: str = "once") -> list[Event]:
        number = self.schedule.nodes[task].attempt
        return self.tell(step_started(task, number, name, effect, self.now))

    def end_step(self, task: str, outcome: Done | Failed, name: str = "send") -> list[Event]:
        number = self.schedule.nodes[task].attempt
        return self.tell(step_finished(task, number, name, outcome, self.now))


def step_started(
    task: str, attempt: int, name: str, effect: str, at: datetime = START
) -> StepStarted:
    return StepStarted(
        task=task,
        attempt=attempt,
        name=name,
        ordinal=1,
        effect=Effect(effect),
        key=f"{task}/{name}",
        digest="d",
        at=at,
    )


def step_finished(
    task: str, attempt: int, name: str, outcome: Done | Failed, at: datetime = START
) -> StepFinished:
    return StepFinished(
        task=task,
        attempt=attempt,
        name=name,
        ordinal=1,
        key=f"{task}/{name}",
        outcome=outcome,
        at=at,
    )


def kernel_of(
    arrows: str,
    *,
    places: Sequence[Place] = (Place(worker="ann"),),
    pool: int = 10,
    tasks: dict[str, dict[str, Any]] | None = None,
    asked: dict[str, Any] | None = None,
    **limits: Any,
) -> VirtualKernel:
    """An resources whose run has this plan: `kernel_of("read -> write", attempts=1)`.

    `tasks` changes single tasks: `tasks={"write": {"optional": True}}`; `asked` are further facts
    of the request.
    """
    planned = tasks_of(arrows, **(tasks or {})) if arrows else []
    return VirtualKernel(planned, Limits(**limits), places, pool, asked or {})
