"""Answers in the words of the data: the sentences that fit a question, each with its place."""

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from chargehand.models.offline.clauses import clauses, sentences
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.reading import Excerpt, Reading, excerpts_of
from chargehand.models.offline.tables import computed
from chargehand.models.offline.values import Kind, values_in
from chargehand.models.offline.words import coverage, terms, word_set, words

FEWEST, MOST = 3, 40
CLOSE = 0.6
#: a sentence is taken if it fits this well, by the best one
WIDE = 0.75
#: and if it has so many of the words that are asked for, by the one that has most

ENOUGH = 0.5

_BROAD = word_set("""summarise summarize summary overview digest report combine merge everything gist outline
    recap aggregate write draft compose review""")
_FORM = word_set("short long brief text find there this what say says")
#: words that say how an answer is to be, not what about
_EVERY = word_set("each every all")
_ASKS_FIGURE = re.compile(r"\b(?:how (?:long|many|much|far|old|soon)|when)\b", re.IGNORECASE)
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
        if not sentence.text.startswith("#")  # a heading says what is spoken of, and nothing of it
    ]
    return list(dict.fromkeys(found))


def answer(reading: Reading) -> list[str]:
    """What the data says to the question, one statement a line; empty if it says nothing.

    An answer that was sent back is given again with more.
    """
    question = reading.question
    told = [text for table in reading.tables if (text := computed(table, question))]
    quotes = _about(quotes_in(reading.found or reading.excerpts), reading.subject)
    most = min(FEWEST * (1 + reading.objections), MOST)
    asked = set(words(question))
    if asked & (_BROAD | _EVERY):
        is_each = bool(asked & _EVERY)  # of each review: there it is no verb
        topic = " ".join(asked - (_BROAD - {"review"} if is_each else _BROAD) - _EVERY - _FORM)
        chosen = central(_about(quotes, topic), question, most)
    else:
        chosen = fitting(quotes, question, most) or fitting(quotes, reading.subject, most)
    if told:
        chosen = chosen[:1] if reading.objections else []
    return [*told, *map(str, chosen)]


def is_answered(reading: Reading) -> bool:
    """Whether what the task was handed speaks of its question, so that nobody need search for it."""
    if reading.subject:
        return False
    wanted = terms(reading.question)
    quotes = quotes_in(reading.excerpts)
    return any(coverage(wanted, terms(f"{q.text} {q.where}")) >= ENOUGH for q in quotes)


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
    """The sentences that fit the question, or any of its parts, best first.

    One that speaks of less than another does is left out, however rare the words it has.
    """
    ranking = Ranking([((q.text, 1.0), (_LINE.sub("", q.where), 1.5)) for q in quotes])
    best: dict[int, float] = {}
    for part in {question, *(clause.text for clause in clauses(question))}:
        topic = _ASKS_FIGURE.sub("", part)
        scores = ranking.scores(topic)
        able = [n for n, score in enumerate(scores) if score > 0]
        if topic != part:
            able = [n for n in able if _has_figure(quotes[n])] or able
        peak = max((scores[n] for n in able), default=0.0)
        kept = [n for n in able if scores[n] >= CLOSE * peak]
        asked = set(terms(topic))
        shared = {n: len(asked & _terms_of(quotes[n])) for n in kept}
        widest = max(shared.values(), default=0)
        for n in kept:
            if shared[n] >= WIDE * widest:
                best[n] = max(best.get(n, 0.0), scores[n])
    order = sorted(best, key=lambda n: (-best[n], n))
    return [quotes[n] for n in order[:most]]


def _terms_of(quote: Quote) -> set[str]:
    return set(terms(f"{quote.text} {quote.where}"))


def _about(quotes: Sequence[Quote], subject: str) -> Sequence[Quote]:
    """Those that say most of the subject, by themselves or by the names of their places."""
    wanted = set(terms(subject))
    shared = [len(wanted & _terms_of(quote)) for quote in quotes]
    widest = max(shared, default=0)
    return [q for q, share in zip(quotes, shared, strict=True) if share >= WIDE * widest]


def _has_figure(quote: Quote) -> bool:
    kinds = (Kind.NUMBER, Kind.DATE, Kind.TIME)
    return any(found.kind in kinds for found in values_in(quote.text))


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
