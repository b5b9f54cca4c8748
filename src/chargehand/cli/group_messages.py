"""`chargehand talk`: print the messages of a group conversation."""

import asyncio
from textwrap import indent

import click

from chargehand.cli import output
from chargehand.cli.find_run import refuse_submitted, with_run
from chargehand.cli.options import journal_option, json_option
from chargehand.journal.base import Head, load_value
from chargehand.patterns.groups.messages import Message, MessageStream
from chargehand.presentation.display_text import clean
from chargehand.presentation.live_frame import StyledText
from chargehand.supervisor import Supervisor
from chargehand.supervisor_factory import journal_place


@click.command()
@click.argument("run_id", metavar="RUN")
@journal_option
@json_option("Print one JSON object per message.")
def talk(run_id: str, journal: str, *, as_json: bool) -> None:
    """Print the messages of a group conversation in a RUN, in order.

    The command shows each message with its sender and recipients. RUN is the id of a run, the beginning of an id, or
    `last`.
    """

    async def told(boss: Supervisor, head: Head) -> list[Message]:
        messages: list[Message] = []
        blobs = boss.journal.blobs
        stream = MessageStream(messages.append, lambda value: load_value(value, blobs))
        async for entry in boss.journal.read(refuse_submitted(head).stream):
            await stream.take(entry.event)
        return messages

    messages = asyncio.run(with_run(run_id, journal, told))
    if len(messages) < 2 and not as_json:
        to_show = journal_place(journal).command("show", run_id)
        output.say(f"this run has no group conversation; to see its tasks: {to_show}")
        return
    for message in messages:
        if as_json:
            output.as_json(message)
            continue
        who = f"{clean(message.sender)} to {clean(', '.join(message.to))}"
        output.styled((StyledText(who, "running"),))
        output.result(indent(message.text, "  "))
