"""How runs stand: their status in a word, also of runs that no process leads or that cannot be read."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from chargehand.decisions.schedule import RunState
from chargehand.errors import (
    ChargehandError,
    InternalError,
    JournalDamaged,
    JournalVersion,
    UnknownRun,
)
from chargehand.facts.events import Approach, RunStatus
from chargehand.journal.base import Head, Process
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor

#: ids of runs that are tasks of others begin so
NESTED = "n"
BELOW = " › "
#: the status of a run that is there and cannot be read
UNREADABLE = "unreadable"
#: the status of a run that waits for a supervisor to start it
SUBMITTED = RunState.SUBMITTED.value
#: the status of a run that goes on once a person has answered, whether a process leads it or not
WAITING = RunState.WAITING.value
#: the status of a run that no process leads
INTERRUPTED = "interrupted"
T = TypeVar("T")


def status_words(status: str) -> str:
    """A status for reading."""
    return "waits for an answer" if status == WAITING else status


def status_of(result: RunResult) -> str:
    """How a run stands; one that has work to do and that no living process leads is interrupted."""
    if result.parked and not isinstance(result.status, RunStatus):
        return "parked"
    if result.approach is Approach.POOL and result.answered and not result.questions:
        return RunState.RUNNING.value  # all is answered, and the next worker takes it up
    return INTERRUPTED if result.is_interrupted else result.status.value


def answered_words(result: RunResult, question: str) -> str:
    """How a run goes on in which this question was answered and nobody has taken in the answer."""
    if result.approach is not Approach.POOL:
        return "it continues when a process leads the run"
    asking = next(
        (t.task for t in result.tasks.values() if t.question and t.question.id == question), None
    )
    if asking is None:
        return "it continues when a worker of its pool runs"
    who = f"worker {asking.worker!r}" if asking.worker else f"a worker with skill {asking.skill!r}"
    return f"it continues when a process runs {who} of its pool again (WorkerAgent.serve)"


def process_words(process: Process) -> str:
    """Which process it is, as a person finds it."""
    return f"process {process.pid} on {process.host}"


def is_nested(head: Head) -> bool:
    """Whether this run is a task of another."""
    return head.stream.startswith(NESTED)


async def looked_at(
    heads: Iterable[Head], look: Callable[[Head], Awaitable[T]]
) -> list[tuple[Head, T | ChargehandError]]:
    """What looking at each of these runs shows; of one that cannot be read, why.

    One that retention deletes meanwhile is left out.
    """
    found: list[tuple[Head, T | ChargehandError]] = []
    for head in heads:
        try:
            found.append((head, await look(head)))
        except UnknownRun:
            continue
        except (JournalDamaged, JournalVersion, InternalError) as error:
            found.append((head, error))
    return found


def nested_in(boss: Supervisor, above: str = "") -> Iterator[tuple[str, Supervisor]]:
    """The supervisors on its roster, and on theirs, each with the path that leads to it."""
    for member in boss.roster:
        if isinstance(member, Supervisor):
            path = f"{above}{member.name}{BELOW}"
            yield path, member
            yield from nested_in(member, path)
