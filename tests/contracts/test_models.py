"""What every model keeps to: the scripted one, and each protocol over real HTTP."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from chargehand.errors import ModelBusy, ModelRefused
from chargehand.facts.outcome import Usage
from chargehand.models.base import (
    Abilities,
    File,
    Image,
    Model,
    ModelReply,
    ModelRequest,
    ModelSettings,
    Opaque,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolOutput,
    Turn,
    system,
    user,
)
from chargehand.models.connection_settings import ModelTimeouts
from chargehand.models.open_model import open_model
from chargehand.models.scripted import ScriptedModel
from chargehand.testing.model_server import (
    DIALECTS,
    Cut,
    ModelServer,
    Say,
    Status,
    model_server,
    wire,
)
from tests.contracts.model_stage import (
    ADD,
    CITY,
    FIRST,
    KEY,
    MAP,
    PROTOCOLS,
    SECOND,
    anthropic_model,
    asking,
    chat_model,
    form_of,
    responses_model,
    sent,
)


class Stage:
    """A model, and a way to tell it what to say."""

    def __init__(self, model: Model, server: ModelServer | None) -> None:
        self.model = model
        self.server = server

    def say(self, *lines: Say) -> None:
        if isinstance(self.model, ScriptedModel):
            self.model.add(*map(_scripted, lines))
        elif self.server is not None:
            self.server.say(*lines)


def _scripted(say: Say) -> ModelReply:
    text = say.text or say.refusal
    parts = ((Text(text),) if text else ()) + say.calls
    usage = Usage(
        calls=1,
        tokens_in=say.tokens_in,
        tokens_out=say.tokens_out,
        cache_read=say.cache_read,
        cache_written=say.cache_written,
    )
    return ModelReply(parts=parts, stop=StopReason(say.why), usage=usage, model="scripted")


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        server.key = KEY
        yield server


@pytest.fixture(params=["scripted", *PROTOCOLS])
async def stage(request: pytest.FixtureRequest, server: ModelServer) -> Stage:
    if request.param == "scripted":
        return Stage(ScriptedModel(), None)
    return Stage(PROTOCOLS[request.param](server), server)


@pytest.fixture(params=list(PROTOCOLS))
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def streamed(model: Model, request: ModelRequest) -> tuple[list[str], ModelReply]:
    """The pieces of the text, and the reply that came last."""
    pieces: list[str] = []
    async with aclosing(model.stream(request)) as stream:  # type: ignore[type-var]  # a generator
        async for item in stream:
            if isinstance(item, ModelReply):
                return pieces, item
            pieces.append(item)
    raise AssertionError("the stream ended without a reply")


async def both(stage: Stage, say: Say, request: ModelRequest) -> ModelReply:
    """The reply to `request`, which is the same whether it comes whole or in pieces."""
    stage.say(say, say)
    whole = await stage.model.ask(request)
    pieces, reply = await streamed(stage.model, request)
    assert reply == whole
    assert "".join(pieces) == whole.text
    return whole


# What a model says


async def test_a_text_is_answered_with_a_text(stage: Stage) -> None:
    reply = await both(stage, Say(text="Good morning to you all"), asking())
    assert reply.text == "Good morning to you all"
    assert reply.stop is StopReason.END
    assert reply.parts == (Text("Good morning to you all"),)


async def test_letters_of_all_kinds_come_through(stage: Stage) -> None:
    text = 'naïve 日本語 👩‍👩‍👧 \\n "quoted" \u2028 tab\t, and \r\n lines\n\n'
    reply = await both(stage, Say(text=text, piece=1), asking(system(text), user(text)))
    assert reply.text == text


async def test_a_long_text_comes_in_many_pieces(stage: Stage) -> None:
    stage.say(Say(text="one two three four"))
    pieces, reply = await streamed(stage.model, asking())
    assert len(pieces) > 3
    assert reply.text == "one two three four"


async def test_a_tool_is_called(stage: Stage) -> None:
    reply = await both(stage, Say(calls=(FIRST,)), asking(tools=(ADD,)))
    assert reply.calls == (FIRST,)
    assert reply.stop is StopReason.TOOLS


async def test_several_tools_are_called_at_once_after_some_words(stage: Stage) -> None:
    say = Say(text="I add.", calls=(FIRST, SECOND))
    reply = await both(stage, say, asking(tools=(ADD,)))
    assert reply.parts == (Text("I add."), FIRST, SECOND)


@pytest.mark.parametrize(
    ("say", "stop"),
    [
        (Say(text="all"), StopReason.END),
        (Say(text="al", stop="length"), StopReason.LENGTH),
        (Say(calls=(FIRST,)), StopReason.TOOLS),
        (Say(calls=(FIRST,), stop="length"), StopReason.LENGTH),
        (Say(refusal="I would rather not"), StopReason.REFUSAL),
        (Say(), StopReason.END),
    ],
    ids=["end", "length", "tools", "length inside a call", "refusal", "empty"],
)
async def test_why_a_reply_ended_is_told(stage: Stage, say: Say, stop: StopReason) -> None:
    """Refusal, maximum length and nothing at all are each told apart from an answer."""
    reply = await both(stage, say, asking(tools=(ADD,)))
    assert reply.stop is stop
    assert bool(reply.parts) == bool(say.text or say.refusal or say.calls)
    if say.refusal:
        assert reply.text == say.refusal


async def test_a_response_that_ends_at_its_maximum_was_cut_off_whatever_it_is_called(
    server: ModelServer,
) -> None:
    stage = Stage(responses_model(server), server)
    settings = ModelSettings(max_tokens=50)
    for tokens, stop in ((49, StopReason.END), (50, StopReason.LENGTH)):
        reply = await both(stage, Say(text="yes", tokens_out=tokens), asking(settings=settings))
        assert reply.stop is stop


async def test_what_was_spent_is_told(stage: Stage) -> None:
    say = Say(text="yes", tokens_in=1000, tokens_out=50, cache_read=600, cache_written=300)
    reply = await both(stage, say, asking())
    assert reply.usage == Usage(
        calls=1, tokens_in=1000, tokens_out=50, cache_read=600, cache_written=300
    )


async def test_a_conversation_with_tools_goes_on(stage: Stage) -> None:
    """Each reply's turn is put after the question, then the outputs: the next call is accepted."""
    stage.say(Say(text="Adding.", calls=(FIRST, SECOND), thinking="two sums"), Say(text="3 and 7"))
    turns: tuple[Turn, ...] = (system("Be brief."), user("1+2? 3+4?"))
    reply = await stage.model.ask(asking(*turns, tools=(ADD,)))
    outputs = (
        ToolOutput("call_1", "add", "3"),
        ToolOutput("call_2", "add", "no numbers", is_error=True),
    )
    turns += (reply.turn, Turn(Role.TOOL, outputs))
    assert (await stage.model.ask(asking(*turns, tools=(ADD,)))).text == "3 and 7"


