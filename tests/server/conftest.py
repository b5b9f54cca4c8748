"""A supervisor behind its HTTP API, on a real socket and a real journal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

import chargehand as ch
from chargehand.server.http.web_server import WebOptions, WebServer


class Reply(NamedTuple):
    """What a server has answered."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def kind(self) -> str:
        return str(self.json["error"]["kind"])


class Served:
    """A server, and requests to it as its owner makes them."""

    def __init__(self, boss: ch.Supervisor, web: WebServer, session: aiohttp.ClientSession) -> None:
        self.boss = boss
        self.web = web
        self.session = session
        self.url = web.url.rstrip("/")
        self.token = "" if web.owner is None else web.owner.token

    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> Reply:
        """One request. `path` is below /api/v1 unless it begins with a slash; no token if it is empty."""
        token = self.token if token is None else token
        sent = {"X-Chargehand": "1"} if method not in ("GET", "HEAD", "OPTIONS") else {}
        sent |= {"Authorization": f"Bearer {token}"} if token else {}
        if json is not None or data is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        kept = {name: value for name, value in sent.items() if value != "-"}
        body = msgspec.json.encode(json) if json is not None else data
        where = path if path.startswith("/") else f"/api/v1/{path}"
        async with self.session.request(
            method, self.url + where, data=None if body is None else BytesIO(body), headers=kept, allow_redirects=False,
            skip_auto_headers=["Content-Type"],
        ) as reply:  # fmt: skip
            return Reply(
                reply.status, await reply.read(), {k.lower(): v for k, v in reply.headers.items()}
            )

    async def get(self, path: str, **more: Any) -> Any:
        """The JSON of a GET that must succeed."""
        reply = await self.call("GET", path, **more)
        assert reply.status == 200, reply
        return reply.json

    async def post(self, path: str, json: Any = None, **more: Any) -> Reply:
        return await self.call("POST", path, {} if json is None else json, **more)

    async def submit(self, *tasks: dict[str, Any], **more: Any) -> str:
        """The id of a run of these tasks."""
        plan = {"goal": "Show one thing", "tasks": list(tasks)}
        reply = await self.post("runs", {"plan": plan, **more})
        assert reply.status == 202, reply
        return str(reply.json["id"])

    async def until(self, run: str, *states: str) -> Any:
        """The snapshot of a run once it is in one of these states."""
        signal = self.boss.journal.boards.signal
        while True:
            known = signal.count
            snapshot = await self.get(f"runs/{run}/snapshot")
            if snapshot["run"]["state"] in states:
                return snapshot
            async with asyncio.timeout(20):
                await signal.wait(since=known)


def task(id_: str, worker: str = "clerk", *needs: str, **more: Any) -> dict[str, Any]:
    words = f"Produce the result of {id_}"
    return {"id": id_, "description": words, "worker": worker, "needs": list(needs), **more}


@ch.worker("clerk", "Writes lines")
async def clerk(brief: ch.Brief) -> str:
    return f"did {brief.task.id}"


@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return "painted " + await brief.ask("Which colour?", choices=["red", "blue"])


@ch.worker("stuck", "Waits for ever, at steps")
async def stuck(brief: ch.Brief) -> str:
    await brief.step("wait", asyncio.Event().wait, effect="pure")
    return "never"


@ch.worker("failing", "Fails")
async def failing(brief: ch.Brief) -> str:
    raise ch.WorkerError("<img src=x onerror=alert(1)> it is broken", kind="denied")


CREW = (clerk, asker, stuck, failing)


@asynccontextmanager
async def serving(
    place: Path,
    *,
    crew: Any = CREW,
    boss: ch.Supervisor | None = None,
    leads: bool = True,
    **options: Any,
) -> AsyncIterator[Served]:
    """A server, from when it listens until it has stopped; unless it `leads`, it takes up nothing by itself."""
    boss = boss or ch.Supervisor(list(crew), journal=place / "runs.db", parallel=4)
    given = {"port": 0, "token_file": str(place / "tokens.json"), **options}
    web = WebServer(boss, WebOptions(**given))
    async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
        if leads:
            group.create_task(boss.serve())
        listening = group.create_task(web.run())
        try:
            yield Served(boss, web, session)
        finally:
            web.stop()
            await listening
            await boss.stop(0)
    await boss.close()
