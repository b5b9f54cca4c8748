"""Who does what: the clauses of a request, each for the worker that it suits."""

import re
from collections.abc import Iterator

from msgspec import Struct

from chargehand.models.offline.clauses import Clause, clauses
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.words import term, term_set, terms, word_set, words

MOST = 12
#: before what somebody is to write of
FINDING = "Find what there is on this: "
#: behind a description that means nothing without the one before it
GOES_ON = " (this goes on from: "

_BACK = re.compile(
    r"\b(?:it(?! takes?\b)|its|them|these|those|they|their|results?|findings|above|based on|both|"
    r"each of|the same)\b|\b(?:this|that)\b(?=\s*(?:$|[?.!,]|(?:one|product|item|is|was)\b))",
    re.IGNORECASE,
)
_ONE = re.compile(r"\b(?:it|its|this|that)\b", re.IGNORECASE)
_THEN = re.compile(r"\b(?:then|after that|afterwards|finally|next|once)\b\W*$", re.IGNORECASE)
_POLITE = re.compile(
    r"(?:please|can you|could you|would you|i (?:want|need|would like) you to|also|then|and|now)\s+",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:what|who|when|where|which|how|why|is|are|was|were|does|do|did|has|have)\b", re.IGNORECASE
)
_AND_IS = re.compile(
    r",?\s+and\s+(?=(?:is|are|was|were|does|do|did|has|have) (?:the|an?|its?|they|there|any)\b)",
    re.IGNORECASE,
)
_WRITING = re.compile(
    r"^(?:write|draft|compose|summari[sz]e|report)\b\s*(?:me\s+)?"
    r"(?:(?:an?|the)\s+(?:\w+\s+){1,3}?(?:on|of|about|for|to)\s+)?",
    re.IGNORECASE,
)
#: tables do not say yes or no
_CLOSED = re.compile(r"(?:is|are|was|were|do|does|did|has|have|will)\b", re.IGNORECASE)
_HOW_MANY = re.compile(r"\bhow (?:many|much)\b|\bnumber of\b", re.IGNORECASE)

_WRITES = term_set("write compose draft combine merge")
#: a writer does it where there is one; whoever finds things can do it too
_SUMS_UP = term_set("summarise report")
_REVIEWS = term_set("review check verify proofread critic")
_FINDS = term_set("find fact document file read source web look research library archive")
_RECKONS = term_set(
    "table data number calculate compute figure statistic spreadsheet csv sql maths"
)
#: words of a question for figures
_FIGURES = word_set("""cost costs price prices priced cheap cheaper cheapest expensive dearest average mean median
    total sum percent percentage revenue turnover earn earns earned sold sell sells selling sales units count
    calculate compute highest lowest most least fewest largest smallest longest shortest latest earliest""")
#: words of a question for what was written
_PAPERS = word_set("""policy policies meeting meetings minutes notes review reviews reviewer reviewers document
    documents article articles letter letters contract contracts report reports says say said decide decided complain
    complains complained complaints mention mentions mentioned according about can may must should allowed why""")


class Step(Struct, frozen=True):
    """A task in the making; it needs the steps of these numbers."""

    description: str
    worker: str
    needs: tuple[int, ...] = ()


def steps_for(request: str, roster: dict[str, str], most: int = MOST) -> list[Step]:
    """The steps of a request: side by side, unless one speaks of what came before it.

    No step puts the results together: whoever leads the work does that.
    """
    team = Team(roster)
    steps: list[Step] = []
    for part in [part for part in _questions(request) if terms(part.text)][:most]:
        steps += _steps_of(part, request, team, steps)
    if not steps:
        steps = [Step(request, team.for_clause(request))]
    return steps[:most]


def _questions(request: str) -> Iterator[Clause]:
    """The clauses of a request, and questions that are joined to others by a mere `and`."""
    for clause in clauses(request):
        begin = 0
        for joint in _AND_IS.finditer(clause.text):
            yield Clause(clause.text[begin : joint.start()], clause.start + begin)
            begin = joint.end()
        yield Clause(clause.text[begin:], clause.start + begin)


def best_worker(request: str, roster: dict[str, str]) -> str:
    """Who is to get a request that goes to one worker whole."""
    return Team(roster).for_clause(request)


def refers_back(text: str) -> bool:
    """Whether the text speaks of something that was said before it."""
    return _BACK.search(text) is not None