async def test_outputs_may_come_in_turns_of_their_own_with_words_after_them(stage: Stage) -> None:
    stage.say(Say(text="fine"))
    turns = (
        user("add"),
        Turn(Role.MODEL, (FIRST, SECOND)),
        Turn(Role.TOOL, (ToolOutput("call_1", "add", "3"),)),
        Turn(Role.TOOL, (ToolOutput("call_2", "add", "7"),)),
        user("go on"),
    )
    assert (await stage.model.ask(asking(*turns, tools=(ADD,)))).text == "fine"


async def test_an_answer_can_be_held_to_a_schema(stage: Stage) -> None:
    reply = await both(stage, Say(text='{"city":"Rome","people":3}'), asking(schema=CITY))
    assert json.loads(reply.text)["city"] == "Rome"


async def test_images_and_files_are_taken(stage: Stage) -> None:
    parts = (
        Image(data="aGk="),
        Image(url="https://example.com/cat.png"),
        File("a.pdf", "aGk="),
        File("notes.txt", base64.b64encode("naïve".encode()).decode(), "text/plain"),
    )
    assert (await both(stage, Say(text="seen"), asking(user("look", *parts)))).text == "seen"


async def test_a_reply_is_the_same_after_a_trip_through_the_journal(stage: Stage) -> None:
    """Every call is a durable step, so request and reply must survive JSON unchanged."""
    request = asking(tools=(ADD,))
    reply = await both(stage, Say(text="a", calls=(FIRST,), thinking="hm"), request)
    again = msgspec.json.decode(msgspec.json.encode(reply), type=ModelReply)
    assert again == reply
    request = asking(user("hello"), again.turn)
    assert msgspec.json.decode(msgspec.json.encode(request), type=ModelRequest) == request


