"""Deciding inside the transaction that stores what is decided: what a decision sees, and its request."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from chargehand.errors import UnknownRun
from chargehand.facts.events import Event
from chargehand.journal.base import Entry, Position, Tail, led_by
from chargehand.journal.hash_chain import draft
from chargehand.journal.leases import LeaseNode
from chargehand.journal.reader import EventWalk
from chargehand.journal.sql_queries import SQL
from chargehand.journal.transaction import FORGOTTEN, Transaction


class TransactionTail:
    """The end of a stream with all that was entered into this sheet before."""

    def __init__(self, sheet: Transaction, stream: str, node: LeaseNode) -> None:
        self._sheet = sheet
        self._stream = stream
        self._node = node
        self._authors: dict[int, str] = {}

    @property
    def seq(self) -> int:
        head = self._sheet.head(self._stream)
        return 0 if head is None else head.seq

    def read(self, after: int) -> list[Entry]:
        if after >= self.seq:
            return []
        self._sheet.flush()  # some of it may be of this very sheet
        walk = EventWalk(self._stream, after)
        entries: list[Entry] = []
        while chunk := walk.next_chunk(self):
            entries += chunk
        return entries

    def is_alive(self, node: str) -> bool:
        return self._node.is_alive(self._sheet, node)

    def take(self, mail: int) -> None:
        self._sheet.check_unread(mail)
        self._sheet.take_mail(mail)

    # what a walk reads from

    @property
    def path(self) -> Path:
        return self._sheet.path

    def query(self, name: str, *values: Any) -> apsw.Cursor:
        return self._sheet.connection.execute(SQL[name], values)

    def author(self, number: int) -> str | None:
        if number not in self._authors:
            self._authors = dict(self.query("all_authors"))
        return self._authors.get(number)


class Decide(Struct, frozen=True):
    """A request to decide and append, entered into a sheet by the writer."""

    stream: str
    decide: Callable[[Tail], Sequence[Event]]
    undo: Callable[[], None]
    node: LeaseNode

    def __call__(self, sheet: Transaction) -> Position | Exception:
        """Where it was stored, or what speaks against it.

        That is handed back and not raised: whatever a decision raises must not undo the others of
        its group. Only what the database itself says does.
        """
        head = sheet.head(self.stream)
        if head is not None and head.forgotten:
            return UnknownRun(self.stream, FORGOTTEN)
        if head is not None and head.owner and self.node.is_alive(sheet, head.owner):
            return led_by(self.stream, head.owner)
        try:
            events = self.decide(TransactionTail(sheet, self.stream, self.node))
        except apsw.Error:
            raise
        except Exception as error:  # noqa: BLE001 - it is the caller's, and reaches the caller
            return error
        try:
            drafts = [draft(event) for event in events]
        except Exception as error:  # noqa: BLE001 - likewise: what cannot be written down
            self.undo()
            return error
        if not drafts:
            return Position(self.stream, 0 if head is None else head.seq)
        self.node.stay(sheet)
        head = head or sheet.new_head(self.stream)
        sheet.unless_committed(self.undo)
        sheet.add_entries(head, drafts)
        sheet.change(head)
        return Position(self.stream, head.seq)
