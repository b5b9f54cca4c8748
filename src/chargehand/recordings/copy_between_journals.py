"""Copies runs from one journal to another, and imports recordings."""

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack

from msgspec import Struct

from chargehand.errors import NotLeading
from chargehand.facts.events import RunRequested
from chargehand.journal.base import Journal
from chargehand.recordings.recording_file import MAX_SIZE, is_recording, load
from chargehand.recordings.run_archive import (
    JournalLike,
    RunArchive,
    archive_of,
    journal_at,
    store_archive,
)


class CopiedRun(Struct, frozen=True, kw_only=True):
    """A copied run, with the number of its events that were new in the target: 0 if the run was already there."""

    run: str
    #: number of events of the run and of the runs nested in it
    events: int
    new: int


async def copy(
    runs: Sequence[str | os.PathLike[str]],
    source: JournalLike,
    target: JournalLike,
    *,
    trust: bool = False,
    max_size: int = MAX_SIZE,
) -> list[CopiedRun]:
    """Copy runs from one journal to another, with nested runs, boards and blobs; or import recordings.

    Events keep their numbers, authors and hashes. Copying a run twice changes nothing. Raises `NotLeading` if a process
    leads the run, `NotBegun` if the run is submitted but not started, and `RunDiffers` if the target has a run with
    the same id but different events. Only with `trust` does a request with the idempotency key of an imported run return
    that run.
    """
    done = []
    async with AsyncExitStack() as stack:
        here: Journal | None = None
        there: Journal | None = None
        for run in runs:
            if is_recording(run):
                archive = (await load(run, source, max_size=max_size)).refuse_without_content()
            else:
                if here is None:
                    here = await stack.enter_async_context(journal_at(source))
                archive = await archive_of(here, os.fspath(run))
            if there is None:  # not before: a target is made only for what can be read
                there = await stack.enter_async_context(journal_at(target))
            if here is None or is_recording(run):
                added = await store_archive(archive if trust else archive.imported(), there)
            else:
                archive, added = await _copy_run(archive, here, there)
            events = sum(len(archive.streams[name].rows) for name in archive.runs)
            new = sum(added[name] for name in archive.runs)
            done.append(CopiedRun(run=archive.root, events=events, new=new))
    return done


async def _copy_run(
    archive: RunArchive, here: Journal, there: Journal
) -> tuple[RunArchive, dict[str, int]]:
    run = archive.root
    open_runs = [head.stream for head in await here.heads() if not head.is_ended]
    held: dict[str, int] = {}
    try:
        for name in open_runs:
            if name in archive.streams:
                held[name] = await _hold(here, name)
        if held:  # events may have been added before this process held the lease
            archive = await archive_of(here, run)
        if run in held and (reused := _reused(archive)):
            # The run needs its results to continue.
            await _copy_run(await archive_of(here, reused), here, there)
        added = await store_archive(archive, there)
        for mail in await here.mail.unread():
            if mail.stream in archive.streams:
                await there.mail.post(mail)
    finally:
        for name, epoch in held.items():
            await here.leases.release(name, epoch)
    return archive, added


def _reused(archive: RunArchive) -> str:
    first = next(archive.events(archive.root), None)
    return first.reuses if isinstance(first, RunRequested) else ""


async def _hold(journal: Journal, run: str) -> int:
    try:
        return await journal.leases.lead(run)
    except NotLeading as error:
        raise NotLeading(f"{error}; a run is copied when nobody leads it: stop it first") from None
