"""The board of a run in the hands of a worker process: what it asks for is done by the parent."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from chargehand.decisions.board import diff
from chargehand.engines.brief import Brief
from chargehand.engines.child_protocol import BoardAct, BoardAnswer
from chargehand.errors import BlockChanged, UsageError
from chargehand.facts.board import Block, Hit, Label, Match, Note, NoteOrder, Segment
from chargehand.facts.value import Value

#: times that `update` loses against other writers before it gives up
RACES = 1000


class BoardPort(Protocol):
    """How a board in a child reaches the one in its parent."""

    async def ask_board(self, act: BoardAct, arguments: dict[str, Any]) -> BoardAnswer:
        """Have this done, by somebody who has read these sources. Raises what the parent met."""


class ChildBoard:
    """What a worker in a process of its own may do with the board of its run.

    Every act is a step that the parent writes down, so that an attempt that is resumed posts nothing
    twice and reads the same again. What it reads taints what it returns.
    """

    def __init__(self, line: BoardPort, brief: Brief) -> None:
        self._line = line
        self._brief = brief

    async def post(
        self,
        content: object,
        *,
        tags: Sequence[str] = (),
        segment: str = Segment.NOTES,
        importance: float = 0.5,
        metadata: dict[str, Any] | None = None,
    ) -> Note:
        """Put a note on the board."""
        note: Note = await self._do(
            "post",
            Note,
            content=Value.of(content).json,
            tags=tags,
            segment=segment,
            importance=importance,
            metadata=Value.of(metadata or {}).json,
        )
        return note

    async def notes(
        self,
        *,
        tags: Sequence[str] = (),
        match: Match | str = Match.ANY,
        segments: Sequence[str] = (),
        min_importance: float = 0.0,
        author: str = "",
        exclude_own: bool = False,
        order: NoteOrder | str = NoteOrder.NEWEST,
        limit: int = 100,
    ) -> list[Note]:
        """The notes that fit all that is asked for."""
        found: list[Note] = await self._do(
            "notes",
            list[Note],
            tags=tags,
            match=match,
            segments=segments,
            min_importance=min_importance,
            author=author,
            exclude_own=exclude_own,
            order=order,
            limit=limit,
        )
        return found

    async def search(
        self,
        words: str,
        *,
        tags: Sequence[str] = (),
        match: Match | str = Match.ANY,
        segments: Sequence[str] = (),
        min_importance: float = 0.0,
        author: str = "",
        exclude_own: bool = False,
        limit: int = 10,
        by: str = "",
    ) -> list[Hit]:
        """The notes that are about this, the best first."""
        hits: list[Hit] = await self._do(
            "search",
            list[Hit],
            words=words,
            tags=tags,
            match=match,
            segments=segments,
            min_importance=min_importance,
            author=author,
            exclude_own=exclude_own,
            limit=limit,
            by=by,
        )
        return hits

    async def write(self, label: str, value: object, *, expect: int | None = None) -> Block:
        """Write the next version of a block."""
        stored = Value.of(value).json
        block: Block = await self._do("write", Block, label=label, value=stored, expect=expect)
        return block

    async def update(self, label: str, change: Callable[[Any], object]) -> Block:
        """Write what `change` makes of the newest value; nobody's update is lost."""
        for _ in range(RACES):
            known = await self.find(label)
            value = change(None if known is None else known.value)
            try:
                return await self.write(label, value, expect=0 if known is None else known.version)
            except BlockChanged:
                continue
        raise UsageError(
            f"block {label!r} was changed by others {RACES} times in a row; write it less"
        )

    async def read(self, label: str, version: int = 0) -> Block:
        """One version of a block; 0 is the newest. Raises `UsageError` if there is none."""
        block: Block = await self._do("read", Block, label=label, version=version)
        return block

    async def find(self, label: str, version: int = 0) -> Block | None:
        """One version of a block, or None; 0 is the newest."""
        found: Block | None = await self._do("find", Block | None, label=label, version=version)
        return found

    async def labels(self) -> list[Label]:
        """All blocks with their newest version and guard; no value is loaded."""
        labels: list[Label] = await self._do("labels", list[Label])
        return labels

    async def history(self, label: str) -> list[Block]:
        """All versions of a block, the oldest first."""
        newest = await self.find(label)
        if newest is None:
            return []
        return [await self.read(label, version) for version in range(1, newest.version + 1)]

    async def diff(self, label: str, old: int, new: int = 0) -> str:
        """What changed from one version to another (0: the newest), line by line."""
        return diff(await self.read(label, old), await self.read(label, new))

    async def guard(
        self, label: str, *, readers: Sequence[str] = (), writers: Sequence[str] = ()
    ) -> None:
        """Let only these roles or authors read and write a block from now on; none named: all."""
        await self._do("guard", Any, label=label, readers=readers, writers=writers)

    async def _do(self, act: BoardAct, kind: Any, **arguments: Any) -> Any:
        answer = await self._line.ask_board(act, arguments)
        self._brief.distrust(*answer.taint)
        return msgspec.json.decode(answer.found, type=kind)
