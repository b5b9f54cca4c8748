"""The client of the HTTP API: submit runs to a `chargehand serve`, follow, answer, control, read results."""

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from msgspec import Raw, Struct

from chargehand.client.event_follower import EventFollower, StreamFrame, frames_in
from chargehand.client.replies import (
    UNREADABLE,
    AnyObject,
    SentPlan,
    SentQuestions,
    SentResult,
    SentRuns,
    SentSnapshot,
    StartedRun,
    error_in,
    fact_of,
    foreign,
    read_object,
    read_reply,
    refuse_redirect,
)
from chargehand.client.slow_server_warnings import ServerWait
from chargehand.client.token_sources import find_token
from chargehand.errors import PlanRefused, ServerRefused, ServerUnreachable, UsageError
from chargehand.facts.answer import BY_RULES, Claim, Gap
from chargehand.facts.argument_checks import refuse_unknown, text
from chargehand.facts.events import RunStatus
from chargehand.facts.output_schema import shape_of
from chargehand.facts.plan import Plan
from chargehand.facts.sizes import shown_size
from chargehand.presentation.display_text import one_line
from chargehand.regular_file import refuse_special_file
from chargehand.roles.json_reply_check import typed
from chargehand.sync_async_bridge import wait_in_background

T = TypeVar("T")
#: seconds without data after which a connection counts as lost; the server sends something every 15
SILENCE = 40.0
#: most bytes of a reply; a trace contains the payloads of its run
MOST_BYTES = 512 * 2**20
_PIECE = 2**20
_LONGEST_WHY = 300
EVENT_STREAM = "text/event-stream"
#: kind of the streamed object, by the name of its frame
_PIECES = {"token": "TaskPiece", "answer": "AnswerPiece"}


class RunFilters(TypedDict, total=False):
    """The options of `Client.runs`."""

    #: states of runs or groups of states, separated by commas: all, running, needs, partial, failed, done, ended
    state: str
    #: words that occur in the request or the id
    q: str
    limit: int


