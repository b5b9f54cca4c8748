"""A fake model provider: a local HTTP server that can inject faults."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from msgspec.structs import replace

from chargehand.errors import UsageError
from chargehand.facts.argument_checks import shown
from chargehand.models.base import Model, ToolCall
from chargehand.models.connection_settings import ModelTimeouts
from chargehand.models.open_model import open_model
from chargehand.testing.fault_plan import FaultPlan, FaultSchedule, broken_json
from chargehand.testing.model_protocols import Say
from chargehand.testing.model_server import (
    Body,
    Cut,
    Later,
    Line,
    ModelServer,
    Received,
    Status,
    model_server,
)

#: a reply of a fake provider: a text, or tool calls
ProviderReply: TypeAlias = "str | ToolCall | Sequence[ToolCall]"
#: delay of a reply that never comes, in seconds: clients have given up by then
_NEVER = 3600.0
_PAGE = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


class FakeProvider:
    """An HTTP server on this machine that answers like a model provider, until the `with` block ends.

        with FakeProvider(["Paris"], faults={1: "429"}) as provider:
            boss = ch.Supervisor(workers, model=provider.model)

    It speaks the protocols of OpenAI and Anthropic, streamed and not streamed. `replies` are sent in order, or made by
    a function from the JSON body of a request. If no reply is left, a call gets status 400. A call with a fault uses up
    no reply.
    """

    def __init__(
        self,
        replies: "Iterable[ProviderReply] | Callable[[dict[str, Any]], ProviderReply]",
        *,
        faults: FaultPlan | None = None,
        patience: float = 0.5,
    ) -> None:
        if isinstance(replies, str):
            raise UsageError("replies are a list: FakeProvider(['…', '…'])")
        self._make = replies if callable(replies) else None
        self._left = [] if callable(replies) else list(replies)
        self._schedule = FaultSchedule(faults or {})
        self._patience = patience
        self._server: ModelServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._serve, name="fake provider", daemon=True)

    @property
    def url(self) -> str:
        """The base URL for OpenAI's protocol."""
        return f"{self._running.url}/v1"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for child processes that use it with `--model openai:test` or `anthropic:test`."""
        running = self._running
        return {
            "OPENAI_BASE_URL": f"{running.url}/v1",
            "OPENAI_API_KEY": "test",
            "ANTHROPIC_BASE_URL": running.url,
            "ANTHROPIC_API_KEY": "test",
        }

    @property
    def model(self) -> Model:
        """A model of this provider, which waits at most `patience` seconds for an answer."""
        waits = ModelTimeouts(connect=10, answer=self._patience, silence=self._patience)
        return open_model("openai:test", base_url=self.url, key="test", timeouts=waits)

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all requests, in the order of arrival."""
        return [received.body for received in self._running.requests]

    @property
    def calls(self) -> int:
        """The number of calls, including those with faults."""
        return self._schedule.calls

    @property
    def struck(self) -> dict[int, str]:
        """The faults so far, by the number of the call."""
        return dict(self._schedule.struck)

    @property
    def _running(self) -> ModelServer:
        if self._server is None:
            raise UsageError("the provider is not running; use it inside `with FakeProvider(…)`")
        return self._server

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _serve(self) -> None:
        try:
            asyncio.run(self._answer_until_ended())
        except OSError as error:  # no free port
            self._failure = error
        finally:
            self._started.set()

    async def _answer_until_ended(self) -> None:
        async with model_server() as server:
            server.always = self._next
            self._server, self._loop = server, asyncio.get_running_loop()
            self._started.set()
            await self._ended.wait()

    def _next(self, received: Received) -> Line:
        kind = self._schedule.next_fault()
        match kind:
            case "429":
                return Status(
                    status=429,
                    kind="rate_limit_error",
                    words="slow down",
                    headers={"Retry-After": "0"},
                )
            case "500":
                return Status(status=500, kind="api_error", words="internal error")
            case "timeout":
                return Later(seconds=_NEVER, line=Status(status=500))
            case "cut stream":
                return Cut(say=Say(text="This answer breaks off"), at=250)
            case "garbage":
                return Body(content=_PAGE, content_type="text/html")
        reply = self._reply_to(received)
        return _broken(reply) if kind == "bad json" and isinstance(reply, Say) else reply

    def _reply_to(self, received: Received) -> Say | Status:
        if self._make is not None:
            reply: object = self._make(received.body)
        elif self._left:
            reply = self._left.pop(0)
        else:
            words = (
                "the fake provider has no reply left; give it more, or find out why it was asked"
            )
            return Status(status=400, kind="invalid_request_error", words=words)
        if isinstance(reply, str):
            return Say(text=reply)
        calls = (reply,) if isinstance(reply, ToolCall) else tuple(reply) if reply else ()  # type: ignore[arg-type]  # checked below
        if not calls or not all(isinstance(call, ToolCall) for call in calls):
            words = f"{shown(reply)} is not a reply; give a text, a ToolCall or a list of them"
            return Status(status=400, kind="invalid_request_error", words=words)
        return Say(calls=calls)


def _broken(say: Say) -> Say:
    calls = tuple(replace(call, arguments=broken_json(call.arguments)) for call in say.calls)
    return Say(text=broken_json(say.text) if say.text else "", calls=calls)
