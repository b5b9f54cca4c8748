"""Decides which finished runs retention deletes. Pure: the caller passes the ages and requests of the runs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from chargehand.facts.durations import shown_length
from chargehand.facts.events import RunRequested
from chargehand.facts.retention import Retention
from chargehand.facts.sizes import shown_size


class RunAge(Struct, frozen=True):
    """What retention needs of every run: whether it has ended, and when it changed last."""

    run: str
    is_ended: bool
    changed_at: datetime


class FinishedRun(Struct, frozen=True):
    """A run that has ended, with all runs nested in it: they are kept or deleted together."""

    run: str
    ended_at: datetime
    #: the run itself, then its nested runs
    members: tuple[str, ...]
    #: an open run, or a submitted one, reuses its results
    is_needed: bool = False


class ExpiredRun(Struct, frozen=True):
    """A run to be deleted, and why."""

    run: str
    ended_at: datetime
    members: tuple[str, ...]
    why: str


def finished_runs(
    ages: Sequence[RunAge], requests: Mapping[str, RunRequested], wanted: Iterable[str] = ()
) -> list[FinishedRun]:
    """The finished runs, the newest first, each with those nested in it.

    `requests` holds the first event of every nested and every open run; `wanted` names further runs that
    are needed. A nested run whose parent is gone counts as a run of its own.
    """
    by_name = {age.run: age for age in ages}
    below: dict[str, list[str]] = {}
    for age in ages:
        root = _root_of(age.run, by_name, requests)
        below.setdefault(root, []).append(age.run)
    needed = set(wanted)
    needed |= {requests[age.run].reuses for age in ages if _may_reuse(age, requests)}
    roots = {_root_of(run, by_name, requests) for run in needed}
    found = [
        FinishedRun(
            root,
            by_name[root].changed_at,
            (root, *sorted(run for run in runs if run != root)),
            root in roots,
        )
        for root, runs in below.items()
        if by_name[root].is_ended
    ]
    return sorted(found, key=lambda run: (run.ended_at, run.run), reverse=True)


def _may_reuse(age: RunAge, requests: Mapping[str, RunRequested]) -> bool:
    return not age.is_ended and age.run in requests


def _root_of(run: str, known: Mapping[str, object], requests: Mapping[str, RunRequested]) -> str:
    seen = {run}
    while run in requests and (above := requests[run].parent) in known and above not in seen:
        run = above
        seen.add(run)
    return run


def expired(runs: Sequence[FinishedRun], retention: Retention, now: datetime) -> list[ExpiredRun]:
    """The runs that are too old or too many, the oldest first. `runs` must have the newest first."""
    found: list[ExpiredRun] = []
    for place, run in enumerate(runs):
        is_old = retention.older_than is not None and now - run.ended_at > retention.older_than
        is_beyond = retention.keep is not None and place >= retention.keep
        if run.is_needed or not (is_old or is_beyond):
            continue
        if is_old and retention.older_than is not None:
            why = f"ended more than {shown_length(retention.older_than)} ago"
        else:
            why = f"beyond the newest {retention.keep}"
        found.append(ExpiredRun(run.run, run.ended_at, run.members, why))
    return found[::-1]


def next_to_fit(
    runs: Sequence[FinishedRun], gone: Iterable[str], retention: Retention
) -> list[ExpiredRun]:
    """The runs that may be deleted to save space, the oldest first. `runs` must have the newest first."""
    if retention.max_size is None:
        return []
    taken, why = set(gone), f"the journal is larger than {shown_size(retention.max_size)}"
    return [
        ExpiredRun(run.run, run.ended_at, run.members, why)
        for run in reversed(runs)
        if run.run not in taken and not run.is_needed
    ]
