"""Which tool a request needs: the one whose description fits it best."""

from collections import Counter
from collections.abc import Iterable, Sequence

from chargehand.models.base import ToolSpec
from chargehand.models.offline.clauses import clauses
from chargehand.models.offline.words import LIGHT, root, roots, words


class Lexicon:
    """Texts that can be asked which of them fits a question."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [roots(text) for text in texts]
        self._spread = Counter(word for text in self._texts for word in text)

    def scores(self, question: str) -> list[float]:
        """How well each text fits, in their order: by the words in common, of which rare ones count for more."""
        asked = {root(word) for word in words(question) if word not in LIGHT}
        return [sum(1 / self._spread[word] for word in asked & text) for text in self._texts]


class Router:
    """Tools that can be asked for by what they do."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tuple(tools)
        self._lexicon = Lexicon(map(_described, tools))

    def ranked(self, request: str) -> list[ToolSpec]:
        """All tools, the one that fits the whole request and its parts best first."""
        parts = [request, *(part.text for part in clauses(request))]
        by_tool = zip(*map(self._lexicon.scores, parts), strict=True)
        worth = dict(enumerate(map(sum, by_tool)))
        return [self._tools[n] for n in sorted(worth, key=lambda n: (-worth[n], n))]

    def best(self, request: str) -> ToolSpec | None:
        """The tool that fits the request best; None if none has a word in common with it."""
        scores = self._lexicon.scores(request)
        return self._tools[scores.index(max(scores))] if any(scores) else None


def _described(tool: ToolSpec) -> str:
    """What a tool says of itself and its parameters."""
    properties = (tool.parameters.get("properties") or {}).items()
    told = [f"{name} {each.get('description', '')}" for name, each in properties]
    choices = [str(one) for _, each in properties for one in each.get("enum") or ()]
    return " ".join([tool.name.replace(".", " "), tool.description, *told, *choices])
