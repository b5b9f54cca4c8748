"""`chargehand serve`, `submit` and `watch`: runs that a background server leads."""

import asyncio
import gc
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from chargehand.cli import output
from chargehand.cli.event_display import WatchOptions
from chargehand.cli.find_run import find_run
from chargehand.cli.followed_run import follow, untaken_words
from chargehand.cli.options import (
    PathsCommand,
    again,
    boss_for,
    choice_of,
    crew_options,
    journal_option,
    json_option,
    notify_option,
)
from chargehand.cli.prune import retention_of, retention_options
from chargehand.cli.request_and_plan_input import given_plan, given_request, refuse_other_crew
from chargehand.cli.run import display_option, is_live_wanted, request_options, run_terms
from chargehand.cli.serve_http_options import web_options, web_options_of
from chargehand.facts.events import Event, RunFinished, RunLed
from chargehand.facts.retention import Retention
from chargehand.interrupt_signals import counting_signals
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_offers import servers_of
from chargehand.supervisor.shared_runtime import GRACE
from chargehand.supervisor_factory import Choice, journal_place, reader_of

if TYPE_CHECKING:
    from chargehand.server.http.web_server import WebOptions, WebServer


@click.command(cls=PathsCommand)
@crew_options
@notify_option
@retention_options("prune-")
@web_options
def serve(**options: Any) -> None:
    """Start a server that executes submitted runs, and continues runs whose process has died.

    Submit runs with `chargehand submit`. If the server extra is installed, the server also serves the HTTP API and the
    dashboard, and prints their address with a token.

    Several servers can serve one journal: each run is led by one of them, and the others stand by. On Ctrl-C, SIGTERM
    or SIGHUP, the server starts nothing new, gives running attempts 30 seconds to finish, and leaves the rest to the
    other servers. A second signal stops the server at once.
    """
    retention, choice = retention_of(options), choice_of(options)
    boss, choice = boss_for(choice)
    web = web_options_of(options, choice)
    serving = _Serving(boss, choice, retention, web)
    with counting_signals(serving.interrupted):
        asyncio.run(serving.run())


class _Said(logging.Handler):
    """Prints log messages on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        output.say(f"chargehand: {record.getMessage()}")


class _Serving:
    """A supervisor that serves the journal until Ctrl-C, SIGTERM or SIGHUP."""

    def __init__(
        self,
        boss: Supervisor,
        choice: Choice,
        retention: Retention | None,
        web: "WebOptions | None" = None,
    ) -> None:
        self._boss = boss
        self._web_options = web
        self._web: WebServer | None = None
        self._source = choice.source()
        self._retention = retention
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stops: set[asyncio.Task[None]] = set()
        log = logging.getLogger("chargehand.retention")  # to print the deleted runs
        log.setLevel(logging.INFO)
        log.propagate = False
        log.handlers = [_Said()]
        boss.on(RunLed, RunFinished)(_tell)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            async with self._listening():
                # All objects loaded by now stay. Frozen, they do not slow down each collection by up to 80 ms.
                gc.freeze()
                await self._boss.serve(
                    source=self._source, retention=self._retention, when_ready=self._tell_ready
                )
            await asyncio.gather(*self._stops)
        finally:
            await self._boss.close()

    @asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Serve the HTTP API inside the block, if it is switched on."""
        if self._web_options is None:
            yield
            return
        from chargehand.server.http.web_server import WebServer

        self._web = web = WebServer(self._boss, self._web_options)
        listening = asyncio.ensure_future(web.run())
        try:
            yield
        finally:
            web.stop()
            await listening

    def _tell_ready(self) -> None:
        """Say that the server is ready: only now does the journal name it, so that runs are handed over to it."""
        output.say(f"serving {getattr(self._boss.journal, 'path', 'a journal')}; Ctrl-C stops")
        if (web := self._web) is not None:
            fragment = "" if web.owner is None else f"#token={web.owner.token}"
            output.say(f"dashboard and API: {web.url}{fragment}")

    def interrupted(self, times: int) -> None:
        """Handle a signal. This can run between any two lines of the main thread, so the event loop does the work."""
        if self._loop is None or times > 2:
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._stop, GRACE if times == 1 else timedelta())

    def _stop(self, grace: timedelta) -> None:
        output.say(f"stopping: running attempts have {grace.total_seconds():g} s to finish")
        if self._web is not None:
            self._web.stop()
        self._stops.add(asyncio.ensure_future(self._boss.stop(grace)))


def _tell(run: str, event: Event) -> None:
    said = f"ended: {event.status.value}" if isinstance(event, RunFinished) else "is led here"
    output.say(f"{run} {said}")


@click.command(cls=PathsCommand)
@click.argument("request", required=False)
@request_options
@click.option("--review", is_flag=True, help="Ask a person to approve the plan before it runs.")
@json_option("Print the id of the run as one JSON object.")
def submit(request: str | None, plan_file: str | None, *, as_json: bool, **options: Any) -> None:
    """Submit a REQUEST to a server, and return at once with the id of the run.

    If REQUEST is -, it is read from stdin.

    Pass the same crew as the server. If no server of the journal has the workers for the run, the command says so,
    and the run waits. To follow the run, use `chargehand watch RUN`.
    """
    if (request is None) == (plan_file is None):
        raise click.UsageError("say what to do: give a REQUEST or --plan FILE")
    asked = given_request(request) if plan_file is None else given_plan(plan_file)
    choice = choice_of(options)
    boss, choice = boss_for(choice, quiet=as_json)
    refuse_other_crew(asked, boss, choice)
    terms = run_terms(boss, choice, options)
    terms["review"] = options["review"]

    async def post() -> tuple[str, list[str]]:
        try:
            run = await boss.post(asked, **terms)
            waiting, servers = await boss.control.submission(run), await servers_of(boss.journal)
            place = journal_place(choice.journal)
            return run, [] if waiting is None else untaken_words(waiting, servers, place)
        finally:
            await boss.close()

    run, words = asyncio.run(post())
    for line in words:
        output.say(line)
    if as_json:
        output.as_json({"run": run})
        return
    output.result(run)
    output.say(f"follow it:  {again('watch', run, choice)}")


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@json_option("Print each event as one line of JSON.")
@click.option("--verbose", is_flag=True, help="Also show the stack trace of each failure.")
@display_option
def watch(run_id: str, *, journal: str, as_json: bool, verbose: bool, display: str) -> None:
    """Follow a RUN from its beginning to its end, and print its answer.

    It does not matter which process executes the run. On a terminal, you can answer the questions of the run here.
    Ctrl-C stops this command, not the run. RUN is the id of a run, the beginning of an id, or `last`.
    """
    place = journal_place(journal)
    head = asyncio.run(find_run(run_id, place))
    is_live = is_live_wanted(display, plain=as_json)
    manner = WatchOptions(
        is_live=is_live,
        summary=is_live,
        choice=Choice(journal=journal),
        as_json=as_json,
        asks_here=output.is_interactive(),
        verbose=verbose,
    )
    sys.exit(follow(reader_of(place), head.stream, manner))
