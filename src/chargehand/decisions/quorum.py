"""Quorum: several workers do the same task, and enough of them must agree on its result."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.errors import UsageError
from chargehand.facts.plan import Need, Task
from chargehand.facts.value import canonical

#: the worker that counts the votes; it must be on the roster
VOTE = "vote"

#: characters of each result in an explanation
SHOWN = 80


def quorum(task: Task, agree: int, of: int, *, workers: Sequence[str] = ()) -> list[Task]:
    """Tasks that run `task` `of` times and take the result that at least `agree` of them agree on.

    The last of them has the id of `task`, so other tasks only need that one. The others are
    `ID.1`, `ID.2` and so on; each may fail, and `workers` take them in turn. `chargehand.vote`
    must be on the roster.
    """
    if not 1 <= agree <= of:
        raise UsageError(
            f"quorum of {task.id!r}: {agree} of {of} cannot agree; 1 to {of} can, if there are any"
        )
    askings = [_asking(task, number, workers) for number in range(1, of + 1)]
    counting = Task(
        id=task.id,
        description=f"Take what {agree} of {of} agree on: {task.description}",
        worker=VOTE,
        needs=[Need(each.id, optional=True) for each in askings],
        args={"agree": agree},
        optional=task.optional,
        priority=task.priority,
        deadline=task.deadline,
    )
    return [*askings, counting]


class Ballot(Struct, frozen=True):
    """Which of several results agree."""

    #: the largest group, by name; of equally large groups, the first
    agreed: tuple[str, ...]
    #: groups of names with equal results, the largest first
    groups: tuple[tuple[str, ...], ...]


def count(answers: Mapping[str, Any]) -> Ballot:
    """Group equal results. They are compared as JSON; texts without case, spacing and the last full stop."""
    groups: dict[bytes, list[str]] = {}
    for name, answer in answers.items():
        groups.setdefault(canonical(plain(answer)), []).append(name)
    ordered = sorted((tuple(names) for names in groups.values()), key=len, reverse=True)
    return Ballot(ordered[0] if ordered else (), tuple(ordered))


def disagreement(answers: Mapping[str, Any], missing: Mapping[str, str], agree: int) -> str:
    """Why there is no quorum, with every result."""
    of = len(answers) + len(missing)
    said = [f"{name} says {_short(canonical(answer).decode())}" for name, answer in answers.items()]
    silent = [f"{name} says nothing ({_short(why)})" for name, why in missing.items()]
    return f"no {agree} of {of} agree: {'; '.join([*said, *silent])}"


def _asking(task: Task, number: int, workers: Sequence[str]) -> Task:
    own = replace(task, id=f"{task.id}.{number}", optional=True)
    if not workers:
        return own
    return replace(own, worker=workers[(number - 1) % len(workers)], skill="")


def plain(answer: Any) -> Any:
    """The form in which results are compared: texts in lower case, with single spaces and no last full stop."""
    if isinstance(answer, str):
        return " ".join(answer.casefold().split()).removesuffix(".")
    if isinstance(answer, float) and answer.is_integer():
        return int(answer)
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [plain(value) for value in answer]
    return answer


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
