"""Where nested runs are: the tasks that lead to them, and the supervisors that do these tasks."""

from typing import NamedTuple

from chargehand.decisions.budget import NESTED
from chargehand.facts.events import AttemptStarted, Event, StepStarted
from chargehand.presentation.run_status import BELOW


class NestedPath(NamedTuple):
    """The way from a run down to a nested run. As text, it is printed before the lines of the nested run."""

    #: such as `book[18] › `
    tasks: str = ""
    #: such as `clerks › `
    supervisors: str = ""
    #: both in turn, such as `book[18] › clerks › `
    whole: str = ""

    def down(self, task: str, supervisor: str) -> "NestedPath":
        """The path of a run that this supervisor leads for this task."""
        return NestedPath(
            f"{self.tasks}{task}{BELOW}",
            f"{self.supervisors}{supervisor}{BELOW}",
            f"{self.whole}{task}{BELOW}{supervisor}{BELOW}",
        )

    def __str__(self) -> str:
        return self.whole


class NestedPaths:
    """Learns the paths of nested runs from the events of the runs above them."""

    def __init__(self) -> None:
        self._paths: dict[str, NestedPath] = {}
        #: by run and task: the worker of the current attempt
        self._workers: dict[tuple[str, str], str] = {}

    def hear(self, run: str, event: Event) -> None:
        """Take an event of a run, nested or not."""
        match event:
            case AttemptStarted():
                self._workers[run, event.task] = event.worker
            case StepStarted(name=name) if name == NESTED:
                about = event.about.read()
                if isinstance(about, dict) and "run" in about:
                    above = self._paths.get(run, NestedPath())
                    supervisor = self._workers.get((run, event.task), "")
                    self._paths[str(about["run"])] = above.down(event.task, supervisor)
            case _:
                pass

    def of(self, run: str, supervisors: str) -> NestedPath:
        """The path of a nested run; if its task was not heard of, only the given path of supervisors."""
        return self._paths.get(run) or NestedPath("", supervisors, supervisors)