def _steps_of(part: Clause, request: str, team: "Team", steps: list[Step]) -> list[Step]:
    lead = request[max(0, part.start - 20) : part.start].strip(" ,")
    refers = bool(steps) and (refers_back(part.text) or _THEN.search(lead) is not None)
    worker = team.for_clause(part.text)
    description = _as_sentence(part.text)
    if worker in team.desk_workers:
        return _desk_steps(description, worker, team, steps)
    if not refers:
        return [Step(description[:1000], worker)]
    whole = f"{description.rstrip('.')}{GOES_ON}{bare(steps[-1].description).rstrip('.?')})"
    # One thing is that which was spoken of last; several may be anything so far.
    needs = (len(steps) - 1,) if _ONE.search(part.text) else _open_ends(steps)
    return [Step(whole[:1000], worker, needs)]


def _as_sentence(clause: str) -> str:
    """The clause with a capital, and with the mark that a question lost to the one behind it."""
    text = clause[0].upper() + clause[1:]
    return f"{text}?" if _ASKS.match(text) and text[-1].isalnum() else text


def _desk_steps(description: str, worker: str, team: "Team", steps: list[Step]) -> list[Step]:
    """Somebody writes or checks; if there is nothing yet to work from, somebody finds it first."""
    if steps:
        return [Step(description[:1000], worker, _open_ends(steps))]
    if team.finder is None:
        return [Step(description[:1000], worker)]
    topic = _WRITING.sub("", description, count=1)
    found = Step(f"{FINDING}{topic}"[:1000], team.finder)
    return [found, Step(description[:1000], worker, (0,))]


def bare(description: str) -> str:
    """The description without what it goes on from."""
    return description.partition(GOES_ON)[0]


def _open_ends(steps: list[Step]) -> tuple[int, ...]:
    """The steps that nothing needs yet."""
    needed = {need for step in steps for need in step.needs}
    return tuple(n for n in range(len(steps)) if n not in needed)


class Team:
    """Workers by name and description, and what each is for as far as words tell."""

    def __init__(self, roster: dict[str, str]) -> None:
        self._names = list(roster)
        self._about = {name: term_set(" ".join(words(f"{name} {roster[name]}"))) for name in roster}
        self._ranking = Ranking([((name, 2.0), (roster[name], 1.0)) for name in roster])
        does = {name: self._first_terms(name, roster[name]) for name in roster}
        self.writer = next((n for n in roster if does[n] & (_WRITES | _SUMS_UP)), None)
        self.reviewer = next((n for n in roster if does[n] & _REVIEWS), None)
        self.desk_workers = {n for n in roster if does[n] & (_WRITES | _SUMS_UP | _REVIEWS)}
        self.finder = self._most_of(_FINDS)
        self.reckoner = self._most_of(_RECKONS)

    def for_clause(self, text: str) -> str:
        """The worker for this clause. Who writes or reviews gets it only if that is asked for."""
        if desk := self._at_desk(text):
            return desk
        able = self._able()
        fits = dict(zip(self._names, self._ranking.scores(text), strict=True))
        best = max(able, key=lambda name: fits[name])
        asked = set(words(text))
        if self.reckoner is not None and (asked & _FIGURES or _HOW_MANY.search(text)):
            # A worker whose own words these are, such as one for prices, knows better.
            owns = {term(word) for word in asked & _FIGURES} & self._about[best]
            return best if owns and fits[best] else self.reckoner
        if (asked & _PAPERS or _CLOSED.match(text)) and self.finder is not None:
            return best if fits[best] > fits[self.finder] else self.finder
        if fits[best]:
            return best
        # Tables say for sure whether they hold an answer; documents always hold something like it.
        has_tables = self.reckoner is not None and term("table") in self._about[self.reckoner]
        return (self.reckoner if has_tables else None) or self.finder or best

    def _at_desk(self, text: str) -> str | None:
        first = _verb_in(text)
        if first in _WRITES and self.writer:
            return self.writer
        if first in _REVIEWS and self.reviewer:
            return self.reviewer
        return self.writer if first in _SUMS_UP else None

    def _able(self) -> list[str]:
        return [name for name in self._names if name not in self.desk_workers] or self._names

    def _first_terms(self, name: str, description: str) -> frozenset[str]:
        """What a worker is called and does: in its description, the verb comes first."""
        return frozenset(term(word) for word in (*words(name), *words(description)[:1]))

    def _most_of(self, kind: frozenset[str]) -> str | None:
        counts = {name: len(self._about[name] & kind) for name in self._able()}
        best = max(counts, key=lambda name: counts[name])
        return best if counts[best] else None


def _verb_in(text: str) -> str:
    """The term of the verb that a request begins with."""
    while polite := _POLITE.match(text):
        text = text[polite.end() :]
    first = words(text[:80])[:1]
    return term(first[0]) if first else ""
