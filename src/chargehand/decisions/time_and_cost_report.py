"""The report of a run: its time and cost, the critical path, the share of each worker, the waste."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.speedup import kept_steps, kept_time
from chargehand.decisions.system_tasks import is_system_task
from chargehand.decisions.task_and_state_words import SUPERVISOR, counted, task_name, worker_name
from chargehand.decisions.trace import Trace
from chargehand.decisions.trace_types import AttemptSpan, NestingLevel, StepKind, StepSpan
from chargehand.facts.outcome import NO_USAGE, Usage

#: how many of the longest waits a report has
WAITS = 3
#: how many rows of each table the text shows
SHOWN = 4

#: a smaller speed-up is not shown: it only says that tries failed or that the run waited
LEAST_SPEEDUP = 1.0
#: idle time is shown if it is more than the wall time divided by this
LEAST_IDLE_SHARE = 50
#: a shorter idle time would be shown as 0.0 s
LEAST_IDLE = timedelta(milliseconds=50)

#: a shorter wait would be shown as 0 ms
LEAST_WAIT = timedelta(milliseconds=1)

_NO_TIME = timedelta(0)
_IN_VAIN = ("failed", "lost", "preempted", "cancelled")


class Stretch(Struct, frozen=True, kw_only=True):
    """One task of the critical path, and how long the run waited for only this task."""

    task: str
    worker: str
    length: timedelta
    #: the part of `length` in which no attempt at the task ran
    waited: timedelta
    #: of the wall time, from 0 to 1
    share: float


class Wait(Struct, frozen=True, kw_only=True):
    """An attempt that was ready and had to wait for a slot."""

    task: str
    attempt: int
    worker: str
    length: timedelta
    #: the reason that the dispatcher gave for the start
    why: str


class WorkerShare(Struct, frozen=True, kw_only=True):
    """What one worker did."""

    worker: str
    attempts: int
    busy: timedelta
    #: of the busy time of all workers, from 0 to 1
    share: float
    failures: int
    usage: Usage


class ModelShare(Struct, frozen=True, kw_only=True):
    """The calls of one model."""

    model: str
    replies: int
    #: how many of the replies took no call of their own
    cached: int
    failures: int
    usage: Usage


class Waste(Struct, frozen=True, kw_only=True):
    """What was spent on attempts without a result, except for the steps that later attempts continued from."""

    attempts: int
    time: timedelta
    usage: Usage


class Report(Struct, frozen=True, kw_only=True):
    """The figures of a run, computed from its trace."""

    run: str
    status: str
    wall: timedelta
    #: what the finished attempts would have taken one after another
    in_turn: timedelta
    #: the part of `wall` in which nothing ran and only a person could move it; `speedup` leaves it out
    idle: timedelta
    speedup: float
    path: tuple[Stretch, ...]
    #: the longest first
    waits: tuple[Wait, ...]
    #: the busiest first; `@planner`, `@refiner` and `@answerer` are the supervisor itself
    workers: tuple[WorkerShare, ...]
    #: the dearest first
    models: tuple[ModelShare, ...]
    waste: Waste
    retries: int
    cache_hits: int
    usage: Usage
    #: by depth of nested supervisors, the top level first; more than one only if traces were nested
    levels: tuple[NestingLevel, ...]

    @property
    def path_time(self) -> timedelta:
        """The duration of the critical path from end to end."""
        return sum((each.length for each in self.path), _NO_TIME)

    def to_json(self, *, indent: int | None = 2) -> str:
        """The report for programs; durations are in seconds."""
        data = msgspec.json.encode(
            _in_seconds(msgspec.to_builtins(self, builtin_types=(timedelta,)))
        )
        return (msgspec.json.format(data, indent=indent) if indent else data).decode()

    def to_text(self) -> str:
        """The report for people: at most twenty lines, without colours."""
        return "\n".join([*_head(self), *_path(self), *_waits(self), *_shares(self), *_foot(self)])

    def __str__(self) -> str:
        return self.to_text()


def report_of(trace: Trace) -> Report:
    """Compute the report of a trace."""
    return Report(
        run=trace.run,
        status=trace.status,
        wall=trace.wall,
        idle=trace.idle,
        in_turn=trace.busy,
        speedup=trace.speedup,
        path=_stretches(trace),
        waits=_longest_waits(trace.attempts),
        workers=_worker_shares(trace.attempts),
        models=_model_shares(trace),
        waste=_waste(trace.attempts),
        retries=trace.retries,
        cache_hits=sum(map(_is_cached, _model_calls(trace))),
        usage=trace.usage,
        levels=tuple(trace.levels()),
    )


# figures


def _stretches(trace: Trace) -> tuple[Stretch, ...]:
    return tuple(
        Stretch(
            task=link.task,
            worker=link.worker,
            length=timedelta(seconds=link.length),
            waited=timedelta(seconds=link.waited),
            share=link.length / trace.wall.total_seconds() if trace.wall else 0.0,
        )
        for link in trace.path
    )


def _longest_waits(attempts: Sequence[AttemptSpan]) -> tuple[Wait, ...]:
    waiting = sorted((each for each in attempts if each.waited > 0), key=lambda a: -a.waited)
    return tuple(
        Wait(
            task=each.task,
            attempt=each.attempt,
            worker=each.worker,
            length=timedelta(seconds=each.waited),
            why=each.why,
        )
        for each in waiting[:WAITS]
    )


def _worker_shares(attempts: Sequence[AttemptSpan]) -> tuple[WorkerShare, ...]:
    whole = sum((each.length for each in attempts), _NO_TIME)
    by_worker: dict[str, list[AttemptSpan]] = {}
    for attempt in attempts:
        by_worker.setdefault(attempt.worker, []).append(attempt)
    shares = []
    for worker, own in by_worker.items():
        busy = sum((each.length for each in own), _NO_TIME)
        shares.append(
            WorkerShare(
                worker=worker,
                attempts=len(own),
                busy=busy,
                share=busy / whole if whole else 0.0,
                failures=sum(each.ending in ("failed", "lost") for each in own),
                usage=sum((each.usage for each in own), NO_USAGE),
            )
        )
    return tuple(sorted(shares, key=lambda share: -share.busy))


def _model_shares(trace: Trace) -> tuple[ModelShare, ...]:
    by_model: dict[str, list[StepSpan]] = {}
    for step in _model_calls(trace):
        by_model.setdefault(step.model, []).append(step)
    shares = [
        ModelShare(
            model=model,
            replies=sum(step.ended_at is not None and not step.error for step in steps),
            cached=sum(map(_is_cached, steps)),
            failures=sum(bool(step.error) for step in steps),
            usage=sum((step.usage for step in steps), NO_USAGE),
        )
        for model, steps in by_model.items()
    ]
    return tuple(sorted(shares, key=lambda s: (-s.usage.money, -_tokens(s.usage))))


def _model_calls(trace: Trace) -> Iterator[StepSpan]:
    """All model calls, those of nested runs included."""
    return (step for each in trace.family() for step in each.steps(StepKind.MODEL))


def _is_cached(step: StepSpan) -> bool:
    return step.source in ("cache", "shared")


def _waste(attempts: Sequence[AttemptSpan]) -> Waste:
    count, time, usage = 0, _NO_TIME, NO_USAGE
    for attempt, kept in zip(attempts, kept_steps(attempts), strict=True):
        if attempt.ending in _IN_VAIN:
            count += 1
            time += attempt.length - kept_time(kept)
            usage += _less(attempt.usage, sum((step.usage for step in kept), NO_USAGE))
    return Waste(attempts=count, time=time, usage=usage)


def _less(whole: Usage, part: Usage) -> Usage:
    return Usage(
        calls=whole.calls - part.calls,
        tokens_in=whole.tokens_in - part.tokens_in,
        tokens_out=whole.tokens_out - part.tokens_out,
        cache_read=whole.cache_read - part.cache_read,
        cache_written=whole.cache_written - part.cache_written,
        money=max(whole.money - part.money, 0.0),
    )


def _tokens(usage: Usage) -> int:
    return usage.tokens_in + usage.tokens_out


# text


def is_idle_worth_telling(idle: timedelta, wall: timedelta) -> bool:
    """Whether the idle time is so long that the speed-up would seem wrong without it."""
    return idle >= LEAST_IDLE and idle * LEAST_IDLE_SHARE > wall


def _head(report: Report) -> Iterable[str]:
    waited = f", of which {time_in_words(report.idle)} idle"
    yield (
        f"{report.run or 'run'}  {report.status or 'not ended'} in {time_in_words(report.wall)}"
        f"{waited if is_idle_worth_telling(report.idle, report.wall) else ''}; "
        f"one after another {time_in_words(report.in_turn)}"
        f"{f': {report.speedup:.1f} times as fast' if report.in_turn and report.speedup >= LEAST_SPEEDUP else ''}"
    )
    hits = f"; answered from the cache: {report.cache_hits}" if report.cache_hits else ""
    spent = spent_in_words(report.usage)
    if spent or hits:
        yield f"spent {spent or 'nothing'}{hits}"


def _path(report: Report) -> Iterable[str]:
    if not report.path:
        return
    whole = sum(each.share for each in report.path)
    longest = sorted(report.path, key=lambda each: -each.length)[:SHOWN]
    yield (
        f"critical path  {time_in_words(report.path_time)}, {whole:.0%} of the time"
        f"{_cut(report.path, longest, 'longest')}"
    )
    yield from table(
        [
            task_name(each.task),
            worker_name(each.worker),
            time_in_words(each.length),
            f"{each.share:.0%}",
            f"{time_in_words(each.waited)} waiting" if each.waited >= LEAST_WAIT else "",
        ]
        for each in report.path
        if each in longest
    )


def _waits(report: Report) -> Iterable[str]:
    if report.waits:
        yield "longest waits for a slot"
        yield from table(
            [task_name(each.task), worker_name(each.worker), time_in_words(each.length), each.why]
            for each in report.waits[: SHOWN // 2]
        )


def _shares(report: Report) -> Iterable[str]:
    everybody = _as_known(report.workers)
    workers, models = everybody[:SHOWN], report.models[: SHOWN // 2]
    if workers:
        yield f"workers{_cut(everybody, workers, 'busiest')}"
    yield from table(
        [
            each.worker,
            counted(each.attempts, "attempt"),
            time_in_words(each.busy),
            f"{each.share:.0%}",
            f"{each.failures} failed" if each.failures else "",
            spent_in_words(each.usage),
        ]
        for each in workers
    )
    if models:
        yield f"models{_cut(report.models, models, 'dearest')}"
    yield from table([each.model, spent_in_words(each.usage)] for each in models)


def _as_known(shares: Sequence[WorkerShare]) -> list[WorkerShare]:
    """The workers as people know them: all workers of system tasks count as the supervisor."""
    own = [each for each in shares if is_system_task(each.worker)]
    if not own:
        return list(shares)
    supervisor = WorkerShare(
        worker=SUPERVISOR,
        attempts=sum(each.attempts for each in own),
        busy=sum((each.busy for each in own), _NO_TIME),
        share=sum(each.share for each in own),
        failures=sum(each.failures for each in own),
        usage=sum((each.usage for each in own), NO_USAGE),
    )
    others = [each for each in shares if each not in own]
    return sorted([*others, supervisor], key=lambda share: -share.busy)


def _foot(report: Report) -> Iterable[str]:
    waste = report.waste
    if waste.attempts:
        spent = spent_in_words(waste.usage)
        retried = f"; tried again {counted(report.retries, 'time')}" if report.retries else ""
        yield (
            f"wasted  {counted(waste.attempts, 'attempt')}, {time_in_words(waste.time)}"
            f"{', ' + spent if spent else ''}{retried}"
        )
    if len(report.levels) > 1:
        each = (f"{lv.depth}: {lv.wall:.1f} s, {lv.own:.1f} s its own" for lv in report.levels)
        yield f"levels  {'; '.join(each)}"


def _cut(rows: Sequence[object], shown: Sequence[object], which: str) -> str:
    return "" if len(rows) == len(shown) else f" (the {len(shown)} {which} of {len(rows)})"


def _in_seconds(facts: Any) -> Any:
    if isinstance(facts, timedelta):
        return facts.total_seconds()
    if isinstance(facts, dict):
        return {name: _in_seconds(value) for name, value in facts.items()}
    return [_in_seconds(each) for each in facts] if isinstance(facts, list | tuple) else facts


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines with aligned columns. Unprintable characters are left out, because names may come from a model."""
    cells = [["".join(filter(str.isprintable, cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width
        ).rstrip()
        for row in cells
    ]


def spent_in_words(usage: Usage) -> str:
    """Calls, tokens and money, without those that are 0."""
    parts = [counted(usage.calls, "call")] if usage.calls else []
    if usage.tokens_in or usage.tokens_out:
        parts.append(f"{usage.tokens_in:,} + {usage.tokens_out:,} tokens")
    if usage.money:
        places = 2 if usage.money >= 1 else 4 if usage.money >= 0.01 else 6
        parts.append(f"${usage.money:,.{places}f}")
    return ", ".join(parts)


def time_in_words(length: timedelta) -> str:
    """A duration in a suitable unit, such as `350 ms`, `12.5 s` or `3 min 20 s`."""
    seconds = length.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return (
        f"{minutes} min {seconds} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
    )
