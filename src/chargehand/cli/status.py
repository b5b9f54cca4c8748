"""`chargehand status`: list unfinished runs, what they wait for, and the servers of the journal."""

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from chargehand.cli import output
from chargehand.cli.find_run import OTHER_JOURNAL, FoundRun, heads_in, standing_of
from chargehand.cli.followed_run import untaken_words
from chargehand.cli.options import (
    again,
    journal_option,
    json_option,
    resume_words,
    with_resume_words,
)
from chargehand.decisions.coordination.troubles import RECENT, Symptom, Trouble
from chargehand.decisions.schedule import RunState
from chargehand.decisions.task_and_state_words import asker_name, task_name
from chargehand.decisions.wait_reasons import Cause, WaitReason, way_out
from chargehand.facts.durations import shown_length
from chargehand.facts.events import Approach, RunStatus
from chargehand.journal.base import Process
from chargehand.presentation.display_text import one_line, with_local_times
from chargehand.presentation.progress_lines import item_counts, task_counts
from chargehand.presentation.run_status import (
    INTERRUPTED,
    WAITING,
    answered_words,
    is_nested,
    looked_at,
    process_words,
    status_words,
)
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_offers import Server, servers_of
from chargehand.supervisor_factory import Choice, JournalPlace, journal_place, reader_of

#: most waits shown per run, and most runs per server; `--json` shows all
MOST_WAITS = 5
#: most characters of a warning
WARNING = 400


@click.command()
@journal_option
@json_option("Print one JSON object per unfinished run, then one per server.")
def status(*, journal: str, as_json: bool) -> None:
    """List unfinished runs, what they are waiting for, and which process leads them.

    Below the runs, the command lists the servers of the journal, with the runs that each server leads. A server that
    leads no run stands by.
    """
    place = journal_place(journal)
    standing = asyncio.run(_standing(place, warns=not as_json))
    if as_json:
        for found in standing.runs:
            output.as_json(_facts(found, standing))
        for server in standing.servers:
            output.as_json(_server_facts(server, standing))
        return
    if not standing.runs:
        to_list = f"to list all runs: {place.command('runs')}"
        hint = to_list if place.exists() else OTHER_JOURNAL
        output.say(f"no unfinished runs in {place}; {hint}")
    for found in standing.runs:
        for line in (
            *_in_words(found, str(place)),
            *_submitted_words(found, standing, place),
            *_interrupted_words(found, standing, place),
        ):
            output.result(line)
    for server in standing.servers:
        output.result(_server_words(server, standing))
    for warning in standing.warnings:
        output.say(warning)


class _Standing(Struct, frozen=True):
    """The unfinished runs and the servers of a journal."""

    runs: Sequence[FoundRun] = ()
    servers: Sequence[Server] = ()
    #: troubles and conflicts, other than the waits of the runs
    warnings: Sequence[str] = ()

    def led_by(self, server: Server) -> list[str]:
        """The unfinished runs that this server leads."""
        node = server.process.node
        return [each.result.id for each in self.runs if each.leader and each.leader.node == node]

    def refusals(self, found: FoundRun) -> list[tuple[Server, str]]:
        """The servers that do not start or take over a submitted or abandoned run, with the reasons."""
        waiting = found.submission
        if waiting is not None:
            reasons = [(server, server.offer.why_not(waiting)) for server in self.servers]
        elif found.is_abandoned:
            run = found.result
            reasons = [(server, server.offer.why_not_taken_over(run)) for server in self.servers]
        else:
            return []
        return [(server, reason) for server, reason in reasons if reason]


async def _standing(place: JournalPlace, *, warns: bool) -> _Standing:
    heads = [each for each in await heads_in(place) if not is_nested(each) and not each.is_ended]
    if not place.exists():
        return _Standing()
    async with reader_of(place) as boss:
        servers = await servers_of(boss.journal)
        looked = await looked_at(heads, lambda head: standing_of(boss, head))
        results = {head.stream: each.result for head, each in looked if isinstance(each, FoundRun)}
        warnings = await _warnings(boss, results, place) if warns and heads else []
    runs = [
        each
        for _, each in looked
        if isinstance(each, FoundRun) and not isinstance(each.result.status, RunStatus)
    ]
    return _Standing(runs, servers, warnings)


async def _warnings(
    boss: Supervisor, results: Mapping[str, RunResult], place: JournalPlace
) -> list[str]:
    """Troubles other than open questions, and conflicts between runs."""
    coordinator = boss.coordinator(recent=RECENT)
    health = await coordinator.health()
    troubles = [each for each in health.troubles if each.kind is not Symptom.ASKING]
    # The list of runs already shows runs without a leader, but not a leader that has gone silent.
    troubles = [
        each
        for each in troubles
        if each.kind is not Symptom.UNLED or (each.run in results and results[each.run].leader)
    ]
    conflicts = [each for each in await coordinator.conflicts() if not each.is_settled]
    told = [_trouble_words(each, results.get(each.run), place) for each in troubles]
    return [
        *(f"trouble: {one_line(words, WARNING)}" for words in told),
        *(f"conflict: {one_line(str(each), WARNING)}" for each in conflicts),
    ]


def _trouble_words(trouble: Trouble, result: RunResult | None, place: JournalPlace) -> str:
    """A trouble in words, with a resume command that can be pasted: it names the journal and, if needed, the crew."""
    choice = Choice(journal=os.fspath(place))
    if result is not None:
        return with_resume_words(str(trouble), result, choice)
    way_out = again("resume", trouble.run, choice)
    return str(trouble).replace(f"chargehand resume {trouble.run}", way_out)


