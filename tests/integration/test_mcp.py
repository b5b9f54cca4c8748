"""MCP servers that keep to the protocol: their tools, used by many at once, from any event loop."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import ToolError, UsageError
from chargehand.facts.events import Effect
from chargehand.models.base import ModelRequest, ToolCall, ToolOutput
from chargehand.roles.crew_data_catalog import reach_of, seen_by_planner
from chargehand.roles.roster import Roster
from chargehand.sync_async_bridge import run_in_background
from chargehand.tools.base import Tool, ToolContext
from chargehand.tools.files import files
from chargehand.tools.mcp import McpServer, Restarts, ServerTimeouts, mcp_server
from tests.integration.mcp_servers import PIXEL, command, http_server

CALLERS = 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http_server() as url:
        yield url


@pytest.fixture(scope="module")
def honest(url: str) -> Iterator[dict[str, McpServer]]:
    """One server per transport for all tests here; neither belongs to the loop of any test."""
    token = {"authorization": "Bearer sesame-1234"}
    servers = {
        "stdio": mcp_server(command=command("stdio"), env={"API_KEY": "sesame-1234"}, name="near"),
        "http": mcp_server(url=url, headers=token, prefix="far_"),
    }
    yield servers
    for each in servers.values():
        asyncio.run(each.close())


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, honest: dict[str, McpServer]) -> McpServer:
    return honest[request.param]


async def tool_of(server: McpServer, name: str) -> Tool:
    return {each.name.removeprefix("far_"): each for each in await server.tools()}[name]


async def value(server: McpServer, name: str, arguments: str = "{}") -> Any:
    return (await (await tool_of(server, name)).call(ToolContext(), arguments)).value


async def call_for_ever(tool: Tool) -> None:
    while True:
        await tool.call(ToolContext(), "{}")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# What tools are


async def test_a_servers_tools_are_tools_like_any_other(server: McpServer) -> None:
    add = await tool_of(server, "add")
    assert add.description == "Add two numbers."
    assert add.arguments.schema["required"] == ["a"]
    result = await add.call(ToolContext(), '{"a": 2, "b": 3}')
    assert result.value == {"sum": 5}
    assert result.taint == (f"tool:{add.name}",), "what a server returns was written by others"


async def test_names_that_no_provider_takes_are_spelt_anew(server: McpServer) -> None:
    assert await value(server, "files_read") == "read"


async def test_a_prefix_keeps_two_servers_apart(honest: dict[str, McpServer]) -> None:
    both = [tool for each in honest.values() for tool in await each.tools()]
    assert len({tool.name for tool in both}) == len(both)
    assert "far_add" in {tool.name for tool in both}


async def test_only_a_server_over_http_has_a_known_destination(
    honest: dict[str, McpServer],
) -> None:
    assert (await tool_of(honest["http"], "add")).destination == "127.0.0.1"
    assert (await tool_of(honest["stdio"], "add")).destination is None


async def test_hints_about_effects_are_believed_only_if_the_user_says_so(url: str) -> None:
    effects = {}
    for trust in (False, True):
        async with mcp_server(url=url, trust_hints=trust) as server:
            tools = {each.name: each.effect for each in await server.tools()}
            effects[trust] = [tools["add"], tools["say"], tools["fail"]]
    assert effects[False] == [Effect.ONCE, Effect.ONCE, Effect.ONCE]
    assert effects[True] == [Effect.PURE, Effect.IDEMPOTENT, Effect.ONCE]


# What they return


async def test_text_is_text(server: McpServer) -> None:
    assert await value(server, "say", '{"text": "grüße"}') == "grüße"


async def test_what_is_not_text_is_named(server: McpServer) -> None:
    text = await value(server, "mixed")
    assert text.split("\n\n") == [
        "words",
        f"[image: image/png, {len(PIXEL)} bytes, not shown]",
        "[resource: file:///a]\ninside",
        "[resource: file:///b, font/woff, 3 bytes, not shown]",
        "[link: more, file:///c]",
    ]


async def test_a_long_text_is_cut_at_the_tools_limit(server: McpServer) -> None:
    many = await tool_of(server, "many")
    result = await many.call(ToolContext(), '{"count": 1000000}')
    assert result.is_truncated
    assert len(result.text) <= many.limit


async def test_a_tools_error_is_told_in_its_own_words(server: McpServer) -> None:
    with pytest.raises(ToolError, match="no such shelf") as caught:
        await value(server, "fail", '{"why": "no such shelf"}')
    assert caught.value.kind == "logic"


async def test_secrets_of_the_server_are_redacted_from_what_it_says(server: McpServer) -> None:
    assert "sesame" not in await value(server, "say", '{"text": "it is sesame-1234"}')
    with pytest.raises(ToolError) as caught:
        await value(server, "fail", '{"why": "sesame-1234 is wrong"}')
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"b": 1}', "'a' is missing"),
        ("[1]", "one JSON object"),
        ('{"a": ', "not JSON"),
        ('{"a": "many"}', "valid integer"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(
    server: McpServer, arguments: str, told: str
) -> None:
    with pytest.raises(ToolError, match=told) as caught:
        await value(server, "add", arguments)
    assert caught.value.kind == "logic"


# At once, and from anywhere


def clerk(number: int, tools: list[Tool]) -> ch.Worker:
    """A worker whose model meets the others on both servers, and adds there."""
    meet, add = f'{{"count": {CALLERS}}}', f'{{"a": {number}}}'
    calls = [
        ToolCall(name, name, arguments)
        for name, arguments in (("meet", meet), ("far_meet", meet), ("add", add), ("far_add", add))
    ]
    model = ch.ScriptedModel([calls, _told_back])
    about = "Meets and adds"
    return ch.Worker(f"clerk{number}", about, tools=tools, model=model, destinations=["127.0.0.1"])


def _told_back(request: ModelRequest) -> str:
    parts = request.turns[-1].parts
    return " ".join(part.text for part in parts if isinstance(part, ToolOutput))


async def test_twenty_workers_use_two_servers_at_once(honest: dict[str, McpServer]) -> None:
    """`meet` returns only once all twenty are there, so their calls are in flight together."""
    tools = [tool for server in honest.values() for tool in await server.tools()]
    tasks = [
        ch.Task(id=f"t{number}", description=f"Add one to {number}", worker=f"clerk{number}")
        for number in range(CALLERS)
    ]
    async with ch.Supervisor([clerk(number, tools) for number in range(CALLERS)]) as boss:
        result = await boss.run(ch.Plan(goal="Sums", tasks=tasks))
    assert result.status == "succeeded"
    for number in range(CALLERS):
        total = f'{{"sum":{number + 1}}}'
        assert result.tasks[f"t{number}"].output == f"met met {total} {total}"


async def test_a_server_serves_several_event_loops(server: McpServer) -> None:
    """All loops talk to the same process."""
    first = await value(server, "pid")

    def in_a_loop_of_its_own(number: int) -> tuple[Any, Any]:
        async def use() -> tuple[Any, Any]:
            return await value(server, "pid"), await value(server, "add", f'{{"a": {number}}}')

        return asyncio.run(use())

    found = await asyncio.gather(
        *(asyncio.to_thread(in_a_loop_of_its_own, number) for number in range(4))
    )
    assert found == [(first, {"sum": number + 1}) for number in range(4)]


async def test_many_may_list_and_call_at_once(server: McpServer) -> None:
    """Listing anew for one does not keep the others from ever being done."""
    await server.tools()
    found = await asyncio.gather(*(value(server, "pid") for _ in range(60)))
    assert len(set(found)) == 1


async def test_a_cancelled_call_is_taken_back_and_no_other_is_touched(server: McpServer) -> None:
    waiting = asyncio.Event()
    context = ToolContext(report=lambda text: waiting.set())
    wait = await tool_of(server, "wait")
    cancelled = asyncio.create_task(value(server, "cancelled"))
    doomed = asyncio.create_task(wait.call(context, "{}"))
    await waiting.wait()
    doomed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doomed
    assert await cancelled == "cancelled", "the server was told, and answers another call"


async def test_progress_is_told_on_the_callers_loop(server: McpServer) -> None:
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    here = asyncio.get_running_loop()
    context = ToolContext(report=lambda t: told.put_nowait((t, asyncio.get_running_loop())))
    waiting = asyncio.create_task((await tool_of(server, "wait")).call(context, "{}"))
    assert await told.get() == ("waiting", here)
    waiting.cancel()


# Definitions and pins


async def test_a_changed_definition_disables_its_tool_until_it_is_approved(
    server: McpServer,
) -> None:
    """In the protocol's version of 2026, in which changes are told to those who listen."""
    vane = await tool_of(server, "vane")
    old = server.pins["vane"]
    await value(server, "turn")
    with pytest.raises(ToolError, match=r"disabled: its description changed") as caught:
        await call_for_ever(vane)  # over HTTP the word of it comes on another stream
    assert caught.value.kind == "denied"
    assert (await tool_of(server, "vane")).description == vane.description
    assert list(server.disabled) == ["vane"]

    new = server.approve(vane.name)
    assert new != old
    assert server.pins["vane"] == new
    assert (await vane.call(ToolContext(), "{}")).value == "north"
    assert (await tool_of(server, "vane")).description != vane.description
    assert server.disabled == {}


