"""What attempts say while they are at work: steps, progress, their end; and what those below ask for."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions.asking import budget_question, next_asking_for_more
from chargehand.decisions.budget import OVER_BUDGET, Account, Shortage
from chargehand.decisions.desk import Led, Message
from chargehand.decisions.results import StepRecord
from chargehand.decisions.schedule import RunState
from chargehand.engines.base import Ending, Job
from chargehand.engines.brief import Brief, Fenced, SharedBoard
from chargehand.engines.reports import end_of, progress_noted, step_finished, step_started
from chargehand.errors import WorkerError
from chargehand.facts.events import (
    AttemptFinished,
    AttemptHeldUp,
    AttemptParked,
    AttemptWentOn,
    Event,
    PersonAsked,
    QuestionExpired,
    RetryPlanned,
    RunLed,
    RunPaused,
    StepStarted,
    WorkStopped,
)
from chargehand.facts.on_question import OnQuestion
from chargehand.facts.outcome import Done, Failed
from chargehand.shift.counter import Counter, Drains

#: after these, and after an attempt that asks, what waits is looked at although other work goes on
NEEDS_PERSON = frozenset({AttemptParked, PersonAsked, RetryPlanned, RunLed, RunPaused})


class Hearing(Counter):
    """Hears the engine, the briefs of attempts, and supervisors that work for a task."""

    def report(self, job: Job, outcome: Ending) -> None:
        brief = job.brief
        goes_on = brief.is_preempted or self.desk.is_draining or brief.run in self._left
        event = end_of(job, outcome, self._clock.now(), goes_on=goes_on)
        self._post(Message(brief.run, event))

    def freed(self, job: Job) -> None:
        brief = job.brief
        self.desk.free_place(brief.run, brief.task.id, brief.attempt)
        self._look_around()
        if self.desk.is_draining and not self.desk.busy:
            self._quiet.set()

    async def begin_step(self, brief: Brief, step: StepRecord, *, is_urgent: bool) -> None:
        _refuse_preempted(brief)
        event = step_started(brief, step, self._clock.now())
        if not is_urgent:
            self._post(Message(brief.run, event))
            return
        while await self.propose(brief.run, event) is None:
            await self._wait_for_room(brief, event)
            _refuse_preempted(brief)  # its run may have been paused meanwhile
            event = replace(event, at=self._clock.now())

    async def _wait_for_room(self, brief: Brief, step: StepStarted) -> None:
        """Return when a step that was refused for want of money may be proposed again.

        Calls reserve their worst case and cost less: what is under way may still leave room. Once
        nothing is, the run's work is stopped.
        """
        led = self.desk.runs.get(brief.run)
        account = self.account_of(brief.run)
        if led is None or account is None or led.schedule.admit(step) is None:
            raise Fenced(_why_fenced(led))
        short = account.shortage(brief.task.id, step.reserve)
        if short is None:
            return  # something was settled since it was refused
        settled = asyncio.Event()
        if account.when_settled(brief.task.id, step.reserve, settled.set):
            await settled.wait()
        elif short.task:
            raise WorkerError(f"{OVER_BUDGET}: {short}", kind="denied")
        elif short.account.plead is None or led.schedule.is_winding_up:
            stopped = WorkStopped(reason=OVER_BUDGET, by=str(short), at=self._clock.now())
            self._post(Message(brief.run, stopped))
            raise WorkerError(f"{OVER_BUDGET}: {short}", kind="denied")
        else:
            await self._wait_for_more(brief, account, short)

    async def _wait_for_more(self, brief: Brief, account: Account, short: Shortage) -> None:
        """Have a person asked for more, and let go of the place meanwhile; goes on later from here."""
        assert short.account.plead is not None  # noqa: S101 - for the type checker
        short.account.plead(short)
        if short.account is account:
            brief.is_preempted = True
            raise Fenced("nothing is left to spend before a person has answered")
        # It is a run above that has nothing left, and that is paused; it will go on, or stop this one.
        changed = asyncio.Event()
        short.account.when_changed(changed.set)
        await changed.wait()

    def _plead(self, run: str, short: Shortage) -> None:
        """Ask a person whether this run may spend more."""
        led = self.desk.runs.get(run)
        if led is not None:
            task = next_asking_for_more(led.schedule.nodes)
            question = budget_question(run, task, short)
            asked = PersonAsked(task=task, attempt=0, question=question, at=self._clock.now())
            self._post(Message(run, asked))

    async def end_step(self, brief: Brief, step: StepRecord, outcome: Done | Failed) -> None:
        if type(outcome) is Done and outcome.value.is_large:
            outcome = await self._bench.spill(outcome)
        event = step_finished(brief, step, outcome, self._clock.now())
        if await self.propose(brief.run, event) is None:
            raise Fenced("the task is no longer this attempt's")

    def note_progress(self, brief: Brief, text: str, fraction: float | None) -> None:
        event = progress_noted(brief, text, fraction, self._clock.now())
        message = Message(brief.run, event)
        self.loop.call_soon_threadsafe(self._post, message)

    @property
    def clock(self) -> Clock:
        return self._clock

    def is_leaving(self, run: str) -> bool:
        return self.is_stopping or run in self._left or run not in self._runs

    def is_winding_up(self, run: str) -> bool:
        led = self.desk.runs.get(run)
        return led is not None and led.schedule.is_winding_up

    def hold_up(self, brief: Brief, *, is_held_up: bool) -> None:
        kind = AttemptHeldUp if is_held_up else AttemptWentOn
        event = kind(task=brief.task.id, attempt=brief.attempt, at=self._clock.now())
        self._post(Message(brief.run, event))

    def tell_above(self, run: str, tell: Callable[[bool], None]) -> None:
        """Have somebody told when all that is left of a run led here waits for people, and when it goes on."""
        self._above[run] = (False, tell)
        self._look_up([run])

    def _mind_person(self, run: str, event: Event, led: Led) -> None:
        """A person may be needed: have that said, or give the question up where nobody is waited for."""
        nodes = led.schedule.nodes
        match event:
            case AttemptParked() | RetryPlanned() | RunPaused():
                asking = []
            case AttemptFinished() | PersonAsked():
                asking = [nodes[event.task]] if event.task in nodes else []
            case _:
                asking = list(nodes.values())
        self._announcer.expect(run)
        policy = self.asking(run)
        if policy.mode is not OnQuestion.FAIL:
            return
        for node in asking:
            if node.question is not None and not (policy.is_default and node.question.patience):
                why = f"it asks {node.question.text!r}, and {policy.why}"
                id_, task, now = node.question.id, node.task.id, self._clock.now()
                expired = QuestionExpired(question=id_, task=task, why=why, at=now)
                self._post(Message(run, expired))

    def _look_up(self, runs: Iterable[str]) -> None:
        for run in self._above.keys() & runs:
            was, tell = self._above[run]
            led = self.desk.runs.get(run)
            waits = led is not None and led.schedule.state is RunState.WAITING
            if waits is not was:
                self._above[run] = (waits, tell)
                tell(waits)

    def take_in(self, below: Drains) -> None:
        if self.desk.is_draining:
            raise Fenced("the supervisor is stopping")
        self._below.add(below)

    def board_for(self, brief: Brief) -> SharedBoard:
        # Imported when the first worker asks for it: most runs have no use for a board.
        from chargehand.roles.brief_board import BriefBoard

        return BriefBoard(self.journal, self._clock, brief)

    def account_of(self, run: str) -> Account | None:
        led = self.desk.runs.get(run)
        account = None if led is None else led.account
        requested = None if led is None else led.schedule.requested
        if account is not None and requested is not None and requested.asks_budget:
            account.plead = partial(self._plead, run)
        return account


def _refuse_preempted(brief: Brief) -> None:
    if brief.is_preempted:
        raise Fenced("it makes room for something more urgent")


def _why_fenced(led: Led | None) -> str:
    """Why an attempt is heard no longer: its run is being stopped, or somebody else has the task."""
    reason = "" if led is None else led.schedule.stop_reason
    return f"the run was stopped: {reason}" if reason else "the task is no longer this attempt's"
