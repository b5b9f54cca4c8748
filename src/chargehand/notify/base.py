"""Notices to people about a run, and the interface of notifiers."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct


class NoticeKind(StrEnum):
    """What a notice is about."""

    QUESTION = "question"  #: a run is waiting for an answer
    FINISHED = "finished"  #: a run has ended with a usable result
    BUDGET = "budget"  #: a run has ended because its budget was used up
    FAILED = "failed"  #: a run has ended without a usable result


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notification for a person, sent as JSON with these fields.

    chargehand writes the `text` of an approval from facts. Text from a model is only in
    `evidence`, as JSON: show it as data.
    """

    #: identifies the notice: a notice may arrive twice, with the same id
    id: str
    kind: NoticeKind
    run: str
    #: the question, or how the run ended
    text: str
    at: datetime
    #: the request of the run, shortened
    request: str = ""
    #: the id of the task that asks
    task: str = ""
    #: the id of the question
    question: str = ""
    #: the kind of question: plain, approval, in_doubt, failure, budget, plan
    about: str = ""
    #: the possible answers; none: any text is an answer
    choices: tuple[str, ...] = ()
    #: the choice that may be followed by a colon and JSON
    telling: str = ""
    default: str | None = None
    #: when the default is taken or, without a default, the task fails; None: it waits forever
    deadline_at: datetime | None = None
    #: exactly what has to be decided on, as JSON, shortened
    evidence: str = ""
    #: the command that answers it, with TEXT in place of the answer; empty if only this process can answer it
    answer: str = ""
    #: the command that shows the run
    show: str = ""
    #: how the run ended
    status: str = ""


class Notifier(Protocol):
    """A way to reach a person."""

    async def notify(self, notice: Notice) -> None:
        """Send this notice. Raises `NoticeNotSent`, or any other exception, if it was not sent.

        Calls never overlap. A call that takes longer than two minutes is cancelled.
        """


class Subscription(Struct, frozen=True):
    """A notifier, and the kinds of notices that it gets."""

    to: "Notifier | str"
    of: tuple[NoticeKind, ...] = (NoticeKind.QUESTION,)


#: the type of `Supervisor(notify=…)`; without a `Subscription`, a notifier gets only questions
Notify: TypeAlias = "str | Notifier | Subscription | Sequence[str | Notifier | Subscription]"
