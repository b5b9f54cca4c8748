"""The roster: the workers that a plan may name."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from chargehand.decisions.dispatch import Place
from chargehand.decisions.system_tasks import ANSWERER, PLANNER, REFINER
from chargehand.errors import ChargehandError, UsageError
from chargehand.facts.argument_checks import shown
from chargehand.facts.plan import Task
from chargehand.facts.value import canonical, digest_of
from chargehand.roles.function_worker import Where, Work, refuse_system_name
from chargehand.roles.shared_resources import Resources

#: workers of which a run keeps what they were made of
MOST_COMPARED = 100
#: what the steps of a worker rest on
_STEPS = ("instructions", "tools", "model")


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

    def work(self, resources: Resources) -> Work:
        """What an attempt of this member is, with what these resources offer."""

    def version(self, resources: Resources) -> str:
        """Changes when its results may: with its words, its tools, its model. Empty: never reuse them."""


class Roster:
    """Workers by name; their skills are names that a task may give instead."""

    def __init__(self, workers: Sequence[Member], *, withheld: Iterable[str] = ()) -> None:
        self._workers: dict[str, Member] = {}
        #: skills that tasks may not name
        self._withheld = frozenset(withheld)
        if not hasattr(workers, "__iter__"):
            raise UsageError(
                f"workers={shown(workers)} is not a list; give a list of workers: [worker]"
            )
        for worker in workers:
            self.join(worker)
        lines = sorted([w.name, w.description, *sorted(w.skills)] for w in self)
        #: of the names, descriptions and skills that it began with; who joins or leaves later does
        #: not make it another crew
        self.digest = digest_of(canonical(lines))

    def check_secrets(self, resources: Resources) -> None:
        """Raise `UsageError` if a worker is granted a secret that the supervisor does not have."""
        for worker in self:
            resources.granted(worker.name, getattr(worker, "secrets", ()))

    def members(self, resources: Resources, levels: int = 4) -> dict[str, dict[str, str]]:
        """What each worker is made of, to be compared when a run is resumed; nothing for a large roster.

        So many `levels` of supervisors that are workers are looked into.
        """
        if len(self._workers) > MOST_COMPARED or not levels:
            return {}
        return {worker.name: _made_of(worker, resources, levels) for worker in self}

    def join(self, worker: Member) -> None:
        """Put another worker on it."""
        if not hasattr(worker, "work") or not hasattr(worker, "place"):
            raise UsageError(
                f"{shown(worker)} is not a worker; decorate it with @chargehand.worker(name, description)"
            )
        if worker.name in self._workers:
            raise UsageError(f"two workers are named {worker.name!r}; names must be unique")
        refuse_system_name(worker.name)
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
        return {skill for worker in self for skill in worker.skills} - self._withheld

    @property
    def names(self) -> set[str]:
        """Everything that a task may name: workers and skills."""
        return self.skills | set(self._workers)

    def limited_to(self, names: Collection[str]) -> "Roster":
        """The roster of a run that may use these workers only; no names: the whole roster.

        A skill that others have too cannot be named on it: the pool might give such a task to one of them.
        """
        if not names:
            return self
        others = [worker for worker in self if worker.name not in names]
        chosen = [worker for worker in self if worker.name in names]
        return Roster(chosen, withheld={skill for each in others for skill in each.skills})

    def lacks(self, tasks: Iterable[Task]) -> list[str]:
        """What these tasks name that is not here."""
        names = self.names
        wanted = (task.worker or task.skill for task in tasks)
        return sorted({name for name in wanted if name not in names})


def differences(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """How workers differ from what they were, one line for each."""
    told = [f"{name} is gone" for name in before if name not in now]
    told += [f"{name} is new" for name in now if name not in before]
    for name in before.keys() & now.keys():
        if changed := _change(before[name], now[name]):
            told.append(f"{name}: {changed}")
    return sorted(told)


def _change(was: Mapping[str, str], is_: Mapping[str, str]) -> str:
    """What is different about a worker, in words; empty if nothing is."""
    parts = [part for part in {**was, **is_} if was.get(part) != is_.get(part)]
    causes = [part for part in ("description", "tools") if part in parts]
    if causes and "instructions" in parts:
        # The prompt holds all three, and it is the prompt whose digest is stored as "instructions".
        parts.remove("instructions")
        parts[parts.index(causes[-1])] += " (and with it another prompt)"
    return f"another {', '.join(parts)}" if parts else ""


def versions(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """New versions, by worker, of those whose recorded steps are of no use any more.

    A function does the same steps whatever its description says. The supervisor's own steps rest on all workers.
    """
    new = {
        name: _short(made)
        for name, made in now.items()
        if name in before and any(made.get(part) != before[name].get(part) for part in _STEPS)
    }
    if before != now:
        new |= dict.fromkeys((PLANNER, REFINER, ANSWERER), _short(now))
    return new


def changed_workers(
    before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """What has changed, by worker whose results may be others now: for their prompts, tools, model or crew."""
    return {
        name: _change(before[name], now[name])
        for name in before.keys() & now.keys()
        if any(before[name].get(part) != now[name].get(part) for part in (*_STEPS, "crew"))
    }


def _made_of(worker: Member, resources: Resources, levels: int) -> dict[str, str]:
    """Short digests of a worker's description, skills and, if a model does its work, words and tools."""
    made = {"description": _short(worker.description)}
    if worker.skills:
        made["skills"] = _short(sorted(worker.skills))
    crew = getattr(worker, "roster", None)
    if isinstance(crew, Roster) and (below := crew.members(resources, levels - 1)):
        made["crew"] = _short(below)
    opening, toolbox = getattr(worker, "opening", None), getattr(worker, "toolbox", None)
    if opening is None or toolbox is None:
        return made
    made["instructions"] = _short(opening.text)
    made["tools"] = _short([tool.version for tool in toolbox])
    try:
        models = resources.models(getattr(worker, "model", None), f"worker {worker.name!r}")
    except ChargehandError:
        return made  # it cannot be opened here; whoever leads the run needs it, and says so
    made["model"] = ", ".join(model.name for model in models)
    return made


def _short(value: object) -> str:
    return digest_of(canonical(value))[:12]
