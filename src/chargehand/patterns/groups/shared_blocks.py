"""Blocks that a group shares, with readers and writers, and the tools to use them."""

import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from chargehand.engines.pending_call import board_to_await
from chargehand.errors import BlockChanged, BlockDenied, ToolError, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.board import Block, Guard
from chargehand.facts.events import Effect
from chargehand.facts.outcome import Done
from chargehand.facts.value import Value
from chargehand.journal.base import load_value
from chargehand.roles.board import Board, BriefBoard
from chargehand.roles.data_fences import fenced
from chargehand.roles.prompts import prompt
from chargehand.tools.base import Tool, ToolContext, tool

#: maximum bytes of a block that is part of the prompt; larger blocks are read with a tool
SHOWN = 4_000
#: characters of a step's key that identify what is done inside the step
SCOPE = 12
#: prefix of the names of the groups' boards
GROUP = "group/"


#: a value that a model may write to a block
Held: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None


class SharedBlock(Struct, frozen=True):
    """A block that is attached to a group, or only to some of its members.

    Two groups that attach a block with the same label and the same `board` share it.
    """

    label: str
    #: the initial value, used if the block has not been written yet
    value: Any = None
    #: who may read it; empty: all members to which it is attached
    readers: Sequence[str] = ()
    #: who may write it; empty: all members to which it is attached
    writers: Sequence[str] = ()
    #: the members to which it is attached; empty: the whole group
    members: Sequence[str] = ()
    #: the name of its board; empty: the group's own board
    board: str = ""

    def __post_init__(self) -> None:
        checks.name(self.label, "label")
        checks.text(self.board, "board")
        Value.of(self.value)
        for name in ("readers", "writers", "members"):
            checks.names(getattr(self, name), name)


class Blocks:
    """The blocks that are attached to a group."""

    def __init__(self, group: str, blocks: Sequence[SharedBlock]) -> None:
        #: the name of the group's own board
        self.home = f"{GROUP}{group}"
        self._attached: dict[str, SharedBlock] = {}
        for block in blocks:
            self.attach(block)

    def attach(self, block: SharedBlock) -> None:
        """Share this block from now on. Raises `UsageError` if the label is taken."""
        checks.instance(block, "block", SharedBlock)
        if block.label in self._attached:
            raise UsageError(f"a block {block.label!r} is attached already; detach it first")
        self._attached[block.label] = block

    def detach(self, label: str) -> None:
        """Stop sharing this block; it stays on its board, with all its versions."""
        if label not in self._attached:
            have = ", ".join(self._attached) or "none"
            raise UsageError(f"no block {label!r} is attached; there is {have}")
        del self._attached[label]

    def __iter__(self) -> Iterator[SharedBlock]:
        return iter([*self._attached.values()])

    def of(self, member: str) -> list[SharedBlock]:
        """The blocks that are attached to this member or to the whole group."""
        return [each for each in self if not each.members or member in each.members]

    def board_of(self, block: SharedBlock) -> str:
        """The name of the block's board."""
        return block.board or self.home

    async def prepare(self, board_named: Callable[[str], Board]) -> None:
        """Write the initial values and set the readers and writers of all blocks.

        `board_named` must return boards with the role of the leader.
        """
        for block in self:
            board = board_named(self.board_of(block))
            known = {each.label: each for each in await board.labels()}
            label = known.get(block.label)
            if block.value is not None and (label is None or not label.version):
                # If another writer was faster, its value is kept.
                with suppress(BlockChanged):
                    await board.write(block.label, block.value, expect=0)
            guard = Guard(tuple(block.readers), tuple(block.writers))
            if guard != Guard() and (label is None or label.guard != guard):
                await board.guard(block.label, readers=guard.readers, writers=guard.writers)


@board_to_await
class GroupBoard(BriefBoard):
    """The board of a run for a member of a group; attached blocks are redirected to their own boards."""

    def __init__(
        self, blocks: Blocks, holder: str, own: BriefBoard, role: str = "", scope: str = ""
    ) -> None:
        super().__init__(own.journal, own.clock, own.brief, scope=scope)
        self.attached = {each.label: each for each in blocks.of(holder)}
        self._blocks = blocks
        self._holder = holder
        self._as = role

    def within(self, key: str) -> "GroupBoard":
        """The same board, for use inside the step with this key."""
        return GroupBoard(self._blocks, self._holder, self, self._as, key[:SCOPE])

    async def write(self, label: str, value: object, *, expect: int | None = None) -> Block:
        home = self._home_of(label)
        write = super().write if home is None else home.write
        return await write(label, value, expect=expect)

    async def update(self, label: str, change: Callable[[Any], object]) -> Block:
        home = self._home_of(label)
        return await (super().update if home is None else home.update)(label, change)

    async def find(self, label: str, version: int = 0) -> Block | None:
        home = self._home_of(label)
        return await (super().find if home is None else home.find)(label, version)

    async def guard(
        self, label: str, *, readers: Sequence[str] = (), writers: Sequence[str] = ()
    ) -> None:
        home = self._home_of(label)
        guard = super().guard if home is None else home.guard
        await guard(label, readers=readers, writers=writers)

    async def seen(self) -> list[Block]:
        """The current versions of the attached blocks that the member may read.

        This is not a step; the caller must record what it has seen.
        """
        role = self._as or self.role
        found = []
        for block in self.attached.values():
            name = self._blocks.board_of(block)
            home = Board(self.journal, self.clock, name, author=self.author, role=role)
            found.append(await home.newest(block.label))
        return [each for each in found if each is not None]

    def _home_of(self, label: str) -> BriefBoard | None:
        block = self.attached.get(label)
        return None if block is None else self.named(self._blocks.board_of(block), self._as)


