"""Deadlines and active time of a run: when its work and its answer must end, and the timers for both."""

from datetime import datetime, timedelta

from msgspec import Struct, field

from chargehand.facts.events import DeadlinePassed, RunRequested, WorkStopped
from chargehand.facts.scheduler_commands import Command, SetTimer

#: reasons why a run is stopped; any other reason is free text
CANCELLED, OUT_OF_TIME = "cancelled", "out of time"
#: time for composing the answer of a stopped run that has no deadline
ANSWER_TIME = timedelta(minutes=1)

_RESERVE_SHARE, _RESERVE_MOST = 0.1, timedelta(seconds=15)


class ActiveTime(Struct):
    """The active time of a run. It stands still while only people can move the run, or no process leads it."""

    #: it now runs out later than its timer was set for
    is_late: bool = False
    #: how long it has stood still in total
    still: timedelta = timedelta(0)
    #: since when it stands still; None: it is running
    since: datetime | None = None

    @property
    def stands_still(self) -> bool:
        return self.since is not None

    def stop(self, at: datetime) -> None:
        """Stop counting: from now on, only people can move the run."""
        if self.since is None:
            self.since = at

    def go_on(self, at: datetime) -> None:
        """Continue counting: something in the run can move by itself again."""
        if self.since is not None:
            self.leave_out(at - self.since)
            self.since = None

    def leave_out(self, span: timedelta) -> None:
        """Do not count this span of time."""
        self.still += max(span, timedelta(0))
        self.is_late = True

    def runs_out_at(self, began_at: datetime, active: timedelta) -> datetime:
        return began_at + active + self.still

    def has_run_out(self, began_at: datetime, active: timedelta, at: datetime) -> bool:
        """Whether it has run out at this instant; if it stands still, at the instant when it was stopped."""
        return (self.since or at) >= self.runs_out_at(began_at, active)


class Deadlines(Struct):
    """The time of one run. A deadline is fixed; active time counts only while the run can move by itself."""

    active_time: ActiveTime = field(default_factory=ActiveTime)
    #: no time is left, not even for an answer
    is_closed: bool = False
    requested: RunRequested | None = None
    #: when composing the answer must end; None: the work was not stopped
    closes_at: datetime | None = None
    #: tasks whose own deadlines have passed
    expired_tasks: set[str] = field(default_factory=set)

    def timers(self) -> list[Command]:
        """All timers of the run, as far as they are known now."""
        requested, ends_at = self._asked, self.ends_at
        if ends_at is None:
            return self.active_timer()
        timers: list[Command] = [SetTimer(ends_at, DeadlinePassed(at=ends_at))]
        if requested.answers and self.closes_at is None:
            due_at = ends_at - _reserve(ends_at - requested.at)
            timers.append(SetTimer(due_at, WorkStopped(reason=OUT_OF_TIME, at=due_at)))
        return timers

    def active_timer(self) -> list[Command]:
        """The timer for the end of the active time; none for a run with a deadline."""
        if self.ends_at is not None:
            return []
        due_at = self.active_time.runs_out_at(self._asked.at, self._asked.limits.active)
        return [SetTimer(due_at, DeadlinePassed(at=due_at))]

    def close(self, at: datetime) -> list[Command]:
        """Start the time for the answer, because the work was stopped."""
        if not self._asked.answers:
            return []
        self.closes_at = self._asked.deadline_at or at + ANSWER_TIME
        return self.timers()

    def has_time_to_answer(self) -> bool:
        """Whether composing the answer gets extra time (`ANSWER_TIME`) when the active time runs out."""
        requested = self._asked
        return requested.answers and requested.deadline_at is None and self.closes_at is None

    def are_over(self, at: datetime, stop_reason: str) -> bool:
        """Whether the run's time has passed; after the work was stopped, the time for its answer."""
        if stop_reason == CANCELLED or self.is_closed:
            return False
        if self.ends_at is not None:
            return at >= self.ends_at
        if stop_reason:
            return False
        return self.active_time.has_run_out(self._asked.at, self._asked.limits.active, at)

    def work_ends_at(self) -> datetime | None:
        """When all attempts are stopped at the latest, if that is known."""
        deadline_at = self._asked.deadline_at
        if deadline_at is None or not self._asked.answers:
            return deadline_at
        return deadline_at - _reserve(deadline_at - self._asked.at)

    @property
    def ends_at(self) -> datetime | None:
        """When the whole run, its answer included, must be over, if that is known."""
        return self.closes_at or self._asked.deadline_at

    @property
    def _asked(self) -> RunRequested:
        assert self.requested is not None, "a run's first event must be RunRequested"
        return self.requested


def _reserve(whole: timedelta) -> timedelta:
    """The part of a run's time that is kept for composing its answer."""
    return min(whole * _RESERVE_SHARE, _RESERVE_MOST)
