"""Merging: one answer from all results, in words as they come or in the shape that was asked for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from chargehand.decisions.rule_answer import contradictions_in, cut, share_done
from chargehand.errors import WorkerError
from chargehand.facts.answer import SUREST, Answer, Claim, Contradiction
from chargehand.facts.output_schema import type_faults
from chargehand.models.base import ModelRequest, StopReason
from chargehand.roles.aggregate.answer_claims import SourceMarks, claims_in
from chargehand.roles.aggregate.answer_prompts import DRAFTED, EARLIER, MISSING, AnswerPrompts
from chargehand.roles.aggregate.answer_stream import AnswerStream
from chargehand.roles.aggregate.condense_long_results import Reducer
from chargehand.roles.aggregate.context_limit import Item, LimitedModelCaller, block_of, shown
from chargehand.roles.aggregate.draft_parser import Draft
from chargehand.roles.aggregate.results import TaskResults
from chargehand.roles.durable_model_calls import ask_for, in_fewer_words, refuse_unusable
from chargehand.roles.json_reply_check import record
from chargehand.roles.refusal_detection import reason_in

#: the confidence of a model that says nothing of it
UNSAID = 0.8

_TEXT = {"type": "string"}
_CLAIM = record(text=_TEXT, tasks={"type": "array", "items": _TEXT})
#: members of a schema that belong to its root, and those of them that others refer to
_SHARED = ("$defs", "definitions")
_OF_ROOT = (*_SHARED, "$schema", "$id")


class Merger(Struct, frozen=True):
    """Has a model write the answer from results, condensed first if they do not fit."""

    caller: LimitedModelCaller
    words: AnswerPrompts
    reducer: Reducer
    material: TaskResults
    voice: AnswerStream

    async def in_words(self) -> Answer:
        """The answer as text, heard while it is written."""
        room = self.caller.room_beside(self._request(""))
        items = await self.reducer.fit(self.material.in_order_of_finishing, room)
        marks = _marks_for(items)
        request = self._request(_shown(items))
        reply = await self.caller.ask("answer", request, self.voice.reading(marks))
        if reply.stop is StopReason.LENGTH:
            self.voice.take_back()
            shorter = replace(request, turns=(*request.turns, *in_fewer_words(reply)))
            reply = await self.caller.ask("answer", shorter, self.voice.reading(marks))
        refuse_unusable(reply)
        draft = Draft(marks)
        draft.hear(reply.text)
        draft.finish()
        if not draft.text.strip():
            raise WorkerError("the model answered nothing")
        claims = claims_in(draft.lines, marks, self.material.citing)
        self._refuse_apology(draft.text, claims)
        return self._answer(draft.text, claims, draft.contradictions, draft.confidence)

    async def in_shape(self, shape: dict[str, Any]) -> Answer:
        """The answer as JSON that fits the shape. Raises `WorkerError` if the model cannot do it."""
        schema = around(shape)
        empty = ModelRequest(
            turns=self.words.for_shape("", schema),
            schema=schema,
            settings=self.caller.resources.settings,
        )
        # Half of the room is left for what is said when an answer has to be sent back.
        room = self.caller.room_beside(empty) // 2
        items = await self.reducer.fit(self.material.in_order_of_finishing, room)
        marks = _marks_for(items)
        turns = self.words.for_shape(_shown(items), schema)
        hear = self.voice.picking("answer")

        def examine(told: Any) -> str | None:
            faults = type_faults(shape, told["answer"])
            return f"The answer does not fit: {'; '.join(faults)}. Correct it." if faults else None

        told = await ask_for(self.caller, "answer", turns, schema, examine, hear)
        claims = tuple(claim for each in told["claims"] if (claim := _claim(each, marks)).text)
        self._refuse_apology(told["answer"], claims)
        pairs = (
            Contradiction(_claim(each["first"], marks), _claim(each["second"], marks))
            for each in told["contradictions"]
        )
        return self._answer(
            told["answer"],
            claims,
            [pair for pair in pairs if pair.first.tasks and pair.second.tasks],
            told["confidence"],
        )

    def _request(self, results: str) -> ModelRequest:
        turns = self.words.for_answer(results)
        return ModelRequest(turns=turns, settings=self.caller.resources.settings)

    def _refuse_apology(self, output: Any, claims: Iterable[Claim]) -> None:
        """Raise for an answer that says only that there is none. One that rests on results says more."""
        asked = f"{self.words.request}\n{self.words.instruction}"
        reason = reason_in(output, asked) if isinstance(output, str) else None
        if reason is not None and not any(claim.tasks for claim in claims):
            raise WorkerError(f"the model says that it cannot answer: {cut(reason)}")

    def _answer(
        self,
        output: Any,
        claims: tuple[Claim, ...],
        contradictions: Sequence[Contradiction],
        confidence: float | None,
    ) -> Answer:
        nodes, outputs = self.material.nodes, self.material.outputs
        found = contradictions_in({id_: nodes[id_] for id_ in outputs}, outputs.__getitem__)
        return Answer(
            output=output,
            claims=claims,
            contradictions=_joined(contradictions, found),
            confidence=share_done(nodes)
            * min(UNSAID if confidence is None else confidence, SUREST),
            by=self.caller.by,
        )


def _shown(items: Iterable[Item]) -> str:
    return shown([block_of(item) for item in items])


def _marks_for(items: Sequence[Item]) -> SourceMarks:
    tasks = {task: (task,) for item in items for task in item.tasks}
    return SourceMarks(
        {
            **{item.name: item.tasks for item in items},
            **tasks,
            EARLIER: (),
            DRAFTED: (),
            MISSING: (),
        }
    )


def _claim(told: Mapping[str, Any], marks: SourceMarks) -> Claim:
    text, tasks, _ = marks.part(told["text"])
    named = marks.tasks_of(each.strip("[] ") for each in told["tasks"])
    return Claim(cut(text, 1000), tuple(dict.fromkeys((*named, *tasks))))


def _joined(
    told: Sequence[Contradiction], found: Iterable[Contradiction]
) -> tuple[Contradiction, ...]:
    """What the model told, and what the rules found between other tasks."""
    named = {frozenset((*pair.first.tasks, *pair.second.tasks)) for pair in told}
    more = (p for p in found if frozenset((*p.first.tasks, *p.second.tasks)) not in named)
    return (*told, *more)


def around(shape: dict[str, Any]) -> dict[str, Any]:
    """A schema whose `answer` has this shape. What the shape refers to is still found."""
    inner = {key: value for key, value in shape.items() if key not in _OF_ROOT}
    shared = {key: shape[key] for key in _SHARED if key in shape}
    told = record(
        answer=_moved(inner),
        claims={"type": "array", "items": _CLAIM},
        contradictions={"type": "array", "items": record(first=_CLAIM, second=_CLAIM)},
        confidence={"type": "number", "minimum": 0, "maximum": 1},
    )
    return {**told, **_moved(shared)}


def _moved(schema: Any) -> Any:
    """The schema with its references pointed to where things are now."""
    match schema:
        case dict():
            return {
                key: _new_place(value)
                if key == "$ref" and isinstance(value, str)
                else _moved(value)
                for key, value in schema.items()
            }
        case list():
            return [_moved(each) for each in schema]
    return schema


def _new_place(reference: str) -> str:
    is_shared = reference.startswith(tuple(f"#/{key}/" for key in _SHARED))
    if is_shared or not reference.startswith("#"):
        return reference
    return f"#/properties/answer{reference[1:]}"