async def shown(board: GroupBoard, folder: str | Path | None) -> str:
    """The attached blocks as text for a member or a manager; empty if there are none.

    This is one step, so a resumed attempt gets the same text even if the blocks have changed.
    """

    async def look(_: str) -> Done:
        told, taint = "", dict[str, None]()
        for block in await board.seen():
            head = f"block {block.label}, version {block.version}"
            size = block.stored.size or len(block.stored.json)
            if size > SHOWN:
                told += f"{head}: {size} bytes, not shown; read_block brings it.\n"
                continue
            value = await load_value(block.stored, board.journal.blobs)
            taint |= dict.fromkeys(value.taint)
            told += fenced(head, value.read())
        words = f"{prompt('blocks', folder)}\n{told}" if told else ""
        return Done(Value.of(words, tuple(taint)))

    if not board.attached:
        return ""
    done = await board.brief.durable("blocks", [], look, effect=Effect.PURE)
    return str(done.value.read())


class BlockTools(Struct, frozen=True):
    """The tools with which a model uses the attached blocks, for one attempt."""

    board: GroupBoard | None

    async def read_block(self, context: ToolContext, label: str, version: int = 0) -> Any:
        """Read a block that is shared with you.

        Args:
            label: its label
            version: which version; 0 is the newest
        """
        block = await self._do(context, label, lambda board: board.read(label, version))
        return {"label": label, "version": block.version, "by": block.author, "value": block.value}

    async def write_block(self, context: ToolContext, label: str, value: Held, version: int) -> str:
        """Replace the whole content of a block that is shared with you.

        Args:
            label: its label
            value: what it is to hold, of the kind that it holds: text, a number, a list, an object
            version: the version that you have read; 0 if there is none yet
        """

        async def write(board: GroupBoard) -> Block:
            known = await board.find(label)
            held = None if known is None else known.value
            return await board.write(label, fitting(label, held, value), expect=version)

        block = await self._do(context, label, write)
        return f"{label} is at version {block.version} now"

    async def append_block(self, context: ToolContext, label: str, text: str) -> str:
        """Add a line to the end of a block that is shared with you.

        Args:
            label: its label
            text: what is added
        """
        block = await self._do(
            context, label, lambda board: board.update(label, lambda old: _added(label, old, text))
        )
        return f"{label} is at version {block.version} now"

    async def _do(
        self, context: ToolContext, label: str, act: Callable[[GroupBoard], Awaitable[Block]]
    ) -> Block:
        board = self.board
        if board is None or label not in board.attached:
            have = ", ".join(() if board is None else board.attached) or "none"
            raise ToolError(f"no block {label[:80]!r} is shared with you; there is: {have}")
        try:
            return await act(board.within(context.key))
        except BlockDenied as error:
            raise ToolError(str(error), kind="denied") from error
        except BlockChanged as error:
            raise ToolError(
                f"another writer was faster: {label} is at version {error.version}, not "
                f"{error.expected}; nothing was written. Read it, and write again on that"
            ) from error
        except UsageError as error:
            raise ToolError(str(error)) from error


def block_tools(board: GroupBoard) -> list[Tool]:
    """The tools of an attempt for the attached blocks; none if no block is attached."""
    own = BlockTools(board)
    if not board.attached:
        return []
    return [dataclasses.replace(each, function=getattr(own, each.name)) for each in _made()]


@cache
def _made() -> tuple[Tool, ...]:
    """The tools, not bound to an attempt: their schemas are computed only once."""
    nobody = BlockTools(None)
    # Each write is a keyed step of its own, so repeating a call is harmless.
    return (
        tool(effect="pure")(nobody.read_block),
        tool(effect="idempotent")(nobody.write_block),
        tool(effect="idempotent")(nobody.append_block),
    )


def fitting(label: str, old: Any, given: Any) -> Any:
    """The value that a model wrote, converted to the type in the block: some models send everything as text."""
    wanted = _kind(old)
    if old is None or _kind(given) == wanted:
        return given
    if isinstance(given, str):
        with suppress(ValueError):
            read = json.loads(given)
            if _kind(read) == wanted:
                return read
    raise ToolError(
        f"{label} holds {wanted}, and this is {_kind(given)}; nothing was written. Give {wanted}"
    )


def _kind(value: Any) -> str:
    """The name of the JSON type, in words for a model."""
    for kinds, name in _KINDS.items():
        if isinstance(value, kinds):
            return name
    return "nothing"


_KINDS: dict[type | tuple[type, ...], str] = {
    str: "text",
    bool: "true or false",  # before numbers, because bool is a subclass of int
    (int, float): "a number",
    list: "a list",
    dict: "an object",
}


def _added(label: str, old: Any, text: str) -> Any:
    match old:
        case None | "":
            return text
        case str():
            return f"{old}\n{text}"
        case list():
            return [*old, fitting(label, old[-1], text) if old else text]
        case _:
            raise ToolError("it holds neither text nor a list, so that nothing can be added to it")
