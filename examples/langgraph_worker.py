"""A compiled LangGraph graph as a worker, next to a plain function.

The graph drafts an answer and interrupts to have it approved. The interrupt becomes a question of the run. Here the
program answers it; it could also be answered with `chargehand answer`. Needs `chargehand[langgraph]`; the model is
LangChain's test model, so nothing leaves the machine.
"""

import asyncio
from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

import chargehand as ch
from chargehand.interop.langgraph import graph_worker

MODEL = GenericFakeChatModel(messages=iter([AIMessage("We are sorry, and send you a new strap.")]))


async def draft(state: MessagesState) -> dict[str, Any]:
    return {"messages": [await MODEL.ainvoke(state["messages"])]}


def approve(state: MessagesState) -> dict[str, Any]:
    text = state["messages"][-1].text
    if interrupt({"question": f"Send this? {text}", "choices": ["yes", "no"]}) == "no":
        return {"messages": [AIMessage("A colleague will write to you.")]}
    return {"messages": [AIMessage(f"{text} Yours, the shop")]}


def graph() -> Any:
    builder = StateGraph(MessagesState)
    builder.add_sequence([draft, approve])
    builder.add_edge(START, "draft")
    return builder.compile(checkpointer=InMemorySaver())


@ch.worker("reader", "Reads letters")
def read(brief: ch.Brief) -> str:
    return "The strap of my bag broke after two days."


PLAN = ch.Plan(
    goal="Answer the letter",
    tasks=[
        ch.Task(id="letter", description="Read the letter", worker="reader"),
        ch.Task(id="reply", description="Reply to the letter", worker="writer", needs=["letter"]),
    ],
)


async def lead() -> ch.RunResult:
    writer = graph_worker(graph(), "writer", "Replies to letters")
    boss = ch.Supervisor([read, writer])
    async with boss, asyncio.TaskGroup() as people:

        @boss.on(ch.events.AttemptFinished)
        def ask(_: str, event: ch.events.AttemptFinished) -> None:
            if isinstance(event.outcome, ch.NeedsInput):
                print(f"asked: {event.outcome.question.text}")
                people.create_task(boss.answer(event.outcome.question.id, "yes"))

        return await boss.run(PLAN)


def main() -> str:
    result = asyncio.run(lead())
    print(result.tasks["reply"].output)
    return str(result.tasks["reply"].output)


if __name__ == "__main__":
    main()
