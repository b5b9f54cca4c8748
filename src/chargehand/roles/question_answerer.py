"""The supervisor's model answers what a worker asks, where a person would be asked otherwise.

Approvals never come here: they are asked by `Brief.answer_to`, which knows no answerer.
"""

from typing import Any

from msgspec import Struct

from chargehand.engines.brief import Brief
from chargehand.errors import StepMismatch, WorkerError
from chargehand.facts.outcome import Question
from chargehand.models.base import system, user
from chargehand.roles.data_fences import fenced
from chargehand.roles.durable_model_calls import DurableModelCaller, ModelCaller, ask_for
from chargehand.roles.json_reply_check import record
from chargehand.roles.prompts import prompt
from chargehand.roles.shared_resources import Resources

#: what the step is called in the trace
ANSWER_QUESTION = "answer_question"
_SCHEMA = record(
    can_answer={"type": "boolean"},
    answer={"type": "string", "description": "the answer; empty if you cannot answer"},
)


class ModelAnswerer(Struct, frozen=True):
    """Answers with the supervisor's model. Each answer is a step of the task that asked."""

    resources: Resources

    async def __call__(self, brief: Brief, question: Question) -> str | None:
        """The model's answer; None if it cannot say, or there is none to ask."""
        if not self.resources.has_model:
            return None
        caller = DurableModelCaller(brief, self.resources)
        return await model_answer(caller, brief.task.description, question)


async def model_answer(caller: ModelCaller, task: str, question: Question) -> str | None:
    """A text that the question of this task accepts; None if the model cannot say."""
    choices = f"Choose one of: {question.offers}." if question.choices else ""
    turns = [
        system(prompt("question", caller.resources.prompts, choices=choices)),
        user(fenced("task", task) + fenced("question", question.text)),
    ]

    def examine(said: Any) -> str | None:
        is_fitting = not said["can_answer"] or question.accepts(said["answer"])
        return None if is_fitting else f"answer one of {question.offers}"

    try:
        said = await ask_for(caller, ANSWER_QUESTION, turns, _SCHEMA, examine)
    except StepMismatch:
        raise
    except WorkerError:
        return None
    return said["answer"] if said["can_answer"] else None
