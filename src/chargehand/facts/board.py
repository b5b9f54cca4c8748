"""Boards: notes that anybody may add, and blocks that are written version by version.

Each board is a stream in the journal. The events below are all events of a board.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias, TypedDict

import msgspec
from msgspec import UNSET, Struct, UnsetType

from chargehand.errors import JournalDamaged, JournalVersion, UsageError
from chargehand.facts.argument_checks import amount, count, one_of, refuse_unknown, text, texts
from chargehand.facts.events import VERSION, StoredEvent
from chargehand.facts.value import Value

#: prefix of the streams of boards
BOARD = "board:"
_OF_RUN = "run/"
#: the role that may read and write every block
LEADER = "supervisor"
#: characters of the value in the `repr` of a block
SHOWN = 200


class Segment(StrEnum):
    """The usual segments of a board. Any other word can be a segment too."""

    TASKS = "tasks"  #: what is to be done
    RESULTS = "results"  #: the result of a task
    ERRORS = "errors"  #: what failed
    PROGRESS = "progress"  #: how far a worker has got
    CONFLICTS = "conflicts"  #: two workers got in each other's way
    NOTES = "notes"  #: everything else


class NoteOrder(StrEnum):
    """Which notes come first."""

    NEWEST = "newest"
    IMPORTANT = "important"  #: among equally important ones, the newest


class Match(StrEnum):
    """How many of the requested tags a note must have."""

    ANY = "any"
    ALL = "all"


class Note(Struct, frozen=True, kw_only=True):
    """An immutable entry on a board."""

    #: its stream and its number in the stream
    id: str
    seq: int
    author: str
    stored: Value
    tags: tuple[str, ...] = ()
    segment: str = Segment.NOTES
    importance: float = 0.5
    metadata: dict[str, Any] = {}
    at: datetime

    @property
    def content(self) -> Any:
        """The content; a fresh copy."""
        return self.stored.read()

    @property
    def taint(self) -> tuple[str, ...]:
        """The untrusted sources that it derives from."""
        return self.stored.taint


class Hit(Struct, frozen=True, kw_only=True):
    """A note that a search found, and how well it matches."""

    note: Note
    #: larger is better; only comparable within one search
    score: float
    #: how it was found: by `meaning` or by `words`
    by: str


class Block(Struct, frozen=True, kw_only=True):
    """One version of a labelled value that several workers may write."""

    label: str
    #: counted from 1, without gaps
    version: int
    stored: Value
    author: str
    at: datetime

    def __repr__(self) -> str:
        stored = self.stored
        data = f"({stored.size} bytes)" if stored.blob else bytes(stored.json).decode()
        shown = data if len(data) <= SHOWN else f"{data[:SHOWN]}…"
        return f"<block {self.label!r}, version {self.version} by {self.author!r}: {shown}>"

    @property
    def value(self) -> Any:
        """The value of this version; a fresh copy."""
        return self.stored.read()

    @property
    def taint(self) -> tuple[str, ...]:
        """The untrusted sources that it derives from."""
        return self.stored.taint


class Guard(Struct, frozen=True):
    """Which roles may read and write a block. An empty list allows everybody."""

    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    #: untrusted sources that its author had read; unset if there are none, as in earlier versions of chargehand
    taint: tuple[str, ...] | UnsetType = UNSET


class Label(Struct, frozen=True):
    """Version and guard of a block, without its value."""

    label: str
    version: int
    guard: Guard = Guard()


class NoteQuery(Struct, frozen=True, kw_only=True):
    """A query for notes. A field that is left out has no effect."""

    tags: tuple[str, ...] = ()
    match: Match = Match.ANY
    #: a note of any of these
    segments: tuple[str, ...] = ()
    min_importance: float = 0.0
    author: str = ""
    #: an author whose notes are left out
    not_by: str = ""
    order: NoteOrder = NoteOrder.NEWEST
    limit: int = 100

    def __post_init__(self) -> None:
        count(self.limit, "limit", least=1)
        amount(self.min_importance, "min_importance", least=-1)
        for field in ("author", "not_by"):
            text(getattr(self, field), field)


class NoteFilters(TypedDict, total=False):
    """Filters for notes. A filter that you leave out has no effect."""

    tags: Sequence[str] | None
    #: `any` (default): one of the tags is enough; `all`: a note must have all of them
    match: Match | str
    #: a note of any of these
    segments: Sequence[str] | None
    min_importance: float
    author: str
    #: leave out the caller's own notes
    exclude_own: bool


def note_query(
    filters: NoteFilters,
    own: str = "",
    *,
    order: NoteOrder | str = NoteOrder.NEWEST,
    limit: int = 100,
    also: Sequence[str] = (),
) -> NoteQuery:
    """The query for these filters; `own` is the caller's name. Raises `UsageError` for invalid filters.

    `also` are the other arguments of the caller's method, for the message about an unknown one.
    """
    known = [*NoteFilters.__annotations__, *also]
    refuse_unknown(filters, known, "a query for notes")
    return NoteQuery(
        tags=texts(filters.get("tags") or (), "tags"),
        match=one_of(filters.get("match", Match.ANY), Match, "match"),
        segments=texts(filters.get("segments") or (), "segments"),
        min_importance=filters.get("min_importance", 0.0),
        author=filters.get("author", ""),
        not_by=own if filters.get("exclude_own") else "",
        order=one_of(order, NoteOrder, "order"),
        limit=limit,
    )


class NoteOptions(TypedDict, total=False):
    """The metadata of a note: everything but its content."""

    tags: Sequence[str]
    #: default: `Segment.NOTES`
    segment: str
    #: from 0 to 1; default: 0.5
    importance: float
    metadata: dict[str, Any] | None


# Acts on a board


class WriteBlock(Struct, frozen=True, kw_only=True):
    """Write the next version of a block."""

    at: datetime
    author: str
    role: str
    label: str
    value: Value
    #: write only if this is the newest version; 0: only if the block has no version yet
    expect: int | None = None


class GuardBlock(Struct, frozen=True, kw_only=True):
    """Set who may read and write a block from now on."""

    at: datetime
    author: str
    role: str
    label: str
    guard: Guard


# Events of a board


class _BoardEvent(StoredEvent, frozen=True, kw_only=True):
    author: str


class NotePosted(_BoardEvent, frozen=True, kw_only=True):
    """A note was added to the board."""

    content: Value
    tags: tuple[str, ...] = ()
    segment: str = Segment.NOTES
    importance: float = 0.5
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if not 0 <= self.importance <= 1:
            raise UsageError(f"importance={self.importance} must lie between 0 and 1")


class BlockWritten(_BoardEvent, frozen=True, kw_only=True):
    """A block has a new version."""

    label: str
    version: int
    value: Value


class BlockGuarded(_BoardEvent, frozen=True, kw_only=True):
    """From now on these roles may read and write a block."""

    label: str
    guard: Guard


class BlockRefused(_BoardEvent, frozen=True, kw_only=True):
    """An attempt to write or guard a block was refused, because it is not allowed. Nothing was written."""

    label: str
    role: str
    why: str


BoardEvent: TypeAlias = NotePosted | BlockWritten | BlockGuarded | BlockRefused
#: acts on a board; a note needs no decision, so it is its own event
Act: TypeAlias = NotePosted | WriteBlock | GuardBlock

_decoder: msgspec.json.Decoder[BoardEvent] = msgspec.json.Decoder(BoardEvent)


class BoardEntry(Struct, frozen=True):
    """A stored event of a board."""

    board: str
    seq: int
    event: BoardEvent


def stream_of(board: str) -> str:
    """The stream that holds this board."""
    return f"{BOARD}{board}"


def board_of_run(run: str) -> str:
    """The name of the board that the workers of a run share."""
    return f"{_OF_RUN}{run}"


def is_board_of_run(board: str) -> bool:
    """Whether this is the board of a run, not a board with its own name."""
    return board.startswith(_OF_RUN)


def decode_board(data: bytes, version: int = VERSION) -> BoardEvent:
    """The event of a board in these bytes. Unknown versions and kinds are refused, never guessed."""
    if version != VERSION:
        raise JournalVersion(
            f"an event of version {version} was found on a board; this chargehand reads {VERSION}: "
            "upgrade chargehand to read this journal"
        )
    try:
        return _decoder.decode(data)
    except Exception as error:  # foreign bytes can raise anything
        raise JournalDamaged(f"an event of a board cannot be read: {error}") from error
