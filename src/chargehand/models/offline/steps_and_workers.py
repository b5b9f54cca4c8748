"""Who does what: the clauses of a request, each for the worker that it suits."""

import re

from msgspec import Struct

from chargehand.models.offline.clauses import Clause, clauses
from chargehand.models.offline.tool_choice import Lexicon
from chargehand.models.offline.words import CLOSED, LIGHT, roots, word_set, words

MOST = 12
#: characters of a description
LONGEST = 1_000
#: before what somebody is to write of
FINDING = "Find what there is on this: "
#: behind a description that means nothing without the one before it
GOES_ON = " (this goes on from: "

_BACK = re.compile(
    r"(?i)\b(?:it(?! takes?\b)|its|them|these|those|they|their|results?|findings|above|based on|both|"
    r"each of|the same)\b|\b(?:this|that)\b(?=\s*(?:$|[?.!,]|(?:one|product|item|is|was)\b))"
)
_ONE = re.compile(r"\b(?:it|its|this|that)\b", re.IGNORECASE)
_THEN = roots("then after afterwards finally")
_POLITE = re.compile(
    r"(?i)^(?:(?:please|can you|could you|would you|i (?:want|need|would like) you to|also|then|and|now)\s+)*"
)
_WRITES = roots("write compose draft combine merge summarise summarize report")
_REVIEWS = roots("review check verify proofread critic")
_FINDS = "find fact document file read source web look research library archive"
_RECKONS = "table data number calculate compute figure statistic spreadsheet csv sql maths"
#: words of a question for figures
_FIGURES = roots("""cost price cheap cheaper cheapest expensive dearest average mean median total sum percent percentage
    revenue turnover earn sold sell sales units count many much calculate compute highest lowest most least fewest
    largest smallest longest shortest latest earliest""")
#: what people call files
PAPERS = word_set("file document report note text")
#: words of a question for what was written
_PAPERS = roots("""policy meeting minutes notes review reviewer document article letter contract report say said decide
    complain complaint mention according about can may must should allowed why""")


class Step(Struct, frozen=True):
    """A task in the making; it needs the steps of these numbers."""

    description: str
    worker: str
    needs: tuple[int, ...] = ()


class Team:
    """Workers by name and description, and what each is for as far as words tell."""

    def __init__(self, roster: dict[str, str]) -> None:
        self._names = list(roster)
        self._lexicon = Lexicon(f"{name} {told}" for name, told in roster.items())
        does = {name: roots(" ".join([name, *words(told)[:1]])) for name, told in roster.items()}
        self._desk = {name: does[name] for name in roster if does[name] & (_WRITES | _REVIEWS)}
        self.finder = self.best_for(_FINDS)
        self.reckoner = self.best_for(_RECKONS)

    def best_for(self, text: str) -> str:
        """Whose description fits the text best, but for those who write or review; empty if none does."""
        fits = dict(zip(self._names, self._lexicon.scores(text), strict=True))
        able = [name for name in self._names if name not in self._desk] or self._names
        best = max(able, key=lambda name: fits[name])
        return best if fits[best] else ""

    def worker_for(self, text: str) -> str:
        """The worker for this clause. Who writes or reviews gets it only if that is asked for."""
        verb = roots(_POLITE.sub("", text, count=1).partition(" ")[0])
        duty = _WRITES if verb & _WRITES else _REVIEWS if verb & _REVIEWS else verb
        if duty is not verb and (able := [name for name in self._desk if self._desk[name] & duty]):
            return able[0]
        asked = roots(text)
        if asked & _FIGURES:
            return self.best_for(f"{text} {_RECKONS}") or self._names[0]
        if asked & _PAPERS or CLOSED.match(text):  # tables do not say yes or no
            return self.best_for(f"{text} {_FINDS}") or self._names[0]
        # Tables say for sure whether they hold an answer; documents always hold something like it.
        return self.best_for(text) or self.reckoner or self.finder or self._names[0]

    def steps_for(self, request: str, most: int = MOST) -> list[Step]:
        """The steps of a request, none to join the results: side by side, unless one speaks of what came before."""
        steps: list[Step] = []
        for part in [part for part in clauses(request) if set(words(part.text)) - LIGHT][:most]:
            steps += self._steps_of(part, steps)
        return steps[:most] or [Step(request, self.worker_for(request))]

    def _steps_of(self, part: Clause, steps: list[Step]) -> list[Step]:
        description = (part.text[0].upper() + part.text[1:])[:LONGEST]
        worker = self.worker_for(part.text)
        if worker in self._desk and not steps and self.finder:
            # There is nothing yet to work from: somebody finds it first.
            found = Step(f"{FINDING}{description}"[:LONGEST], self.finder)
            return [found, Step(description, worker, (0,))]
        refers = refers_back(part.text) or bool(_THEN & roots(part.joint))
        if not steps or not (refers or worker in self._desk):
            return [Step(description, worker)]
        # One thing is that which was spoken of last; several may be anything so far.
        needed = {need for step in steps for need in step.needs}
        ends = tuple(number for number in range(len(steps)) if number not in needed)
        needs = (len(steps) - 1,) if _ONE.search(part.text) else ends
        if worker not in self._desk:
            whole = f"{description.rstrip('.')}{GOES_ON}{bare(steps[-1].description).rstrip('.?')})"
            description = whole[:LONGEST]
        return [Step(description, worker, needs)]


def refers_back(text: str) -> bool:
    """Whether the text speaks of something that was said before it."""
    return _BACK.search(text) is not None


def bare(description: str) -> str:
    """The description without what it goes on from."""
    return description.partition(GOES_ON)[0]
