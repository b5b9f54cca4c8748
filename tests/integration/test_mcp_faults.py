"""MCP servers that die, hang, flood, babble or change their minds: each its own bounded outcome."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from chargehand.errors import ToolError
from chargehand.tools.base import Tool, ToolContext
from chargehand.tools.mcp import McpServer, Restarts, ServerTimeouts, mcp_server
from chargehand.tools.mcp import input_limits as traffic
from chargehand.tools.mcp import stdio_process as process
from chargehand.tools.mcp.approved_tools import ApprovedTools, Definition, spellings
from chargehand.tools.mcp.server_failure import last_line
from chargehand.tools.mcp.server_settings import RestartBudget
from chargehand.tools.mcp.stdio_process import LineReader, Overlong
from tests.integration.mcp_servers import HttpRogue, command

SOON = timedelta(seconds=0.5)
PATIENT = timedelta(seconds=30)
QUICKLY = Restarts(backoff=timedelta(milliseconds=1))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For servers that do not end when they are asked to."""
    monkeypatch.setattr(process, "PATIENCE", 0.2)


@pytest.fixture
def shallow(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a flood need not last long."""
    monkeypatch.setattr(traffic, "MOST_MESSAGES_A_MINUTE", 2_000)
    monkeypatch.setattr(traffic, "MOST_BYTES_A_MINUTE", 32 << 20)


class Desk:
    """A server with its tools at hand."""

    def __init__(self, server: McpServer, tools: Sequence[Tool]) -> None:
        self.server = server
        self.tools = {tool.name: tool for tool in tools}

    async def use(self, name: str, arguments: str = "{}", **context: Any) -> Any:
        return (await self.tools[name].call(ToolContext(**context), arguments)).value

    async def echo(self, text: str = "hello") -> Any:
        return await self.use("echo", f'{{"text": "{text}"}}')

    async def fails(self, name: str, **context: Any) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await self.use(name, **context)
        return caught.value


def rogue(
    name: str,
    connect: timedelta = PATIENT,
    listing: timedelta = PATIENT,
    call: timedelta = PATIENT,
    restarts: Restarts = QUICKLY,
    **options: Any,
) -> McpServer:
    timeouts = ServerTimeouts(connect=connect, listing=listing, call=call)
    return mcp_server(
        command=command(name), name=name, timeouts=timeouts, restarts=restarts, **options
    )


@asynccontextmanager
async def kernel(name: str, **terms: Any) -> AsyncIterator[Desk]:
    async with rogue(name, **terms) as server:
        yield Desk(server, await server.tools())


# At the start


@pytest.mark.parametrize(
    ("name", "kind", "told"),
    [
        ("silent", "timeout", r"took longer than 0.5 s to connect"),
        ("old", "denied", r"speaks another version: .*1999-12-31"),
        ("babbling", "network", r"not the Model Context Protocol.*listening on port 80"),
        ("stillborn", "network", r"exit code 7\); its last words: no configuration found"),
    ],
)
async def test_a_server_that_cannot_start_is_named_with_the_reason(
    name: str, kind: str, told: str
) -> None:
    connect = SOON if name == "silent" else PATIENT
    async with rogue(name, connect=connect) as server:
        with pytest.raises(ToolError, match=told) as caught:
            await server.tools()
    assert caught.value.kind == kind
    assert f"MCP server {name!r}" in str(caught.value)


async def test_a_program_that_is_not_there_is_not_tried_again() -> None:
    async with mcp_server(command=["no-such-program-anywhere"]) as server:
        with pytest.raises(ToolError, match="cannot be started") as caught:
            await server.tools()
    assert caught.value.kind == "denied"


async def test_a_stray_print_is_forgiven() -> None:
    async with kernel("chatty") as it:
        assert int(await it.use("pid")) > 0
        assert await it.echo() == "hello"


async def test_who_stops_waiting_for_the_start_leaves_the_others_waiting(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with rogue("late", env={"GATE": str(gate)}) as server:
        first, second = (asyncio.create_task(server.tools()) for _ in range(2))
        opened = await asyncio.to_thread(os.open, gate, os.O_WRONLY)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        os.close(opened)
        assert [tool.name for tool in await second] == ["echo"]


async def test_a_server_can_be_closed_while_it_starts(tmp_path: Path, impatient: None) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    server = rogue("late", env={"GATE": str(gate)})
    starting = asyncio.create_task(server.tools())
    opened = await asyncio.to_thread(os.open, gate, os.O_WRONLY)
    await server.close()
    with pytest.raises(ToolError, match="was closed"):
        await starting
    with pytest.raises(BrokenPipeError):  # nobody has the gate open any more
        os.write(opened, b"x")
    os.close(opened)


# Death


async def test_calls_on_their_way_when_a_server_dies_are_told_that_their_effect_is_unknown() -> (
    None
):
    async with kernel("mortal") as it:
        waiting = asyncio.create_task(it.fails("hang"))
        before = await it.use("pid")  # after it, the first call is on its way, too
        died = await it.fails("die")
        assert "ended (exit code 3); its last words: out of cheese" in str(died)
        for error, name in ((died, "die"), (await waiting, "hang")):
            assert error.kind == "network"
            assert f"to run {name}; whether it took effect is not known" in str(error)
        assert await it.use("pid") != before, "the next call has a new server"


async def test_the_last_words_of_a_dead_server_are_one_line_about_its_death() -> None:
    async with kernel("framed") as it:
        await it.use("fail")
        died = await it.fails("die")
        assert "ended (exit code 4); its last words: OSError: disk gone, while it was" in str(died)
        await it.use("fail")
        vanished = await it.fails("vanish")
        assert "ended (exit code 5), while it was to run vanish" in str(vanished)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("Traceback\nValueError: no\n╰────╯\n\n", "ValueError: no"),
        ("  | TypeError: bad\n  +------------------\n", "TypeError: bad"),
        ("\x1b[1;31mfatal: out of memory\x1b[0m", "fatal: out of memory"),
        ("╰──╯\n", ""),
        ("", ""),
    ],
)
def test_the_last_line_of_an_output_is_the_last_that_says_something(
    output: str, words: str
) -> None:
    assert last_line(output) == words


async def test_f10_a_server_that_keeps_dying_is_given_up_for_a_while() -> None:
    restarts = Restarts(most=2, window=timedelta(hours=1), backoff=timedelta(milliseconds=1))
    async with kernel("mortal", restarts=restarts) as it:
        for _ in range(3):
            assert "exit code 3" in str(await it.fails("die"))
        error = await it.fails("pid")
    assert error.kind == "network"
    assert "MCP server 'mortal' ended 3 times within 3600 s" in str(error)
    assert isinstance(error.retry_after, timedelta)
    assert timedelta(minutes=59) < error.retry_after <= timedelta(hours=1)


async def test_a_definition_that_changed_with_a_restart_is_noticed_too() -> None:
    async with kernel("mortal") as it:
        await it.use("who")
        await it.fails("die")
        error = await it.fails("who")
        assert error.kind == "denied"
        assert "its description changed" in str(error)
        assert await it.echo() == "hello", "other tools stay enabled"


def test_restarts_wait_longer_each_time_and_are_forgotten_after_the_window() -> None:
    second = timedelta(seconds=1)
    budget = RestartBudget(Restarts(most=2, window=10 * second, backoff=second))
    assert budget.delay(0) == 0
    for at, delay in ((1, 1), (2, 2)):
        budget.note_end(at)
        assert budget.refusal(at, "x") is None
        assert budget.delay(at) == delay
    budget.note_end(3)
    refusal = budget.refusal(4, "x")
    assert refusal is not None
    assert refusal.retry_after == 7 * second
    assert budget.refusal(11.5, "x") is None, "the first end is forgotten"


# Hanging


async def test_f10_a_call_that_hangs_is_given_up_and_taken_back() -> None:
    async with kernel("hanging", call=SOON) as it:
        before = await it.use("pid")
        error = await it.fails("hang")
        assert error.kind == "timeout"
        assert "'hanging' took longer than 0.5 s to run hang" in str(error)
        assert await it.use("taken_back") == "1"
        assert await it.use("pid") == before, "one slow tool is not a reason for another server"


async def test_a_server_that_hangs_altogether_is_replaced(impatient: None) -> None:
    async with kernel("hanging", call=SOON, listing=SOON) as it:
        before = await it.use("pid")
        assert (await it.fails("freeze")).kind == "timeout"
        assert await it.use("pid") != before


async def test_a_stubborn_server_and_what_it_started_are_killed(
    impatient: None, tmp_path: Path
) -> None:
    leash = tmp_path / "leash"
    os.mkfifo(leash)
    opening = asyncio.create_task(asyncio.to_thread(leash.open, "rb"))
    async with kernel("stubborn", env={"LEASH": str(leash)}) as it:
        assert await it.echo() == "hello"
        held = await opening
    with held:
        assert await asyncio.to_thread(held.read) == b"", "the end comes when nobody holds it"


# Floods


async def test_f10_endless_notifications_are_cut_off(impatient: None, shallow: None) -> None:
    told: list[str] = []
    async with kernel("flooding") as it:
        error = await it.fails("flood", report=told.append)
        assert error.kind == "network"
        assert "more than 2000 messages within a minute" in str(error)
        assert 0 < len(told) <= 100
        assert await it.echo() == "hello"


async def test_f10_endless_bytes_are_cut_off(impatient: None, shallow: None) -> None:
    async with kernel("flooding") as it:
        assert "more than 32 MiB within a minute" in str(await it.fails("gush"))
        assert await it.echo() == "hello"


async def test_a_giant_answer_fails_its_call_alone() -> None:
    async with kernel("flooding") as it:
        before = await it.use("pid")
        error = await it.fails("giant")
        assert error.kind == "logic"
        assert "its answer is larger than 16 MiB; whether it took effect" in str(error)
        assert await it.use("pid") == before


async def test_noise_on_standard_error_is_drained() -> None:
    async with kernel("flooding") as it:
        assert await it.use("noise") == "done"


async def test_f10_an_answer_that_the_protocol_does_not_allow_is_an_error() -> None:
    async with kernel("flooding") as it:
        error = await it.fails("strange")
        assert error.kind == "logic"
        assert "what the protocol does not allow when it was to run strange" in str(error)


# Changed minds


async def test_f11_no_call_gets_through_after_a_definition_changed() -> None:
    async with kernel("changing") as it:
        await it.use("turn")
        errors = await asyncio.gather(*(it.fails("echo") for _ in range(5)))
        assert {error.kind for error in errors} == {"denied"}
        assert await it.use("calls") == "0"
        it.server.approve("echo")
        await it.echo()
        assert await it.use("calls") == "1"


async def test_a_change_that_nobody_told_is_found_at_the_next_listing() -> None:
    async with kernel("changing") as it:
        await it.use("sneak")
        shown = {tool.name: tool.description for tool in await it.server.tools()}
        assert shown["echo"] == "Does echo.", "a model never reads the new words"
        assert (await it.fails("echo")).kind == "denied"


async def test_a_server_whose_tools_never_settle_is_not_called() -> None:
    async with rogue("fickle") as server:
        with pytest.raises(ToolError, match="cannot be kept up with") as caught:
            await server.tools()
    assert caught.value.kind == "network"


def test_a_definition_too_large_for_a_model_is_never_shown() -> None:
    catalog = ApprovedTools()
    catalog.take([Definition(name="big", description="x" * 70_000, schema={})])
    (shown,) = catalog.shown
    assert len(shown.description) < 200
    assert "more than 65536" in (catalog.refusal("big") or "")


def test_of_two_tools_of_one_name_the_first_counts() -> None:
    catalog = ApprovedTools()
    catalog.take([Definition(name="a", description=each, schema={}) for each in ("one", "two")])
    assert [each.description for each in catalog.shown] == ["one"]


@given(st.lists(st.text(max_size=80), unique=True), st.sampled_from(["", "x_", "1."]))
def test_every_name_has_a_spelling_of_its_own(names: list[str], prefix: str) -> None:
    spelt = spellings(names, prefix)
    assert sorted(spelt) == sorted(names)
    assert len(set(spelt.values())) == len(names)
    for name in spelt.values():
        Tool(name=name, description="x", arguments=None, function=len)  # type: ignore[arg-type]  # only its name counts


# Lines


@given(st.lists(st.binary(max_size=30)), st.integers(1, 7))
def test_lines_are_the_same_however_they_are_cut(lines: list[bytes], size: int) -> None:
    kept = [line.replace(b"\n", b"") for line in lines]
    whole = b"".join(line + b"\n" for line in kept)
    reader = LineReader(30)
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert [line for chunk in chunks for line in reader.feed(chunk)] == kept


@pytest.mark.parametrize(
    ("head", "request_id"),
    [
        (b'{"jsonrpc": "2.0", "id": 12, "result": {"content": [', 12),
        (b'{"id":7,"result":{', 7),
        (b'{"jsonrpc":"2.0","result":{"id":3,"content":[', None),
        (b"[1, 2, 3", None),
    ],
)
def test_a_line_too_long_tells_whom_it_answers(head: bytes, request_id: int | None) -> None:
    reader = LineReader(100)
    first, last = [*reader.feed(head + b"x" * 200), *reader.feed(b"xx\nshort\n")]
    assert isinstance(first, Overlong)
    assert first.request == request_id
    assert last == b"short"


# Over HTTP


@asynccontextmanager
async def http_desk(it: HttpRogue, call: timedelta = PATIENT) -> AsyncIterator[Desk]:
    async with (
        it.serving() as url,
        mcp_server(
            url=url,
            name="web",
            headers={"authorization": "Bearer sesame-1234"},
            timeouts=ServerTimeouts(call=call),
            restarts=QUICKLY,
        ) as server,
    ):
        for name in it.replies:
            it.rogue.tools[name] = lambda _: None
        yield Desk(server, await server.tools())


def reply(**response: Any) -> Callable[[web.Request], Any]:
    async def give(_: web.Request) -> web.Response:
        return web.Response(**response)

    return give


async def break_off(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.mark.parametrize(
    ("behaviour", "kind", "told"),
    [
        (reply(status=401, text="who is sesame-1234?"), "denied", "answered 401 Unauthorized"),
        (reply(status=429, headers={"Retry-After": "7"}), "resource", "answered 429"),
        (reply(status=500, text="oh no"), "network", "answered 500 .*: oh no"),
        (reply(status=400, text="what?"), "logic", "answered 400"),
        (break_off, "network", r"broke off .* when it was to run odd"),
        (reply(text="<html>", content_type="text/html"), "logic", "content type: text/html"),
        (reply(text="{", content_type="application/json"), "network", "parse JSON"),
        (reply(text="data: {\n\n", content_type="text/event-stream"), "network", "parse SSE"),
        (reply(text=": no\n\n", content_type="text/event-stream"), "network", "ended without"),
        (reply(headers={"Content-Encoding": "gzip"}), "network", "encoding that was not asked"),
        (
            reply(body=b" " * (17 << 20), content_type="application/json"),
            "network",
            "larger than 16 MiB",
        ),
        (
            reply(status=307, headers={"Location": "http://elsewhere.example/mcp"}),
            "logic",
            "not followed",
        ),
    ],
)
async def test_whatever_http_can_answer_has_a_meaning(
    behaviour: Callable[[web.Request], Any], kind: str, told: str
) -> None:
    it = HttpRogue()
    it.replies["odd"] = behaviour
    async with http_desk(it) as at:
        error = await at.fails("odd")
        assert error.kind == kind
        assert re.search(told, str(error))
        assert "sesame" not in str(error)
        assert error.retry_after == (timedelta(seconds=7) if kind == "resource" else None)
        assert await at.echo() == "hello"


async def test_a_connection_that_breaks_off_leaves_other_calls_alone() -> None:
    it, arrived, go = HttpRogue(), asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.Response:
        arrived.set()
        await go.wait()
        answer = {"content": [{"type": "text", "text": "at last"}]}
        message = await request.json()
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    it.replies = {"slow": slow, "broken": break_off}
    async with http_desk(it) as at:
        waiting = asyncio.create_task(at.use("slow"))
        await arrived.wait()
        assert (await at.fails("broken")).kind == "network"
        assert await at.echo() == "hello"
        go.set()
        assert await waiting == "at last"


async def test_a_forgotten_session_is_made_anew() -> None:
    it = HttpRogue()
    async with http_desk(it) as at:
        it.session = "second"
        assert (await at.fails("echo")).kind == "network"
        assert await at.echo() == "hello"
        assert it.seen.count("initialize") == 2


async def test_a_call_over_http_that_hangs_is_given_up_and_taken_back() -> None:
    it, taken_back, forever = HttpRogue(), asyncio.Event(), asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await forever.wait()
        return web.Response()

    it.replies["hang"] = hang
    it.on_cancelled = taken_back.set
    async with http_desk(it, call=SOON) as at:
        assert (await at.fails("hang")).kind == "timeout"
        await taken_back.wait()
        assert await at.echo() == "hello"
        forever.set()


async def test_an_address_that_never_answers_is_too_slow() -> None:
    leave = asyncio.Event()

    async def keep_waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await leave.wait()
        writer.close()

    listener = await asyncio.start_server(keep_waiting, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
    async with listener, mcp_server(url=url, timeouts=ServerTimeouts(connect=SOON)) as server:
        with pytest.raises(ToolError, match=r"longer than 0.5 s to connect") as caught:
            await server.tools()
        leave.set()
    assert caught.value.kind == "timeout"


async def test_an_address_where_nobody_listens_is_a_network_error() -> None:
    async with HttpRogue().serving() as url:
        pass
    async with mcp_server(url=url, name="gone") as server:
        with pytest.raises(ToolError, match=r"'gone' cannot be reached") as caught:
            await server.tools()
    assert caught.value.kind == "network"


async def test_a_server_that_asks_for_a_login_is_denied_at_the_start() -> None:
    it = HttpRogue()
    it.login = 401
    async with it.serving() as url, mcp_server(url=url) as server:
        with pytest.raises(ToolError, match="answered 401") as caught:
            await server.tools()
    assert caught.value.kind == "denied"