async def test_many_calls_at_once_do_not_mix(stage: Stage) -> None:
    if isinstance(stage.model, ScriptedModel):
        stage.model.add(*[lambda request: request.turns[0].text] * 50)
    elif stage.server is not None:
        stage.server.always = lambda received: Say(text=_last_text(received.body))
    replies = await asyncio.gather(*(stage.model.ask(asking(user(f"n{n}"))) for n in range(50)))
    assert [reply.text for reply in replies] == [f"n{n}" for n in range(50)]


def _last_text(body: dict[str, Any]) -> str:
    content = (body.get("messages") or body["input"])[-1]["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


async def test_a_model_tells_its_name_and_account_without_its_key(stage: Stage) -> None:
    told = f"{stage.model.name} {stage.model.account} {stage.model!r} {stage.model.abilities}"
    assert KEY not in told
    assert not stage.model.abilities.is_real


# Over HTTP


async def test_opaque_blocks_go_back_to_where_they_came_from(
    server: ModelServer, protocol: str
) -> None:
    """And nowhere else: another provider is not shown them."""
    if protocol == "chat":
        details = [{"type": "reasoning.text", "text": "hm", "signature": "s", "index": 0}]
        server.say(Say(calls=(FIRST,), fields={"reasoning_details": details}))
    else:
        server.say(Say(text="I add", calls=(FIRST,), thinking="hm"))
    server.always = Say(text="done")
    model = PROTOCOLS[protocol](server)
    reply = await model.ask(asking(tools=(ADD,)))
    assert sum(isinstance(part, Opaque) for part in reply.parts) == 1
    journaled = msgspec.json.decode(msgspec.json.encode(reply), type=ModelReply)
    done = Turn(Role.TOOL, (ToolOutput("call_1", "add", "3"),))
    request = asking(user("hello"), journaled.turn, done, tools=(ADD,))
    await model.ask(request)
    marks = {"chat": "reasoning.text", "responses": "sealed(hm)", "anthropic": "sealed(hm)"}
    assert marks[protocol] in json.dumps(sent(server))
    for name, opened in PROTOCOLS.items():
        if name != protocol:
            await opened(server).ask(request)
            assert marks[protocol] not in json.dumps(sent(server))
    async with model_server() as elsewhere:
        elsewhere.say(Say(text="done"))
        await PROTOCOLS[protocol](elsewhere).ask(request)
        assert marks[protocol] not in json.dumps(sent(elsewhere))


async def test_thinking_that_is_streamed_is_kept_as_when_whole(server: ModelServer) -> None:
    details = [{"type": "reasoning.text", "text": "hm", "index": 0}]
    stage = Stage(chat_model(server), server)
    await both(stage, Say(calls=(FIRST,), fields={"reasoning_details": details}), asking())
    await both(stage, Say(calls=(FIRST,), fields={"reasoning_content": "hm"}), asking())
    stage = Stage(responses_model(server), server)
    reply = await both(stage, Say(text="so", fields={"phase": "commentary"}), asking())
    server.say(Say(text="done"))
    await stage.model.ask(asking(user("hello"), reply.turn, user("on")))
    assert sent(server)["input"][1] == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "so"}],
        "phase": "commentary",
    }


