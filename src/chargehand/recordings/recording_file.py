"""The file format of recordings: a ZIP archive with a header, the events of each stream, and the blobs.

    recording.json     format, version, and the runs with their numbers of events and hashes
    streams/0.jsonl    one event per line, as stored, with its hash
    blobs/<digest>     values too large for an event

A file is not trusted: names, sizes, digests and the hash chain are checked before anything is used, and no name in the
archive becomes a path.
"""

import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version as version_of
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from chargehand.decisions.budget import all_runs_below
from chargehand.errors import JournalDamaged, JournalVersion, RecordingTooLarge, UsageError
from chargehand.facts.board import BOARD, board_of_run, decode_board, stream_of
from chargehand.facts.events import decode, encode
from chargehand.facts.value import MOST_BYTES, digest_of
from chargehand.journal.base import (
    GENESIS,
    IMPORTED,
    Key,
    StoredKey,
    StoredRow,
    StreamCopy,
    is_part_of_journal,
)
from chargehand.journal.hash_chain import (
    chain_hash,
    entry_hash,
    header,
    header_start,
    payload_digest,
)
from chargehand.journal.stream_copy_rows import check_chain
from chargehand.recordings.content_removal import without_content
from chargehand.recordings.run_archive import JournalLike, RunArchive, archive_of, journal_at
from chargehand.regular_file import refuse_special_file
from chargehand.sync_async_bridge import in_thread
from chargehand.usable_path import checked_path

FORMAT = "chargehand recording"
#: version of the file format; readers refuse a higher one
FORMAT_VERSION = 1
#: suffix of the file name
SUFFIX = ".chargehand"

_HEADER = "recording.json"
_NAMES = re.compile(r"recording\.json|streams/\d{1,6}\.jsonl|blobs/[0-9a-f]{32}")
#: default limit of the unpacked size, in bytes
MAX_SIZE = 2**28
#: limits: bytes of the header, bytes of one event, members of the archive
_MOST_HEADER, _MOST_LINE, _MOST_MEMBERS = 2**26, 2**26, 200_000
#: allowed compression types: these are unpacked piece by piece, whatever size a member claims
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: errors of unpacking a damaged member
_UNPACKING = (zipfile.BadZipFile, zlib.error, RuntimeError, ValueError, EOFError)
#: date of all members, so that the same run gives the same file
_DATE = (1980, 1, 1, 0, 0, 0)


class _StreamHead(Struct, frozen=True, forbid_unknown_fields=False):
    name: str
    events: int
    hash: str
    keys: list[tuple[str, str, str, int]] = []


class _Header(Struct, frozen=True, kw_only=True):
    format: str
    version: int
    chargehand: str
    root: str
    has_content: bool
    streams: list[_StreamHead]
    blobs: int
    #: by worker of the root run: digests of its prompts, tools and settings, and its models
    workers: dict[str, dict[str, str]] = {}


class _Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    seq: int
    epoch: int
    kind: str
    version: int
    at: int
    author: str
    hash: str
    #: digest of the stored bytes, if the event is recorded without its content
    digest: str = ""
    event: Raw


class _Probe(Struct):
    format: str
    version: int


async def record(
    run: str,
    path: str | os.PathLike[str],
    journal: JournalLike,
    *,
    content: bool = True,
    force: bool = False,
) -> RunArchive:
    """Save a run, the runs nested in it, their boards and blobs to one file, atomically.

    Without `content`, text, values and blobs are left out. An existing file is replaced only with `force`.
    """
    target = checked_path(path, "the recording")
    async with journal_at(journal) as source:
        archive = await archive_of(source, run)
        await _write_file(archive, target, content=content, force=force)
    return archive


