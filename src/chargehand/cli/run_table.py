"""Runs as rows of a table, or as JSON lines."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from chargehand.cli.safe_text import clean_json, money_words, table
from chargehand.crews.durations import shown_length
from chargehand.decisions.task_graph import TaskState
from chargehand.errors import ChargehandError
from chargehand.facts.events import Approach, RunStatus
from chargehand.facts.outcome import Question
from chargehand.journal.base import Head
from chargehand.result import RunResult


class RunRow(Struct, frozen=True):
    """One run, as `chargehand runs` tells it."""

    run: str
    status: str
    requested_at: datetime | None
    request: str
    done: int
    tasks: int
    calls: int
    tokens: int
    money: float
    questions: tuple[str, ...]


UNREADABLE = "unreadable"
"""The status of a run that is there and cannot be read."""


def unreadable(head: Head, error: ChargehandError) -> RunRow:
    """The row of a run that cannot be read."""
    words = f"{error}; chargehand verify {head.stream} says what can be saved"
    return RunRow(head.stream, UNREADABLE, head.began_at, words, 0, 0, 0, 0, 0.0, ())


def told(head: Head, result: RunResult, status: str, asked: Sequence[Question]) -> RunRow:
    states = [task.state for task in result.tasks.values()]
    return RunRow(
        run=result.id,
        status=status,
        requested_at=head.began_at,
        request=result.request,
        done=states.count(TaskState.DONE),
        tasks=len(states),
        calls=result.usage.calls,
        tokens=result.usage.tokens_in + result.usage.tokens_out,
        money=result.usage.money,
        questions=tuple(question.id for question in asked),
    )


def status_of(result: RunResult, owner: str) -> str:
    """How a run stands; one that no living process leads is interrupted."""
    is_led = result.approach is not Approach.POOL
    if result.parked and not isinstance(result.status, RunStatus):
        return "parked"
    is_left = is_led and not owner and not isinstance(result.status, RunStatus)
    return "interrupted" if is_left else result.status.value


def when_heard(result: RunResult) -> str:
    """When something that was sent to a run takes effect."""
    if result.approach is Approach.POOL:
        return "as soon as an agent of its pool looks at it"
    return "as soon as whoever leads it hears of it; if nobody does, resume it"


def listed(rows: Sequence[RunRow]) -> Iterator[str]:
    yield from (clean_json(msgspec.json.encode(row)).decode() for row in rows)


def listing(rows: Sequence[RunRow], width: int) -> Iterator[str]:
    head = ("run", "status", "age", "tasks", "cost", "request")
    now = datetime.now(UTC)
    cells = [
        (
            row.run,
            f"{row.status} (asks)" if row.questions else row.status,
            shown_length(max(now - row.requested_at, timedelta(0))) if row.requested_at else "–",
            f"{row.done}/{row.tasks}",
            money_words(row.money),
            row.request,
        )
        for row in rows
    ]
    yield table(head, cells, width)
