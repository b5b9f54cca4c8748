"""A supervisor as a node of a LangGraph graph.

The graph prepares the plan, the supervisor's workers do it in parallel, and the graph continues with the result.
One worker asks a person, which is an interrupt in the graph. When the graph is resumed, the node is executed again
and the run continues where it was: `counted` shows that nothing is done twice. Needs `chargehand[langgraph]`.
"""

import json
from collections import Counter
from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

import chargehand as ch
from chargehand.interop.langgraph import node

SALES = {"east": 1200, "west": 900}
counted: Counter[str] = Counter()


@ch.worker("clerk", "Adds up the sales of a region")
def add_up(brief: ch.Brief) -> int:
    counted[brief.args["region"]] += 1
    return SALES[brief.args["region"]]


@ch.worker("buyer", "Decides what to do with the money")
async def decide(brief: ch.Brief) -> str:
    total = sum(brief.inputs.values())
    return await brief.ask(f"There are {total}. Spend or save?", choices=["spend", "save"])


class State(TypedDict, total=False):
    regions: list[str]
    request: Any
    answer: Any


def prepare(state: State) -> State:
    tasks = [
        ch.Task(id=each, description=f"Add up {each}", worker="clerk", args={"region": each})
        for each in state["regions"]
    ]
    last = ch.Task(id="decide", description="Decide", worker="buyer", needs=state["regions"])
    plan = ch.Plan(goal="Decide about the money", tasks=[*tasks, last])
    return {"request": json.loads(plan.to_json())}  # as JSON: checkpointers keep it


def graph() -> Any:
    builder = StateGraph(State)
    builder.add_node("prepare", prepare)
    builder.add_node("team", node(ch.Supervisor([add_up, decide])))
    builder.add_edge(START, "prepare")
    builder.add_edge("prepare", "team")
    return builder.compile(checkpointer=InMemorySaver())


def main() -> str:
    team, thread = graph(), {"configurable": {"thread_id": "1"}}
    for mode, chunk in team.stream(
        {"regions": ["east", "west"]}, thread, stream_mode=["custom", "updates"]
    ):
        if mode == "custom":
            print(f"  {chunk['chargehand']['kind']}")
        elif "__interrupt__" in chunk:
            print(chunk["__interrupt__"][0].value["question"])
    done = team.invoke(Command(resume="save"), thread)
    print(f"{done['answer']}; counted once each: {dict(sorted(counted.items()))}")
    return str(done["answer"])


if __name__ == "__main__":
    main()
