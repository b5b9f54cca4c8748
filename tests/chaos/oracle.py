"""What must be true of a journal after whatever was done to it, judged against the client's own log.

Everything here works on a copy, so that the next life of the client opens the very files that the
last one left behind.
"""

import asyncio
import hashlib
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import chargehand as ch
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.schedule import Schedule
from chargehand.decisions.task_graph import TaskState
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptPreempted,
    AttemptStarted,
    Event,
    RunFinished,
    RunLed,
    StepFinished,
    StepStarted,
    TaskFailed,
    TaskSkipped,
    encode,
)
from chargehand.facts.outcome import Done
from chargehand.journal.base import Entry, Journal

Runs = dict[str, list[Entry]]
Line = dict[str, Any]


@dataclass
class Verdict:
    """What one trial came to."""

    #: faults that really happened
    fired: int = 0
    acknowledged: int = 0
    lost: int = 0
    #: second terminal events of an attempt, a task or a run
    duplicates: int = 0
    #: everything else that was not as it must be
    faults: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return not (self.lost or self.duplicates or self.faults)

    def add(self, other: "Verdict") -> None:
        self.fired += other.fired
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.duplicates += other.duplicates
        self.faults += other.faults
        for name, figure in other.figures.items():
            self.figures[name] = max(figure, self.figures.get(name, figure))

    def must(self, is_so: bool, fault: str) -> None:
        """Note a fault unless something is so."""
        if not is_so:
            self.faults.append(fault)

    def check(self) -> None:
        """Raise with everything that broke; how a test ends."""
        assert self.is_ok, f"lost {self.lost}, duplicates {self.duplicates}; " + "; ".join(
            self.faults[:20]
        )


def read_journal(path: Path, **options: Any) -> Runs:
    """All runs of a journal, read through its own checks, so that a broken chain raises here."""

    async def read() -> Runs:
        journal = ch.open_journal(path, **options)
        try:
            return await read_all(journal)
        finally:
            await journal.close()

    return asyncio.run(read())


async def read_all(journal: Journal) -> Runs:
    """All runs of an open journal, and every blob that they name."""
    heads = [head for head in await journal.heads() if not head.is_forgotten]
    runs = {head.stream: [entry async for entry in journal.read(head.stream)] for head in heads}
    for blob in blobs_of(runs):
        await journal.blobs.get(blob)
    return runs


def blobs_of(runs: Runs) -> list[str]:
    """Every blob that an event names: it must be there and whole."""
    return [
        entry.event.outcome.value.blob
        for entries in runs.values()
        for entry in entries
        if isinstance(entry.event, AttemptFinished)
        and isinstance(entry.event.outcome, Done)
        and entry.event.outcome.value.blob
    ]


def read_copy(folder: Path) -> Runs:
    """The runs of the journal in this folder, as they would be found now."""
    aside = folder.with_name(f"{folder.name}.copy")
    shutil.copytree(folder, aside)
    try:
        return read_journal(aside / "runs.db")
    finally:
        shutil.rmtree(aside)


def verify(runs: Runs, lines: Sequence[Line]) -> Verdict:
    """Hold a journal against all invariants, and against what its client was promised."""
    verdict = Verdict()
    compare(runs, lines, verdict)
    for run, entries in runs.items():
        _check_order(run, entries, verdict)
        _check_terminals(run, entries, verdict)
        _check_replay(run, entries, verdict)
    _check_intents(runs, lines, verdict)
    return verdict


def compare(runs: Runs, lines: Sequence[Line], verdict: Verdict) -> None:
    """Every acknowledged event must be where it was, as it was.

    One life acknowledges the events of a run one after the other, so what it was told is a piece of
    the journal without gaps, from the event with which it began to lead. It may begin to lead again.
    """
    told: dict[tuple[str, str, int], list[bytes]] = defaultdict(list)
    times: Counter[tuple[str, str]] = Counter()
    for line in lines:
        if "ack" in line:
            life, run = line["life"], line["run"]
            times[life, run] += line["ack"]["kind"] == RunLed.__name__
            told[life, run, times[life, run]].append(_canonical(line["ack"]))
    kept = {run: [_canonical_event(entry.event) for entry in runs[run]] for run in runs}
    for (life, run, _), acks in told.items():
        verdict.acknowledged += len(acks)
        there = kept.get(run, [])
        start = there.index(acks[0]) if acks[0] in there else len(there)
        missing = sum(
            1 for place, ack in enumerate(acks, start) if there[place : place + 1] != [ack]
        )
        if missing:
            verdict.lost += missing
            verdict.faults.append(f"{missing} acknowledged events of {run} in life {life} are gone")
    for line in lines:
        if "submitted" in line and line["run"] not in runs:
            verdict.lost += 1
            verdict.faults.append(f"run {line['run']} was submitted and is gone")


def _canonical(ack: Any) -> bytes:
    return json.dumps(ack, sort_keys=True).encode()


def _canonical_event(event: Event) -> bytes:
    return _canonical(json.loads(encode(event)))


def _check_order(run: str, entries: Sequence[Entry], verdict: Verdict) -> None:
    verdict.must(
        [entry.seq for entry in entries] == list(range(1, len(entries) + 1)),
        f"{run}: the numbers have gaps",
    )
    epochs = [entry.epoch for entry in entries]
    verdict.must(epochs == sorted(epochs), f"{run}: epochs go back")
    authors: dict[int, set[str]] = defaultdict(set)
    for entry in entries:
        authors[entry.epoch].add(entry.author)
    shared = [epoch for epoch, names in authors.items() if len(names) > 1]
    verdict.must(not shared, f"{run}: two nodes wrote in epochs {shared}")
    times = [entry.event.at for entry in entries]
    verdict.must(times == sorted(times), f"{run}: time goes back")


