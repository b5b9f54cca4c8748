"""A board as the coordinator sees it: assignments, results, and authors who overwrite each other."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, assert_never

from msgspec import Struct

from chargehand.decisions.coordination.conflicts import (
    Conflict,
    ConflictKind,
    Resolution,
    Said,
    contradiction,
)
from chargehand.decisions.coordination.observed_run import COMPARED
from chargehand.facts.board import (
    BlockGuarded,
    BlockRefused,
    BlockWritten,
    BoardEvent,
    NotePosted,
    Segment,
)
from chargehand.facts.value import Value

#: keys by which a note names what it is about, in its metadata or in a content that is a JSON object
TASK, REQUEST, WORKER = ("task_id", "task"), ("request_id", "run"), ("assigned_to", "worker")
QUESTION, RESULT = ("question",), ("result", "output", "answer", "value")
#: how often in a row two authors must undo each other's changes before it is a conflict
UNDONE = 2


class BoardAssignment(Struct, frozen=True):
    """The assignment of a task to a worker, from a note."""

    worker: str
    at: datetime


class Version(Struct, frozen=True):
    """Author and digest of one version of a block."""

    author: str
    digest: str


class BlockWriting(Struct):
    """The recent changes of one block, and the attempts to write it."""

    #: its first author
    first: str = ""
    recent: tuple[Version, ...] = ()
    #: how often in a row an author undid another author's change
    undone: int = 0
    feud: tuple[str, ...] = ()
    feud_at: datetime | None = None
    #: by author: how many of its writes were refused
    refused: dict[str, int] = {}
    refused_at: datetime | None = None
    why: str = ""


class BoardWatch:
    """A fold over the events of one board. It holds no long content."""

    def __init__(self, board: str, run: str = "") -> None:
        self.board = board
        self.run = run
        #: number of the last event that was applied
        self.seq = 0
        #: by request and task
        self._given: dict[tuple[str, str], list[BoardAssignment]] = {}
        #: by request and task: when each author started
        self._begun: dict[tuple[str, str], dict[str, datetime]] = {}
        #: by request and task, or question: the last result of each author
        self._said: dict[tuple[str, str], dict[str, Said]] = {}
        self._blocks: dict[str, BlockWriting] = {}

    def apply(self, seq: int, event: BoardEvent) -> None:
        """Apply the next event of the board."""
        self.seq = seq
        match event:
            case NotePosted():
                self._read(event)
            case BlockWritten():
                self._write(event)
            case BlockRefused():
                writing = self._blocks.setdefault(event.label, BlockWriting())
                writing.refused[event.author] = writing.refused.get(event.author, 0) + 1
                writing.refused_at, writing.why = event.at, event.why
            case BlockGuarded():
                self._calm(event.label)
            case _:
                assert_never(event)

    def conflicts(self) -> list[Conflict]:
        """All conflicts on this board, in the order in which they came up."""
        found = [*self._doubles(), *self._contradictions(), *self._writers()]
        return sorted(found, key=lambda conflict: conflict.at)

    # notes

    def _read(self, note: NotePosted) -> None:
        told = _told(note)
        task = _named(told, TASK)
        about = (_named(told, REQUEST), task)
        if note.segment == Segment.TASKS and task:
            self._assign(note, about, _named(told, WORKER))
        elif note.segment == Segment.PROGRESS and task:
            self._begun.setdefault(about, {}).setdefault(note.author, note.at)
        elif note.segment == Segment.RESULTS and (task or _named(told, QUESTION)):
            if task:
                self._begun.setdefault(about, {}).setdefault(note.author, note.at)
            else:
                about = (about[0], _named(told, QUESTION))
            self._keep_result(note, about)

    def _assign(self, note: NotePosted, about: tuple[str, str], worker: str) -> None:
        given = self._given.setdefault(about, [])
        if "reassigned" in note.tags:
            given.clear()  # the earlier workers no longer have the task
        if worker and all(each.worker != worker for each in given):
            given.append(BoardAssignment(worker, note.at))

    def _keep_result(self, note: NotePosted, about: tuple[str, str]) -> None:
        if note.content.blob or len(note.content.json) > COMPARED:
            return
        content = note.content.read()
        if isinstance(content, dict):
            content = next((content[name] for name in RESULT if name in content), content)
        said = Said(
            by=note.author, value=content, at=note.at, task=about[1], importance=note.importance
        )
        self._said.setdefault(about, {})[note.author] = said

    def _doubles(self) -> Iterator[Conflict]:
        for (request, task), given in self._given.items():
            if len(given) < 2:
                continue
            begun = self._begun.get((request, task), {})
            started = [each.worker for each in given if each.worker in begun]
            keeper = min(started, key=lambda each: begun[each]) if started else given[0].worker
            why = "began first" if started else "was assigned first"
            others = ", ".join(each.worker for each in given if each.worker != keeper)
            where = f" of request {request}" if request else ""
            names = tuple(each.worker for each in given)
            yield Conflict(
                kind=ConflictKind.DOUBLE_ASSIGNMENT,
                parties=names,
                fact=f"task {task}{where} is assigned to {' and '.join(names)}",
                resolution=Resolution(
                    words=f"{keeper} {why} and keeps it; tell {others}", keeper=keeper, task=task
                ),
                at=given[-1].at,
                run=self.run or request,
                board=self.board,
                tasks=(task,),
            )

    def _contradictions(self) -> Iterator[Conflict]:
        for (request, task), said in self._said.items():
            about = f"{task!r} on board {self.board}"
            found = contradiction(
                list(said.values()), about, run=self.run or request, board=self.board
            )
            if found is not None:
                yield found

    # blocks

    def _write(self, event: BlockWritten) -> None:
        writing = self._blocks.setdefault(event.label, BlockWriting(first=event.author))
        writing.first = writing.first or event.author
        version = Version(event.author, event.value.digest)
        recent = (*writing.recent, version)[-3:]
        writing.recent = recent
        if _is_undone(recent):
            writing.undone += 1
            writing.feud = tuple(dict.fromkeys(each.author for each in recent[1:]))
            writing.feud_at = event.at
        elif len({each.author for each in recent[-2:]}) > 1 and writing.undone < UNDONE:
            writing.undone = 0  # the block changes, so they only take turns

    def _calm(self, label: str) -> None:
        """Forget the earlier changes: a guard says who may write the block from now on."""
        writing = self._blocks.setdefault(label, BlockWriting())
        writing.recent, writing.undone, writing.feud_at = (), 0, None

    def _writers(self) -> Iterator[Conflict]:
        for label, writing in self._blocks.items():
            if writing.undone >= UNDONE and writing.feud_at is not None:
                yield self._feud(label, writing, writing.feud_at)
            if writing.refused_at is not None:
                yield self._refusal(label, writing, writing.refused_at)

    def _feud(self, label: str, writing: BlockWriting, at: datetime) -> Conflict:
        parties = tuple(sorted(writing.feud, key=lambda name: name != writing.first))
        keeper = parties[0]
        words = (
            f"{keeper} wrote it first: reserve it with board.guard({label!r}, "
            f"writers=[{keeper!r}]), or let both use board.update, which loses no change"
        )
        return Conflict(
            kind=ConflictKind.TWO_WRITERS,
            parties=parties,
            fact=(
                f"{' and '.join(parties)} overwrote each other's changes to block {label!r} "
                f"{writing.undone} times"
            ),
            resolution=Resolution(words=words, keeper=keeper),
            at=at,
            run=self.run,
            board=self.board,
            block=label,
        )

    def _refusal(self, label: str, writing: BlockWriting, at: datetime) -> Conflict:
        names = " and ".join(writing.refused)
        times = sum(writing.refused.values())
        keeper = writing.recent[-1].author if writing.recent else writing.first
        holder = keeper or "those who may write it"
        words = (
            f"{holder} keep{'s' if keeper else ''} it: nothing was written; let {names} post a note"
        )
        return Conflict(
            kind=ConflictKind.TWO_WRITERS,
            parties=tuple(dict.fromkeys(filter(None, (keeper, *writing.refused)))),
            fact=f"{names} tried to write block {label!r} ({times} times): {writing.why}",
            resolution=Resolution(words=words, keeper=keeper),
            at=at,
            run=self.run,
            board=self.board,
            block=label,
            is_settled=True,
        )


def _is_undone(recent: tuple[Version, ...]) -> bool:
    """Whether the newest of three versions undoes another author's change of the oldest."""
    if len(recent) < 3:
        return False
    old, between, new = recent
    return old == new and between.author != new.author and between.digest != new.digest


def _told(note: NotePosted) -> dict[str, Any]:
    """The named values of a note: its metadata, and its content if that is a JSON object."""
    content = _short(note.content)
    return {**content, **note.metadata} if isinstance(content, dict) else note.metadata


def _short(value: Value) -> Any:
    return None if value.blob or len(value.json) > COMPARED else value.read()


def _named(told: dict[str, Any], names: tuple[str, ...]) -> str:
    found = next((told[name] for name in names if name in told), "")
    return found if isinstance(found, str) else ""
