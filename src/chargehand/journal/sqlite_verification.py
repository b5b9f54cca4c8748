"""An SQLite journal opened to be checked: it is read, and nothing is written, made or accepted."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from chargehand.facts.board import BoardEntry
from chargehand.journal.base import PATIENCE, Entry, Head, Mail
from chargehand.journal.blob_store import FileBlobs
from chargehand.journal.closed_guard import Availability
from chargehand.journal.sqlite_boards import named_boards, read_board
from chargehand.journal.sqlite_file import JournalFile
from chargehand.journal.sqlite_reader import EventSource, EventWalk, Reader, all_heads, unread_mail
from chargehand.journal.storage_check import real_path
from chargehand.sync_async_bridge import in_thread_or_here


class SqliteCheck:
    """Reads a journal's file over a connection that cannot write. Its head mark stays as it is."""

    def __init__(self, path: Path) -> None:
        path = real_path(path)
        self._file = JournalFile(path, durability="strict", patience=PATIENCE, vfs="")
        # SQLite makes an empty log to read beside others, and leaves it if it cannot write.
        self._had_log = self._file.has_log
        try:
            #: what is wrong with the file as a whole
            connection, self.faults = self._file.open_to_check()
        except BaseException:
            self._tidy()
            raise
        self._gate = Availability(path)
        source = EventSource(connection, path, skips_damage=True)
        self._reader = Reader(source, self._gate)
        self.blobs = FileBlobs(path.with_name(f"{path.name}-blobs"), self._gate)
        self.boards = _CheckedBoards(self._reader)
        self.mail = _CheckedMail(self._reader)

    async def read(self, stream: str, after: int = 0) -> AsyncIterator[Entry]:
        """The entries after this number, checked one by one, up to the newest when reading began."""
        walk = EventWalk(stream, after)
        while chunk := await self._reader.do(walk.next_chunk):
            for entry in chunk:
                yield entry

    async def heads(self, *, forgotten: bool = True) -> list[Head]:
        """All runs that have an event and a sound head, the one that changed last first."""
        return await self._reader.do(partial(all_heads, forgotten=forgotten))

    async def close(self) -> None:
        """Let go of the file."""
        await in_thread_or_here(self._shut)

    def _shut(self) -> None:
        self._gate.close()
        self.blobs.close()
        self._reader.close()
        self._tidy()

    def _tidy(self) -> None:
        if not self._had_log and self._file.has_log:
            self._file.tidy()


class _CheckedBoards:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def named(self) -> list[str]:
        return await self._reader.do(named_boards)

    def read(self, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
        return read_board(self._reader, board, after)


class _CheckedMail:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def unread(self) -> list[Mail]:
        return await self._reader.do(unread_mail)
