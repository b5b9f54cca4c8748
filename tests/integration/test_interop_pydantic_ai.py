"""Agents of Pydantic AI as workers, against its real package, over real HTTP where that matters."""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai", reason="needs pydantic-ai-slim: pip install chargehand[pydantic-ai]"
)

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.messages import AgentStreamEvent, ImageUrl, ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RequestUsage, UsageLimits

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.interop.pydantic_ai import agent_worker
from chargehand.models.base import ToolCall
from chargehand.models.call_ban import forbid_real_models
from chargehand.testing.model_server import ModelServer, Say, Status, model_server
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


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that failed is made again without a wait."""
    monkeypatch.setattr("chargehand.models.gateway.FIRST_WAIT", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as served:
        yield served


@pytest.fixture
async def model(server: ModelServer) -> AsyncIterator[OpenAIChatModel]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        yield OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))


# The work


@pytest.mark.parametrize("text", ["CANNOT: there is no file", "I'm sorry, but I cannot do this."])
async def test_an_agent_that_says_it_cannot_has_failed(text: str) -> None:
    worker = agent_worker(Agent(TestModel(custom_output_text=text)), "clerk", "Answers")
    task = ch.Task(id="t", description="Find the lamp in prices.csv", worker="clerk")
    boss = ch.Supervisor([worker], limits=ch.Limits(attempts=1))
    result = await boss.run(ch.Plan(goal="g", tasks=[task]))
    error = result.tasks["t"].error
    assert error is not None
    assert (result.status, error.kind, error.error) == ("failed", "logic", "Cannot")


async def test_an_agent_does_a_task_with_its_own_tools(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    adder = Adder()
    agent = Agent(model, tools=[adder.add], instructions="Add with your tool.")
    server.say(Say(calls=(ADD,)), Say(text="It is 3."))
    result = await run(agent_worker(agent, "clerk", "Adds"))
    assert result.output == "It is 3."
    assert adder.calls == [3]
    assert server.requests[0].body["messages"][-1]["content"] == "Add one and two"
    steps = result.trace.attempts[0].steps
    assert [(step.name, step.kind) for step in steps] == [
        ("model", "model"),
        ("tool add", "tool"),
        ("model", "model"),
    ]
    assert steps[0].model == "openai:gpt-4.1"


async def test_what_it_spends_is_counted_call_by_call(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    agent = Agent(model, tools=[Adder().add])
    server.say(Say(calls=(ADD,), tokens_in=100, tokens_out=10), Say(text="3", tokens_in=120))
    result = await run(agent_worker(agent, "clerk", "Adds"))
    assert (result.usage.calls, result.usage.tokens_in, result.usage.tokens_out) == (2, 220, 17)
    assert result.usage.money > 0


async def test_what_agents_in_its_tools_spend_is_counted_if_they_pass_it_on() -> None:
    helper = Agent(TestModel(custom_output_text="eins"))

    async def translate(ctx: RunContext[None], text: str) -> str:
        """Translate."""
        return (await helper.run(text, usage=ctx.usage)).output

    agent = Agent(TestModel(), tools=[translate])
    result = await run(agent_worker(agent, "clerk", "Translates"))
    assert result.usage.calls == 3
    assert sum(step.usage.calls for step in result.trace.attempts[0].steps) == 2


async def test_inputs_reach_the_agent_fenced_in_its_prompt(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    @ch.worker("reader", "Reads")
    def read(brief: ch.Brief) -> str:
        return "two apples"

    server.say(Say(text="fine"))
    tasks = [
        ch.Task(id="text", description="Read the text", worker="reader"),
        ch.Task(id="t", description="Count apples", worker="clerk", needs=["text"]),
    ]
    clerk = agent_worker(Agent(model), "clerk", "Counts")
    result = await ch.Supervisor([read, clerk]).run(ch.Plan(goal="Know", tasks=tasks))
    assert result.status == "succeeded"
    asked = server.requests[0].body["messages"][-1]["content"]
    assert asked == "Count apples\nBEGIN text\ntwo apples\nEND text\n"


async def test_a_typed_answer_is_kept_as_json(server: ModelServer, model: OpenAIChatModel) -> None:
    class Sum(BaseModel):
        value: int

    server.say(Say(calls=(ToolCall("c", "final_result", '{"value": 3}'),)))
    result = await run(agent_worker(Agent(model, output_type=Sum), "clerk", "Adds"))
    assert result.tasks["t"].output == {"value": 3}


async def test_a_task_with_a_schema_gets_an_answer_that_fits_it(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server.say(Say(calls=(ToolCall("c", "final_result", '{"n": 3}'),)))
    result = await run(agent_worker(Agent(model), "clerk", "Adds"), plan_for(output=schema))
    assert result.tasks["t"].output == {"n": 3}


async def test_deps_are_made_of_the_brief() -> None:
    @dataclass
    class Shop:
        brief: ch.Brief

    def till(ctx: RunContext[Shop]) -> str:
        """Say whose till it is."""
        return f"{ctx.deps.brief.worker} at {ctx.deps.brief.task.id}"

    agent = Agent(TestModel(), deps_type=Shop, tools=[till])
    result = await run(agent_worker(agent, "clerk", "Sells", deps=Shop))
    assert result.output == '{"till":"clerk at t"}'


async def test_an_untrusted_agent_taints_what_it_returns() -> None:
    agent = Agent(TestModel(custom_output_text="buy!"))
    result = await run(agent_worker(agent, "clerk", "Reads the web", untrusted=True))
    assert result.tasks["t"].taint == ("worker:clerk",)


async def test_an_agent_that_streams_is_heard_whole() -> None:
    heard: list[AgentStreamEvent] = []

    async def hear(_: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        heard.extend([event async for event in events])

    agent = Agent(TestModel(custom_output_text="fine"), capabilities=[ProcessEventStream(hear)])
    result = await run(agent_worker(agent, "clerk", "Talks"))
    assert result.output == "fine"
    assert heard
    assert result.usage.calls == 1


# Going on


async def test_a_resumed_attempt_repeats_no_call(
    server: ModelServer, model: OpenAIChatModel, tmp_path: Path
) -> None:
    """The supervisor is stopped while the second model call is under way."""
    adder = Adder()
    worker = agent_worker(Agent(model, tools=[adder.add]), "clerk", "Adds")
    hang = Hang()
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


async def test_a_call_that_failed_is_made_again_and_those_before_it_are_not(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    adder = Adder()
    server.say(Say(calls=(ADD,)), *DOWN, Say(text="It is 3."))
    worker = agent_worker(Agent(model, tools=[adder.add]), "clerk", "Adds")
    result = await impatient(worker).run(plan_for())
    assert result.output == "It is 3."
    assert result.tasks["t"].attempts == 2
    assert adder.calls == [3]
    assert len(server.requests) == 1 + len(DOWN) + 1


async def test_an_agent_that_does_not_say_the_same_again_starts_over(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    times = iter(range(100))
    agent = Agent(model, tools=[Adder().add], instructions=lambda: f"It is {next(times)} o'clock.")
    server.say(Say(calls=(ADD,)), *DOWN, Say(calls=(ADD,)), Say(text="It is 3."))
    worker = agent_worker(agent, "clerk", "Adds", effects="pure")
    result = await impatient(worker).run(plan_for())
    assert result.output == "It is 3."
    errors = [attempt.error for attempt in result.trace.attempts]
    assert errors[0].startswith("network: ")
    assert errors[1].startswith("logic: step 'model' (number 1) was recorded with other arguments")
    assert errors[2] == ""


async def test_tools_called_side_by_side_are_each_called_once(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    adder = Adder()
    two = (ADD, ToolCall("call_2", "add", '{"a":3,"b":4}'))
    server.say(Say(calls=two), *DOWN, Say(text="3 and 7"))
    worker = agent_worker(Agent(model, tools=[adder.add]), "clerk", "Adds")
    result = await impatient(worker).run(plan_for())
    assert result.output == "3 and 7"
    assert sorted(adder.calls) == [3, 7]


async def test_what_a_tool_tells_the_model_is_told_again_when_it_is_replayed(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    said = iter([ModelRetry("give whole numbers"), ToolFailed("the shelf is empty")])
    calls: list[str] = []

    def fetch(what: str) -> str:
        """Fetch something."""
        calls.append(what)
        raise next(said)

    def fetching(number: int) -> Say:
        return Say(calls=(ToolCall(f"call_{number}", "fetch", f'{{"what": "{number}"}}'),))

    server.say(fetching(1), fetching(2), *DOWN, Say(text="There is none."))
    worker = agent_worker(Agent(model, tools=[fetch], retries=2), "clerk", "Fetches")
    result = await impatient(worker).run(plan_for())
    assert result.output == "There is none."
    assert calls == ["1", "2"]
    assert server.requests[2].body == server.requests[3].body
    told = str(server.requests[3].body)
    assert "give whole numbers" in told
    assert "the shelf is empty" in told


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (["a", 1, None], '["a",1,null]'),
        (ToolReturn("seen", content="see also page 2", metadata={"page": 2}), "see also page 2"),
        (ImageUrl("https://example.org/a.png"), "https://example.org/a.png"),
    ],
    ids=["json", "with content", "an image"],
)
async def test_rich_results_of_tools_survive_the_journal(
    server: ModelServer, model: OpenAIChatModel, returned: object, told: str
) -> None:
    def look() -> Any:
        """Look."""
        return returned

    server.say(Say(calls=(ToolCall("c", "look", "{}"),)), *DOWN, Say(text="seen"))
    worker = agent_worker(Agent(model, tools=[look]), "clerk", "Looks")
    result = await impatient(worker).run(plan_for())
    assert result.output == "seen"
    assert server.requests[1].body == server.requests[2].body
    assert told in str(server.requests[2].body)


async def test_a_tool_in_doubt_asks_a_person_unless_it_was_said_to_be_harmless(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    """A tool that fails may have taken effect: by itself nobody knows."""
    failures = [ConnectionError("line cut"), None]

    def pay(amount: int) -> str:
        """Pay."""
        error = failures.pop(0)
        if error is not None:
            raise error
        return "paid"

    agent = Agent(model, tools=[pay])
    server.say(Say(calls=(ToolCall("c", "pay", '{"amount": 3}'),)), Say(text="Paid."))
    harmless = agent_worker(agent, "clerk", "Pays", effects={"pay": "idempotent"})
    result = await impatient(harmless).run(plan_for())
    assert result.output == "Paid."

    failures[:] = [ConnectionError("line cut")]
    server.say(Say(calls=(ToolCall("c", "pay", '{"amount": 3}'),)), Say(text="Paid."))
    result, asked = await run_answering(agent_worker(agent, "clerk", "Pays"), 'it ran: "paid"')
    assert result.output == "Paid."
    assert len(asked) == 1
    assert asked[0].startswith("Step 'tool pay' failed (network: line cut)")


@pytest.mark.parametrize("effects", ["harmless", "keyed", {"pay": "sometimes"}])
def test_an_effect_that_nobody_knows_is_refused_at_once(effects: Any) -> None:
    with pytest.raises(UsageError, match="is not an effect that a tool can have here"):
        agent_worker(Agent(TestModel()), "clerk", "Pays", effects=effects)


def test_an_effect_of_a_tool_that_the_agent_does_not_have_is_refused() -> None:
    agent = Agent(TestModel(), tools=[Adder().add])
    with pytest.raises(UsageError, match=r"effects names 'ad', which is not a tool .*; it has add"):
        agent_worker(agent, "clerk", "Adds", effects={"add": "pure", "ad": "pure"})
    later = Agent(TestModel(), toolsets=[lambda _: None])  # its tools are known once it works
    agent_worker(later, "clerk", "Adds", effects={"ad": "pure"})


async def test_an_agent_makes_room_at_its_next_call_and_repeats_none(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    tool = Interrupted()
    worker = agent_worker(Agent(model, tools=[tool.add]), "clerk", "Adds")
    server.say(Say(calls=(ADD,)), Say(text="It is 3."))
    result = await run_preempted(worker, tool)
    assert result.output == "It is 3."
    assert tool.calls == 1
    assert len(server.requests) == 2


# People


@pytest.mark.parametrize(
    ("answer", "paid", "told"),
    [("approve", ["3"], "paid 3"), ("reject", [], "denied")],
)
async def test_a_tool_that_needs_approval_asks_a_person(
    server: ModelServer, model: OpenAIChatModel, answer: str, paid: list[str], told: str
) -> None:
    calls: list[str] = []
    agent = Agent(model)

    @agent.tool_plain(requires_approval=True)
    def pay(amount: str) -> str:
        """Pay."""
        calls.append(amount)
        return f"paid {amount}"

    server.say(Say(calls=(ToolCall("c", "pay", '{"amount": "3"}'),)), Say(text="done"))
    result, asked = await run_answering(agent_worker(agent, "clerk", "Pays"), answer)
    assert result.output == "done"
    assert asked == ['May clerk call pay({"amount":"3"})?']
    assert calls == paid
    assert told in str(server.requests[1].body["messages"][-1])
    assert len(server.requests) == 2


async def test_the_same_call_once_more_is_told_as_that(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    agent = Agent(model)

    @agent.tool_plain(requires_approval=True)
    def pay(amount: str) -> str:
        """Pay."""
        return f"paid {amount}"

    for number in range(3):
        server.say(Say(calls=(ToolCall(f"c{number}", "pay", '{"amount": "3"}'),)))
    server.say(Say(text="done"))
    answers = ["approve"] * 3
    _, asked = await run_answering(agent_worker(agent, "clerk", "Pays"), *answers)
    question = 'May clerk call pay({"amount":"3"})?'
    assert asked == [
        question,
        f"{question} The same call was already approved for this task.",
        f"{question} The same call was already approved 2 times for this task.",
    ]


async def test_a_tool_may_find_out_itself_that_it_needs_approval() -> None:
    calls: list[int] = []

    def pay(ctx: RunContext[None], amount: int) -> str:
        """Pay."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired({"why": "much"})
        calls.append(amount)
        return "paid"

    agent = Agent(TestModel(), tools=[pay])
    result, asked = await run_answering(agent_worker(agent, "clerk", "Pays"), "approve")
    assert result.output == '{"pay":"paid"}'
    assert len(asked) == len(calls) == 1


