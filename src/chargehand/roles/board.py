"""The board: what workers and people share while they work, and after."""

from asyncio import AbstractEventLoop, Lock, get_running_loop
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from chargehand.clock import Clock
from chargehand.decisions import board_rules as decisions
from chargehand.engines.brief import Brief, SharedBoard
from chargehand.engines.pending_call import PendingCalls, board_to_await
from chargehand.errors import BlockChanged, BlockDenied, InternalError, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.board import (
    LEADER,
    Act,
    Block,
    BlockRefused,
    BlockWritten,
    BoardEvent,
    Guard,
    GuardBlock,
    Hit,
    Label,
    Note,
    NoteFilters,
    NoteOptions,
    NoteOrder,
    NotePosted,
    NoteQuery,
    Segment,
    WriteBlock,
    board_of_run,
    note_query,
    stream_of,
)
from chargehand.facts.events import Effect
from chargehand.facts.outcome import Done
from chargehand.facts.value import Value, canonical, digest_of
from chargehand.journal.base import Journal, Key, load_value, store_value
from chargehand.roles.run_history_reader import RunHistory
from chargehand.sync_async_bridge import in_thread

if TYPE_CHECKING:
    from chargehand.roles.semantic_search import NoteIndex

T = TypeVar("T")


class Board(SharedBoard):
    """Shared memory in the journal: notes that any worker adds, and versioned blocks.

    A call that writes returns once a crash cannot lose what it wrote. All boards with the same
    name in one journal are the same board, in every thread and process.

        board = boss.board("market")
        await board.post("prices rose 3 %", tags=["prices"], importance=0.8)
        await board.update("summary", lambda old: [*(old or []), "prices rose"])
    """

    def __init__(
        self, journal: Journal, clock: Clock, name: str, *, author: str, role: str, run: str = ""
    ) -> None:
        decisions.check_board_name(name)
        self.name = name
        self.author = author
        self.role = role
        self._journal = journal
        self._clock = clock
        self._run = run
        self._history = RunHistory(journal, run)

    @property
    def journal(self) -> Journal:
        """The journal that it is stored in."""
        return self._journal

    @property
    def clock(self) -> Clock:
        """The clock that dates its events."""
        return self._clock

    def signed(self, author: str, role: str = "") -> "Board":
        """The same board for another author."""
        return Board(self._journal, self._clock, self.name, author=author, role=role, run=self._run)

    # Notes

    async def post(self, content: object, **options: Unpack[NoteOptions]) -> Note:
        """Add a note to the board. `content` is anything that JSON can hold."""
        checks.refuse_unknown(options, NoteOptions.__annotations__, "Board.post")
        metadata = options.get("metadata") or {}
        checks.instance(metadata, "metadata", dict)
        act = NotePosted(
            at=self._clock.now(),
            author=self.author,
            content=self._trusting(content),
            tags=checks.texts(options.get("tags", ()), "tags"),
            segment=checks.text(options.get("segment", Segment.NOTES), "segment"),
            importance=checks.amount(options.get("importance", 0.5), "importance", most=1),
            metadata=Value.of(metadata).read(),
        )
        event, seq = await self._act("board.post", act)
        note = decisions.note_of(self.name, seq, event)
        if note is None:
            raise InternalError(f"a note on board {self.name!r} was stored as something else")
        return replace(note, stored=act.content)

    async def notes(
        self,
        *,
        order: NoteOrder | str = NoteOrder.NEWEST,
        limit: int = 100,
        **filters: Unpack[NoteFilters],
    ) -> list[Note]:
        """The notes that pass all `filters`, newest or most important first.

        On the board of a run, the events of the run are included.
        """
        query = note_query(filters, self.author, order=order, limit=limit, also=("order", "limit"))

        async def find(_: str) -> list[Note]:
            return await self.matching(query)

        identity = msgspec.to_builtins(query)
        return await self._recorded("board.notes", identity, find, list[Note], _taint_of)

    async def matching(self, query: NoteQuery) -> list[Note]:
        """The notes that match a query. Never a step, not even on `brief.board`."""
        found = await self._journal.boards.notes(self.name, query)
        if self._run:
            found = decisions.select([*found, *await self._history.notes(query)], query)
        return [replace(note, stored=await self._load(note.stored)) for note in found]

    async def search(
        self, words: str, *, limit: int = 10, by: str = "", **filters: Unpack[NoteFilters]
    ) -> list[Hit]:
        """The notes about this topic that pass all `filters`, best match first.

        The search is semantic if `chargehand[semantic]` is installed, otherwise lexical;
        `by` chooses, and each hit says which. The first search of a board reads all of it,
        later ones only what is new.
        """
        from chargehand.roles.semantic_search import index_of, way_of

        query = note_query(filters, self.author, limit=limit, also=("limit", "by"))
        way = way_of(by)

        async def look(_: str) -> list[Hit]:
            index = await in_thread(index_of, self._journal, self.name, way)  # loads a model
            await self._take_in(index)
            hits = await in_thread(index.find, words, query)
            notes = [replace(hit.note, stored=await self._load(hit.note.stored)) for hit in hits]
            return [replace(hit, note=note) for hit, note in zip(hits, notes, strict=True)]

        def taint_of(hits: list[Hit]) -> tuple[str, ...]:
            return _taint_of([hit.note for hit in hits])

        identity = [words, by, msgspec.to_builtins(query)]
        return await self._recorded("board.search", identity, look, list[Hit], taint_of)

    async def _take_in(self, index: "NoteIndex") -> None:
        """Have an index know all notes of this board, and of what happened to its run."""
        from chargehand.roles.semantic_search import text_of

        seq = index.seq
        found: list[Note] = []
        async for entry in self._journal.boards.read(self.name, seq):
            seq = entry.seq
            note = decisions.note_of(self.name, entry.seq, entry.event)
            found += [] if note is None else [note]
        lived = await self._history.notes(NoteQuery())
        found += [note for note in lived if not index.knows(note)]
        texts = [text_of((await self._load(note.stored)).read()) for note in found]
        await in_thread(index.take, list(zip(found, texts, strict=True)), seq)

    async def follow(
        self, *, from_now: bool = False, **filters: Unpack[NoteFilters]
    ) -> AsyncIterator[Note]:
        """Yield notes without end: first the existing ones, unless `from_now`, then new ones.

        On the board of a run, the events of the run are included.
        """
        query = note_query(filters, self.author, also=("from_now",))
        signal = self._journal.boards.signal
        history, seq = RunHistory(self._journal, self._run), 0
        while True:
            known = signal.count
            posted = [entry async for entry in self._journal.boards.read(self.name, seq)]
            seq = posted[-1].seq if posted else seq
            notes = [decisions.note_of(self.name, entry.seq, entry.event) for entry in posted]
            fresh = [note for note in notes if note is not None] + await history.catch_up()
            for note in sorted(fresh, key=lambda note: note.at):
                if decisions.matches(note, query) and not from_now:
                    self._distrust(note.taint)
                    yield replace(note, stored=await self._load(note.stored))
            from_now = False
            await signal.wait(since=known)

    # Blocks

    async def write(self, label: str, value: object, *, expect: int | None = None) -> Block:
        """Write the next version of a block.

        With `expect`, write only if that is the newest version (0: if there is none);
        otherwise raise `BlockChanged`. Raises `BlockDenied`, and records that, if the guard
        forbids the write.
        """
        act = WriteBlock(
            at=self._clock.now(),
            author=self.author,
            role=self.role,
            label=_named(label),
            value=self._trusting(value),
            expect=None if expect is None else checks.count(expect, "expect"),
        )
        event, _ = await self._act("board.write", act)
        if not isinstance(event, BlockWritten):
            raise InternalError(f"block {label!r} was stored as something else")
        return replace(decisions.block_of(event), stored=act.value)

    async def update(self, label: str, change: Callable[[Any], object]) -> Block:
        """Write what `change` returns for the newest value (None if there is none).

        If another writer is faster, `change` is called again with the new value: no update
        is lost.
        """
        async with _queue(self.name, label):
            return await super().update(label, change)

    async def read(self, label: str, version: int = 0) -> Block:
        """One version of a block; 0 is the newest. Raises `UsageError` if there is none."""
        block = await self.find(label, version)
        if block is None:
            which = f"version {version} of block" if version else "block"
            raise UsageError(
                f"there is no {which} {label!r} on board {self.name!r}; write it first"
            )
        return block

    async def find(self, label: str, version: int = 0) -> Block | None:
        """One version of a block, or None; 0 is the newest."""

        async def look(_: str) -> Block | None:
            await self._check_reader(label)
            block = await self._journal.boards.block(self.name, label, version)
            return None if block is None else replace(block, stored=await self._load(block.stored))

        identity = [label, version]
        return await self._recorded("board.read", identity, look, Block | None, _taint_of_block)

    async def newest(self, label: str) -> Block | None:
        """The newest version of a block that may be read, or None. No step, and no blob is loaded."""
        try:
            await self._check_reader(label)
        except BlockDenied:
            return None
        return await self._journal.boards.block(self.name, label, 0)

    async def labels(self) -> list[Label]:
        """All blocks with their newest version and guard; no value is loaded.

        The label comes from the first author of the block, the guard from the author who
        set it.
        """
        sources: list[str] = []

        async def look(_: str) -> list[Label]:
            found = await self._journal.boards.labels(self.name)
            for each in found:
                first = await self._journal.boards.block(self.name, each.label, 1)
                sources.extend(() if first is None else first.taint)
                sources.extend(() if each.guard.taint is UNSET else each.guard.taint)
            return found

        def taint_of(_: list[Label]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(sources))

        return await self._recorded("board.labels", [], look, list[Label], taint_of)

    async def guard(
        self, label: str, *, readers: Sequence[str] = (), writers: Sequence[str] = ()
    ) -> None:
        """Let only these roles or authors read and write a block from now on; none named means all.

        Anyone who may write a block may guard it. The supervisor's own role may always do
        both.
        """
        taint = self._trusting(None).taint or UNSET
        guard = Guard(checks.texts(readers, "readers"), checks.texts(writers, "writers"), taint)
        act = GuardBlock(
            at=self._clock.now(),
            author=self.author,
            role=self.role,
            label=_named(label),
            guard=guard,
        )
        await self._act("board.guard", act)

    # How it is done

    async def _act(self, name: str, act: Act) -> tuple[BoardEvent, int]:
        """Store what comes of an act, and raise if it was refused."""
        body = _identity(act)

        async def store(key: str) -> _Stored:
            kept = await self._spilled(act)
            once = Key(stream_of(self.name), key, digest_of(canonical(body))) if key else None
            try:
                entry = await self._journal.boards.append(self.name, kept, key=once)
            except BlockChanged as error:
                # A value, not an error: replayed, it must lose again in the same way.
                return _Stored(changed=(error.label, error.expected, error.version))
            return _Stored(event=entry.event, seq=entry.seq)

        stored = await self._recorded(name, body, store, _Stored, lambda _: (), effect=Effect.KEYED)
        if stored.changed is not None:
            raise BlockChanged(*stored.changed)
        if isinstance(stored.event, BlockRefused):
            raise BlockDenied(stored.event.label, stored.event.why)
        if stored.event is None:
            raise InternalError(f"nothing came of an act on board {self.name!r}")
        return stored.event, stored.seq

    async def _recorded(
        self,
        name: str,  # noqa: ARG002 - for the board of a brief
        identity: object,  # noqa: ARG002 - likewise
        run: Callable[[str], Awaitable[T]],
        kind: Any,  # noqa: ARG002 - likewise
        taint_of: Callable[[T], tuple[str, ...]],  # noqa: ARG002 - likewise
        *,
        effect: Effect = Effect.PURE,  # noqa: ARG002 - likewise
    ) -> T:
        return await run("")

    def _trusting(self, data: object) -> Value:
        """What is written, with what it derives from."""
        return data if isinstance(data, Value) else Value.of(data)

    def _distrust(self, sources: tuple[str, ...]) -> None:
        """Somebody has read what derives from these."""

    async def _check_reader(self, label: str) -> None:
        if self.role == LEADER:
            return
        for known in await self._journal.boards.labels(self.name, only=label):
            decisions.check_reader(self.author, self.role, known)

    async def _load(self, value: Value) -> Value:
        return await load_value(value, self._journal.blobs)

    async def _spilled(self, act: Act) -> Act:
        blobs = self._journal.blobs
        if isinstance(act, NotePosted):
            return replace(act, content=await store_value(act.content, blobs))
        if isinstance(act, WriteBlock):
            return replace(act, value=await store_value(act.value, blobs))
        return act