async def test_pins_that_are_given_approve_these_definitions_and_no_others(url: str) -> None:
    async with mcp_server(url=url) as server:
        await server.tools()
        pins = server.pins
    given = {"add": pins["add"], "say": "0" * 64}
    async with mcp_server(url=url, prefix="x_", pins=given) as server:
        tools = {each.name: each for each in await server.tools()}
        assert set(tools) == {"x_add", "x_say"}
        assert "Disabled" in tools["x_say"].description, "the new words are not shown to a model"
        with pytest.raises(ToolError, match=r"changed since it was approved") as caught:
            await tools["x_say"].call(ToolContext(), "{}")
        assert caught.value.kind == "denied"
        assert server.disabled["fail"].startswith("it has no pin")
        assert server.approve("x_say") == pins["say"]
        assert await value(server, "x_say", '{"text": "hello"}') == "hello"
        with pytest.raises(UsageError, match="no tool 'nothing'"):
            server.approve("nothing")


# Starting and ending


async def test_a_program_gets_no_more_of_our_environment_than_it_needs(
    honest: dict[str, McpServer],
) -> None:
    names = (await value(honest["stdio"], "environment")).split()
    assert set(names) - {"PATH", "HOME", "LANG", "LC_CTYPE"} == {"API_KEY"}


