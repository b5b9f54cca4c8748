"""A chat-completions server that answers the same after so many seconds; run in a process of its own.

It prints its port. With tools in the request and no tool's output yet, it asks for one.
"""

import argparse
import asyncio
import json

from aiohttp import web


def reply(message: dict[str, object], finish: str) -> bytes:
    content = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55},
    }
    return json.dumps(content).encode()


SAID = reply({"role": "assistant", "content": "It is done."}, "stop")
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
CALLED = reply({"role": "assistant", "content": None, "tool_calls": [CALL]}, "tool_calls")


def app(seconds: float) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        if seconds:
            await asyncio.sleep(seconds)
        wants_tool = b'"tools"' in body and b'"role":"tool"' not in body
        return web.Response(body=CALLED if wants_tool else SAID, content_type="application/json")

    made = web.Application()
    made.router.add_post("/v1/chat/completions", answer)
    return made


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.0)
    runner = web.AppRunner(app(parser.parse_args().seconds), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