class RemoteResult(Struct, frozen=True, kw_only=True):
    """The result of a run, as the server reports it."""

    id: str
    status: str
    #: text; for a run with structured output, an object of the type given as `output`, otherwise JSON. None if there
    #: is no answer
    answer: Any
    #: the answer as text; empty if there is none
    text: str = ""
    #: the answer as JSON; text is a string
    answer_json: Any = None
    claims: tuple[Claim, ...] = ()
    gaps: tuple[Gap, ...] = ()
    confidence: float = 0.0
    #: calls, tokens and money; money is None if no price list knows the models
    usage: dict[str, float | None] = {}
    #: each cap of the run or of a task that was exceeded, in words
    over_budget: tuple[str, ...] = ()
    #: untrusted sources that the answer derives from
    taint: tuple[str, ...] = ()

    @property
    def output(self) -> Any:
        """The same as `answer`, named as in the result of a local run."""
        return self.answer

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, so that this result is final."""
        return self.status in {each.value for each in RunStatus}


class RemotePlan(Struct, frozen=True, kw_only=True):
    """The plan of a run, as the server reports it."""

    #: None if there is no plan yet
    plan: Plan | None
    version: int
    #: the version that was read, for `change_plan`, `approve_plan` and `reject_plan`
    etag: str
    #: ids of the tasks that may be changed, because they were never started
    editable: tuple[str, ...] = ()
    #: the plan or change that waits for approval: question, plan, is_change, removed, replaced, reason, draft
    review: dict[str, Any] | None = None
    #: after a change: new task ids, by old ids
    renamed: dict[str, str] = {}
    #: why an accepted change is not in the plan yet; otherwise empty
    pending: str = ""


class RemoteCost(Struct, frozen=True, kw_only=True):
    """What a run has spent, as the server reports it."""

    by_worker: list[dict[str, Any]]
    by_model: list[dict[str, Any]]
    by_task: list[dict[str, Any]]
    #: what was spent without a result
    waste: Any
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money; money is None if no price list knows the models
    usage: dict[str, float | None]
    #: money, tokens, calls; None: no limit
    budget: dict[str, float | None]
    #: each cap of the run or of a task that was exceeded, in words
    over_budget: tuple[str, ...] = ()
    #: models without a known price: sums of money leave them out
    unpriced: tuple[str, ...] = ()


class Client:
    """A client of the HTTP API. Use it in `async with`, or use `run_sync` without an event loop.

    The token is taken from the first of these sources that has one: `token`, a `#token=` fragment in `url`,
    `token_file`, the environment (CHARGEHAND_TOKEN, CHARGEHAND_TOKEN_FILE), the keyring and, for a server on this
    machine, the file `tokens.json` next to its journal. `ca_file` contains the certificate authority of a server
    whose certificate is not publicly trusted.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: str | os.PathLike[str] = "",
        ca_file: str | os.PathLike[str] = "",
    ) -> None:
        self.url = _address_in(text(url, "Client: url"))
        given = text(token, "Client: token") or url.partition("#token=")[2]
        self._token, self._token_source = find_token(self.url, given, token_file)
        if not (self._token.isascii() and self._token.isprintable()):
            raise UsageError(
                f"{self._token_source} holds characters that no token has, such as a line break; "
                "give the token that chargehand serve prints when it starts"
            )
        self._tls = _trusting(Path(ca_file)) if ca_file else True
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. `async with` does this at its end."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # runs

    async def submit(self, request: str | Plan, **options: Any) -> str:
        """Start a run and return its id. Options are those of `POST runs`: key, priority, limits, review_plan, …

        `output` may also be a type: a Pydantic model or a dataclass.
        """
        body: dict[str, Any] = dict(options)
        if body.get("output") is not None:
            body["output"] = shape_of(body["output"])
        if isinstance(request, Plan):
            body["plan"] = Raw(request.to_json(indent=None).encode())
        else:
            body["request"] = request
        started = await self._typed(
            "POST", "runs", body, shape=StartedRun, about=str(body.get("key"))
        )
        return started.id

    async def run(self, request: str | Plan, **options: Any) -> RemoteResult:
        """Start a run, wait for its end, and return the result."""
        run = await self.submit(request, **options)
        return await self.wait(run, output=options.get("output"))

    def run_sync(self, request: str | Plan, **options: Any) -> RemoteResult:
        """`run` for callers without an event loop."""
        return self._sync(self.run(request, **options))

    async def wait(self, run: str, *, output: Any = None) -> RemoteResult:
        """Wait until a run has ended, and return its result; `output` is the type that the run was started with."""
        async for _ in self.events(run):
            pass
        return await self.result(run, output=output)

    async def result(self, run: str, *, output: Any = None) -> RemoteResult:
        """The result of a run, or its state so far; `output` is the type that the run was started with."""
        path = f"runs/{_part(run)}/result"
        told = await self._call("GET", path, shape=SentResult, about=run)
        answer = {"answer": told["answer_json"], "text": told["answer"] or ""}
        found = self._converted({**told, **answer, "id": run}, RemoteResult)
        return _result_of(found, told["composed_by"], output)

    async def runs(self, **options: Unpack[RunFilters]) -> list[dict[str, Any]]:
        """List runs, newest first. Options are those of `GET runs`: state, q, limit."""
        refuse_unknown(options, RunFilters.__annotations__, "runs")
        return (await self._typed("GET", "runs", shape=SentRuns, params=options)).runs

    async def snapshot(self, run: str) -> dict[str, Any]:
        """Everything about a run except payloads."""
        path = f"runs/{_part(run)}/snapshot"
        return await self._call("GET", path, shape=SentSnapshot, about=run)

    async def trace(self, run: str, *, content: bool = True) -> dict[str, Any]:
        """The trace of a run, as `chargehand trace --json` prints it; without `content`, no payloads."""
        params = {"content": int(content)}
        return await self._call("GET", f"runs/{_part(run)}/trace", params=params, about=run)

    async def cost(self, run: str) -> RemoteCost:
        """What a run has spent, by worker, model and task."""
        return await self._typed("GET", f"runs/{_part(run)}/cost", shape=RemoteCost, about=run)

    async def events(
        self, run: str, after: int = 0, *, tokens: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Stream the events of a run after the number `after`, each once, until the run ends.

        With `tokens`, also streams the text that models write, without a `seq`: objects of the kinds `TaskPiece` and
        `AnswerPiece`, and `PiecesDropped` with the number of pieces that were `dropped`.

        Reconnects when the connection is lost or the server restarts. Raises `ServerUnreachable` after ten failed
        attempts in a row.
        """
        connect = partial(self._frames, run, tokens=tokens)
        follower = EventFollower(self.url, run, after, connect)
        async with aclosing(follower.frames()) as frames:
            async for kind, data in frames:
                if not kind:
                    for event in data:
                        yield event
                elif tokens:
                    is_gap = "dropped" in data
                    yield {"kind": "PiecesDropped" if is_gap else _PIECES[kind], **data}

    # control

    async def cancel(self, run: str, reason: str = "", *, answer_now: bool = False) -> None:
        """Cancel a run; with `answer_now`, make it answer from the results so far."""
        body = {"reason": reason, "answer_now": answer_now}
        await self._call("POST", f"runs/{_part(run)}/cancel", body, about=run)

    async def pause(self, run: str, reason: str = "") -> None:
        """Pause a run: nothing new starts until `unpause`."""
        await self._call("POST", f"runs/{_part(run)}/pause", {"reason": reason}, about=run)

    async def unpause(self, run: str) -> None:
        """Continue a paused run."""
        await self._call("POST", f"runs/{_part(run)}/unpause", {}, about=run)

    async def steer(self, run: str, note: str, *, key: str = "") -> None:
        """Let a model change the remaining work as the note describes. A note is applied once per `key`."""
        body = {"note": note, "key": key}
        await self._call("POST", f"runs/{_part(run)}/steer", body, about=run)

    async def change_budget(
        self,
        run: str,
        *,
        money: float | None = None,
        tokens: int | None = None,
        calls: int | None = None,
    ) -> None:
        """Raise or lower the budget of a run; a cap that is None is not changed."""
        body = {"money": money, "tokens": tokens, "calls": calls}
        await self._call("POST", f"runs/{_part(run)}/budget", body, about=run)

    async def resume(self, run: str, *, accept: bool = False) -> None:
        """Resume an interrupted run on the server; with `accept`, even if its crew has changed."""
        await self._call("POST", f"runs/{_part(run)}/resume", {"accept": accept}, about=run)

    async def retry(
        self, run: str, tasks: Sequence[str] = (), *, repeat_effects: bool = False
    ) -> str:
        """Run tasks again in a new run, by default the failed ones; returns the id of the new run."""
        body = {"tasks": list(tasks), "repeat_effects": repeat_effects}
        path = f"runs/{_part(run)}/retry"
        return (await self._typed("POST", path, body, shape=StartedRun, about=run)).id

    # plans

    async def plan(self, run: str) -> RemotePlan:
        """The plan of a run, and the plan or change that waits for approval."""
        path = f"runs/{_part(run)}/plan"
        return self._plan_of(await self._call("GET", path, shape=SentPlan, about=run))

    async def change_plan(self, run: str, plan: Plan, *, etag: str, reason: str = "") -> RemotePlan:
        """Replace the part of a plan that has not started; for a plan under review, save a draft.

        `etag` is that of the plan that you read. Raises `PlanChanged` if the plan has changed since then, and
        `PlanRefused`, which lists all faults, if the new plan is not valid.
        """
        body = {"plan": Raw(plan.to_json(indent=None).encode()), "reason": reason}
        headers = {"If-Match": f'"{etag}"'}
        path = f"runs/{_part(run)}/plan"
        told = await self._call("PUT", path, body, shape=SentPlan, about=run, headers=headers)
        return self._plan_of(told)

    async def approve_plan(self, run: str, *, etag: str = "") -> None:
        """Approve the plan under review, or its draft; with `etag`, only if it is still the plan that you read."""
        body = {"version": etag or None}
        await self._call("POST", f"runs/{_part(run)}/plan/approve", body, about=run)

    async def reject_plan(self, run: str, note: str = "", *, etag: str = "") -> None:
        """Reject the plan under review; with a note, the planner writes a new one."""
        body = {"version": etag or None, "note": note}
        await self._call("POST", f"runs/{_part(run)}/plan/reject", body, about=run)

    # questions

    async def questions(self, run: str = "") -> list[dict[str, Any]]:
        """The open questions of a run, or of all runs."""
        path = f"runs/{_part(run)}/questions" if run else "questions"
        found = (await self._call("GET", path, shape=SentQuestions, about=run))["questions"]
        return [each for each in found if each["answered"] is None and not each["is_closed"]]

    async def answer(self, question: str, text: str) -> None:
        """Answer a question. Raises `QuestionTaken` if it has been answered already."""
        await self._call(
            "POST", f"questions/{_part(question)}/answer", {"text": text}, about=question
        )

    # requests

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE)
            headers = {"Authorization": f"Bearer {self._token}"}
            self._session = aiohttp.ClientSession(timeout=timeout, headers=headers)
        return self._session

    def _sync(self, work: Coroutine[Any, Any, T]) -> T:
        async def whole() -> T:
            try:
                return await work
            finally:
                await self.close()

        return wait_in_background(whole())

    async def _call(
        self, method: str, path: str, body: object = None, *, shape: type[Struct] = AnyObject, about: str = "",
        params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Send a request. Returns the reply as a JSON object, with the fields of `shape` checked."""
        status, data = await self._reply_to(method, path, body, about, params, headers)
        return read_object(self.url, status, data, shape)

    async def _typed(
        self, method: str, path: str, body: object = None, *, shape: type[T], about: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> T:  # fmt: skip
        """Send a request. Returns the reply as an object of the type `shape`."""
        status, data = await self._reply_to(method, path, body, about, params, None)
        return read_reply(self.url, status, data, shape)

    async def _reply_to(
        self, method: str, path: str, body: object, about: str,
        params: Mapping[str, Any] | None, headers: Mapping[str, str] | None,
    ) -> tuple[int, bytes]:  # fmt: skip
        own = {"X-Chargehand": "1", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        url = f"{self.url}/api/v1/{path}"
        sent = {name: str(value) for name, value in (params or {}).items()}
        way_out = f"the wait ends after {SILENCE:.0f} s of silence"
        wait = ServerWait(self.url, f"the reply to {method} {path}", way_out)
        try:
            with wait:
                async with self._open().request(
                    method, url, data=data, params=sent, ssl=self._tls, allow_redirects=False,
                    headers={**own, **(headers or {})} if body is not None else {},
                ) as reply:  # fmt: skip
                    wait.end()
                    found = await self._body_of(reply)
                    self._refuse_errors(reply, found, about)
                    return reply.status, found
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.url, error) from error

    async def _body_of(self, reply: aiohttp.ClientResponse) -> bytes:
        data = bytearray()
        async for piece in reply.content.iter_chunked(_PIECE):
            data += piece
            if len(data) > MOST_BYTES:
                raise foreign(self.url, reply.status, f"more than {shown_size(MOST_BYTES)}")
        return bytes(data)

    def _refuse_errors(self, reply: aiohttp.ClientResponse, body: bytes, about: str) -> None:
        """Raise the error of an unsuccessful reply."""
        refuse_redirect(self.url, reply.status, reply.headers.get("Location"))
        if reply.status < 400:
            return
        error = error_in(self.url, reply.status, body, about)
        if isinstance(error, ServerRefused) and error.status == 401:
            words = f"{error}; the token came from {self._token_source}"
            raise ServerRefused(words, status=error.status, kind=error.kind)
        raise error

    async def _frames(
        self, run: str, after: int, *, tokens: bool
    ) -> AsyncGenerator[StreamFrame, None]:
        url = f"{self.url}/api/v1/runs/{_part(run)}/events"
        try:
            params = {"after": str(after), "tokens": str(int(tokens))}
            async with self._open().get(
                url, params=params, ssl=self._tls, allow_redirects=False
            ) as reply:
                if reply.status != 200:
                    self._refuse_errors(reply, await self._body_of(reply), run)
                if reply.status != 200 or reply.content_type != EVENT_STREAM:
                    fact = f"{reply.content_type} instead of a stream of events"
                    raise foreign(self.url, reply.status, fact)
                async for frame in frames_in(self.url, reply.content.iter_any()):
                    yield frame
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.url, error) from error

    def _plan_of(self, told: dict[str, Any]) -> RemotePlan:
        found = self._converted({**told, "plan": None}, RemotePlan)
        if told["plan"] is None:
            return found
        try:
            plan = Plan.from_json(msgspec.json.encode(told["plan"]))
        except (UsageError, PlanRefused) as error:
            raise foreign(self.url, 200, f"a plan that cannot be read ({error})") from None
        return msgspec.structs.replace(found, plan=plan)

    def _converted(self, told: dict[str, Any], shape: type[T]) -> T:
        try:
            return msgspec.convert(told, shape)
        except UNREADABLE as error:
            raise foreign(self.url, 200, fact_of(b"{}", error)) from None


def _result_of(found: RemoteResult, composed_by: str, output: Any) -> RemoteResult:
    # An answer composed by rules lists the results so far, so it does not have the type `output`.
    if output is None or found.answer is None or composed_by == BY_RULES:
        return found
    return msgspec.structs.replace(found, answer=typed(output, found.answer))


def _address_in(url: str) -> str:
    """The address of a server without the fragment. Raises `UsageError` if nothing could ever be sent there."""
    shown, why = url.partition("#")[0], ""
    address = shown.rstrip("/")
    try:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https"):
            why = "give http://… or https://…"
        elif parts.username is not None:
            shown = shown.replace(
                f"{parts.netloc.rpartition('@')[0]}@", "…@"
            )  # it may be a password
            why = "leave out what is in front of the @; a token goes into CHARGEHAND_TOKEN"
        elif not parts.hostname:
            why = "it has no host; give one such as http://127.0.0.1:8642"
        elif parts.port == 0:
            why = "no server has port 0"
    except ValueError as error:  # a port above 65535, or half an IPv6 address
        why = str(error)
    if why:
        raise UsageError(f"{shown!r} is no address of a server; {why}")
    return address


def _part(id_: str) -> str:
    """An id quoted as one part of a path, so that no id can lead to another route."""
    return quote(id_, safe="")


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        refuse_special_file(ca_file)
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError, UsageError) as error:  # ssl.SSLError is an OSError
        words = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"ca_file={str(ca_file)!r} cannot be read: {words}") from None


def _unreachable(url: str, error: BaseException) -> ServerUnreachable:
    said = error.message if isinstance(error, aiohttp.ClientResponseError) else str(error)
    words = one_line(said, _LONGEST_WHY) or type(error).__name__
    return ServerUnreachable(
        f"{url} cannot be reached: {words}; is chargehand serve running there?"
    )
