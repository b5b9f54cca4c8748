"""Answers in the words of the data: the sentences that fit a question, each with its place."""

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from chargehand.models.offline.clauses import clauses, sentences
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.reading import Excerpt, Reading, excerpts_of
from chargehand.models.offline.tables import computed
from chargehand.models.offline.words import coverage, terms, word_set, words

FEWEST, MOST = 3, 40
CLOSE = 0.45
#: a sentence is taken if it fits this well, by the best one

ENOUGH = 0.5

_BROAD = word_set("""summarise summarize summary overview digest report combine merge everything gist outline
    recap aggregate write draft compose review""")
_EVERY = word_set("each every all")
_LINE = re.compile(r":\d+$")


class Quote(Struct, frozen=True):
    """A sentence of the data."""

    text: str
    where: str

    def __str__(self) -> str:
        return f"{self.text} [{self.where}]"


def quotes_in(excerpts: Sequence[Excerpt]) -> list[Quote]:
    """The sentences of the data, in order."""
    found = [
        Quote(sentence.text, excerpt.where)
        for excerpt in excerpts
        for sentence in sentences(excerpt.text)
    ]
    return list(dict.fromkeys(found))


def answer(reading: Reading) -> list[str]:
    """What the data says to the question, one statement a line; empty if it says nothing.

    An answer that was sent back is given again with more.
    """
    question = reading.question
    told = [text for table in reading.tables if (text := computed(table, question))]
    quotes = quotes_in(reading.excerpts)
    most = min(FEWEST * (1 + reading.objections), MOST)
    if set(words(question)) & (_BROAD | _EVERY):
        chosen = central(quotes, question, most)
    else:
        chosen = fitting(quotes, question, most)
    if told:
        chosen = chosen[:1] if reading.objections else []
    return [*told, *map(str, chosen)]


def told_by_tools(reading: Reading) -> list[str]:
    """What the tools returned, where they were asked for just that and not to search for words."""
    kept: list[str] = []
    asked = {word for word in terms(reading.question) if word.isalpha()}
    for call, output in reading.outputs:
        given = {word for word in terms(call.arguments) if word.isalpha()}
        if output.is_error or (asked & given and coverage(asked, given) >= ENOUGH):
            continue
        told = excerpts_of(call, output)
        kept += (f"{excerpt.text} [{excerpt.where}]" for excerpt in told[:MOST])
    return list(dict.fromkeys(kept))[:MOST]


def fitting(quotes: Sequence[Quote], question: str, most: int) -> list[Quote]:
    """The sentences that fit the question, or any of its parts, best first."""
    ranking = Ranking([((q.text, 1.0), (_LINE.sub("", q.where), 1.5)) for q in quotes])
    best: dict[int, float] = {}
    for part in {question, *(clause.text for clause in clauses(question))}:
        scores = ranking.scores(part)
        peak = max(scores, default=0.0)
        for n, score in enumerate(scores):
            if score > 0 and score >= CLOSE * peak:
                best[n] = max(best.get(n, 0.0), score)
    order = sorted(best, key=lambda n: (-best[n], n))
    return [quotes[n] for n in order[:most]]


def central(quotes: Sequence[Quote], question: str, most: int) -> list[Quote]:
    """The sentence of each source that says most of what the sources say, in their order."""
    counts = Counter(word for quote in quotes for word in set(terms(quote.text)))
    asked = set(terms(question))
    by_source: dict[str, list[tuple[float, int]]] = {}
    for n, quote in enumerate(quotes):
        own = set(terms(quote.text))
        worth = sum(counts[word] for word in own) / (len(own) + 3)
        worth += 2 * len(own & asked)
        by_source.setdefault(_LINE.sub("", quote.where), []).append((worth, -n))
    each = max(1, most // max(len(by_source), 1))
    kept = [-n for ranked in by_source.values() for _, n in sorted(ranked, reverse=True)[:each]]
    return [quotes[n] for n in sorted(kept)[: max(most, MOST)]]
