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
        self.ending = ""
        #: finished, lost, preempted or parked; empty while it is open


class TaskStory:
    """One task, as journaled."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.attempts: list[AttemptStory] = []
        self.ending = ""
        #: done, failed, skipped or cancelled; empty while it may go on
        self.output = ""
        #: the digest of its result
        self.says = ""
        #: where several are asked: its answer
        self.failures: list[Failed] = []
        self.losses = 0
        #: since it last got a step done
        self.retry: RetryPlanned | None = None
        #: the retry that is waited for
        self.last_retry: RetryPlanned | None = None
        self.parked_until: datetime | None = None
        #: it waits for a provider
        self.failed_first = ""
        #: the worker that did
        self.told = ""
        #: what a person has said is to become of it, and nothing has come of that yet
        self.is_waived = False
        #: it failed, and the run goes on without it
        self.question: Question | None = None
        self.asked_at: datetime | None = None
        self.is_unjudged = False
        #: an attempt failed, and nothing has been said of what becomes of the task
        self.is_expired = False
        self.is_too_late = False
        #: not begun, and it could not be done before its deadline any more
        self.is_removed = False
        self.is_replaced = False
        self.told_at: datetime | None = None
        #: when it was first told to stop

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
        self.is_done = False
        #: in the present line of attempts
        self.permissions = 0
        #: how often a person said that it may run again
