"""Which tool a request needs, and what to call it with: only what the words give without doubt."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from chargehand.models.base import ToolSpec
from chargehand.models.offline.clauses import clauses
from chargehand.models.offline.words import LIGHT, root, roots, word_set, words

#: characters of a text that are searched for values
LONGEST = 20_000
SUM = re.compile(
    r"(?<![\w.,(])(?:[-(]\s?){0,4}\d[\d.,]{0,30}\)?(?:\s?(?:[-+*/^%×÷]|\*\*)\s?[-(]{0,4}\s?\d[\d.,]{0,30}\)*)+"
    r"|\b(?:sqrt|log|sin|cos|tan|exp|abs|min|max|round)\([^()\n]{0,200}\)"
)
_QUOTED = re.compile(
    r"\"([^\"\n]{1,2000})\"|“([^”\n]{1,2000})”|`([^`\n]+)`|(?<!\w)'([^'\n]{1,2000}?)'(?!\w)"
)
_PATH = re.compile(
    r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,12}[\w-]{1,80}(?:\.[\w-]{1,80}){0,4}\.[A-Za-z]\w{1,4}\b(?!\()"
)
_ADDRESS = re.compile(r"https?://[^\s<>\"']+[^\s<>\"'.,;:!?)]")
_FORMS = {"expression": SUM, "formula": SUM, "path": _PATH, "file": _PATH, "url": _ADDRESS}
#: names of parameters that take what is asked as it is asked
_PROSE = word_set("query q question request prompt text message content topic search input")


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
        self._lexicon = Lexicon(map(described, tools))

    def ranked(self, request: str) -> list[ToolSpec]:
        """All tools, the one that fits the whole request and its parts best first."""
        parts = [request, *(part.text for part in clauses(request))]
        worth = dict(enumerate(map(sum, zip(*map(self._lexicon.scores, parts), strict=True))))
        return [self._tools[n] for n in sorted(worth, key=lambda n: (-worth[n], n))]

    def best(self, request: str) -> ToolSpec | None:
        """The tool that fits the request best; None if none has a word in common with it."""
        scores = self._lexicon.scores(request)
        return self._tools[scores.index(max(scores))] if any(scores) else None


def described(tool: ToolSpec) -> str:
    """What a tool says of itself and its parameters."""
    properties = (tool.parameters.get("properties") or {}).items()
    told = [f"{name} {each.get('description', '')}" for name, each in properties]
    choices = [str(one) for _, each in properties for one in each.get("enum") or ()]
    return " ".join([tool.name.replace(".", " "), tool.description, *told, *choices])


class Proposal(NamedTuple):
    """A call, and the required arguments that it lacks."""

    tool: str
    arguments: dict[str, Any]
    missing: tuple[str, ...] = ()


def proposal_for(tool: ToolSpec, text: str, given: Mapping[str, Any]) -> Proposal:
    """A call of the tool: with what is `given` by name, choices, and a text if one parameter waits for one."""
    slots = tool.parameters.get("properties") or {}
    values = _choices(slots, text) | {name: given[name] for name in given if name in slots}
    required = [name for name in tool.parameters.get("required") or () if name in slots]
    needed = [name for name in required if name not in values and "default" not in slots[name]]
    kinds = {name: "enum" if "enum" in slots[name] else slots[name].get("type") for name in needed}
    texts = [name for name in needed if kinds[name] in ("string", None)]
    found = _text_for(texts[0], text) if len(texts) == 1 else ""
    values |= {texts[0]: found} if found else {}
    return Proposal(tool.name, values, tuple(name for name in needed if name not in values))


def _choices(slots: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The choices that are named, one for a parameter, and belong to no other parameter."""
    named = {name: _named(schema.get("enum") or (), text) for name, schema in slots.items()}
    claims = Counter(choice for each in named.values() for choice in each)
    return {name: each[0] for name, each in named.items() if [claims[c] for c in each] == [1]}


def _named(choices: Iterable[Any], text: str) -> list[str]:
    plain = [each for each in choices if isinstance(each, str) and each.lower() not in LIGHT]
    return [each for each in plain if re.search(rf"\b{re.escape(each)}\b", text, re.IGNORECASE)]


def _text_for(name: str, text: str) -> str:
    """The one text that a parameter takes: the only quotation, the only thing of its form, or the request."""
    own = set(words(name))
    matches = _QUOTED.finditer(text[:LONGEST])
    found = [str(next(filter(None, match.groups()))) for match in matches]
    form = next((pattern for word, pattern in _FORMS.items() if word in own), None)
    if form is not None and not found:
        found = list(dict.fromkeys(match[0].strip() for match in form.finditer(text[:LONGEST])))
    if len(found) == 1:
        return found[0]
    return text if own & _PROSE else ""
