"""A chat-completions server that answers the same after so many seconds; run in a process of its own.

Written on bare sockets, so that it is not what is measured. It prints its port. With tools in the
request and no tool's output yet, it asks for one.
"""

import argparse
import asyncio
import json


def reply(message: dict[str, object], finish: str) -> bytes:
    content = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55},
    }
    body = json.dumps(content).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


SAID = reply({"role": "assistant", "content": "It is done."}, "stop")
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
CALLED = reply({"role": "assistant", "content": None, "tool_calls": [CALL]}, "tool_calls")


class Answering(asyncio.Protocol):
    """One connection."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or len(body) < _length_in(head):
            return
        self._received = b""
        wants_tool = b'"tools"' in body and b'"role":"tool"' not in body
        self._loop.call_later(self._seconds, self._answer, CALLED if wants_tool else SAID)

    def _answer(self, content: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(content)


def _length_in(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.0)
    seconds = parser.parse_args().seconds
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(seconds), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
