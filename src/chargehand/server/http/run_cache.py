"""Caches the state of runs for the API: reads a run from the journal once, then applies only new events."""

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from datetime import datetime
from operator import attrgetter

import msgspec
from msgspec import Struct

from chargehand.decisions.live_run import LiveRun, mistake_in
from chargehand.decisions.speedup import PersonWaits
from chargehand.decisions.trace import AttemptSpans
from chargehand.decisions.trace_types import StepSpan
from chargehand.errors import UnknownRun
from chargehand.facts.events import (
    AttemptFinished,
    Event,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    PlanOpened,
    QuestionAnswered,
    QuestionExpired,
    RunFinished,
    RunLed,
    RunReleased,
    RunRequested,
    StepFinished,
    StepStarted,
    TaskRewritten,
)
from chargehand.facts.outcome import Done, NeedsInput, Question
from chargehand.journal.base import Journal
from chargehand.runtime.command_inbox import submission_of

#: most runs whose state is cached
MOST_RECORDS = 32
#: events after which to yield to the event loop
SLICE = 200


class CallRecord(Struct):
    """A step of an attempt, and the events with its arguments and its result."""

    #: number of the event that started it, which is also its id
    seq: int
    task: str
    attempt: int
    span: StepSpan
    #: number of the event that ended it; 0 if it has not ended
    ended: int = 0


class PostedBy(Struct, frozen=True):
    """The attempt that wrote a note on a board."""

    task: str
    attempt: int


class _PostedEvent(Struct, frozen=True):
    at: datetime


class _Posted(Struct, frozen=True):
    """The result of a step that posts a note; see `roles/board.py`."""

    event: _PostedEvent
    seq: int


_posted: msgspec.json.Decoder[_Posted] = msgspec.json.Decoder(_Posted)
#: prefix of the names of steps that post a note
_POST = "board.post"


class AskedQuestion(Struct):
    """A question of a run, open or closed."""

    question: Question
    task: str
    asked_at: datetime
    answered: QuestionAnswered | None = None
    is_expired: bool = False


class PlanChange(Struct, frozen=True):
    """One version of a plan."""

    version: int
    at: datetime
    reason: str
    #: number of the event
    seq: int


class RunRecord:
    """The cached state of one run: schedule, attempts, calls and questions. Payloads stay in the journal."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.seq = 0
        self.live_run = LiveRun(run)
        self.spans = AttemptSpans(content=False)
        self.person_waits = PersonWaits()
        self.calls: list[CallRecord] = []
        self.questions: dict[str, AskedQuestion] = {}
        #: the attempt that wrote each note, by number and time of the note: the number is unique only per board
        self.posted: dict[tuple[int, datetime], PostedBy] = {}
        self.versions: list[PlanChange] = []
        self.rewrites: dict[str, list[str]] = {}
        self.ended_at: datetime | None = None
        self.goal = ""
        #: node of the current or last leader; empty if the run was released
        self.node = ""
        self.lock = asyncio.Lock()
        self._begun: dict[tuple[str, str, int], CallRecord] = {}

    @property
    def requested(self) -> RunRequested:
        """The event `RunRequested`. Raises `UnknownRun` if it has not been applied yet."""
        requested = self.live_run.schedule.requested
        if requested is None:
            raise UnknownRun(self.run)
        return requested

    def call(self, seq: int) -> CallRecord | None:
        """The call that started with this event."""
        place = bisect_left(self.calls, seq, key=attrgetter("seq"))
        found = self.calls[place : place + 1]
        return found[0] if found and found[0].seq == seq else None

    def apply(self, seq: int, event: Event) -> None:
        """Apply the next event."""
        try:
            self.live_run.replay((event,))
            self.spans.apply(event)
            self.person_waits.apply(event)
        except Exception as error:
            raise mistake_in(self.run, error) from error
        self.seq = seq
        match event:
            case StepStarted():
                span = self.spans.step(event)
                if span is not None:
                    call = CallRecord(seq, event.task, event.attempt, span)
                    self.calls.append(call)
                    self._begun[event.task, event.name, event.ordinal] = call
            case StepFinished():
                begun = self._begun.get((event.task, event.name, event.ordinal))
                if begun is not None:
                    begun.ended = seq
                if event.name.startswith(_POST):
                    self._note_post(event)
            case (
                AttemptFinished(outcome=NeedsInput(question=question))
                | PersonAsked(question=question)
            ):
                asked = AskedQuestion(question, event.task, event.at)
                self.questions.setdefault(question.id, asked)
            case QuestionAnswered() if event.question in self.questions:
                self.questions[event.question].answered = event
            case QuestionExpired() if event.question in self.questions:
                self.questions[event.question].is_expired = True
            case TaskRewritten():
                self.rewrites.setdefault(event.task, []).append(event.description)
            case RunFinished():
                self.ended_at = event.at
            case RunLed():
                self.node = event.node
            case RunReleased():
                self.node = ""
            case _:
                self._note_plan(seq, event)

    def _note_post(self, event: StepFinished) -> None:
        outcome = event.outcome
        if not isinstance(outcome, Done) or outcome.value.blob:
            return
        try:
            posted = _posted.decode(outcome.value.json)
        except msgspec.DecodeError:
            return  # a worker's own step with such a name
        self.posted[posted.seq, posted.event.at] = PostedBy(event.task, event.attempt)

    def _note_plan(self, seq: int, event: Event) -> None:
        match event:
            case PlanAdopted(plan=plan):
                self.goal = plan.goal
                self.versions.append(PlanChange(plan.version, event.at, "", seq))
            case PlanOpened():
                self.goal = event.goal
                self.versions.append(PlanChange(1, event.at, "", seq))
            case PlanAmended():
                self.versions.append(PlanChange(event.version, event.at, event.reason, seq))
            case _:
                pass


class RunRecords:
    """An LRU cache of runs, by id."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._records: OrderedDict[str, RunRecord] = OrderedDict()

    async def read(self, run: str) -> RunRecord:
        """The current state of a run. Raises `UnknownRun` if it does not exist."""
        record = self._records.get(run)
        if record is None:
            record = RunRecord(run)
        async with record.lock:
            try:
                await self._catch_up(record)
            except UnknownRun:
                self._records.pop(run, None)
                return await self._submitted(run)
        self._records[run] = record
        self._records.move_to_end(run)
        while len(self._records) > MOST_RECORDS:
            self._records.popitem(last=False)
        return record

    async def _catch_up(self, record: RunRecord) -> None:
        count = 0
        async for entry in self.journal.read(record.run, record.seq):
            record.apply(entry.seq, entry.event)
            count += 1
            if count % SLICE == 0:
                await asyncio.sleep(0)

    async def _submitted(self, run: str) -> RunRecord:
        """The state of a submitted run."""
        waiting = await submission_of(self.journal.mail, run)
        if waiting is None:
            # Unknown, or started between the two reads.
            record = RunRecord(run)
            await self._catch_up(record)
            return record
        record = RunRecord(run)
        for event in waiting.history:
            record.apply(0, event)
        return record
