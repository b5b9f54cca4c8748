"""The workbench: makes of a decision to start a task the attempt that an engine runs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from chargehand.decisions.desk import Led
from chargehand.decisions.graph import Node
from chargehand.engines.base import Job, Lost, outcome_of
from chargehand.engines.brief import Brief, Line
from chargehand.engines.local import Threads
from chargehand.errors import JournalError, WorkerError
from chargehand.facts.commands import StartAttempt
from chargehand.facts.outcome import Done, Failed, Outcome, failed_by
from chargehand.facts.value import Value
from chargehand.journal.base import Blobs
from chargehand.roles.function import Where
from chargehand.roles.office import Office
from chargehand.roles.roster import Member, Roster


class Workbench:
    """Knows every worker of a roster, and where its work is done: on the loop, in threads, in children."""

    def __init__(self, roster: Roster, office: Office, blobs: Blobs, parallel: int) -> None:
        self._roster = roster
        self._office = office
        self._blobs = blobs
        self._threads = Threads(parallel)
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._works = {worker.name: self._work_of(worker) for worker in roster}

    async def close(self) -> None:
        """Let go of threads and children."""
        self._threads.close()
        await asyncio.gather(*(close() for close in self._closers))

    def job(self, start: StartAttempt, led: Led, line: Line) -> Job:
        """The attempt that was decided on, with all that its worker is to know."""
        node = led.schedule.nodes[start.task]
        task = node.task
        results = led.results
        values: dict[str, Value] = {}
        missing: dict[str, str] = {}
        for need in task.all_needs:
            value = results.outputs.get(need.task)
            if value is None:
                missing[need.key] = _why_missing(led.schedule.nodes[need.task])
            else:
                values[need.key] = value
        brief = Brief(
            start.run,
            task,
            start.attempt,
            start.worker,
            values,
            line,
            missing=missing,
            log=results.steps.get(start.task),
            answers=results.answers,
            limits=led.schedule.limits,
        )
        timeout = task.limits.timeout or self._roster[start.worker].timeout
        return Job(brief, self._works[start.worker], timeout)

    def _work_of(self, worker: Member) -> "Callable[[Job], Awaitable[Outcome | Lost]]":
        """The function that the engine is handed: what an attempt of this worker is."""
        function = worker.work(self._office)
        match worker.where:
            case Where.LOOP:

                def call(job: Job) -> "Awaitable[object]":
                    return cast("Awaitable[object]", function(job.brief))
            case Where.THREAD:

                def call(job: Job) -> "Awaitable[object]":
                    return self._threads.call(function, job.brief, job)
            case Where.PROCESS:
                from chargehand.engines.children import Children, importable

                children = Children(importable(function), worker.place.capacity or 1)
                self._closers.append(children.close)

                def call(job: Job) -> "Awaitable[object]":
                    return children.call(job.brief, job)

        async def work(job: Job) -> Outcome | Lost:
            brief = job.brief
            if brief.task.needs or brief.log is not None:
                try:
                    await self._fetch(brief)
                except Exception as error:  # noqa: BLE001 - a missing part or blob fails the attempt
                    return failed_by(error)
            outcome = await outcome_of(brief, call, job)
            if type(outcome) is Done and outcome.value.is_large:
                return await self.spill(outcome)
            return outcome

        return work

    async def _fetch(self, brief: Brief) -> None:
        """Bring what lies in blobs: the inputs, and the results of steps that are replayed."""
        for need in brief.task.all_needs:
            value = brief.values.get(need.key)
            if value is not None:
                brief.values[need.key] = _part_of(
                    await self._brought(value), need.output, need.task
                )
        for record in brief.log.lineage.values() if brief.log is not None else ():
            if isinstance(record.outcome, Done) and record.outcome.value.blob:
                value = await self._brought(record.outcome.value)
                brief.bring(msgspec.structs.replace(record, outcome=Done(value)))

    async def _brought(self, value: Value) -> Value:
        if not value.blob:
            return value
        data = await self._blobs.get(value.blob)
        return Value(json=msgspec.Raw(data), taint=value.taint)

    async def spill(self, done: Done) -> Done | Failed:
        """Put a large result into a blob; without room for it, the attempt has failed."""
        value = done.value
        try:
            digest = await self._blobs.put(bytes(value.json))
        except JournalError as error:
            return failed_by(error)
        return Done(Value(blob=digest, size=len(value.json), taint=value.taint), done.usage)


def _part_of(value: Value, path: str, task: str) -> Value:
    if not path:
        return value
    data = value.read()
    for key in path.split("."):
        if not isinstance(data, dict) or key not in data:
            raise WorkerError(f"the output of {task!r} has no {path!r}")
        data = data[key]
    return Value.of(data, value.taint)


def _why_missing(node: Node) -> str:
    if node.cause is not None:
        return str(node.cause)
    return f"{node.task.id} is {node.state.value}"
