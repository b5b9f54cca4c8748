"""A process that has a task done by an agent of another framework; to be killed in the middle of it.

    python agents_at_work.py openai|pydantic URL FOLDER

It leads the one run of its journal, or goes on with it, and prints the answer.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

import chargehand as ch
from chargehand.roles.function_worker import FunctionWorker

KEY = "sk-test-0123456789abcdef"


def adding(folder: Path) -> Callable[[int, int], int]:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        with (folder / "calls").open("a") as calls:
            calls.write(f"{a + b}\n")
        return a + b

    return add


def openai_worker(client: AsyncOpenAI, folder: Path) -> FunctionWorker:
    from agents import Agent, OpenAIProvider, RunConfig, function_tool

    from chargehand.interop.openai_agents import agent_worker

    agent: Agent[Any] = Agent(name="clerk", model="gpt-4.1", tools=[function_tool(adding(folder))])
    provider = OpenAIProvider(openai_client=client, use_responses=False)
    return agent_worker(agent, "clerk", "Adds", config=RunConfig(model_provider=provider))


def pydantic_worker(client: AsyncOpenAI, folder: Path) -> FunctionWorker:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from chargehand.interop.pydantic_ai import agent_worker

    model = OpenAIChatModel("gpt-4.1", provider=OpenAIProvider(openai_client=client))
    return agent_worker(Agent(model, tools=[adding(folder)]), "clerk", "Adds")


WORKERS = {"openai": openai_worker, "pydantic": pydantic_worker}


async def main(framework: str, url: str, folder: Path) -> None:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        worker = WORKERS[framework](client, folder)
        async with ch.Supervisor([worker], journal=folder / "runs.db") as boss:
            task = ch.Task(id="t", description="Add one and two", worker="clerk")
            result = await boss.run(ch.Plan(goal="A sum", tasks=[task]), key="the sum")
            print(result.output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
