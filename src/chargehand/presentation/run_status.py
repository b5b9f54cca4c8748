"""The status of a run in one word, including runs without a leader and unreadable runs."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
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

#: prefix of the ids of nested runs
NESTED = "n"
BELOW = " › "
#: status of a run that exists but cannot be read
UNREADABLE = "unreadable"
#: status of a run that waits for a server to start it
SUBMITTED = RunState.SUBMITTED.value
#: status of a run that waits for a person's answer, whether a process leads it or not
WAITING = RunState.WAITING.value
#: status of an unfinished run that no process leads
INTERRUPTED = "interrupted"
T = TypeVar("T")


def status_words(status: str, answered: Collection[str] = ()) -> str:
    """A status in words; `answered` are the answers that no process has read yet."""
    if status == INTERRUPTED and answered:
        return "answered"  # nothing went wrong: it only has to be resumed
    return "waits for an answer" if status == WAITING else status


def status_of(result: RunResult) -> str:
    """The status of a run. A run with work to do but without a living leader is `interrupted`."""
    if result.parked and not isinstance(result.status, RunStatus):
        return "parked"
    if result.approach is Approach.POOL and result.answered and not result.questions:
        return RunState.RUNNING.value  # all is answered, and the next worker continues it
    return INTERRUPTED if result.is_interrupted else result.status.value


def answered_words(result: RunResult, question: str) -> str:
    """How a run continues after this question was answered, if no process has read the answer yet."""
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
    """A process in words: its pid and host."""
    return f"process {process.pid} on {process.host}"


def is_nested(head: Head) -> bool:
    """Whether this run is nested, as a task of another run."""
    return head.stream.startswith(NESTED)


async def looked_at(
    heads: Iterable[Head], look: Callable[[Head], Awaitable[T]]
) -> list[tuple[Head, T | ChargehandError]]:
    """Call `look` for each run; for a run that cannot be read, the error takes the place of the result.

    Runs that retention deletes meanwhile are left out.
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
    """All supervisors nested in this one, at any depth, each with its path."""
    for member in boss.roster:
        if isinstance(member, Supervisor):
            path = f"{above}{member.name}{BELOW}"
            yield path, member
            yield from nested_in(member, path)
