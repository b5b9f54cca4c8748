"""What a provider's errors mean in each framework: the same as for chargehand's own models."""

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, TypedDict

import pytest

pytest.importorskip(
    "pydantic_ai", reason="needs pydantic-ai-slim: pip install chargehand[pydantic-ai]"
)
pytest.importorskip("agents", reason="needs openai-agents: pip install chargehand[openai-agents]")
pytest.importorskip("langgraph", reason="needs langgraph: pip install chargehand[langgraph]")

import agents
import pydantic_ai
from langgraph.graph import START, StateGraph
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import chargehand as ch
from chargehand.interop import langgraph, openai_agents
from chargehand.interop import pydantic_ai as pydantic_ai_interop
from chargehand.interop.error_classes import failure_of
from chargehand.roles.function_worker import FunctionWorker
from chargehand.testing.model_server import Later, Line, ModelServer, Say, Status, model_server
from tests.integration.interop_at_work import KEY, impatient, plan_for

NOBODY = "http://127.0.0.1:9"
QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that failed is made again without a wait."""
    monkeypatch.setattr("chargehand.models.gateway.FIRST_WAIT", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as served:
        yield served


# The frameworks


def of_pydantic_ai(client: AsyncOpenAI) -> FunctionWorker:
    model = OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))
    return pydantic_ai_interop.agent_worker(pydantic_ai.Agent(model), "clerk", "Adds")


def of_openai_agents(client: AsyncOpenAI) -> FunctionWorker:
    agent: agents.Agent[Any] = agents.Agent(name="clerk", model="gpt-4.1")
    provider = agents.OpenAIProvider(openai_client=client, use_responses=False)
    config = agents.RunConfig(model_provider=provider)
    return openai_agents.agent_worker(agent, "clerk", "Adds", config=config)


class State(TypedDict, total=False):
    task: str
    said: str


def of_langgraph(client: AsyncOpenAI) -> FunctionWorker:
    """A node with the client that LangChain's models use, whose exceptions they let through."""

    async def think(state: State) -> State:
        told: Any = [{"role": "user", "content": state["task"]}]
        reply = await client.chat.completions.create(model="gpt-4.1", messages=told)
        return {"said": reply.choices[0].message.content or ""}

    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_edge(START, "think")
    graph = builder.compile()
    return langgraph.graph_worker(graph, "clerk", "Adds", into="task", output="said")


FRAMEWORKS = {
    "pydantic_ai": of_pydantic_ai,
    "openai_agents": of_openai_agents,
    "langgraph": of_langgraph,
}
ERRORS: "dict[str, tuple[Line | None, str, bool]]" = {
    "400": (Status(status=400, words="bad"), "logic", False),
    "401": (Status(status=401, words="Incorrect API key"), "denied", False),
    "402": (Status(status=402, words="Payment Required"), "resource", True),
    "403": (Status(status=403, words="not yours"), "denied", False),
    "404": (Status(status=404, words="no such page"), "logic", False),
    "429": (Status(status=429, headers={"Retry-After": "7"}), "resource", False),
    "429, quota": (Status(status=429, words=QUOTA), "resource", True),
    "500": (Status(status=500), "network", False),
    "503": (Status(status=503), "network", False),
    "504": (Status(status=504), "timeout", False),
    "529": (Status(status=529), "resource", False),
    "no answer": (Later(seconds=60, line=Say(text="too late")), "timeout", False),
    "no connection": (None, "network", False),
}


@pytest.mark.parametrize("case", ERRORS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_each_error_of_a_provider_has_one_class_in_every_framework(
    framework: str, case: str, server: ModelServer
) -> None:
    line, kind, is_final = ERRORS[case]
    server.always = line or server.always
    url = f"{server.url if line else NOBODY}/v1"
    wait = 0.05 if isinstance(line, Later) else 10
    async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0, timeout=wait) as client:
        boss = impatient(FRAMEWORKS[framework](client), limits=ch.Limits(attempts=1))
        result = await boss.run(plan_for())
    error = result.tasks["t"].error
    assert error is not None
    assert (error.kind, error.is_final) == (kind, is_final)
    assert (error.retry_after == timedelta(seconds=7)) is (case == "429")


@pytest.mark.parametrize("make", FRAMEWORKS.values(), ids=FRAMEWORKS)
async def test_a_model_whose_account_is_empty_is_not_asked_again(
    make: Callable[[AsyncOpenAI], FunctionWorker], server: ModelServer
) -> None:
    server.always = Status(status=402, words="Payment Required")
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        result = await impatient(make(client)).run(plan_for())
    assert (result.tasks["t"].attempts, len(server.requests)) == (1, 1)


class Unpaid(Exception):
    status_code = 402


class Broken(Exception):
    status_code = 503


def test_of_several_models_one_that_may_recover_is_worth_another_try() -> None:
    assert failure_of(ExceptionGroup("all", [Unpaid(), Unpaid()])).is_final
    assert not failure_of(ExceptionGroup("all", [Unpaid(), Broken()])).is_final
