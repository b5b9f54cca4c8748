"""What the journal says of single tasks, attempts and steps of a run, read naively."""

from datetime import datetime

from chargehand.facts.events import AttemptStarted, RetryPlanned, StepStarted
from chargehand.facts.outcome import Failed, Question
from chargehand.facts.plan import Task
from tests.simulation.ledger import Entry


class AttemptStory:
    """One attempt, as journaled."""

    def __init__(self, entry: Entry, event: AttemptStarted) -> None:
        self.number = event.attempt
        self.worker = event.worker
        self.epoch = entry.epoch
        self.author = entry.author
        self.at = event.at
        #: finished, lost, preempted or parked; empty while it is open
        self.ending = ""


class TaskStory:
    """One task, as journaled."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.attempts: list[AttemptStory] = []
        #: done, failed, skipped or cancelled; empty while it may go on
        self.ending = ""
        #: the digest of its result
        self.output = ""
        #: where several are asked: its answer
        self.says = ""
        self.failures: list[Failed] = []
        #: since it last got a step done
        self.losses = 0
        #: the retry that is waited for
        self.retry: RetryPlanned | None = None
        self.last_retry: RetryPlanned | None = None
        #: it waits for a provider
        self.parked_until: datetime | None = None
        #: the worker that did
        self.failed_first = ""
        #: what a person has said is to become of it, and nothing has come of that yet
        self.told = ""
        #: it failed, and the run goes on without it
        self.is_waived = False
        self.question: Question | None = None
        self.asked_at: datetime | None = None
        #: an attempt failed, and nothing has been said of what becomes of the task
        self.is_unjudged = False
        self.is_expired = False
        #: not begun, and it could not be done before its deadline any more
        self.is_too_late = False
        #: mapped: its items have ended, and it is to be made of them
        self.is_due = False
        #: mapped: its items could not be listed, or too few of them are done
        self.is_short = False
        #: done, but not all of it
        self.has_gaps = False
        self.is_removed = False
        self.is_replaced = False
        #: when it was first told to stop
        self.told_at: datetime | None = None

    @property
    def is_answer(self) -> bool:
        return self.task.id == "@answer"

    @property
    def open(self) -> AttemptStory | None:
        return self.attempts[-1] if self.attempts and not self.attempts[-1].ending else None


class StepStory:
    """One step of one task, by its key, as journaled."""

    def __init__(self, event: StepStarted) -> None:
        self.intent = event
        self.attempts: list[int] = []
        #: in the present line of attempts
        self.is_done = False
        #: how often a person said that it may run again
        self.permissions = 0
