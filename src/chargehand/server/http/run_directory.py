"""Finds the runs that a token may see, and their states."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.speedup import work_of
from chargehand.decisions.wait_reasons import Explainer, WaitReason
from chargehand.errors import InternalError, JournalDamaged, JournalVersion, UnknownRun
from chargehand.facts.events import RunFinished, RunRequested
from chargehand.journal.base import Head, Journal, Process, load_value
from chargehand.presentation.run_status import SUBMITTED, UNREADABLE, is_nested, status_of
from chargehand.result import RunResult, Standing
from chargehand.runtime.command_inbox import answers_in, submission_of, submissions
from chargehand.server.http import run_views as views
from chargehand.server.http.json_types import (
    AnsweredView,
    ChildView,
    QuestionView,
    RunCounts,
    RunEntry,
    RunList,
    Snapshot,
    WaitView,
)
from chargehand.server.http.run_cache import AskedQuestion, RunRecord, RunRecords
from chargehand.supervisor import Supervisor
from chargehand.sync_async_bridge import in_thread

#: most cached rows of ended runs, and most cached requests
MOST_ROWS, MOST_REQUESTS = 2_000, 20_000
#: most runs that are read concurrently
AT_ONCE = 16
#: most characters of a request that can be searched
SEARCHED = 2_000
#: most tries to read a consistent snapshot of a run that is changing
MOST_LOOKS = 5
#: most ended runs that count for the recent work of workers
MOST_ENDED = 16
#: most characters of an id
LONGEST_ID = 200
#: errors of an unreadable run; other runs are still shown
UNREADABLE_ERRORS = (JournalDamaged, JournalVersion, InternalError, UnknownRun)


class RunOrigin(Struct, frozen=True):
    """The facts about a run that never change."""

    namespace: str
    parent: str
    request: str
    at: datetime


class RunStanding(Struct, frozen=True):
    """The state of a run, its open questions and its leader."""

    record: RunRecord
    state: str
    #: open questions of the run and of its nested runs, each with its run
    asked: list[tuple[RunRecord, AskedQuestion]]
    #: answers that wait for the next leader, by question
    answers: Mapping[str, AnsweredView]
    leader: Process | None


class OutsideFacts(Struct, frozen=True):
    """Facts about runs that are not in their events: unread commands and living processes."""

    #: answers that wait for the next leader, by question
    answers: Mapping[str, AnsweredView]
    #: runs with an unread request to cancel or to answer now
    ending: Collection[str]
    #: living processes by node
    alive: Mapping[str, Process]


NOTHING_OUTSIDE = OutsideFacts({}, (), {})


class RunOverview(Struct, frozen=True):
    """The runs of a namespace, and their states."""

    #: newest first
    heads: list[Head]
    #: state of each run
    states: Mapping[str, str]
    #: unfinished runs, by id
    open: Mapping[str, RunStanding]

    @property
    def counts(self) -> RunCounts:
        states = self.states.values()
        return RunCounts(
            all=len(self.heads),
            **{
                group: sum(views.matches(state, [group]) for state in states)
                for group in ("running", "needs", "failed", "partial", "done", "ended")
            },
        )

    @property
    def questions(self) -> set[str]:
        """The ids of all open questions."""
        return {each.question.id for standing in self.open.values() for _, each in standing.asked}


class RunDirectory:
    """The runs of a journal, by namespace."""

    def __init__(self, boss: Supervisor) -> None:
        self.boss = boss
        self.journal: Journal = boss.journal
        self.records = RunRecords(self.journal)
        self._origins: OrderedDict[str, RunOrigin] = OrderedDict()
        self._ended: dict[str, str] = {}
        self._rows: OrderedDict[tuple[str, int], RunEntry] = OrderedDict()

    # one run

    async def find(self, run: str, namespace: str) -> RunRecord:
        """Find a run in this namespace. For a run of another namespace, raises the same `UnknownRun` as if unknown."""
        await self.check(run, namespace)
        return await self.records.read(run)

    async def check(self, run: str, namespace: str) -> None:
        """Raise `UnknownRun` unless the run is in this namespace."""
        if not run or len(run) > LONGEST_ID or not run.isprintable():
            raise UnknownRun(run[:LONGEST_ID])
        if await self.namespace_of(run) != namespace:
            raise UnknownRun(run)

    async def has_begun(self, run: str) -> bool:
        """Whether the run has events in the journal."""
        with suppress(UnknownRun):
            return (await self.records.read(run)).seq > 0
        return False

    async def namespace_of(self, run: str) -> str:
        """The namespace of a run. A nested run is in the namespace of its parent."""
        origin = await self._origin(run)
        while origin.parent:
            origin = await self._origin(origin.parent)
        return origin.namespace

    async def _origin(self, run: str) -> RunOrigin:
        known = self._origins.get(run)
        if known is None:
            await self._learn([run])
            known = self._origins.get(run)
        if known is None:
            waiting = await submission_of(self.journal.mail, run)
            if waiting is None:
                raise UnknownRun(run)
            known = _origin_of(waiting.requested)
        return known

    async def _learn(self, runs: Iterable[str]) -> None:
        """Read and cache the requests of these runs."""
        unknown = [run for run in runs if run not in self._origins]
        for run, requested in (await self.journal.storage.requests(unknown)).items():
            self._origins[run] = _origin_of(requested)
        while len(self._origins) > max(MOST_REQUESTS, len(unknown)):
            self._origins.popitem(last=False)

    async def standing(self, record: RunRecord) -> RunStanding:
        """The current state of a run."""
        is_over = record.live_run.schedule.status is not None
        return await self._standing(record, NOTHING_OUTSIDE if is_over else await self._outside())

    async def standings(self, records: Iterable[RunRecord]) -> list[RunStanding]:
        """The current states of runs, without unreadable ones. Reads inbox and processes only once."""
        outside, found = await self._outside(), []
        for record in records:
            with suppress(*UNREADABLE_ERRORS):
                found.append(await self._standing(record, outside))
        return found

    async def _outside(self) -> OutsideFacts:
        letters = await self.journal.mail.unread()
        answers = {
            question: AnsweredView(mail.by, mail.text, None)
            for question, mail in answers_in(letters).items()
        }
        ending = {each.stream for each in letters if each.subject in ("cancel", "stop")}
        alive = {each.node: each for each in await self.journal.processes.alive()}
        return OutsideFacts(answers, ending, alive)

    async def _standing(self, record: RunRecord, outside: OutsideFacts) -> RunStanding:
        schedule, answers = record.live_run.schedule, outside.answers
        if schedule.status is not None:
            return RunStanding(record, schedule.status.value, [], {}, None)
        if not record.seq:
            return RunStanding(record, SUBMITTED, [], answers, None)
        below = await self._below(record)
        is_ending = record.run in outside.ending
        asked = [] if is_ending else [e for e in _asked(below) if e[1].question.id not in answers]
        leader = outside.alive.get(record.node) if record.node else None
        told = {question: each.text for question, each in answers.items()}
        result = self.result_of(record, below, Standing(leader, told))
        return RunStanding(record, status_of(result), asked, answers, leader)

    async def _below(self, record: RunRecord) -> dict[str, tuple[RunRecord, Any]]:
        """This run with the key "", and the unfinished nested runs by task, recursively."""
        found: dict[str, tuple[RunRecord, Any]] = {"": (record, None)}
        schedule = record.live_run.schedule
        for task, run in list(record.live_run.results.nested.items()):
            if not schedule.nodes[task].state.is_settled:
                with suppress(UnknownRun):  # it never started
                    child = await self.records.read(run)
                    found[task] = (child, await self._below(child))
        return found

    def result_of(
        self,
        record: RunRecord,
        below: Mapping[str, tuple[RunRecord, Any]] | None = None,
        standing: Standing | None = None,
    ) -> RunResult:
        """The result of a run."""
        nested = {
            task: self.result_of(child, deeper, standing)
            for task, (child, deeper) in (below or {}).items()
            if task
        }
        return RunResult(
            record.run, record.live_run, self._reading, below=nested, standing=standing
        )

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Journal]:
        yield self.journal

    def row_of(self, standing: RunStanding, work: timedelta) -> RunEntry:
        leader = views.leader_view(standing.leader, self.journal.leases.node)
        count = len(standing.asked)
        return views.run_row(standing.record, standing.state, count, leader, work)

    async def _work(self, standing: RunStanding) -> timedelta:
        """The total work of a run and of its nested runs; for a running run, up to now."""
        until = None if standing.leader is None else datetime.now(UTC)
        return await self._work_until(standing.record, until)

    async def _work_until(self, record: RunRecord, until: datetime | None) -> timedelta:
        below = {}
        for task, run in list(record.live_run.results.nested.items()):
            with suppress(*UNREADABLE_ERRORS):
                below[task] = await self._work_until(await self.records.read(run), until)
        work = work_of(record.spans.attempts, below)
        if until is None or record.ended_at is not None:
            return work
        open_ = [each for each in record.spans.attempts if each.ended_at is None]
        return work + sum(
            (below.get(each.task, max(until - each.began_at, timedelta(0))) for each in open_),
            timedelta(0),
        )

    # all runs

    async def heads(self, namespace: str, *, nested: bool = False) -> list[Head]:
        """The runs of a namespace, newest first."""
        waiting = {each.requested.run: each for each in await submissions(self.journal.mail)}
        heads = await self.journal.heads(forgotten=False)
        heads = heads if nested else [head for head in heads if not is_nested(head)]
        await self._learn([head.stream for head in heads])
        known = {head.stream for head in heads}
        found = [head for head in heads if await self._is_of(head.stream, namespace)]
        found += [
            each.head
            for run, each in waiting.items()
            if run not in known and each.requested.namespace == namespace
        ]
        return sorted(found, key=_age, reverse=True)

    async def _is_of(self, run: str, namespace: str) -> bool:
        try:
            return await self.namespace_of(run) == namespace
        except UnknownRun:  # its first event cannot be read
            return namespace == ""

    async def open_runs(self, namespace: str) -> list[RunRecord]:
        """The unfinished runs of a namespace."""
        return await self._open_of(await self.heads(namespace))

    async def recent_runs(self, namespace: str, since: datetime) -> list[RunRecord]:
        """The unfinished runs of a namespace, and the newest runs that have ended after `since`."""
        heads = await self.heads(namespace)
        ended = [
            head
            for head in heads
            if head.is_ended and head.changed_at is not None and head.changed_at >= since
        ]
        return [*await self._open_of(heads), *await self._read(ended[:MOST_ENDED])]

    async def _open_of(self, heads: Iterable[Head]) -> list[RunRecord]:
        return await self._read([head for head in heads if not head.is_ended])

    async def _read(self, heads: Iterable[Head]) -> list[RunRecord]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def read(head: Head) -> RunRecord | None:
            async with gate:
                with suppress(*UNREADABLE_ERRORS):
                    return await self.records.read(head.stream)
            return None

        found = await asyncio.gather(*(read(head) for head in heads))
        return [record for record in found if record is not None]

    async def overview(self, namespace: str) -> RunOverview:
        """The states of all runs of a namespace."""
        heads = await self.heads(namespace)
        standings = await self.standings(await self._open_of(heads))
        await self._learn_ends([h for h in heads if h.is_ended and h.stream not in self._ended])
        open_ = {each.record.run: each for each in standings}
        states = {run: standing.state for run, standing in open_.items()}
        states |= {
            h.stream: self._ended.get(h.stream, UNREADABLE) for h in heads if h.stream not in states
        }
        return RunOverview(heads, states, open_)

    async def page(
        self, namespace: str, *, states: list[str], q: str, before: str, limit: int
    ) -> RunList:
        """A page of runs, with the number of runs by state."""
        overview = await self.overview(namespace)
        wanted = [] if "all" in states else states
        words = q.casefold().split()
        fitting = [
            head
            for head in overview.heads
            if views.matches(overview.states[head.stream], wanted)
            and self._is_meant(head.stream, words)
        ]
        count = len(fitting)
        if before:
            fitting = [head for head in fitting if cursor_of(head) < before]
        page = fitting[:limit]
        rows = [await self._row(head, overview) for head in page]
        more = cursor_of(page[-1]) if len(fitting) > limit else None
        return RunList(rows, more, overview.counts, count)

    def _is_meant(self, run: str, words: list[str]) -> bool:
        origin = self._origins.get(run)
        text = f"{run} {'' if origin is None else origin.request}".casefold()
        return all(word in text for word in words)

    async def _row(self, head: Head, overview: RunOverview) -> RunEntry:
        run = head.stream
        known = self._rows.get((run, head.seq))
        if known is not None:
            return known
        try:
            standing = overview.open.get(run)
            if standing is None:
                standing = await self.standing(await self.records.read(run))
        except UNREADABLE_ERRORS as error:
            words = f"{error}; chargehand verify {run} says what can be saved"
            state, at = overview.states[run], head.began_at
            return RunEntry(
                id=run, title=words[:100], request="", state=state, reason=words, began_at=at
            )
        record = standing.record
        row = self.row_of(standing, await self._work(standing))
        if record.ended_at is not None:
            self._rows[run, record.seq] = row
            while len(self._rows) > MOST_ROWS:
                self._rows.popitem(last=False)
        return row

    async def _learn_ends(self, heads: Iterable[Head]) -> None:
        """Read and cache the final status of ended runs."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def look(head: Head) -> None:
            async with gate:
                with suppress(*UNREADABLE_ERRORS):
                    async for entry in self.journal.read(head.stream, head.seq - 1):
                        if isinstance(entry.event, RunFinished):
                            self._ended[head.stream] = entry.event.status.value

        await asyncio.gather(*map(look, heads))

    # details of a run

    async def snapshot(self, record: RunRecord) -> bytes:
        """Everything about a run except payloads, as JSON."""
        looks = 0
        while True:
            looks, seq = looks + 1, record.seq
            standing = await self.standing(record)
            questions = await self.questions(standing, closed=True)
            waits = await self._waits(record, standing)
            children, work = await self._children(record), await self._work(standing)
            async with record.lock:  # the record must not change while a thread reads it
                # The stream continues after `seq`, so all parts must be as new as `seq`.
                if record.seq == seq or looks == MOST_LOOKS:
                    return await in_thread(
                        self._snapshot, standing, questions, waits, children, work
                    )

    def _snapshot(
        self,
        standing: RunStanding,
        questions: list[QuestionView],
        waits: list[WaitView],
        children: list[ChildView],
        work: timedelta,
    ) -> bytes:
        record = standing.record
        told = Snapshot(
            seq=record.seq,
            run=views.detailed(self.row_of(standing, work), record),
            plan=views.plan_of(record),
            plan_version=record.live_run.schedule.version,
            tasks=views.task_rows(record),
            attempts=views.attempt_rows(record.spans.attempts),
            questions=questions,
            waits=waits,
            critical_path=views.critical_path(record),
            estimates=views.estimates_of(record),
            children=children,
            items=views.item_counts(record),
        )
        return msgspec.json.encode(told)

    async def _waits(self, record: RunRecord, standing: RunStanding) -> list[WaitView]:
        if not views.is_open(standing.state) or standing.state == SUBMITTED:
            return []
        found: Iterable[WaitReason]
        if standing.leader is not None and standing.leader.node == self.journal.leases.node:
            found = (await self.boss.look(record.run)).waits  # it knows the order in the queue
        else:
            is_led = standing.leader is not None
            now = datetime.now(UTC)
            found = Explainer(record.run, record.live_run, now, is_led=is_led).all()
        return [
            WaitView(wait.task, wait.what, wait.since_at, wait.cause.value)
            for wait in found
            if wait.run == record.run
        ]

    async def _children(self, record: RunRecord) -> list[ChildView]:
        found = []
        for task, run in list(record.live_run.results.nested.items()):
            with suppress(UnknownRun):
                child = await self.records.read(run)
                state = (await self.standing(child)).state
                found.append(ChildView(task, run, views.title_of(child.requested.request), state))
        return found

    async def questions(self, standing: RunStanding, *, closed: bool = False) -> list[QuestionView]:
        """The open questions of a run and of its nested runs; with `closed`, also the run's own closed questions."""
        record = standing.record
        asked = list(standing.asked)
        if closed:
            known = {each.question.id for _, each in asked}
            asked = [
                *((record, each) for id_, each in record.questions.items() if id_ not in known),
                *asked,
            ]
        found = []
        for asking, each in asked:
            evidence = await load_value(each.question.evidence, self.journal.blobs)
            found.append(views.question_view(asking, each, standing.answers, evidence.read()))
        return sorted(found, key=lambda question: question.asked_at)


