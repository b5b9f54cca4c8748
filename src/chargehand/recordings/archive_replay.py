"""Replays an archive: recomputes every decision of its runs, without a model, a tool or a network."""

from msgspec import Struct

from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.replay_check import Difference, RunReplay
from chargehand.facts.answer import Answer
from chargehand.facts.events import Event, RunStatus, encode
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.journal.base import GENESIS
from chargehand.journal.hash_chain import chain_hash, header, header_start, payload_digest
from chargehand.recordings.content_removal import without_content
from chargehand.recordings.run_archive import RunArchive, impossible, result_in
from chargehand.sync_async_bridge import in_thread


class ReplayedRun(Struct, frozen=True, kw_only=True):
    """The result of replaying one run."""

    run: str
    #: the final status; empty if the run has not ended
    status: str
    events: int
    #: number of events that were recomputed and are the same
    decisions: int
    #: number of attempt starts and timers that the schedule produced again
    checked: int
    #: number of events that are inputs and were taken as recorded, by kind
    inputs: dict[str, int]
    #: hash of all recorded events
    hash: str
    #: hash of the recomputed events
    recomputed: str
    #: the first difference from the recorded events
    difference: Difference | None = None


class ReplayReport(Struct, frozen=True, kw_only=True):
    """The result of replaying a run and the runs nested in it."""

    #: the replayed run first, then the runs nested in it
    runs: tuple[ReplayedRun, ...]
    #: the recomputed answer; None if a decision differs or the recording has no content
    answer: Answer | None

    @property
    def difference(self) -> Difference | None:
        """The first decision that differs from the recorded one."""
        return next((run.difference for run in self.runs if run.difference is not None), None)


async def replay(archive: RunArchive, retry: RetryPolicy | None = None) -> ReplayReport:
    """Recompute every decision of a recorded run and compare it with the recorded one. Needs no model, tool or network.

    `retry` is the retry policy of the supervisor that led the run, for old runs whose events do not contain it.
    """
    found = [replay_run(archive, run, retry) for run in archive.runs]
    answer = None
    if archive.has_content and all(run.difference is None for run, _ in found):
        result = await result_in(archive, found[0][1])
        answer = await in_thread(lambda: result.answer)
    return ReplayReport(runs=tuple(run for run, _ in found), answer=answer)


def replay_run(
    archive: RunArchive, run: str, retry: RetryPolicy | None = None
) -> tuple[ReplayedRun, LiveRun]:
    """Replay one run of an archive. Returns the report, and the recomputed run.

    `retry` is the retry policy of the supervisor that led the run, if its events do not contain it.
    """
    recordable = _whole if archive.has_content else without_content
    replay = RunReplay(run, retry, recordable)
    previous, difference = GENESIS, None
    rows = archive.streams[run].rows
    for row, event in zip(rows, archive.events(run), strict=True):
        try:
            difference = replay.take(event)
        except Exception as error:
            raise impossible(run, row.seq, event, error) from error
        if difference is not None:
            break
        # The hash covers the decisions as recomputed, not the stored bytes.
        decided = None if replay.decision is None else recordable(replay.decision)
        payload = row.payload if decided is None else encode(decided)
        start = header_start(run, row.author)
        over = header(start, row.seq, row.epoch, row.kind, row.at, row.version)
        previous = chain_hash(previous, over, payload_digest(payload))
    difference = difference or replay.end()
    status = replay.live_run.schedule.status
    is_same = rows and previous == rows[-1].hash
    replayed = ReplayedRun(
        run=run,
        status=status.value if isinstance(status, RunStatus) else "",
        events=len(rows),
        decisions=sum(replay.decided.values()),
        checked=replay.checked,
        inputs=dict(sorted(replay.given.items())),
        hash=archive.hash(run),
        recomputed=archive.hash(run) if is_same else previous.hex(),
        difference=difference,
    )
    return replayed, replay.live_run


def _whole(event: Event) -> Event:
    return event
