"""What callers, clerks and readers are told at the edges: types of answers, counted calls, letters, speed."""

import asyncio
import dataclasses
import functools
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

import chargehand as ch
from chargehand.errors import ModelRefused
from chargehand.journal.base import Mail
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task


class Lamp(BaseModel):
    price: float


@dataclasses.dataclass
class Light:
    price: float


@ch.worker("finder", "Finds prices")
async def finder(brief: ch.Brief) -> str:
    return "9 and 7"


@pytest.mark.parametrize(
    ("output", "said", "wanted"),
    [
        (list[Lamp], [{"price": 9}], [Lamp(price=9)]),
        (list[Light], [{"price": 9}], [Light(price=9)]),
        (dict[str, Lamp], {"a": {"price": 9}}, {"a": Lamp(price=9)}),
        (Lamp | None, {"price": 9}, Lamp(price=9)),
        ({"type": "object"}, {"price": 9}, {"price": 9}),
    ],
)
async def test_an_answer_has_the_type_that_was_asked_for(
    output: object, said: object, wanted: object
) -> None:
    """Types inside of lists, dicts and unions, too."""
    shaped = {"answer": said, "claims": [], "contradictions": [], "confidence": 1}
    model = ch.ScriptedModel([json.dumps(shaped)])
    async with ch.Supervisor([finder], model=model) as boss:
        result = await boss.run(make_plan(make_task("t", "finder")), output=output)
    assert result.output == wanted


@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: {"said": [each]}])
async def test_a_question_that_was_not_awaited_is_named_and_not_tried_again(
    wrap: Callable[[object], object],
) -> None:
    @ch.worker("hasty", "Does not wait")
    async def hasty(brief: ch.Brief) -> object:
        return wrap(brief.ask("Which?"))

    async with ch.Supervisor([hasty]) as boss:
        result = await boss.run(make_plan(make_task("t", "hasty")))
    assert "brief.ask('Which?') was not awaited" in result.tasks["t"].why
    assert "write `await brief.ask(…)`" in result.tasks["t"].why
    assert result.tasks["t"].attempts == 1


@pytest.mark.parametrize("value", [object(), b"raw", {"a": [object()]}])
async def test_a_result_of_a_type_that_cannot_be_stored_is_not_tried_again(value: object) -> None:
    async with ch.Supervisor([ch.FunctionWorker(lambda _: value, "w", "Works")]) as boss:
        result = await boss.run(make_plan(make_task("t", "w")))
    assert "JSON" in result.tasks["t"].why
    assert result.tasks["t"].attempts == 1


def test_a_function_that_cannot_be_called_with_a_brief_is_refused_when_it_becomes_a_worker() -> (
    None
):
    def nothing() -> int:
        return 1

    def two(brief: ch.Brief, more: int) -> int:
        return more

    for function, words in ((nothing, r"nothing\(\) -> int"), (two, "argument: 'more'")):
        with pytest.raises(ch.errors.UsageError, match=f"worker 'w': .*{words}"):
            ch.FunctionWorker(function, "w", "Works")  # type: ignore[arg-type]  # as a user might


@pytest.mark.parametrize("name", ["@plan", "@answer", "@x"])
def test_a_name_of_the_supervisors_own_workers_is_refused(name: str) -> None:
    for make in (
        lambda: ch.worker(name, "Works")(lambda _: 1),
        lambda: ch.Worker(name, "Works"),
        lambda: ch.Supervisor([ch.Supervisor([], name=name)]),
    ):
        with pytest.raises(ch.UsageError, match=f"worker '{name}': no name may begin with @"):
            make()


async def test_a_decorator_may_supply_further_arguments_of_a_worker() -> None:
    def two(brief: ch.Brief, more: int) -> int:
        return more

    @functools.wraps(two)
    def given(brief: ch.Brief) -> int:
        return two(brief, 7)

    async with ch.Supervisor([ch.FunctionWorker(given, "w", "Works")]) as boss:
        assert (await boss.run(make_plan(make_task("t", "w")))).output == 7


async def test_a_call_that_fails_counts_as_a_call() -> None:
    """Otherwise a cap on calls would not hold a worker back that is refused again and again."""

    failing = ch.Worker("asker", "Asks", model=ch.ScriptedModel([ModelRefused("no")] * 9))
    tasks = [make_task(f"t{number}", "asker") for number in range(5)]
    async with ch.Supervisor([failing]) as boss:
        result = await boss.run(make_plan(*tasks), limits=ch.Limits(calls=3, parallel=1))
    assert result.usage.calls == 3
    assert result.status == "failed"
    assert result.usage.money == 0
    assert result.usage.tokens_in == 0


async def test_a_letter_that_cannot_be_read_is_refused_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next leader does not meet it again."""

    @ch.worker("asker", "Asks a person")
    async def asker(brief: ch.Brief) -> str:
        return await brief.ask("Which colour?")

    journal = tmp_path / "runs.db"
    async with ch.Supervisor([asker], journal=journal, on_question="return") as boss:
        left = await boss.run(make_plan(make_task("t", "asker")))
        for subject, body in (("answer", b"{"), ("sing", b"{}"), ("pause", b"7")):
            key = f"{subject} {left.id}"
            await boss.journal.mail.post(Mail(key=key, stream=left.id, subject=subject, body=body))
        assert len(await boss.journal.mail.unread()) == 3
        await boss.resume(left.id)
        assert caplog.text.count("mail_refused") == 3
        assert await boss.journal.mail.unread() == []
        await boss.resume(left.id)
    assert caplog.text.count("mail_refused") == 3


@pytest.mark.parametrize("how", ["paused", "left"])
def test_time_in_which_only_a_person_could_move_the_run_does_not_slow_it_down(how: str) -> None:
    clock = FakeClock()

    @ch.worker("slow", "Takes ten seconds")
    async def slow(brief: ch.Brief) -> str:
        await asyncio.sleep(10)
        return "done"

    async def run() -> ch.RunResult:
        plan = make_plan(make_task("a", "slow"), make_task("b", "slow", "a"))
        journal = ch.open_journal()
        if how == "paused":
            async with ch.Supervisor([slow], clock=clock, journal=journal) as boss:
                run = await boss.submit(plan)
                await asyncio.sleep(5)
                await run.pause()
                await asyncio.sleep(100_000)
                await run.unpause()
                return await run.wait()
        boss = ch.Supervisor([slow], clock=clock, journal=journal)
        led = await boss.submit(plan)
        await asyncio.sleep(15)
        await boss.stop(0)
        await asyncio.sleep(100_000)
        return await ch.Supervisor([slow], clock=clock, journal=journal).resume(led.id)

    result = run_virtual(run())
    assert result.status == "succeeded"
    assert result.wall > timedelta(seconds=100_000)
    assert result.speedup > 0.5


async def test_a_speed_that_means_nothing_is_not_shown() -> None:
    async with ch.Supervisor([finder], clock=FakeClock()) as boss:
        result = await boss.run(make_plan(make_task("t", "finder")))
    assert "0.0 times" not in result.report.to_text()
