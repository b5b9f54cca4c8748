"""Which of several texts fits a question best: BM25 over fields of different weight."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from chargehand.models.offline.words import FAINT, concept, stem, topic_words

#: texts, and how much a word of each is worth
Fields = Sequence[tuple[str, float]]

SATURATION = 1.2
LENGTH = 0.5
FAINTNESS = 0.25
#: what a synonym is worth, by the word itself
KINSHIP = 0.8


class Ranking:
    """Documents that can be asked which of them fits."""

    def __init__(self, documents: Iterable[Fields]) -> None:
        self._documents = [_counted(fields) for fields in documents]
        sizes = [sum(counts.values()) for counts in self._documents]
        self._sizes = sizes
        self._mean = (sum(sizes) / len(sizes) if sizes else 1.0) or 1.0
        self._spread = Counter(word for counts in self._documents for word in counts)

    def scores(self, question: str) -> list[float]:
        """How well each document fits, in their order; 0 has no word in common with it."""
        asked = Counter(_marks(question))
        return [
            sum(min(times, 2) ** 0.5 * self._worth(word, n) for word, times in asked.items())
            for n in range(len(self._documents))
        ]

    def _worth(self, word: str, number: int) -> float:
        times = self._documents[number].get(word, 0.0)
        if not times:
            return 0.0
        spread, count = self._spread[word], len(self._documents)
        rarity = math.log(1 + (count - spread + 0.5) / (spread + 0.5))
        length = 1 - LENGTH + LENGTH * self._sizes[number] / self._mean
        worth = rarity * times * (SATURATION + 1) / (times + SATURATION * length)
        if word.removeprefix(KIN) in FAINT:
            worth *= FAINTNESS
        return worth * KINSHIP if word.startswith(KIN) else worth


KIN = "~"


def _marks(text: str) -> list[str]:
    """What a text is known by: the stems of its words, and the concepts that they belong to."""
    marks = []
    for word in topic_words(text):
        marks.append(stem(word))
        if kin := concept(word):
            marks.append(f"{KIN}{kin}")
    return marks


def _counted(fields: Fields) -> Mapping[str, float]:
    counts: dict[str, float] = {}
    for text, weight in fields:
        for word in _marks(text):
            counts[word] = counts.get(word, 0.0) + weight
    return counts