async def load(
    run: str | os.PathLike[str], journal: JournalLike, *, max_size: int = MAX_SIZE
) -> RunArchive:
    """Load a run with its nested runs, boards and blobs, from a recording or by its id from a journal.

    Raises `RecordingTooLarge` for a recording that unpacks to more than `max_size` bytes.
    """
    if is_recording(run):
        return await in_thread(read_recording, checked_path(run), max_size)
    async with journal_at(journal) as source:
        archive = await archive_of(source, os.fspath(run))
        if source is journal:
            return archive
        # The journal is closed on return, so the blobs are loaded now.
        kept = {digest: await source.blobs.get(digest) for digest in archive.blobs()}

    async def blob(digest: str) -> bytes:
        return kept[digest]

    return replace(archive, blob=blob)


async def _write_file(archive: RunArchive, path: Path, *, content: bool, force: bool) -> None:
    _refuse_existing(path, force=force)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            await _write(archive, file, content=content and archive.has_content)
            file.flush()
            os.fsync(file.fileno())
        if force:
            part.replace(path)
        else:
            os.link(part, path)  # fails if the file was created meanwhile
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}; give another place with -o"
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()


def _refuse_existing(path: Path, *, force: bool) -> None:
    if is_part_of_journal(path):
        raise UsageError(f"{path} belongs to a journal, and is never replaced; give another name")
    if not force and os.path.lexists(path):
        raise _exists(path)


def _exists(path: Path) -> UsageError:
    return UsageError(f"{path} exists; give another name, or replace it with --force")


async def _write(archive: RunArchive, file: IO[bytes], *, content: bool) -> None:
    streams = [
        copy for name, copy in archive.streams.items() if content or not name.startswith(BOARD)
    ]
    blobs = archive.blobs() if content else []
    first = next(iter(archive.events(archive.root)), None)
    head = _Header(
        format=FORMAT,
        version=FORMAT_VERSION,
        chargehand=version_of("chargehand"),
        root=archive.root,
        has_content=content,
        streams=[_head_of(copy) for copy in streams],
        blobs=len(blobs),
        workers=getattr(first, "members", {}) if content else {},
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr(_member(_HEADER), msgspec.json.format(msgspec.json.encode(head)))
        for number, copy in enumerate(streams):
            with target.open(_member(f"streams/{number}.jsonl"), "w", force_zip64=True) as member:
                for row in copy.rows:
                    member.write(msgspec.json.encode(_line(row, content=content)) + b"\n")
        for digest in blobs:
            with target.open(_member(f"blobs/{digest}"), "w", force_zip64=True) as member:
                member.write(await archive.blob(digest))


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _DATE)
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _head_of(copy: StreamCopy) -> _StreamHead:
    keys = [
        (each.key.scope, each.key.name, each.key.digest, each.seq)
        for each in copy.keys
        if each.key.name != IMPORTED  # it belongs to the journal, not to the run
    ]
    last = copy.rows[-1].hash.hex() if copy.rows else ""
    return _StreamHead(copy.stream, len(copy.rows), last, keys)


def _line(row: StoredRow, *, content: bool) -> _Line:
    payload, digest = row.payload, ""
    if not content:
        payload = encode(without_content(decode(row.payload, row.version)))
        digest = payload_digest(row.payload).hex()
    return _Line(
        seq=row.seq,
        epoch=row.epoch,
        kind=row.kind,
        version=row.version,
        at=row.at,
        author=row.author,
        hash=row.hash.hex(),
        digest=digest,
        event=Raw(payload),
    )


# Reading


def is_recording(given: str | os.PathLike[str]) -> bool:
    """Whether this names a recording file, not the id of a run."""
    path = Path(given)
    try:
        return path.suffix == SUFFIX or (path.is_file() and zipfile.is_zipfile(path))
    except (OSError, ValueError):
        return False