class _Stored(msgspec.Struct, frozen=True):
    """What came of an act, as a step remembers it."""

    event: BoardEvent | None = None
    seq: int = 0
    changed: tuple[str, int, int] | None = None


_queues: "WeakKeyDictionary[AbstractEventLoop, WeakValueDictionary[tuple[str, str], Lock]]"
#: of those who update one block in this process, by event loop
_queues = WeakKeyDictionary()


def _queue(board: str, label: str) -> Lock:
    """To be held while a block is updated: racing each other in step, the same few would always win."""
    queues = _queues.setdefault(get_running_loop(), WeakValueDictionary())
    lock = queues.get((board, label))
    if lock is None:
        lock = queues[board, label] = Lock()
    return lock


def _taint_of(notes: list[Note]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source for note in notes for source in note.taint))


def _taint_of_block(block: Block | None) -> tuple[str, ...]:
    return () if block is None else block.taint


def _identity(act: Act) -> dict[str, object]:
    """All that tells an act from another, in JSON; when it happened does not."""
    if isinstance(
        act, GuardBlock
    ):  # as of a value: what it derives from does not tell it from others
        act = replace(act, guard=replace(act.guard, taint=UNSET))
    said = {name: getattr(act, name) for name in act.__struct_fields__ if name != "at"}
    return {
        name: value.digest if isinstance(value, Value) else msgspec.to_builtins(value)
        for name, value in said.items()
    }


