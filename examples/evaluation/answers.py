"""The model behind the bundled suite: plans and verdicts written by hand, everything else by the offline model.

The plans for the prompt `rules` have the faults that a model of 1.5 billion parameters made with such a
prompt: a task that needs itself, files that are not there, the wrong worker, needs that make no sense.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from chargehand.models.base import Abilities, ModelReply, ModelRequest, StopReason, Text
from chargehand.models.open_model import open_model


def plan(*tasks: tuple[str, str, list[str]]) -> str:
    """A plan as JSON, from worker, description and needs of each task."""
    written = [
        {
            "id": f"t{number}",
            "needs": needs,
            "worker": worker,
            "description": description,
            "accept": "",
            "optional": False,
            "for_each": "",
        }
        for number, (worker, description, needs) in enumerate(tasks, 1)
    ]
    head: dict[str, Any] = {"goal": "", "instruction": "A short answer", "strategy": "merge"}
    return json.dumps({**head, "tasks": written})


KETTLES = "How many units of the kettle were sold in January 2025?"
NOTEBOOK = "May a notebook that has been written in be returned?"
UNITS = "What is the total of units from Tiller in 2024?"
PRICE = "Which price applies above 3,000 units a year?"
FILMS = "Total films of the north branch in March 2025"
RULES = "What do the rules of the library say about films?"
NOTICE = "Write a notice of the rules about films"
CARS = "How many cars were sold in 2031?"

#: by words of the request: what is written with the prompt `example`
GOOD = {
    "kettle": [plan(("analyst", KETTLES, []))],
    "notebook": [plan(("researcher", NOTEBOOK, []))],
    "Tiller": [plan(("analyst", UNITS, []), ("researcher", PRICE, []))],
    "films were": [plan(("analyst", FILMS, []))],
    "notice": [plan(("researcher", RULES, []), ("writer", NOTICE, ["t1"]))],
    "cars": [plan(("analyst", CARS, []))],
}
#: and with the prompt `rules`, try by try
POOR = {
    "kettle": [
        plan(("analyst", f"{KETTLES} Read kettle_sales.csv", [])),
        plan(("analyst", KETTLES, []), ("reviewer", "Check the units of the kettle", ["t1"])),
    ],
    "notebook": [plan(("analyst", NOTEBOOK, []))],
    "Tiller": [
        plan(("analyst", f"{UNITS} Read tiller_deliveries.csv", []), ("researcher", PRICE, ["t1"])),
        plan(("analyst", UNITS, []), ("researcher", PRICE, ["t1"])),
    ],
    "films were": [plan(("analyst", FILMS, []))],
    "notice": [plan(("researcher", RULES, []), ("writer", NOTICE, []))],
    "cars": [plan(("analyst", CARS, []))],
}


class WrittenAnswers:
    """Plans as they are written above; all else is handed to the offline model."""

    def __init__(self) -> None:
        self.name = "answers.py:model"
        self.account = "written"
        self._rules = open_model("offline")
        self.abilities: Abilities = self._rules.abilities

    async def ask(self, request: ModelRequest) -> ModelReply:
        prompt = request.turns[0].text
        if not prompt.startswith("You plan the work of a team."):
            return await self._rules.ask(request)
        plans = GOOD if "as in this example" in prompt else POOR
        asked = request.turns[1].text.rpartition("BEGIN request")[2]
        tries = next(tries for words, tries in plans.items() if words in asked)
        return said(tries[min(len(request.turns) // 2 - 1, len(tries) - 1)])

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        reply = await self.ask(request)
        yield reply.text
        yield reply


class WrittenVerdicts:
    """A judge by one rule: an answer that names the fee is right."""

    def __init__(self) -> None:
        self.name = "answers.py:judge"
        self.account = "written"
        self.abilities = Abilities(is_real=False, is_metered=False)

    async def ask(self, request: ModelRequest) -> ModelReply:
        is_named = "0.50 EUR" in request.turns[-1].text
        reason = "The fee of 0.50 EUR is named." if is_named else "No fee is named."
        return said(json.dumps({"reason": reason, "yes": is_named}))

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        reply = await self.ask(request)
        yield reply.text
        yield reply


def said(text: str) -> ModelReply:
    return ModelReply(parts=(Text(text),), stop=StopReason.END)


model = WrittenAnswers()
judge = WrittenVerdicts()
