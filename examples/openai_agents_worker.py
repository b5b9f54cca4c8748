"""An OpenAI Agents SDK agent as a worker, with a handoff and a tool that needs approval.

Each model call and each tool call is a step; the approval is a question of the run. Needs
`chargehand[openai-agents]`; the model is the SDK's test model, so nothing leaves the machine.
"""

import asyncio

from agents import Agent, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import chargehand as ch
from chargehand.interop.openai_agents import agent_worker


@function_tool(needs_approval=True)
def refund(francs: int) -> str:
    """Pay money back to the customer."""
    return f"{francs} francs paid back"


MODEL = ScriptedModel(
    [
        [function_call("transfer_to_cashier", {}, call_id="1")],
        [function_call("refund", {"francs": 49}, call_id="2")],
        [assistant_message("Your 49 francs are on their way.")],
    ]
)
CASHIER = Agent(name="cashier", model=MODEL, tools=[refund])
DESK = Agent(name="desk", model=MODEL, handoffs=[CASHIER])
TASK = ch.Task(
    id="case", description="The lamp came broken; the customer wants 49 back", worker="desk"
)


async def lead() -> ch.RunResult:
    boss = ch.Supervisor([agent_worker(DESK, "desk", "Serves customers")])
    async with boss, asyncio.TaskGroup() as people:

        @boss.on(ch.events.AttemptFinished)
        def ask(_: str, event: ch.events.AttemptFinished) -> None:
            if isinstance(event.outcome, ch.NeedsInput):
                print(f"asked: {event.outcome.question.text}")
                people.create_task(boss.answer(event.outcome.question.id, "approve"))

        return await boss.run(ch.Plan(goal="Serve the customer", tasks=[TASK]))


def main() -> ch.RunResult:
    result = asyncio.run(lead())
    print(result.output)
    for attempt in result.trace.attempts:
        print(
            f"  {attempt.ending}: {', '.join(step.name for step in attempt.steps) or 'no new step'}"
        )
    return result


if __name__ == "__main__":
    main()
