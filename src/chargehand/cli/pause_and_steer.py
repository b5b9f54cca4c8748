"""`chargehand pause`, `unpause`, `steer`: a run that is under way is held, let go, or told what else is wanted."""

import asyncio
from typing import TYPE_CHECKING

import click

from chargehand.cli import output
from chargehand.cli.options import journal_option

if TYPE_CHECKING:
    from chargehand.result import RunResult
    from chargehand.supervisor import Supervisor


@click.command(short_help="Have a run start nothing new for now.")
@click.argument("run_id", metavar="RUN")
@journal_option
@click.option("--reason", default="", help="Kept with the run.")
def pause(run_id: str, journal: str, reason: str) -> None:
    """Have a RUN start nothing new until `unpause`, wherever it is led.

    What runs stops at its next step and goes on from there later. Deadlines are kept.
    """
    from chargehand.cli.find_run import with_run

    async def hold(boss: "Supervisor", run: str) -> "RunResult":
        await boss.pause(run, reason)
        return await boss.look(run)

    _tell(asyncio.run(with_run(run_id, journal, hold)), "is paused")


@click.command(short_help="Have a paused run go on.")
@click.argument("run_id", metavar="RUN")
@journal_option
def unpause(run_id: str, journal: str) -> None:
    """Have a paused RUN go on where it stopped, wherever it is led."""
    from chargehand.cli.find_run import with_run

    async def let_go(boss: "Supervisor", run: str) -> "RunResult":
        await boss.unpause(run)
        return await boss.look(run)

    _tell(asyncio.run(with_run(run_id, journal, let_go)), "goes on")


@click.command(short_help="Tell a run what else is wanted.")
@click.argument("run_id", metavar="RUN")
@click.argument("note")
@journal_option
@click.option("--key", default="", help="The same note under the same key is taken once.")
def steer(run_id: str, note: str, journal: str, key: str) -> None:
    """Have what is not done yet of a RUN changed as the NOTE says, wherever it is led.

    A model changes the plan, and whoever composes the answer is given the note, too.
    """
    from chargehand.cli.find_run import with_run

    async def tell(boss: "Supervisor", run: str) -> "RunResult":
        await boss.steer(run, note, key=key)
        return await boss.look(run)

    _tell(asyncio.run(with_run(run_id, journal, tell)), "is planned anew")


def _tell(result: "RunResult", what: str) -> None:
    from chargehand.cli.run_table import when_heard
    from chargehand.facts.events import RunStatus

    if isinstance(result.status, RunStatus):
        output.say(f"run {result.id} has ended: {result.status.value}")
        return
    output.say(f"run {result.id} {what} {when_heard(result)}")