def read_recording(path: Path, max_size: int = MAX_SIZE) -> RunArchive:
    """Read a recording file and check it. Blobs are read on demand.

    Raises `UsageError` if the file is not a recording, `RecordingTooLarge` if it unpacks to more than `max_size` bytes,
    `JournalVersion` if its format is newer, and `JournalDamaged` if it is damaged.
    """
    with _opened(path, max_size) as file:
        head = _read_header(path, file)
        _check_names(path, file.namelist())
        found: dict[str, StreamCopy] = {}
        for number, stream in enumerate(head.streams):
            found[stream.name] = _read_stream(path, file, number, stream, content=head.has_content)
        digests = {name[6:] for name in file.namelist() if name.startswith("blobs/")}
    if head.root not in found or len(found) != len(head.streams):
        raise _damaged(path, "its header does not fit its streams")

    async def blob(digest: str) -> bytes:
        if digest not in digests:
            raise _damaged(path, f"blob {digest} is missing")
        with _opened(path, max_size) as again:
            data = _read(path, again, f"blobs/{digest}", MOST_BYTES)
        if digest_of(data) != digest:
            raise _damaged(path, f"blob {digest} was changed")
        return data

    archive = RunArchive(
        root=head.root,
        streams=found,
        blob=blob,
        has_content=head.has_content,
        chargehand=head.chargehand,
        hashes={stream.name: stream.hash for stream in head.streams},
    )
    missing = [digest for digest in archive.blobs() if digest not in digests]
    if missing or len(digests) != head.blobs:
        raise _damaged(path, f"blob {missing[0]} is missing" if missing else "blobs are missing")
    _refuse_strangers(path, archive)
    return archive


def _refuse_strangers(path: Path, archive: RunArchive) -> None:
    """Refuse streams that do not belong to the recorded run: they would be imported with it."""
    related = {archive.root}
    for run in archive.runs:  # a nested run comes after its parent
        if run in related:
            related.update(all_runs_below(archive.events(run)))
    related |= {stream_of(board_of_run(run)) for run in related}
    if strange := next((name for name in archive.streams if name not in related), None):
        raise _damaged(path, f"it holds {strange[:80]!r}, which does not belong to {archive.root}")


@contextmanager
def _opened(path: Path, max_size: int) -> Iterator[zipfile.ZipFile]:
    if not path.exists():
        raise UsageError(f"there is no file {path}; chargehand record RUN -o {path} makes one")
    refuse_special_file(path)
    try:
        with zipfile.ZipFile(path) as file:
            _check_size(path, file, max_size)
            yield file
    except zipfile.BadZipFile as error:
        if _begins_like_zip(path):
            raise _damaged(path, str(error)) from None
        raise _foreign(path) from None
    except (NotImplementedError, EOFError) as error:
        raise _damaged(path, str(error) or "it ends too early") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None


def _begins_like_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _check_size(path: Path, file: zipfile.ZipFile, max_size: int) -> None:
    members = file.infolist()
    whole = sum(member.file_size for member in members)
    if whole > max_size:
        raise RecordingTooLarge(str(path), whole, max_size)
    if len(members) > _MOST_MEMBERS:
        raise _damaged(path, f"it has {len(members):,} parts, and {_MOST_MEMBERS:,} are the most")
    if any(member.compress_type not in _PACKED for member in members):
        raise _damaged(path, "it is packed in a way that no recording is")


def _check_names(path: Path, names: list[str]) -> None:
    strange = next((name for name in names if not _NAMES.fullmatch(name)), None)
    if strange is not None:
        raise _damaged(path, f"it holds {strange[:80]!r}, which no recording does")
    if len(set(names)) != len(names):
        raise _damaged(path, "it holds a name twice")


def _read(path: Path, file: zipfile.ZipFile, name: str, most: int) -> bytes:
    try:
        with file.open(name) as member:
            data = member.read(most + 1)
    except KeyError:
        raise _damaged(path, f"{name} is missing") from None
    except _UNPACKING as error:
        raise _damaged(path, f"{name} cannot be unpacked: {error}") from None
    if len(data) > most:
        raise _damaged(path, f"{name} is larger than {most:,} bytes")
    return data


