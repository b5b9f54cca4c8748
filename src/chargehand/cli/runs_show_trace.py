"""`chargehand runs`, `show`, `trace`: print runs from the journal."""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click
from msgspec import Struct

from chargehand.cli import output
from chargehand.cli.find_run import (
    OTHER_JOURNAL,
    FoundRun,
    heads_in,
    refuse_submitted,
    standing_of,
    with_run,
)
from chargehand.cli.options import WholeNumber, journal_option, json_option
from chargehand.cli.run_details import shown, shown_json
from chargehand.cli.suggested_commands import with_journal
from chargehand.decisions.task_graph import TaskState
from chargehand.decisions.trace import Trace
from chargehand.errors import ChargehandError
from chargehand.facts.durations import shown_length
from chargehand.journal.base import Head
from chargehand.presentation.display_text import money_words, table
from chargehand.presentation.live_frame import cut_line
from chargehand.presentation.run_status import (
    UNREADABLE,
    WAITING,
    is_nested,
    looked_at,
    status_words,
)
from chargehand.presentation.trace_lines import tree_lines
from chargehand.supervisor import Supervisor
from chargehand.supervisor_factory import journal_place, reader_of
from chargehand.sync_async_bridge import in_thread
from chargehand.terminal_detection import is_terminal


class RunRow(Struct, frozen=True):
    """One run in the list of `chargehand runs`."""

    run: str
    status: str
    requested_at: datetime | None
    request: str
    done: int
    tasks: int
    calls: int
    tokens: int
    #: None if the price of a model is not known
    money: float | None
    questions: tuple[str, ...]
    #: questions whose answers no process has read yet
    answered: tuple[str, ...] = ()

    @classmethod
    def of(cls, head: Head, found: FoundRun | ChargehandError) -> "RunRow":
        """The row of a run. For a run that cannot be read, the row shows the error."""
        if isinstance(found, ChargehandError):
            words = with_journal(f"{found}; chargehand verify {head.stream} says what can be saved")
            return cls(head.stream, UNREADABLE, head.began_at, words, 0, 0, 0, 0, 0.0, ())
        result, usage = found.result, found.result.usage
        states = [task.state for task in result.tasks.values()]
        return cls(
            run=result.id,
            status=found.status,
            requested_at=head.began_at,
            request=result.request,
            done=states.count(TaskState.DONE),
            tasks=len(states),
            calls=usage.calls,
            tokens=usage.tokens_in + usage.tokens_out,
            money=usage.cost,
            questions=tuple(question.id for question in found.asked),
            answered=tuple(found.answered),
        )


@click.command()
@click.option(
    "--most",
    type=WholeNumber(1),
    default=20,
    metavar="N",
    help="List at most N runs. Default: 20.",
)
@click.option(
    "--all",
    "all_",
    is_flag=True,
    help="Also list nested runs (runs that a task of another run has started).",
)
@journal_option
@json_option("Print one JSON object per run.")
def runs(*, most: int, all_: bool, journal: str, as_json: bool) -> None:
    """List the runs of a journal, most recently changed first."""
    place = journal_place(journal)
    heads = asyncio.run(heads_in(place))
    heads = heads if all_ else [head for head in heads if not is_nested(head)]
    if not heads:
        if not as_json:
            start = 'start one: chargehand run "…"'
            output.say(f"there are no runs in {place} yet; {start}; {OTHER_JOURNAL}")
        return

    async def look() -> list[RunRow]:
        async with reader_of(place) as boss:
            found = await looked_at(heads[:most], lambda head: standing_of(boss, head))
        return [RunRow.of(head, each) for head, each in found]

    rows = asyncio.run(look())
    if as_json:
        for row in rows:
            output.as_json(row)
        return
    output.result(_listing(rows))
    if len(heads) > most:
        output.say(f"{len(heads) - most} more; --most {len(heads)} lists them too")


def _listing(rows: Sequence[RunRow]) -> str:
    head = ("run", "status", "age", "tasks", "cost", "request")
    now = datetime.now(UTC)
    cells = [
        (
            row.run,
            _status_cell(row),
            shown_length(max(now - row.requested_at, timedelta(0))) if row.requested_at else "–",
            f"{row.done}/{row.tasks}",
            money_words(row.money),
            row.request,
        )
        for row in rows
    ]
    return table(head, cells, output.width())


def _status_cell(row: RunRow) -> str:
    asks = " (asks)" if row.questions and row.status != WAITING else ""
    return f"{status_words(row.status, row.answered)}{asks}"


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@json_option("Print one JSON object.")
def show(run_id: str, journal: str, *, as_json: bool) -> None:
    """Show the state of a RUN: tasks, timeline, answer and open questions.

    For each task, the command shows the time, the cost and the output. RUN is the id of a run, the beginning of an id, or `last`.
    """

    async def look(boss: Supervisor, head: Head) -> None:
        standing = await standing_of(boss, head)
        # In a thread, because this may load outputs from blobs.
        if as_json:
            output.as_json(await in_thread(shown_json, standing))
        else:
            width = output.width()
            for line in await in_thread(lambda: list(shown(standing, journal, width))):
                output.styled(line)

    asyncio.run(with_run(run_id, journal, look))


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@journal_option
@json_option("Print JSON. This is the default if stdout is not a terminal.")
@click.option("--tree", is_flag=True, help="Print a tree, even if stdout is not a terminal.")
@click.option("--schema", is_flag=True, help="Print the JSON Schema of a trace instead.")
@click.option(
    "--no-content",
    is_flag=True,
    help="Leave out the text of prompts, replies, arguments and results.",
)
def trace(
    run_id: str | None, journal: str, *, as_json: bool, tree: bool, schema: bool, no_content: bool
) -> None:
    """Print everything that happened in a RUN.

    This includes the plan, which worker got which task, every call, the retries and the answer. The output is a tree
    on a terminal, and JSON in a pipe or a file. RUN is the id of a run, the beginning of an id, or `last`.
    """
    if schema:
        output.result(json.dumps(Trace.json_schema(), indent=2))
        return
    if run_id is None:
        raise click.UsageError("say which run: an id, the beginning of one, or last")
    if as_json and tree:
        raise click.UsageError("give --json or --tree, not both")

    async def told(boss: Supervisor, head: Head) -> Trace:
        result = await boss.look(refuse_submitted(head).stream)
        return await in_thread(lambda: result.trace)

    found = asyncio.run(with_run(run_id, journal, told))
    if tree or (not as_json and is_terminal(sys.stdout)):
        columns = output.columns_of(sys.stdout)
        for line in tree_lines(found, content=not no_content):
            # Wrapped lines would break the tree, so long lines are cut; --json prints everything.
            output.styled(cut_line(line, columns))
    else:
        output.raw(found.to_json(content=not no_content).encode())
