"""A step marked `once` is never done twice unasked, whatever a worker that was started again asks for."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import chargehand as ch
from chargehand.journal.memory import MemoryJournal
from chargehand.models.base import ToolCall
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

PLAN = make_plan(make_task("p", "clerk"))


class Bank:
    """Keeps what was paid. It hangs after the first payment, so that nobody hears whether it was made."""

    def __init__(self, error: Exception | None = None) -> None:
        self.paid: list[Any] = []
        self.has_paid = asyncio.Event()
        self._error = error
        self._hangs = True

    async def pay(self, amount: Any) -> str:
        self.paid.append(amount)
        if self._hangs:
            self._hangs = False
            if self._error is not None:
                raise self._error
            self.has_paid.set()
            await asyncio.Event().wait()
        return f"paid {amount}"


def clerk_of(work: Callable[[ch.Brief], Awaitable[Any]]) -> Any:
    return ch.worker("clerk", "Pays bills")(work)


async def interrupted(bank: Bank, clerk: Any, **terms: Any) -> tuple[MemoryJournal, str]:
    """Begin to pay, and stop before anybody knows whether it took effect."""
    journal = MemoryJournal()
    boss = ch.Supervisor([clerk], journal=journal, clock=FakeClock(), **terms)
    async with boss:
        run = await boss.submit(PLAN)
        await bank.has_paid.wait()
        await boss.stop(0)
    return journal, run.id


async def resumed(journal: MemoryJournal, run: str, clerk: Any, *answers: str) -> ch.RunResult:
    """Go on with it, and answer each question in turn."""
    boss = ch.Supervisor([clerk], journal=journal, clock=FakeClock())
    async with boss:
        result = await boss.resume(run, accept=True, on_question="return")
        for answer in answers:
            (question,) = result.questions
            assert question.about == "in_doubt"
            await boss.answer(question.id, answer)
            result = await boss.resume(run, accept=True, on_question="return")
        return result


def paying(bank: Bank, amount: Any, name: str = "pay") -> Any:
    @clerk_of
    async def clerk(brief: ch.Brief) -> Any:
        now = amount() if callable(amount) else amount
        return await brief.step(name, bank.pay, now, effect="once")

    return clerk


@pytest.mark.parametrize(
    ("answer", "paid", "output"),
    [
        ("it ran", [100], None),
        ('it ran: "receipt 7"', [100], "receipt 7"),
        ("run it again", [100, 200], "paid 200"),
    ],
)
def test_a_step_in_doubt_that_is_asked_for_with_other_arguments_is_put_to_a_person(
    answer: str, paid: list[int], output: object
) -> None:
    async def main() -> None:
        bank = Bank()
        journal, run = await interrupted(bank, paying(bank, 100))
        asked = await resumed(journal, run, paying(bank, 200))
        assert (asked.status, bank.paid) == ("waiting", [100])
        (question,) = asked.questions
        assert "with other arguments" in question.text
        evidence = question.evidence.read()
        assert (evidence["before"], evidence["given"]) == ([[100], {}], [[200], {}])
        result = await resumed(journal, run, paying(bank, 200), answer)
        assert (result.status, result.output, bank.paid) == ("succeeded", output, paid)

    run_virtual(main())


def test_that_it_ran_holds_although_the_arguments_change_each_time() -> None:
    async def main() -> None:
        bank, amounts = Bank(), iter(range(100, 200))
        journal, run = await interrupted(bank, paying(bank, lambda: next(amounts)))
        result = await resumed(journal, run, paying(bank, lambda: next(amounts)), "it ran")
        assert (result.status, bank.paid) == ("succeeded", [100])

    run_virtual(main())


def test_a_step_that_was_finished_is_not_repeated_with_other_arguments() -> None:
    async def main() -> None:
        bank, journal, stuck = Bank(), MemoryJournal(), asyncio.Event()
        bank._hangs = False

        def clerk_with(amount: int, *, is_stuck: bool) -> Any:
            @clerk_of
            async def clerk(brief: ch.Brief) -> Any:
                receipt = await brief.step("pay", bank.pay, amount, effect="once")
                if is_stuck:
                    stuck.set()
                    await asyncio.Event().wait()
                return receipt

            return clerk

        boss = ch.Supervisor([clerk_with(100, is_stuck=True)], journal=journal, clock=FakeClock())
        async with boss:
            run = await boss.submit(PLAN)
            await stuck.wait()
            await boss.stop(0)
        asked = await resumed(journal, run.id, clerk_with(200, is_stuck=False))
        assert "Step 'pay' has run." in asked.questions[0].text
        result = await resumed(journal, run.id, clerk_with(200, is_stuck=False), "it ran")
        assert (result.output, bank.paid) == ("paid 100", [100])

    run_virtual(main())


def test_a_step_in_doubt_that_the_worker_no_longer_asks_for_is_put_to_a_person() -> None:
    async def main() -> None:
        bank = Bank()
        journal, run = await interrupted(bank, paying(bank, 100))

        @clerk_of
        async def idle(_: ch.Brief) -> str:
            return "nothing to pay"

        asked = await resumed(journal, run, idle)
        assert asked.status == "waiting"
        assert "no longer asks for this step" in asked.questions[0].text
        result = await resumed(journal, run, idle, "run it again")
        assert (result.status, result.output) == ("succeeded", "nothing to pay")

    run_virtual(main())


def test_another_step_waits_until_a_person_has_said_what_became_of_the_first() -> None:
    async def main() -> None:
        bank = Bank()
        journal, run = await interrupted(bank, paying(bank, 100))
        renamed = paying(bank, 200, "transfer")
        asked = await resumed(journal, run, renamed)
        assert (asked.status, bank.paid) == ("waiting", [100])
        failed = await resumed(journal, run, renamed, "give up")
        assert (failed.status, bank.paid) == ("failed", [100])
        assert "step 'pay' was given up by a person" in str(failed.tasks["p"].error)

    run_virtual(main())


def test_a_step_that_timed_out_is_not_tried_again_with_other_arguments() -> None:
    async def main() -> None:
        bank, amounts = Bank(TimeoutError("no reply")), iter(range(100, 200))
        clerk = paying(bank, lambda: next(amounts))
        boss = ch.Supervisor([clerk], clock=FakeClock())
        result = await boss.run(PLAN, on_question="return")
        assert (result.status, bank.paid) == ("waiting", [100])
        assert "may have taken effect" in result.questions[0].text

    run_virtual(main())


def test_another_worker_does_not_repeat_a_step_in_doubt() -> None:
    bank = Bank(TimeoutError("no reply"))

    def named(name: str) -> Any:
        @ch.worker(name, "Pays bills", skills=["paying"])
        async def work(brief: ch.Brief) -> Any:
            return await brief.step("pay", bank.pay, name, effect="once")

        return work

    async def main() -> None:
        elsewhere = ch.OnFailure(("elsewhere", "ask"))
        task = ch.Task(id="p", description="Pay Ada", skill="paying", on_failure=elsewhere)
        boss = ch.Supervisor([named("ann"), named("bob")], clock=FakeClock())
        result = await boss.run(ch.Plan(goal="Pay", tasks=[task]), on_question="return")
        assert (result.status, len(bank.paid)) == ("waiting", 1)
        assert result.questions[0].about == "in_doubt"

    run_virtual(main())


def test_a_model_with_another_prompt_does_not_repeat_a_call_in_doubt() -> None:
    async def main() -> None:
        bank = Bank()

        def clerk_with(amount: int, instructions: str) -> ch.Worker:
            @ch.tool(effect="once")
            async def pay(amount: int) -> str:
                """Pay."""
                return await bank.pay(amount)

            call = ToolCall("1", "pay", json.dumps({"amount": amount}))
            model = ch.ScriptedModel([call, "done"])
            return ch.Worker("clerk", "Pays", tools=[pay], model=model, instructions=instructions)

        journal, run = await interrupted(bank, clerk_with(100, "v1"))
        changed = clerk_with(200, "v2")
        asked = await resumed(journal, run, changed)
        assert (asked.status, bank.paid) == ("waiting", [100])
        result = await resumed(journal, run, changed, "it ran")
        assert (result.status, bank.paid) == ("succeeded", [100])

    run_virtual(main())


def test_steps_in_another_order_are_recognised_by_their_arguments() -> None:
    async def main() -> None:
        bank, journal, stuck = Bank(), MemoryJournal(), asyncio.Event()
        bank._hangs = False

        def clerk_with(order: list[str], *, is_stuck: bool) -> Any:
            @clerk_of
            async def clerk(brief: ch.Brief) -> Any:
                paid = [await brief.step("pay", bank.pay, to, effect="once") for to in order]
                if is_stuck:
                    stuck.set()
                    await asyncio.Event().wait()
                return paid

            return clerk

        boss = ch.Supervisor(
            [clerk_with(["ada", "bob"], is_stuck=True)], journal=journal, clock=FakeClock()
        )
        async with boss:
            run = await boss.submit(PLAN)
            await stuck.wait()
            await boss.stop(0)
        result = await resumed(journal, run.id, clerk_with(["bob", "ada"], is_stuck=False))
        assert (result.output, bank.paid) == (["paid bob", "paid ada"], ["ada", "bob"])

    run_virtual(main())


def test_a_changed_note_on_a_board_is_no_question_for_a_person() -> None:
    async def main() -> None:
        journal, stuck = MemoryJournal(), asyncio.Event()

        def clerk_with(text: str, *, is_stuck: bool) -> Any:
            @clerk_of
            async def clerk(brief: ch.Brief) -> Any:
                await brief.board.post(text)
                if is_stuck:
                    stuck.set()
                    await asyncio.Event().wait()
                return text

            return clerk

        boss = ch.Supervisor([clerk_with("one", is_stuck=True)], journal=journal, clock=FakeClock())
        async with boss:
            run = await boss.submit(PLAN)
            await stuck.wait()
            await boss.stop(0)
        result = await resumed(journal, run.id, clerk_with("two", is_stuck=False))
        assert (result.status, result.output) == ("succeeded", "two")

    run_virtual(main())