def _read_header(path: Path, file: zipfile.ZipFile) -> _Header:
    if _HEADER not in file.namelist():
        raise _foreign(path)
    data = _read(path, file, _HEADER, _MOST_HEADER)
    try:
        probe = msgspec.json.decode(data, type=_Probe)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _foreign(path) from None
    if probe.format != FORMAT:
        raise _foreign(path)
    if probe.version > FORMAT_VERSION or probe.version < 1:
        raise JournalVersion(
            f"{path} is a recording of version {probe.version}; this chargehand reads 1 to "
            f"{FORMAT_VERSION}: upgrade chargehand to read it"
        )
    try:
        return msgspec.json.decode(data, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, f"its header cannot be read: {error}") from None


def _read_stream(
    path: Path, file: zipfile.ZipFile, number: int, head: _StreamHead, *, content: bool
) -> StreamCopy:
    rows: list[StoredRow] = []
    digests: list[bytes] = []
    decoding = decode_board if head.name.startswith(BOARD) else decode
    for line in _lines(path, file, f"streams/{number}.jsonl"):
        try:
            read = msgspec.json.decode(line, type=_Line)
            kept, digest = bytes.fromhex(read.hash), bytes.fromhex(read.digest)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise _damaged(path, f"event {len(rows) + 1} of {head.name!r}: {error}") from None
        payload = bytes(read.event)
        try:
            decoding(payload, read.version)
        except JournalDamaged as error:
            raise _damaged(path, f"event {len(rows) + 1} of {head.name!r}: {error}") from None
        place = (read.seq, read.epoch, read.kind, read.version, read.at, read.author)
        rows.append(StoredRow(*place, payload=payload, hash=kept))
        digests.append(digest)
    keys = [StoredKey(Key(scope, name, digest), seq) for scope, name, digest, seq in head.keys]
    if any(each.key.scope != head.name or not 0 < each.seq <= len(rows) for each in keys):
        raise _damaged(path, f"a key of {head.name!r} is for none of its events")
    copy = StreamCopy(head.name, rows, keys)
    last = rows[-1].hash.hex() if rows else ""
    if len(rows) != head.events or last != head.hash:
        raise _damaged(path, f"{head.events} events of {head.name!r} were recorded")
    if not content:
        return _chained_anew(path, copy, digests)
    check_chain(copy, str(path))
    return copy


def _lines(path: Path, file: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    try:
        with file.open(name) as member:
            while line := member.readline(_MOST_LINE + 1):
                if len(line) > _MOST_LINE:
                    raise _damaged(path, f"an event in {name} is larger than {_MOST_LINE:,} bytes")
                yield line
    except KeyError:
        raise _damaged(path, f"{name} is missing") from None
    except _UNPACKING as error:
        raise _damaged(path, f"{name} cannot be unpacked: {error}") from None


def _chained_anew(path: Path, copy: StreamCopy, digests: list[bytes]) -> StreamCopy:
    """Check a stream without content by the digests of its original events, and compute a new hash chain for it."""
    previous, own, rows = GENESIS, GENESIS, []
    for number, (row, digest) in enumerate(zip(copy.rows, digests, strict=True), 1):
        start = header_start(copy.stream, row.author)
        over = header(start, row.seq, row.epoch, row.kind, row.at, row.version)
        previous = chain_hash(previous, over, digest)
        if previous != row.hash or row.seq != number:
            raise _damaged(path, f"event {number} of {copy.stream!r} was changed, or is missing")
        fields: list[Any] = [row.seq, row.epoch, row.kind, row.version, row.at, row.author]
        own = entry_hash(own, copy.stream, row.author, [*fields, row.payload])
        rows.append(replace(row, hash=own))
    return StreamCopy(copy.stream, rows, copy.keys)


def _damaged(path: Path, fact: str) -> JournalDamaged:
    return JournalDamaged(
        f"{path} is damaged: {fact}; nothing of it was taken: record the run again, or get a whole copy"
    )


def _foreign(path: Path) -> UsageError:
    return UsageError(
        f"{path} is not a recording of chargehand; chargehand record RUN -o FILE makes one"
    )
