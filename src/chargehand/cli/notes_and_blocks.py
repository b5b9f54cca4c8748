"""`chargehand notes` and `blocks`: print the notes and blocks on the board of a run."""

import asyncio
from collections.abc import Sequence
from textwrap import indent

import click

from chargehand.cli import output
from chargehand.cli.find_run import with_run
from chargehand.cli.options import WholeNumber, journal_option, json_option
from chargehand.facts.board import Block, Label, Note, NoteOrder, board_of_run
from chargehand.journal.base import Head
from chargehand.presentation.display_text import clean, clock_words, one_line, output_words
from chargehand.presentation.live_frame import StyledText
from chargehand.supervisor import Supervisor

#: most characters of a note or a block in a list
PREVIEW = 300


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@click.option(
    "--segment",
    default="",
    metavar="NAME",
    help="Show only notes in this segment, such as results or errors.",
)
@click.option("--author", default="", metavar="NAME", help="Show only notes by this author.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Show only notes with this tag. Can be repeated to show notes with any of the tags.",
)
@click.option(
    "--all",
    "has_events",
    is_flag=True,
    help="Also show the notes that the board computes from the events of the run.",
)
@click.option(
    "--most",
    type=WholeNumber(1),
    default=100,
    metavar="N",
    help="Show at most N notes, the newest ones. Default: 100.",
)
@json_option("Print one JSON object per note.")
def notes(
    run_id: str,
    journal: str,
    *,
    segment: str,
    author: str,
    tags: tuple[str, ...],
    has_events: bool,
    most: int,
    as_json: bool,
) -> None:
    """Print the notes on the board (shared memory) of a RUN, newest first.

    RUN is the id of a run, the beginning of an id, or `last`.
    """

    async def found(boss: Supervisor, head: Head) -> Sequence[Note]:
        run = head.stream
        board = boss.board(run=run) if has_events else boss.board(board_of_run(run))
        segments = [segment] if segment else None
        return await board.notes(
            order=NoteOrder.NEWEST, limit=most, segments=segments, author=author, tags=tags
        )

    shown = asyncio.run(with_run(run_id, journal, found))
    if not shown and not as_json:
        which = "no such" if segment or author or tags else "no"
        more = "" if has_events else "; to show the events of the run too, use --all"
        output.say(f"there are {which} notes on the board of this run{more}")
    for note in shown:
        if as_json:
            output.as_json({**_facts(note), "content": note.content})
            continue
        marks = f"  #{' #'.join(map(clean, note.tags))}" if note.tags else ""
        head = f"{clock_words(note.at)}  {clean(note.segment)}  {clean(note.author)}"
        output.styled((StyledText(head, "running"), StyledText(marks, "dim")))
        output.result(indent(one_line(output_words(note.content), PREVIEW), "  "))


def _facts(note: Note) -> dict[str, object]:
    return {
        "id": note.id,
        "at": note.at,
        "author": note.author,
        "segment": note.segment,
        "tags": note.tags,
        "importance": note.importance,
        "metadata": note.metadata,
    }


@click.command()
@click.argument("run_id", metavar="RUN")
@click.argument("label", required=False)
@journal_option
@json_option("Print one JSON object per block.")
def blocks(run_id: str, label: str | None, journal: str, *, as_json: bool) -> None:
    """Print the blocks on the board (shared memory) of a RUN.

    With LABEL, all versions of that block are printed. RUN is the id of a run, the beginning of an id, or `last`.
    """

    async def found(boss: Supervisor, head: Head) -> list[tuple[Block, Label | None]]:
        board = boss.board(run=head.stream)
        if label is not None:
            await board.read(label)  # raises if there is no such block
            return [(block, None) for block in await board.history(label)]
        return [(await board.read(each.label), each) for each in await board.labels()]

    shown = asyncio.run(with_run(run_id, journal, found))
    if not shown and not as_json:
        output.say("there are no blocks on the board of this run")
    for block, _ in shown:
        if as_json:
            told = {"label": block.label, "version": block.version, "author": block.author}
            output.as_json({**told, "at": block.at, "value": block.value})
            continue
        head = f"{clean(block.label)}  version {block.version}"
        by = f"  {clean(block.author)}, {clock_words(block.at)}"
        output.styled((StyledText(head, "running"), StyledText(by, "dim")))
        words = output_words(block.value)
        output.result(indent(words if label is not None else one_line(words, PREVIEW), "  "))
