"""The command inbox: how other processes reach the one that leads a run, through the journal."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.kernel import Kernel
from chargehand.errors import (
    JournalBusy,
    JournalDamaged,
    JournalError,
    JournalFull,
    JournalReadOnly,
    NotLeading,
    QuestionTaken,
    UnknownQuestion,
    UsageError,
)
from chargehand.facts.events import (
    BudgetChanged,
    CancelRequested,
    Event,
    PersonAsked,
    PlanAdopted,
    PlanAmended,
    QuestionAnswered,
    RunPaused,
    RunRequested,
    RunSteered,
    RunUnpaused,
    WorkStopped,
)
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import QuestionId, failed_by
from chargehand.facts.plan import Plan
from chargehand.journal.base import Head, Journal, Mail, Mailbox, submission_key
from chargehand.roles.roster import Roster

log = logging.getLogger("chargehand")

#: seconds after which a journal that cannot be read just now is read again
RETRY = 1.0
#: submitted runs that are begun with one write
AT_ONCE = 50
#: why a question about a budget is closed that nobody has answered
CHANGED = "the budget of its run was changed, which closed it"


class CancelMail(msgspec.Struct):
    """Another process wants a run to end."""

    by: str = ""
    reason: str = ""


class StopMail(msgspec.Struct):
    """Another process wants the answer now, made of what there is."""

    by: str = ""
    reason: str = ""


class PauseMail(msgspec.Struct):
    """Another process wants a run to pause, or to go on."""

    by: str = ""
    reason: str = ""


class SteerMail(msgspec.Struct):
    """Another process has a note to a run."""

    note: str
    by: str = ""


class AnswerMail(msgspec.Struct):
    """Another process has the answer to a question."""

    question: str
    task: str
    text: str
    by: str


class SubmitMail(msgspec.Struct):
    """Another process wants a run to be led here."""

    requested: RunRequested
    plan: Plan | None


class Submission(msgspec.Struct, frozen=True):
    """A run that was submitted and waits for a supervisor to start it."""

    #: the number of its letter
    mail: int
    requested: RunRequested
    plan: Plan | None

    @property
    def head(self) -> Head:
        """What stands for it among the runs that have begun."""
        at = self.requested.at
        return Head(self.requested.run, 0, 0, "", is_ended=False, began_at=at, changed_at=at)

    @property
    def history(self) -> list[Event]:
        """The events that it begins with."""
        at = self.requested.at
        adopted = [] if self.plan is None else [PlanAdopted(plan=self.plan, at=at)]
        return [self.requested, *adopted]

    def lacking(self, crew: str, names: Collection[str]) -> str:
        """Why a crew of this digest, with workers and skills of these names, cannot lead it; empty if it can."""
        if self.plan is None:
            return "" if crew == self.requested.crew else "it was submitted for another crew"
        wanted = sorted({task.worker or task.skill for task in self.plan.tasks}.difference(names))
        return f"it needs {', '.join(wanted)}" if wanted else ""


async def submissions(mail: Mailbox) -> list[Submission]:
    """The runs that were submitted and that nobody has taken up, oldest first."""
    return submissions_in(await mail.unread())


def submissions_in(letters: Iterable[Mail]) -> list[Submission]:
    """The runs that this mail submits."""
    found = []
    for letter in letters:
        if letter.subject == "submit":
            with contextlib.suppress(msgspec.MsgspecError):  # the leader that opens it names it
                found.append(submission_in(letter))
    return found


async def submission_of(mail: Mailbox, run: str) -> Submission | None:
    """The run of this id, if it was submitted and waits for a supervisor to start it."""
    return next((each for each in await submissions(mail) if each.requested.run == run), None)


def submission_in(letter: Mail) -> Submission:
    submitted = msgspec.json.decode(letter.body, type=SubmitMail)
    return Submission(letter.id, submitted.requested, submitted.plan)


def cancel_mail(run: str, by: str, reason: str) -> Mail:
    body = msgspec.json.encode(CancelMail(by, reason))
    return Mail(key=f"cancel {run}", stream=run, subject="cancel", body=body)


def stop_mail(run: str, by: str, reason: str) -> Mail:
    body = msgspec.json.encode(StopMail(by, reason))
    return Mail(key=f"stop {run}", stream=run, subject="stop", body=body)


def pause_mail(run: str, by: str, reason: str) -> Mail:
    body = msgspec.json.encode(PauseMail(by, reason))
    return Mail(key=f"pause {run} {uuid4().hex}", stream=run, subject="pause", body=body)


def unpause_mail(run: str, by: str) -> Mail:
    # A run may be paused and go on many times, so each letter has a key of its own.
    body = msgspec.json.encode(PauseMail(by))
    return Mail(key=f"unpause {run} {uuid4().hex}", stream=run, subject="unpause", body=body)


def steer_mail(run: str, by: str, note: str, key: str = "") -> Mail:
    """A note to a run; with a `key`, the same one is taken once however often it is sent."""
    name = f"steer {run} {key or uuid4().hex}"
    body = msgspec.json.encode(SteerMail(note, by))
    return Mail(key=name, stream=run, subject="steer", body=body)


def budget_mail(run: str, changed: BudgetChanged) -> Mail:
    # As the event itself: there is nothing to add but the instant at which it is taken in.
    body = msgspec.json.encode(changed)
    return Mail(key=f"budget {run} {uuid4().hex}", stream=run, subject="budget", body=body)


def amend_mail(run: str, change: PlanAmended) -> Mail:
    # One change of each version: of two that race, the second is refused.
    body = msgspec.json.encode(change)
    return Mail(key=f"amend {run} {change.version}", stream=run, subject="amend", body=body)


async def why_closed(journal: Journal, question: str) -> UnknownQuestion:
    """The error that says why a question is not open: answered by whom, ended, or no such id."""
    # The letters come first: one that is taken in meanwhile is then found among the events.
    letters = await journal.mail.unread()
    is_asked, why = False, ""
    async for entry in journal.read(QuestionId.read(question).run):
        event = entry.event
        if isinstance(event, QuestionAnswered) and event.question == question:
            return QuestionTaken(question, event.by, event.text)
        if isinstance(event, PersonAsked) and event.question.about == ABOUT_BUDGET:
            is_asked |= event.question.id == question
            why = f"{CHANGED}; {event.question.id} was asked instead" if why else ""
        elif isinstance(event, BudgetChanged) and is_asked:
            why = why or CHANGED
    known = answers_in(letters).get(question)
    return (
        UnknownQuestion(question, why)
        if known is None
        else QuestionTaken(question, known.by, known.text)
    )


def answer_mail(run: str, answer: AnswerMail) -> Mail:
    key = f"answer {answer.question}"
    return Mail(key=key, stream=run, subject="answer", body=msgspec.json.encode(answer))


def answers_in(letters: Iterable[Mail]) -> dict[str, AnswerMail]:
    """By question: the answers that wait for a leader. Letters that cannot be read are left to it."""
    found: dict[str, AnswerMail] = {}
    for letter in letters:
        if letter.subject == "answer":
            with contextlib.suppress(msgspec.MsgspecError):
                answer = msgspec.json.decode(letter.body, type=AnswerMail)
                found[answer.question] = answer
    return found


def submit_mail(requested: RunRequested, plan: Plan | None) -> Mail:
    body = msgspec.json.encode(SubmitMail(requested, plan))
    return Mail(key=submission_key(requested.run), stream="", subject="submit", body=body)


def told_by(letter: Mail, now: datetime) -> Event | None:
    """What a letter to a run says has happened; None for one that cannot be read, which is logged."""
    try:
        return _event_in(letter, now)
    except Exception as error:  # noqa: BLE001 - whatever somebody else has written there
        _refuse(letter, error)
        return None


def _event_in(letter: Mail, now: datetime) -> Event:
    match letter.subject:
        case "cancel":
            cancel = msgspec.json.decode(letter.body, type=CancelMail)
            return CancelRequested(by=cancel.by, reason=cancel.reason, at=now)
        case "stop":
            stop = msgspec.json.decode(letter.body, type=StopMail)
            return WorkStopped(by=stop.by, reason=stop.reason, at=now)
        case "pause":
            pause = msgspec.json.decode(letter.body, type=PauseMail)
            return RunPaused(by=pause.by, reason=pause.reason, at=now)
        case "unpause":
            unpause = msgspec.json.decode(letter.body, type=PauseMail)
            return RunUnpaused(by=unpause.by, at=now)
        case "steer":
            steer = msgspec.json.decode(letter.body, type=SteerMail)
            return RunSteered(note=steer.note, by=steer.by, at=now)
        case "budget":
            changed = msgspec.json.decode(letter.body, type=BudgetChanged)
            return replace(changed, at=now)
        case "amend":
            return replace(msgspec.json.decode(letter.body, type=PlanAmended), at=now)
        case "answer":
            answer = msgspec.json.decode(letter.body, type=AnswerMail)
            return QuestionAnswered(
                question=answer.question,
                task=answer.task,
                text=answer.text,
                by=answer.by,
                at=now,
            )
        case _:
            raise UsageError(f"{letter.subject!r} is not a command that this version knows")


class Begun(Protocol):
    """What the inbox uses of a `BegunRun`."""

    @property
    def written(self) -> "asyncio.Future[Event | None]": ...

    @property
    def epoch(self) -> int: ...


class Opener(Protocol):
    """Begins runs."""

    def claim(self, run: str) -> AbstractAsyncContextManager[None]: ...

    async def begin(
        self, requested: RunRequested, plan: Plan | None, *, may_exist: bool = False, mail: int = 0
    ) -> "Begun | None": ...


class Leader(Protocol):
    """What the command inbox asks of the runtime it serves."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def opener(self) -> Opener: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_serving(self) -> bool: ...

    async def peers(self) -> Sequence[str]:
        """The processes that share submitted runs among them, in an order that all of them know."""

    def propose(self, run: str, event: Event, mail: int = 0) -> Awaitable[Event | None]: ...


