"""Selecting: the best of several results, word for word, with the others kept beside it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.rule_answer import claims_of, contradictions_in, loose_in, share_done
from chargehand.facts.answer import Answer, Candidate
from chargehand.models.base import ModelRequest
from chargehand.roles.aggregate import context_limit
from chargehand.roles.aggregate.answer_prompts import AnswerPrompts
from chargehand.roles.aggregate.results import TaskResults
from chargehand.roles.durable_model_calls import ask_for
from chargehand.roles.json_reply_check import record

ONLY = "it is the only result"


class Selector(Struct, frozen=True):
    """Has a model choose by the plan's instruction; too many for one request meet in rounds."""

    caller: context_limit.LimitedModelCaller
    words: AnswerPrompts
    material: TaskResults
    #: why each result was chosen, or was not
    whys: dict[str, str] = {}

    async def choose(self) -> Answer:
        """The chosen result. One that stands alone is chosen without asking anybody."""
        items = self.material.items
        candidates = [id_ for id_ in loose_in(self.material.nodes) if id_ in items]
        left = [items[id_] for id_ in candidates]
        number = 0
        while len(left) > 1:
            number += 1
            left = await self._round(left, number)
        return self._answer(left[0].name, candidates)

    async def _round(
        self, left: Sequence[context_limit.Item], number: int
    ) -> list[context_limit.Item]:
        # Half of the room is left for what is said when a choice has to be sent back; of the rest
        # each result gets half at most, so that every round has fewer left than the one before.
        room = self.caller.room_beside(self._request([], "")) // 2
        groups = context_limit.chunks_of([self._block(item, room // 2) for item in left], room)
        works = [
            partial(self._pick, group, f"select {number}.{place}")
            for place, group in enumerate(groups, 1)
        ]
        return await context_limit.side_by_side(works)

    def _block(self, item: context_limit.Item, room: int) -> context_limit.ChunkBlock:
        listed = context_limit.tokens_in(item.name) + 2  # once more, among the names to choose from
        whole = context_limit.block_of(item)
        if whole.tokens + listed > room:
            frame = context_limit.block_of(replace(item, text="")).tokens + listed
            text = context_limit.clipped(
                item.text, (room - frame) * 2 // 3
            )  # marking borders makes it longer
            whole = context_limit.block_of(replace(item, text=text))
        return replace(whole, tokens=whole.tokens + listed)

    async def _pick(
        self, group: Sequence[context_limit.ChunkBlock], name: str
    ) -> context_limit.Item:
        items = {block.item.name: block.item for block in group}
        if len(items) == 1:
            return group[0].item
        request = self._request(list(items), context_limit.shown(group))
        told = await ask_for(self.caller, name, request.turns, request.schema or {})
        chosen: str = told["chosen"]
        for id_ in items:
            is_chosen = id_ == chosen
            self.whys[id_] = told["why"] if is_chosen else f"{chosen} was chosen: {told['why']}"
        return self.material.items[chosen]

    def _request(self, ids: list[str], results: str) -> ModelRequest:
        schema = record(chosen={"type": "string", "enum": ids}, why={"type": "string"})
        settings = self.caller.resources.settings
        turns = self.words.for_choice(results)
        return ModelRequest(turns=turns, schema=schema, settings=settings)

    def _answer(self, chosen: str, candidates: Sequence[str]) -> Answer:
        nodes, outputs = self.material.nodes, self.material.outputs
        output: Any = outputs[chosen]
        differing = tuple(contradictions_in(nodes, outputs.__getitem__, candidates))
        return Answer(
            output=output,
            claims=claims_of({chosen: output}),
            contradictions=differing,
            candidates=tuple(
                Candidate(id_, outputs[id_], id_ == chosen, self.whys.get(id_, ONLY))
                for id_ in candidates
            ),
            confidence=share_done(nodes, differing),
            by=self.caller.by or "rules",
        )