async def test_closing_ends_the_process_and_the_use() -> None:
    server = mcp_server(command=command("stdio"))
    pid = await tool_of(server, "pid")
    process = int((await pid.call(ToolContext(), "{}")).value)
    waiting = asyncio.Event()
    wait = (await tool_of(server, "wait")).call(ToolContext(report=lambda _: waiting.set()), "{}")
    pending = asyncio.create_task(wait)
    await waiting.wait()
    await server.close()
    await server.close()
    assert not is_running(process)
    with pytest.raises(ToolError, match=r"was closed, while it was to run wait"):
        await pending
    with pytest.raises(ToolError, match="was closed"):
        await pid.call(ToolContext(), "{}")


LEFT_OPEN = """
import asyncio, sys
from chargehand.tools.base import ToolContext
from chargehand.tools.mcp import mcp_server
server = mcp_server(command=sys.argv[1:])
tools = {tool.name: tool for tool in server.tools_sync()}
print(asyncio.run(tools["pid"].call(ToolContext(), "{}")).value)
"""


def test_what_is_left_open_is_closed_as_the_program_ends() -> None:
    program = [sys.executable, "-W", "error", "-c", LEFT_OPEN, *command("stdio")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert not is_running(int(done.stdout))


def test_tools_may_be_had_without_an_event_loop(server: McpServer) -> None:
    assert "add" in {tool.name.removeprefix("far_") for tool in server.tools_sync()}

    async def in_the_background() -> None:
        server.tools_sync()

    with pytest.raises(UsageError, match="await the async method"):
        run_in_background(in_the_background()).result()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "either a program"),
        ({"command": ["a"], "url": "http://b"}, "either a program"),
        ({"url": "http://b", "env": {"A": "b"}}, "either a program"),
        ({"command": "npx server"}, "is a list"),
        ({"command": []}, "is empty"),
        ({"url": "ftp://b"}, "http or https"),
        ({"url": "https://ada:lovelace@b"}, "headers= instead"),
    ],
)
def test_an_address_that_makes_no_sense_is_refused(wrong: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        mcp_server(**wrong)


def test_terms_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="longer than nothing"):
        ServerTimeouts(call=timedelta(0))
    with pytest.raises(UsageError, match="Restarts: most=-1"):
        Restarts(most=-1)


