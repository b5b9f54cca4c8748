"""The rules of boards: versions of blocks, permissions, and which notes a query returns."""

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from chargehand.errors import BlockChanged, BlockDenied, UsageError
from chargehand.facts.argument_checks import text
from chargehand.facts.board import (
    LEADER,
    Act,
    Block,
    BlockGuarded,
    BlockRefused,
    BlockWritten,
    BoardEvent,
    Guard,
    GuardBlock,
    Label,
    Match,
    Note,
    NoteOrder,
    NotePosted,
    NoteQuery,
    Segment,
    WriteBlock,
    stream_of,
)
from chargehand.facts.value import Value

#: importance of a note about a conflict
CONFLICT = 0.9


def decide(act: Act, known: Label) -> BoardEvent:
    """The event that an act becomes, given the current state of its block.

    Raises `BlockChanged` if the block has changed since the writer read it. An act that is not allowed becomes
    a `BlockRefused`, which is recorded and changes nothing.
    """
    if isinstance(act, NotePosted):
        return act
    if not may(act.author, act.role, known.guard.writers):
        return BlockRefused(
            at=act.at,
            author=act.author,
            label=act.label,
            role=act.role,
            why=f"only {_listed(known.guard.writers)} may write it",
        )
    match act:
        case WriteBlock():
            if act.expect is not None and act.expect != known.version:
                raise BlockChanged(act.label, act.expect, known.version)
            return BlockWritten(
                at=act.at,
                author=act.author,
                label=act.label,
                version=known.version + 1,
                value=act.value,
            )
        case GuardBlock():
            return BlockGuarded(at=act.at, author=act.author, label=act.label, guard=act.guard)
        case _:
            assert_never(act)


def may(author: str, role: str, allowed: Sequence[str]) -> bool:
    """Whether `allowed` has this author or role; an empty list allows everybody."""
    return not allowed or role == LEADER or role in allowed or author in allowed


def check_reader(author: str, role: str, known: Label) -> None:
    """Raise `BlockDenied` unless this author or role may read the block."""
    if not may(author, role, known.guard.readers):
        raise BlockDenied(known.label, f"only {_listed(known.guard.readers)} may read it")


def _listed(roles: Sequence[str]) -> str:
    return ", ".join(repr(role) for role in roles)


# Notes


def note_of(board: str, seq: int, event: BoardEvent) -> Note | None:
    """The note that this event of a board is read as; None if it is no note."""
    if isinstance(event, BlockRefused):
        said = f"{event.author} tried to write block {event.label!r}: {event.why}"
        event = NotePosted(
            at=event.at,
            author=event.author,
            content=Value.of(said),
            tags=("block", "refused", event.label),
            segment=Segment.CONFLICTS,
            importance=CONFLICT,
        )
    if not isinstance(event, NotePosted):
        return None
    return Note(
        id=f"{stream_of(board)}#{seq}",
        seq=seq,
        author=event.author,
        stored=event.content,
        tags=event.tags,
        segment=event.segment,
        importance=event.importance,
        metadata=event.metadata,
        at=event.at,
    )


def matches(note: Note, query: NoteQuery) -> bool:
    """Whether this note matches the query."""
    if note.importance < query.min_importance:
        return False
    if query.segments and note.segment not in query.segments:
        return False
    if query.author and note.author != query.author:
        return False
    if query.not_by and note.author == query.not_by:
        return False
    if not query.tags:
        return True
    enough = all if query.match is Match.ALL else any
    return enough(tag in note.tags for tag in query.tags)


def select(notes: Iterable[Note], query: NoteQuery) -> list[Note]:
    """The notes that match the query, in its order and at most its `limit`."""
    found = (note for note in notes if matches(note, query))
    if query.order is NoteOrder.NEWEST:
        return heapq.nlargest(query.limit, found, key=lambda note: (note.at, note.seq))
    return heapq.nlargest(query.limit, found, key=lambda note: (note.importance, note.at, note.seq))


class Facets(Struct, frozen=True):
    """A query as an index sees it: a note matches if it has a facet of every group and not the facet `never`."""

    groups: list[list[str]]
    never: str = ""


ALL_NOTES = "*"


def facets_of(note: Note) -> list[str]:
    """All facets under which an index keeps a note."""
    named = [
        f"s{note.segment}",
        f"a{note.author}",
        *(f"t{tag}" for tag in dict.fromkeys(note.tags)),
    ]
    return [ALL_NOTES, *named]


def ranked_facets(note: Note) -> list[str]:
    """The facets of a note in which an index also keeps notes by importance."""
    return [ALL_NOTES, f"s{note.segment}"]


def ranks_asked(query: NoteQuery) -> list[str]:
    """The facets kept by importance that together have all notes that a query can return."""
    return [f"s{segment}" for segment in dict.fromkeys(query.segments)] or [ALL_NOTES]


def facets_asked(query: NoteQuery) -> Facets:
    """The facets that a query asks for."""
    groups: list[list[str]] = []
    if query.tags:
        tags = [f"t{tag}" for tag in dict.fromkeys(query.tags)]
        groups += [[tag] for tag in tags] if query.match is Match.ALL else [tags]
    if query.segments:
        groups.append([f"s{segment}" for segment in dict.fromkeys(query.segments)])
    if query.author:
        groups.append([f"a{query.author}"])
    return Facets(groups or [[ALL_NOTES]], f"a{query.not_by}" if query.not_by else "")


# Blocks


class BoardState:
    """The blocks of one board, folded from its events: every version, and who may read and write it."""

    def __init__(self) -> None:
        self.versions: dict[str, list[Block]] = {}
        self.guards: dict[str, Guard] = {}

    def apply(self, event: BoardEvent) -> None:
        match event:
            case BlockWritten():
                self.versions.setdefault(event.label, []).append(block_of(event))
            case BlockGuarded():
                self.guards[event.label] = event.guard
            case NotePosted() | BlockRefused():
                pass
            case _:
                assert_never(event)

    def known(self, label: str) -> Label:
        """Version and guard of a block, even if it was never written."""
        return Label(label, len(self.versions.get(label, ())), self.guards.get(label, Guard()))

    def labels(self) -> list[Label]:
        """All blocks that were written or guarded, in the order of their labels."""
        return [self.known(label) for label in sorted({*self.versions, *self.guards})]

    def find(self, label: str, version: int) -> Block | None:
        """This version of a block; 0 is the newest."""
        versions = self.versions.get(label, [])
        if not 0 <= version <= len(versions):
            return None
        return versions[version - 1] if versions else None


def block_of(event: BlockWritten) -> Block:
    """The version of a block that this event wrote."""
    return Block(
        label=event.label,
        version=event.version,
        stored=event.value,
        author=event.author,
        at=event.at,
    )


def diff(old: Block, new: Block) -> str:
    """What changed between two versions, line by line."""
    import difflib  # not at the top: it would slow down every start, and few programs need it

    lines = difflib.unified_diff(
        _lines(old.value),
        _lines(new.value),
        f"{old.label} {old.version}",
        f"{new.label} {new.version}",
        lineterm="",
    )
    return "\n".join(lines)


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode().splitlines()


def check_board_name(name: str) -> None:
    """Raise `UsageError` if this cannot be the name of a board."""
    if not text(name, "the name of a board") or name != name.strip():
        raise UsageError(f"a board cannot be called {name!r}; give it a name without outer blanks")
