"""Names of tasks and workers for people: ids of system tasks, which begin with `@`, become words."""

from chargehand.decisions.system_tasks import (
    ANSWER,
    BUDGET,
    DRAFT,
    ITEMS,
    PLAN,
    REFINE,
    hedged,
    is_hedge,
    is_system_task,
)

#: words for states whose names say too little
_STATE_WORDS = {
    "retrying": "to be tried again",
    "asking": "waiting for an answer",
}
#: the worker of system tasks
SUPERVISOR = "supervisor"
#: who asks the questions of system tasks
THE_RUN = "the run"


def task_name(task: str) -> str:
    """The id of a task of the plan; for a system task, what it does and for which task."""
    return system_task_words(task) if is_system_task(task) else task


def state_words(state: str) -> str:
    """The state of a task or a gap, in words."""
    return _STATE_WORDS.get(state, str(state))


def worker_name(worker: str) -> str:
    """The name of a worker; `supervisor` for all names that begin with `@`."""
    return SUPERVISOR if is_system_task(worker) else worker


def asker_name(task: str) -> str:
    """Who asks a question: a task of the plan, or the run for a system task."""
    return THE_RUN if is_system_task(task) else task


def system_task_words(task: str) -> str:
    """What the supervisor does in this system task."""
    kind, _, about = task.partition(":")
    if is_hedge(task):
        return f"{hedged(task)} takes too long: a second attempt"
    words = {
        PLAN: "planning again" if about else "planning",
        ANSWER: "composing the answer",
        DRAFT: "drafting the answer",
        ITEMS: f"listing the items of {about}",
        REFINE: f"rewriting {about.rpartition(':')[0]}",
        BUDGET: "asking whether more may be spent",
    }
    return words.get(kind, "the supervisor's own work")


def counted(number: int, noun: str) -> str:
    """A number with its noun in singular or plural: `1 attempt`, `2 attempts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
