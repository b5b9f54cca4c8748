"""The roster: the workers that a plan may name."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Protocol

from chargehand.decisions.dispatch import Place
from chargehand.errors import UsageError
from chargehand.facts.plan import Task
from chargehand.facts.value import canonical, digest_of
from chargehand.roles.function import Where, Work
from chargehand.roles.office import Office


class Member(Protocol):
    """Anybody who can be on a roster: a function, an agent with a model, another supervisor."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def skills(self) -> tuple[str, ...]: ...

    @property
    def timeout(self) -> timedelta | None: ...

    @property
    def where(self) -> Where: ...

    @property
    def place(self) -> Place: ...

    def work(self, office: Office) -> Work:
        """What an attempt of this member is, with what this office offers."""

    def version(self, office: Office) -> str:
        """Changes when its results may: with its words, its tools, its model. Empty: never reuse them."""


class Roster:
    """Workers by name; their skills are names that a task may give instead."""

    def __init__(self, workers: Sequence[Member]) -> None:
        self._workers: dict[str, Member] = {}
        for worker in workers:
            self.join(worker)
        lines = sorted([w.name, w.description, *sorted(w.skills)] for w in self)
        self.digest = digest_of(canonical(lines))
        #: of the names, descriptions and skills that it began with; who joins or leaves later does
        #: not make it another crew

    def join(self, worker: Member) -> None:
        """Put another worker on it."""
        if not hasattr(worker, "work") or not hasattr(worker, "place"):
            raise UsageError(
                f"{worker!r} is not a worker; decorate it with @chargehand.worker(name, description)"
            )
        if worker.name in self._workers:
            raise UsageError(f"two workers are named {worker.name!r}; names must be unique")
        self._workers[worker.name] = worker

    def leave(self, name: str) -> None:
        """Take a worker off it; unknown ones are fine."""
        self._workers.pop(name, None)

    def get(self, name: str) -> Member | None:
        return self._workers.get(name)

    def __getitem__(self, name: str) -> Member:
        return self._workers[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self._workers.values())

    @property
    def skills(self) -> set[str]:
        return {skill for worker in self for skill in worker.skills}

    @property
    def names(self) -> set[str]:
        """Everything that a task may name: workers and skills."""
        return self.skills | set(self._workers)

    def lacks(self, tasks: Iterable[Task]) -> list[str]:
        """What these tasks name that is not here."""
        names = self.names
        wanted = (task.worker or task.skill for task in tasks)
        return sorted({name for name in wanted if name not in names})
