"""`chargehand run` and `resume`: run a request, or resume an interrupted run."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from chargehand.cli import output
from chargehand.cli.event_display import RunView, WatchOptions
from chargehand.cli.find_run import find_run, standing_of, with_run
from chargehand.cli.followed_run import follow, servers_for, servers_words
from chargehand.cli.given_path import GivenPath
from chargehand.cli.interactive_run import RunSession
from chargehand.cli.options import (
    Number,
    PathsCommand,
    WholeNumber,
    again,
    boss_for,
    choice_of,
    crew_options,
    length,
    notify_option,
    stated,
    worker_option,
)
from chargehand.cli.request_and_plan_input import (
    given_plan,
    given_request,
    refuse_other_crew,
    review,
)
from chargehand.cli.suggested_commands import with_journal
from chargehand.decisions.schedule import RunState
from chargehand.errors import UsageError
from chargehand.facts.events import KINDS
from chargehand.facts.limits import Limits
from chargehand.facts.plan import Plan
from chargehand.journal.base import Head, is_part_of_journal
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_offers import Server
from chargehand.supervisor.requests import RunOptions
from chargehand.supervisor_factory import Choice, journal_place, reader_of, with_journal_of_crew
from chargehand.terminal_detection import is_terminal


def _writable(context: click.Context, option: click.Parameter, file: str) -> str:
    """Refuse an output file that cannot be written, before the run starts."""
    stated(context, option, file)
    place = Path(file).absolute()
    if not file:
        return file
    if not place.parent.is_dir():
        raise UsageError(f"--output: there is no folder {place.parent}; create it first")
    if place.is_dir():
        raise UsageError(f"--output: {place} is a folder; give a file in it")
    if is_part_of_journal(place):
        raise UsageError(f"--output: {place} belongs to a journal; choose another file")
    if not os.access(place if place.exists() else place.parent, os.W_OK):
        raise UsageError(f"--output: {place} is not writable; choose another file")
    return file


display_option = click.option(
    "--display",
    type=click.Choice(["auto", "live", "plain"]),
    default="auto",
    help="How to show progress. live: a view of the run at the bottom of the terminal; plain: only one line per "
    "change; auto (default): live on a terminal, unless $CI or $NO_PROGRESS is set.",
)


def showing_options(command: Any) -> Any:
    """Add the options for how a run is shown."""
    options = (
        click.option(
            "--json", "as_json", is_flag=True, help="Print each event as one line of JSON."
        ),
        click.option(
            "--quiet",
            is_flag=True,
            help="Print only the result; with --json, one object: run, status, answer, claims, gaps, "
            "confidence, usage, over_budget, questions.",
        ),
        display_option,
        click.option(
            "--on-question",
            type=click.Choice(["wait", "return", "supervisor", "fail"]),
            help="What to do when the run asks a question. wait: wait for the answer (on a terminal, you can answer "
            "here); return: exit with code 4, so that you can answer and resume the run; supervisor: let the "
            "supervisor's model answer the questions of workers, and a person all others, such as approvals; fail: "
            "use the default answer of the question, or fail the task that asks. Default: wait on a terminal or with "
            "--notify, otherwise return.",
        ),
        click.option("--verbose", is_flag=True, help="Also show the stack trace of each failure."),
        click.option(
            "--output",
            type=GivenPath(),
            metavar="FILE",
            default="",
            callback=_writable,
            help="Write the result to FILE. If there is no result, FILE is not changed.",
        ),
        click.option(
            "--report", is_flag=True, help="At the end, report where time and money went."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def request_options(command: Any) -> Any:
    """Add the options of a request: plan, crew, workers, limits, priority."""
    options = (
        click.option(
            "--plan",
            "plan_file",
            type=GivenPath(),
            metavar="FILE",
            help="Run the plan in FILE instead of a REQUEST; - reads it from stdin.",
        ),
        crew_options,
        worker_option,
        click.option(
            "--approach",
            type=click.Choice(["stream", "whole", "route", "steps"]),
            help="How the request becomes tasks. stream (default): start tasks while the plan is still being "
            "written; whole: write the whole plan first; route: give the request to one worker; steps: choose the "
            "next worker after each result.",
        ),
        _limit_options,
        click.option(
            "--priority",
            type=int,
            default=0,
            metavar="N",
            help="Priority of the run; a larger number is more urgent. Default: 0. It only matters if a server "
            "(`chargehand serve`) leads the run, because a server leads several runs at once.",
        ),
        click.option(
            "--after", metavar="RUN", callback=stated, help="Follow up on the answer of this run."
        ),
        click.option(
            "--reuse",
            metavar="RUN",
            callback=stated,
            help="Reuse the results of this run for tasks that have not changed.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _limit_options(command: Any) -> Any:
    """Add the options for the deadline and the budget of a run."""
    options = (
        click.option(
            "--deadline",
            metavar="TIME",
            callback=length,
            help="Answer within this time, such as 90s, 5m or 1h30m.",
        ),
        click.option("--money", type=Number(0), metavar="DOLLARS", help="Spend at most this much."),
        click.option("--tokens", type=WholeNumber(0), metavar="N", help="Use at most N tokens."),
        click.option(
            "--calls", type=WholeNumber(0), metavar="N", help="Make at most N model calls."
        ),
        click.option(
            "--on-budget",
            type=click.Choice(["stop", "ask"]),
            default="stop",
            help="What to do when the budget is used up. stop (default): answer from the results so far; ask: ask a "
            "person whether to raise the budget.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command(cls=PathsCommand)
@click.argument("request", required=False)
@request_options
@click.option(
    "--review",
    is_flag=True,
    help="Show the plan before it runs, so that you can approve or edit it.",
)
@click.option(
    "--here",
    is_flag=True,
    help="Lead the run in this process, even if `chargehand serve` serves the journal.",
)
@click.option(
    "--server",
    metavar="URL",
    default="",
    callback=stated,
    help="Run the request on the server (`chargehand serve`) at this URL, with the server's crew. The token is taken "
    "from the URL, if it is the one that the server printed; otherwise from $CHARGEHAND_TOKEN, the file "
    "$CHARGEHAND_TOKEN_FILE, the keyring or, on the server's machine, the server's token file.",
)
@notify_option
@showing_options
def run(request: str | None, plan_file: str | None, **options: Any) -> None:
    """Run a REQUEST and print the answer.

    If REQUEST is -, it is read from stdin.

    If a server (`chargehand serve`) serves the journal with the same crew, files and models, this command hands the
    run over to that server and shows its progress here. The server compares the priority of the run with that of its
    other runs. Ctrl-C stops this command, not the run.

    Exit codes: 0 done, 1 failed, 2 usage error, 3 partial answer, 4 a person is needed,
    5 over budget, 130 interrupted.
    """
    if request is not None and plan_file is not None:
        raise click.UsageError("give a REQUEST or --plan FILE, not both")
    if request is None and plan_file is None:
        raise click.UsageError("say what to do: give a REQUEST or --plan FILE")
    asked = given_request(request) if plan_file is None else given_plan(plan_file)
    if url := options.pop("server"):
        from chargehand.cli.remote_run import run_at_server  # with its HTTP client

        sys.exit(run_at_server(url, asked, options))
    choice = choice_of(options)
    manner = manner_of(choice, options)
    boss, choice = boss_for(choice, quiet=manner.quiet)
    manner = manner.with_choice(choice)
    refuse_other_crew(asked, boss, choice)
    terms = run_terms(boss, choice, options)
    if options["review"]:
        asked = _to_review(asked, boss, terms)
    servers = [] if options["here"] else asyncio.run(_servers(boss, choice, options))
    if servers:
        if not manner.quiet:
            output.say(f"handed over to {servers_words(servers)}; to lead it here, use --here")
        sys.exit(follow(boss, asyncio.run(boss.post(asked, **terms)), manner))
    watch = RunView(manner)

    async def start() -> None:
        async for heard in boss.stream(asked, **terms):
            watch.hear(heard)

    sys.exit(RunSession(boss, watch, manner).conduct(start))


async def _servers(boss: Supervisor, choice: Choice, options: dict[str, Any]) -> list[Server]:
    """The servers to which this run can be handed over; empty if this process leads it."""
    own = [
        flag
        for flag, is_given in (
            ("--notify", choice.notify),
            ("--parallel", choice.parallel),
            ("--on-question", options["on_question"] in ("supervisor", "fail")),
        )
        if is_given
    ]
    servers = await servers_for(boss, choice, quiet=options["quiet"])
    if not servers or not own:
        return servers
    if not options["quiet"]:
        output.say(
            f"led here: {own[0]} works only for runs that this command leads, so the run is not handed over to "
            f"{servers_words(servers)}"
        )
    return []


@click.command(cls=PathsCommand)
@click.argument("run_id", metavar="RUN")
@click.option("--accept", is_flag=True, help="Resume the run even if the crew has changed.")
@crew_options
@notify_option
@showing_options
def resume(run_id: str, *, accept: bool, **options: Any) -> None:
    """Resume an interrupted RUN, or print the answer of a finished one again.

    RUN is the id of a run, the beginning of an id, or `last`. The run keeps the crew, files and model that it was
    started with, unless you pass others.
    """
    choice = with_journal_of_crew(choice_of(options))
    manner = manner_of(choice, options)
    head, source = asyncio.run(with_run(run_id, choice.journal, _with_source))
    found = head.stream
    watch = RunView(manner, found)
    if head.is_ended:
        # Its answer is in the journal: neither the crew nor a model is needed to print it again.
        reader = reader_of(journal_place(choice.journal))
        sys.exit(RunSession(reader, watch, manner).conduct(_nothing))
    given, choice = choice, choice.or_as(source)
    if choice.crew != given.crew and not manner.quiet:
        output.say(f"crew: {choice.crew}, as when the run was started")
    boss, _ = boss_for(choice.in_found_journal(), quiet=manner.quiet)

    async def start() -> None:
        standing = await standing_of(boss, head)
        watch.catch_up(standing.result, standing.asked)
        if standing.result.status is RunState.PAUSED:
            output.say(f"the run is paused; continue it with:  {again('unpause', found, choice)}")
        boss.on(*KINDS.values())(lambda run, event: watch.hear(event) if run == found else None)
        await boss.resume(found, accept=accept, on_question=options["on_question"])

    sys.exit(RunSession(boss, watch, manner).conduct(start))


async def _with_source(boss: Supervisor, head: Head) -> tuple[Head, Mapping[str, Any]]:
    """The run, and where its crew comes from if it was started on the command line."""
    return head, (await boss.look(head.stream)).source


async def _nothing() -> None:
    """Do nothing: the run has already ended."""


def manner_of(choice: Choice, options: dict[str, Any]) -> WatchOptions:
    """Convert the display options of the command line."""
    is_plain = options["display"] == "plain" or options["as_json"] or options["quiet"]
    waits = options["on_question"] in (None, "wait", "supervisor")
    is_live = is_live_wanted(options["display"], plain=is_plain)
    return WatchOptions(
        is_live=is_live,
        choice=choice,
        as_json=options["as_json"],
        quiet=options["quiet"],
        summary=is_live or (not is_plain and is_terminal(sys.stderr) and not output.is_plain()),
        report=options["report"],
        asks_here=waits and output.is_interactive(),
        returns=options["on_question"] in (None, "return"),
        verbose=options["verbose"],
        file=options["output"],
    )


def is_live_wanted(display: str, *, plain: bool) -> bool:
    """Whether to show the live view. Raises `click.UsageError` if `--display live` is not possible."""
    if plain or display == "plain":
        return False
    is_possible = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb" and _has_terminal()
    if display == "live":
        if not is_possible:
            raise click.UsageError("--display live needs a terminal on stderr; leave it out")
        return True
    return is_possible and not output.is_plain() and not os.environ.get("NO_PROGRESS")


def _has_terminal() -> bool:
    """Whether this process is in the foreground of a terminal; False on systems without job control."""
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


def run_terms(boss: Supervisor, choice: Choice, options: dict[str, Any]) -> RunOptions:
    """Convert the run options of the command line."""
    terms = RunOptions(
        priority=options["priority"],
        deadline=options["deadline"],
        on_budget=options["on_budget"],
        source=choice.source(),
        clarify=True,
        on_question=options.get("on_question"),
    )
    if limits := _limits(boss, options):
        terms["limits"] = limits
    if options["workers"]:
        terms["workers"] = options["workers"]
    if options["approach"]:
        terms["approach"] = options["approach"]
    place = journal_place(choice.journal)
    if options["after"]:
        terms["after"] = asyncio.run(find_run(options["after"], place)).stream
    if options["reuse"]:
        terms["reuse"] = asyncio.run(find_run(options["reuse"], place)).stream
    return terms


def _limits(boss: Supervisor, options: dict[str, Any]) -> Limits | None:
    """The supervisor's limits, overridden by the flags; None if no flag is given."""
    given = {
        name: options[name] for name in ("money", "tokens", "calls") if options[name] is not None
    }
    return replace(boss.limits, **given) if given else None


def _to_review(asked: str | Plan, boss: Supervisor, terms: RunOptions) -> str | Plan:
    """Let the person approve the plan before any task starts; returns what to run."""
    if not output.is_interactive():
        way_out = (
            "write the plan with chargehand plan … --save plan.json, "
            "edit it, and run it with chargehand run --plan plan.json"
        )
        raise click.UsageError(f"--review needs a terminal; {with_journal(way_out)}")
    if isinstance(asked, Plan):
        return review(asked, boss.roster.limited_to(terms.get("workers") or ()).names)
    if terms.get("on_question") == "fail":
        raise click.UsageError("--review asks you about the plan, so leave out --on-question fail")
    # The run itself plans and asks, so that the cost of planning counts too.
    terms["review"] = True
    return asked
