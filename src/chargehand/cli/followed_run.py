"""Follows a run that another process leads: `chargehand watch`, and `chargehand run` if a server leads the run."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from chargehand.cli import output
from chargehand.cli.event_display import RunView, WatchOptions
from chargehand.cli.interactive_run import RunSession
from chargehand.cli.options import again
from chargehand.decisions.budget import NESTED
from chargehand.errors import JournalError, UnknownRun
from chargehand.facts.events import AttemptStarted, RunLed, RunReleased, RunRequested, StepStarted
from chargehand.presentation.display_text import one_line
from chargehand.presentation.run_status import BELOW, process_words
from chargehand.runtime.command_inbox import Submission
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_offers import Server, servers_of
from chargehand.supervisor_factory import Choice, JournalPlace, journal_place

#: seconds between two checks whether a process leads the run
LOOK = 1.0
#: checks in a row that find no leader before a message is printed: meanwhile, a standby may take over
LOOKS = 3


def follow(boss: Supervisor, run: str, manner: WatchOptions) -> int:
    """Follow a run to its end, show it, close the supervisor, and return the exit code."""
    view = RunView(manner, run)
    followed = FollowedRun(boss, view, manner)
    session = RunSession(boss, view, manner, leave=followed.leave, unled=followed.unled_at_end)
    return session.conduct(followed.follow)


async def servers_for(boss: Supervisor, choice: Choice, *, quiet: bool) -> list[Server]:
    """The servers of the journal with the same crew, files and models. If there is none, prints why."""
    ours = boss.offer(choice.source())
    fitting: list[Server] = []
    refusals: list[str] = []
    for server in await servers_of(boss.journal):
        if told := server.offer.differences(ours):
            refusals.append(
                f"{process_words(server.process)} serves this journal, but with {', '.join(told)}"
            )
        else:
            fitting.append(server)
    for refusal in refusals if not quiet and not fitting else ():
        output.say(f"led here: {refusal}")
    return fitting


def servers_words(servers: Sequence[Server]) -> str:
    """The process that starts a submitted run, in words; with several servers, any of them may."""
    if len(servers) > 1:
        return f"one of the {len(servers)} processes that serve this journal"
    return f"{process_words(servers[0].process)}, which serves this journal"


def serve_words(source: Mapping[str, Any], place: JournalPlace) -> str:
    """The command line that serves a journal with the crew of a run."""
    crew = str(source.get("crew", ""))
    return place.command("serve", *(["--crew", crew] if crew else []))


def untaken_words(
    submission: Submission, servers: Sequence[Server], place: JournalPlace
) -> list[str]:
    """Why no server starts a submitted run, and what helps; empty if a server can start it."""
    reasons = [(server.process, server.offer.why_not(submission)) for server in servers]
    if not all(reason for _, reason in reasons):
        return []
    who = "no other process" if reasons else "no process"
    serve = serve_words(submission.requested.source, place)
    return [
        *(f"not started by {process_words(each)}: {one_line(why, 200)}" for each, why in reasons),
        f"{who} serves this journal; start a server for it: {serve}",
    ]


class FollowedRun:
    """Shows the events of a run and of the runs nested in it, until the run ends or `leave` is called."""

    def __init__(self, boss: Supervisor, view: RunView, manner: WatchOptions) -> None:
        self._boss = boss
        self._view = view
        self._manner = manner
        self._left = asyncio.Event()
        #: node of the last leader; empty after it released the run, None before the first leader
        self._node: str | None = None
        #: where the run's crew comes from
        self._source: Mapping[str, Any] = {}
        #: worker of each task
        self._workers: dict[str, str] = {}
        #: the asyncio task that follows each nested run
        self._below: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        #: how to continue the run, as it was printed last
        self._said = ""

    def leave(self) -> None:
        """Stop following; the run continues."""
        self._left.set()

    async def follow(self) -> None:
        """Follow the run until it ends or is parked, or until `leave` is called."""
        following = asyncio.ensure_future(self._hear_all())
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                leaving = group.create_task(self._left.wait())
                minding = group.create_task(self._mind_leader())
                await asyncio.wait([following, leaving], return_when=asyncio.FIRST_COMPLETED)
                self._group = None
                if following.done() and self._below:  # the nested runs have ended too
                    await asyncio.wait(self._below.values(), timeout=LOOK)
                for task in (leaving, minding, *self._below.values()):
                    task.cancel()
        finally:
            following.cancel()
        if following.done():
            following.result()  # raises the error of the journal, if any

    async def _hear_all(self) -> None:
        async for event in self._boss.watch(self._view.run):
            self._view.hear(event)
            match event:
                case RunRequested():
                    self._source = event.source
                case RunLed():
                    self._node = event.node
                case RunReleased():
                    self._node = ""
                    if event.is_parked:
                        return
                case AttemptStarted():
                    self._workers[event.task] = event.worker
                case StepStarted(name=name) if name == NESTED:
                    self._enter(event, "")
                case _:
                    pass

    def _enter(self, event: StepStarted, above: str) -> None:
        """Follow the nested run that a task has started."""
        about = event.about.read()
        run = about.get("run") if isinstance(about, dict) else None
        if isinstance(run, str) and run not in self._below and self._group is not None:
            path = f"{above}{self._workers.get(event.task, '')}{BELOW}"
            self._below[run] = self._group.create_task(self._hear_below(path, run))

    async def _hear_below(self, path: str, run: str) -> None:
        signal = self._boss.journal.boards.signal
        while True:
            known = signal.count
            try:
                async for event in self._boss.watch(run):
                    self._view.hear_below(path, run, event)
                    if isinstance(event, AttemptStarted):
                        self._workers[event.task] = event.worker
                    elif isinstance(event, StepStarted) and event.name == NESTED:
                        self._enter(event, path)
            except UnknownRun:
                await signal.wait(since=known)  # it is about to start
            else:
                return

    async def _mind_leader(self) -> None:
        """Each time the run loses its leader, say so once, and how to continue the run."""
        missed = 0
        while True:
            await asyncio.sleep(LOOK)
            try:
                words = await self.unled()
            except JournalError:  # `_hear_all` raises it
                continue
            missed = missed + 1 if words else 0
            if missed == LOOKS and not self._manner.quiet:
                self._said = words
                output.say(words)

    async def unled_at_end(self) -> tuple[str, bool]:
        """The words of `unled`, and whether they were printed before."""
        words = await self.unled()
        return words, words == self._said

    async def unled(self) -> str:
        """How to continue the run, if no process leads it or will soon; otherwise empty."""
        run, journal, choice = self._view.run, self._boss.journal, self._manner.choice
        servers, place = await servers_of(journal), journal_place(choice.journal)
        if self._node is None:
            waiting = await self._boss.control.submission(run)
            words = [] if waiting is None else untaken_words(waiting, servers, place)
            return "; ".join([f"{run} is waiting", *words]) if words else ""
        if self._node in {each.node for each in await journal.processes.alive()}:
            return ""
        if self._node == "":  # it was released on purpose
            return f"no process leads {run}; continue it with:  {again('resume', run, choice)}"
        return (
            ""
            if servers
            else (
                f"the process that led {run} is gone; start a server ({serve_words(self._source, place)}), or continue it with:  "
                f"{again('resume', run, choice)}"
            )
        )
