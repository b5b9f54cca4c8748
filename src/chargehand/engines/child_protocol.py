"""What a supervisor and its worker processes say to each other: JSON frames, each after a head.

The head holds the length of the frame and the token of the attempt that it belongs to. The parent draws
a new random token for every attempt and ignores frames that bear another: no result, step or note can
cross from one attempt to the next, whatever still holds the pipe.
"""

import secrets
import struct
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from chargehand.decisions.run_outputs_and_steps import StepLog, StepRecord
from chargehand.errors import InternalError, NotJSON, UsageError
from chargehand.facts.outcome import Done, Failed, Outcome
from chargehand.facts.plan import Task
from chargehand.facts.value import Value

#: of one frame; more than this belongs in a file whose name is passed on
MOST_BYTES = 256 * 2**20

#: comes before a child's first frame; what stands before it was printed while Python started
HELLO = b"\0chargehand child\n"

#: how many progress notes a child may send before the parent has made room for more
NOTES_AHEAD = 32

#: what a child may ask of the board; the rest is made of these
BoardAct: TypeAlias = Literal["post", "notes", "search", "write", "read", "find", "labels", "guard"]

TOKEN_BYTES = 16
_head = struct.Struct(f">I{TOKEN_BYTES}s")
HEAD_BYTES = _head.size

#: in place of a token: what is said before the first attempt, or of none
NO_ATTEMPT = bytes(TOKEN_BYTES)


class _Frame(Struct, frozen=True, tag=True, tag_field="frame", omit_defaults=True):
    """Frames never outlive the two processes, which run the same code: they have no versions."""


class Setup(_Frame, frozen=True, kw_only=True):
    """The first frame: what the child needs to be like its parent."""

    #: the parent's `sys.path`
    path: list[str]
    argv: list[str]
    #: the parent's own setting, which was replaced so that the child would find us
    pythonpath: str | None
    #: bytes of address space
    memory: int | None = None
    #: seconds of processor time, for one attempt
    cpu: int | None = None
    #: seconds between two signs of life during an attempt
    beat: float = 1.0


class AttemptFrame(_Frame, frozen=True, kw_only=True):
    """Do this, and say what came of it."""

    run: str
    task: Task
    attempt: int
    worker: str
    values: dict[str, Value]
    missing: dict[str, str] = {}
    log: StepLog | None = None
    answers: dict[str, str] = {}
    #: untrusted sources that its words and inputs derive from
    taint: tuple[str, ...] = ()


class WrittenFrame(_Frame, frozen=True):
    """What the child said about a step is in the journal."""

    number: int


class RefusedFrame(_Frame, frozen=True):
    """What the child said about a step is not in the journal; what it wanted of the board is not done."""

    number: int
    reason: str
    #: None: the task is no longer this attempt's
    failure: Failed | None = None
    #: what the error said beside its words, by the names of its attributes
    facts: dict[str, Any] = {}


class BoardAnswer(_Frame, frozen=True):
    """What came of an act on the board."""

    number: int
    found: Raw
    #: untrusted sources that the attempt has read by now
    taint: tuple[str, ...] = ()


class StopFrame(_Frame, frozen=True):
    """The task is no longer this attempt's; nothing more that it says is heard."""

    reason: str


class Room(_Frame, frozen=True):
    """One more progress note may be sent."""


class BeginStep(_Frame, frozen=True):
    number: int
    step: StepRecord
    is_urgent: bool


class EndStep(_Frame, frozen=True):
    number: int
    step: StepRecord
    outcome: Done | Failed


class AskBoard(_Frame, frozen=True):
    """Do this with the board of the run, in the attempt's name."""

    number: int
    act: BoardAct
    arguments: dict[str, Any]


class Distrusted(_Frame, frozen=True):
    """The attempt has read from these untrusted sources: whatever it says from now on derives from them."""

    sources: tuple[str, ...]


class NoteProgress(_Frame, frozen=True):
    text: str
    fraction: float | None = None


class Beat(_Frame, frozen=True):
    """The process lives."""


class EndedFrame(_Frame, frozen=True):
    """The attempt is over; the child waits for the next."""

    outcome: Outcome
    #: if not empty, the worker itself said that it was lost, and why
    lost: str = ""


ToChild: TypeAlias = (
    Setup | AttemptFrame | WrittenFrame | RefusedFrame | BoardAnswer | StopFrame | Room
)
FromChild: TypeAlias = (
    BeginStep | EndStep | AskBoard | Distrusted | NoteProgress | Beat | EndedFrame
)

FrameT = TypeVar("FrameT", ToChild, FromChild)

_encoder = msgspec.json.Encoder()
_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


def new_token() -> bytes:
    """The token of one more attempt: no process that was not handed it can guess it."""
    return secrets.token_bytes(TOKEN_BYTES)


def pack(frame: ToChild | FromChild, token: bytes = NO_ATTEMPT) -> bytearray:
    """The frame of this attempt as it goes over the pipe. Raises `UsageError` for what no frame can hold."""
    packed = bytearray(HEAD_BYTES)
    try:
        _encoder.encode_into(frame, packed, HEAD_BYTES)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotJSON(f"this cannot pass between processes as JSON: {error}") from error
    size = len(packed) - HEAD_BYTES
    if size > MOST_BYTES:
        raise UsageError(_too_large(size))
    _head.pack_into(packed, 0, size, token)
    return packed


def read_head(head: bytes) -> tuple[int, bytes]:
    """How long the frame after this head is, and the token of its attempt. Raises `UsageError` if it is too long."""
    size: int
    token: bytes
    size, token = _head.unpack(head)
    if size > MOST_BYTES:
        raise UsageError(_too_large(size))
    return size, token


def for_child(data: bytes) -> ToChild:
    """The frame in these bytes, as the child reads them."""
    return _read(_to_child, data)


def from_child(data: bytes) -> FromChild:
    """The frame in these bytes, as the parent reads them."""
    return _read(_from_child, data)


def _read(decoder: msgspec.json.Decoder[FrameT], data: bytes) -> FrameT:
    try:
        return decoder.decode(data)
    except RecursionError:
        raise NotJSON("it is nested too deeply to pass between processes") from None
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as error:
        raise InternalError(f"a frame between two processes cannot be read: {error}") from error


def _too_large(size: int) -> str:
    return (
        f"{size / 2**20:,.0f} MB are more than the {MOST_BYTES / 2**20:,.0f} MB that pass between "
        "processes at once; write them to a file and pass its name on"
    )
