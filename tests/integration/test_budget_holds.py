"""J5: caps hold whatever usage is reported: missing, negative, absurd, or of calls that nobody saw the end of."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chargehand as ch
from chargehand import errors
from chargehand.cli.run_details import ended_json
from chargehand.facts.outcome import Usage
from chargehand.facts.value import Value
from chargehand.models.base import ModelReply, ModelSettings, StopReason, Text, ToolCall
from chargehand.models.open_model import open_model
from chargehand.models.openai import OpenAIModel
from chargehand.models.prices import price_of, settled
from chargehand.presentation.progress_lines import summary
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

ABSURD = st.one_of(
    st.none(),
    st.integers(-5, 5),
    st.integers(0, 400),
    st.sampled_from([-1, 10**6, 2**53, 2**53 + 1, 10**12]),
)
REPORTS = st.one_of(st.none(), st.tuples(ABSURD, ABSURD, ABSURD, ABSURD))
NAME = "openai:gpt-4o-mini"


def reported(report: "tuple[int | None, ...] | None") -> Usage:
    """What our adapter makes of a report."""
    if report is None:
        return Usage(calls=1)
    from chargehand.models.http_adapter import usage_of

    return usage_of(*report)


@given(report=REPORTS, sent=st.integers(1, 5000), most=st.integers(1, 5000))
def test_j5_a_call_never_costs_more_than_its_reserve_nor_less_than_nothing(
    report: Any, sent: int, most: int
) -> None:
    reserve = Usage(calls=1, tokens_in=sent, tokens_out=most)
    worst = Usage(calls=1, tokens_in=sent, tokens_out=most, money=price_of(NAME, reserve) or 0.0)
    spent = settled(NAME, reported(report), worst)
    assert 0 < spent.tokens_in <= sent
    assert 0 < spent.tokens_out <= most
    assert 0 <= spent.money <= worst.money
    assert spent.calls == 1


def answers(reports: "list[Any]") -> Any:
    left = iter(reports)

    def answer(_: object) -> "ModelReply | Exception":
        report = next(left, None)
        if isinstance(report, type):
            raise report("as drawn")
        return ModelReply(
            parts=(Text("fine"),), stop=StopReason.END, usage=reported(report), model="m"
        )

    return answer


@settings(max_examples=40, deadline=None)
@given(
    reports=st.lists(
        st.one_of(REPORTS, st.sampled_from([errors.ModelTooSlow, errors.ModelGarbled])),
        max_size=30,
    ),
    cap=st.sampled_from(
        [{"tokens": 3000}, {"money": 0.0008}, {"calls": 7}, {"tokens": 9000, "calls": 12}]
    ),
    width=st.integers(1, 10),
)
def test_j5_no_run_spends_more_than_its_caps_whatever_is_reported(
    reports: list[Any], cap: dict[str, Any], width: int
) -> None:
    model = ch.ScriptedModel([answers(reports)] * 500, name=NAME)

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Works", model=model, settings=ModelSettings(max_tokens=100))
        tasks = [make_task(f"t{n}", "mind") for n in range(30)]
        boss = ch.Supervisor(
            [mind], limits=ch.Limits(**cap), clock=FakeClock(), parallel=width, on_question="fail"
        )
        async with boss:
            return await boss.run(make_plan(*tasks))

    result = run_virtual(main())
    spent = result.usage
    assert 0 <= spent.money <= cap.get("money", 10**9)
    assert 0 <= spent.tokens_in + spent.tokens_out <= cap.get("tokens", 10**9)
    assert 0 <= spent.calls <= cap.get("calls", 10**9)
    # What our side sent is bounded too, not only what was counted.
    assert len(model.requests) <= min(cap.get("calls", 10**9), cap.get("tokens", 10**9) // 100 + 1)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": -5, "completion_tokens": 5},
        {"prompt_tokens": 5, "completion_tokens": -5},
        {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}},
        {"prompt_tokens": 2**60, "completion_tokens": 1},
        {},
    ],
)
def test_j5_a_report_that_cannot_be_true_is_no_report(usage: Any) -> None:
    import msgspec

    model = open_model("openai:m", base_url="http://127.0.0.1:9/v1")
    assert isinstance(model, OpenAIModel)
    message = {"message": {"content": "a"}, "finish_reason": "stop"}
    body = msgspec.json.encode({"choices": [message], "usage": usage})
    assert model.reply_in(body, {}).usage == Usage(calls=1)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (ch.TaskLimits(calls=4), 4),
        (ch.TaskLimits(tokens=2500), 3),
        (ch.TaskLimits(money=0.0004), 3),
    ],
)
def test_j5_the_limits_of_a_task_hold_over_all_its_tries(limits: ch.TaskLimits, most: int) -> None:
    @ch.tool(effect="pure")
    def look(n: int) -> str:
        """Look once more."""
        return f"nothing at {n}"

    def call(request: Any) -> ModelReply:
        number = len(request.turns)
        parts = (ToolCall(str(number), "look", f'{{"n": {number}}}'),)
        return ModelReply(parts=parts, stop=StopReason.TOOLS, usage=Usage(calls=1), model="m")

    model = ch.ScriptedModel([call] * 300, name=NAME)

    async def main() -> ch.RunResult:
        settings_ = ModelSettings(max_tokens=100)
        mind = ch.Worker("mind", "Works", model=model, tools=[look], settings=settings_)
        other = ch.Worker("other", "Works", model=ch.ScriptedModel(["fine"]))
        plan = make_plan(make_task("t", "mind", limits=limits), make_task("u", "other"))
        async with ch.Supervisor([mind, other], clock=FakeClock()) as boss:
            return await boss.run(plan)

    result = run_virtual(main())
    assert result.status == "partial"
    assert result.tasks["u"].state == "done"
    assert 0 < len(model.requests) <= most
    error = result.tasks["t"].error
    assert error is not None
    assert "over budget: TaskLimits(" in error.message


def test_what_is_stopped_for_want_of_budget_says_so() -> None:
    model = ch.ScriptedModel(["fine"] * 100, name=NAME, latency=timedelta(seconds=1))

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Works", model=model)
        plan = make_plan(*(make_task(f"t{n}", "mind") for n in range(6)))
        limits = ch.Limits(calls=2)
        async with ch.Supervisor([mind], limits=limits, clock=FakeClock()) as boss:
            return await boss.run(plan)

    result = run_virtual(main())
    told = " ".join(str(task.error or task.why) for task in result.tasks.values())
    assert "no longer this attempt" not in told + str(result.answer)
    assert "over budget" in told + str(result.answer)


@pytest.mark.parametrize("ends", ["cancelled", "timed out"])
def test_a_call_that_nobody_saw_the_end_of_is_counted(ends: str) -> None:
    model = ch.ScriptedModel(["late"] * 9, name=NAME, latency=timedelta(minutes=5))

    async def main() -> ch.RunResult:
        mind = ch.Worker("mind", "Works", model=model)
        time = {"timeout": timedelta(seconds=2), "attempts": 1} if ends == "timed out" else {}
        task = make_task("t", "mind", limits=ch.TaskLimits(**time))  # type: ignore[arg-type]  # as spelled above
        async with ch.Supervisor([mind], clock=FakeClock()) as boss:
            run = await boss.submit(make_plan(task))
            await asyncio.sleep(1)
            if ends == "cancelled":
                await run.cancel()
            return await run.wait()

    result = run_virtual(main())
    assert result.usage.calls == len(model.requests) == 1
    assert result.trace.usage.calls == 1


@pytest.mark.parametrize("where", ["run", "task"])
@pytest.mark.parametrize("workers", [1, 2])
def test_turns_are_counted_over_all_tries_of_one_worker(where: str, workers: int) -> None:
    """A task that is stuck is not asked 50 times for each of its tries; another worker begins anew."""

    def again(request: Any) -> ModelReply:
        n = len(request.turns)
        parts = (ToolCall(str(n), "look", f'{{"n": {n}}}'),)
        if n > 7:  # so that a try fails before its turns are used up
            return ModelReply(parts=(), stop=StopReason.END, usage=Usage(calls=1), model="m")
        return ModelReply(parts=parts, stop=StopReason.TOOLS, usage=Usage(calls=1), model="m")

    @ch.tool(effect="pure")
    def look(n: int) -> str:
        """Look once more."""
        return f"nothing at {n}"

    models = [ch.ScriptedModel([again] * 200, name=f"scripted:{n}") for n in range(workers)]

    async def main() -> ch.RunResult:
        minds = [
            ch.Worker(f"mind{n}", "Works", model=model, tools=[look])
            for n, model in enumerate(models)
        ]
        own = ch.TaskLimits(turns=9) if where == "task" else ch.TaskLimits()
        limits = ch.Limits(turns=9 if where == "run" else 50, attempts=9 if workers > 1 else 4)
        policy = (
            ch.OnFailure(("again", "again", "again", "elsewhere:mind1", "again", "again"))
            if workers > 1
            else None
        )
        boss = ch.Supervisor(minds, limits=limits, clock=FakeClock(), on_failure=policy)
        async with boss:
            return await boss.run(make_plan(make_task("t", "mind0", limits=own)))

    result = run_virtual(main())
    error = result.tasks["t"].error
    assert error is not None
    assert error.error == "TooManyTurns"
    assert f"{'TaskLimits' if where == 'task' else 'Limits'}(turns=9)" in error.message
    assert [len(model.requests) for model in models] == [9] * workers, (
        "what comes after the cap asks nobody"
    )


def test_a_task_that_has_used_up_its_turns_is_not_tried_again() -> None:
    """The turns are counted over all tries: the next one could ask nobody."""

    @ch.tool(effect="pure")
    def look(n: int) -> str:
        """Look once more."""
        return f"nothing at {n}"

    looks = [ToolCall(str(n), "look", f'{{"n": {n}}}') for n in range(9)]
    model = ch.ScriptedModel(looks)
    boss = ch.Supervisor(
        [ch.Worker("mind", "Works", model=model, tools=[look])],
        limits=ch.Limits(turns=4, attempts=3),
    )
    result = boss.run_sync(make_plan(make_task("t", "mind")))
    assert (result.tasks["t"].attempts, len(model.requests)) == (1, 4)
    assert "tried" not in result.answer.gaps[0].why


@pytest.mark.parametrize("own", [True, False])
def test_a_cap_on_the_money_of_a_task_needs_a_price(*, own: bool) -> None:
    """As a run's cap does: nobody finds out at the end that it meant nothing."""
    unpriced = open_model("openai:nobody-knows-it", base_url="https://models.example/v1", key="k")
    mind = ch.Worker("mind", "Works", model=unpriced if own else None)
    other = ch.Worker("other", "Works", model=ch.ScriptedModel(["fine"]))
    boss = ch.Supervisor([mind, other], model=None if own else unpriced, clock=FakeClock())
    capped = ch.TaskLimits(money=1)
    with pytest.raises(ch.UsageError, match="openai:nobody-knows-it"):
        run_virtual(boss.run(make_plan(make_task("t", "mind", limits=capped))))
    fine = run_virtual(boss.run(make_plan(make_task("t", "other", limits=capped))))
    assert fine.tasks["t"].output == "fine"


