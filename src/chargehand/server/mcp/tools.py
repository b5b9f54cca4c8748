"""The MCP tools of a supervisor. A run belongs to the server, so it continues if the tool call is cancelled."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, ParamSpec, Self, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import InputRequiredResult
from pydantic import Field

from chargehand.errors import ChargehandError, InternalError, UsageError
from chargehand.facts.durations import length_of
from chargehand.facts.events import RunStatus
from chargehand.facts.limits import tightened
from chargehand.facts.outcome import QuestionId, failed_by
from chargehand.facts.plan import Plan
from chargehand.presentation.event_relay import RunListener
from chargehand.presentation.run_status import UNREADABLE, is_nested, looked_at, status_of
from chargehand.result import RunResult
from chargehand.server.mcp.connected_client import AnyContext, ClientQuestions, McpClient, is_taken
from chargehand.server.mcp.run_updates import Follower
from chargehand.server.mcp.tool_replies import (
    PlanReply,
    ReportReply,
    RunListItem,
    RunReply,
    RunsReply,
    StatusReply,
)
from chargehand.supervisor import Supervisor
from chargehand.supervisor.requests import RunOptions, request_or_plan
from chargehand.sync_async_bridge import in_thread

P = ParamSpec("P")
R = TypeVar("R")
RunId = Annotated[str, Field(description="The id of a run, as `run` and `runs` return it.")]
Wait = Annotated[bool, Field(description="Wait for its end; false: return at once with its id.")]


def told(
    call: Callable[P, Coroutine[Any, Any, R]],
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Turn a `ChargehandError` into a `ToolError` with the same message for the client."""

    @functools.wraps(call)
    async def telling(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await call(*args, **kwargs)
        except ChargehandError as error:
            raise ToolError(str(error)) from error

    return telling


class McpTools:
    """The MCP tools of one supervisor, for any number of clients.

    If a client disconnects, only its call ends. Use it in `async with`, which waits for the runs led here at its end.
    """

    def __init__(self, boss: Supervisor, *, approvals: bool = False) -> None:
        self._boss = boss
        self._approvals = approvals
        self._listener = RunListener(boss)
        #: task that waits for the end of each run led here, by id of the run
        self._endings: dict[str, asyncio.Task[RunResult | ChargehandError]] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._group.__aexit__(*failure)

    # the tools

    @told
    async def plan(
        self,
        request: Annotated[str, Field(description="What is to be done, in words.")],
    ) -> PlanReply:
        """Write the plan that `run` would carry out for a request. Nothing is carried out."""
        return PlanReply.of(await self._boss.plan(request))

    @told
    async def run(
        self,
        context: AnyContext,
        request: Annotated[str, Field(description="What is to be done, in words.")] = "",
        plan: Annotated[
            dict[str, Any] | None,
            Field(description="Instead of a request: a plan, as `plan` writes."),
        ] = None,
        wait: Wait = True,
        deadline: Annotated[str, Field(description="Answer by then: 90s, 5m, 1h30m.")] = "",
        money: Annotated[float | None, Field(ge=0, description="Dollars at most.")] = None,
        tokens: Annotated[int | None, Field(ge=0, description="Tokens at most.")] = None,
        model_calls: Annotated[int | None, Field(ge=0, description="Model calls at most.")] = None,
        priority: Annotated[int, Field(description="Larger is more urgent.")] = 0,
        after: Annotated[str, Field(description="Go on from the answer of this run.")] = "",
        key: Annotated[
            str, Field(description="The same key and request again give the same run.")
        ] = "",
    ) -> RunReply | InputRequiredResult:
        """Run a request or a plan with the crew, and return the answer with its evidence and gaps.

        The run continues if this call is cancelled or the connection is lost: see `runs` and `result`.
        """
        client = await self._client(context)
        if client.run:
            return await self._follow(client.run, client)
        limits = tightened(self._boss.limits, money=money, tokens=tokens, calls=model_calls)
        terms = RunOptions(priority=priority, limits=limits, key=key or None, after=after or None)
        if deadline:
            own = self._boss.limits.deadline
            wanted = length_of(deadline)
            terms["deadline"] = wanted if own is None else min(own, wanted)
        run = await self._begin(request_or_plan(request, plan), terms)
        return await self._follow(run, client) if wait else await self._reply(run)

    @told
    async def resume(
        self,
        context: AnyContext,
        run: RunId,
        wait: Wait = True,
        accept: Annotated[
            bool, Field(description="Go on although the crew has changed since.")
        ] = False,
    ) -> RunReply | InputRequiredResult:
        """Resume an interrupted run, without repeating finished work."""
        client = await self._client(context)
        result = await self._boss.look(run)
        if run not in self._endings and not isinstance(result.status, RunStatus):
            heard = Follower(result)
            with self._listener.listening(run, heard):
                ending = self._lead(run, self._boss.resume(run, accept=accept))
                await _first_of(ending, heard)  # the run is now led, or resuming was refused
            _refuse_broken(ending)
        return await self._follow(run, client) if wait else await self._reply(run)

    @told
    async def result(
        self,
        context: AnyContext,
        run: RunId,
        wait: Wait = False,
    ) -> RunReply | InputRequiredResult:
        """The answer of a run with its evidence and gaps; for a run in progress, the answer so far."""
        client = await self._client(context)
        return await self._follow(run, client) if wait else await self._reply(run)

    @told
    async def status(self, run: RunId) -> StatusReply:
        """The state of a run: its tasks, what they are waiting for, and its open questions."""
        return await self._standing(run)

    @told
    async def runs(
        self,
        most: Annotated[int, Field(ge=1, le=100, description="How many to list.")] = 10,
    ) -> RunsReply:
        """The newest runs, those of other clients and of the command line included."""
        heads = await self._boss.journal.heads(forgotten=False)
        heads = [head for head in heads if not is_nested(head)]
        rows = []
        for head, result in await looked_at(
            heads[:most], lambda head: self._boss.look(head.stream)
        ):
            began = head.began_at.isoformat() if head.began_at else ""
            if isinstance(result, ChargehandError):
                status, request, asked = UNREADABLE, str(result), 0
            else:
                status, request = self._status(result), result.request
                asked = len(result.questions)
            row = RunListItem(
                run=head.stream,
                status=status,
                request=request,
                requested_at=began,
                questions=asked,
            )
            rows.append(row)
        return RunsReply(runs=rows, left_off=max(0, len(heads) - most))

    @told
    async def report(self, run: RunId) -> ReportReply:
        """Where the time, the tokens and the money of a run went: a summary of its trace."""
        return await in_thread(ReportReply.of, await self._boss.control.look(run, is_copy=True))

    @told
    async def answer(
        self,
        context: AnyContext,
        question: Annotated[str, Field(description="The id of the question.")],
        text: Annotated[str, Field(description="One of its choices, or any text if it has none.")],
    ) -> StatusReply:
        """Answer a question that a run asks, on behalf of the person who was asked."""
        run = QuestionId.checked(question).run
        asked = (await self._boss.look(run)).questions
        found = next((each for each in asked if each.id == question), None)
        if found is None:
            raise await self._boss.why_closed(question)
        if found.about != "plain" and not self._approvals:
            raise UsageError(
                f"question {question} is for a person, and no program may answer it: let the client "
                "ask its person, or type chargehand answer"
            )
        await self._boss.answer(question, text, by=McpClient(context).name)
        return await self._standing(run)

    @told
    async def cancel(
        self,
        run: RunId,
        answer_now: Annotated[
            bool, Field(description="Stop the work, and answer from what there is.")
        ] = False,
        reason: Annotated[str, Field(description="Kept with the run.")] = "",
    ) -> StatusReply:
        """Cancel a run, or make it answer now. Finished work is kept."""
        if answer_now:
            await self._boss.answer_now(run, reason or "the answer was wanted at once")
        else:
            await self._boss.cancel(run, reason)
        return await self._standing(run)

    # runs that are led here

    async def _begin(self, asked: str | Plan, terms: RunOptions) -> str:
        """Start a run and return its id. Cancelling the call does not undo this."""

        async def begin() -> str:
            run = await self._boss.submit(asked, **terms)
            self._lead(run.id, run.wait())
            return run.id

        begun = await asyncio.shield(self._group.create_task(_caught(begin())))
        if isinstance(begun, ChargehandError):
            raise begun
        return begun

    def _lead(
        self, run: str, ending: Awaitable[RunResult]
    ) -> "asyncio.Task[RunResult | ChargehandError]":
        task = self._endings[run] = self._group.create_task(_caught(ending))

        def forget(_: object) -> None:
            if self._endings.get(run) is task:
                del self._endings[run]

        task.add_done_callback(forget)
        return task

    def _status(self, result: RunResult) -> str:
        return result.status.value if result.id in self._endings else status_of(result)

    async def _standing(self, run: str) -> StatusReply:
        result = await self._boss.look(run)
        return StatusReply.of(result, self._status(result), is_here=run in self._endings)

    async def _reply(self, run: str) -> RunReply:
        result = await self._boss.control.look(run, is_copy=True)
        status, is_here = self._status(result), run in self._endings
        return await in_thread(RunReply.of, result, status, is_here=is_here)

    # waiting for a run

    async def _follow(self, run: str, client: McpClient) -> RunReply | InputRequiredResult:
        """Wait until the run ends, or until it waits for a person who cannot be asked here."""
        ending = self._endings.get(run)
        if ending is None:  # it has ended, or is led elsewhere
            return await self._reply(run)
        heard = Follower(await self._boss.look(run))
        with self._listener.listening(run, heard):
            async with asyncio.TaskGroup() as asking:
                interview = ClientQuestions(self._boss, client, heard, asking)
                while not ending.done():
                    await client.tell(heard.news())
                    if heard.may_ask and await interview.is_over(run):
                        break
                    await _first_of(ending, heard)
                interview.break_off()
            await client.tell(heard.news())
        if interview.by_return:
            return client.ask_by_return(run, interview.by_return)
        _refuse_broken(ending)
        return await self._reply(run)

    async def _client(self, context: AnyContext) -> McpClient:
        """The caller. First passes on the answers that it sends back after a call that ended with questions."""
        client = McpClient(context)
        for question, text in client.answers.items():
            if text and not await is_taken(self._boss, question, text, client):
                client.declined.add(question)
        return client


async def _caught(awaited: Awaitable[R]) -> R | ChargehandError:
    """The result, or the error as a value: if it were raised, it would end the task group."""
    try:
        return await awaited
    except ChargehandError as error:
        return error
    except Exception as error:  # noqa: BLE001 - must not stop the server for other clients
        return InternalError(
            f"{type(error).__name__}: {failed_by(error).message}; please report it"
        )


def _refuse_broken(ending: "asyncio.Task[RunResult | ChargehandError]") -> None:
    """Raise the error that ended the wait for a run, if any."""
    if ending.done() and isinstance(error := ending.result(), ChargehandError):
        raise error


async def _first_of(ending: "asyncio.Task[Any]", heard: Follower) -> None:
    """Wait until the run has ended or an event of it was heard."""

    def wake(_: object) -> None:
        heard.changed.set()

    ending.add_done_callback(wake)
    await heard.changed.wait()
    heard.changed.clear()
    ending.remove_done_callback(wake)
