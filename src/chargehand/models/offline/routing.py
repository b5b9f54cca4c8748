"""Which tools a request needs, and with which arguments each is to be called."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from chargehand.models.base import ToolSpec
from chargehand.models.offline.arguments import Record, fill
from chargehand.models.offline.clauses import Clause, clauses, listed
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.words import term, term_set, terms, words

CLEAR = 0.3
#: a clause gets a tool of its own if the tool fits it this well, by the best fit of all
UNASKED = 0.5
#: a tool that acts counts for so much if nobody asked to act

_ACTS = term_set("""buy book send remove delete cancel pay transfer write post publish create update add
        set change control move upload reserve purchase order draw generate""")


class Route(NamedTuple):
    """A tool and the part of the request that it is for."""

    tool: ToolSpec
    text: str
    worth: float


class Proposal(NamedTuple):
    """A call that could be made."""

    tool: str
    arguments: dict[str, Any]
    missing: tuple[str, ...]
    worth: float


class Router:
    """Tools that can be asked for by what they do."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)
        self._ranking = Ranking([_described(tool) for tool in tools])
        self._acts = [_acts_of(tool) for tool in tools]

    def ranked(self, request: str) -> list[ToolSpec]:
        """All tools, the one that is needed most first."""
        parts = clauses(request)
        whole = self._scores(request)
        by_part = [self._scores(part.text) for part in parts]
        peak = max((max(scores, default=0.0) for scores in by_part), default=0.0) or 1.0
        top = max(whole, default=0.0) or 1.0

        def worth(n: int) -> float:
            won = [s[n] for s in by_part if s[n] > 0 and s[n] >= max(s)]
            return whole[n] / top + max(won, default=0.0) / peak

        order = sorted(range(len(self._tools)), key=lambda n: (-worth(n), n))
        return [self._tools[n] for n in order]

    def routes(self, request: str) -> list[Route]:
        """The tools that the parts of the request need; none if nothing fits at all.

        A part that fits no tool by itself goes with the part before it.
        """
        whole = [(part, self._scores(part.text)) for part in clauses(request)]
        peak = max((max(scores, default=0.0) for _, scores in whole), default=0.0)
        if not peak:
            return []
        pieces = [piece for part in whole for piece in self._apart(*part, peak)]
        groups: dict[int, list[tuple[Clause, float]]] = {}
        last: int | None = None
        loose: list[tuple[Clause, float]] = []
        for part, each in pieces:
            best = _winner(each)
            if each[best] >= CLEAR * peak:
                groups.setdefault(best, []).extend([*loose, (part, each[best])])
                last, loose = best, []
            elif last is not None:
                groups[last].append((part, 0.0))
            else:
                loose.append((part, 0.0))
        return [self._route(n, found) for n, found in groups.items()]

    def proposals(self, request: str) -> list[Proposal]:
        """The calls that the request needs, as far as their arguments can be told."""
        found = []
        for route in self.routes(request):
            about = _about(route.tool)
            records = fill(route.tool.parameters, route.text, request, about)
            found += [_proposed(route, record) for record in records]
        return found

    def forced(self, request: str) -> Proposal:
        """The likeliest call, however unlikely."""
        tool = self.ranked(request)[0]
        record = fill(tool.parameters, request, about=_about(tool))[0]
        return _proposed(Route(tool, request, 0.0), record)

    def _apart(
        self, part: Clause, scores: list[float], peak: float
    ) -> list[tuple[Clause, list[float]]]:
        """The items of a list within a clause, if they need different tools; else it stays whole."""
        items = [(item, self._scores(item.text)) for item in listed(part)]
        clear = [_winner(each) for _, each in items if max(each) >= CLEAR * peak]
        return items if len(set(clear)) > 1 else [(part, scores)]

    def _route(self, number: int, found: list[tuple[Clause, float]]) -> Route:
        text = "\n".join(part.text for part, _ in found)
        return Route(self._tools[number], text, max(worth for _, worth in found))

    def _scores(self, text: str) -> list[float]:
        asked = {term(word) for word in words(text)}
        scores = self._ranking.scores(text)
        for n, tool in enumerate(self._tools):
            if len(words(tool.name)) > 1 and tool.name.lower() in text.lower():
                scores[n] += 10.0  # it is asked for by its name
            if self._acts[n] and not self._acts[n] & asked:
                scores[n] *= UNASKED
        return scores


def _winner(scores: Sequence[float]) -> int:
    return max(range(len(scores)), key=lambda n: (scores[n], -n))


def _proposed(route: Route, record: Record) -> Proposal:
    return Proposal(route.tool.name, record.values, record.missing, route.worth)


def _about(tool: ToolSpec) -> frozenset[str]:
    return frozenset(terms(f"{tool.name} {tool.description}"))


def _acts_of(tool: ToolSpec) -> frozenset[str]:
    """The verbs by which a tool changes something, by its name."""
    return frozenset(term(word) for word in words(tool.name)) & _ACTS


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