async def test_settings_are_sent_in_each_protocols_words(
    server: ModelServer, protocol: str
) -> None:
    server.say(Say(text="ok"))
    settings = ModelSettings(
        max_tokens=99, temperature=0.5, top_p=0.9, reasoning="low", extra={"user": "me"}
    )
    await PROTOCOLS[protocol](server).ask(asking(settings=settings))
    body = sent(server)
    limit = {"chat": "max_completion_tokens", "responses": "max_output_tokens"}
    assert body[limit.get(protocol, "max_tokens")] == 99
    assert (body["temperature"], body["top_p"], body["user"]) == (0.5, 0.9, "me")
    effort = {
        "chat": body.get("reasoning_effort"),
        "responses": body.get("reasoning", {}).get("effort"),
        "anthropic": body.get("output_config", {}).get("effort"),
    }
    assert effort[protocol] == "low"
    if protocol == "responses":
        assert body["store"] is False
        assert body["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize("choice", ["none", "required", "add"])
async def test_a_tool_can_be_forced_or_forbidden(
    server: ModelServer, protocol: str, choice: str
) -> None:
    server.say(Say(text="ok"))
    settings = ModelSettings(reasoning="low")
    request = asking(tools=(ADD,), choice=choice, settings=settings)
    await PROTOCOLS[protocol](server).ask(request)
    forms: dict[str, dict[str, Any]] = {
        "chat": {"add": {"type": "function", "function": {"name": "add"}}},
        "responses": {"add": {"type": "function", "name": "add"}},
        "anthropic": {
            "none": {"type": "none"},
            "required": {"type": "any"},
            "add": {"type": "tool", "name": "add"},
        },
    }
    assert sent(server)["tool_choice"] == forms[protocol].get(choice, choice)


async def test_a_choice_that_no_tool_fits_is_refused_before_it_is_sent(
    server: ModelServer, protocol: str
) -> None:
    with pytest.raises(ModelRefused, match="'subtract' fits none"):
        await PROTOCOLS[protocol](server).ask(asking(tools=(ADD,), choice="subtract"))
    with pytest.raises(ModelRefused, match="'required' fits none"):
        await PROTOCOLS[protocol](server).ask(asking(choice="required"))
    assert not server.requests


async def test_a_schema_is_tightened_so_that_the_provider_holds_to_it(
    server: ModelServer, protocol: str
) -> None:
    server.say(Say(text="{}"))
    await PROTOCOLS[protocol](server).ask(asking(schema=CITY))
    form = form_of(sent(server))
    assert form["schema"]["additionalProperties"] is False
    assert form.get("strict", True) is True
    people = form["schema"]["properties"]["people"]
    assert people == (
        {"type": "integer", "description": '{"minimum":1}'}
        if protocol == "anthropic"
        else {"type": "integer", "minimum": 1}
    )
    assert "additionalProperties" not in CITY, "the caller's own is left as it is"


async def test_a_schema_that_a_provider_cannot_hold_to_is_asked_for_all_the_same(
    server: ModelServer, protocol: str
) -> None:
    server.say(Say(text="{}"))
    await PROTOCOLS[protocol](server).ask(asking(schema=MAP))
    if protocol == "anthropic":
        assert form_of(sent(server)) is None
        assert "JSON Schema" in sent(server)["system"][-1]["text"]
    else:
        assert form_of(sent(server))["schema"] == MAP
        assert form_of(sent(server))["strict"] is False


async def test_what_a_model_cannot_do_is_worked_around_or_refused(
    server: ModelServer, protocol: str
) -> None:
    server.say(Say(text="{}"))
    unable = Abilities(tools=False, schema=False, images=False, files=False)
    model = PROTOCOLS[protocol](server, abilities=unable)
    await model.ask(asking(schema=CITY))
    assert form_of(sent(server)) is None
    assert "JSON Schema" in json.dumps(sent(server))
    for request in (
        asking(tools=(ADD,)),
        asking(user("look", Image(data="aGk="))),
        asking(user("read", File("a.pdf", "aGk="))),
    ):
        with pytest.raises(ModelRefused, match="cannot be asked this"):
            await model.ask(request)
    assert len(server.requests) == 1


async def test_tool_errors_are_told_to_the_model(server: ModelServer, protocol: str) -> None:
    server.say(Say(text="oh"))
    failed = Turn(Role.TOOL, (ToolOutput("call_1", "add", "too big", is_error=True),))
    request = asking(user("add"), Turn(Role.MODEL, (FIRST,)), failed, tools=(ADD,))
    await PROTOCOLS[protocol](server).ask(request)
    body = json.dumps(sent(server))
    assert ('"is_error": true' if protocol == "anthropic" else "Error: too big") in body


async def test_arguments_that_are_no_json_go_back_as_the_model_wrote_them(
    server: ModelServer, protocol: str
) -> None:
    server.say(Say(text="sorry"))
    call = ToolCall("call:1", "add", '{"a": 1')
    outputs = Turn(Role.TOOL, (ToolOutput("call:1", "add", "no JSON", is_error=True),))
    request = asking(user("add"), Turn(Role.MODEL, (call,)), outputs, tools=(ADD,))
    assert (await PROTOCOLS[protocol](server).ask(request)).text == "sorry"
    assert json.dumps('{"a": 1') in json.dumps(sent(server))


async def test_files_of_text_are_sent_as_text(server: ModelServer, protocol: str) -> None:
    server.say(Say(text="ok"))
    file = File("n.csv", base64.b64encode(b"a,b\n1,2").decode(), "text/csv")
    await PROTOCOLS[protocol](server).ask(asking(user("read", file)))
    assert json.dumps("a,b\n1,2")[1:-1] in json.dumps(sent(server))


async def test_the_prompt_is_marked_for_the_cache_when_a_conversation_will_go_on(
    server: ModelServer,
) -> None:
    server.always = Say(text="ok")
    model = anthropic_model(server)
    await model.ask(asking(system("Long"), user("hi")))
    assert "cache_control" not in json.dumps(sent(server)), "one call reads no cache"
    await model.ask(asking(system("Long"), user("hi"), tools=(ADD,)))
    body = sent(server)
    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    await model.ask(asking(user("hi"), tools=(ADD,)))
    assert sent(server)["tools"][-1]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(
    ("name", "thinking"),
    [
        ("claude-sonnet-4-20250514", {"type": "enabled", "budget_tokens": 1024}),
        ("claude-haiku-4-5", {"type": "enabled", "budget_tokens": 1024}),
        ("claude-3-7-sonnet-latest", {"type": "enabled", "budget_tokens": 1024}),
        ("claude-opus-4-6", {"type": "adaptive"}),
        ("claude-sonnet-5", {"type": "adaptive"}),
    ],
)
async def test_older_models_of_anthropic_think_within_a_budget(
    server: ModelServer, name: str, thinking: dict[str, Any]
) -> None:
    server.say(Say(text="ok"))
    model = open_model(f"anthropic:{name}", base_url=server.url, key=KEY)
    await model.ask(asking(settings=ModelSettings(reasoning="low")))
    assert sent(server)["thinking"] == thinking


async def test_a_cancelled_call_closes_its_connection(server: ModelServer, protocol: str) -> None:
    model = PROTOCOLS[protocol](server)
    server.say(Cut(say=Say(text="never"), at=0, then="stall"))
    call = asyncio.create_task(model.ask(asking()))
    await server.stalled.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_a_stream_that_is_left_closes_its_connection(
    server: ModelServer, protocol: str
) -> None:
    model = PROTOCOLS[protocol](server)
    say = Say(text="some words and more")
    body = {"stream": True, "model": "m"}
    half = wire(DIALECTS[protocol], Cut(say=say, at=0), body).index(b" wor")
    server.say(Cut(say=say, at=half, then="stall"))
    async with aclosing(model.stream(asking())) as stream:  # type: ignore[type-var]  # a generator
        async for piece in stream:
            assert piece == "some"
            break
    await asyncio.wait_for(server.hung_up.wait(), 5)


async def test_connections_are_used_again(server: ModelServer, protocol: str) -> None:
    server.always = Say(text="ok")
    model = PROTOCOLS[protocol](server)
    from chargehand.models.http_session import session_here

    for _ in range(3):
        await model.ask(asking())
        async for _item in model.stream(asking()):
            pass
    connector = (await session_here()).connector
    assert connector is not None
    assert sum(map(len, connector._conns.values())) == 1


# The server is faithful


async def test_openais_own_client_understands_the_server(server: ModelServer) -> None:
    openai = pytest.importorskip(
        "openai", reason="needs the openai and anthropic packages: openai is missing"
    )
    say = Say(text="Hello there", calls=(FIRST, SECOND), cache_read=5, thinking="hm")
    server.always = say
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key=KEY, max_retries=0
    ) as client:
        messages = [{"role": "user", "content": "hello"}]
        reply = await client.chat.completions.create(model="m", messages=messages)
        message = reply.choices[0].message
        assert message.content == say.text
        assert [call.id for call in message.tool_calls] == ["call_1", "call_2"]
        assert reply.usage.prompt_tokens_details.cached_tokens == 5
        stream = client.chat.completions.stream(
            model="m", messages=messages, stream_options={"include_usage": True}
        )
        async with stream as events:
            whole = await events.get_final_completion()
        assert whole.choices[0].message.content == say.text
        assert whole.choices[0].message.tool_calls[1].function.arguments == SECOND.arguments
        response = await client.responses.create(model="m", input="hello")
        assert response.output_text == say.text
        assert [item.type for item in response.output].count("function_call") == 2
        texts, last = [], None
        async for event in await client.responses.create(model="m", input="hello", stream=True):
            last = event
            if event.type == "response.output_text.delta":
                texts.append(event.delta)
        assert "".join(texts) == say.text
        assert last is not None
        assert last.response.output[0].encrypted_content == "sealed(hm)"
        server.always = Status(status=429, kind="rate_limit_error")
        with pytest.raises(openai.RateLimitError, match="as scripted"):
            await client.responses.create(model="m", input="hello")


