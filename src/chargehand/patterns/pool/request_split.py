"""Splitting: a request becomes so many tasks, by a model's words or by rule."""

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from chargehand.errors import ModelError, WorkerError
from chargehand.models.base import Model, system, user
from chargehand.patterns.pool.mock_model import MOCK
from chargehand.roles.data_fences import fenced
from chargehand.roles.json_output import record
from chargehand.roles.model_calls import PlainModelCaller, ask_for
from chargehand.roles.prompts import prompt
from chargehand.roles.resources import Resources

log = logging.getLogger("chargehand.pool")

#: descriptions that a model is asked for in one go
AT_ONCE = 25
#: models that are none
_BY_RULE = ("offline", MOCK)


class Split(Struct, frozen=True):
    """What each task of a request is to do."""

    texts: list[str]
    #: why a model could not say it, or not all of it
    why_by_rule: str = ""


async def split(request: str, count: int, resources: Resources) -> Split:
    """Divide a request into exactly so many tasks. By rule where no model can."""
    caller = PlainModelCaller(resources)
    if is_by_rule(resources.models(None, "the supervisor")):
        return Split(by_rule(request, count))
    said: list[str] = []
    try:
        while len(said) < count:
            said += await _next_part(caller, request, count, said)
    except (WorkerError, ModelError) as error:
        log.warning("pool_split_by_rule tasks=%s error=%s", count - len(said), error)
        return Split([*said, *by_rule(request, count)[len(said) :]], str(error))
    return Split(said)


def by_rule(request: str, count: int) -> list[str]:
    """The request itself, with the part of it that each is to do."""
    words = request.strip()
    if count == 1:
        return [words]
    return [
        f"{words}\nDo part {number} of {count}, and no other." for number in range(1, count + 1)
    ]


def is_by_rule(models: Sequence[Model]) -> bool:
    """Whether none of them can put anything into words of its own."""
    return all(model.name in _BY_RULE for model in models)


async def _next_part(
    caller: PlainModelCaller, request: str, count: int, said: Sequence[str]
) -> list[str]:
    wanted = min(AT_ONCE, count - len(said))
    words = prompt(
        "split",
        caller.resources.prompts,
        count=str(count),
        wanted=str(wanted),
        first=str(len(said) + 1),
        last=str(len(said) + wanted),
    )
    known = "\n".join(f"{number}. {each}" for number, each in enumerate(said, start=1))
    told = fenced("request", request) + (f"\n\n{fenced('written already', known)}" if known else "")

    def objection(answer: Any) -> str | None:
        tasks = [each.strip() for each in answer["tasks"]]
        if not all(tasks):
            return "A task is empty; say of each what is to be done."
        if len({*tasks, *said}) < wanted + len(said):
            return "Two tasks are the same; each is to be a part of its own."
        return None

    turns = (system(words), user(told))
    answer = await ask_for(caller, "split", turns, _schema(wanted), objection)
    return [each.strip() for each in answer["tasks"]]


def _schema(count: int) -> dict[str, Any]:
    task = {"type": "string", "description": "what the result is, and what it is about"}
    return record(tasks={"type": "array", "items": task, "minItems": count, "maxItems": count})
