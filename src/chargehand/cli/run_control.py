"""`chargehand answer`, `cancel`, `pause`, `unpause`, `steer`: control a run, whichever process leads it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import click

from chargehand.cli.find_run import FoundRun, standing_of, with_run
from chargehand.cli.options import journal_option, resume_words, stated
from chargehand.cli.output import say
from chargehand.cli.run_details import question_meant
from chargehand.errors import UnknownQuestion, UnknownRun, UsageError
from chargehand.facts.events import Approach, RunStatus
from chargehand.facts.outcome import Question, QuestionId
from chargehand.journal.base import Head
from chargehand.presentation.questions_and_typed_answers import answer_in
from chargehand.presentation.run_status import answered_words, process_words
from chargehand.supervisor import Supervisor
from chargehand.supervisor.crew_offers import Server, servers_of
from chargehand.supervisor_factory import Choice, journal_place

#: most open questions that an error lists
MOST_ASKED = 5


@click.command()
@click.argument("question")
@click.argument("text")
@journal_option
@click.option(
    "--server",
    metavar="URL",
    default="",
    callback=stated,
    help="Answer a question of a run on the server at this URL. `run --server` prints the complete command.",
)
def answer(question: str, text: str, journal: str, server: str) -> None:
    """Answer a question that a run has asked.

    QUESTION is the id of the question, as `chargehand show` prints it. If a run has only one open question, you can
    give the run instead: its id, the beginning of its id, or `last`. If the question has choices, TEXT is a choice or
    its number. If any choice begins with a number, TEXT must be the choice itself.
    """
    if server:
        if journal:
            raise click.UsageError("give --journal or --server, not both")
        from chargehand.cli.remote_run import answer_at_server  # with its HTTP client

        say(answer_at_server(server, question, text))
        return
    typed, _, rest = question.partition(":")

    async def give(boss: Supervisor, head: Head) -> str:
        run = head.stream
        result = await boss.look(run)
        try:
            asked = question_meant(result.questions, run, rest and f"{run}:{rest}")
        except UnknownQuestion as error:
            closed = await boss.why_closed(error.question)
            if type(closed) is not UnknownQuestion or not result.questions:
                raise closed from None
            raise _mistyped(error.question, result.questions, journal) from None
        await boss.answer(asked.id, answer_in(asked, text) or text)
        standing, servers = await standing_of(boss, head), await servers_of(boss.journal)
        return f"{asked.id} is answered; {_goes_on(asked.id, standing, servers, journal)}"

    try:
        say(asyncio.run(with_run(typed, journal, give)))
    except UnknownRun as error:
        if rest:
            raise
        raise UsageError(
            f"{typed!r} is no run of this journal, and no id of a question, which is RUN:TASK:NAME; "
            f"open questions are listed by: {journal_place(journal).command('status')}"
        ) from error


def _mistyped(typed: str, asked: Sequence[Question], journal: str) -> UsageError:
    """The error for an id that no question has, with those of the questions that are open."""
    run, names = QuestionId.read(typed).run, ", ".join(each.id for each in asked[:MOST_ASKED])
    more = f" and {len(asked) - MOST_ASKED} more" if len(asked) > MOST_ASKED else ""
    to_show = journal_place(journal).command("show", run)
    return UsageError(
        f"run {run} asks no question {typed!r}; its open questions: {names}{more}; to read them: {to_show}"
    )


def _goes_on(question: str, standing: FoundRun, servers: Sequence[Server], journal: str) -> str:
    """How a run continues after its question was answered."""
    if standing.result.approach is Approach.POOL:
        is_taken = question not in standing.answered
        return (
            "its pool continues the run" if is_taken else answered_words(standing.result, question)
        )
    if isinstance(standing.result.status, RunStatus):  # the answer may have ended it already
        return f"the run has ended: {standing.result.status.value}"
    if standing.leader is not None:
        return f"{process_words(standing.leader)} continues the run"
    for server in servers:
        if not server.offer.why_not_taken_over(standing.result):
            return f"{process_words(server.process)} takes over the run and continues it"
    return f"no process leads the run; continue it with: {resume_words(standing.result, Choice(journal=journal))}"


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@click.option(
    "--answer-now", is_flag=True, help="Stop the work and answer from the results so far."
)
@click.option("--reason", default="", metavar="TEXT", help="Reason to store with the run.")
def cancel(run_id: str, journal: str, *, answer_now: bool, reason: str) -> None:
    """Cancel a RUN, or make it answer now.

    With --answer-now, the work stops, and the run answers from the results so far. The command works no matter which
    process leads the run. RUN is the id of a run, the beginning of an id, or `last`.
    """

    def end(boss: Supervisor, run: str) -> Awaitable[None]:
        if answer_now:
            return boss.answer_now(run, reason or "the answer was wanted at once")
        return boss.cancel(run, reason)

    _control(run_id, journal, end, "will answer" if answer_now else "will be cancelled")


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@click.option("--reason", default="", metavar="TEXT", help="Reason to store with the run.")
def pause(run_id: str, journal: str, reason: str) -> None:
    """Pause a RUN: start nothing new until `chargehand unpause`.

    Running attempts stop at their next step and continue from there later. Deadlines still apply. This works no
    matter which process leads the run. RUN is the id of a run, the beginning of an id, or `last`.
    """
    _control(run_id, journal, lambda boss, run: boss.pause(run, reason), "will be paused")


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
def unpause(run_id: str, journal: str) -> None:
    """Continue a paused RUN where it stopped.

    This works no matter which process leads the run. RUN is the id of a run, the beginning of an id, or `last`.
    """
    _control(run_id, journal, lambda boss, run: boss.unpause(run), "will continue")


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("note")
@journal_option
@click.option(
    "--key",
    default="",
    metavar="TEXT",
    help="Idempotency key: the same note with the same key is applied only once.",
)
def steer(run_id: str, note: str, journal: str, key: str) -> None:
    """Change the remaining work of a RUN according to a NOTE.

    A model changes the plan. The model that composes the answer also gets the note. This works no matter which
    process leads the run. RUN is the id of a run, the beginning of an id, or `last`.
    """
    _control(
        run_id,
        journal,
        lambda boss, run: boss.steer(run, note, key=key),
        "will be replanned",
        provided=", if its crew has a model (without one, its log says that the note is refused)",
    )


def _control(
    typed: str,
    journal: str,
    send: Callable[[Supervisor, str], Awaitable[None]],
    what: str,
    *,
    provided: str = "",
) -> None:
    """Send a command to a run, and say when it takes effect; `provided` is what its next leader needs for it."""

    async def sent(boss: Supervisor, head: Head) -> FoundRun:
        await send(boss, head.stream)
        return await standing_of(boss, head)

    standing = asyncio.run(with_run(typed, journal, sent))
    result = standing.result
    if isinstance(result.status, RunStatus):
        say(f"run {result.id} has ended: {result.status.value}")
    elif result.approach is Approach.POOL:
        say(f"run {result.id} {what} as soon as an agent of its pool sees this")
    elif standing.leader is not None:
        say(f"run {result.id} {what} as soon as {process_words(standing.leader)} receives this")
    else:
        resume = resume_words(result, Choice(journal=journal))
        say(
            f"run {result.id} {what} as soon as a process leads it{provided}; continue it with: {resume}"
        )
