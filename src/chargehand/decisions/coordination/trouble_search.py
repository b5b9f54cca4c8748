"""The coordinator's health check: looks for troubles in all runs that have not ended."""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta

from chargehand.decisions.coordination.observed_run import Hold, RunWatch
from chargehand.decisions.coordination.troubles import Symptom, Trouble, patience_with
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.facts.failure_policy import ABOUT_FAILURE
from chargehand.facts.outcome import Question

#: characters of a question
SHOWN = 120


class HealthCheck:
    """Checks the state that all open runs have `now`."""

    def __init__(
        self,
        watches: Mapping[str, RunWatch],
        live_run: Collection[str],
        usual: Mapping[str, tuple[int, timedelta]],
        now: datetime,
        patience: timedelta,
        gone: Collection[str] = (),
    ) -> None:
        self._watches = watches
        #: the runs that a living process leads
        self._led = live_run
        #: by worker: how many attempts it has completed, and how long they took
        self._usual = usual
        self._now = now
        self._patience = patience
        #: nodes that have certainly ended
        self._gone = gone

    def troubles(self) -> Iterator[Trouble]:
        """All troubles, run by run."""
        for watch in self._watches.values():
            if self._needs_leader(watch) and watch.run not in self._led:
                how_far = watch.progress().words(is_led=False)
                yield self._unled(watch, f"no process leads it: {how_far}", "continues it")
            elif self._is_asleep(watch):
                silent = f"nothing has happened to it for {_length(self._silence(watch))}: {watch.progress()}"
                yield self._unled(watch, silent, "continues it, if its leader is gone")
            else:
                yield from self._stuck(watch)
            for node, question in watch.asking():
                yield self._asking(watch, node, question)

    def _needs_leader(self, watch: RunWatch) -> bool:
        """Whether a process must lead the run; a nested run is led together with the run above it."""
        requested = watch.schedule.requested
        return requested is not None and not requested.parent and not watch.is_pooled

    def _is_asleep(self, watch: RunWatch) -> bool:
        """Whether tasks are ready but none has been started for too long."""
        ready = any(node.state is TaskState.READY for node in watch.schedule.nodes.values())
        is_still = not watch.holds and not watch.schedule.is_paused
        is_silent = self._silence(watch) > self._patience
        return self._needs_leader(watch) and ready and is_still and is_silent

    def _silence(self, watch: RunWatch) -> timedelta:
        return timedelta(0) if watch.last_at is None else self._now - watch.last_at

    def _unled(self, watch: RunWatch, why: str, use: str) -> Trouble:
        return Trouble(
            kind=Symptom.UNLED,
            name=watch.run,
            fact=f"run {watch.run} has not ended and {why}",
            advice=f"chargehand resume {watch.run} {use}",
            run=watch.run,
            since_at=watch.last_at,
        )

    def _stuck(self, watch: RunWatch) -> Iterator[Trouble]:
        for hold in watch.holds.values():
            heard_at = self._heard_at(watch, hold)
            silent = self._now - heard_at
            if watch.is_pooled and hold.node in self._gone:
                yield self._left(watch, hold)
            elif silent > patience_with(hold.worker, self._usual, self._patience):
                yield self._silent(watch, hold, heard_at)

    def _silent(self, watch: RunWatch, hold: Hold, heard_at: datetime) -> Trouble:
        has_had = _length(self._now - hold.since_at)
        way_out = f"chargehand resume {watch.run} continues the run"
        if watch.is_pooled:
            way_out = "another worker finds the task with get_assigned_tasks(lost=True)"
        return Trouble(
            kind=Symptom.STUCK,
            name=hold.worker,
            fact=f"worker {hold.worker} has been doing {hold.task} of run {watch.run} for {has_had} and "
            f"has reported nothing for {_length(self._now - heard_at)}",
            advice=f"see what it waits for; if its process is gone, {way_out}",
            run=watch.run,
            task=hold.task,
            since_at=heard_at,
        )

    def _left(self, watch: RunWatch, hold: Hold) -> Trouble:
        return Trouble(
            kind=Symptom.GONE,
            name=hold.worker,
            fact=f"the process in which worker {hold.worker} was doing {hold.task} of request "
            f"{watch.run} is gone",
            advice="start a worker on this pool: get_assigned_tasks(lost=True) finds what was left",
            run=watch.run,
            task=hold.task,
            since_at=hold.last_at,
        )

    def _heard_at(self, watch: RunWatch, hold: Hold) -> datetime:
        """When an attempt last showed activity; activity of its nested run counts too."""
        below = self._watches.get(watch.nested.get(hold.task, ""))
        if below is None:
            return hold.last_at
        if below.asking():
            return self._now  # it waits for a person, which is reported anyway
        signs = [self._heard_at(below, each) for each in below.holds.values()]
        return max([hold.last_at, *signs, *([below.last_at] if below.last_at else [])])

    def _asking(self, watch: RunWatch, node: TaskNode, question: Question) -> Trouble:
        text = " ".join(question.text.split())
        said = text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
        advice = f'chargehand answer {question.id} "…" answers it'
        if question.about == ABOUT_FAILURE and watch.is_pooled:
            advice = "supervisor.reassign_task gives it to another worker"
        elif question.choices:
            advice += f" ({', '.join(question.choices)})"
        since = node.since_at
        waited = "" if since is None else f" for {_length(self._now - since)}"
        return Trouble(
            kind=Symptom.ASKING,
            name=question.id,
            fact=f"{node.task.id} of run {watch.run} has waited{waited} for a person: {said}",
            advice=advice,
            run=watch.run,
            task=node.task.id,
            since_at=since,
        )


def _length(time: timedelta) -> str:
    seconds = max(time.total_seconds(), 0.0)
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{round(minutes / 60)} h"