async def test_a_call_that_is_made_elsewhere_is_put_to_a_person() -> None:
    def phone(number: str) -> str:
        """Phone somebody."""
        raise CallDeferred

    agent = Agent(TestModel(), tools=[phone])
    result, asked = await run_answering(agent_worker(agent, "clerk", "Phones"), "they agree")
    assert result.output == '{"phone":"they agree"}'
    assert asked == ['What is the result of phone({"number":"a"})?']


async def test_a_tool_may_ask_a_person_through_the_brief() -> None:
    async def colour(ctx: RunContext[ch.Brief]) -> str:
        """Ask for the colour."""
        return await ctx.deps.ask("Which colour?", choices=["red", "blue"])

    agent = Agent(TestModel(), deps_type=ch.Brief, tools=[colour])
    worker = agent_worker(agent, "clerk", "Paints", deps=lambda brief: brief, effects="pure")
    result, asked = await run_answering(worker, "blue")
    assert result.output == '{"colour":"blue"}'
    assert asked == ["Which colour?"]


# What goes wrong


def test_what_is_no_agent_is_refused() -> None:
    other: Any = "a name"
    with pytest.raises(UsageError, match="worker 'clerk': 'a name' is not an agent of Pydantic AI"):
        agent_worker(other, "clerk", "Adds")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            Status(status=401, words="Incorrect API key provided: sk-test-0123456789abcdef"),
            "denied",
        ),
        (Status(status=400, words="too long"), "logic"),
        (Status(status=429, headers={"Retry-After": "7"}), "resource"),
        (Status(status=504), "timeout"),
        (Status(status=500), "network"),
    ],
)
async def test_what_the_model_s_provider_says_decides_what_is_done(
    server: ModelServer, model: OpenAIChatModel, line: Status, kind: str
) -> None:
    server.always = line
    result = await run(agent_worker(Agent(model), "clerk", "Adds"))
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == kind
    assert "0123456789" not in error.message + error.stack
    if kind == "resource":
        assert error.retry_after == timedelta(seconds=7)


