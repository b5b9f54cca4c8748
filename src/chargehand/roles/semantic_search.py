"""Finding notes by what they are about: by meaning, with a small model of words, or by words alone.

What is kept here is made of the notes and can be made again; the journal alone holds the truth.
"""

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from chargehand.decisions.board_rules import matches
from chargehand.errors import UsageError
from chargehand.facts.board import Hit, Note, NoteQuery
from chargehand.journal.base import Journal

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

log = logging.getLogger("chargehand")

#: the ways to search
MEANING, WORDS = "meaning", "words"
#: characters of a note that are looked at
LONGEST = 2_000
#: of one journal that are held ready; the one that was not asked for longest is made anew
MOST_BOARDS = 32
_WORD = re.compile(r"\w+")


class WordScorer:
    """Goes by the words that a text shares with the question: BM25, on the stems of English words."""

    def __init__(self) -> None:
        import apsw  # here, because it is heavy and most boards are never searched

        self._table = apsw.Connection(":memory:")
        self._table.execute(
            "create virtual table note using fts5(text, content='', "
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        self._count = 0

    def add(self, texts: Sequence[str]) -> None:
        """Take in more texts; they are numbered from 0."""
        rows = enumerate(texts, self._count + 1)
        with self._table:
            self._table.executemany("insert into note (rowid, text) values (?, ?)", rows)
        self._count += len(texts)

    def best(self, question: str) -> Iterator[tuple[int, float]]:
        """The texts that fit, the best first, each with its score."""
        words = dict.fromkeys(_WORD.findall(question))
        # Each word in quotes, so that none can be an operator of the query language.
        match = " OR ".join(f'"{word}"' for word in words)
        find = "select rowid, bm25(note) from note where note match ? order by 2, 1 desc"
        for row, score in self._table.execute(find, (match,)) if words else ():
            yield row - 1, -score


class MeaningScorer:
    """As `WordScorer`, by what words mean: each text is the mean of its words in a space of 256 dimensions."""

    def __init__(self) -> None:
        self._model = _model()
        self._vectors = self._embedded([""])[:0]
        #: how many of the vectors are in use; the rest is room for more
        self._count = 0

    def add(self, texts: Sequence[str]) -> None:
        import numpy as np

        fresh = self._embedded(texts)
        count = self._count + len(fresh)
        if count > len(self._vectors):
            room = max(count, 2 * self._count) - self._count
            used = self._vectors[: self._count]
            self._vectors = np.concatenate([used, np.zeros((room, fresh.shape[1]), fresh.dtype)])
        self._vectors[self._count : count] = fresh
        self._count = count

    def best(self, question: str) -> Iterator[tuple[int, float]]:
        import numpy as np

        scores = self._vectors[: self._count] @ self._embedded([question])[0]
        for number in np.argsort(-scores, kind="stable"):
            yield int(number), float(scores[number])

    def _embedded(self, texts: Sequence[str]) -> "NDArray[float32]":
        """A vector of length 1 for each text; of one without words, nothing but zeros."""
        import numpy as np

        vectors: NDArray[float32] = self._model.embed(list(texts))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        lengths[lengths == 0] = 1.0
        unit: NDArray[float32] = vectors / lengths
        return unit


class NoteIndex:
    """The notes of one board, ready to be searched. Used from several threads, one at a time."""

    def __init__(self, by: str) -> None:
        self.by = by
        #: of the newest entry of the board that was taken in
        self.seq = 0
        self._scorer = MeaningScorer() if by == MEANING else WordScorer()
        self._notes: list[Note] = []
        self._ids: set[str] = set()
        self._lock = threading.Lock()

    def take(self, notes: Sequence[tuple[Note, str]], seq: int) -> None:
        """Take in notes with their texts, up to this entry; those that are known are left out."""
        with self._lock:
            fresh = [(note, text) for note, text in notes if note.id not in self._ids]
            if fresh:
                self._scorer.add([text[:LONGEST] for _, text in fresh])
                self._notes += [note for note, _ in fresh]
                self._ids.update(note.id for note, _ in fresh)
            self.seq = max(self.seq, seq)

    def find(self, question: str, query: NoteQuery) -> list[Hit]:
        """The notes that fit the question best among those that fit the query."""
        found: list[Hit] = []
        with self._lock:
            for number, score in self._scorer.best(question):
                note = self._notes[number]
                if score <= 0 or len(found) == query.limit:
                    break
                if matches(note, query):
                    found.append(Hit(note=note, score=score, by=self.by))
        return found

    def knows(self, note: Note) -> bool:
        return note.id in self._ids


_held: "WeakKeyDictionary[Journal, OrderedDict[tuple[str, str], NoteIndex]]" = WeakKeyDictionary()
_holding = threading.Lock()


def index_of(journal: Journal, board: str, by: str) -> NoteIndex:
    """The index of a board, which all who hold the board in this process share."""
    with _holding:
        indexes = _held.setdefault(journal, OrderedDict())
        index = indexes.pop((board, by), None) or NoteIndex(by)
        indexes[board, by] = index
        if len(indexes) > MOST_BOARDS:
            indexes.popitem(last=False)
        return index


def way_of(by: str) -> str:
    """How to search: as wanted, or the best way there is. Raises `UsageError` for one there is not."""
    if by not in ("", MEANING, WORDS):
        raise UsageError(f"by={by!r} is not a way to search; use {MEANING!r} or {WORDS!r}")
    if by == MEANING and not has_meaning():
        raise UsageError("searching by meaning needs wordllama; install chargehand[semantic]")
    return by or (MEANING if has_meaning() else _words_alone())


def has_meaning() -> bool:
    """Whether notes can be searched by meaning here."""
    return find_spec("wordllama") is not None


def text_of(content: Any) -> str:
    """What a note says, without the signs that only JSON needs; keys are words, too."""
    if isinstance(content, dict):
        return " ".join(f"{key} {text_of(value)}" for key, value in content.items())
    if isinstance(content, list):
        return " ".join(map(text_of, content))
    return "" if content is None else str(content)


@cache
def _words_alone() -> str:
    log.info("search_by_words; install chargehand[semantic] to search notes by meaning")
    return WORDS


@cache
def _model() -> Any:
    """The model of words, from the files in its package: nothing is fetched."""
    import wordllama  # type: ignore[import-untyped]  # it has no types of its own

    # The package looks for its tokenizer where it has put none, and finds it as if in a cache.
    folder = Path(wordllama.__file__).parent
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
