"""A6: the power goes, and a disk keeps only what was synced, or some of the rest as well.

One run is led over a VFS that notes every write, sync, truncation and deletion beside doing it. From
these notes the disk is rebuilt as a power cut at any of them could have left it, as often as wanted.
What is outside SQLite, the head mark and the blobs, is there after a cut only if its bytes and then
its name in its folder were synced; every `os.fsync` of Python is noted too.
"""

import asyncio
import os
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import chargehand as ch
from chargehand.journal import leases as nodes
from chargehand.journal import sqlite_writer

from . import client
from .oracle import Line, Verdict, check_effects, check_ended, read_journal, verify

#: what a disk writes whole or not at all
SECTOR = 512
#: so that even a small run copies its log into the database many times
CHECKPOINT_PAGES = 30
#: likewise for the head mark
MARK_INTERVAL = 0.005


@dataclass(frozen=True)
class Op:
    """Something that was done to the disk, or told to the client."""

    #: create, write, truncate, sync, delete, folder, told
    kind: str
    name: str = ""
    at: int = 0
    data: bytes = b""
    line: Line = field(default_factory=dict)
    #: of a folder that was synced: each file with its synced bytes; None for a folder
    listing: dict[str, bytes | None] = field(default_factory=dict)


class Recorder:
    """Everything that happened to one folder, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ops: list[Op] = []
        self._lock = threading.Lock()
        #: by inode: bytes of files that are not SQLite's
        self._synced: dict[int, bytes] = {}

    def note(self, kind: str, name: str = "", at: int = 0, data: bytes = b"") -> None:
        with self._lock:
            self.ops.append(Op(kind, name, at, data))

    def tell(self, **line: Any) -> None:
        """Something was promised, or was done to the world."""
        with self._lock:
            self.ops.append(Op("told", line=line))

    def fsync(self, handle: int) -> None:
        """Sync a file or a folder of this one, and note what is certain from then on."""
        _fsync(handle)
        inode = os.fstat(handle).st_ino
        places = [self.folder, *self.folder.rglob("*")]
        path = next((place for place in places if _inode_of(place) == inode), None)
        if path is None:
            return
        with self._lock:
            if path.is_dir():
                name = path.relative_to(self.folder).as_posix()
                self.ops.append(Op("folder", name, listing=self._listing(path)))
            else:
                self._synced[inode] = path.read_bytes()

    def _listing(self, folder: Path) -> dict[str, bytes | None]:
        # A file whose name was synced and whose bytes were not is the classic one: there, and empty.
        return {
            place.name: None if place.is_dir() else self._synced.get(_inode_of(place), b"")
            for place in folder.iterdir()
            if folder != self.folder or place.name.endswith(("-head", "-blobs"))
        }


_fsync = os.fsync


def _inode_of(place: Path) -> int:
    try:
        return place.stat().st_ino
    except FileNotFoundError:
        return -1


class NotingFile(apsw.VFSFile):
    """A file that does what it is told, and says so."""

    def __init__(
        self, recorder: Recorder, name: "str | apsw.URIFilename | None", flags: list[int]
    ) -> None:
        super().__init__("", name, flags)
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "?")
        self.name = path.name
        self._recorder = recorder

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        super().xWrite(data, offset)
        self._recorder.note("write", self.name, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - SQLite's name
        super().xTruncate(newsize)
        self._recorder.note("truncate", self.name, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        super().xSync(flags)
        self._recorder.note("sync", self.name)


class NotingVFS(apsw.VFS):
    """SQLite's own way to the disk, with notes."""

    file_type = NotingFile

    def __init__(self, recorder: Recorder, name: str) -> None:
        super().__init__(name, "")
        self._recorder = recorder

    def xOpen(  # noqa: N802 - SQLite's name
        self, name: "str | apsw.URIFilename | None", flags: list[int]
    ) -> apsw.VFSFile:
        is_new = name is not None and not Path(_path_of(name)).exists()
        file = self.file_type(self._recorder, name, flags)
        if is_new:
            self._recorder.note("create", file.name)
        return file

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - SQLite's name
        super().xDelete(filename, syncdir)
        self._recorder.note("delete", Path(filename).name, at=int(syncdir))


