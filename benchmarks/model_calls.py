"""What a call to a model costs us: CPU through our adapter, beside bare aiohttp and the official SDK.

The server is a process of its own and answers at once with a reply of ordinary size, so that all
that is measured is the client's work. The ways take turns within each round.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.measure import Figure, Sample, middle, options_for, report, sampled

from chargehand.models.base import ModelReply, ModelRequest, ToolSpec, system, user
from chargehand.models.open_model import open_model

try:
    import openai
except ImportError:  # measured only where it is installed
    openai = None  # type: ignore[assignment]  # a module or nothing

CALL_BAR = 1.5
SERVE = "--serve"
TEXT = "The supervisor hands each task to the right worker as early as its inputs allow. " * 6
PIECES = [word + " " for word in TEXT.split()]
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
}
TOOLS = [ToolSpec("read_file", "Reads a file", SCHEMA), ToolSpec("list_files", "Lists", SCHEMA)]
#: the same, as somebody would write it by hand
REQUEST = ModelRequest(turns=(system("Be brief. " * 40), user(TEXT)), tools=tuple(TOOLS))
BODY: dict[str, Any] = {
    "model": "gpt-4.1",
    "messages": [
        {"role": "system", "content": "Be brief. " * 40},
        {"role": "user", "content": TEXT},
    ],
    "max_completion_tokens": 4096,
    "tools": [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
        }
        for t in TOOLS
    ],
}
HEADERS = {"Authorization": "Bearer bench"}

Call = Callable[[], Awaitable[None]]


# The server


def whole_answer() -> bytes:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": TEXT,
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    details = {"cached_tokens": 0, "audio_tokens": 0}
    usage = {"prompt_tokens": 200, "completion_tokens": 90, "total_tokens": 290}
    content = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4.1",
        "choices": [choice],
        "usage": {**usage, "prompt_tokens_details": details},
    }
    body = json.dumps(content).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def streamed_answer() -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4.1"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
        for piece in PIECES
    ]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    events.append(b"data: [DONE]\n\n")
    content = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    lines = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return lines.encode() + content + b"0\r\n\r\n"


class Answering(asyncio.Protocol):
    """As little of a server as will do: it looks only for where a request ends."""

    whole, streamed = whole_answer(), streamed_answer()

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) >= length:
            self._received = b""
            is_stream = b'"stream":true' in body.replace(b'"stream": true', b'"stream":true')
            self._transport.write(self.streamed if is_stream else self.whole)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, __file__, SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


# The ways


def bare(session: aiohttp.ClientSession, url: str) -> dict[str, Call]:
    async def whole() -> None:
        async with session.post(f"{url}/chat/completions", json=BODY, headers=HEADERS) as answer:
            content = await answer.json()
        assert content["choices"][0]["message"]["content"] == TEXT

    async def streamed() -> None:
        pieces = []
        body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
        async with session.post(f"{url}/chat/completions", json=body, headers=HEADERS) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    delta = json.loads(line[6:])["choices"][0]["delta"]
                    pieces.append(delta.get("content", ""))
        assert len(pieces) > len(PIECES)

    return {"whole": whole, "streamed": streamed}


def ours(url: str) -> dict[str, Call]:
    model = open_model("openai:gpt-4.1", base_url=url, key="bench")

    async def whole() -> None:
        assert (await model.ask(REQUEST)).text == TEXT

    async def streamed() -> None:
        items = [item async for item in model.stream(REQUEST)]
        assert isinstance(items[-1], ModelReply)

    return {"whole": whole, "streamed": streamed}


def sdk(client: Any) -> dict[str, Call]:
    async def whole() -> None:
        reply = await client.chat.completions.create(**BODY)
        assert reply.choices[0].message.content == TEXT

    async def streamed() -> None:
        chunks = await client.chat.completions.create(**BODY, stream=True)
        assert len([chunk async for chunk in chunks]) > len(PIECES)

    return {"whole": whole, "streamed": streamed}


# Measuring


async def cost(call: Call, count: int, at_once: int) -> Sample:
    """What one of `count` calls takes, of which so many are under way at once."""
    each = max(count // at_once, 1)

    async def some() -> None:
        for _ in range(each):
            await call()

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(some())

    taken, _ = await sampled(all_of_them)
    return Sample(taken.cpu / (each * at_once), taken.wall / (each * at_once))


async def measure(options: argparse.Namespace, url: str) -> list[Figure]:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        ways = {"bare aiohttp": bare(session, url), "chargehand": ours(url)}
        if openai is not None:
            client = openai.AsyncOpenAI(base_url=url, api_key="bench")
            ways["openai SDK"] = sdk(await stack.enter_async_context(client))
        samples: dict[tuple[str, str], list[Sample]] = {}
        for number in range(options.rounds + 1):
            for way, calls in ways.items():
                for kind, call in calls.items():
                    taken = await cost(call, options.calls, options.at_once)
                    if number:  # the first round warms up
                        samples.setdefault((kind, way), []).append(taken)
    return [*figures(samples)]


def figures(samples: dict[tuple[str, str], list[Sample]]) -> Iterator[Figure]:
    for (kind, way), taken in samples.items():
        cpu = middle(taken).cpu
        least = middle(samples[kind, "bare aiohttp"]).cpu
        name = f"{kind}, {way}: CPU a call"
        yield Figure(name=name, value=cpu * 1000, unit="ms", ratio=cpu / least)
    for kind in ("whole", "streamed"):
        pairs = zip(samples[kind, "chargehand"], samples[kind, "bare aiohttp"], strict=True)
        ratios = [Sample(our.cpu / least.cpu, 0) for our, least in pairs]
        yield Figure(
            name=f"{kind}: chargehand ÷ bare aiohttp, in the median round",
            value=middle(ratios).cpu,
            bar=CALL_BAR,
        )


def main(argv: Sequence[str] | None = None) -> int:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--calls", type=int, default=200, metavar="N")
        parser.add_argument("--at-once", type=int, default=20, metavar="N")
        parser.add_argument("--rounds", type=int, default=5, metavar="N")
        parser.add_argument(SERVE, action="store_true", help="only answer; for the other process")

    options = options_for(__doc__, argv, add)
    if options.serve:
        asyncio.run(serve())
    with serving() as url:
        return report(asyncio.run(measure(options, url)), options)


if __name__ == "__main__":
    sys.exit(main())