def _check_terminals(run: str, entries: Sequence[Entry], verdict: Verdict) -> None:
    attempts: Counter[tuple[str, int]] = Counter()
    started: Counter[tuple[str, int]] = Counter()
    tasks: Counter[str] = Counter()
    ends = 0
    for entry in entries:
        event = entry.event
        verdict.must(not ends, f"{run}: something happened after its end")
        match event:
            case AttemptStarted():
                started[event.task, event.attempt] += 1
            case AttemptFinished() | AttemptLost() | AttemptPreempted():
                attempts[event.task, event.attempt] += 1
            case RunFinished():
                ends += 1
            case _:
                pass
        match event:
            case AttemptFinished(outcome=Done()) | TaskFailed() | TaskSkipped():
                tasks[event.task] += 1
            case _:
                pass
    counts = (*started.values(), *attempts.values(), *tasks.values(), ends)
    verdict.duplicates += sum(count - 1 for count in counts if count > 1)
    verdict.must(not set(attempts) - set(started), f"{run}: an attempt ended that never began")


def _check_replay(run: str, entries: Sequence[Entry], verdict: Verdict) -> None:
    try:
        first, second = fold_digest(entries), fold_digest(entries)
    except AssertionError as broken:
        verdict.faults.append(f"{run}: replay breaks an invariant: {broken}")
        return
    verdict.must(first == second, f"{run}: two replays differ")


def fold_digest(entries: Iterable[Entry]) -> str:
    """A digest of everything a replay comes to; states its invariants on the way."""
    live_run = LiveRun()
    schedule, results = live_run.schedule, live_run.results
    for entry in entries:
        _check_needs(schedule, entry.event)
        live_run.replay((entry.event,))
        # Decisions are written down in the group of the event that caused them, so only between
        # groups, which are not kept, must all hold; the end of a journal is such a place.
    if schedule.requested is not None:
        schedule.check()
    nodes = [
        [id_, node.state.value, node.attempt, node.tries, node.losses, node.is_open, node.worker]
        for id_, node in schedule.nodes.items()
    ]
    state = [
        schedule.state.value,
        schedule.epoch,
        nodes,
        results.outputs,
        results.steps,
        results.answers,
    ]
    return hashlib.blake2b(msgspec.json.encode(state), digest_size=16).hexdigest()


def _check_needs(schedule: Schedule, event: Event) -> None:
    if isinstance(event, AttemptStarted):
        for need in schedule.nodes[event.task].task.all_needs:
            state = schedule.nodes[need.task].state
            is_met = state is TaskState.DONE or (need.optional and state.is_settled)
            assert is_met, f"{event.task} began before {need.task} was done"


def _check_intents(runs: Runs, lines: Sequence[Line], verdict: Verdict) -> None:
    """No effect without a durable intent, for those that may not be repeated freely."""
    intents: Counter[tuple[str, str]] = Counter()
    for run, entries in runs.items():
        for entry in entries:
            if isinstance(entry.event, StepStarted):
                intents[run, f"{entry.event.task}/{entry.event.name}"] += 1
    ran = Counter((line["run"], line["ran"]) for line in lines if "ran" in line)
    for (run, step), times in ran.items():
        if step.endswith(("/keyed", "/once")):
            known = intents[run, step]
            verdict.must(known >= times, f"{run}: {step} ran {times} times on {known} intents")


def finished_steps(runs: Runs) -> set[tuple[str, str]]:
    """Steps that have their result, and so are never to be run again."""
    return {
        (run, f"{entry.event.task}/{entry.event.name}")
        for run, entries in runs.items()
        for entry in entries
        if isinstance(entry.event, StepFinished) and isinstance(entry.event.outcome, Done)
    }


def check_effects(lines: Sequence[Line], verdict: Verdict) -> None:
    """Over all lives: `once` effects happened once, keyed ones under one key, finished ones not again."""
    ran: dict[tuple[str, str], list[Line]] = defaultdict(list)
    finished: set[tuple[str, str]] = set()
    for line in lines:
        if "ran" in line:
            step = (line["run"], line["ran"])
            verdict.must(step not in finished, f"{step[1]} ran again after it was finished")
            ran[step].append(line)
        elif "ack" in line and line["ack"]["kind"] == StepFinished.__name__:
            event = line["ack"]
            if event["outcome"]["is"] == "done":
                finished.add((line["run"], f"{event['task']}/{event['name']}"))
    for (_, name), times in ran.items():
        if name.endswith("/once"):
            verdict.must(len(times) == 1, f"{name} happened {len(times)} times")
        if name.endswith("/keyed"):
            verdict.must(len({line["key"] for line in times}) == 1, f"{name} had several keys")


def check_ended(runs: Runs, verdict: Verdict, status: str = "succeeded") -> None:
    """Every run has come to its end, and to this one."""
    verdict.must(bool(runs), "there is no run")
    for run, entries in runs.items():
        last = entries[-1].event
        found = last.status.value if isinstance(last, RunFinished) else "not ended"
        verdict.must(found == status, f"{run} is {found}, not {status}")
