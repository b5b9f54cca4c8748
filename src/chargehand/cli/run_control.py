"""`chargehand answer`, `cancel`, `pause`, `unpause`, `steer`: control of a run, wherever it is led."""

import asyncio
from collections.abc import Awaitable, Callable

import click

from chargehand.cli.find_run import with_run
from chargehand.cli.options import journal_option
from chargehand.cli.output import say
from chargehand.cli.run_details import question_meant
from chargehand.errors import UnknownQuestion
from chargehand.facts.events import Approach, RunStatus
from chargehand.journal.base import Head
from chargehand.presentation.question_words import answer_in
from chargehand.result import RunResult
from chargehand.supervisor import Supervisor


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
        is_pooled = result.approach is Approach.POOL
        then = "its pool goes on with it" if is_pooled else "if nobody leads the run now, resume it"
        return f"{asked.id} is answered; {then}"

    say(asyncio.run(with_run(typed, journal, give)))


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

    async def sent(boss: Supervisor, head: Head) -> RunResult:
        await send(boss, head.stream)
        return await boss.look(head.stream)

    result = asyncio.run(with_run(typed, journal, sent))
    if isinstance(result.status, RunStatus):
        say(f"run {result.id} has ended: {result.status.value}")
    elif result.approach is Approach.POOL:
        say(f"run {result.id} {what} as soon as an agent of its pool looks at it")
    else:
        say(
            f"run {result.id} {what} as soon as the process that leads it hears of it; if none does, resume it"
        )
