"""How well the offline model finds the tools that a request needs, and what to call them with.

Beside it, in the same run, stands plain BM25. The requests, tools and accepted calls are those of a
slice of BFCL, which is not part of this repository; the README of the workloads defines recall: of
the needed tools, over the items that offer more tools than are needed. A ranking is cut at as many
tools as are needed; the model itself is not told how many that are.
"""

import asyncio
import json
import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, report, workload_options, workloads_or_skip

from chargehand.models.base import ModelRequest, ToolSpec, user
from chargehand.models.offline import OfflineModel
from chargehand.models.offline.tool_choice import Router

FILE = Path("plans") / "bfcl.json"
BAR = 84.0
#: of other items, put beside those that an item offers
MORE_TOOLS = 20

JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


@dataclass(frozen=True)
class Item:
    """A request, the tools it comes with, and the calls that are accepted for it."""

    id: str
    request: str
    tools: tuple[ToolSpec, ...]
    gold: tuple[tuple[str, Mapping[str, Sequence[Any]]], ...]

    @property
    def needed(self) -> set[str]:
        return {tool for tool, _ in self.gold}


@dataclass(frozen=True)
class Call:
    """A call as the model made it."""

    tool: str
    arguments: Mapping[str, Any]


# What is compared: each takes a request and tools, and returns the tools' names, best first


def by_offline(request: str, tools: Sequence[ToolSpec]) -> list[str]:
    return [tool.name for tool in Router(tools).ranked(request)]


def bm25(items: Sequence[Item], *, with_parameters: bool) -> Callable[..., list[str]]:
    """Plain BM25 (k1 1.5, b 0.75) with the statistics of all tools of the slice."""
    every = [_tokens(tool, with_parameters) for item in items for tool in item.tools]
    spread = Counter(word for document in every for word in set(document))
    mean = fmean(map(len, every))

    def worth(asked: Sequence[str], document: Sequence[str]) -> float:
        counts, total = Counter(document), 0.0
        for word in asked:
            if not counts[word]:
                continue
            rarity = math.log(1 + (len(every) - spread[word] + 0.5) / (spread[word] + 0.5))
            length = 1.5 * (0.25 + 0.75 * len(document) / mean)
            total += rarity * counts[word] * 2.5 / (counts[word] + length)
        return total

    def rank(request: str, tools: Sequence[ToolSpec]) -> list[str]:
        asked = _words(request)
        return [
            tool.name
            for tool in sorted(tools, key=lambda t: -worth(asked, _tokens(t, with_parameters)))
        ]

    return rank


def _tokens(tool: ToolSpec, with_parameters: bool) -> list[str]:
    text = f"{tool.name} {tool.description}"
    if with_parameters:
        properties = tool.parameters.get("properties", {})
        text += " ".join(
            f" {name} {each.get('description', '')}" for name, each in properties.items()
        )
    return _words(text)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())


# What is counted


def recall_of(rank: Callable[..., list[str]], items: Sequence[Item]) -> float:
    """The mean share of needed tools among the first, as many as are needed; in percent."""
    shares = []
    for item in items:
        found = rank(item.request, item.tools)[: len(item.needed)]
        shares.append(len(item.needed & set(found)) / len(item.needed))
    return 100 * fmean(shares)


def calls_of(item: Item) -> list[Call]:
    """What the model calls for the request, asked as a worker would ask it."""
    request = ModelRequest(turns=(user(item.request),), tools=item.tools)
    reply = asyncio.run(OfflineModel().ask(request))
    return [Call(call.name, json.loads(call.arguments)) for call in reply.calls]


def called_tools(items: Sequence[Item], calls: Mapping[str, list[Call]]) -> tuple[float, float]:
    """Recall and precision of the tools that were called, in percent."""
    recall, precision = [], []
    for item in items:
        called = {call.tool for call in calls[item.id]}
        met = len(item.needed & called)
        recall.append(met / len(item.needed))
        precision.append(met / len(called) if called else 0.0)
    return 100 * fmean(recall), 100 * fmean(precision)


def accepted_share(items: Sequence[Item], calls: Mapping[str, list[Call]]) -> float:
    """The share of wanted calls that were made with all arguments as accepted, in percent."""
    met = wanted = 0
    for item in items:
        left = list(calls[item.id])
        for tool, accepts in item.gold:
            wanted += 1
            fits = [c for c in left if c.tool == tool and _is_accepted(c.arguments, accepts)]
            if fits:
                left.remove(fits[0])
                met += 1
    return 100 * met / wanted


