"""What the children of the tests of the board do. Imports no pytest: every child reads it."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import chargehand as ch
from chargehand.errors import BlockChanged, NotJSON, UsageError
from chargehand.roles.board import Board


def board_of(brief: ch.Brief) -> Board:
    """The board of the run, which in a child does the same as a `Board`."""
    return cast("Board", brief.board)


async def everything(brief: ch.Brief) -> Any:
    """All that can be done with a board, and what each act returns."""
    board = board_of(brief)
    note = await board.post({"price": 3}, tags=["price"], importance=0.9, metadata={"from": "east"})
    first = await board.write("summary", "prices rose")
    second = await board.update("summary", lambda old: f"{old}\nthen fell")
    await board.guard("summary", writers=[brief.worker])
    found = await board.notes(tags=["price"], order="important")
    missing = await board.find("nothing")
    hits = await board.search("what does it cost, the price", tags=["price"], by="words")
    return {
        "note": [note.content, note.author, note.tags, note.importance, note.metadata],
        "notes": [each.id == note.id for each in found],
        "versions": [first.version, second.version],
        "read": (await board.read("summary", 1)).value,
        "found": [missing, (await board.read("summary")).value],
        "labels": [[each.label, each.version, each.guard.writers] for each in await board.labels()],
        "history": [each.value for each in await board.history("summary")],
        "diff": await board.diff("summary", 1),
        "hits": [hit.note.content for hit in hits],
    }


def everything_plainly(brief: ch.Brief) -> Any:
    return brief.wait(everything(brief))


async def die_once(brief: ch.Brief) -> Any:
    """Write, read, and be killed the first time."""
    board = board_of(brief)
    await asyncio.gather(board.post("one"), board.post("two"), board.post("one"))
    count = await board.update("count", lambda old: (old or 0) + 1)
    seen = len(await board.notes(segments=["notes"]))
    died = Path(brief.args["folder"], "died")
    if not died.exists():
        died.touch()
        await board.post("last words")
        os.kill(os.getpid(), signal.SIGKILL)
    await board.post("last words")
    return [count.version, seen, os.getpid()]


async def read_a_page(brief: ch.Brief) -> None:
    brief.distrust("web:example.org")
    await board_of(brief).post("buy now", tags=["page"])


async def repeat_what_was_noted(brief: ch.Brief) -> Any:
    board = board_of(brief)
    (note,) = await board.notes(tags=["page"])
    await board.write("advice", note.content)
    return note.content


async def write_blindly(brief: ch.Brief) -> Any:
    board = board_of(brief)
    await board.write("summary", 1)
    try:
        await board.write("summary", 2, expect=0)
    except BlockChanged as error:
        return [error.label, error.expected, error.version, str(error)]
    return None


async def ask_wrongly(brief: ch.Brief) -> Any:
    """What is refused, by the kind of its error."""
    board = board_of(brief)
    told: dict[str, str] = {}
    wrong: dict[str, Callable[[], Awaitable[object]]] = {
        "note": lambda: board.post(object()),
        "tags": lambda: board.notes(tags="price"),
        "importance": lambda: board.post("x", importance=2),
        "block": lambda: board.read("nothing"),
        "limit": lambda: board.notes(limit=0),
    }
    for name, act in wrong.items():
        try:
            await act()
        except NotJSON as error:
            told[name] = f"NotJSON: {error}"
        except UsageError as error:
            told[name] = f"UsageError: {error}".replace(brief.run, "this run")
    return told


async def write_what_is_guarded(brief: ch.Brief) -> None:
    await board_of(brief).write("secret", "mine")


async def guard_it(brief: ch.Brief) -> None:
    await board_of(brief).write("secret", "ours")
    await board_of(brief).guard("secret", writers=["editor"])


async def count_up(brief: ch.Brief) -> None:
    for _ in range(brief.args["times"]):
        await board_of(brief).update("count", lambda old: (old or 0) + 1)


async def post_much(brief: ch.Brief) -> int:
    board = board_of(brief)
    await board.post("ä" * 200_000, tags=["long"])
    (note,) = await board.notes(tags=["long"])
    return len(note.content)


async def post_a_note(brief: ch.Brief) -> None:
    await board_of(brief).post("somebody was here")
