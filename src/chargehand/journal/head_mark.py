"""The head mark: a small file beside the journal that says how far the journal had come.

SQLite takes a damaged tail of its log for one that was never written, and goes on from before it
in silence. The mark is what remembers that there was more.
"""

import shlex
from pathlib import Path

import msgspec
from msgspec import Struct

from chargehand.errors import JournalDamaged
from chargehand.journal.durable_files import write_whole
from chargehand.journal.hash_chain import seal
from chargehand.regular_file import kind_of

#: seconds between a commit and the mark that names it, at most
INTERVAL = 0.5
#: commits whose hashes stay: far more than can be made between two marks
KEPT_COMMITS = 10_000


class Mark(Struct, frozen=True, forbid_unknown_fields=True):
    """A commit that is known to be on disk."""

    commit: int
    hash: str
    #: of the process that wrote it: commits of a relaxed one may be lost without damage
    durability: str
    seal: str = ""

    def sealed(self) -> "Mark":
        return Mark(self.commit, self.hash, self.durability, self._seal())

    def _seal(self) -> str:
        return seal(self.commit, self.hash, self.durability).hex()

    @property
    def is_whole(self) -> bool:
        return self.seal == self._seal()


def accept_words(database: Path) -> str:
    """How a person accepts a journal as it is."""
    command = shlex.join(["chargehand", "verify", "--journal", str(database), "--accept"])
    return f"{command} (in Python, open_journal(path, accept_damage=True))"


class HeadMark:
    """The file that holds the mark of one journal."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self.path = database.with_name(f"{database.name}-head")

    def read(self) -> Mark | None:
        """The mark, or None where there is no file. Raises `JournalDamaged` if it is not whole."""
        if kind := kind_of(self.path):  # to open a pipe would wait for ever
            raise self._damaged(f"is {kind}, not a regular file")
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            mark = msgspec.json.decode(data, type=Mark)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._damaged() from error
        if not mark.is_whole:
            raise self._damaged()
        return mark

    def write(self, mark: Mark) -> None:
        """Replace the mark, unless another process has marked a later commit already."""
        try:
            known = self.read()
        except JournalDamaged:
            known = None
        if known is None or known.commit <= mark.commit:
            self.replace(mark)

    def replace(self, mark: Mark) -> None:
        """Replace the mark, whatever it was."""
        write_whole(self.path, msgspec.json.encode(mark.sealed()) + b"\n")

    def _damaged(self, fact: str = "is damaged") -> JournalDamaged:
        return JournalDamaged(
            f"the head mark {self.path} {fact}, so nobody can tell whether the journal beside it "
            f"is whole; restore both from a backup, or accept the journal as it is with {accept_words(self._database)}"
        )
