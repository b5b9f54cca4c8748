"""Which tools a request needs: each clause goes to the tool whose description fits it best."""

from collections.abc import Sequence
from typing import NamedTuple

from chargehand.models.base import ToolSpec
from chargehand.models.offline.clauses import clauses
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.words import term, term_set, words

#: a clause gets a tool of its own if the tool fits it this well, by the best fit of all
CLEAR = 0.3
#: a tool that acts counts for so much if nobody asked to act
UNASKED = 0.5

_ACTS = term_set("""buy book send remove delete cancel pay transfer write post publish create update add
        set change control move upload reserve purchase order draw generate""")


class Route(NamedTuple):
    """A tool and the part of the request that it is for."""

    tool: ToolSpec
    text: str


class Router:
    """Tools that can be asked for by what they do."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)
        self._ranking = Ranking([_described(tool) for tool in tools])
        self._acts = [frozenset(map(term, words(tool.name))) & _ACTS for tool in tools]

    def ranked(self, request: str) -> list[ToolSpec]:
        """All tools, the one that is needed most first."""
        whole = self._scores(request)
        by_part = [self._scores(part.text) for part in clauses(request)]
        peak = max((max(scores, default=0.0) for scores in by_part), default=0.0) or 1.0
        top = max(whole, default=0.0) or 1.0

        def worth(n: int) -> float:
            won = [s[n] for s in by_part if s[n] > 0 and s[n] >= max(s)]
            return whole[n] / top + max(won, default=0.0) / peak

        order = sorted(range(len(self._tools)), key=lambda n: (-worth(n), n))
        return [self._tools[n] for n in order]

    def routes(self, request: str) -> list[Route]:
        """The tools that the parts of a request need; a part that fits none goes with the one before it."""
        parts = [(part.text, self._scores(part.text)) for part in clauses(request)]
        peak = max((max(scores, default=0.0) for _, scores in parts), default=0.0)
        texts: dict[int, list[str]] = {}
        last, loose = -1, list[str]()
        for text, scores in parts if peak else ():
            best = max(range(len(scores)), key=lambda n: (scores[n], -n))
            if scores[best] >= CLEAR * peak:
                texts.setdefault(best, []).extend([*loose, text])
                last, loose = best, []
            else:
                (texts[last] if last >= 0 else loose).append(text)
        return [Route(self._tools[n], "\n".join(said)) for n, said in texts.items()]

    def _scores(self, text: str) -> list[float]:
        asked = {term(word) for word in words(text)}
        scores = self._ranking.scores(text)
        for n, tool in enumerate(self._tools):
            if len(words(tool.name)) > 1 and tool.name.lower() in text.lower():
                scores[n] += 10.0  # it is asked for by its name
            if self._acts[n] and not self._acts[n] & asked:
                scores[n] *= UNASKED
        return scores


def _described(tool: ToolSpec) -> list[tuple[str, float]]:
    properties = (tool.parameters.get("properties") or {}).items()
    told = " ".join(str(each.get("description", "")) for _, each in properties)
    choices = " ".join(str(one) for _, each in properties for one in each.get("enum") or ())
    return [
        (tool.name.replace(".", " "), 3.0),
        (tool.description, 1.0),
        (" ".join(name for name, _ in properties), 0.7),
        (f"{told} {choices}", 0.4),
    ]
