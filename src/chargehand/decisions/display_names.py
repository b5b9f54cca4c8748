"""Tasks and workers as people know them: ids that begin with `@` are the supervisor's own, and told in words."""

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

#: states of tasks whose own names say too little
_STATE_WORDS = {
    "retrying": "to be tried again",
    "asking": "waiting for an answer",
}
#: who does system tasks
SUPERVISOR = "supervisor"
#: who asks in a system task
THE_RUN = "the run"


def task_name(task: str) -> str:
    """A task of the plan by its id; a system task by what it does, and for which task."""
    return system_task_words(task) if is_system_task(task) else task


def state_words(state: str) -> str:
    """The state of a task, or of what an answer lacks, as people read it."""
    return _STATE_WORDS.get(state, state)


def worker_name(worker: str) -> str:
    """A worker by its name; those that begin with `@` are all the supervisor."""
    return SUPERVISOR if is_system_task(worker) else worker


def asker_name(task: str) -> str:
    """Who asks a question: a task of the plan, or the run."""
    return THE_RUN if is_system_task(task) else task


def system_task_words(task: str) -> str:
    """What the supervisor itself is doing."""
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
