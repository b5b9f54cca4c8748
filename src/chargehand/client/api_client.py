"""Drives a `chargehand serve` of any machine: submit, follow, answer, control, read the result."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from msgspec import Raw, Struct

from chargehand.background_loop import wait_in_background
from chargehand.client.token_sources import find_token
from chargehand.errors import (
    Fault,
    KeyConflict,
    PlanChanged,
    PlanRefused,
    QuestionTaken,
    ServerRefused,
    ServerUnreachable,
    UnknownQuestion,
    UnknownRun,
    UsageError,
)
from chargehand.facts.answer import BY_RULES, Claim, Gap
from chargehand.facts.events import RunStatus
from chargehand.facts.output_schema import shape_of
from chargehand.facts.plan import Plan
from chargehand.roles.json_output import typed

T = TypeVar("T")
#: seconds before the first, and the last, try to connect again; after so many in a row it gives up
FIRST_WAIT, LONGEST_WAIT, MOST_TRIES = 0.2, 5.0, 10
#: seconds without a byte, after which a stream is taken for dead: the server sends something every 15
SILENCE = 40.0
#: by the name of a frame, the kind of the object that is streamed in Python
_PIECES = {"token": "TaskPiece", "answer": "AnswerPiece"}


class RemoteResult(Struct, frozen=True, kw_only=True):
    """The result of a run, as the server reports it."""

    id: str
    status: str
    #: text, or of a run with structured output the object: of the type that was given as `output`, else JSON. None if
    #: there is no answer
    answer: Any
    #: the answer as text; empty if there is none
    text: str = ""
    #: the answer as JSON; text stays text
    answer_json: Any = None
    claims: tuple[Claim, ...] = ()
    gaps: tuple[Gap, ...] = ()
    confidence: float = 0.0
    usage: dict[str, float] = {}
    #: untrusted sources that the answer derives from
    taint: tuple[str, ...] = ()

    @property
    def output(self) -> Any:
        """The answer, under the name that it has in the result of a local run."""
        return self.answer

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, so that this result is final."""
        return self.status in {each.value for each in RunStatus}


class RemotePlan(Struct, frozen=True, kw_only=True):
    """The plan of a run, as the server reports it."""

    #: None before there is one
    plan: Plan | None
    version: int
    #: names what was read, for `change_plan`, `approve_plan` and `reject_plan`
    etag: str
    #: ids of the tasks that were never started, and so may be changed
    editable: tuple[str, ...] = ()
    #: the plan or change that waits for approval: question, plan, is_change, removed, replaced, reason, draft
    review: dict[str, Any] | None = None
    #: after a change: new ids by old ones
    renamed: dict[str, str] = {}
    #: why a change that was accepted is not in the plan yet; empty if it is
    pending: str = ""


class RemoteCost(Struct, frozen=True, kw_only=True):
    """What a run has spent, as the server reports it."""

    by_worker: list[dict[str, Any]]
    by_model: list[dict[str, Any]]
    by_task: list[dict[str, Any]]
    #: what was spent in vain
    waste: Any
    #: calls, tokens_in, tokens_out, cache_read, cache_written, money
    usage: dict[str, float]
    #: money, tokens, calls; None: no limit
    budget: dict[str, float | None]