def _named(label: str) -> str:
    given = checks.text(label, "the label of a block")
    if not given:
        raise UsageError("a block needs a label; give it a name")
    return given


@board_to_await
class BriefBoard(Board):
    """The board of a run in the hands of one attempt.

    What it writes and reads is a step: written once however often the attempt is resumed, and read
    the same again. What it reads taints what it returns; what it writes carries what it has read.
    """

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        brief: Brief,
        name: str = "",
        role: str = "",
        scope: str = "",
        *,
        with_run: bool = False,
    ) -> None:
        super().__init__(
            journal,
            clock,
            name or board_of_run(brief.run),
            author=brief.worker,
            role=role or brief.worker,
            run=brief.run if with_run or not name else "",
        )
        self.brief = brief
        #: what its steps are named by beside what they do. Steps inside of a step need one that is
        #: that step's own: when it is replayed they are not, and the next ones would be taken for them.
        self.scope = scope

    @property
    def pending_calls(self) -> PendingCalls:
        return self.brief.pending_calls

    def named(self, name: str, role: str = "") -> "BriefBoard":
        """The long-lived board of this name, in the hands of the same attempt."""
        return BriefBoard(self.journal, self.clock, self.brief, name, role, self.scope)

    async def _recorded(
        self,
        name: str,
        identity: object,
        run: Callable[[str], Awaitable[T]],
        kind: Any,
        taint_of: Callable[[T], tuple[str, ...]],
        *,
        effect: Effect = Effect.PURE,
    ) -> T:
        async def step(key: str) -> Done:
            found = await run(key)
            return Done(Value(json=Raw(msgspec.json.encode(found)), taint=taint_of(found)))

        called = f"{name} {self.scope}" if self.scope else name
        done = await self.brief.durable(called, identity, step, effect=effect, about=identity)
        found: T = msgspec.json.decode(done.value.json, type=kind)
        return found

    def _trusting(self, data: object) -> Value:
        value = super()._trusting(data)
        return replace(value, taint=tuple(dict.fromkeys((*value.taint, *self.brief.taint))))

    def _distrust(self, sources: tuple[str, ...]) -> None:
        self.brief.distrust(*sources)