# Resources


@pytest.fixture
async def guide() -> AsyncIterator[McpServer]:
    env = {"API_KEY": "sesame-1234"}
    async with mcp_server(command=command("stdio"), env=env, name="guide", resources=True) as it:
        yield it


async def test_resources_are_read_by_their_addresses(guide: McpServer) -> None:
    reader = await tool_of(guide, "read_resource")
    result = await reader.call(ToolContext(), '{"uri": "guide://rates"}')
    assert result.value == "A night is 90 francs. The key is [redacted: API_KEY]."
    assert result.taint == ("tool:read_resource",)
    picture = await reader.call(ToolContext(), '{"uri": "guide://map.png"}')
    assert picture.value == "[resource: guide://map.png, image/png, 67 bytes, not shown]"
    with pytest.raises(ToolError, match="guide://nowhere"):
        await reader.call(ToolContext(), '{"uri": "guide://nowhere"}')


async def test_planners_see_resources_and_tools_by_name(guide: McpServer) -> None:
    crew = Roster([ch.Worker("host", "Knows the house", tools=await guide.tools())])
    seen = await seen_by_planner(crew, "What are the rates?")
    lines = seen.words.splitlines()
    assert lines[:2] == ["Resources that host can read:", "- guide://rates (rates, text/markdown)"]
    assert lines[-1].startswith("Tools that host can call: add, say, files_read, ")
    assert "francs" not in seen.words
    assert seen.taint == ("tool:read_resource",)
    # It may reach files that nobody lists, so none is called missing.
    assert await reach_of(crew) == {}


async def test_names_of_approved_tools_taint_nothing(honest: dict[str, McpServer]) -> None:
    tools = [await tool_of(honest["stdio"], "say"), await tool_of(honest["stdio"], "add")]
    crew = Roster([ch.Worker("host", "Says", tools=tools)])
    seen = await seen_by_planner(crew, "Say it")
    assert seen.words == "Tools that host can call: say, add"
    assert seen.taint == ()


async def test_a_server_without_resources_is_asked_for_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mcp_server(command=command("reading"), resources=True) as server:
        tools = await server.tools()
        seen = await seen_by_planner(Roster([ch.Worker("host", "Says", tools=tools)]), "Say it")
    # A tool of its own that is called as ours keeps its name.
    assert [tool.name for tool in tools] == ["echo", "read_resource", "read_resource_"]
    assert seen.words == "Tools that host can call: echo, read_resource"
    assert seen.taint == ()
    assert "material_not_read" not in caplog.text


async def test_planning_does_not_wait_for_a_server_that_withholds_its_resources(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("chargehand.tools.mcp.server.LISTING", 0.2)
    (tmp_path / "a.txt").write_text("x")
    async with mcp_server(command=command("withholding"), resources=True) as server:
        tools = [*await server.tools(), *files(tmp_path)]
        seen = await seen_by_planner(Roster([ch.Worker("host", "Says", tools=tools)]), "Say it")
        # It still serves its tools.
        said = await value(server, "echo", '{"text": "here"}')
    assert "- a.txt (1 bytes)" in seen.words
    assert "longer than 0.2 s to list its resources" in caplog.text
    assert said == "here"


async def test_a_server_that_is_gone_is_left_out_of_the_plan(
    guide: McpServer, caplog: pytest.LogCaptureFixture
) -> None:
    crew = Roster([ch.Worker("host", "Says", tools=await guide.tools())])
    await guide.close()
    assert "Resources" not in (await seen_by_planner(crew, "Say it")).words
    assert "material_not_read tool=read_resource" in caplog.text


async def test_files_for_each_are_not_looked_for_at_a_server(
    guide: McpServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("x")

    host = ch.Worker("host", "Says", tools=await guide.tools(), model=ch.ScriptedModel(["a.txt"]))
    clerk = ch.Worker("clerk", "Reads", tools=files(tmp_path), model=ch.ScriptedModel([]))
    each = ch.Task(id="t", description="Say it", worker="host", for_each={"files": "*.txt"})
    async with ch.Supervisor([host, clerk]) as boss:
        result = await boss.run(ch.Plan(goal="Each", tasks=[each]))
    assert result.tasks["t"].output == ["a.txt"]
