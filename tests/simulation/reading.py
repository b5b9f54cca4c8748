"""What the journal says of a run, read naively: sets of facts, no counters, nothing shared with the schedule.

It must not mirror the schedule: where the schedule keeps a count, this looks again at everything.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from chargehand.facts.events import Approach, RetryHow, RunFinished, RunRequested
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Task, item_id, item_of
from chargehand.facts.value import Value
from tests.simulation.ledger import Entry
from tests.simulation.purse import Purse
from tests.simulation.tasks import StepStory, TaskStory

#: how urgent a second attempt is
LAST = -1_000_000


class Reading:
    """One run, as journaled so far, and what can be asked of it."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.requested: RunRequested | None = None
        #: of the plan
        self.tasks: dict[str, TaskStory] = {}
        #: what the supervisor does itself, once it has begun it
        self.system_tasks: dict[str, TaskStory] = {}
        #: by system task: the version of the plan when it began
        self.plannings: dict[str, int] = {}
        #: second attempts beside stragglers
        self.hedges: dict[str, TaskStory] = {}
        #: by which people have steered it
        self.notes = 0
        #: there was no planning since the last of them
        self.is_noted = False
        #: something failed since the last planning began, and another way may be found
        self.is_unplanned = False
        self.purse = Purse()
        #: that it may make, as it is now
        self.calls: int | None = None
        #: that it ever might
        self.most_calls = 0
        self.dependents: dict[str, list[str]] = {}
        #: by task with `for_each`: what was listed, and the number of items once they are tasks
        self.listed: dict[str, list[Value]] = {}
        self.mapped: dict[str, int] = {}
        #: of such tasks: those whose items were to be listed at some moment
        self.listings: dict[str, None] = {}
        self.version = 0
        self.changes = 0
        self.has_plan = False
        self.is_sealed = False
        self.stop = ""
        #: cancelled, out of time, or why else its work was stopped
        self.is_paused = False
        #: when the answer must be there, once the work was stopped
        self.closes_at: datetime | None = None
        #: not even for an answer is there any time left
        self.is_closed = False
        self.finished: RunFinished | None = None
        self.answered: list[str] = []
        self.steps: dict[str, StepStory] = {}
        self.last: Entry | None = None
        self.authors: dict[int, str] = {}
        self.idle = timedelta(0)
        self.idle_since: datetime | None = None
        self.is_led = False

    @property
    def limits(self) -> Limits:
        assert self.requested is not None
        return self.requested.limits

    @property
    def began_at(self) -> datetime:
        assert self.requested is not None
        return self.requested.at

    def find(self, task: str) -> TaskStory:
        """A task of the plan, or something that the supervisor does itself, begun or not."""
        if not task.startswith("@"):
            return self.tasks[task]
        if task in self.hedges:
            return self.hedges[task]
        return self.system_tasks.get(task) or TaskStory(Task(id=task, description="", worker=""))

    @property
    def planned(self) -> dict[str, TaskStory]:
        """The tasks of the plan, without those that do single items."""
        return {id_: task for id_, task in self.tasks.items() if item_of(id_) is None}

    def items_of(self, task: str) -> list[TaskStory]:
        return [self.tasks[item_id(task, index)] for index in range(self.mapped.get(task, 0))]

    def collects(self, task: TaskStory) -> bool:
        """Whether a mapped task waits for nothing but to be put together."""
        is_free = task.retry is None and task.parked_until is None and task.question is None
        is_waiting = not task.ending and task.open is None and is_free and not self.rewriting(task)
        return task.is_due and is_waiting

    def everything(self) -> Iterator[TaskStory]:
        yield from self.tasks.values()
        yield from self.hedges.values()
        yield from self.system_tasks.values()

    def is_told_to_stop(self, task: TaskStory) -> bool:
        if task.is_answer:
            return self.stop == "cancelled" or self.is_closed
        sums_up = task.task.id in self.mapped and not task.is_removed
        if sums_up and self.stop != "cancelled":
            return task.is_expired  # it is made of what there is
        return bool(self.stop) or task.is_expired or task.is_removed

    def is_satisfied(self, task: TaskStory) -> bool:
        """Whether every need has come to what the task demands of it."""
        for need in task.task.all_needs:
            upstream = self.tasks[need.task]
            is_dispensable = need.optional or upstream.is_waived
            if upstream.ending != "done" and not (is_dispensable and upstream.ending):
                return False
        return True

    def is_hopeless(self, task: TaskStory) -> bool:
        """Whether a need that it cannot do without has come to nothing."""
        return any(
            not need.optional
            and self.tasks[need.task].ending not in ("", "done")
            and not self.tasks[need.task].is_waived
            for need in task.task.all_needs
        )

    def terms_of(self, task: TaskStory) -> OnFailure | None:
        """What was said to be done when an attempt at this fails; of one that only collects items, nothing."""
        return None if task.task.id in self.mapped else self.policy_of(task)

    def policy_of(self, task: TaskStory) -> OnFailure | None:
        """What was said to be done when this fails: by the plan, else of its worker, else for all."""
        assert self.requested is not None
        policies = self.requested.policies
        if task.task.on_failure is not None or task.task.id.startswith("@"):
            return task.task.on_failure
        worker = task.attempts[-1].worker if task.attempts else task.task.worker
        return policies.get(task.failed_first or worker) or policies.get("")

    def hedge_of(self, task: TaskStory) -> "TaskStory | None":
        """The second attempt beside the last one of this task, if there ever was one."""
        number = task.attempts[-1].number if task.attempts else 0
        return self.hedges.get(f"@hedge:{task.task.id}:{number}")

    def is_ready(self, task: TaskStory) -> bool:
        return (
            not task.ending
            and not self.stop
            and task.task.for_each is None
            and task.open is None
            and task.retry is None
            and task.parked_until is None
            and task.question is None
            and self.is_satisfied(task)
            and not self.rewriting(task)
        )

    def rewriting(self, task: TaskStory) -> str:
        """The system task that has to find better words for this task before it is tried again."""
        planned = task.last_retry
        if planned is None or planned.how is not RetryHow.REWRITTEN or task.retry is not None:
            return ""
        system_task = f"@refine:{task.task.id}:{planned.attempt}"
        is_next = not task.ending and task.attempts[-1].number == planned.attempt
        return system_task if is_next and not self.find(system_task).ending else ""

    def is_live(self, task: TaskStory) -> bool:
        """Whether it gets on without any person."""
        return not task.ending and (
            task.open is not None
            or task.retry is not None
            or self.is_ready(task)
            or self.collects(task)
            or bool(self.rewriting(task))
        )

    def ready(self) -> Iterator[TaskStory]:
        all_ = (*self.tasks.values(), *self.hedges.values())
        return (task for task in all_ if self.is_ready(task))

    def opened(self) -> Iterator[TaskStory]:
        return (task for task in self.everything() if task.open is not None)

    def owes(self) -> list[str]:
        """What the supervisor has to do itself now, and has not begun."""
        requested = self.requested
        if requested is None or self.stop == "cancelled" or self.is_closed:
            return []
        owed = [] if self.stop else [*self._owed_plannings(), *self._owed_rewritings()]
        if not self.stop:
            owed += [each for each in self.listings if each not in self.system_tasks]
        is_whole = self.is_sealed or bool(self.stop)
        if owed or not is_whole or any(not task.ending for task in self.everything()):
            return owed
        is_step = requested.approach is Approach.STEPS and not self.stop
        if is_step and self.version > list(self.plannings.values())[-1]:
            return [self.next_planning]
        is_any_done = any(task.ending == "done" for task in self.planned.values())
        is_wanted = requested.answers and "@answer" not in self.system_tasks and is_any_done
        return ["@answer"] if is_wanted else []

    def _owed_plannings(self) -> list[str]:
        assert self.requested is not None
        is_given = self.requested.approach is Approach.GIVEN
        if not self.plannings and not is_given:
            return [self.next_planning]
        is_due = self.is_unplanned and len(self.plannings) <= self.limits.replans
        is_due = is_due or (self.is_noted and bool(self.version))
        return [self.next_planning] if is_due and not self.is_planning else []

    @property
    def is_planning(self) -> bool:
        return any(not self.system_tasks[each].ending for each in self.plannings)

    @property
    def most_plannings(self) -> int:
        """The first, one for each change that is allowed, and one for each note at most."""
        assert self.requested is not None
        if self.requested.approach is Approach.GIVEN:
            return self.notes
        return 1 + self.limits.replans + self.notes

    def _owed_rewritings(self) -> list[str]:
        owed = [self.rewriting(task) for task in self.tasks.values()]
        return [
            system_task
            for system_task in owed
            if system_task and system_task not in self.system_tasks
        ]

    @property
    def next_planning(self) -> str:
        assert self.requested is not None
        # A plan that was given counts as the first one.
        count = len(self.plannings) + (self.requested.approach is Approach.GIVEN)
        return f"@plan:{count + 1}" if count else "@plan"

    @property
    def ends_at(self) -> datetime | None:
        """When all of it must be over, the answer too, if that is known."""
        assert self.requested is not None
        return self.closes_at or self.requested.deadline_at

    @property
    def work_ends_at(self) -> datetime | None:
        """When its tasks must be over: a tenth of its time is left for the answer, or 15 seconds."""
        assert self.requested is not None
        deadline_at = self.requested.deadline_at
        if deadline_at is None or not self.requested.answers:
            return deadline_at
        return deadline_at - min((deadline_at - self.began_at) * 0.1, timedelta(seconds=15))

    def deadline_of(self, task: Task) -> datetime | None:
        """Its own, or the run's if that is earlier. What waits for it does not count."""
        ends_at = self.ends_at if task.id == "@answer" else self.work_ends_at
        both = [] if ends_at is None else [ends_at]
        if task.deadline is not None:
            both.append(self.began_at + task.deadline)
        return min(both, default=None)

    def urgency(self, task: str, *, of_unfinished_only: bool) -> int:
        """The run's priority, and the largest among this task and all that wait for it."""
        assert self.requested is not None
        if task in self.hedges:
            return LAST
        seen, urgency = {task}, self.tasks[task].task.priority
        rising = [task]
        while rising:
            for dependent in self.dependents.get(rising.pop(), ()):
                story = self.tasks[dependent]
                if dependent not in seen and not (of_unfinished_only and story.ending):
                    seen.add(dependent)
                    rising.append(dependent)
                    urgency = max(urgency, story.task.priority)
        return urgency + self.requested.priority

    def active_until(self, now: datetime) -> timedelta:
        """How long the run has been active, waiting for people not counted."""
        waiting = now - self.idle_since if self.idle_since is not None else timedelta(0)
        return now - self.began_at - self.idle - waiting
