"""Turns the events of the runs that this process leads into notices to people."""

import asyncio
import logging
import shlex
from collections.abc import Iterable
from datetime import timedelta

from msgspec.structs import replace

from chargehand.decisions.budget import OVER_BUDGET
from chargehand.decisions.schedule import Schedule
from chargehand.decisions.task_graph import TaskNode
from chargehand.facts.events import (
    AttemptFinished,
    Event,
    PersonAsked,
    QuestionAnswered,
    QuestionExpired,
    RunFinished,
    RunLed,
    RunStatus,
)
from chargehand.facts.outcome import NeedsInput, Question
from chargehand.notify.base import Notice, NoticeKind, Notify
from chargehand.notify.delivery import NoticeDelivery
from chargehand.notify.open_notifier import open_notifiers

log = logging.getLogger("chargehand")

#: time to send the remaining notices when the supervisor has nothing else to do
GRACE = timedelta(seconds=5)
#: characters of these parts of a notice
EVIDENCE, REQUEST = 4_000, 500


class RunNotices:
    """Sends notices about open questions and about the ends of runs, once the events are durable.

    A question that is still open when a run is resumed is sent again, under the same id.
    """

    def __init__(self, notify: Notify) -> None:
        self._deliveries: list[NoticeDelivery] = []
        self.add(notify)

    def add(self, notify: Notify) -> None:
        """Add notifiers. Raises `UsageError` for anything that is not a notifier."""
        self._deliveries += [
            NoticeDelivery(notifier, of) for notifier, of in open_notifiers(notify)
        ]

    def hear(self, run: str, event: Event, schedule: Schedule, journal: str) -> None:
        """Queue the notices of an event that is durable. Never waits and never raises.

        `journal` is the path of the journal for other processes; empty if they cannot open it.
        """
        try:
            self._hear(run, event, schedule, journal)
        except Exception:
            log.exception("notices_failed run=%s event=%s", run, type(event).__name__)

    def _hear(self, run: str, event: Event, schedule: Schedule, journal: str) -> None:
        match event:
            case AttemptFinished(outcome=NeedsInput()) | PersonAsked():
                self._ask(
                    [schedule.nodes[event.task]], _head(run, event, schedule, journal), journal
                )
            case RunLed():
                self._ask(schedule.nodes.values(), _head(run, event, schedule, journal), journal)
            case QuestionAnswered() | QuestionExpired():
                self._withdraw(run, event.question)
            case RunFinished():
                self._withdraw(run)
                # Only for top-level runs: nobody waits for a nested run.
                if schedule.requested is not None and not schedule.requested.parent:
                    self._send(_ended(event, _head(run, event, schedule, journal)))
            case _:
                pass  # no notice for this event

    async def settle(self, grace: timedelta = GRACE) -> None:
        """Wait up to `grace` until the queued notices are sent. Returns at once if there are none."""
        await asyncio.gather(*(delivery.settle(grace) for delivery in self._deliveries))

    def _ask(self, nodes: Iterable[TaskNode], head: Notice, journal: str) -> None:
        for node in nodes:
            if node.question is not None:  # None: it asks nothing, or was stopped meanwhile
                self._send(_asked(node, node.question, head, journal))

    def _send(self, notice: Notice) -> None:
        for delivery in self._deliveries:
            delivery.take(notice)

    def _withdraw(self, run: str, question: str = "") -> None:
        for delivery in self._deliveries:
            delivery.withdraw(run, question)


def _head(run: str, event: Event, schedule: Schedule, journal: str) -> Notice:
    """The fields that all notices of a run share."""
    requested = schedule.requested
    return Notice(
        id=run,
        kind=NoticeKind.FINISHED,
        run=run,
        text="",
        at=event.at,
        request="" if requested is None else requested.request[:REQUEST],
        show=_command(journal, "show", run),
    )


def _asked(node: TaskNode, question: Question, head: Notice, journal: str) -> Notice:
    return replace(
        head,
        id=question.id,
        kind=NoticeKind.QUESTION,
        text=question.text,
        task=node.task.id,
        question=question.id,
        about=question.about,
        choices=question.choices,
        telling=question.telling,
        default=question.default,
        deadline_at=node.due_at,
        evidence=_evidence(question),
        answer=_command(journal, "answer", question.id, "TEXT"),
    )


def _evidence(question: Question) -> str:
    value = question.evidence
    shown = "" if value.blob else bytes(value.json).decode()
    return "" if shown == "null" else shown[:EVIDENCE]


def _ended(event: RunFinished, head: Notice) -> Notice:
    status, kind = event.status, NoticeKind.FINISHED
    if event.reason.startswith(OVER_BUDGET):
        kind = NoticeKind.BUDGET
    elif status is RunStatus.FAILED:
        kind = NoticeKind.FAILED
    why = f" ({event.reason})" if event.reason else ""
    missing = f"; not done: {', '.join(event.missing[:10])}" if event.missing else ""
    text = f"the run has ended: {status.value}{why}{missing}"
    return replace(head, id=f"{head.run}:{status.value}", kind=kind, text=text, status=status.value)


def _command(journal: str, *words: str) -> str:
    """The command line; empty for a journal in memory, which no other process can open."""
    return shlex.join(["chargehand", *words, "--journal", journal]) if journal else ""
