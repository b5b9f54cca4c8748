"""A journal for trials: streams with epochs, leases, mail. It can be full for a while."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import Struct

from chargehand.errors import JournalFull, NotLeading
from chargehand.facts.events import Event, RunFinished, decode, encode

#: microseconds that a silent process keeps what it leads
LEASE = 10_000_000


class Entry(Struct, frozen=True):
    """An event as the ledger keeps it."""

    run: str
    seq: int
    epoch: int
    author: str
    event: Event
    data: bytes
    hash: bytes


class Letter(Struct, frozen=True):
    """Mail for whoever leads a run: what is to be reported, once it is known when."""

    id: int
    run: str
    report: Callable[[datetime], Event]


class Stream:
    """The entries of one run, and who may add to them."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.epoch = 0
        self.owner = ""
        self.entries: list[Entry] = []
        self.is_ended = False

    @property
    def hash(self) -> bytes:
        return self.entries[-1].hash if self.entries else bytes(16)

    def history(self) -> list[Event]:
        """The events as a process reads them that knows nothing yet: through the codec."""
        return [decode(entry.data) for entry in self.entries]


class Ledger:
    """Keeps everything that was ever appended; what is appended is never lost."""

    def __init__(self, watch: Callable[[str, Sequence[Entry]], None]) -> None:
        self.streams: dict[str, Stream] = {}
        self.is_full = False
        self._expiry: dict[str, int | None] = {}
        self._letters: dict[str, list[Letter]] = {}
        self._letter_count = 0
        self._watch = watch

    # who leads

    def renew(self, holder: str) -> None:
        """This process is alive, and says so all the time from now on."""
        self._expiry[holder] = None

    def fall_silent(self, holder: str, now: int) -> None:
        """This process no longer renews; what it leads is free after a lease."""
        self._expiry[holder] = now + LEASE

    def is_held(self, holder: str, now: int) -> bool:
        if holder not in self._expiry:
            return False
        expiry = self._expiry[holder]
        return expiry is None or expiry > now

    def lead(self, run: str, holder: str, now: int) -> int:
        stream = self.streams.setdefault(run, Stream(run))
        if stream.owner != holder and self.is_held(stream.owner, now):
            raise NotLeading(f"{stream.owner} leads {run}")
        stream.epoch += 1
        stream.owner = holder
        return stream.epoch

    def release(self, run: str, epoch: int) -> None:
        stream = self.streams[run]
        if stream.epoch == epoch:
            stream.owner = ""

    def orphans(self, now: int) -> list[str]:
        """Runs under way that nobody leads."""
        return [
            run
            for run, stream in self.streams.items()
            if stream.entries and not stream.is_ended and not self.is_held(stream.owner, now)
        ]

    # mail

    def post(self, run: str, report: Callable[[datetime], Event]) -> None:
        self._letter_count += 1
        self._letters.setdefault(run, []).append(Letter(self._letter_count, run, report))

    def unread(self, run: str) -> list[Letter]:
        return list(self._letters.get(run, ()))

    # events

    def append(
        self, run: str, events: Sequence[Event], epoch: int, author: str, taking: Sequence[int]
    ) -> None:
        """Keep these events and take this mail, all or nothing."""
        stream = self.streams[run]
        if stream.epoch != epoch:
            raise NotLeading(f"{author} led {run} in epoch {epoch}; it is {stream.epoch} now")
        if self.is_full:
            raise JournalFull("no room")
        fresh = [self._entry(stream, event, epoch, author) for event in events]
        if taking:
            letters = self._letters[run]
            assert {letter.id for letter in letters} >= set(taking), "mail was taken twice"
            self._letters[run] = [letter for letter in letters if letter.id not in taking]
        self._watch(run, fresh)

    def _entry(self, stream: Stream, event: Event, epoch: int, author: str) -> Entry:
        data = encode(event)
        seq = len(stream.entries) + 1
        header = f"{stream.run} {seq} {epoch} {author}".encode()
        link = hashlib.blake2b(stream.hash + header + data, digest_size=16).digest()
        entry = Entry(stream.run, seq, epoch, author, event, data, link)
        stream.entries.append(entry)
        stream.is_ended = stream.is_ended or isinstance(event, RunFinished)
        return entry
