"""Duties: what the supervisor does itself for a run. Tasks like any other, but of no plan.

Their ids start with `@`, which no task of a plan may; but for hedges, they take no place in the pool.
When each falls due is decided here (of hedges in `hedging`); the schedule leads them like all its tasks.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from chargehand.decisions.task_graph import Membership, TaskNode, TaskState
from chargehand.facts.events import Approach, RunRequested
from chargehand.facts.outcome import ErrorClass
from chargehand.facts.plan import Strategy, Task

PLAN = "@plan"
ANSWER = "@answer"
DRAFT = "@draft"
REFINE = "@refine"
BUDGET = "@budget"
ITEMS = "@items"
HEDGE = "@hedge"
PLANNER, REFINER, ANSWERER, TREASURER = "@planner", "@refiner", "@answerer", "@treasurer"
#: of a task with `for_each`: who lists its items, and who puts their results together
LISTER, COLLECTOR = "@lister", "@collector"

#: why there is planning again
FAILURE, STEP, STEER = "failure", "step", "steer"


def is_system_task(task: str) -> bool:
    """Whether a task of this id is the supervisor's own."""
    return task[:1] == "@"


def is_planned(task: str) -> bool:
    """Whether a task of this id stands in the plan: it is neither the supervisor's own nor an item."""
    return task[:1] != "@" and task[-1:] != "]"


def is_hedge(task: str) -> bool:
    """Whether a task of this id is a second attempt at another."""
    return task.startswith(HEDGE)


def hedged(task: str) -> str:
    """The task that a hedge is for."""
    return task.removeprefix(f"{HEDGE}:").rpartition(":")[0]


def of_plan(tasks: Iterable[str]) -> list[str]:
    """Those that are tasks of the plan."""
    return [task for task in tasks if is_planned(task)]


def has_results(nodes: Mapping[str, TaskNode]) -> bool:
    """Whether anything of the plan is done."""
    return any(node.state is TaskState.DONE and is_planned(id_) for id_, node in nodes.items())


def is_void(nodes: Mapping[str, TaskNode]) -> bool:
    """Whether there was something to do, and nothing is done: no success, be all of it optional."""
    return not has_results(nodes) and any(map(is_of_plan, nodes.values()))


def refining(task: str, attempt: int) -> Task:
    """Say better what a task is, now that it failed."""
    return Task(
        id=f"{REFINE}:{task}:{attempt}",
        description=f"Rewrite {task}, which failed",
        worker=REFINER,
        args={"task": task, "attempt": attempt},
    )


def listing(task: str) -> Task:
    """Find out what the items of a task with `for_each` are, now that its needs are met."""
    return Task(
        id=f"{ITEMS}:{task}",
        description=f"List the items of {task}",
        worker=LISTER,
        args={"task": task},
    )


def asking_for_more(id_: str) -> Task:
    """Have a person say whether more may be spent. Nobody does it: it is there to hold the question."""
    return Task(id=id_, description="Ask whether more may be spent", worker=TREASURER)


class Planning(Struct):
    """Knows when there is to be planning, and that it never goes on for ever."""

    count: int = 0
    #: of the plan when the last planning began
    version: int = 0
    is_open: bool = False
    #: so that what fails from now on is not seen by it
    has_begun: bool = False
    #: something failed while there was planning under way
    is_wanted: bool = False
    #: plannings that a person's note led to: these are never too many
    steers: int = 0
    #: a note came while there was planning under way
    is_steered: bool = False

    def first(self, requested: RunRequested) -> Task | None:
        """The planning that a run begins with, if it came without a plan."""
        return None if requested.approach.is_given else self._next("", 0, requested.default)

    def step(self, requested: RunRequested, version: int) -> Task | None:
        """The choice of the next step, unless the last one was to choose none."""
        is_on_its_way = requested.approach is Approach.STEPS and version > self.version
        return self._next(STEP, version) if is_on_its_way else None

    def after_failure(self, node: TaskNode, requested: RunRequested, version: int) -> Task | None:
        """A look for another way, now that a task has come to nothing."""
        is_ours = not (requested.approach.is_given or requested.approach is Approach.STEPS)
        was_stopped = node.cause is not None and node.cause.kind is ErrorClass.CANCELLED
        if not is_ours or node.task.optional or is_system_task(node.task.id) or was_stopped:
            return None
        if self.is_open:
            self.is_wanted = self.has_begun
            return None
        return self._again(requested, version)

    def after_note(self, version: int) -> Task | None:
        """A change of the plan that a person wants; what is being planned already ends first."""
        if self.is_open:
            self.is_steered = True
            return None
        self.steers += 1
        # A plan that was given is the first one, though nobody here wrote it.
        self.count = max(self.count, 1)
        return self._next(STEER, version)

    def after_planning(self, requested: RunRequested, version: int) -> Task | None:
        """What is left to plan when a planning has ended."""
        self.is_open = False
        if self.is_steered and version:
            # It sees what failed meanwhile too, so one planning is enough for both.
            self.is_steered = self.is_wanted = False
            return self.after_note(version)
        if not self.is_wanted:
            return None
        self.is_wanted = False
        return self._again(requested, version)

    def _again(self, requested: RunRequested, version: int) -> Task | None:
        is_enough = self.count - self.steers > requested.limits.replans
        return None if is_enough else self._next(FAILURE, version)

    def _next(self, because: str, version: int, default: str = "") -> Task:
        self.count += 1
        self.is_open, self.has_begun = True, False
        if because != STEER:  # a note is no step: one that changes nothing does not end the run
            self.version = version
        if not because:
            args = {"default": default} if default else {}
            return Task(id=PLAN, description="Write the plan", worker=PLANNER, args=args)
        args = {"because": because}
        words = _PLANNING_AGAIN[because]
        return Task(id=f"{PLAN}:{self.count}", description=words, worker=PLANNER, args=args)


