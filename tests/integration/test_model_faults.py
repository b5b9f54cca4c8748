"""Rows D1, D3, D4, D5, D7, D9 and D12 of the faults, for every protocol over real HTTP.

A provider may do whatever it likes: a call ends in a whole reply or in the `ModelError` that says
who must act, never in anything else.
"""

import asyncio
import base64
import gzip
import json
import logging
import random
import re
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote

import pytest

import chargehand as ch
from chargehand.errors import (
    ModelBusy,
    ModelDenied,
    ModelError,
    ModelExhausted,
    ModelForbidden,
    ModelGarbled,
    ModelRefused,
    ModelTooSlow,
    ModelUnknown,
    ModelUnreachable,
    UsageError,
)
from chargehand.facts.outcome import ErrorClass, classify, failed_by
from chargehand.models.base import (
    Image,
    Model,
    ModelReply,
    ModelRequest,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolSpec,
    Turn,
    user,
)
from chargehand.models.connection_settings import ModelTimeouts
from chargehand.models.gateway import CallTerms
from chargehand.models.open_model import open_model
from chargehand.testing.model_server import (
    DIALECTS,
    Body,
    Cut,
    Framing,
    Later,
    Line,
    ModelServer,
    Say,
    Status,
    Wire,
    complete_at,
    event,
    model_server,
    wire,
)
from chargehand.tools.redaction import Redactor
from tests.guide.conftest import make_plan, make_task

#: of a shape that nothing but its exact text could be known by
KEY = "my-own-secret-0123456789"
REQUEST = ModelRequest(turns=(user("hello"),), tools=(ToolSpec("add", "Adds", {"type": "object"}),))


def opened(protocol: str, url: str, **options: Any) -> Model:
    options = {"key": KEY, **options}
    if protocol == "anthropic":
        return open_model("anthropic:claude-sonnet-5", base_url=url, **options)
    chosen: Any = protocol
    return open_model("openai:gpt-5", base_url=f"{url}/v1", protocol=chosen, **options)


async def asked(model: Model, request: ModelRequest = REQUEST) -> ModelReply:
    return await model.ask(request)


async def streamed(model: Model, request: ModelRequest = REQUEST) -> ModelReply:
    reply = None
    async for item in model.stream(request):
        assert reply is None, "nothing comes after the reply"
        if isinstance(item, ModelReply):
            reply = item
    assert reply is not None, "a stream ends with a reply or with an error"
    return reply


