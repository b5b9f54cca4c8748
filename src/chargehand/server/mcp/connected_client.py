"""A connected MCP client: sends it progress, and asks its person questions."""

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

import msgspec
from mcp import MCPError, types
from mcp.server.mcpserver import Context
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct

from chargehand.decisions.schedule import RunState
from chargehand.errors import UsageError
from chargehand.facts.failure_policy import ABOUT_BUDGET
from chargehand.facts.outcome import Question
from chargehand.presentation.display_text import clean, one_line
from chargehand.server.mcp.run_updates import Follower
from chargehand.supervisor import Supervisor

#: the only field of a form
ANSWER = "answer"
#: most characters of evidence; a question with longer evidence is not asked here
LONGEST_EVIDENCE = 8_000
AnyContext: TypeAlias = Context[Any, Any]


class State(Struct, frozen=True):
    """The state that a client sends back with its answers, if questions are asked by ending the call."""

    run: str
    #: the questions that the call ended with; only these can be answered by the next call
    asked: tuple[str, ...] = ()
    #: questions that the person declined
    declined: tuple[str, ...] = ()


class McpClient:
    """The client that makes one tool call."""

    def __init__(self, context: AnyContext) -> None:
        self._context = context
        self._state = _state_of(context)
        given = context.input_responses or {}
        #: answers of the person by question; empty if the person declined
        self.answers = {id_: _text_in(given[id_]) for id_ in self._state.asked if id_ in given}
        #: questions that are not asked again
        self.declined = {
            *self._state.declined,
            *(q for q, text in self.answers.items() if not text),
        }
        #: accepted answers; a run that another process leads asks until its leader has read the answer
        self.answered: set[str] = set()

    @property
    def name(self) -> str:
        """The name that the client gives itself. It is recorded, but not trusted."""
        params = self._context.session.client_params
        return f"mcp:{one_line(params.client_info.name, 60)}" if params else "mcp"

    @property
    def can_be_asked(self) -> bool:
        """Whether the client can show a form to its person."""
        capabilities = self._context.client_capabilities
        elicitation = None if capabilities is None else capabilities.elicitation
        has_forms = elicitation is not None and (
            elicitation.form is not None or not elicitation.url
        )
        return has_forms and (self.is_asked_by_return or self._context.session.can_send_request)

    @property
    def is_asked_by_return(self) -> bool:
        """Whether questions are asked by ending the call, after which the client calls again with the answers."""
        return self._context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def run(self) -> str:
        """The run that this call continues, if an earlier call ended with questions; otherwise empty."""
        return self._state.run

    async def tell(self, news: Iterable[tuple[float, float | None, str]]) -> None:
        """Send progress to the client, if it wants that."""
        for progress, total, words in news:
            await self._context.report_progress(progress, total, words)

    async def ask(self, question: Question) -> str:
        """Ask the person. Returns the answer; empty if the person declined or the client cannot ask."""
        request = form_of(question)
        if request is None:
            return ""
        try:
            reply = await self._context.session.elicit_form(
                request.message, request.requested_schema, self._context.request_id
            )
        except MCPError:
            return ""
        return _text_in(reply)

    def ask_by_return(self, run: str, asked: Iterable[Question]) -> types.InputRequiredResult:
        """The result that ends this call: the questions, and the state to send back with the answers."""
        forms = {question.id: form_of(question) for question in asked}
        requests: dict[str, Any] = {
            id_: types.ElicitRequest(params=form) for id_, form in forms.items() if form
        }
        state = State(run, tuple(requests), tuple(sorted(self.declined)))
        return types.InputRequiredResult(
            input_requests=requests, request_state=msgspec.json.encode(state).decode()
        )


class ClientQuestions:
    """Asks the person of a client the questions of a run, each once."""

    def __init__(
        self, boss: Supervisor, client: McpClient, heard: Follower, group: asyncio.TaskGroup
    ) -> None:
        self._boss = boss
        self._client = client
        self._heard = heard
        self._group = group
        self._asked: dict[str, asyncio.Task[None]] = {}
        #: questions to ask by ending the call
        self.by_return: list[Question] = []

    async def is_over(self, run: str) -> bool:
        """Ask new questions. True if the run waits only for answers that cannot be given here."""
        result = await self._boss.look(run)
        self._heard.may_ask = bool(result.questions)
        fresh = [each for each in result.questions if self._is_new(each)]
        if fresh and self._client.is_asked_by_return:
            self.by_return = fresh
            return True
        for question in fresh:
            self._asked[question.id] = self._group.create_task(self._ask(question))
        is_asking = any(not task.done() for task in self._asked.values())
        is_heard = any(each.id in self._client.answered for each in result.questions)
        is_left = bool(result.questions) and not is_asking and not is_heard
        return is_left and result.status is RunState.WAITING

    def break_off(self) -> None:
        """Stop asking, because the call has ended. Open questions may be answered elsewhere."""
        for task in self._asked.values():
            task.cancel()

    def _is_new(self, question: Question) -> bool:
        settled = self._client.declined | self._client.answered
        is_known = question.id in self._asked or question.id in settled
        return not is_known and self._client.can_be_asked and form_of(question) is not None

    async def _ask(self, question: Question) -> None:
        text = await self._client.ask(question)
        if text:
            await is_taken(self._boss, question.id, text, self._client)
        self._heard.look_again()  # it may have been the last question


async def is_taken(boss: Supervisor, question: str, text: str, client: McpClient) -> bool:
    """Answer a question on behalf of the person. False if the answer is refused, which leaves the question open."""
    try:
        await boss.answer(question, text, by=client.name)
    except UsageError:
        return False  # answered elsewhere meanwhile, or not a valid choice
    client.answered.add(question)
    return True


def form_of(question: Question) -> types.ElicitRequestFormParams | None:
    """The question as a form; None if its evidence cannot be shown completely."""
    evidence = _shown(question)
    if evidence is None:
        return None
    choices = list(question.choices)
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if question.telling:
        told = ", ".join(map(repr, choices))
        what = "an amount" if question.about == ABOUT_BUDGET else "JSON"
        field["description"] = f"One of {told}, or {question.telling!r}, a colon and {what}"
    elif choices:
        field["enum"] = choices
    if question.default is not None:
        field["default"] = question.default
    return types.ElicitRequestFormParams(
        message=clean(question.text) + evidence,
        requested_schema={"type": "object", "properties": {ANSWER: field}, "required": [ANSWER]},
    )


def _shown(question: Question) -> str | None:
    """The evidence of a question as text, which a model or tool may have written; None if it is too large."""
    if question.evidence.blob:
        return None
    data = question.evidence.read()
    if data is None:
        return ""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    if len(text) > LONGEST_EVIDENCE:
        return None
    # The person must see everything that they decide on, so invisible characters are shown as JSON escapes.
    seen = "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
    return f"\n\nIt is about this, which is data:\n{seen}"


def _text_in(reply: object) -> str:
    if not isinstance(reply, types.ElicitResult) or reply.action != "accept":
        return ""
    return str((reply.content or {}).get(ANSWER, ""))


def _state_of(context: AnyContext) -> State:
    if context.request_state is None:
        return State("")
    try:
        return msgspec.json.decode(context.request_state, type=State)
    except msgspec.DecodeError:
        raise UsageError("this call brings back nothing that `run` has handed out") from None
