"""Routes for the questions that runs ask people."""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from chargehand.errors import QuestionTaken, UnknownQuestion, UnknownRun, UsageError
from chargehand.facts.outcome import Question, QuestionId
from chargehand.roles.tool_loop import APPROVE, APPROVE_WITH, REJECT
from chargehand.runtime.command_inbox import answers_in
from chargehand.server.http.access_tokens import Grant
from chargehand.server.http.api_context import ApiContext, Caller
from chargehand.server.http.error_bodies import Refusal, json_response
from chargehand.server.http.json_types import QuestionList, QuestionView
from chargehand.server.http.openapi_schemas import body_of, returns, takes

#: most characters of an answer
LONGEST = 100_000


class AnswerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One of: a text; a choice by its words or its number from 1; a decision about a tool call, with other arguments."""

    text: str | None = None
    choice: str | int | None = None
    approve: bool | None = None
    arguments: dict[str, Any] | None = None


class AnswerTaken(Struct, frozen=True):
    """The answer that counts."""

    question: str
    text: str
    by: str


class Attention(Struct, frozen=True):
    """What a person may want to look at."""

    questions: int
    failed: int
    running: int


def question_routes(api: ApiContext) -> APIRouter:
    """Create the routes for a server."""
    router = APIRouter(tags=["questions"])

    @router.get("/questions", **returns(QuestionList))
    async def questions(grant: Caller) -> Response:
        """The open questions of all runs, the oldest first."""
        return json_response(QuestionList(await _open_questions(api, grant.namespace)))

    @router.get("/runs/{run}/questions", **returns(QuestionList))
    async def run_questions(run: str, grant: Caller) -> Response:
        """All questions of a run, also those that are closed."""
        record = await api.runs.find(run, grant.namespace)
        standing = await api.runs.standing(record)
        return json_response(QuestionList(await api.runs.questions(standing, closed=True)))

    @router.post("/questions/{question}/answer", **returns(AnswerTaken), **takes(AnswerBody))
    async def answer(request: Request, question: str, grant: Caller) -> Response:
        """Answer a question. The first valid answer counts; later ones get 409 with the one that counted."""
        body = await body_of(request, AnswerBody)
        asked = await _asked(api, question, grant)
        return await answered(api, question, answer_text(asked, body), grant)

    @router.get("/attention", **returns(Attention))
    async def attention(grant: Caller) -> Response:
        """How much waits for a person; cheap enough to be polled."""
        found = await api.runs.overview(grant.namespace)
        failed, running = found.counts.failed, found.counts.running
        return json_response(Attention(len(found.questions), failed, running))

    return router


async def _open_questions(api: ApiContext, namespace: str) -> list[QuestionView]:
    found: dict[str, QuestionView] = {}
    for standing in await api.runs.standings(await api.runs.open_runs(namespace)):
        found |= {each.id: each for each in await api.runs.questions(standing)}
    return sorted(found.values(), key=lambda each: each.asked_at)


async def _asked(api: ApiContext, question: str, grant: Grant) -> Question:
    """The open question with this id. Raises an error if it is answered, closed or unknown."""
    run = QuestionId.read(question).run
    try:
        record = await api.runs.find(run, grant.namespace)
    except UnknownRun:
        raise UnknownQuestion(question[:200]) from None
    nodes = record.live_run.schedule.nodes.values()
    asked = next((n.question for n in nodes if n.question and n.question.id == question), None)
    # An earlier answer may be in the inbox, and the leader of the run may not have read it yet.
    known = answers_in(await api.boss.journal.mail.unread()).get(question)
    if known is not None:
        raise await taken_by(api, QuestionTaken(question, known.by, known.text))
    if asked is None:
        closed = await api.boss.why_closed(question)  # reads all events of the run
        raise await taken_by(api, closed) if isinstance(closed, QuestionTaken) else closed
    return asked


async def answered(api: ApiContext, question: str, text: str, grant: Grant) -> Response:
    """Answer a question in the name of the token's holder. Raises 409 if another answer was first."""
    by = api.name_of(grant)
    try:
        await api.boss.answer(question, text, by=by)
    except QuestionTaken as error:
        raise await taken_by(api, error) from None
    return json_response(AnswerTaken(question, text, by))


async def taken_by(api: ApiContext, error: QuestionTaken) -> Refusal:
    """The error for a question that is already answered: by whom, with what, and when."""
    record = await api.runs.records.read(QuestionId.read(error.question).run)
    known = record.questions.get(error.question)
    at = None if known is None or known.answered is None else known.answered.at
    words, _, hint = str(error).partition("; ")
    return Refusal(409, "QuestionTaken", words, hint, by=error.by, text=error.text, at=at)


def _choice_at(question: Question, number: int) -> str:
    choice = question.choice_at(number)
    if choice is None:
        raise UsageError(
            f"question {question.id} has no choice {number}"
            if question.is_numbered
            else f"the choices of question {question.id} are numbers themselves; give the choice as a text"
        )
    return choice


def answer_text(question: Question, body: AnswerBody) -> str:
    """The answer in a body, as text. Raises `UsageError` unless it is exactly one answer."""
    given = [each for each in (body.text, body.choice, body.approve) if each is not None]
    if body.arguments is not None and not given:
        given = [True]
    if len(given) != 1:
        raise UsageError("answer with exactly one of text, choice, approve")
    if body.arguments is not None:
        if body.approve is False or body.text is not None or body.choice is not None:
            raise UsageError("`arguments` go with approve=true only")
        return f"{APPROVE_WITH}: {msgspec.json.encode(body.arguments).decode()}"
    if body.approve is not None:
        return APPROVE if body.approve else REJECT
    if isinstance(body.choice, int):
        return _choice_at(question, body.choice)
    text = body.choice if body.text is None else body.text
    if text is None or len(text) > LONGEST:
        raise UsageError(f"an answer has {LONGEST:,} characters at most")
    return question.as_spelled(text)