class Client:
    """A client of the HTTP API. Use it in `async with`, or one call at a time with `run_sync`.

    The token is taken from `token`, `token_file`, the environment (CHARGEHAND_TOKEN,
    CHARGEHAND_TOKEN_FILE), the keyring, or for a server on this machine the file `tokens.json` beside its
    journal, in this order. `ca_file` is for a server with a certificate of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: str | os.PathLike[str] = "",
        ca_file: str | os.PathLike[str] = "",
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is no address of a server; give http://… or https://…")
        self.url = url.partition("#")[0].rstrip("/")
        fragment = url.partition("#token=")[2]
        self._token, self._token_source = find_token(self.url, token or fragment, token_file)
        self._tls = ssl.create_default_context(cafile=os.fspath(ca_file)) if ca_file else True
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
        return str((await self._call("POST", "runs", body, about=str(options.get("key"))))["id"])

    async def run(self, request: str | Plan, **options: Any) -> RemoteResult:
        """Start a run, wait for its end, and return the result."""
        run = await self.submit(request, **options)
        return await self.wait(run, output=options.get("output"))

    def run_sync(self, request: str | Plan, **options: Any) -> RemoteResult:
        """`run` for callers without an event loop."""
        return self._sync(self.run(request, **options))

    async def wait(self, run: str, *, output: Any = None) -> RemoteResult:
        """The result of a run, once it has ended; `output` is the type that the run was started with."""
        async for _ in self.events(run):
            pass
        return await self.result(run, output=output)

    async def result(self, run: str, *, output: Any = None) -> RemoteResult:
        """The result of a run, or its state so far; `output` is the type that the run was started with."""
        told = await self._call("GET", f"runs/{_part(run)}/result", about=run)
        return _result_of(run, told, output)

    async def runs(self, **options: Any) -> list[dict[str, Any]]:
        """Runs, the newest first; options are those of `GET runs`: state, q, limit."""
        found: list[dict[str, Any]] = (await self._call("GET", "runs", params=options))["runs"]
        return found

    async def snapshot(self, run: str) -> dict[str, Any]:
        """Everything about a run except payloads."""
        found: dict[str, Any] = await self._call("GET", f"runs/{_part(run)}/snapshot", about=run)
        return found

    async def trace(self, run: str, *, content: bool = True) -> dict[str, Any]:
        """The trace of a run, as `chargehand trace --json` prints it; without `content`, no payloads."""
        params = {"content": int(content)}
        found: dict[str, Any] = await self._call(
            "GET", f"runs/{_part(run)}/trace", params=params, about=run
        )
        return found

    async def cost(self, run: str) -> RemoteCost:
        """What a run has spent, by worker, model and task."""
        told = await self._call("GET", f"runs/{_part(run)}/cost", about=run)
        return msgspec.convert(told, RemoteCost)

    async def events(
        self, run: str, after: int = 0, *, tokens: bool = False
    ) -> AsyncIterator[dict[str, Any]]:
        """Stream every event of a run after this number, each once, until the run ends.

        With `tokens`, also what models write, as it comes and without a `seq`: objects of the kinds
        `TaskPiece`, `AnswerPiece`, and `PiecesDropped` with the number of pieces that were `dropped`.

        Connects again when the connection is lost or the server restarts. Raises `ServerUnreachable`
        when that fails ten times in a row.
        """
        tries = 0
        while True:
            try:
                async for kind, data in self._frames(run, after, tokens=tokens):
                    tries = 0
                    if kind == "end":
                        return
                    if tokens and kind in _PIECES:
                        yield {
                            "kind": "PiecesDropped" if "dropped" in data else _PIECES[kind],
                            **data,
                        }
                    for event in data if not kind else ():
                        after = event["seq"]
                        yield event
            except ServerUnreachable:
                tries += 1
                if tries == MOST_TRIES:
                    raise
            await asyncio.sleep(min(FIRST_WAIT * 2**tries, LONGEST_WAIT))

    # control

    async def cancel(self, run: str, reason: str = "", *, answer_now: bool = False) -> None:
        """Cancel a run; with `answer_now`, make it answer from the results so far."""
        body = {"reason": reason, "answer_now": answer_now}
        await self._call("POST", f"runs/{_part(run)}/cancel", body, about=run)

    async def pause(self, run: str, reason: str = "") -> None:
        """Start nothing new in a run until it is unpaused."""
        await self._call("POST", f"runs/{_part(run)}/pause", {"reason": reason}, about=run)

    async def unpause(self, run: str) -> None:
        """Continue a paused run."""
        await self._call("POST", f"runs/{_part(run)}/unpause", {}, about=run)

    async def steer(self, run: str, note: str, *, key: str = "") -> None:
        """Have a model change the remaining work as the note says. The same key again changes nothing."""
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
        """Raise or lower the budget of a run; a cap that is None stays as it is."""
        body = {"money": money, "tokens": tokens, "calls": calls}
        await self._call("POST", f"runs/{_part(run)}/budget", body, about=run)

    async def resume(self, run: str, *, accept: bool = False) -> None:
        """Have the server resume an interrupted run; with `accept`, even if its crew has changed."""
        await self._call("POST", f"runs/{_part(run)}/resume", {"accept": accept}, about=run)

    async def retry(
        self, run: str, tasks: Sequence[str] = (), *, repeat_effects: bool = False
    ) -> str:
        """Run tasks again in a new run, by default those that failed; returns the id of the new run."""
        body = {"tasks": list(tasks), "repeat_effects": repeat_effects}
        return str((await self._call("POST", f"runs/{_part(run)}/retry", body, about=run))["id"])

    # plans

    async def plan(self, run: str) -> RemotePlan:
        """The plan of a run, and the part of it that is waiting for approval."""
        return _plan_of(await self._call("GET", f"runs/{_part(run)}/plan", about=run))

    async def change_plan(self, run: str, plan: Plan, *, etag: str, reason: str = "") -> RemotePlan:
        """Replace the unstarted part of a plan; of one under review, save a draft.

        `etag` is that of the plan that was read. Raises `PlanChanged` if it is another by now, and
        `PlanRefused` with all faults.
        """
        body = {"plan": Raw(plan.to_json(indent=None).encode()), "reason": reason}
        headers = {"If-Match": f'"{etag}"'}
        path = f"runs/{_part(run)}/plan"
        return _plan_of(await self._call("PUT", path, body, about=run, headers=headers))

    async def approve_plan(self, run: str, *, etag: str = "") -> None:
        """Approve the plan under review, or its draft; with `etag`, only if it has not changed since."""
        body = {"version": etag or None}
        await self._call("POST", f"runs/{_part(run)}/plan/approve", body, about=run)

    async def reject_plan(self, run: str, note: str = "", *, etag: str = "") -> None:
        """Reject the plan under review; with a note, have it written again."""
        body = {"version": etag or None, "note": note}
        await self._call("POST", f"runs/{_part(run)}/plan/reject", body, about=run)

    # questions

    async def questions(self, run: str = "") -> list[dict[str, Any]]:
        """The open questions of a run, or of all."""
        path = f"runs/{_part(run)}/questions" if run else "questions"
        found: list[dict[str, Any]] = (await self._call("GET", path, about=run))["questions"]
        return [each for each in found if each["answered"] is None and not each["is_closed"]]

    async def answer(self, question: str, text: str) -> None:
        """Answer a question. Raises `QuestionTaken` if somebody else was faster."""
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
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, Any] | None = None,
        about: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        own = {"X-Chargehand": "1", "Content-Type": "application/json"}
        data = None if body is None else msgspec.json.encode(body)
        url = f"{self.url}/api/v1/{path}"
        sent = {name: str(value) for name, value in (params or {}).items()}
        try:
            async with self._open().request(
                method, url, data=data, params=sent, ssl=self._tls, allow_redirects=False,
                headers={**own, **(headers or {})} if body is not None else {},
            ) as reply:  # fmt: skip
                return self._read(reply.status, await reply.read(), about)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.url, error) from error

    def _read(self, status: int, body: bytes, about: str) -> Any:
        try:
            return _read(status, body, self.url, about)
        except ServerRefused as error:
            if error.status != 401:
                raise
            words = f"{error}; the token came from {self._token_source}"
            raise ServerRefused(words, status=error.status, kind=error.kind) from None

    async def _frames(
        self, run: str, after: int, *, tokens: bool
    ) -> AsyncIterator[tuple[str, Any]]:
        url = f"{self.url}/api/v1/runs/{_part(run)}/events"
        try:
            params = {"after": str(after), "tokens": str(int(tokens))}
            async with self._open().get(
                url, params=params, ssl=self._tls, allow_redirects=False
            ) as reply:
                if reply.status != 200:
                    self._read(reply.status, await reply.read(), run)
                async for frame in _frames_in(reply.content):
                    yield frame
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.url, error) from error


async def _frames_in(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, Any]]:
    """The frames of a stream of events: the kind and the data."""
    buffer = b""
    async for chunk in content.iter_any():
        buffer += chunk
        *whole, buffer = buffer.split(b"\n\n")
        for frame in whole:
            fields = dict(line.split(b": ", 1) for line in frame.split(b"\n") if b": " in line)
            if b"data" in fields:
                yield fields.get(b"event", b"").decode(), msgspec.json.decode(fields[b"data"])


def _result_of(run: str, told: dict[str, Any], output: Any) -> RemoteResult:
    answer, text = told["answer_json"], told["answer"] or ""
    found = msgspec.convert({"id": run, **told, "answer": answer, "text": text}, RemoteResult)
    # An answer that rules composed has not the type that was asked for: it lists the results so far.
    if output is None or answer is None or told["composed_by"] == BY_RULES:
        return found
    return msgspec.structs.replace(found, answer=typed(output, answer))


def _plan_of(told: dict[str, Any]) -> RemotePlan:
    found = msgspec.convert({**told, "plan": None}, RemotePlan)
    plan = None if told["plan"] is None else Plan.from_json(msgspec.json.encode(told["plan"]))
    return msgspec.structs.replace(found, plan=plan)


def _part(id_: str) -> str:
    """An id as a part of a path: no id can lead to another route."""
    return quote(id_, safe="")


def _unreachable(url: str, error: BaseException) -> ServerUnreachable:
    words = str(error) or type(error).__name__
    return ServerUnreachable(
        f"{url} cannot be reached: {words}; is chargehand serve running there?"
    )


def _read(status: int, body: bytes, url: str, about: str = "") -> Any:
    """The JSON of a reply to a request about this run, question or key. Raises what an error in it means."""
    try:
        data = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError:
        raise ServerRefused(
            f"{url} answered {status} with something else than JSON; is it a chargehand server?"
        ) from None
    if status < 400:
        return data
    told = data.get("error", {}) if isinstance(data, dict) else {}
    message, hint = str(told.get("message", f"status {status}")), told.get("hint", "")
    match kind := str(told.get("kind", "")):
        case "QuestionTaken":
            raise QuestionTaken(about, data["by"], data["text"])
        case "PlanRefused":
            raise PlanRefused([Fault(f["kind"], f["task"], f["message"]) for f in data["faults"]])
        case "PlanChanged":
            raise PlanChanged(about, data["current"]["version"])
        case "UnknownRun":
            raise UnknownRun(about)
        case "UnknownQuestion":
            raise UnknownQuestion(about)
        case "KeyConflict":
            raise KeyConflict(about, data["run"], data["differs"])
        case _:
            words = f"{message}; {hint}" if hint else message
            raise ServerRefused(words, status=status, kind=kind)