def _path_of(name: "str | apsw.URIFilename") -> str:
    return name if isinstance(name, str) else name.filename()


class Telling(client.Log):
    """A log whose lines stand between the notes of the disk."""

    def __init__(self, life: str, recorder: Recorder) -> None:
        self.life = life
        self._recorder = recorder

    def add(self, **line: Any) -> None:
        self._recorder.tell(life=self.life, **line)

    def lines(self) -> list[dict[str, Any]]:
        return told(self._recorder.ops)


def told(ops: Sequence[Op]) -> list[Line]:
    """What was promised or done to the world, in the form in which a client logs it."""
    # Once through JSON, since acknowledged events are kept as their bytes.
    return [msgspec.json.decode(msgspec.json.encode(op.line)) for op in ops if op.kind == "told"]


async def lead(path: Path, life: str, keys: Sequence[str], recorder: Recorder, **how: Any) -> None:
    """One life of a client, in this process: leads a run for each key, to its end."""
    journal = ch.open_journal(path, **how)
    client.log = Telling(life, recorder)
    client.options = client.Options(shape="small")
    async with client.supervisor_on(journal, client.log) as boss:
        await asyncio.gather(*(client.lead(boss, key) for key in keys))
    await journal.close()


def record(folder: Path, seed: int, durability: str = "strict") -> list[Op]:
    """Lead runs in a new folder, in two lives over one journal, and return all that happened."""
    folder.mkdir(parents=True)
    recorder = Recorder(folder)
    name = f"noting {folder}"
    vfs = NotingVFS(recorder, name)
    how = {"durability": durability, "vfs": name}
    keys = [f"a{number}" for number in range(random.Random(f"A6 {seed}").randint(1, 3))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_writer, "CHECKPOINT_PAGES", CHECKPOINT_PAGES)
        patch.setattr(sqlite_writer, "INTERVAL", MARK_INTERVAL)
        patch.setattr(os, "fsync", recorder.fsync)
        asyncio.run(lead(folder / "runs.db", "first", keys, recorder, **how))
        asyncio.run(lead(folder / "runs.db", "second", [*keys, "b"], recorder, **how))
    vfs.unregister()
    return recorder.ops


class Platter:
    """One file as a disk has it: what is certain, and what may or may not have got there."""

    def __init__(self) -> None:
        self.synced = bytearray()
        self.pending: list[Op] = []
        self.is_dir_synced = False

    def sync(self) -> None:
        for op in self.pending:
            _do(self.synced, op)
        self.pending = []

    def after_cut(self, rng: random.Random, luck: float) -> bytes:
        """What is found when the power is back."""
        data = bytearray(self.synced)
        for op in self.pending:
            if op.kind == "truncate":
                if rng.random() < luck:
                    _do(data, op)
                continue
            for start, stop in _sectors(op.at, op.at + len(op.data)):
                if rng.random() < luck:
                    _do(data, Op("write", at=start, data=op.data[start - op.at : stop - op.at]))
        return bytes(data)


