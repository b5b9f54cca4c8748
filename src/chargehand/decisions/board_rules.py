"""What a board decides: which version comes next, who may write it, which notes a query is after."""

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

#: importance of a note about two that got in each other's way
CONFLICT = 0.9


def decide(act: Act, known: Label) -> BoardEvent:
    """What comes of an act, given what is known of its block at this very moment.

    Raises `BlockChanged` if the block is no longer what the writer had read. A writer that is not
    allowed to is an event too: it is written down, and changes nothing.
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
    """Whether somebody of this name and role is among these; nobody named means everybody."""
    return not allowed or role == LEADER or role in allowed or author in allowed


def check_reader(author: str, role: str, known: Label) -> None:
    """Raise `BlockDenied` unless this block may be read."""
    if not may(author, role, known.guard.readers):
        raise BlockDenied(known.label, f"only {_listed(known.guard.readers)} may read it")


def _listed(roles: Sequence[str]) -> str:
    return ", ".join(repr(role) for role in roles)


# Notes


def note_of(board: str, seq: int, event: BoardEvent) -> Note | None:
    """The note that this event of a board is read as, if it is one."""
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
    """Whether this note is one of those that are asked for."""
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
    """The notes that are asked for, in the order and number that are asked for."""
    found = (note for note in notes if matches(note, query))
    if query.order is NoteOrder.NEWEST:
        return heapq.nlargest(query.limit, found, key=lambda note: (note.at, note.seq))
    return heapq.nlargest(query.limit, found, key=lambda note: (note.importance, note.at, note.seq))


class Facets(Struct, frozen=True):
    """What an index must know of a query: a note is in one facet of every group, and not in `never`."""

    groups: list[list[str]]
    never: str = ""


ALL_NOTES = "*"


def facets_of(note: Note) -> list[str]:
    """All that a note can be found by."""
    named = [
        f"s{note.segment}",
        f"a{note.author}",
        *(f"t{tag}" for tag in dict.fromkeys(note.tags)),
    ]
    return [ALL_NOTES, *named]


def ranked_facets(note: Note) -> list[str]:
    """Those of its facets in which notes are also kept by importance."""
    return [ALL_NOTES, f"s{note.segment}"]


def ranks_asked(query: NoteQuery) -> list[str]:
    """The facets kept by importance that hold, together, all that a query can be after."""
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
    """The blocks of one board, folded from its events: every version, and who may touch it."""

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
        """What is known of a block, written or not."""
        return Label(label, len(self.versions.get(label, ())), self.guards.get(label, Guard()))

    def labels(self) -> list[Label]:
        """All blocks that were written or guarded, by label."""
        return [self.known(label) for label in sorted({*self.versions, *self.guards})]

    def find(self, label: str, version: int) -> Block | None:
        """This version of a block; 0 is the newest."""
        versions = self.versions.get(label, [])
        if not 0 <= version <= len(versions):
            return None
        return versions[version - 1] if versions else None


def block_of(event: BlockWritten) -> Block:
    """The version of a block that this event is."""
    return Block(
        label=event.label,
        version=event.version,
        stored=event.value,
        author=event.author,
        at=event.at,
    )


def diff(old: Block, new: Block) -> str:
    """What changed between two versions, line by line."""
    import difflib  # here, since few ask and it costs every start

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
    """Raise `UsageError` for what cannot be the name of a board."""
    if not text(name, "the name of a board") or name != name.strip():
        raise UsageError(f"a board cannot be called {name!r}; give it a name without outer blanks")