@pytest.mark.parametrize("how", ["nested", "hedge"])
def test_the_caps_of_a_task_hold_over_runs_below_and_hedges(how: str) -> None:
    async def answer(_: object) -> str:
        slow = len(model.requests) > 2  # the first two tell what is usual
        await asyncio.sleep(1000 if slow and how == "hedge" else 1)
        return "fine"

    model = ch.ScriptedModel([answer] * 100, name=NAME)
    mind = ch.Worker("mind", "Works", model=model)

    async def main() -> ch.RunResult:
        parts = make_plan(*(make_task(f"p{n}", "mind") for n in range(6)))
        below = ch.Supervisor([mind], name="team", description="Works", plan_for=lambda _: parts)
        if how == "nested":
            plan = make_plan(make_task("t", "team", limits=ch.TaskLimits(calls=4)))
        else:
            usual = [make_task(f"u{n}", "mind") for n in range(2)]
            one = ch.TaskLimits(calls=1)
            needs = ["u0", "u1"]
            plan = make_plan(*usual, make_task("t", "mind", *needs, limits=one, hedge=True))
        async with ch.Supervisor([below, mind], clock=FakeClock()) as boss:
            return await boss.run(plan)

    result = run_virtual(main())
    if how == "hedge":
        assert len(model.requests) == 3, "the hedge may spend nothing more"
        return
    assert 0 < len(model.requests) <= 4
    assert "over budget: TaskLimits(calls=4) of t" in str(result.tasks["t"].error or result.answer)