def _sectors(start: int, stop: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        end = min(stop, (start // SECTOR + 1) * SECTOR)
        yield start, end
        start = end


def _do(data: bytearray, op: Op) -> None:
    if op.kind == "truncate":
        del data[op.at :]
        data.extend(bytes(op.at - len(data)))
        return
    if len(data) < op.at:
        data.extend(bytes(op.at - len(data)))
    data[op.at : op.at + len(op.data)] = op.data


class Disk:
    """A folder as it can be found after a cut."""

    def __init__(self) -> None:
        self._files: dict[str, Platter] = {}
        #: deleted, but the folder was not synced since: they may be back
        self._ghosts: dict[str, Platter] = {}
        #: what is outside SQLite: synced folders and what is in them
        self._folders: dict[str, dict[str, bytes | None]] = {}

    def do(self, op: Op) -> None:
        match op.kind:
            case "create":
                self._files[op.name] = Platter()
            case "write" | "truncate":
                self._files[op.name].pending.append(op)
            case "sync":
                file = self._files[op.name]
                file.sync()
                # SQLite syncs the folder with the first sync of a new log; for a database it does not.
                if not file.is_dir_synced and op.name.endswith(("-wal", "-journal")):
                    self._sync_folder()
            case "delete":
                gone = self._files.pop(op.name)
                if gone.is_dir_synced:
                    self._ghosts[op.name] = gone
                if op.at:
                    self._sync_folder()
            case "folder":
                self._folders[op.name] = op.listing
            case _:
                pass  # told: nothing happened to the disk

    def _sync_folder(self) -> None:
        self._ghosts.clear()
        for file in self._files.values():
            file.is_dir_synced = True

    def rebuild(self, folder: Path, luck: float, rng: random.Random | None = None) -> None:
        """Write out what is found when the power is back; `luck` is how much of the unsynced is."""
        rng = rng or random.Random(0)
        found = {name: file for name, file in self._ghosts.items() if rng.random() < luck}
        found |= {
            name: file
            for name, file in self._files.items()
            if file.is_dir_synced or rng.random() < luck
        }
        folder.mkdir(parents=True)
        for name, file in found.items():
            (folder / name).write_bytes(file.after_cut(rng, luck))
        self._rebuild_rest(folder, ".")

    def _rebuild_rest(self, folder: Path, name: str) -> None:
        for each, data in self._folders.get(name, {}).items():
            if data is not None:
                (folder / each).write_bytes(data)
            else:
                (folder / each).mkdir()
                self._rebuild_rest(folder / each, each if name == "." else f"{name}/{each}")


def cut(ops: Sequence[Op], at: int, folder: Path, rng: random.Random) -> list[Line]:
    """Put into `folder` what a power cut after so many operations leaves; returns what was told by then."""
    disk = Disk()
    for op in ops[:at]:
        disk.do(op)
    disk.rebuild(folder, rng.choice([0.0, 0.0, 0.5, 0.9, 1.0]), rng)
    return told(ops[:at])


def cut_points(ops: Sequence[Op], count: int, rng: random.Random) -> list[int]:
    """Where to cut: half of them right after a sync or a promise, when most is at stake."""
    tense = [at for at, op in enumerate(ops, 1) if op.kind in ("sync", "told")]
    return [
        rng.choice(tense) if rng.random() < 0.5 else rng.randint(1, len(ops)) for _ in range(count)
    ]


def check_cut(ops: Sequence[Op], at: int, folder: Path, rng: random.Random) -> Verdict:
    """One cut, and everything that must be true after it; now and then the runs are led to their ends."""
    lines = cut(ops, at, folder, rng)
    try:
        runs = read_journal(folder / "runs.db")
    except ch.JournalError as error:
        return Verdict(fired=1, faults=[f"cut at {at}: {error}"])
    verdict = verify(runs, lines)
    verdict.fired = 1
    if rng.random() < 0.1:
        verdict.add(_go_on(folder, lines))
    verdict.faults = [f"cut at {at}: {fault}" for fault in verdict.faults]
    return verdict


def _go_on(folder: Path, lines: Sequence[Line]) -> Verdict:
    """Lead all runs that were promised to their ends, and one more."""
    recorder = Recorder(folder)
    recorder.ops += [Op("told", line=line) for line in lines]
    keys = dict.fromkeys([line["submitted"] for line in lines if "submitted" in line])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "boot_id", lambda: "the machine was started again")
        asyncio.run(lead(folder / "runs.db", "after", [*keys, "c"], recorder))
    after = told(recorder.ops)
    runs = read_journal(folder / "runs.db")
    verdict = verify(runs, after)
    verdict.acknowledged = 0
    for run in [run for run in runs if any(line.get("ended") for line in after)]:
        check_ended({run: runs[run]}, verdict)
    check_effects(after, verdict)
    return verdict


def a6_trial(seed: int, folder: Path, cuts: int = 25, durability: str = "strict") -> Verdict:
    """Cut the power at many places of one recording."""
    rng = random.Random(f"A6 {seed} {durability}")
    ops = record(folder / "live", seed, durability)
    verdict = Verdict()
    for number, at in enumerate(cut_points(ops, cuts, rng)):
        place = folder / f"cut{number}"
        found = check_cut(ops, at, place, rng)
        verdict.add(found)
        if found.is_ok:
            shutil.rmtree(place)
    verdict.figures["operations"] = len(ops)
    return verdict
