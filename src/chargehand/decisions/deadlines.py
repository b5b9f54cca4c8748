"""Deadlines and active time of a run: when its work must end, when its answer must, and the timers for it."""

from datetime import datetime, timedelta

from msgspec import Struct, field

from chargehand.facts.events import DeadlinePassed, RunRequested, WorkStopped
from chargehand.facts.scheduler_commands import Command, SetTimer

#: why a run is stopped; anything else says so in words
CANCELLED, OUT_OF_TIME = "cancelled", "out of time"
#: what composing the answer may take when something other than a deadline stopped the work
ANSWER_TIME = timedelta(minutes=1)

_RESERVE_SHARE, _RESERVE_MOST = 0.1, timedelta(seconds=15)


class ActiveTime(Struct):
    """Active time of a run. It stands still while only people can move the run, or no process leads it."""

    #: it runs out later than its timer was set for
    is_late: bool = False
    #: how long it has stood still
    still: timedelta = timedelta(0)
    #: when it came to stand still, if it does
    since: datetime | None = None

    @property
    def stands_still(self) -> bool:
        return self.since is not None

    def stop(self, at: datetime) -> None:
        """From here on only people can move the run."""
        if self.since is None:
            self.since = at

    def go_on(self, at: datetime) -> None:
        """Something can move by itself again."""
        if self.since is not None:
            self.leave_out(at - self.since)
            self.since = None

    def leave_out(self, span: timedelta) -> None:
        """So much time has passed that does not count."""
        self.still += max(span, timedelta(0))
        self.is_late = True

    def runs_out_at(self, began_at: datetime, active: timedelta) -> datetime:
        return began_at + active + self.still

    def has_run_out(self, began_at: datetime, active: timedelta, at: datetime) -> bool:
        """Whether it had run out by then, or by the moment it came to stand still."""
        return (self.since or at) >= self.runs_out_at(began_at, active)


class Deadlines(Struct):
    """One run's time. A deadline runs on regardless; active time only while the run can move by itself."""

    active_time: ActiveTime = field(default_factory=ActiveTime)
    #: there is no time left, not even for an answer
    is_closed: bool = False
    requested: RunRequested | None = None
    #: when composing the answer must end, once the work was stopped
    closes_at: datetime | None = None
    #: tasks that were told to stop because of their own deadlines
    expired_tasks: set[str] = field(default_factory=set)

    def timers(self) -> list[Command]:
        """Everything that is to go off, as far as it is known now."""
        requested, ends_at = self._asked, self.ends_at
        if ends_at is None:
            return self.active_timer()
        timers: list[Command] = [SetTimer(ends_at, DeadlinePassed(at=ends_at))]
        if requested.answers and self.closes_at is None:
            due_at = ends_at - _reserve(ends_at - requested.at)
            timers.append(SetTimer(due_at, WorkStopped(reason=OUT_OF_TIME, at=due_at)))
        return timers

    def active_timer(self) -> list[Command]:
        """When active time will have run out, for a run that has no other end."""
        if self.ends_at is not None:
            return []
        due_at = self.active_time.runs_out_at(self._asked.at, self._asked.limits.active)
        return [SetTimer(due_at, DeadlinePassed(at=due_at))]

    def close(self, at: datetime) -> list[Command]:
        """The work was stopped; from now on there is time for the answer only."""
        if not self._asked.answers:
            return []
        self.closes_at = self._asked.deadline_at or at + ANSWER_TIME
        return self.timers()

    def has_time_to_answer(self) -> bool:
        """Whether the end of the work leaves a while for composing the answer."""
        requested = self._asked
        return requested.answers and requested.deadline_at is None and self.closes_at is None

    def are_over(self, at: datetime, stop_reason: str) -> bool:
        """Whether the run's time, or what is left of it once the work was stopped, has passed."""
        if stop_reason == CANCELLED or self.is_closed:
            return False
        if self.ends_at is not None:
            return at >= self.ends_at
        if stop_reason:
            return False
        return self.active_time.has_run_out(self._asked.at, self._asked.limits.active, at)

    def work_ends_at(self) -> datetime | None:
        """When all attempts will be stopped at the latest, if that is known."""
        deadline_at = self._asked.deadline_at
        if deadline_at is None or not self._asked.answers:
            return deadline_at
        return deadline_at - _reserve(deadline_at - self._asked.at)

    @property
    def ends_at(self) -> datetime | None:
        """When all of the run must be over, its answer too, if that is known."""
        return self.closes_at or self._asked.deadline_at

    @property
    def _asked(self) -> RunRequested:
        assert self.requested is not None, "a run's first event must be RunRequested"
        return self.requested


def _reserve(whole: timedelta) -> timedelta:
    """What is kept back of a run's time for composing its answer."""
    return min(whole * _RESERVE_SHARE, _RESERVE_MOST)
