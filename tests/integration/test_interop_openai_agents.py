"""Agents of the OpenAI Agents SDK as workers, against its real package and over real HTTP."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="needs openai-agents: pip install chargehand[openai-agents]")

from agents import (
    Agent,
    GuardrailFunctionOutput,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    RunConfig,
    RunContextWrapper,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from agents.mcp import MCPServer
from agents.tracing import Span, Trace, TracingProcessor, set_trace_processors
from mcp.types import CallToolResult, TextContent
from mcp.types import Tool as McpTool
from openai import AsyncOpenAI
from pydantic import BaseModel

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.interop.openai_agents import agent_worker
from chargehand.models.base import ToolCall
from chargehand.models.call_ban import forbid_real_models
from chargehand.testing.model_protocols import WireProtocol
from chargehand.testing.model_server import DIALECTS, ModelServer, Say, Status, model_server
from tests.integration.interop_at_work import (
    ADD,
    AT_ONCE,
    DOWN,
    KEY,
    Adder,
    Hang,
    Interrupted,
    impatient,
    plan_for,
    run,
    run_answering,
    run_preempted,
)

CHECK = type(DIALECTS["responses"]).check


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that failed is made again without a wait."""
    monkeypatch.setattr("chargehand.models.gateway.FIRST_WAIT", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as served:
        yield served


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as opened:
        yield opened


@pytest.fixture(params=["chat", "responses"])
def config(
    request: pytest.FixtureRequest, client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> RunConfig:
    is_new = request.param == "responses"
    monkeypatch.setattr(type(DIALECTS["responses"]), "check", checked_as_stored)
    return RunConfig(model_provider=OpenAIProvider(openai_client=client, use_responses=is_new))


def checked_as_stored(dialect: WireProtocol, body: dict[str, Any]) -> None:
    """The provider keeps what it has said unless it is told not to; the SDK refers to it by its ids."""
    items = body["input"]
    if body.get("store") is not False and isinstance(items, list):
        items = [{key: item[key] for key in item if key != "id"} for item in items]
    CHECK(dialect, {**body, "input": items})


def clerk(**more: Any) -> Agent[Any]:
    return Agent(name="clerk", model="gpt-4.1", instructions="Add with your tool.", **more)


def said_in(body: dict[str, Any]) -> str:
    return str(body.get("messages") or body.get("input"))


# The work


async def test_an_agent_does_a_task_with_its_own_tools(
    server: ModelServer, config: RunConfig
) -> None:
    adder = Adder()
    server.say(Say(calls=(ADD,), tokens_in=100), Say(text="It is 3.", tokens_in=120))
    agent = clerk(tools=[function_tool(adder.add)])
    result = await run(agent_worker(agent, "clerk", "Adds", config=config))
    assert result.output == "It is 3."
    assert adder.calls == [3]
    assert "Add one and two" in said_in(server.requests[0].body)
    steps = result.trace.attempts[0].steps
    assert [(step.name, step.kind) for step in steps] == [
        ("model", "model"),
        ("tool add", "tool"),
        ("model", "model"),
    ]
    assert steps[0].model == "openai:gpt-4.1"
    assert (result.usage.calls, result.usage.tokens_in, result.usage.tokens_out) == (2, 220, 14)
    assert result.usage.money > 0


async def test_an_agent_may_bring_a_model_of_its_own(
    server: ModelServer, client: AsyncOpenAI
) -> None:
    server.say(Say(text="fine"))
    agent = Agent(name="clerk", model=OpenAIChatCompletionsModel("gpt-4.1", client))
    result = await run(agent_worker(agent, "clerk", "Talks"))
    assert result.output == "fine"
    assert result.usage.calls == 1
    assert [step.name for step in result.trace.attempts[0].steps] == ["model"]


async def test_a_typed_answer_is_kept_as_json(server: ModelServer, config: RunConfig) -> None:
    class Sum(BaseModel):
        value: int

    server.say(Say(text='{"value": 3}'))
    result = await run(agent_worker(clerk(output_type=Sum), "clerk", "Adds", config=config))
    assert result.tasks["t"].output == {"value": 3}


async def test_a_task_with_a_schema_gets_an_answer_that_fits_it(
    server: ModelServer, config: RunConfig
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    worker = agent_worker(clerk(), "clerk", "Adds", config=config)
    server.say(Say(text='{"n": 3}'), Say(text='{"n": "three"}'))
    result = await run(worker, plan_for(output=schema))
    assert result.tasks["t"].output == {"n": 3}
    error = (await run(worker, plan_for(output=schema))).tasks["t"].error
    assert error is not None
    assert (error.kind, error.error) == ("logic", "ModelBehaviorError")


async def test_a_context_is_made_of_the_brief(server: ModelServer, config: RunConfig) -> None:
    @function_tool
    def whose(context: RunContextWrapper[ch.Brief]) -> str:
        """Say whose task it is."""
        return f"{context.context.worker} at {context.context.task.id}"

    server.say(Say(calls=(ToolCall("c", "whose", "{}"),)), Say(text="known"))
    worker = agent_worker(
        clerk(tools=[whose]), "clerk", "Knows", context=lambda brief: brief, config=config
    )
    assert (await run(worker)).output == "known"
    assert "clerk at t" in said_in(server.requests[1].body)


# Handing over


async def test_the_agent_that_is_handed_over_to_answers(
    server: ModelServer, config: RunConfig
) -> None:
    adder = Adder()
    adding = Agent(name="adder", model="gpt-4.1-mini", tools=[function_tool(adder.add)])
    kernel = Agent(name="desk", model="gpt-4.1", handoffs=[adding])
    adding.handoffs = [kernel]  # a circle
    server.say(
        Say(calls=(ToolCall("h", "transfer_to_adder", "{}"),)),
        Say(calls=(ADD,)),
        *DOWN,
        Say(text="It is 3."),
    )
    worker = agent_worker(kernel, "clerk", "Adds", config=config)
    result = await impatient(worker).run(plan_for())
    assert result.output == "It is 3."
    assert adder.calls == [3]
    asked = [request.body["model"] for request in server.requests]
    assert asked == ["gpt-4.1", *["gpt-4.1-mini"] * (1 + len(DOWN) + 1)]
    assert server.requests[2].body == server.requests[-1].body
    assert kernel.handoffs == [adding]


async def test_a_handoff_with_a_say_of_its_own_is_followed_too(
    server: ModelServer, config: RunConfig
) -> None:
    heard: list[str] = []
    adding = Agent(name="adder", model="gpt-4.1", tools=[function_tool(Adder().add)])
    to = handoff(adding, on_handoff=lambda _: heard.append("handed over"))
    server.say(
        Say(calls=(ToolCall("h", "transfer_to_adder", "{}"),)), Say(calls=(ADD,)), Say(text="3")
    )
    result = await run(agent_worker(clerk(handoffs=[to]), "clerk", "Adds", config=config))
    assert result.output == "3"
    assert heard == ["handed over"]
    assert [step.name for step in result.trace.attempts[0].steps] == [
        "model",
        "model",
        "tool add",
        "model",
    ]


async def test_an_agent_used_as_a_tool_is_one_step_and_what_it_asks_is_counted(
    server: ModelServer, config: RunConfig
) -> None:
    helper = Agent(name="helper", model="gpt-4.1-mini")
    tool = helper.as_tool("translate", "Translates a text")
    calls = tuple(ToolCall(f"c{n}", "translate", f'{{"input": "{n}"}}') for n in (1, 2))
    server.say(
        Say(calls=calls),
        Say(text="eins"),
        Say(text="zwei"),
        *DOWN,
        Say(text="eins, zwei"),
    )
    worker = agent_worker(clerk(tools=[tool]), "clerk", "Translates", config=config)
    result = await impatient(worker).run(plan_for())
    assert result.output == "eins, zwei"
    assert len(server.requests) == 4 + len(DOWN)
    assert result.usage.calls == 4 + 1, "the call that failed is one, too"
    assert result.usage.tokens_in == 4 * 11


async def test_what_an_agent_used_as_a_tool_asks_a_model_of_its_own_is_counted_too(
    server: ModelServer, client: AsyncOpenAI, config: RunConfig
) -> None:
    helper = Agent(name="helper", model=OpenAIChatCompletionsModel("gpt-4.1-mini", client))
    tool = helper.as_tool("translate", "Translates a text")
    server.say(
        Say(calls=(ToolCall("c", "translate", '{"input": "1"}'),)), Say(text="eins"), Say(text="ja")
    )
    worker = agent_worker(clerk(tools=[tool]), "clerk", "Translates", config=config)
    result = await run(worker)
    assert (result.usage.calls, result.usage.tokens_in) == (3, 33)


# Going on


async def test_a_resumed_attempt_repeats_no_call(
    server: ModelServer, config: RunConfig, tmp_path: Path
) -> None:
    """The supervisor is stopped while the second model call is under way."""
    adder, hang = Adder(), Hang()
    agent = clerk(tools=[function_tool(adder.add)])
    worker = agent_worker(agent, "clerk", "Adds", config=config)
    server.say(Say(calls=(ADD,)), hang, Say(text="It is 3."))
    async with ch.Supervisor([worker], journal=tmp_path / "runs.db") as boss:
        begun = await boss.submit(plan_for())
        await hang.asked.wait()
        await boss.stop(AT_ONCE)
    async with ch.Supervisor([worker], journal=tmp_path / "runs.db") as again:
        result = await again.resume(begun.id)
    assert result.output == "It is 3."
    assert adder.calls == [3]
    assert len(server.requests) == 3
    assert server.requests[1].body == server.requests[2].body


async def test_what_a_failing_tool_tells_the_model_is_told_again(
    server: ModelServer, config: RunConfig
) -> None:
    """The SDK tells its model what came of a tool that raised; so that is the tool's result."""
    calls: list[str] = []

    @function_tool(failure_error_function=lambda _, error: f"it failed: {error}")
    def fetch(what: str) -> str:
        """Fetch something."""
        calls.append(what)
        raise ValueError("the shelf is empty")

    server.say(Say(calls=(ToolCall("c", "fetch", '{"what": "it"}'),)), *DOWN, Say(text="none"))
    worker = agent_worker(clerk(tools=[fetch]), "clerk", "Fetches", config=config)
    result = await impatient(worker).run(plan_for())
    assert result.output == "none"
    assert calls == ["it"]
    assert "it failed: the shelf is empty" in said_in(server.requests[2].body)


class Shop(MCPServer):
    """An MCP server with one tool, in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    @property
    def name(self) -> str:
        return "shop"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, *_: Any) -> list[McpTool]:
        schema = {"type": "object", "properties": {"article": {"type": "string"}}}
        return [McpTool(name="price", description="What it costs", input_schema=schema)]

    async def call_tool(
        self, tool_name: str, arguments: dict[str, Any] | None, meta: dict[str, Any] | None = None
    ) -> CallToolResult:
        self.calls.append(arguments)
        return CallToolResult(content=[TextContent(type="text", text="49 francs")])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError


async def test_tools_of_mcp_servers_are_called_once_too(
    server: ModelServer, config: RunConfig
) -> None:
    shop = Shop()
    server.say(
        Say(calls=(ToolCall("c", "price", '{"article": "lamp"}'),)),
        *DOWN,
        Say(text="It costs 49 francs."),
    )
    worker = agent_worker(clerk(mcp_servers=[shop]), "clerk", "Sells", config=config)
    result = await impatient(worker).run(plan_for())
    assert result.output == "It costs 49 francs."
    assert shop.calls == [{"article": "lamp"}]
    assert server.requests[1].body == server.requests[2].body
    assert "49 francs" in said_in(server.requests[2].body)


async def test_an_agent_makes_room_at_its_next_call_and_repeats_none(
    server: ModelServer, config: RunConfig
) -> None:
    tool = Interrupted()
    agent = clerk(tools=[function_tool(tool.add)])
    worker = agent_worker(agent, "clerk", "Adds", config=config)
    server.say(Say(calls=(ADD,)), Say(text="It is 3."))
    result = await run_preempted(worker, tool)
    assert result.output == "It is 3."
    assert tool.calls == 1
    assert len(server.requests) == 2


# People


@pytest.mark.parametrize(
    ("answer", "paid", "told"), [("approve", ["3"], "paid 3"), ("reject", [], "not approved")]
)
async def test_a_tool_that_needs_approval_asks_a_person(
    server: ModelServer, config: RunConfig, answer: str, paid: list[str], told: str
) -> None:
    calls: list[str] = []

    @function_tool(needs_approval=True)
    def pay(amount: str) -> str:
        """Pay."""
        calls.append(amount)
        return f"paid {amount}"

    server.say(Say(calls=(ToolCall("c", "pay", '{"amount": "3"}'),)), Say(text="done"))
    worker = agent_worker(clerk(tools=[pay]), "clerk", "Pays", config=config)
    result, asked = await run_answering(worker, answer)
    assert result.output == "done"
    assert asked == ['May clerk call pay({"amount": "3"})?']
    assert calls == paid
    assert told in said_in(server.requests[1].body)
    assert len(server.requests) == 2


async def test_a_tool_may_ask_a_person_through_the_brief(
    server: ModelServer, config: RunConfig
) -> None:
    """The SDK would tell its model of whatever a tool raises; a question passes all the same."""

    @function_tool
    async def colour(context: RunContextWrapper[ch.Brief]) -> str:
        """Ask for the colour."""
        return await context.context.ask("Which colour?", choices=["red", "blue"])

    server.say(Say(calls=(ToolCall("c", "colour", "{}"),)), Say(text="It is blue."))
    worker = agent_worker(
        clerk(tools=[colour]),
        "clerk",
        "Paints",
        context=lambda brief: brief,
        effects="pure",
        config=config,
    )
    result, asked = await run_answering(worker, "blue")
    assert result.output == "It is blue."
    assert asked == ["Which colour?"]
    assert len(server.requests) == 2


def test_an_effect_of_a_tool_that_the_agent_does_not_have_is_refused() -> None:
    @function_tool
    def pay() -> str:
        """Pay."""
        return "paid"

    cashier = Agent("cashier", tools=[pay])
    desk = Agent("desk", handoffs=[cashier])
    cashier.handoffs = [desk]
    agent_worker(desk, "clerk", "Pays", effects={"pay": "once"})
    with pytest.raises(
        UsageError, match=r"effects names 'apy', which is not a tool .*; it has pay"
    ):
        agent_worker(desk, "clerk", "Pays", effects={"apy": "once"})
    finding = Agent("finding", handoffs=[handoff(cashier)])  # whom it finds is known once it works
    agent_worker(finding, "clerk", "Pays", effects={"apy": "once"})


async def test_approval_inside_an_agent_used_as_a_tool_is_refused_with_the_way_out(
    server: ModelServer, config: RunConfig
) -> None:
    @function_tool(needs_approval=True)
    def pay(amount: str) -> str:
        """Pay."""
        raise AssertionError(f"nobody has approved {amount}")

    tool = Agent(name="helper", model="gpt-4.1", tools=[pay]).as_tool("buy", "Buys something")
    server.say(
        Say(calls=(ToolCall("c", "buy", '{"input": "it"}'),)),
        Say(calls=(ToolCall("d", "pay", '{"amount": "3"}'),)),
    )
    result = await run(agent_worker(clerk(tools=[tool]), "clerk", "Buys", config=config))
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == "denied"
    assert "agent.as_tool(…, needs_approval=True)" in error.message


# What goes wrong


def test_what_is_no_agent_is_refused() -> None:
    other: Any = "a name"
    with pytest.raises(
        UsageError, match="worker 'clerk': 'a name' is not an agent of the OpenAI Agents SDK"
    ):
        agent_worker(other, "clerk", "Adds")


async def test_an_agent_that_makes_no_end_fails_for_what_it_does(
    server: ModelServer, config: RunConfig
) -> None:
    server.always = Say(calls=(ADD,))
    agent = clerk(tools=[function_tool(Adder().add)])
    result = await run(agent_worker(agent, "clerk", "Adds", config=config, max_turns=2))
    error = result.tasks["t"].error
    assert error is not None
    assert (error.kind, error.error) == ("logic", "MaxTurnsExceeded")
    assert len(server.requests) == 2


@pytest.mark.parametrize("side", ["input", "output"])
async def test_a_tripwire_is_a_denial(server: ModelServer, config: RunConfig, side: str) -> None:
    def tripped(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info="no", tripwire_triggered=True)

    server.always = Say(text="fine")
    guards: dict[str, Any] = {
        "input": {"input_guardrails": [input_guardrail(tripped)]},
        "output": {"output_guardrails": [output_guardrail(tripped)]},
    }
    worker = agent_worker(clerk(**guards[side]), "clerk", "Adds", config=config)
    result = await impatient(worker).run(plan_for())
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == "denied"
    assert error.error == f"{side.title()}GuardrailTripwireTriggered"
    assert result.tasks["t"].attempts == 1


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (Status(status=401, words=f"Incorrect API key provided: {KEY}"), "denied"),
        (Status(status=400, words="too long"), "logic"),
        (Status(status=429, headers={"Retry-After": "7"}), "resource"),
        (Status(status=504), "timeout"),
        (Status(status=500), "network"),
    ],
)
async def test_what_the_model_s_provider_says_decides_what_is_done(
    server: ModelServer, config: RunConfig, line: Status, kind: str
) -> None:
    server.always = line
    result = await run(agent_worker(clerk(), "clerk", "Adds", config=config))
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == kind
    assert KEY not in error.message + error.stack
    if kind == "resource":
        assert error.retry_after == timedelta(seconds=7)


async def test_an_agent_is_stopped_with_its_task(server: ModelServer, config: RunConfig) -> None:
    hang = Hang()
    server.say(hang)
    async with ch.Supervisor([agent_worker(clerk(), "clerk", "Adds", config=config)]) as boss:
        begun = await boss.submit(plan_for())
        await hang.asked.wait()
        await begun.cancel()
        assert (await begun.wait()).status == "cancelled"


# In the line of their provider


async def test_a_provider_that_is_busy_is_waited_for_and_no_attempt_is_lost(
    server: ModelServer, config: RunConfig
) -> None:
    """Six agents at once, and a provider that has sent away as many before it answers one."""
    server.say(*[Status(status=429, headers={"Retry-After": "0.01"})] * 6)
    server.always = Say(text="fine")
    tasks = [
        ch.Task(id=f"t{n}", description=f"Say fine, number {n}", worker="clerk") for n in range(6)
    ]
    boss = ch.Supervisor([agent_worker(clerk(), "clerk", "Talks", config=config)])
    result = await boss.run(ch.Plan(goal="Fine", tasks=tasks))
    assert result.status == "succeeded"
    assert {task.attempts for task in result.tasks.values()} == {1}
    assert sorted(status for _, status in server.answered) == [*[200] * 6, *[429] * 6]


async def test_an_agent_that_would_wait_long_gives_up_its_place_and_comes_back(
    server: ModelServer, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.models.provider_queue.PARK", 0.001)
    adder = Adder()
    busy = Status(status=429, headers={"Retry-After": "0.05"})
    server.say(Say(calls=(ADD,)), busy, Say(text="It is 3."))
    worker = agent_worker(clerk(tools=[function_tool(adder.add)]), "clerk", "Adds", config=config)
    result = await ch.Supervisor([worker]).run(plan_for())
    assert result.output == "It is 3."
    assert adder.calls == [3]
    assert [attempt.ending for attempt in result.trace.attempts] == ["parked", "done"]


async def test_they_share_the_limits_of_our_own_models_with_the_same_key(
    server: ModelServer, config: RunConfig
) -> None:
    own = ch.open_model("openai:gpt-4.1", base_url=f"{server.url}/v1", key=KEY)
    gateway = ch.ModelGateway()
    server.always = Say(text="fine")
    boss = ch.Supervisor([agent_worker(clerk(), "clerk", "Talks", config=config)], gateway=gateway)
    await boss.run(plan_for())
    assert list(gateway.states()) == [own.account]


# What it may spend, and what it may send


async def test_a_call_that_could_pass_the_cap_is_not_made(
    server: ModelServer, config: RunConfig
) -> None:
    server.always = Say(calls=(ADD,))
    agent = clerk(tools=[function_tool(Adder().add)])
    result = await run(agent_worker(agent, "clerk", "Adds", config=config), calls=2)
    assert result.usage.calls == len(server.requests) == 2
    assert result.status == "failed"


async def test_in_a_run_with_a_budget_every_call_has_a_longest_answer(
    server: ModelServer, config: RunConfig
) -> None:
    server.always = Say(text="3")
    longest = ("max_tokens", "max_output_tokens", "max_completion_tokens")
    for settings, most in ((ModelSettings(), 4096), (ModelSettings(max_tokens=99), 99)):
        worker = agent_worker(clerk(model_settings=settings), "clerk", "Adds", config=config)
        await run(worker, money=1.0)
        assert most in [server.requests[-1].body.get(name) for name in longest]


async def test_a_cap_on_money_is_refused_where_a_price_is_unknown(config: RunConfig) -> None:
    other = Agent(name="other", model="house-blend")
    worker = agent_worker(clerk(handoffs=[other]), "clerk", "Adds", config=config)
    with pytest.raises(UsageError, match="the price of openai:house-blend"):
        await run(worker, money=1.0)


async def test_real_models_can_be_forbidden() -> None:
    async with AsyncOpenAI(base_url="https://models.example.org/v1", api_key="k") as client:
        agent = Agent(name="clerk", model=OpenAIChatCompletionsModel("gpt-4.1", client))
        with forbid_real_models():
            result = await run(agent_worker(agent, "clerk", "Adds"))
    error = result.tasks["t"].error
    assert error is not None
    assert error.error == "RealModelForbidden"


class Listening(TracingProcessor):
    """Hears what the SDK would send."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_trace_start(self, trace: Trace) -> None:
        self.heard.append(trace.name)

    def on_trace_end(self, trace: Trace) -> None: ...

    def on_span_start(self, span: Span[Any]) -> None:
        self.heard.append(span.span_id)

    def on_span_end(self, span: Span[Any]) -> None: ...

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


async def test_nothing_is_traced_unless_it_is_asked_for(
    server: ModelServer, config: RunConfig
) -> None:
    listening = Listening()
    set_trace_processors([listening])
    server.always = Say(text="3")
    await run(agent_worker(clerk(), "clerk", "Adds", config=config))
    assert listening.heard == []
    await run(agent_worker(clerk(), "clerk", "Adds", config=config, tracing=True))
    assert listening.heard[0] == "Agent workflow"
