"""The gate through which the tasks of a plan come while it is still being written, each one checked."""

from collections.abc import Callable, Iterable
from typing import Any

from chargehand.errors import Fault
from chargehand.facts.plan import Plan, Strategy, Task
from chargehand.roles.partial_json import PartialJson
from chargehand.roles.plan_schema import Bounds, faults_in_words, read_draft, read_task

_HEAD = {"goal", "instruction", "strategy"}


class StreamedTaskCheck:
    """Hears a plan grow and lets its tasks in, in order, up to the first that something speaks against.

    What was let in stays, whatever comes later. A reply that begins anew may say it again in the
    same words. `open_plan` and `add` are called as soon as they can be, from within `hear`.
    """

    def __init__(
        self,
        bounds: Bounds,
        open_plan: Callable[[Plan], None],
        add: Callable[[Task], None],
        *,
        accepted: Iterable[Task] = (),
        is_open: bool = False,
    ) -> None:
        self.accepted = {task.id: task for task in accepted}
        self._bounds = bounds
        self._open_plan = open_plan
        self._add = add
        self._is_open = is_open
        self._begin()

    def _begin(self) -> None:
        self._growing = PartialJson("tasks")
        self._head: dict[str, str] = {}
        #: written before what the plan is about was
        self._waiting: list[Task] = []
        self._is_halted = False

    def hear(self, piece: str | None) -> None:
        """Take in the next piece of a reply; None: it broke off, and another begins."""
        if piece is None:
            self._begin()
            return
        for name, value in self._growing.feed(piece):
            self._note(name, value)
        if self._is_open or self._head.keys() >= _HEAD:
            self._let_in()

    def settle(self, text: str) -> str | None:
        """Take in a whole reply, heard before or not; what speaks against it, if anything does."""
        self.hear(None)
        self.hear(text)
        written, objection = read_draft(text)
        if written is None:
            return objection
        tasks = [each.task for each in written.tasks]
        faults = self._faults_in(tasks)
        if faults:
            return faults_in_words(faults)
        self._head = {
            "goal": written.goal,
            "instruction": written.instruction,
            "strategy": written.strategy,
        }
        self._waiting = tasks
        self._is_halted = False  # what came too early as it was heard stands behind its needs now
        self._let_in()
        return None

    def _note(self, name: str, value: Any) -> None:
        if name == "tasks":
            task = read_task(value)
            self._is_halted = self._is_halted or task is None
            if task is not None and not self._is_halted:
                self._waiting.append(task)
        elif isinstance(value, str) and (name != "strategy" or value in list(Strategy)):
            self._head[name] = value

    def _let_in(self) -> None:
        for task in self._waiting:
            known = self.accepted.get(task.id)
            if known is not None:
                self._is_halted = not _is_same(known, task)
            elif self._bounds.faults_in([*self.accepted.values(), task]):
                self._is_halted = True
            else:
                self._accept(task)
            if self._is_halted:
                break
        self._waiting = []

    def _accept(self, task: Task) -> None:
        if not self._is_open:
            self._is_open = True
            head = self._head
            self._open_plan(
                Plan(
                    goal=head["goal"],
                    tasks=(),
                    instruction=head["instruction"],
                    strategy=Strategy(head["strategy"]),
                )
            )
        self.accepted[task.id] = task
        self._add(task)

    def _faults_in(self, tasks: Iterable[Task]) -> list[Fault]:
        conflicts: list[Fault] = []
        fresh: list[Task] = []
        for task in tasks:
            known = self.accepted.get(task.id)
            if known is None:
                fresh.append(task)
            elif not _is_same(known, task):
                message = "an accepted task has this id, and runs; choose an id that is free"
                conflicts.append(Fault("duplicate_id", task.id, message))
        return conflicts + self._bounds.faults_in([*self.accepted.values(), *fresh])


def _is_same(one: Task, other: Task) -> bool:
    return (one.description, one.worker, one.needs) == (
        other.description,
        other.worker,
        other.needs,
    )
