"""The active time of a run: it stands still while only people can move the run, or nobody leads it."""

from datetime import datetime, timedelta

from msgspec import Struct


class ActiveTime(Struct):
    """How much of its active time is used up. A deadline runs on regardless; this does not."""

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