_PLANNING_AGAIN = {
    FAILURE: "Plan again after a failure",
    STEP: "Choose the next step",
    STEER: "Change the plan as a person wants",
}


def answering(nodes: Mapping[str, TaskNode], requested: RunRequested) -> Task | None:
    """Composing the answer, if one is wanted and there is something to make it of."""
    if not requested.answers or ANSWER in nodes or not has_results(nodes):
        return None
    return Task(id=ANSWER, description="Compose the answer", worker=ANSWERER)


def drafting(nodes: Mapping[str, TaskNode], number: int) -> Task | None:
    """Composing an answer early, when most is done and what is left only waits for stragglers."""
    done = [id_ for id_ in of_plan(nodes) if nodes[id_].state is TaskState.DONE]
    running = any(nodes[id_].is_open for id_ in of_plan(nodes))
    before = nodes.get(f"{DRAFT}:{number - 1}")
    if before is not None and (not before.state.is_settled or before.task.args["of"] == done):
        return None
    if not running or 2 * len(done) < len(of_plan(nodes)):
        return None
    words = f"Draft the answer from {len(done)} results"
    return Task(id=f"{DRAFT}:{number}", description=words, worker=ANSWERER, args={"of": done})


def is_of_plan(node: TaskNode) -> bool:
    """Whether it is part of the plan as it stands: no system task, no item, not taken out, not made up for."""
    return not is_system_task(node.task.id) and node.membership is Membership.PLANNED


def last_in(nodes: Mapping[str, TaskNode]) -> list[str]:
    """The tasks that no other of the plan takes up, in plan order."""
    return [
        id_
        for id_, node in nodes.items()
        if is_of_plan(node) and not any(map(is_of_plan, node.dependents))
    ]


def missing_of(
    nodes: Mapping[str, TaskNode], requested: RunRequested, strategy: Strategy = Strategy.MERGE
) -> tuple[str, ...]:
    """Everything without which a run that has ended cannot be called a success."""
    lacking = [id_ for id_, node in nodes.items() if is_missing(node)]
    if lacking and has_choice(nodes, strategy):
        lacking = [id_ for id_ in lacking if is_system_task(id_)]
    # There may have been nothing to make an answer of, or no time left to begin with it.
    is_unanswered = requested.answers and ANSWER not in nodes
    is_wanted = is_unanswered and (requested.shape is not None or has_results(nodes))
    return (*lacking, ANSWER) if is_wanted else tuple(lacking)


def has_choice(nodes: Mapping[str, TaskNode], strategy: Strategy) -> bool:
    """Whether the answer is selected, and there is one to select: the others need not be done."""
    if strategy is not Strategy.SELECT:
        return False
    return any(nodes[id_].state is TaskState.DONE and not nodes[id_].gaps for id_ in last_in(nodes))


def is_missing(node: TaskNode) -> bool:
    """Whether a run that ends with this task as it is has not done all that it should have."""
    is_whole = node.state is TaskState.DONE and not node.gaps
    if is_whole or node.membership is not Membership.PLANNED or is_hedge(node.task.id):
        return False
    if is_system_task(node.task.id) and not _is_due(node.task):
        return False
    return not node.task.optional


def _is_due(system_task: Task) -> bool:
    """Whether a run cannot do without it: without better words or a mended plan it does what it can."""
    if system_task.worker == PLANNER:
        return system_task.args.get("because") not in (FAILURE, STEER)
    return system_task.id == ANSWER
