"""`chargehand answer`, `cancel`, `pause`, `unpause`, `steer`: control of a run, wherever it is led."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click

from chargehand.cli.find_run import FoundRun, standing_of, with_run
from chargehand.cli.options import journal_option, resume_words
from chargehand.cli.output import say
from chargehand.cli.run_details import question_meant
from chargehand.errors import UnknownQuestion
from chargehand.facts.events import Approach, RunStatus
from chargehand.journal.base import Head
from chargehand.presentation.question_words import answer_in
from chargehand.presentation.run_status import process_words
from chargehand.settings import Choice
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_advertisement import Server, servers_of


@click.command()
@click.argument("question")
@click.argument("text")
@journal_option
def answer(question: str, text: str, journal: str) -> None:
    """Answer a QUESTION of a run with TEXT: one of its choices, or their number.

    QUESTION is its id, as `show` prints it, or the run's if it asks only one thing.
    """
    typed, _, rest = question.partition(":")

    async def give(boss: Supervisor, head: Head) -> str:
        run = head.stream
        result = await boss.look(run)
        try:
            asked = question_meant(result.questions, run, rest and f"{run}:{rest}")
        except UnknownQuestion as error:
            raise await boss.why_closed(error.question) from None
        await boss.answer(asked.id, answer_in(asked, text) or text)
        standing, servers = await standing_of(boss, head), await servers_of(boss.journal)
        return f"{asked.id} is answered; {_goes_on(standing, servers, journal)}"

    say(asyncio.run(with_run(typed, journal, give)))


def _goes_on(standing: FoundRun, servers: Sequence[Server], journal: str) -> str:
    """How a run goes on whose question was answered."""
    if standing.result.approach is Approach.POOL:
        return "its pool goes on with it"
    if standing.leader is not None:
        return f"{process_words(standing.leader)} goes on with it"
    for server in servers:
        if not server.offer.why_not_taken_over(standing.result):
            return f"{process_words(server.process)} takes the run over and goes on with it"
    return f"no process leads the run; go on with: {resume_words(standing.result, Choice(journal=journal))}"


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@click.option("--answer-now", is_flag=True, help="Stop the work, and answer from what there is.")
@click.option("--reason", default="", help="Kept with the run.")
def cancel(run_id: str, journal: str, *, answer_now: bool, reason: str) -> None:
    """End a RUN, wherever it is led; with --answer-now, have its answer at once."""

    def end(boss: Supervisor, run: str) -> Awaitable[None]:
        if answer_now:
            return boss.answer_now(run, reason or "the answer was wanted at once")
        return boss.cancel(run, reason)

    _control(run_id, journal, end, "answers" if answer_now else "is cancelled")


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@click.option("--reason", default="", help="Kept with the run.")
def pause(run_id: str, journal: str, reason: str) -> None:
    """Have a RUN start nothing new until `unpause`, wherever it is led.

    What runs stops at its next step and goes on from there later. Deadlines are kept.
    """
    _control(run_id, journal, lambda boss, run: boss.pause(run, reason), "is paused")


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
def unpause(run_id: str, journal: str) -> None:
    """Have a paused RUN go on where it stopped, wherever it is led."""
    _control(run_id, journal, lambda boss, run: boss.unpause(run), "goes on")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("note")
@journal_option
@click.option("--key", default="", help="The same note under the same key is taken once.")
def steer(run_id: str, note: str, journal: str, key: str) -> None:
    """Have what is not done yet of a RUN changed as the NOTE says, wherever it is led.

    A model changes the plan, and the note is also given to the model that composes the answer.
    """
    _control(run_id, journal, lambda boss, run: boss.steer(run, note, key=key), "is planned again")


def _control(
    typed: str, journal: str, send: Callable[[Supervisor, str], Awaitable[None]], what: str
) -> None:
    """Send something to a run, and say when it takes effect."""

    async def sent(boss: Supervisor, head: Head) -> FoundRun:
        await send(boss, head.stream)
        return await standing_of(boss, head)

    standing = asyncio.run(with_run(typed, journal, sent))
    result = standing.result
    if isinstance(result.status, RunStatus):
        say(f"run {result.id} has ended: {result.status.value}")
    elif result.approach is Approach.POOL:
        say(f"run {result.id} {what} as soon as an agent of its pool looks at it")
    elif standing.leader is not None:
        say(f"run {result.id} {what} as soon as {process_words(standing.leader)} hears of it")
    else:
        resume = resume_words(result, Choice(journal=journal))
        say(f"run {result.id} {what} as soon as a process leads it; go on with: {resume}")
