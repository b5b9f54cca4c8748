"""How models are opened, forbidden, and share one session for each loop."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from chargehand.errors import ModelDenied, ModelRefused, RealModelForbidden, UsageError
from chargehand.models.anthropic import AnthropicModel
from chargehand.models.base import Model, ModelSettings
from chargehand.models.call_ban import forbid_real_models
from chargehand.models.connection_settings import Access, ModelTimeouts
from chargehand.models.http_session import session_here
from chargehand.models.open_model import open_model
from chargehand.models.openai import OpenAIModel
from chargehand.models.responses import ResponsesModel
from chargehand.models.scripted import ScriptedModel
from chargehand.testing.model_server import ModelServer, Say, model_server
from tests.contracts.model_stage import KEY, MAP, PROTOCOLS, asking, form_of, sent


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        server.key = KEY
        yield server


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Opening


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"'acme:x'.*openai:….*anthropic:….*ollama:….*offline"):
        open_model("acme:x")
    with pytest.raises(UsageError, match="write provider:model"):
        open_model("openai")
    with pytest.raises(UsageError, match="is not a model"):
        open_model(7)  # type: ignore[arg-type]  # what a caller without types may do


@pytest.fixture
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "AZURE_", "OPENROUTER_", "OLLAMA_")):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_keys")
@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai:gpt-5", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("openrouter:meta/llama", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_is_denied_by_the_name_of_its_variable(name: str, variable: str) -> None:
    with pytest.raises(ModelDenied, match=variable):
        open_model(name)


@pytest.mark.usefixtures("_no_keys")
def test_keys_and_addresses_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    shown = repr(open_model("openai:gpt-5-mini"))
    assert shown == "<ResponsesModel openai:gpt-5-mini at https://api.openai.com/v1>"
    assert "<OpenAIModel openai:gpt-4.1 " in repr(open_model("openai:gpt-4.1"))
    assert "<OpenAIModel " in repr(open_model("openai:gpt-5", protocol="chat"))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://gate.example/v1/")
    assert (
        repr(open_model("openai:gpt-5")) == "<OpenAIModel openai:gpt-5 at http://gate.example/v1>"
    )
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    with pytest.raises(UsageError, match="AZURE_OPENAI_ENDPOINT"):
        open_model("azure:mine")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://me.openai.azure.com/")
    assert "me.openai.azure.com/openai/v1>" in repr(open_model("azure:mine"))
    old = open_model("azure:mine", api_version="2024-10-21")
    assert "me.openai.azure.com/openai/deployments/mine>" in repr(old)
    assert "localhost:11434/v1" in repr(open_model("ollama:qwen3"))
    monkeypatch.setenv("OLLAMA_HOST", "box:9000")
    assert "http://box:9000/v1" in repr(open_model("ollama:qwen3"))


async def test_azure_of_both_styles_is_spoken_to(server: ModelServer) -> None:
    server.always = Say(text="ok")
    for version, path in (
        (None, "/openai/v1/chat/completions"),
        ("2024-10-21", "/openai/deployments/mine/chat/completions"),
    ):
        model = open_model("azure:mine", base_url=server.url, key=KEY, api_version=version)
        assert (await model.ask(asking())).text == "ok"
        assert server.requests[-1].path == path
        assert server.requests[-1].query == ({"api-version": version} if version else {})
        assert server.requests[-1].headers["api-key"] == KEY


async def test_other_servers_get_the_words_that_they_know(server: ModelServer) -> None:
    server.key = ""
    server.say(Say(text="ok"))
    await open_model("ollama:qwen3", base_url=server.url).ask(asking(schema=MAP))
    assert sent(server)["max_tokens"] == 4096
    assert form_of(sent(server)) == {"name": "answer", "schema": MAP}


def test_an_account_is_shared_by_models_of_one_key() -> None:
    def account(name: str, key: str) -> str:
        return open_model(name, base_url="http://host/v1", key=key).account

    assert account("openai:a", KEY) == account("openai:b", KEY)
    assert account("openai:a", KEY) != account("openai:a", KEY[::-1])
    assert account("openai:a", KEY) != account("openrouter:a", KEY)


def test_a_model_is_handed_back_as_it_is() -> None:
    """And every adapter is a model, as far as types can tell."""
    access = Access(provider="openai", base_url="http://127.0.0.1/v1")
    models: list[Model] = [
        ScriptedModel(),
        OpenAIModel("m", access),
        ResponsesModel("m", access),
        AnthropicModel("m", access),
    ]
    assert [open_model(model) for model in models] == models


def test_an_adapter_that_is_not_there_is_told_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("in_process_model", "pydantic_ai"):
        monkeypatch.setitem(sys.modules, f"chargehand.models.{name}", None)
    with pytest.raises(UsageError, match=r"install chargehand\[local\]"):
        open_model("local:smollm2")
    with pytest.raises(UsageError, match=r"install chargehand\[pydantic-ai\]"):
        open_model("pydantic_ai:google:gemini")
    with pytest.raises(UsageError, match="by name alone"):
        open_model("offline", base_url="http://host/v1")


def test_neither_the_package_nor_opening_loads_the_http_library() -> None:
    code = (
        "import sys, chargehand, chargehand.models.open_model, chargehand.models.scripted;"
        "assert 'aiohttp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_provider_is_named_with_its_host_if_the_address_is_not_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    own: Any = open_model("openai:m", key=KEY)
    other: Any = open_model("openai:m", base_url="http://models.house:8080/v1", key=KEY)
    assert own.access.shown_name == "openai"
    assert other.access.shown_name == other.shown_provider == "openai at models.house:8080"


async def test_a_proxy_is_used_for_what_is_not_on_this_machine(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", server.url)
    server.always = Say(text="by proxy")
    far = open_model("openai:m", base_url="http://models.invalid/v1", key=KEY)
    assert (await far.ask(asking())).text == "by proxy"
    assert server.requests[-1].headers["Host"] == "models.invalid"
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    near = open_model("openai:m", base_url=f"{server.url}/v1", key=KEY)
    assert (await near.ask(asking())).text == "by proxy"


def test_a_model_that_thinks_in_silence_is_given_time() -> None:
    options: Any = {"base_url": "http://host/v1", "key": KEY}
    thinking: Any = open_model("openai:gpt-5", protocol="responses", **options)
    assert thinking.access.timeouts.silence == timedelta(minutes=5)
    given = ModelTimeouts(silence=timedelta(seconds=1))
    thinking = open_model("openai:gpt-5", protocol="responses", timeouts=given, **options)
    assert thinking.access.timeouts is given


async def test_a_setting_that_a_protocol_lacks_is_told_once(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.always = Say(text="ok")
    request = asking(settings=ModelSettings(seed=7))
    for protocol in ("anthropic", "responses"):
        caplog.clear()
        model = PROTOCOLS[protocol](server)
        await model.ask(request)
        await model.ask(request)
        assert caplog.text.count("cannot do seed") == 1
    stopping = asking(settings=ModelSettings(stop=("END",)))
    with pytest.raises(ModelRefused, match="knows no stop texts"):
        await PROTOCOLS["responses"](server).ask(stopping)


# Forbidding


async def test_real_models_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    real = open_model("openai:gpt-4.1", base_url="http://models.invalid/v1", key=KEY)
    assert real.abilities.is_real
    with forbid_real_models():
        with pytest.raises(RealModelForbidden, match=r"openai:gpt-4\.1 is a real model"):
            await real.ask(asking())
        with pytest.raises(RealModelForbidden):
            await anext(aiter(real.stream(asking())))
    monkeypatch.setenv("CHARGEHAND_FORBID_REAL_MODELS", "1")
    with pytest.raises(RealModelForbidden, match="CHARGEHAND_FORBID_REAL_MODELS"):
        await real.ask(asking())


async def test_a_server_on_this_machine_is_not_forbidden(
    server: ModelServer, protocol: str
) -> None:
    server.say(Say(text="ok"))
    with forbid_real_models():
        assert (await PROTOCOLS[protocol](server).ask(asking())).text == "ok"


async def test_a_ban_stands_until_the_last_one_is_lifted() -> None:
    real = open_model("openai:gpt-4.1", base_url="http://models.invalid/v1", key=KEY)
    first, second = forbid_real_models(), forbid_real_models()
    first.lift()
    first.lift()
    with pytest.raises(RealModelForbidden):
        await real.ask(asking())
    second.lift()


# Sessions


def test_each_loop_has_a_session_that_is_closed_with_it() -> None:
    async def look() -> Any:
        first = await session_here()
        assert first is await session_here()
        return first

    one, two = asyncio.run(look()), asyncio.run(look())
    assert one is not two
    assert one.closed
    assert two.closed


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of sockets that nobody closed
def test_loops_that_were_closed_by_hand_are_let_go(server_url: str) -> None:
    async def ask() -> None:
        model = open_model("openai:m", base_url=f"{server_url}/v1", key=KEY)
        assert (await model.ask(asking())).text == "ok"

    gone = []
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(ask())
        loop.close()
        gone.append(weakref.ref(loop))
    del loop
    asyncio.run(ask())
    gc.collect()
    assert [loop() for loop in gone] == [None] * 3


@pytest.fixture
def server_url() -> Iterator[str]:
    """A server with a loop, and a thread, of its own."""
    started: Future[str] = Future()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        async with model_server() as server:
            server.always = Say(text="ok")
            started.set_result(server.url)
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    yield started.result(10)
    stop[0]()
    thread.join()


def test_a_forked_child_and_a_daemon_thread_leave_no_mess() -> None:
    """The child calls on a session of its own; neither process says a word when it ends."""
    code = """
import asyncio, os, sys
from chargehand.sync_async_bridge import run_in_background
from chargehand.models.base import ModelRequest, user
from chargehand.models.open_model import open_model
from chargehand.testing.model_server import Say, model_server

async def serve(ready):
    async with model_server() as server:
        server.always = Say(text="ok")
        print(server.url, flush=True)
        await asyncio.sleep(60)

async def ask(url):
    model = open_model("openai:m", base_url=url + "/v1", key="k")
    return (await model.ask(ModelRequest(turns=(user("hi"),)))).text

if sys.argv[1] == "serve":
    asyncio.run(serve(None))
else:
    url = sys.argv[1]
    assert run_in_background(ask(url)).result() == "ok"
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(ask(url)) == "ok"
    if (child := os.fork()) == 0:
        own = asyncio.new_event_loop()
        assert own.run_until_complete(ask(url)) == "ok"
        own.run_until_complete(own.shutdown_asyncgens())
        own.close()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert loop.run_until_complete(ask(url)) == "ok"
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
"""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    with subprocess.Popen([*command, "serve"], stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            url = serving.stdout.readline().strip()
            done = subprocess.run([*command, url], capture_output=True, text=True, timeout=60)
        finally:
            serving.kill()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
