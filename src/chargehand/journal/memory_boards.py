"""Boards in memory: the same promises as in a file, as long as this process lives."""

import heapq
import threading
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from chargehand.decisions.board import BoardState, decide, matches, note_of
from chargehand.errors import KeyConflict
from chargehand.facts.board import (
    Act,
    Block,
    BoardEntry,
    Label,
    Note,
    NoteOrder,
    NotePosted,
    NoteQuery,
)
from chargehand.journal.base import Key
from chargehand.journal.change_signal import Changes


class MemoryBoard:
    """One board: its entries in order, and what was folded from them."""

    def __init__(self) -> None:
        self.entries: list[BoardEntry] = []
        self.notes: list[Note] = []
        self.shelf = BoardState()


class BoardRoom(Protocol):
    """What neighbours share of their boards, and the lock under which they do."""

    lock: threading.Lock
    boards: dict[str, MemoryBoard]
    board_keys: dict[tuple[str, str], tuple[str, BoardEntry]]
    posts: Changes


class MemoryBoards:
    """The boards of one node. `check` raises if a board cannot be used: closed, or forgotten."""

    def __init__(self, room: BoardRoom, check: Callable[[str], None]) -> None:
        self._room = room
        self._check = check
        self.signal = room.posts

    async def append(self, board: str, act: Act, *, key: Key | None = None) -> BoardEntry:
        """Decide on this act and keep what comes of it, without suspending."""
        room = self._room
        with room.lock:
            self._check(board)
            if key is not None and (known := room.board_keys.get((key.scope, key.name))):
                if known[0] != key.digest:
                    raise KeyConflict(key.name)
                return known[1]
            kept = room.boards.get(board) or MemoryBoard()
            label = "" if isinstance(act, NotePosted) else act.label
            event = decide(act, kept.shelf.known(label))
            room.boards[board] = kept  # only now: a refused act makes no board
            entry = BoardEntry(board, len(kept.entries) + 1, event)
            kept.entries.append(entry)
            kept.shelf.apply(event)
            note = note_of(board, entry.seq, event)
            if note is not None:
                kept.notes.append(note)
            if key is not None:
                room.board_keys[key.scope, key.name] = (key.digest, entry)
            room.posts.note()
        return entry

    async def notes(self, board: str, query: NoteQuery) -> list[Note]:
        """The notes that are asked for."""
        kept = self._look(board)
        notes = kept.notes
        if query.order is NoteOrder.IMPORTANT:
            wanted = (note for note in notes[:] if matches(note, query))
            return heapq.nlargest(query.limit, wanted, key=lambda note: (note.importance, note.seq))
        found: list[Note] = []
        for place in range(len(notes) - 1, -1, -1):
            if matches(notes[place], query):
                found.append(notes[place])
                if len(found) == query.limit:
                    break
        return found

    async def block(self, board: str, label: str, version: int = 0) -> Block | None:
        """One version of a block, 0 for the newest."""
        kept = self._look(board)
        with self._room.lock:
            return kept.shelf.find(label, version)

    async def labels(self, board: str, only: str = "") -> list[Label]:
        """What is known of each block, by label, or of only one."""
        kept = self._look(board)
        with self._room.lock:
            known = kept.shelf.labels() if not only else [kept.shelf.known(only)]
        return [each for each in known if each != Label(each.label, 0)]

    async def read(self, board: str, after: int = 0) -> AsyncIterator[BoardEntry]:
        """The entries after this number."""
        entries = self._look(board).entries
        for place in range(after, len(entries)):
            yield entries[place]

    def _look(self, board: str) -> MemoryBoard:
        with self._room.lock:
            self._check(board)
            return self._room.boards.get(board) or MemoryBoard()
