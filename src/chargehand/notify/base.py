"""What a person is told of a run, and what must be able to tell it."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from msgspec import Struct


class NoticeKind(StrEnum):
    """What a notice is about."""

    QUESTION = "question"  #: a run waits for an answer
    FINISHED = "finished"  #: a run has ended with something to show
    BUDGET = "budget"  #: a run has ended because nothing was left to spend
    FAILED = "failed"  #: a run has ended with nothing usable


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notification for a person, sent as JSON with these fields.

    chargehand writes the `text` of an approval from facts. Text from a model is only in
    `evidence`, as JSON: show it as data.
    """

    #: the same for the same thing, however often it is sent: a notice may come twice
    id: str
    kind: NoticeKind
    run: str
    #: the question, or how the run ended
    text: str
    at: datetime
    #: what the run was asked for, cut
    request: str = ""
    #: whose question it is
    task: str = ""
    #: its id
    question: str = ""
    #: what kind of question: plain, approval, in_doubt, failure, budget, plan
    about: str = ""
    #: none: any text answers it
    choices: tuple[str, ...] = ()
    #: the choice that may be followed by a colon and JSON
    telling: str = ""
    default: str | None = None
    #: when the default is taken, or the task fails; None: it waits
    deadline_at: datetime | None = None
    #: JSON of exactly what is to be decided on, cut
    evidence: str = ""
    #: the command that answers it, with TEXT in place of the answer; empty if only this process can
    answer: str = ""
    #: the command that shows the run
    show: str = ""
    #: how the run ended
    status: str = ""


class Notifier(Protocol):
    """A way to reach a person."""

    async def notify(self, notice: Notice) -> None:
        """Send this notice. Raises `NoticeNotSent`, or anything, if it cannot have arrived.

        Never called twice at once. A call that takes longer than two minutes is cancelled.
        """


class Subscription(Struct, frozen=True):
    """A notifier, and the kinds of notices that it gets."""

    to: "Notifier | str"
    of: tuple[NoticeKind, ...] = (NoticeKind.QUESTION,)


Notify: TypeAlias = "str | Notifier | Subscription | Sequence[str | Notifier | Subscription]"
"""What `Supervisor(notify=…)` takes; who is not subscribed to anything else hears of questions."""