def argument_share(items: Sequence[Item], calls: Mapping[str, list[Call]]) -> float:
    """The share of arguments that had to be given and were given right, in percent."""
    met = wanted = 0
    for item in items:
        for tool, accepts in item.gold:
            must = {name: values for name, values in accepts.items() if "" not in values}
            wanted += len(must)
            right = (
                sum(_is_value(call.arguments.get(name), values) for name, values in must.items())
                for call in calls[item.id]
                if call.tool == tool
            )
            met += max(right, default=0)
    return 100 * met / wanted


def _is_accepted(arguments: Mapping[str, Any], accepts: Mapping[str, Sequence[Any]]) -> bool:
    if arguments.keys() - accepts.keys():
        return False
    return all(
        _is_value(arguments[name], values) if name in arguments else "" in values
        for name, values in accepts.items()
    )


def _is_value(value: Any, accepted: Sequence[Any]) -> bool:
    return value is not None and _plain(value) in [_plain(each) for each in accepted]


def _plain(value: Any) -> Any:
    """As BFCL compares: letters and digits alone, whatever their case; 5 is 5.0."""
    if isinstance(value, str):
        return "".join(char for char in value.lower() if char.isalnum())
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


# The slice


def items_in(folder: Path) -> list[Item]:
    text = (folder / FILE).read_text(encoding="utf-8")
    return [_item(each) for each in json.loads(text)["items"]]


def _item(each: Mapping[str, Any]) -> Item:
    tools = [
        ToolSpec(tool["name"], tool["description"], _schema(tool["parameters"]))
        for tool in each["tools"]
    ]
    gold = tuple((call["tool"], call["accepts"]) for call in each["gold"])
    return Item(each["id"], each["request"].strip('"'), tuple(tools), gold)


def _schema(written: Any) -> Any:
    """BFCL's types, which are Python's, as those of JSON Schema."""
    if isinstance(written, list):
        return [_schema(each) for each in written]
    if not isinstance(written, dict):
        return written
    schema = {key: _schema(value) for key, value in written.items()}
    kind = written.get("type")
    if kind == "any":
        del schema["type"]
    elif isinstance(kind, str):
        schema["type"] = JSON_TYPES.get(kind, kind)
    return schema


def with_more_tools(items: Sequence[Item]) -> list[Item]:
    """Every item with tools of others beside its own: the choice that a large crew has."""
    chance = random.Random("more-tools-1")
    pool = [tool for item in items for tool in item.tools]
    widened = []
    for item in items:
        names = {tool.name for tool in item.tools}
        others = [tool for tool in chance.sample(pool, 2 * MORE_TOOLS) if tool.name not in names]
        tools = {tool.name: tool for tool in (*item.tools, *others[:MORE_TOOLS])}
        widened.append(Item(item.id, item.request, tuple(tools.values()), item.gold))
    return widened


# The report


def figures_of(items: Sequence[Item]) -> list[Figure]:
    contested = [item for item in items if len(item.tools) > len(item.needed)]
    widened = with_more_tools(items)
    calls = {item.id: calls_of(item) for item in items}
    found, right = called_tools(contested, calls)
    all_found, all_right = called_tools(items, calls)
    plain, full = bm25(items, with_parameters=False), bm25(items, with_parameters=True)
    few, more = f"{len(contested)} items", f"{len(items)} items, {MORE_TOOLS} more tools each"
    every = f"{len(items)} items"
    return [
        _share("recall, offline", recall_of(by_offline, contested), few, bar=BAR),
        _share("recall, BM25 over names and descriptions", recall_of(plain, contested), few),
        _share("recall, BM25 over parameters too", recall_of(full, contested), few),
        _share("recall, offline, wide choice", recall_of(by_offline, widened), more),
        _share("recall, BM25 over parameters too, wide choice", recall_of(full, widened), more),
        _share("recall of tools called", found, few),
        _share("precision of tools called", right, few),
        _share("recall of tools called, all", all_found, every),
        _share("precision of tools called, all", all_right, every),
        _share("calls made as accepted", accepted_share(items, calls), every),
        _share("arguments given as accepted", argument_share(items, calls), every),
    ]


def _share(name: str, value: float, note: str, bar: float | None = None) -> Figure:
    return Figure(name=name, value=value, unit="%", bar=bar, is_floor=True, note=note)


def main(argv: Sequence[str] | None = None) -> int:
    options = workload_options(__doc__, argv)
    folder = workloads_or_skip(options, FILE)
    if folder is None:
        return 0
    return report(figures_of(items_in(folder)), options)


if __name__ == "__main__":
    sys.exit(main())