@pytest.mark.parametrize(
    ("report", "level", "words"),
    [
        ((100, 90_000, 0, 0), "WARNING", "tokens_out=90000 most_out=4096"),
        (None, "INFO", "tokens_in=0 tokens_out=0"),
        ((0, 5, 0, 0), "WARNING", "tokens_in=0 tokens_out=5"),
    ],
)
async def test_usage_that_is_not_counted_as_reported_is_said_once(
    report: Any, level: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would learn otherwise that a provider bills more than the budget holds."""
    caplog.set_level("INFO", "chargehand")
    model = ch.ScriptedModel([answers([report] * 3)] * 3, name="openai:own")
    boss = ch.Supervisor([ch.Worker("ada", "Answers", model=model)])
    result = await boss.run(make_plan(*(make_task(f"t{n}", "ada") for n in range(3))))
    assert result.status == "succeeded"
    said = [each for each in caplog.records if "usage_not_counted" in each.getMessage()]
    assert [each.levelname for each in said] == [level]
    assert words in said[0].getMessage()
    assert ("may bill more" in said[0].getMessage()) == (report == (100, 90_000, 0, 0))


@pytest.mark.parametrize(
    "error", [errors.ModelTooSlow, errors.ModelGarbled, errors.InvalidModelReply]
)
@pytest.mark.parametrize("width", [1, 20])
@pytest.mark.parametrize("cap", [{"tokens": 9000}, {"calls": 6}, {"money": 0.004}])
def test_j5_each_model_of_a_chain_is_paid_from_a_reserve_of_its_own(
    error: type[errors.ModelError], cap: dict[str, Any], width: int
) -> None:
    """A call that timed out or could not be read may be paid for, though the next model answers."""

    def fail(_: object) -> Exception:
        return error("m", "ask", "no") if error is errors.InvalidModelReply else error("as drawn")

    first = ch.ScriptedModel([fail] * 100, name=NAME)
    second = ch.ScriptedModel(["fine"] * 100, name=f"{NAME}-2024-07-18")

    async def main() -> ch.RunResult:
        chain = ch.Worker(
            "mind", "Works", model=[first, second], settings=ModelSettings(max_tokens=500)
        )
        tasks = [make_task(f"t{n}", "mind") for n in range(20)]
        boss = ch.Supervisor(
            [chain], limits=ch.Limits(**cap), clock=FakeClock(), parallel=width, on_question="fail"
        )
        async with boss:
            return await boss.run(make_plan(*tasks))

    result = run_virtual(main())
    paid = len(first.requests)  # each with the most it may cost, for all that is known
    worst = Usage(calls=1, tokens_in=1, tokens_out=500)
    assert paid + len(second.requests) <= cap.get("calls", 10**9)
    assert paid * 500 <= cap.get("tokens", 10**9)
    assert paid * (price_of(NAME, worst) or 0) <= cap.get("money", 10**9)
    # A fault of the model's own code is no reason to ask another; and twenty at once use up all there is.
    if error is not errors.InvalidModelReply and width == 1:
        assert second.requests, "the budget is no reason to give up a model that answers"
        assert any(task.state == "done" for task in result.tasks.values())


async def test_reported_usage_beyond_a_cap_is_told_and_the_result_is_kept(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @ch.worker("counter", "Asks models by itself")
    async def count(brief: ch.Brief) -> ch.Done:
        return ch.Done(Value.of("fine"), usage=Usage(calls=5))

    tasks = [ch.Task(id=f"t{n}", description=f"Ask {n}", worker="counter") for n in range(3)]
    async with ch.Supervisor([count], limits=ch.Limits(calls=7)) as boss:
        result = await boss.run(ch.Plan(goal="Ask", tasks=tasks))
    assert (result.status, len(result.tasks)) == ("succeeded", 3)
    assert result.over_budget == ("15 calls, more than Limits(calls=7)",)
    said = [each.getMessage() for each in caplog.records if "cap_passed" in each.getMessage()]
    assert len(said) == 1, "once for each cap"
    assert "calls, more than Limits(calls=7)" in said[0]
    told = "; over budget: 15 calls, more than Limits(calls=7)"
    assert told in "\n".join(summary(result, "show"))
    assert ended_json(result)["over_budget"] == result.over_budget
    async with ch.Supervisor([count], limits=ch.Limits(calls=15)) as boss:
        assert (await boss.run(ch.Plan(goal="Ask", tasks=tasks))).over_budget == ()
