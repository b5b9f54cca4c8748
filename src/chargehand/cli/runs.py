"""`chargehand runs`, `show`, `trace`, `cancel`, `answer`: runs as the journal knows them."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from chargehand.cli import output
from chargehand.cli.options import journal_option, json_option

if TYPE_CHECKING:
    from chargehand.result import RunResult
    from chargehand.supervisor import Supervisor


@click.command(short_help="List the runs, the newest first.")
@click.option(
    "--most", type=click.IntRange(1), default=20, metavar="N", help="How many; the newest first."
)
@click.option("--all", "all_", is_flag=True, help="Also runs that are tasks of others.")
@journal_option
@json_option("One JSON object per run.")
def runs(*, most: int, all_: bool, journal: str, as_json: bool) -> None:
    """List the runs of a journal, the one that changed last first."""
    import shutil

    from chargehand.cli.find_run import FoundRun, heads_in, is_nested, looked_at, standing_of
    from chargehand.cli.run_table import listed, listing, told, unreadable
    from chargehand.settings import journal_place, reader_of

    place = journal_place(journal)
    heads = asyncio.run(heads_in(place))
    heads = heads if all_ else [head for head in heads if not is_nested(head)]
    if not heads and not as_json:
        output.say(f'there are no runs in {place} yet; start one: chargehand run "…"')
        return

    async def all_told() -> list[Any]:
        async with reader_of(place) as boss:
            looked = await looked_at(
                heads[:most], lambda head: standing_of(boss, head.stream, head.owner)
            )
        return [
            told(head, each.result, each.status, each.asked)
            if isinstance(each, FoundRun)
            else unreadable(head, each)
            for head, each in looked
        ]

    rows = asyncio.run(all_told()) if heads else []
    for line in listed(rows) if as_json else listing(rows, shutil.get_terminal_size().columns):
        output.result(line)
    if len(heads) > most and not as_json:
        output.say(f"{len(heads) - most} more; --most {len(heads)} lists them too")


@click.command(short_help="Show how a run stands, and its answer.")
@click.argument("run_id", metavar="RUN")
@journal_option
@json_option("As one JSON object.")
def show(run_id: str, journal: str, *, as_json: bool) -> None:
    """Show how a RUN stands: its tasks, its answer, what is missing, what it asks."""
    from chargehand.cli.find_run import owner_of, standing_of, with_run
    from chargehand.cli.run_details import shown, shown_json

    async def look(boss: "Supervisor", run: str) -> list[str]:
        standing = await standing_of(boss, run, await owner_of(run, journal))
        make = shown_json if as_json else shown
        # In a thread: outputs that lie in blobs are loaded when they are looked at.
        return await asyncio.to_thread(lambda: list(make(standing, journal)))

    for line in asyncio.run(with_run(run_id, journal, look)):
        output.result(line)


@click.command(short_help="Print all that happened in a run, as JSON.")
@click.argument("run_id", metavar="RUN", required=False)
@journal_option
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a trace instead.")
@click.option("--no-content", is_flag=True, help="Leave out what was said, sent and returned.")
def trace(run_id: str | None, journal: str, *, schema: bool, no_content: bool) -> None:
    """Print the trace of a RUN as JSON: plan, dispatch, every call, retries, the answer."""
    import json

    from chargehand.cli.find_run import with_run
    from chargehand.cli.safe_text import clean_json
    from chargehand.decisions.trace import Trace

    if schema:
        output.result(json.dumps(Trace.json_schema(), indent=2))
        return
    if run_id is None:
        raise click.UsageError("say which run: an id, the beginning of one, or last")

    async def told(boss: "Supervisor", run: str) -> str:
        result = await boss.look(run)
        found = await asyncio.to_thread(lambda: result.trace)
        return clean_json(found.to_json(content=not no_content).encode()).decode()

    output.result(asyncio.run(with_run(run_id, journal, told)))


@click.command(short_help="End a run, or have its answer now.")
@click.argument("run_id", metavar="RUN")
@journal_option
@click.option("--answer-now", is_flag=True, help="Stop the work, and answer from what there is.")
@click.option("--reason", default="", help="Kept with the run.")
def cancel(run_id: str, journal: str, *, answer_now: bool, reason: str) -> None:
    """End a RUN, wherever it is led; with --answer-now, have its answer at once."""
    from chargehand.cli.find_run import with_run
    from chargehand.cli.run_table import when_heard
    from chargehand.facts.events import RunStatus

    async def end(boss: "Supervisor", run: str) -> "RunResult":
        before = await boss.look(run)
        if isinstance(before.status, RunStatus):
            return before
        if answer_now:
            await boss.answer_now(run, reason or "the answer was wanted at once")
        else:
            await boss.cancel(run, reason)
        return await boss.look(run)

    result = asyncio.run(with_run(run_id, journal, end))
    if isinstance(result.status, RunStatus):
        output.say(f"run {result.id} has ended: {result.status.value}")
    elif answer_now:
        output.say(f"run {result.id} answers {when_heard(result)}")
    else:
        output.say(f"run {result.id} is cancelled as soon as whoever leads it hears of it")


@click.command(short_help="Answer a question that a run asks.")
@click.argument("question")
@click.argument("text")
@journal_option
def answer(question: str, text: str, journal: str) -> None:
    """Answer a QUESTION of a run with TEXT: one of its choices, or their number.

    QUESTION is its id, as `show` prints it, or the run's if it asks only one thing.
    """
    from chargehand.cli.ask_person import answer_in
    from chargehand.cli.find_run import with_run
    from chargehand.cli.run_details import question_meant
    from chargehand.errors import UnknownQuestion
    from chargehand.facts.events import Approach

    typed, _, rest = question.partition(":")

    async def give(boss: "Supervisor", run: str) -> str:
        result = await boss.look(run)
        try:
            asked = question_meant(result.questions, run, rest and f"{run}:{rest}")
        except UnknownQuestion as error:
            raise await boss.why_closed(error.question) from None
        await boss.answer(asked.id, answer_in(asked, text) or text)
        is_pooled = result.approach is Approach.POOL
        then = "its pool goes on with it" if is_pooled else "if nobody leads the run now, resume it"
        return f"{asked.id} is answered; {then}"

    output.say(asyncio.run(with_run(typed, journal, give)))
