"""An LLM worker learns from what failed: no call is made twice in vain, and the tool is named as the cause."""

import chargehand as ch
from chargehand.errors import ToolError
from chargehand.models.base import ToolCall
from chargehand.roles.tool_loop import NOT_AGAIN, SAME_FAILURES


def query(number: int, sql: str) -> ToolCall:
    return ToolCall(str(number), "ask_books", f'{{"sql": "{sql}"}}')


def clerk(made: list[str], model: ch.ScriptedModel) -> ch.Worker:
    @ch.tool(effect="pure")
    async def ask_books(sql: str) -> str:
        """Ask the books with one SELECT."""
        made.append(sql)
        if "wrong" in sql:
            raise ToolError(f"there is no column {sql!r}")
        return "42"

    return ch.Worker("clerk", "Asks the books", tools=[ask_books], model=model)


PLAN = ch.Plan(
    goal="g", tasks=[ch.Task(id="t1", description="Add up the invoices of May", worker="clerk")]
)


async def test_a_call_that_failed_in_the_attempt_before_is_not_made_again() -> None:
    made: list[str] = []
    model = ch.ScriptedModel(
        [
            query(1, "wrong"),
            "",  # the first attempt gives up
            query(2, "wrong"),
            query(3, "right"),
            "42",
        ]
    )
    result = await ch.Supervisor([clerk(made, model)]).run(PLAN)
    assert result.status == "succeeded", result.answer
    assert made == ["wrong", "right"]
    told = model.requests[-2].turns[-1].parts[0]
    assert NOT_AGAIN in getattr(told, "text", "")


async def test_a_tool_that_keeps_failing_in_the_same_way_is_named_as_the_cause() -> None:
    made: list[str] = []
    calls = [query(number, f"wrong {number}") for number in range(SAME_FAILURES)]
    limits = ch.Limits(attempts=1)
    result = await ch.Supervisor([clerk(made, ch.ScriptedModel(calls))], limits=limits).run(PLAN)
    error = str(result.tasks["t1"].error)
    assert f"ask_books failed {SAME_FAILURES} times in the same way" in error
    assert "there is no column" in error
    assert len(made) == SAME_FAILURES


async def test_failures_of_other_kinds_in_between_are_not_the_same_way() -> None:
    made: list[str] = []
    calls = [
        query(number, f"wrong {number}" if number % 3 else f"right {number}")
        for number in range(1, 12)
    ]
    result = await ch.Supervisor([clerk(made, ch.ScriptedModel([*calls, "42"]))]).run(PLAN)
    assert result.status == "succeeded"