def _in_words(standing: FoundRun, journal: str) -> Iterator[str]:
    result, state = standing.result, status_words(standing.status, standing.answered)
    if standing.status == INTERRUPTED and result.status is RunState.PAUSED:
        state = "paused, interrupted"  # it stays paused though no process leads it
    tasks = task_counts(result) if result.tasks else "no plan yet"
    yield f"{result.id}  {state}  {tasks}  {one_line(result.request)}"
    if result.parked:
        why = with_resume_words(result.parked, result, Choice(journal=journal))
        yield f"    {one_line(why, 400)}"
    if standing.leader is not None:
        yield f"    led by {process_words(standing.leader)}{_since(result.led_at)}"
    if standing.submission is not None:
        return
    mapped = {
        id_: words for id_, task in result.tasks.items() if (words := item_counts(task, result))
    }
    for id_, words in mapped.items():
        yield f"    {one_line(f'{id_}: {words}', 400)}"
    shared: dict[tuple[str, Cause, str, str], list[WaitReason]] = {}
    for wait in result.waits:
        if wait.run != result.id or wait.task not in mapped:
            shared.setdefault((wait.run, wait.cause, wait.what, wait.question), []).append(wait)
    # Waits for other tasks of the run come last.
    groups = sorted(shared.values(), key=lambda group: group[0].cause is Cause.NEEDS)
    for group in groups[:MOST_WAITS]:
        below = "" if group[0].run == result.id else f"{group[0].run}: "
        yield f"    {below}{one_line(_wait_words(group, standing, journal), 400)}"
    if len(groups) > MOST_WAITS:
        more = sum(map(len, groups[MOST_WAITS:]))
        yield f"    and {more} more; to see all: {JournalPlace(journal).command('status', '--json')}"


def _submitted_words(found: FoundRun, standing: _Standing, place: JournalPlace) -> Iterator[str]:
    """What a submitted run waits for, or why no server starts it."""
    if found.submission is not None:
        words = untaken_words(found.submission, standing.servers, place)
        yield from (f"    {line}" for line in words or ["waits for a server to start it"])


def _interrupted_words(found: FoundRun, standing: _Standing, place: JournalPlace) -> Iterator[str]:
    """How to continue a run without a leader, and why no server takes it over."""
    is_left = found.status == INTERRUPTED or (found.status == WAITING and found.leader is None)
    if not is_left or found.result.parked or found.result.approach is Approach.POOL:
        return
    resume = resume_words(found.result, Choice(journal=os.fspath(place)))
    if found.status == WAITING and not (found.is_abandoned and standing.servers):
        yield f"    no process leads it; once it is answered, continue it with: {resume}"
        return
    if not found.is_abandoned:
        yield f"    not taken over, because it was released on purpose; continue it with: {resume}"
        return
    refusals = standing.refusals(found)
    for server, reason in refusals:
        crew = f"its crew differs ({one_line(reason, 300)})"
        yield f"    not taken over by {process_words(server.process)}: {crew}"
    if not standing.servers:
        yield f"    not taken over, because no process serves the journal; continue it with: {resume}"
    elif len(refusals) == len(standing.servers):
        yield f"    start a server with the crew of the run, or accept the change: {resume} --accept"
    else:
        yield "    about to be taken over by a server"


def _server_words(server: Server, standing: _Standing) -> str:
    led = standing.led_by(server)
    most = f" and {len(led) - MOST_WAITS} more" if len(led) > MOST_WAITS else ""
    does = f"leads {', '.join(led[:MOST_WAITS])}{most}" if led else "stands by"
    return f"{process_words(server.process)} has served{_since(server.offer.since)}: {does}"


def _since(at: datetime | None) -> str:
    if at is None:
        return ""
    length = shown_length(max(datetime.now(UTC) - at, timedelta()))
    return f" since {at.astimezone():%Y-%m-%d %H:%M:%S} ({length})"


def _wait_words(group: Sequence[WaitReason], standing: FoundRun, journal: str) -> str:
    """What several tasks wait for, in one sentence; if a person can end the wait, also how."""
    wait = replace(group[0], task=_waiting_name(group[0]))
    words = with_local_times(wait.words(others=len(group) - 1))
    if wait.question in standing.answered:
        goes_on = answered_words(standing.result, wait.question)
        return f"{wait.task} is answered: {standing.answered[wait.question]}; {goes_on}"
    is_up_to_people = wait.lacks_worker or wait.cause in (Cause.PERSON, Cause.PAUSE)
    return f"{words}; {way_out(wait, journal)}" if is_up_to_people else words


def _waiting_name(wait: WaitReason) -> str:
    """The name of the waiting task. A question of a system task is asked by the run."""
    return asker_name(wait.task) if wait.cause is Cause.PERSON else task_name(wait.task)


def _facts(found: FoundRun, standing: _Standing) -> dict[str, Any]:
    result, leader = found.result, found.leader
    led = {} if leader is None else {**_process_facts(leader), "since": result.led_at}
    return {
        "run": result.id,
        "status": found.status,
        "leader": led or None,
        "is_paused": result.status.value == "paused",
        "request": result.request,
        "tasks": {id_: task.state.value for id_, task in result.tasks.items()},
        "waits": [] if found.submission is not None else result.waits,
        "answered": found.answered,
        "parked": result.parked,
        # by server: why it does not start or take over this submitted or abandoned run
        "not_taken_by": {s.process.node: reason for s, reason in standing.refusals(found)},
    }


def _process_facts(process: Process) -> dict[str, Any]:
    return {"node": process.node, "pid": process.pid, "host": process.host}


def _server_facts(server: Server, standing: _Standing) -> dict[str, Any]:
    return {
        "serves": _process_facts(server.process),
        "since": server.offer.since,
        "leads": standing.led_by(server),
        "workers": server.offer.names,
        "models": server.offer.models,
        "source": server.offer.source,
    }
