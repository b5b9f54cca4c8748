"""System tasks: what the supervisor does itself for a run. They are tasks like others, but not part of the plan.

Their ids start with `@`; ids of planned tasks may not. They take no slot in the pool, except for hedges.
This module decides when each of them is due (for hedges: `hedging`); the schedule treats them like other tasks.
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
#: for tasks with `for_each`: the workers that list the items and collect their results
LISTER, COLLECTOR = "@lister", "@collector"

#: reasons for planning again
FAILURE, STEP, STEER = "failure", "step", "steer"


def is_system_task(task: str) -> bool:
    """Whether this is the id of a system task."""
    return task[:1] == "@"


def is_planned(task: str) -> bool:
    """Whether this is the id of a task of the plan: neither a system task nor an item."""
    return task[:1] != "@" and task[-1:] != "]"


def is_hedge(task: str) -> bool:
    """Whether this is the id of a hedge."""
    return task.startswith(HEDGE)


def hedged(task: str) -> str:
    """The task that a hedge is for."""
    return task.removeprefix(f"{HEDGE}:").rpartition(":")[0]


def of_plan(tasks: Iterable[str]) -> list[str]:
    """The ids among these that are tasks of the plan."""
    return [task for task in tasks if is_planned(task)]


def has_results(nodes: Mapping[str, TaskNode]) -> bool:
    """Whether any task of the plan is done."""
    return any(node.state is TaskState.DONE and is_planned(id_) for id_, node in nodes.items())


def is_void(nodes: Mapping[str, TaskNode]) -> bool:
    """Whether the plan has tasks and none is done: that is no success, even if all of them are optional."""
    return not has_results(nodes) and any(map(is_of_plan, nodes.values()))


def refining(task: str, attempt: int) -> Task:
    """The system task that rewrites the description of a failed task."""
    return Task(
        id=f"{REFINE}:{task}:{attempt}",
        description=f"Rewrite {task}, which failed",
        worker=REFINER,
        args={"task": task, "attempt": attempt},
    )


def listing(task: str) -> Task:
    """The system task that lists the items of a task with `for_each`."""
    return Task(
        id=f"{ITEMS}:{task}",
        description=f"List the items of {task}",
        worker=LISTER,
        args={"task": task},
    )


def asking_for_more(id_: str) -> Task:
    """The system task that asks a person to raise the budget. It is never run: it only holds the question."""
    return Task(id=id_, description="Ask whether more may be spent", worker=TREASURER)


class Planning(Struct):
    """Decides when to plan again. `Limits.replans` caps how often that happens after failures."""

    count: int = 0
    #: version of the plan when the last planning task was created
    version: int = 0
    is_open: bool = False
    #: the planning has started, so it does not see what fails from now on
    has_begun: bool = False
    #: a task failed while a planning was running
    is_wanted: bool = False
    #: plannings that a person's note caused; they do not count against `Limits.replans`
    steers: int = 0
    #: a note came while a planning was open
    is_steered: bool = False

    def first(self, requested: RunRequested) -> Task | None:
        """The first planning of a run; None if the request came with a plan."""
        return None if requested.approach.is_given else self._next("", 0, requested.default)

    def step(self, requested: RunRequested, version: int) -> Task | None:
        """The planning of the next step; None if the last one added no step, or the approach is not `STEPS`."""
        is_on_its_way = requested.approach is Approach.STEPS and version > self.version
        return self._next(STEP, version) if is_on_its_way else None

    def after_failure(self, node: TaskNode, requested: RunRequested, version: int) -> Task | None:
        """The planning that looks for another way after a task failed; None if there is to be none now."""
        is_ours = not (requested.approach.is_given or requested.approach is Approach.STEPS)
        was_stopped = node.cause is not None and node.cause.kind is ErrorClass.CANCELLED
        if not is_ours or node.task.optional or is_system_task(node.task.id) or was_stopped:
            return None
        if self.is_open:
            self.is_wanted = self.has_begun
            return None
        return self._again(requested, version)

    def after_note(self, version: int) -> Task | None:
        """The planning that a person's note asks for; None while another planning is open: that one ends first."""
        if self.is_open:
            self.is_steered = True
            return None
        self.steers += 1
        # A plan that came with the request counts as the first planning.
        self.count = max(self.count, 1)
        return self._next(STEER, version)

    def after_planning(self, requested: RunRequested, version: int) -> Task | None:
        """The planning that was requested while the one that has just ended was open, if any."""
        self.is_open = False
        if self.is_steered and version:
            # It also sees what failed meanwhile, so one planning is enough for both.
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
    """The system task that composes the answer, if a model is to compose it and there are results."""
    if not requested.answers or ANSWER in nodes or not has_results(nodes):
        return None
    return Task(id=ANSWER, description="Compose the answer", worker=ANSWERER)


def drafting(nodes: Mapping[str, TaskNode], number: int) -> Task | None:
    """The system task that drafts the answer early, if at least half of the tasks are done and one still runs."""
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
    """Whether this is a task of the current plan: no system task, no item, neither removed nor replaced."""
    return not is_system_task(node.task.id) and node.membership is Membership.PLANNED


def last_in(nodes: Mapping[str, TaskNode]) -> list[str]:
    """The tasks of the plan that no other task of the plan depends on, in plan order."""
    return [
        id_
        for id_, node in nodes.items()
        if is_of_plan(node) and not any(map(is_of_plan, node.dependents))
    ]


def missing_of(
    nodes: Mapping[str, TaskNode], requested: RunRequested, strategy: Strategy = Strategy.MERGE
) -> tuple[str, ...]:
    """The required tasks without a complete result, `@answer` included. With any of them, a run is no success."""
    lacking = [id_ for id_, node in nodes.items() if is_missing(node)]
    if lacking and has_choice(nodes, strategy):
        lacking = [id_ for id_ in lacking if is_system_task(id_)]
    # There may have been no results for an answer, or no time left to start composing it.
    is_unanswered = requested.answers and ANSWER not in nodes
    is_wanted = is_unanswered and (requested.shape is not None or has_results(nodes))
    return (*lacking, ANSWER) if is_wanted else tuple(lacking)


def has_choice(nodes: Mapping[str, TaskNode], strategy: Strategy) -> bool:
    """Whether the answer is selected and there is a result to select; the other tasks need not be done."""
    if strategy is not Strategy.SELECT:
        return False
    return any(nodes[id_].state is TaskState.DONE and not nodes[id_].gaps for id_ in last_in(nodes))


def is_missing(node: TaskNode) -> bool:
    """Whether a run that ends with this task in its current state lacks a required result."""
    is_whole = node.state is TaskState.DONE and not node.gaps
    if is_whole or node.membership is not Membership.PLANNED or is_hedge(node.task.id):
        return False
    if is_system_task(node.task.id) and not _is_due(node.task):
        return False
    return not node.task.optional


def _is_due(system_task: Task) -> bool:
    """Whether a run needs this system task to succeed; it does not need a rewritten task or a changed plan."""
    if system_task.worker == PLANNER:
        return system_task.args.get("because") not in (FAILURE, STEER)
    return system_task.id == ANSWER
