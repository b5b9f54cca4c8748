"""Workers, plans and commands that the tests of recordings share."""

from click.testing import CliRunner, Result

import chargehand as ch
from chargehand.cli import main
from chargehand.facts.value import INLINE_BYTES

LONG = "y" * (INLINE_BYTES + 10)
SECRET_WORDS = "the quarterly figures"


def chargehand(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@ch.worker("reader", "Reads things")
async def reader(brief: ch.Brief) -> object:
    await brief.board.post(f"about {SECRET_WORDS}")
    return LONG if brief.task.id == "long" else f"read {brief.task.description}"


@ch.worker("flaky", "Fails once")
async def flaky(brief: ch.Brief) -> str:
    if brief.attempt == 1:
        raise ConnectionError("gone")
    return "at last"


def plan_of(*tasks: ch.Task) -> ch.Plan:
    return ch.Plan(goal=f"Look into {SECRET_WORDS}", tasks=list(tasks))


def task(id_: str, worker: str = "reader", *needs: str) -> ch.Task:
    return ch.Task(id=id_, description=f"Look at part {id_} of it", worker=worker, needs=needs)


QUICK = ch.RetryPolicy(first=0.001, jitter=0)