Way = Callable[..., Awaitable[ModelReply]]


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.fixture(params=["chat", "responses", "anthropic"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[asked, streamed], ids=["whole", "streamed"])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


# D1, D3, D12: what a status means

MEANINGS = [
    (400, ModelRefused, ErrorClass.LOGIC),
    (401, ModelDenied, ErrorClass.DENIED),
    (402, ModelExhausted, ErrorClass.RESOURCE),
    (403, ModelForbidden, ErrorClass.DENIED),
    (404, ModelUnknown, ErrorClass.LOGIC),
    (410, ModelUnknown, ErrorClass.LOGIC),
    (405, ModelRefused, ErrorClass.LOGIC),
    (408, ModelTooSlow, ErrorClass.TIMEOUT),
    (413, ModelRefused, ErrorClass.LOGIC),
    (422, ModelRefused, ErrorClass.LOGIC),
    (429, ModelBusy, ErrorClass.RESOURCE),
    (500, ModelUnreachable, ErrorClass.NETWORK),
    (502, ModelUnreachable, ErrorClass.NETWORK),
    (503, ModelUnreachable, ErrorClass.NETWORK),
    (504, ModelTooSlow, ErrorClass.TIMEOUT),
    (529, ModelBusy, ErrorClass.RESOURCE),
    (599, ModelUnreachable, ErrorClass.NETWORK),
    (307, ModelRefused, ErrorClass.LOGIC),
    (204, ModelRefused, ErrorClass.LOGIC),
]


@pytest.mark.parametrize(("status", "kind", "means"), MEANINGS)
async def test_each_status_is_the_right_error_after_one_call(
    server: ModelServer,
    protocol: str,
    way: Way,
    status: int,
    kind: type[ModelError],
    means: ErrorClass,
) -> None:
    """One call, not several: trying again is for the policy to decide, which sees every try."""
    server.always = Status(status=status, words="the fact")
    with pytest.raises(kind) as caught:
        await way(opened(protocol, server.url))
    assert type(caught.value) is kind
    assert classify(caught.value) is means
    assert means.is_final == (status in (401, 403))
    assert len(server.requests) == 1
    words = str(caught.value)
    provider = "anthropic" if protocol == "anthropic" else "openai"
    host = server.url.removeprefix("http://")
    assert words.startswith(f"{provider} at {host} answered {status}")
    assert "req_1" in words
    assert ";" in words, "the way out"
    if status != 204:
        assert "the fact" in words


def dated(header: str) -> str:
    """A header as it stands, or the date that lies `in` so many seconds."""
    if not header.startswith("in "):
        return header
    at = datetime.now(UTC) + timedelta(seconds=int(header.removeprefix("in ")))
    return format_datetime(at, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": "0.25"}, 0.25, 0.25),
        ({"Retry-After": "-3"}, 0, 0),
        ({"Retry-After": "1e400"}, None, None),
        ({"Retry-After": "99999999999999"}, 3_600, 3_600),
        ({"Retry-After": "86400"}, 3_600, 3_600),
        ({"Retry-After": "soon"}, None, None),
        ({"Retry-After": ""}, None, None),
        ({"Retry-After": "in 60"}, 50, 61),
        ({"Retry-After": "in -60"}, 0, 0),
        ({"Retry-After": "in 3660", "Date": "in 3600"}, 59, 61),
        ({"retry-after-ms": "1500", "Retry-After": "2"}, 1.5, 1.5),
        ({}, None, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_how_long_to_wait_is_read_in_all_its_forms(
    server: ModelServer,
    headers: dict[str, str],
    least: float | None,
    most: float | None,
    status: int,
) -> None:
    headers = {name: dated(value) for name, value in headers.items()}
    server.always = Status(status=status, headers=headers)
    with pytest.raises(ModelError) as caught:
        await asked(opened("chat", server.url))
    wait = failed_by(caught.value).retry_after
    if least is None or most is None:
        assert wait is None
    else:
        assert wait is not None
        assert least <= wait.total_seconds() <= most


async def test_a_provider_that_recovers_is_asked_again_with_success(
    server: ModelServer, protocol: str
) -> None:
    server.say(*(Status(status=status) for status in (500, 502, 503)))
    server.always = Say(text="back")
    model = opened(protocol, server.url)
    for _ in range(3):
        with pytest.raises(ModelUnreachable):
            await asked(model)
    assert (await asked(model)).text == "back"


# J8: refusals that stay, whatever status they are dressed in

LLAMA = b'{"error":{"code":400,"message":"request (9 tokens) exceeds the available context size (4 tokens)","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":4}}'
VLLM = b'{"object":"error","message":"This model\'s maximum context length is 4096 tokens","type":"BadRequestError","param":null,"code":400}'


def complaint(words: str, kind: str | None = None, code: str | None = None) -> bytes:
    return json.dumps({"error": {"message": words, "type": kind, "code": code}}).encode()


LASTING = [
    # status, body, error, words of the provider
    (429, complaint("You exceeded it", "insufficient_quota", "insufficient_quota"), "Exhausted", "exceeded it"),
    (429, complaint("You exceeded your current quota, please check your plan"), "Exhausted", "current quota"),
    (403, complaint("No credit", "insufficient_quota"), "Exhausted", "No credit"),
    (400, complaint("Your credit balance is too low to access the API", "invalid_request_error"), "Exhausted", "credit balance"),
    (402, complaint("Insufficient Balance", "unknown_error"), "Exhausted", "Insufficient Balance"),
    (500, complaint("Hard limit reached", None, "billing_hard_limit_reached"), "Exhausted", "Hard limit"),
    (503, complaint("insufficient credits"), "Exhausted", "insufficient credits"),
    (404, complaint("The model `gpt-9` does not exist", "invalid_request_error", "model_not_found"), "Unknown", "gpt-9"),
    (404, b'{"error":"model \'qwen9\' not found"}', "Unknown", "qwen9"),
    (500, b'{"error":"model \'qwen9\' not found, try pulling it first"}', "Unknown", "qwen9"),
    (400, complaint("too long", "invalid_request_error", "context_length_exceeded"), "Refused", "too long"),
    (500, LLAMA, "Refused", "context size"),
    (400, LLAMA, "Refused", "context size"),
    (400, VLLM, "Refused", "4096"),
    (503, VLLM, "Refused", "4096"),
    (429, complaint("Request too large for gpt-4 on tokens per min", "tokens", "rate_limit_exceeded"), "Refused", "too large"),
    (413, complaint("Request exceeds the maximum size", "request_too_large"), "Refused", "maximum size"),
    (400, complaint("temperature: 9", "invalid_request_error"), "Refused", "temperature"),
    (500, complaint("temperature: 9", "invalid_request_error"), "Refused", "temperature"),
    (422, b'{"detail":[{"loc":["body"],"msg":"field required"}]}', "Refused", "field required"),
    (403, complaint("Not for you", "permission_error"), "Forbidden", "Not for you"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "words"), LASTING)
async def test_j8_a_refusal_that_stays_fails_at_once_in_the_providers_words(
    server: ModelServer, protocol: str, way: Way, status: int, body: bytes, kind: str, words: str
) -> None:
    server.always = Status(status=status, body=body)
    model = opened(protocol, server.url)
    with pytest.raises(ModelError, match=re.escape(words)) as caught:
        await way(model)
    assert type(caught.value).__name__ == f"Model{kind}"
    failed = failed_by(caught.value)
    assert failed.is_final or failed.kind.is_final
    asking = ch.ModelGateway().ask([model], REQUEST, terms=CallTerms(may_park=True))
    with pytest.raises(type(caught.value)):
        await asyncio.wait_for(asking, 2)
    assert len(server.requests) == 2, "one call each"


@pytest.mark.parametrize("status", [429, 529])
@pytest.mark.parametrize(
    "body",
    [
        complaint("Rate limit reached for requests", "requests", "rate_limit_exceeded"),
        complaint("Overloaded", "overloaded_error"),
        b'{"error":"too many requests"}',
        b"",
    ],
)
async def test_j8_what_passes_is_not_taken_for_what_stays(
    server: ModelServer, status: int, body: bytes
) -> None:
    server.always = Status(status=status, body=body)
    with pytest.raises(ModelBusy):
        await asked(opened("chat", server.url))
    quota = complaint("You exceeded your current quota")
    server.always = Status(status=429, body=quota, headers={"Retry-After": "3"})
    with pytest.raises(ModelBusy):
        await asked(opened("chat", server.url))


async def test_j8_a_run_with_a_used_up_quota_fails_with_its_first_call(server: ModelServer) -> None:
    server.always = Status(status=429, body=LASTING[0][1])
    mind = ch.Worker("mind", "Thinks", model=opened("chat", server.url))
    result = await asyncio.wait_for(ch.Supervisor([mind]).run(make_plan(make_task("t", "mind"))), 2)
    assert result.status == "failed"
    error = result.tasks["t"].error
    assert error is not None
    assert "exceeded it" in error.message
    assert len(server.requests) == 1


async def test_a_filter_of_the_provider_is_a_refusal_not_a_failure(
    server: ModelServer, way: Way
) -> None:
    body = {"error": {"message": "filtered", "code": "content_filter", "status": 400}}
    server.always = Status(status=400, body=json.dumps(body).encode())
    reply = await way(opened("chat", server.url))
    assert reply.stop is StopReason.REFUSAL
    assert "filtered" in reply.text


# Row D4, connecting and waiting


@contextmanager
def black_hole() -> Iterator[str]:
    """An address where nobody ever picks up: its queue of connections is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = []
        for _ in range(4):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(listening.getsockname())
            waiting.append(caller)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for caller in waiting:
                caller.close()


async def taken_by(call: Awaitable[Any], kind: type[ModelError], words: str) -> float:
    begun = asyncio.get_running_loop().time()
    with pytest.raises(kind, match=words):
        await call
    return asyncio.get_running_loop().time() - begun


async def test_d4_a_connection_that_never_comes_is_given_up_in_time(
    protocol: str, way: Way
) -> None:
    timeouts = ModelTimeouts(connect=timedelta(seconds=0.2))
    with black_hole() as url:
        model = opened(protocol, url, timeouts=timeouts)
        taken = await taken_by(way(model), ModelTooSlow, r"no connection .* within 0.2 s")
    assert 0.1 < taken < 1.2


@pytest.mark.parametrize("at", [0, 10, 120])
async def test_d4_a_reply_that_stalls_is_given_up_in_time(
    server: ModelServer, protocol: str, way: Way, at: int
) -> None:
    limit = timedelta(seconds=0.2)
    timeouts = ModelTimeouts(answer=limit) if way is asked else ModelTimeouts(silence=limit)
    server.say(Cut(say=Say(text="a reply of some length"), at=at, then="stall"))
    model = opened(protocol, server.url, timeouts=timeouts)
    words = "took longer .*timeouts.answer, now 0.2 s" if way is asked else "fell silent"
    taken = await taken_by(way(model), ModelTooSlow, words)
    assert 0.1 < taken < 1.2
    assert len(server.requests) == 1
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_a_call_can_be_limited_as_a_whole(
    server: ModelServer, protocol: str, way: Way
) -> None:
    server.say(Later(seconds=30, line=Say(text="late")))
    model = opened(protocol, server.url, timeouts=ModelTimeouts(total=timedelta(seconds=0.2)))
    assert await taken_by(way(model), ModelTooSlow, r"timeouts.total, now 0.2 s") < 1.2


async def test_a_reply_that_is_only_slow_is_waited_for(server: ModelServer, protocol: str) -> None:
    server.say(Later(seconds=0.4, line=Say(text="thought through")))
    model = opened(protocol, server.url, timeouts=ModelTimeouts(silence=timedelta(seconds=0.1)))
    assert (await asked(model)).text == "thought through"


# D5: a reply cut at every byte

CUT_SAY = Say(text="öne", calls=(ToolCall("c", "add", '{"a":1}'),), thinking="t", piece=4)


async def cut_everywhere(server: ModelServer, protocol: str, way: Way, framing: Framing) -> int:
    """Cut the reply at every byte; returns how many of the cuts left a whole reply."""
    model = opened(protocol, server.url)
    server.always = Say(text="probe")
    await way(model)
    body = server.requests[-1].body
    whole = Cut(say=CUT_SAY, at=0, framing=framing)
    content = wire(DIALECTS[protocol], whole, body)
    complete = complete_at(DIALECTS[protocol], whole, body)
    server.say(Wire(content))
    expected = await way(model)
    accepted = 0
    for at in range(len(content)):
        server.say(Wire(content[:at]))
        outcome = await tried(way(model))
        if isinstance(outcome, ModelError):
            assert classify(outcome) is ErrorClass.NETWORK, outcome
        else:
            assert at >= complete, f"{at} of {complete} bytes were taken for a whole reply"
            assert outcome == expected
            accepted += 1
    return accepted


async def tried(call: Awaitable[ModelReply]) -> ModelReply | ModelError:
    """What came of a call; any other error than a `ModelError` fails the test."""
    try:
        return await call
    except ModelError as error:
        return error


@pytest.mark.parametrize(
    ("way", "framing"),
    [(asked, "length"), (asked, "close"), (streamed, "chunked"), (streamed, "close")],
    ids=["whole-length", "whole-close", "streamed-chunked", "streamed-close"],
)
async def test_d5_a_reply_that_is_cut_is_never_taken_for_a_whole_one(
    server: ModelServer, protocol: str, way: Way, framing: Framing
) -> None:
    """At every byte, headers included, and with each way that HTTP has to end a body.

    One of them, a body that ends with its connection, says nothing of being cut: only the
    protocol's own end mark tells.
    """
    accepted = await cut_everywhere(server, protocol, way, framing)
    most = len(b"\r\n0\r\n\r\n") if framing == "chunked" else 0
    assert accepted <= most, "only what HTTP itself ends with may be missing"


async def test_d5_a_stream_that_ends_well_before_its_end_mark_is_not_complete(
    server: ModelServer,
) -> None:
    """As a proxy does that loses its server: HTTP is intact, the reply is not."""
    body = {"stream": True, "model": "gpt-5", "stream_options": {"include_usage": True}}
    for protocol, dialect in DIALECTS.items():
        events = [*dialect.events(CUT_SAY, body)]
        for count in range(len(events)):
            server.say(Body(content=b"".join(events[:count])))
            with pytest.raises(ModelGarbled, match="broke off"):
                await streamed(opened(protocol, server.url))


async def test_a_page_instead_of_a_stream_is_named_as_what_it_is(
    server: ModelServer, protocol: str
) -> None:
    """As a wrong base URL gives, of a web server that answers any path."""
    server.say(Body(content=b"<html>welcome</html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(ModelGarbled, match=r"is text/html, not a stream of events.*check that"):
        await streamed(opened(protocol, server.url))


async def test_the_end_mark_alone_is_no_reply(server: ModelServer) -> None:
    ends = {
        "chat": event("[DONE]"),
        "responses": event({"type": "response.completed"}),
        "anthropic": event({"type": "message_stop"}),
    }
    for protocol, end in ends.items():
        server.say(Body(content=end))
        with pytest.raises(ModelGarbled):
            await streamed(opened(protocol, server.url))


# D7: whatever else may come

BROKEN = [
    b"",
    b" ",
    b"null",
    b"true",
    b"7",
    b"[]",
    b"{}",
    b'"text"',
    b"{",
    b"\xff\xfe\x00",
    b'{"choices":[],"output":[],"content":[]}',
    b'{"choices":null,"output":null,"content":null}',
    b'{"choices":{},"output":{},"content":{}}',
    b'{"choices":[{}],"output":[{}],"content":[{}]}',
    b'{"choices":[7],"output":[7],"content":[7]}',
    b'{"choices":[{"message":{"content":7},"finish_reason":"stop"}]}',
    b'{"choices":[{"message":{"content":"a"},"finish_reason":null}]}',
    b'{"choices":[{"message":{"content":"a"},"finish_reason":"why"}]}',
    b'{"choices":[{"message":{"content":"a"},"finish_reason":"tool_calls"}]}',
    b'{"choices":[{"message":{"tool_calls":[{}]},"finish_reason":"tool_calls"}]}',
    b'{"choices":[{"message":{"tool_calls":[{"function":{"name":""}}]},"finish_reason":"stop"}]}',
    b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":"lots"}',
    b'{"status":"completed","output":[{"type":"message","content":"a"}]}',
    b'{"status":"completed","output":[{"type":"function_call"}]}',
    b'{"status":"in_progress","output":[]}',
    b'{"status":"cancelled","output":[]}',
    b'{"status":"incomplete","output":[],"incomplete_details":{"reason":"bored"}}',
    b'{"status":"incomplete","output":[]}',
    b'{"content":[{"type":"text","text":7}],"stop_reason":"end_turn"}',
    b'{"content":[{"type":"text","text":"a"}],"stop_reason":"pause_turn"}',
    b'{"content":[{"type":"text","text":"a"}]}',
    b'{"content":[{"type":"tool_use"}],"stop_reason":"tool_use"}',
    b'{"content":[],"stop_reason":"tool_use"}',
    b"<!doctype html><html><title>Welcome</title></html>",
    b"[" * 200_000,
    b'{"choices":' + b"[" * 200_000,
    b'{"content":' + b'{"a":' * 200_000,
    b'{"x":' + b"9" * 5_000 + b"}",
]


@pytest.mark.parametrize("content", BROKEN, ids=[str(n) for n in range(len(BROKEN))])
async def test_what_is_no_reply_is_garbled(
    server: ModelServer, protocol: str, content: bytes
) -> None:
    model = opened(protocol, server.url)
    server.say(Body(content=content), Body(content=event(content.decode("latin-1"))))
    for way in (asked, streamed):
        with pytest.raises(ModelGarbled) as caught:
            await way(model)
        assert len(str(caught.value)) < 1_000


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "full"}, ModelBusy),
        ({"type": "rate_limit_error", "message": "slow"}, ModelBusy),
        ({"code": 429, "message": "slow"}, ModelBusy),
        ({"code": "rate_limit_exceeded", "message": "slow"}, ModelBusy),
        ({"code": 502, "message": "upstream"}, ModelUnreachable),
        ({"type": "api_error", "message": "oh"}, ModelUnreachable),
        ({"code": "server_error", "message": "oh"}, ModelUnreachable),
        ({"type": "authentication_error", "message": "who?"}, ModelDenied),
        ({"type": "invalid_request_error", "message": "what?"}, ModelRefused),
        ({"type": "timeout_error", "message": "zzz"}, ModelTooSlow),
        ({"message": ["odd"], "code": ["odd"], "type": {}}, ModelUnreachable),
        ("just words", ModelUnreachable),
        ([1], ModelUnreachable),
    ],
)
async def test_an_error_inside_a_reply_that_began_well_is_that_error(
    server: ModelServer, protocol: str, error: Any, kind: type[ModelError]
) -> None:
    content = {"type": "error", "error": error}
    server.say(Body(content=json.dumps(content).encode()), Body(content=event(content)))
    model = opened(protocol, server.url)
    for way in (asked, streamed):
        with pytest.raises(kind, match="answered 200 with an error"):
            await way(model)


def mangled(content: bytes, chance: random.Random) -> bytes:
    """`content` with a few bytes, or a few values of its JSON, changed for others."""
    if chance.random() < 0.5:
        changed = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(changed))
            match chance.randrange(3):
                case 0:
                    changed[place] = chance.randrange(256)
                case 1:
                    del changed[place]
                case _:
                    changed[place:place] = chance.randbytes(3)
        return bytes(changed)
    tokens = ["null", "true", "0", "-1", "1e99", '""', '"x"', "[]", "{}", "[null]", '{"type":7}']
    words = content.split(b":")
    place = chance.randrange(1, len(words)) if len(words) > 1 else 0
    head, comma, tail = words[place].partition(b",")
    del head
    words[place] = chance.choice(tokens).encode() + comma + tail
    return b":".join(words)


async def test_d7_only_model_errors_escape_whatever_the_bytes(
    server: ModelServer, protocol: str, way: Way
) -> None:
    """Replies changed at random: each call ends in a reply or a `ModelError`, and soon."""
    chance = random.Random(20_260_101)
    dialect = DIALECTS[protocol]
    body = {"stream": way is streamed, "model": "m", "stream_options": {"include_usage": True}}
    if way is streamed:
        content = b"".join(dialect.events(CUT_SAY, body))
    else:
        content = json.dumps(dialect.whole(CUT_SAY, body)).encode()
    model = opened(protocol, server.url, timeouts=ModelTimeouts(silence=timedelta(seconds=5)))
    replies = 0
    for _ in range(300):
        server.say(Body(content=mangled(content, chance)))
        outcome = await tried(way(model))
        if isinstance(outcome, ModelError):
            assert len(str(outcome)) < 1_000
        else:
            replies += 1
            assert isinstance(outcome.stop, StopReason)
            assert all(isinstance(call.arguments, str) for call in outcome.calls)
    assert replies < 300, "some of them were beyond reading"


async def test_a_reply_without_end_is_given_up(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr("chargehand.models.http_transport.LARGEST_REPLY", 100_000)
    model = opened(protocol, server.url)
    for content in (b'{"x":"' + b"x" * 300_000, b"data: " + b"x" * 300_000):
        server.say(Body(content=content))
        with pytest.raises(ModelGarbled, match=r"larger than|cannot be read"):
            await (asked if content.startswith(b"{") else streamed)(model)


async def test_a_reply_that_unpacks_without_end_is_given_up(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    monkeypatch.setattr("chargehand.models.http_transport.LARGEST_REPLY", 1_000_000)
    bomb = gzip.compress(b"data: " + b"x" * 20_000_000)
    server.say(Body(content=bomb, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(ModelGarbled, match="larger than"):
        await way(opened("chat", server.url))


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "deflate"},
        {"Content-Type": "text/html; charset=no-such"},
    ],
)
async def test_odd_encodings_are_garbled_or_read(
    server: ModelServer, way: Way, headers: dict[str, str]
) -> None:
    server.say(Body(content=b"not packed at all", headers=headers))
    with pytest.raises(ModelGarbled):
        await way(opened("chat", server.url))


async def test_small_differences_between_servers_are_understood(server: ModelServer) -> None:
    """No usage, no ids, arguments as an object, content in parts, "stop" although it calls."""
    model = opened("chat", server.url)
    call = {"function": {"name": "add", "arguments": {"a": 1}}}
    message = {"content": [{"type": "text", "text": "a"}, {"type": "thinking"}]}
    choice = {"message": {**message, "tool_calls": [call, call]}, "finish_reason": "stop"}
    server.say(Body(content=json.dumps({"choices": [choice]}).encode()))
    reply = await asked(model)
    assert (reply.text, reply.stop, reply.usage.calls) == ("a", StopReason.TOOLS, 1)
    first, second = reply.calls
    assert first.id
    assert first.id != second.id
    assert first.arguments == '{"a":1}'
    same_index = [
        {"index": 0, "id": name, "function": {"name": "add", "arguments": "{}"}} for name in "xy"
    ]
    chunks = [
        event({"choices": [{"delta": {"tool_calls": same_index}, "finish_reason": "stop"}]}),
        b"event: x\r\nid: 1\r\ndata: [DONE]\r\n\r\n",
    ]
    server.say(Body(content=b"".join(chunks)))
    assert [call.id for call in (await streamed(model)).calls] == ["x", "y"]


async def test_counts_of_tokens_beyond_reason_are_no_report(server: ModelServer) -> None:
    choice = {"message": {"content": "a"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10**30, "completion_tokens": -5}
    server.say(Body(content=json.dumps({"choices": [choice], "usage": usage}).encode()))
    reply = await asked(opened("chat", server.url))
    assert (reply.usage.tokens_in, reply.usage.tokens_out) == (0, 0)


@pytest.mark.parametrize(
    "request_",
    [
        ModelRequest(turns=(user("\ud800"),)),
        ModelRequest(turns=(Turn(Role.MODEL, (Text("a"), Image(data="aGk="))),)),
        ModelRequest(turns=(user("a"),), schema={"type": {1, 2}, "x": object()}),
    ],
)
async def test_a_request_that_cannot_be_sent_is_refused(
    server: ModelServer, protocol: str, request_: ModelRequest
) -> None:
    server.always = Status(status=400)
    with pytest.raises(ModelRefused):
        await asked(opened(protocol, server.url), request_)


# Wrong addresses


async def test_a_wrong_path_is_told_with_the_base_url(server: ModelServer, way: Way) -> None:
    model = open_model("openai:m", base_url=f"{server.url}/api", key=KEY)
    with pytest.raises(ModelRefused, match=r"/api \(most end in a version, such as /v1\)"):
        await way(model)


async def test_a_page_for_people_is_no_model(server: ModelServer, way: Way) -> None:
    page = b"<html><style>p{}</style><body>Welcome</body></html>"
    server.say(Body(content=page, content_type="text/html"))
    with pytest.raises(ModelGarbled, match=r"check that http://127\.0\.0\.1"):
        await way(opened("chat", server.url))
    server.say(Status(status=404, body=page))
    with pytest.raises(ModelRefused, match="Not Found: Welcome "):
        await way(opened("chat", server.url))


async def test_a_redirect_is_not_followed_with_the_key(
    server: ModelServer, protocol: str, way: Way
) -> None:
    async with model_server() as elsewhere:
        target = f"{elsewhere.url}/v1/chat/completions?token=abc"
        server.always = Status(status=308, headers={"Location": target})
        with pytest.raises(ModelRefused, match="it points to") as caught:
            await way(opened(protocol, server.url))
        assert "token=abc" not in str(caught.value)
        assert not elsewhere.requests
    server.always = Status(status=302, headers={"Location": "http://[nonsense"})
    with pytest.raises(ModelRefused, match="it points to"):
        await way(opened(protocol, server.url))


async def test_an_address_where_nobody_listens_is_unreachable(way: Way) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ModelUnreachable, match=f"{url}.*check the base URL"):
            await way(opened("chat", url))


async def test_a_name_that_does_not_exist_is_unreachable(way: Way) -> None:
    with pytest.raises((ModelUnreachable, ModelTooSlow), match=r"no-such-host\.invalid"):
        await way(opened("chat", "http://no-such-host.invalid"))


async def test_encryption_where_there_is_none_is_unreachable(server: ModelServer, way: Way) -> None:
    with pytest.raises(ModelUnreachable, match=r"https://127\.0\.0\.1"):
        await way(opened("chat", server.url.replace("http:", "https:")))


@pytest.mark.parametrize("words", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x00\x01\x02\r\n\r\n", b""])
async def test_a_server_of_something_else_is_told(way: Way, words: bytes) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(words)
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with other:
        port = other.sockets[0].getsockname()[1]
        with pytest.raises((ModelUnreachable, ModelGarbled)):
            await way(opened("chat", f"http://127.0.0.1:{port}"))


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://host/v1", "http://", "http://h:99999/v1", "//h"]
)
def test_what_is_no_address_is_refused_when_the_model_is_opened(url: str) -> None:
    with pytest.raises(UsageError, match="base URL"):
        open_model("openai:m", base_url=url, key=KEY)


# Keys


@pytest.mark.parametrize("key", [f"{KEY}\nx", "schlüssel-0123456789", "a\x00b-0123456789"])
def test_a_key_that_cannot_be_one_is_denied_without_being_shown(key: str) -> None:
    with pytest.raises(ModelDenied) as caught:
        open_model("openai:m", base_url="http://h/v1", key=key)
    assert key not in "".join(traceback.format_exception(caught.value))
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_a_key_is_in_no_error_and_no_log(
    server: ModelServer, protocol: str, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even when the provider says it back, in whatever place."""
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    echo = f"{'x' * 380} {KEY} Bearer {KEY} sk-proj-other_key-123456"
    body = {"error": {"message": echo, "type": KEY, "code": KEY}}
    lines: list[Line] = [
        Status(status=401, words=echo, headers={"x-request-id": KEY}),
        Status(status=500, words=echo, kind=KEY),
        Status(status=429, body=echo.encode()),
        Status(status=400, body=json.dumps({"detail": [{"input": KEY}]}).encode()),
        Status(status=307, headers={"Location": f"http://h/{KEY}?k={KEY}"}),
        Body(content=echo.encode()),
        Body(content=json.dumps(body).encode()),
        Body(content=event(body)),
        Body(content=json.dumps({"choices": [{"message": {"content": KEY}}]}).encode()),
        Body(content=json.dumps({"content": [], "stop_reason": KEY}).encode()),
        Body(content=json.dumps({"status": KEY, "output": []}).encode()),
        Cut(say=Say(text=KEY), at=150),
    ]
    model = opened(protocol, server.url)
    for line in lines:
        server.say(line)
        with pytest.raises(ModelError) as caught:
            await way(model)
        failed = failed_by(caught.value)
        told = "".join(traceback.format_exception(caught.value))
        for text in (told, repr(caught.value), failed.message, failed.stack, repr(model)):
            assert KEY not in text
            assert KEY[:12] not in text
            assert "other_key" not in text
    secret_url = server.url.replace("127.0.0.1:", f"me:{KEY}@127.0.0.1:")
    with pytest.raises(ModelError) as caught:
        await way(opened(protocol, f"{secret_url}/nowhere", key="other-secret-9876543210"))
    assert KEY not in str(caught.value)
    assert KEY not in caplog.text


AWKWARD = "my own+secret/0123456789"


@pytest.mark.parametrize("key", [KEY, AWKWARD])
@pytest.mark.parametrize(
    "encode",
    [
        lambda key: base64.b64encode(key.encode()).decode(),
        lambda key: base64.urlsafe_b64encode(f"me:{key}".encode()).decode(),
        lambda key: f"Authorization: Basic {base64.b64encode(f'api:{key}'.encode()).decode()}",
        lambda key: base64.encodebytes(b"x" * 50 + key.encode()).decode(),
        lambda key: key.encode().hex().upper(),
        lambda key: quote(key, safe=""),
        lambda key: "".join(f"\\u{ord(letter):04x}" for letter in key),
        lambda key: "".join(f"&#{ord(letter)};" for letter in key),
    ],
    ids=["base64", "base64url", "Basic", "wrapped base64", "hex", "URL", "JSON", "HTML"],
)
async def test_f12_a_key_is_in_no_error_in_any_encoding(
    server: ModelServer, key: str, encode: Callable[[str], str]
) -> None:
    echo = f"{encode(key)} is no key"
    server.say(
        Status(status=401, words=echo),
        Status(
            status=500,
            body=f"<p>{echo}</p>".encode(),
            headers={"x-request-id": "x" * 80 + "".join(encode(key).split())},
        ),
    )
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await asked(opened("chat", server.url, key=key))
        told = failed_by(caught.value)
        for text in (told.message, told.stack, str(caught.value)):
            assert Redactor({"key": key}).text(text) == text
    assert "is no key" in str(caught.value)


async def test_a_key_given_in_a_header_or_query_is_hidden_too(server: ModelServer) -> None:
    server.always = Status(status=401, words=f"bad token {KEY}")
    model = open_model("openai:m", base_url=f"{server.url}/v1", headers={"X-Token": KEY})
    with pytest.raises(ModelDenied) as caught:
        await asked(model)
    assert KEY not in str(caught.value)
