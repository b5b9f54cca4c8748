"""A Pydantic AI agent as a worker, with its tools, its typed output, and its model calls as steps.

Its provider is down for a moment between two calls. The call is retried when the provider is back; the tool that
was called before is not called twice. Needs `chargehand[pydantic-ai]`; the model is a function, so nothing leaves
the machine.
"""

from pydantic import BaseModel
from pydantic_ai import Agent, ModelResponse, ToolCallPart
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel

import chargehand as ch
from chargehand.interop.pydantic_ai import agent_worker

looked_up: list[str] = []
troubles = [ModelHTTPError(503, "a-model")]


class Quote(BaseModel):
    article: str
    francs: float


def price(article: str) -> float:
    """What an article costs, in francs."""
    looked_up.append(article)
    return {"lamp": 49.0}[article]


def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Stands in for a model: first asks for the price, then answers."""
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("price", {"article": "lamp"})])
    if troubles:
        raise troubles.pop()
    quote = {"article": "lamp", "francs": 49.0}
    return ModelResponse([ToolCallPart(info.output_tools[0].name, quote)])


AGENT = Agent(FunctionModel(think), tools=[price], output_type=Quote)
CLERK = agent_worker(AGENT, "clerk", "Knows prices", effects={"price": "pure"})
TASK = ch.Task(id="quote", description="What does the lamp cost?", worker="clerk")


def main() -> ch.RunResult:
    result = ch.Supervisor([CLERK]).run_sync(ch.Plan(goal="Know the price", tasks=[TASK]))
    print(result.tasks["quote"].output)
    for step in result.trace.attempts[0].steps:
        print(f"  {step.name}: {step.usage.calls} calls counted")
    print(f"the price was looked up {len(looked_up)} time")
    return result


if __name__ == "__main__":
    main()
