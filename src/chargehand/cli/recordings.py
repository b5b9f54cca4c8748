"""`chargehand record`, `replay`, `diff`, `copy`: save, recompute, compare and copy runs."""

import asyncio
import difflib
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from chargehand import recordings
from chargehand.cli import output
from chargehand.cli.find_run import deleted_in, find_begun, heads_in
from chargehand.cli.given_path import GivenPath
from chargehand.cli.options import journal_option, journal_path, json_option, recording_option
from chargehand.decisions.replay_check import task_of
from chargehand.errors import UsageError
from chargehand.facts.durations import shown_length
from chargehand.presentation.display_text import (
    answer_words,
    clean,
    clock_words,
    money_words,
    one_line,
)
from chargehand.presentation.run_status import is_nested
from chargehand.recordings import Pair, ReplayReport, RunArchive, RunComparison, TaskComparison
from chargehand.recordings.recording_file import SUFFIX, is_recording
from chargehand.supervisor_factory import JournalPlace, journal_place

#: most lines shown of the difference between two answers
MOST_LINES = 60


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "-o",
    "--output",
    "file",
    type=GivenPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Write to FILE. Default: RUN{SUFFIX}.",
)
@click.option("--no-content", is_flag=True, help="Leave out text, values and blobs.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@journal_option
def record(run_id: str, *, file: Path | None, no_content: bool, force: bool, journal: str) -> None:
    """Export a RUN, and the runs nested in it, to a single file.

    The file contains events, boards, blobs and their hashes. You can replay, compare, fork and import it anywhere.
    Secrets that chargehand knows are redacted before they reach the journal, so they are not in the file. With
    --no-content, the file contains the structure, times and costs of the run, but none of its text.

    RUN is the id of a run, the beginning of an id, or `last`.
    """
    place = journal_place(journal)

    async def write() -> tuple[RunArchive, Path]:
        run = await find_begun(run_id, place)
        target = file or Path(f"{run}{SUFFIX}")
        kept = await recordings.record(run, target, place, content=not no_content, force=force)
        return kept, target

    archive, target = asyncio.run(write())
    events = sum(len(archive.streams[run].rows) for run in archive.runs)
    nested = f", {len(archive.runs) - 1} nested" if len(archive.runs) > 1 else ""
    size = target.stat().st_size
    output.say(f"run {archive.root}{nested}: {events} events in {target}, {size:,} bytes")
    output.say(f"event hash {archive.hash(archive.root)}")


@click.command()
@click.argument("run_id", metavar="RUN|FILE")
@click.option(
    "--events",
    is_flag=True,
    help="Also list the events with their numbers, which you can pass to `chargehand fork --at`.",
)
@journal_option
@recording_option
@json_option("Print one JSON object.")
def replay(run_id: str, journal: str, *, events: bool, max_size: int, as_json: bool) -> None:
    """Recompute every decision of a RUN and compare it with the recorded one.

    The replay calls no model and no tool, and needs no network. It prints the answer and the hash of all events. If
    a decision differs from the recorded one, it prints the first difference, and the exit code is 1.

    RUN is the id of a run, the beginning of an id, or `last`. FILE is a recording.
    """
    archive, report = asyncio.run(_replayed(run_id, journal, max_size))
    listed = list(_listed(archive)) if events else []
    if as_json:
        told = {**msgspec.to_builtins(report), "is_same": report.difference is None}
        output.as_json({**told, "events": listed} if events else told)
    else:
        for each in listed:
            at, kind, task = clock_words(each.at), each.kind, clean(each.task)
            output.result(f"{each.seq:>6}  {at}  {kind}  {task}".rstrip())
        for line in _replay_lines(archive, report):
            output.result(line)
    if report.difference is not None:
        sys.exit(1)


class ListedEvent(Struct, frozen=True):
    """An event of a run, as `replay --events` lists it."""

    seq: int
    at: datetime
    kind: str
    task: str


def _listed(archive: RunArchive) -> Iterator[ListedEvent]:
    for seq, event in enumerate(archive.events(archive.root), 1):
        yield ListedEvent(seq, event.at, type(event).__name__, task_of(event))


async def _replayed(given: str, journal: str, max_size: int) -> tuple[RunArchive, ReplayReport]:
    archive = await _loaded(given, journal, max_size)
    return archive, await recordings.replay(archive)


async def _loaded(given: str, journal: str, max_size: int) -> RunArchive:
    """Load a run from a recording file or from the journal."""
    if is_recording(given):
        return await recordings.load(given, "", max_size=max_size)
    place = journal_place(journal)
    return await recordings.load(await find_begun(given, place), place)


def _replay_lines(archive: RunArchive, report: ReplayReport) -> Iterator[str]:
    for run in report.runs:
        how = run.status or "not ended"
        found = "a difference" if run.difference is not None else "no difference"
        again = f"{_count(run.decisions, 'decision')}, {_count(run.checked, 'start or timer')}"
        yield f"run {run.run}: {how}, {run.events} events, {found}; recomputed: {again}"
        yield f"event hash {run.hash}"
    if report.difference is not None:
        yield f"\n{clean(str(report.difference))}"
    elif report.answer is not None:
        yield f"\nanswer:\n{answer_words(report.answer)}"
    elif not archive.has_content:
        yield "\nanswer: left out of the recording"


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@journal_option
@recording_option
@json_option("Print one JSON object.")
def diff(a: str, b: str, journal: str, *, max_size: int, as_json: bool) -> None:
    """Compare two runs: plan, outcomes, answers, time and cost.

    A and B are runs or recordings: the id of a run, the beginning of an id, `last`, or the file of a recording. The
    exit code is 1 if they differ in request, plan, outcomes or answer; time and cost alone do not count.
    """

    async def compared() -> RunComparison:
        sides = [await _loaded(each, journal, max_size) for each in (a, b)]
        return await recordings.compare(*sides)

    found = asyncio.run(compared())
    if as_json:
        output.as_json({**msgspec.to_builtins(found), "is_same": found.is_same})
    else:
        for line in _diff_lines(found):
            output.result(line)
    if not found.is_same:
        sys.exit(1)


def _count(number: int, what: str) -> str:
    plural = " or ".join(f"{word}s" for word in what.split(" or "))
    return f"{number} {what if number == 1 else plural}"


def _diff_lines(found: RunComparison) -> Iterator[str]:
    yield f"a: run {found.runs.a}\nb: run {found.runs.b}"
    for name, pair in (("request", found.request), ("status", found.status)):
        yield f"{name}: {_both(pair)}"
    yield f"time: {_lengths(found.seconds)}; work: {_lengths(found.busy)}"
    money = Pair(money_words(found.money.a), money_words(found.money.b))
    yield f"cost: {_both(money)}; calls: {_both(found.calls)}; tokens: {_both(found.tokens)}"
    differing = [task for task in found.tasks if not task.is_same]
    yield f"tasks: {len(found.tasks) - len(differing)} of {len(found.tasks)} are the same"
    for task in differing:
        yield from _task_lines(task)
    yield f"answer: {'the same' if found.answer.is_same else 'different'}"
    if not found.answer.is_same:
        yield from _answer_lines(found.answer)


def _task_lines(task: TaskComparison) -> Iterator[str]:
    name = clean(task.task)
    if None in (task.state.a, task.state.b):
        side = "a" if task.state.b is None else "b"
        yield f"  {name}: only in {side}, {task.state.a or task.state.b}"
        return
    is_other = task.state.is_same and not task.output.is_same
    yield f"  {name}: {_both(task.state)}{', different result' if is_other else ''}"
    for field, pair in task.changed.items():
        yield f"      {field}: {_both(pair)}"
    if not task.gaps.is_same:
        yield f"      gaps: {_both(Pair(*('; '.join(side) or 'none' for side in (task.gaps.a, task.gaps.b))))}"
    if not task.attempts.is_same:
        yield f"      attempts: {_both(task.attempts)}"
    yield f"      time: {_lengths(task.seconds)}"


def _answer_lines(answer: Pair) -> Iterator[str]:
    sides = (str(answer.a).splitlines(), str(answer.b).splitlines())
    lines = list(difflib.unified_diff(*sides, "a", "b", lineterm="", n=1))
    yield from (f"  {clean(line)}" for line in lines[:MOST_LINES])
    if len(lines) > MOST_LINES:
        yield f"  … and {len(lines) - MOST_LINES} more lines; to see all, use --json"


def _both(pair: Pair) -> str:
    a, b = (one_line(_words(each), 120) for each in (pair.a, pair.b))
    return a if pair.is_same else f"{a} → {b}"


def _words(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _lengths(pair: Pair) -> str:
    a, b = (shown_length(timedelta(seconds=each)) for each in (pair.a, pair.b))
    return a if a == b else f"{a} → {b}"


@click.command()
@click.argument("run_ids", metavar="[RUN|FILE…]", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Copy all runs of the journal.")
@click.option(
    "--to",
    "target",
    required=True,
    callback=journal_path,
    metavar="FILE|DSN",
    help="Journal to copy the runs to.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Trust imported recordings: a request with the idempotency key of such a run returns that run.",
)
@journal_option
@recording_option
@json_option("Print one JSON object per run.")
def copy(
    run_ids: tuple[str, ...],
    *,
    all_: bool,
    target: str,
    trust: bool,
    journal: str,
    max_size: int,
    as_json: bool,
) -> None:
    """Copy runs to another journal, or import recordings.

    Nested runs, boards and blobs are copied with their run. Both journals can be in SQLite or in PostgreSQL. Events
    keep their numbers and hashes, and the runs also stay in the source journal. Copying a run twice changes nothing.

    A run cannot be copied while a process leads it, or if the target has a run with the same id and other events. A
    run that was deleted from the target (by `prune` or by the retention of a server) is restored only if you give its
    id or its recording; --all skips it.

    RUN is the id of a run, the beginning of an id, or `last`. FILE is a recording.
    """
    if bool(run_ids) is all_:
        raise click.UsageError("say which runs to copy: ids or files of recordings, or --all")
    place, there = journal_place(journal), JournalPlace(target)

    async def copied() -> list[recordings.CopiedRun]:
        if run_ids:
            found = [
                each if is_recording(each) else await find_begun(each, place) for each in run_ids
            ]
        else:
            found = await _all_runs(place, there)
        to = there.with_folder()
        return await recordings.copy(found, place, to, trust=trust, max_size=max_size)

    for each in asyncio.run(copied()):
        if as_json:
            output.as_json(each)
        else:
            how = f"{each.new} of {each.events} events copied" if each.new else "already there"
            output.result(f"run {each.run}: {how}")


async def _all_runs(place: JournalPlace, there: JournalPlace) -> list[str]:
    """The ids of the runs that can be copied. Says which runs are skipped, and why."""
    heads = await heads_in(place)
    if not heads:
        raise UsageError(f"{place} holds no runs; give another journal with --journal")
    deleted = await deleted_in(there)
    found = []
    for head in reversed(heads):
        if not head.seq:
            output.say(f"run {head.stream}: skipped, because it was submitted but has not started")
        elif head.stream in deleted:
            output.say(f"run {head.stream}: skipped, because retention deleted it from {there}")
        elif not is_nested(head):
            found.append(head.stream)
    return found
