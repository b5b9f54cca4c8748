"""Reducing: results that do not fit one request are condensed chunk by chunk, until they do."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.rule_answer import cut
from chargehand.engines.brief import Brief
from chargehand.errors import WorkerError
from chargehand.models.base import ModelRequest
from chargehand.roles.aggregate import context_limit
from chargehand.roles.aggregate.answer_claims import SourceMarks
from chargehand.roles.aggregate.answer_prompts import AnswerPrompts
from chargehand.roles.durable_model_calls import refuse_unusable
from chargehand.roles.refusal_detection import reason_in

#: a level that leaves more than this of what it was given leads nowhere
_SHRINKS = 0.9
#: tokens of notes; fewer would be cut off in the middle
_SHORTEST = 50
#: Notes are at most this part of what must hold them. Measured with our caution a text has up to
#: six times the tokens that its model counts; a chunk is to hold two notes at least.
_IN_FINAL, _IN_CHUNK = 6, 13


class Reducer(Struct):
    """Condenses results into notes, and notes into fewer, in a tree of calls made side by side.

    Every call has a name of its own, so it is a step that a resumed attempt finds again whatever
    order the calls end in.
    """

    brief: Brief
    caller: context_limit.LimitedModelCaller
    words: AnswerPrompts
    #: notes made so far
    count: int = 0

    async def fit(self, items: Sequence[context_limit.Item], room: int) -> list[context_limit.Item]:
        """The items, or notes on them that have no more than `room` tokens in all."""
        fitting = list(items)
        level = 0
        while (size := _size(fitting)) > room:
            level += 1
            fitting = await self._condense(fitting, level, room)
            if (left := _size(fitting)) > max(room, size * _SHRINKS):
                raise WorkerError(
                    f"condensing does not get on: of {size} tokens {left} are left, and "
                    f"{room} fit; the model's notes are too long for its context"
                )
        return fitting

    async def _condense(
        self, items: Sequence[context_limit.Item], level: int, final: int
    ) -> list[context_limit.Item]:
        request = self._request("", self._most(final))
        room = self.caller.room_beside(request)
        chunks = context_limit.chunks_of(
            (block for item in items for block in context_limit.blocks_of(item, room)), room
        )
        self.brief.progress(f"condensing {len(items)} results in {len(chunks)} calls")
        works = [
            partial(self._note, chunk, f"reduce {level}.{number}", request.settings.max_tokens)
            for number, chunk in enumerate(chunks, 1)
        ]
        notes = await context_limit.side_by_side(works)
        return [self._item(chunk, text) for chunk, text in zip(chunks, notes, strict=True)]

    def _most(self, final: int) -> int:
        """How long notes may be, in tokens."""
        free = self.caller.room_beside(self._request("", 0))
        usual = self.caller.resources.settings.max_tokens
        most = min(usual, final // _IN_FINAL, free // _IN_CHUNK)
        if most < _SHORTEST:
            raise WorkerError(
                f"the results do not fit, and notes on them could have {most} tokens at most: too few "
                "to say anything; raise ModelSettings(context=…) or lower max_tokens",
                kind="denied",
            )
        return most

    def _request(self, results: str, most: int) -> ModelRequest:
        turns = self.words.for_notes(results, max(most // 3, 20))
        settings = replace(self.caller.resources.settings, max_tokens=most)
        return ModelRequest(turns=turns, settings=settings)

    async def _note(self, chunk: Sequence[context_limit.ChunkBlock], name: str, most: int) -> str:
        reply = await self.caller.ask(name, self._request(context_limit.shown(chunk), most))
        refuse_unusable(reply)
        if reason_in(reply.text) is not None:
            raise WorkerError(f"the model says that it cannot take notes: {cut(reply.text)}")
        return reply.text.strip()

    def _item(self, chunk: Sequence[context_limit.ChunkBlock], text: str) -> context_limit.Item:
        known = {block.item.name: block.item.tasks for block in chunk}
        tasks = tuple(dict.fromkeys(task for named in known.values() for task in named))
        marks = SourceMarks(known | {task: (task,) for task in tasks})
        self.count += 1
        # Notes without a mark rest on all that they were made of: less cannot be said for sure.
        return context_limit.Item(
            f"@{self.count}",
            f"Notes @{self.count}",
            text,
            marks.tasks_in(text) or tasks,
            self.count,
        )


def _size(items: Sequence[context_limit.Item]) -> int:
    """The tokens of all items together, as they stand in a prompt."""
    return sum(context_limit.block_of(item).tokens for item in items)
