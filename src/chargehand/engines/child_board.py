"""The board of a run in a worker process: the parent process carries out each call."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, Unpack, cast

import msgspec

from chargehand.engines.brief import Brief, SharedBoard
from chargehand.engines.child_protocol import BoardAct, BoardAnswer
from chargehand.engines.pending_call import PendingCalls, board_to_await
from chargehand.facts.board import Block, Hit, Label, Note, NoteFilters, NoteOptions, NoteOrder
from chargehand.facts.value import Value

T = TypeVar("T")


AskParent = Callable[[BoardAct, dict[str, Any]], Awaitable[BoardAnswer]]
"""Has the parent do something with the board; raises what the parent met."""


@board_to_await
class ChildBoard(SharedBoard):
    """The board of a run for a worker in a process of its own.

    Every call is a step that the parent records, so an attempt that is resumed posts nothing twice and
    reads the same again. What it reads taints what it returns.
    """

    def __init__(self, ask: AskParent, brief: Brief) -> None:
        self._ask = ask
        self._brief = brief

    @property
    def pending_calls(self) -> PendingCalls:
        return self._brief.pending_calls

    async def post(self, content: object, **options: Unpack[NoteOptions]) -> Note:
        options["metadata"] = Value.of(options.get("metadata") or {}).read()
        return await self._do("post", Note, content=Value.of(content).json, **options)

    async def notes(
        self,
        *,
        order: NoteOrder | str = NoteOrder.NEWEST,
        limit: int = 100,
        **filters: Unpack[NoteFilters],
    ) -> list[Note]:
        return await self._do("notes", list[Note], order=order, limit=limit, **filters)

    async def search(
        self, words: str, *, limit: int = 10, by: str = "", **filters: Unpack[NoteFilters]
    ) -> list[Hit]:
        return await self._do("search", list[Hit], words=words, limit=limit, by=by, **filters)

    async def write(self, label: str, value: object, *, expect: int | None = None) -> Block:
        stored = Value.of(value).json
        return await self._do("write", Block, label=label, value=stored, expect=expect)

    async def read(self, label: str, version: int = 0) -> Block:
        return await self._do("read", Block, label=label, version=version)

    async def find(self, label: str, version: int = 0) -> Block | None:
        kind = cast("type[Block | None]", Block | None)
        return await self._do("find", kind, label=label, version=version)

    async def labels(self) -> list[Label]:
        return await self._do("labels", list[Label])

    async def guard(
        self, label: str, *, readers: Sequence[str] = (), writers: Sequence[str] = ()
    ) -> None:
        await self._do("guard", object, label=label, readers=readers, writers=writers)

    async def _do(self, act: BoardAct, kind: type[T], **arguments: Any) -> T:
        answer = await self._ask(act, arguments)
        self._brief.distrust(*answer.taint)
        return msgspec.json.decode(answer.found, type=kind)
