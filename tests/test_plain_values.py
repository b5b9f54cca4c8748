"""Values of unusual types: a subclass is stored as what it is a kind of; what would not come back is refused."""

import asyncio
import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

import chargehand as ch
from chargehand.errors import NotJSON, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.value import Value


class Word(str):
    """As those of markupsafe, bs4 or numpy."""

    __slots__ = ()


class Liar(str):
    """Says that it is whatever it is compared with."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __str__(self) -> str:
        return "red"

    def __len__(self) -> int:
        return 0


class Whole(int):
    def __int__(self) -> int:
        return 99

    __index__ = __int__


class Part(float):
    def __float__(self) -> float:
        return 99.0


class Colour(enum.StrEnum):
    RED = "red"


class Row(msgspec.Struct):
    cell: object


@dataclass
class Sheet:
    cell: object


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": [(v,)]}, Row, Sheet])
@pytest.mark.parametrize("value", [Raw(b"{no json"), Raw(b"1"), {1: 2, "1": 3}, {"a": b"x"}])
def test_what_would_not_come_back_is_refused(wrap: Callable[[Any], object], value: object) -> None:
    with pytest.raises(NotJSON):
        Value.of(wrap(value))


def test_a_subclass_is_stored_as_what_it_is_a_kind_of() -> None:
    given = [Word("a"), Whole(5), Part(0.5), Colour.RED, {Word("k"): Word("v")}, {1: 2, 3: 4}]
    stored = Value.of(given).read()
    assert stored == ["a", 5, 0.5, "red", {"k": "v"}, {"1": 2, "3": 4}]
    with pytest.raises(NotJSON, match="NaN"):
        Value.of([Part("nan")])


def test_what_is_checked_becomes_plain() -> None:
    for plain, kind in (
        (checks.text(Liar("zzz"), "x"), str),
        (checks.count(Whole(5), "x"), int),
        (checks.amount(Whole(5), "x"), int),
        (checks.amount(Part(0.5), "x"), float),
        (checks.priority(Whole(1), "x"), int),
    ):
        assert type(plain) is kind
    assert checks.text(Liar("zzz"), "x") == "zzz"
    assert checks.count(Whole(5), "x") == 5
    with pytest.raises(UsageError, match="characters"):
        checks.text(Liar("zzz"), "x", most=2)


@ch.worker("asks", "Asks a person")
async def asks(brief: ch.Brief) -> str:
    return await brief.ask(Word("Which?"), choices=[Word("red"), "blue"])


def plan(worker: str = "asks", **more: Any) -> ch.Plan:
    task = ch.Task(id="t", description=Word("Paint the door"), worker=worker, **more)
    return ch.Plan(goal=Word("Paint"), tasks=[task])


async def answered(boss: ch.Supervisor, run: ch.Run, answer: str) -> ch.RunResult:
    while not (questions := (await boss.look(run.id)).questions):
        await asyncio.sleep(0)
    with pytest.raises(UsageError, match="'zzz' does not answer"):
        await boss.answer(questions[0].id, Liar("zzz"))
    await boss.answer(Word(questions[0].id), answer, by=Word("ada"))
    return await run.wait()


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("answer", [Word("red"), Colour.RED])
def test_subclasses_at_every_border_break_nothing_off(
    tmp_path: Path, is_durable: bool, answer: str
) -> None:
    async def paint() -> ch.RunResult:
        journal = tmp_path / "runs.db" if is_durable else None
        async with ch.Supervisor([asks], journal=journal) as boss:
            run = await boss.submit(
                plan(args={Word("a"): Whole(1)}),
                key=Word("k"),
                priority=Whole(1),
                deadline=Part(500),
                limits=ch.Limits(calls=Whole(5), tokens=Whole(10**6)),
            )
            await boss.pause(Word(run.id), Word("why"))
            await boss.unpause(Word(run.id))
            await boss.change_budget(Word(run.id), calls=Whole(7))
            return await answered(boss, run, answer)

    result = asyncio.run(paint())
    assert (result.status, result.output) == ("succeeded", "red")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ch.Task(id="t", description="Paint", worker="asks", needs=None),  # type: ignore[arg-type] # the fault
        lambda: ch.Task(id="t", description="Paint", worker="asks", needs=5),  # type: ignore[arg-type] # the fault
        lambda: ch.Plan(goal="g", tasks=None),  # type: ignore[arg-type] # the fault
        lambda: ch.Plan(goal="g", tasks=5),  # type: ignore[arg-type] # the fault
        lambda: ch.Plan(goal="g", tasks=["t"]),  # type: ignore[list-item] # the fault
    ],
)
def test_what_is_no_list_of_tasks_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(UsageError, match="must be a list"):
        make()


def test_steps_that_hang_hold_up_nobody_else() -> None:
    release = threading.Event()

    @ch.worker("hangs", "Hangs in a step")
    async def hangs(brief: ch.Brief) -> object:
        return await brief.step("hang", release.wait, effect="pure")

    @ch.worker("frees", "Has a step of its own")
    async def frees(brief: ch.Brief) -> object:
        return await brief.step("free", release.set, effect="pure")

    async def work() -> ch.RunResult:
        tasks = [
            ch.Task(id=f"t{n}", description=f"Paint door {n}", worker="hangs") for n in range(40)
        ]
        last = ch.Task(id="u", description="Paint the wall", worker="frees")
        async with ch.Supervisor([hangs, frees]) as boss:
            return await boss.run(ch.Plan(goal="g", tasks=[*tasks, last]))

    assert asyncio.run(work()).status == "succeeded"