def cursor_of(head: Head) -> str:
    """The cursor of a run for paging; newer runs have larger cursors."""
    return "~".join(_age(head))


def is_cursor(text: str) -> bool:
    """Whether `cursor_of` can have made this text."""
    began, tilde, run = text.partition("~")
    try:
        at = datetime.fromisoformat(began).astimezone(UTC) if began else None
    except (ValueError, OverflowError):
        return False
    return bool(tilde and run) and began == _written(at)


def _written(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(UTC).isoformat(timespec="microseconds")


def _age(head: Head) -> tuple[str, str]:
    return _written(head.began_at), head.stream


def _origin_of(requested: RunRequested) -> RunOrigin:
    return RunOrigin(
        requested.namespace, requested.parent, requested.request[:SEARCHED], requested.at
    )


def _asked(below: Mapping[str, tuple[RunRecord, Any]]) -> list[tuple[RunRecord, AskedQuestion]]:
    """The open questions of a run and of its nested runs."""
    found: list[tuple[RunRecord, AskedQuestion]] = []
    for task, (record, deeper) in below.items():
        if task:
            found += _asked(deeper)
            continue
        for node in record.live_run.schedule.nodes.values():
            if node.question is not None and node.question.id in record.questions:
                found.append((record, record.questions[node.question.id]))
    return found