async def test_nobody_at_the_address_is_a_failure_of_the_network() -> None:
    async with AsyncOpenAI(base_url="http://127.0.0.1:9/v1", api_key="k", max_retries=0) as client:
        model = OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))
        result = await run(agent_worker(Agent(model), "clerk", "Adds"))
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == "network"


async def test_limits_of_the_agent_s_own_are_no_reason_to_wait() -> None:
    agent = Agent(TestModel(), tools=[Adder().add])
    few = UsageLimits(request_limit=1)
    result = await run(agent_worker(agent, "clerk", "Adds", usage_limits=few))
    error = result.tasks["t"].error
    assert error is not None
    assert (error.kind, error.error) == ("logic", "UsageLimitExceeded")


async def test_an_agent_is_stopped_with_its_task(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    hang = Hang()
    server.say(hang)
    async with ch.Supervisor([agent_worker(Agent(model), "clerk", "Adds")]) as boss:
        begun = await boss.submit(plan_for())
        await hang.asked.wait()
        await begun.cancel()
        result = await begun.wait()
    assert result.status == "cancelled"


async def test_a_timeout_of_the_worker_holds(server: ModelServer, model: OpenAIChatModel) -> None:
    server.say(Hang())
    slow = agent_worker(Agent(model), "clerk", "Adds", timeout=timedelta(milliseconds=50))
    result = await run(slow)
    error = result.tasks["t"].error
    assert error is not None
    assert error.kind == "timeout"


# In the line of their provider


async def test_a_provider_that_is_busy_is_waited_for_and_no_attempt_is_lost(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    """Six agents at once, and a provider that has sent away as many before it answers one."""
    server.say(*[Status(status=429, headers={"Retry-After": "0.01"})] * 6)
    server.always = Say(text="fine")
    tasks = [
        ch.Task(id=f"t{n}", description=f"Say fine, number {n}", worker="clerk") for n in range(6)
    ]
    boss = ch.Supervisor([agent_worker(Agent(model), "clerk", "Talks")])
    result = await boss.run(ch.Plan(goal="Fine", tasks=tasks))
    assert result.status == "succeeded"
    assert {task.attempts for task in result.tasks.values()} == {1}
    assert sorted(status for _, status in server.answered) == [*[200] * 6, *[429] * 6]


async def test_an_agent_that_would_wait_long_gives_up_its_place_and_comes_back(
    server: ModelServer, model: OpenAIChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chargehand.models.provider_queue.PARK", 0.001)
    adder = Adder()
    busy = Status(status=429, headers={"Retry-After": "0.05"})
    server.say(Say(calls=(ADD,)), busy, Say(text="It is 3."))
    worker = agent_worker(Agent(model, tools=[adder.add]), "clerk", "Adds")
    result = await ch.Supervisor([worker]).run(plan_for())
    assert result.output == "It is 3."
    assert adder.calls == [3]
    assert [attempt.ending for attempt in result.trace.attempts] == ["parked", "done"]


async def test_they_share_the_limits_of_our_own_models_with_the_same_key(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    own = ch.open_model("openai:gpt-4.1", base_url=f"{server.url}/v1", key=KEY)
    gateway = ch.ModelGateway()
    server.always = Say(text="fine")
    boss = ch.Supervisor([agent_worker(Agent(model), "clerk", "Talks")], gateway=gateway)
    await boss.run(plan_for())
    assert list(gateway.states()) == [own.account]


# What it may spend


async def test_a_call_that_could_pass_the_cap_is_not_made(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    server.always = Say(calls=(ADD,))
    worker = agent_worker(Agent(model, tools=[Adder().add]), "clerk", "Adds")
    result = await run(worker, calls=2)
    assert result.usage.calls == len(server.requests) == 2
    assert result.status == "failed"


async def test_in_a_run_with_a_budget_every_call_has_a_longest_answer(
    server: ModelServer, model: OpenAIChatModel
) -> None:
    server.say(Say(text="3"), Say(text="3"))
    worker = agent_worker(Agent(model), "clerk", "Adds")
    await run(worker, money=1.0)
    assert server.requests[0].body["max_completion_tokens"] == 4096
    await run(worker)
    assert "max_completion_tokens" not in server.requests[1].body


async def test_a_cap_on_money_is_refused_where_a_price_is_unknown() -> None:
    async with AsyncOpenAI(base_url="https://models.example.org/v1", api_key="k") as client:
        model = OpenAIChatModel("house-blend", provider=OpenAIProvider(openai_client=client))
        worker = agent_worker(Agent(model), "clerk", "Adds")
        with pytest.raises(UsageError, match="the price of openai:house-blend"):
            await run(worker, money=1.0)


async def test_real_models_can_be_forbidden() -> None:
    async with AsyncOpenAI(base_url="https://models.example.org/v1", api_key="k") as client:
        model = OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))
        with forbid_real_models():
            result = await run(agent_worker(Agent(model), "clerk", "Adds"))
    error = result.tasks["t"].error
    assert error is not None
    assert error.error == "RealModelForbidden"


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("told", ["late", "nothing", "absurd"])
async def test_j5_what_it_says_of_its_usage_settles_as_our_own_calls_do(
    told: str, *, capped: bool
) -> None:
    """A call that timed out, or whose report is missing or cannot be true, costs its reserve."""

    def answer(*_: object) -> ModelResponse:
        if told == "late":
            raise TimeoutError("it fell silent")
        usage = {"nothing": RequestUsage(), "absurd": RequestUsage(input_tokens=-7)}[told]
        return ModelResponse(parts=[TextPart("fine")], usage=usage)

    class Silent(FunctionModel):
        async def request(self, *args: Any, **more: Any) -> ModelResponse:
            return answer()

    worker = agent_worker(Agent(Silent(answer)), "clerk", "Talks")
    result = await run(worker, tokens=20_000 if capped else None)
    spent = result.usage
    assert spent.calls == 1
    assert 0 <= spent.tokens_in + spent.tokens_out <= 20_000
    assert (spent.tokens_in > 0 and spent.tokens_out > 0) or (told == "late" and not capped)
