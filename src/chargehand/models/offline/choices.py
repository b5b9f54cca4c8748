"""Choices by rules: who gets a request, who goes on, which of several results is the best."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from chargehand.models.offline.assigning import best_worker, steps_for
from chargehand.models.offline.managing import next_speaker
from chargehand.models.offline.planning import request_in, roster_in
from chargehand.models.offline.ranking import Ranking
from chargehand.models.offline.reading import parts_of
from chargehand.models.offline.slots import Schema

FINISH, UNCLEAR = "finish", "unclear"
_TAKEN_UP = re.compile(r"^- \S+ \([^)\n]*\): (.+)$", re.MULTILINE)
#: a task that was done, runs, or came to nothing


def chosen(schema: Schema, asked: str, prompts: str) -> dict[str, Any] | None:
    """The choice that the schema asks for; None if it asks for none that is known here."""
    properties = schema.get("properties") or {}
    match sorted(properties):
        case ["task", "why", "worker"]:
            return _route(_choices(properties["worker"]), asked, prompts)
        case ["next", "task", "why"]:
            return _next_step(_choices(properties["next"]), asked, prompts)
        case ["next", "why"]:
            return next_speaker(_choices(properties["next"]), asked, prompts)
        case ["chosen", "why"]:
            return _best(_choices(properties["chosen"]), asked)
    return None


def _choices(schema: Mapping[str, Any]) -> Sequence[str]:
    return [str(each) for each in schema.get("enum") or ()]


def _route(workers: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    roster = roster_in([each for each in workers if each != UNCLEAR], prompts)
    if not roster:
        return None
    request = request_in(asked, roster)
    worker = best_worker(request, roster)
    words_in_common = Ranking([((worker, 2.0), (roster[worker], 1.0))]).scores(request)[0]
    if UNCLEAR in workers and not words_in_common:
        return {"worker": UNCLEAR, "task": request, "why": "no description has a word of it"}
    return {"worker": worker, "task": request, "why": "its description fits the words best"}


def _next_step(workers: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    """The first step of the plan for the request that nobody has taken up yet."""
    roster = roster_in([each for each in workers if each != FINISH], prompts)
    if not roster:
        return None
    taken = {_plain(found) for found in _TAKEN_UP.findall(asked)}
    steps = steps_for(request_in(asked, roster), roster)
    for number, step in enumerate(steps, 1):
        if _plain(step.description) not in taken:
            why = f"it is part {number} of {len(steps)} of what is asked"
            return {"next": step.worker, "task": step.description, "why": why}
    if FINISH not in workers:
        return None
    return {"next": FINISH, "task": "", "why": "all that is asked for was taken up"}


def _best(ids: Sequence[str], asked: str) -> dict[str, Any] | None:
    parts = parts_of(asked)
    texts = {name: text for name, text in parts.data if name in ids}
    if not texts:
        return None
    scores = Ranking([((text, 1.0),) for text in texts.values()]).scores(parts.head)
    best = max(range(len(scores)), key=lambda n: (scores[n], -n))
    return {"chosen": list(texts)[best], "why": "it has most of the words of the request"}


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