async def test_anthropics_own_client_understands_the_server(server: ModelServer) -> None:
    anthropic = pytest.importorskip(
        "anthropic", reason="needs the openai and anthropic packages: anthropic is missing"
    )
    say = Say(text="Hello there", calls=(FIRST, SECOND), cache_read=5, thinking="hm")
    server.always = say
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0) as client:
        asked = {
            "model": "m",
            "max_tokens": 99,
            "messages": [{"role": "user", "content": "hello"}],
        }
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            texts = [text async for text in stream.text_stream]
            gathered = await stream.get_final_message()
        for message in (whole, gathered):
            assert [b.type for b in message.content] == ["thinking", "text", *["tool_use"] * 2]
            assert message.content[0].signature == "sealed(hm)"
            assert message.content[3].input == {"a": 3, "b": 4}
            assert (message.stop_reason, message.usage.cache_read_input_tokens) == ("tool_use", 5)
        assert "".join(texts) == say.text
        server.always = Status(status=429, kind="rate_limit_error")
        with pytest.raises(anthropic.RateLimitError, match="as scripted"):
            await client.messages.create(**asked)


async def test_the_server_admits_only_a_rate(server: ModelServer) -> None:
    server.always = Say(text="ok")
    server.admit(2, retry_after="7")
    model = chat_model(server, timeouts=ModelTimeouts())
    outcomes = await asyncio.gather(
        *(model.ask(asking()) for _ in range(5)), return_exceptions=True
    )
    refused = [each for each in outcomes if isinstance(each, ModelBusy)]
    assert len(refused) >= 3
    assert refused[0].retry_after == timedelta(seconds=7)
    assert len(server.requests) == 5