class CommandInbox:
    """Opens what is for the runs led here, and what anybody with the right workers may take."""

    def __init__(
        self,
        journal: Journal,
        roster: Roster,
        clock: Clock,
        leader: Leader,
        refuse_unkept: Callable[[Event], None],
    ) -> None:
        self._refuse_unkept = refuse_unkept
        self._journal = journal
        self._mail = journal.mail
        self._node = journal.leases.node
        self._roster = roster
        self._clock = clock
        self._leader = leader
        self._seen: set[int] = set()
        #: by letter of a submitted run: when it was seen first, by the clock of the event loop
        self._noticed: dict[int, float] = {}
        #: submitted runs that wait for other workers, which is said once
        self._left: set[int] = set()

    async def watch(self) -> None:
        """Open mail as it comes, until cancelled."""
        while True:
            try:
                letters = await self._mail.unread()
            except JournalBusy as error:
                log.warning("mail_not_read error=%s; trying again", error)
                await asyncio.sleep(RETRY)
                continue
            new = [letter for letter in letters if letter.id not in self._seen]
            try:
                await self._take_up([letter for letter in new if letter.subject == "submit"])
            except (JournalFull, JournalBusy, JournalReadOnly) as error:
                log.warning("submissions_put_off error=%s; trying again", error)
            for letter in new:
                if letter.subject != "submit":
                    await self._open_safely(letter)
            await self._mail.wait_changed()

    async def _take_up(self, letters: Sequence[Mail]) -> None:
        """Take up runs that were submitted: our share at once, what nobody else takes a second later.

        Only a supervisor that is open does: a program that leads one run of its own ends with it.
        """
        if not letters or not self._leader.is_open or self._leader.kernel.is_draining:
            return
        now = asyncio.get_running_loop().time()
        self._noticed = {letter.id: self._noticed.get(letter.id, now) for letter in letters}
        peers = await self._leader.peers()
        place = peers.index(self._node) if self._node in peers else 0
        ours = [
            letter
            for letter in letters
            if letter.id % max(len(peers), 1) == place or now - self._noticed[letter.id] >= RETRY
        ]
        if not ours:
            return
        # Those that a process has died with are begun one by one: if one of them is what ended it, the others live.
        deadly = {submission_key(run) for run in await self._journal.leases.abandoned()}
        fresh = [letter for letter in ours if letter.key not in deadly]
        for first in range(0, len(fresh), AT_ONCE):
            await asyncio.gather(*map(self._open_safely, fresh[first : first + AT_ONCE]))
        for letter in ours:
            if letter.key in deadly:
                await self._open_safely(letter)

    async def letters_for(self, run: str) -> list[tuple[Event, int]]:
        """What lies there for a run that is about to be led here, and the number of each letter.

        What people wrote while nobody led it comes before what became due meanwhile.
        """
        letters = [each for each in await self._mail.unread() if each.stream == run]
        self._seen.update(letter.id for letter in letters)
        told = []
        for letter in letters:
            if (event := self._event_of(letter)) is not None:
                told.append((event, letter.id))
            else:
                await self._discard(letter)
        return told

    def _event_of(self, letter: Mail) -> Event | None:
        """What a letter says; None, with a line in the log, if it cannot be read or carried out."""
        event = told_by(letter, self._clock.now())
        try:
            if event is not None:
                self._refuse_unkept(event)
        except UsageError as error:  # the process that posted it may have other workers
            _refuse(letter, error)
            return None
        return event

    async def open_letters(self, run: str) -> None:
        """Open what was posted to a run that is led here, so that a later command does not overtake it."""
        for letter in await self._mail.unread():
            if letter.stream == run:
                await self._open_safely(letter)

    async def _discard(self, letter: Mail) -> None:
        """Take a letter to a run that cannot be read or is refused, so that it does not come back to each leader.

        A submission that cannot be read stays: a process of a newer version may be able to.
        """
        with contextlib.suppress(
            JournalError, UsageError
        ):  # it was taken, or is tried again by the next leader
            await self._journal.append(letter.stream, [], taking=[letter.id])

    async def _open_safely(self, letter: Mail) -> None:
        """Open a letter. One that cannot be read or done is named in the log, and the others are opened."""
        try:
            await self._open(letter)
        except JournalDamaged as error:  # of a run that it names
            _refuse(letter, error)
        except JournalError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever somebody else has written there
            self._seen.add(letter.id)
            _refuse(letter, error)

    async def _open(self, letter: Mail) -> None:
        if letter.subject == "submit":
            if not self._leader.kernel.is_draining:
                await self._accept(letter)
            return
        if letter.id in self._seen or letter.stream not in self._leader.kernel.runs:
            return  # it was opened before its turn, or another leads the run, or nobody does
        self._seen.add(letter.id)
        event = self._event_of(letter)
        if event is None:
            await self._discard(letter)
        elif await self._leader.propose(letter.stream, event, mail=letter.id) is None:
            await self._put_back(letter)

    async def _put_back(self, letter: Mail) -> None:
        """A command was not written: it was refused, or its run is led here no longer, and another may take it."""
        run = letter.stream
        if run not in self._leader.kernel.runs:
            if not any(
                head.stream == run and head.is_ended for head in await self._journal.heads()
            ):
                self._seen.discard(letter.id)
                return
            await self._discard(letter)
        log.warning("mail_refused run=%s subject=%s", run, letter.subject)

    async def _accept(self, letter: Mail) -> None:
        """Lead a run that another process submitted, unless it names workers that we do not have."""
        submitted = submission_in(letter)
        run, leading = submitted.requested.run, None
        if lacking := submitted.lacking(self._roster.digest, self._roster.names):
            if self._leader.is_serving and letter.id not in self._left:
                self._left.add(letter.id)
                log.warning("submission_not_taken run=%s reason=%s", run, lacking)
            return
        self._seen.add(letter.id)
        try:
            async with self._leader.opener.claim(run):
                leading = await self._leader.opener.begin(
                    submitted.requested, submitted.plan, may_exist=True, mail=letter.id
                )
        except NotLeading:  # another begins it just now; if it does not, the letter is still there
            self._seen.discard(letter.id)
        except (JournalFull, JournalBusy, JournalReadOnly) as error:
            self._seen.discard(letter.id)  # it stays where it is until there is room
            log.warning("submission_put_off run=%s error=%s", run, error)
            return
        if leading is None:
            log.info("submission_taken_elsewhere run=%s", run)
        elif leading.epoch > 1:
            # A process that took it up before has died. If this one does too, nothing else dies with it.
            await asyncio.wait([leading.written])


def _refuse(letter: Mail, error: Exception) -> None:
    log.warning(
        "mail_refused id=%s run=%s subject=%s error=%s",
        letter.id,
        letter.stream,
        letter.subject,
        failed_by(error).message,
    )
