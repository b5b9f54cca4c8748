"""Values of unusual types: a subclass is stored as what it is a kind of; what would not come back is refused."""

import asyncio
import enum
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest
from msgspec import Raw

import chargehand as ch
from chargehand.engines.brief import Brief
from chargehand.errors import NotJSON, UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts import value as value_module
from chargehand.facts.outcome import failed_by
from chargehand.facts.plan import Task
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


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({True: 1}, "True or False is a key of a dict"),
        ([{"a": {False: 1, 2: 3}}], "True or False is a key of a dict"),
        ({None: 1}, "None is a key of a dict"),
        ((each for each in "ab"), "collect what it yields in a list"),
        (["\ud800"], "a text has a lone surrogate at character 0; decode its bytes"),
    ],
)
def test_what_cannot_be_stored_is_told_with_a_way_out(value: object, why: str) -> None:
    with pytest.raises(NotJSON, match=why):
        Value.of(value)


@pytest.mark.parametrize(
    ("args", "where"),
    [
        ({"a": 1, "p": float("nan")}, r"task 't7': args\['p'\]: nan has no JSON form"),
        ({"p": [Path("x")]}, r"task 't7': args\['p'\]: .* of type PosixPath"),
        ({"p": "\ud800"}, r"task 't7': args\['p'\]: .*lone surrogate"),
        ({None: 1}, r"task 't7': .*None is a key of a dict"),
    ],
)
def test_an_argument_that_cannot_be_stored_is_named_with_its_task(args: Any, where: str) -> None:
    tasks = [
        Task(id=f"t{n}", description="Add", worker="w", args=args if n == 7 else {})
        for n in range(9)
    ]
    with pytest.raises(NotJSON, match=where):
        ch.Plan(goal="Sums", tasks=tasks).stored()


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


class Endless(list[object]):
    """Its own `__iter__` never ends; as JSON it is what it holds."""

    def __iter__(self) -> Iterator[object]:
        return itertools.repeat(1)

    def __len__(self) -> int:
        return 10**9


class Broken(dict[str, object]):
    """Whoever asks it for its parts gets an error; as JSON it is what it holds."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("iter")

    def __len__(self) -> int:
        return -5

    def values(self) -> Any:
        raise RuntimeError("values")


def test_what_a_subclass_overrides_is_not_called() -> None:
    assert Value.of([Endless([1, 2])]).read() == [[1, 2]]
    assert Value.of([Broken(a=1)]).read() == [{"a": 1}]
    with pytest.raises(NotJSON, match="bytes"):
        Value.of(Endless([b"raw"]))


def test_parts_that_occur_in_many_places_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[object] = []
    compound = value_module._compound

    def look(parts: Any) -> Any:
        looked.append(parts)
        return compound(parts)

    monkeypatch.setattr(value_module, "_compound", look)
    Value.of(_doubled(16))
    assert len(looked) == 17


def test_a_value_of_too_many_parts_is_refused_before_they_are_looked_at() -> None:
    with pytest.raises(NotJSON, match="2,097,151 lists and objects"):
        Value.of(_doubled(20))


def _doubled(times: int) -> list[Any]:
    data: list[Any] = []
    for _ in range(times):
        data = [data, data]
    return data


def test_the_stack_of_a_long_chain_of_causes_is_told_without_the_chain() -> None:
    error: BaseException = ValueError("first")
    for number in range(5_000):
        later = ValueError(f"number {number}")
        later.__cause__ = error
        error = later
    failed = failed_by(error)
    assert failed.stack.startswith("(a chain of more than 50 causes is left out)")
    assert "number 4999" in failed.stack
    assert "number 4998" not in failed.stack


class Once:
    """Is something else each time that it is asked."""

    def __init__(self, *forms: object) -> None:
        self.forms = list(forms)

    def model_dump(self, *, mode: str) -> object:
        assert mode == "json"
        return self.forms.pop(0)


def test_an_object_is_asked_for_its_form_once() -> None:
    form = {"of": [1, float("1.5"), None]}
    once = Once(form)
    assert Value.of({"it": once, "again": [once, once]}).read() == {"it": form, "again": [form] * 2}
    assert once.forms == []


@pytest.mark.parametrize("form", [Raw(b'1},"x":{'), {"in": Raw(b"1")}, b"raw", float("nan")])
def test_what_is_stored_is_what_was_checked(form: object) -> None:
    with pytest.raises(NotJSON):
        Value.of([Once(form, "harmless", "harmless", "harmless")])


# Fields that cannot be read


def unreadable(error: BaseException, make: Callable[[type], type]) -> object:
    class Record:
        cell: int = 1

        def __getattribute__(self, name: str) -> Any:
            if name == "cell":
                raise error
            return super().__getattribute__(name)

    return make(Record)()


@pytest.mark.parametrize("make", [dataclass, attrs.define(slots=False)])
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": [(v,)]}, Row, Sheet])
@pytest.mark.parametrize("error", [SystemExit(3), ValueError("no"), AttributeError("gone")])
def test_a_field_that_cannot_be_read_is_refused_and_not_left_out(
    error: BaseException, wrap: Callable[[Any], object], make: Callable[[type], type]
) -> None:
    with pytest.raises(NotJSON, match="field 'cell' of Record"):
        Value.of(wrap(unreadable(error, make)))


def test_a_field_that_was_never_set_is_refused_and_not_left_out() -> None:
    @dataclass(slots=True)
    class Half:
        first: int = 1
        second: int = field(init=False)

    with pytest.raises(NotJSON, match="'second' of Half"):
        Value.of(Half())


def test_fields_that_are_unset_on_purpose_are_left_out() -> None:
    @dataclass
    class Some:
        first: int = 1
        second: object = msgspec.UNSET
        _own: int = 2

    assert Value.of(Some()).read() == {"first": 1, "_own": 2}


class Rude(BaseException):
    def __str__(self) -> str:
        raise SystemExit(4)


@pytest.mark.parametrize("error", [SystemExit(3), Rude(), GeneratorExit(), ValueError("no")])
def test_whatever_is_raised_in_a_conversion_is_a_refusal(error: BaseException) -> None:
    class Fails:
        def model_dump(self, *, mode: str) -> object:
            raise error

    for data in (Fails(), [Fails()], {"a": Fails()}, Sheet(Fails())):
        with pytest.raises(NotJSON):
            Value.of(data)


async def test_f1_a_result_that_cannot_be_read_fails_its_task_by_name() -> None:
    @ch.worker("clerk", "Files")
    async def clerk(brief: Brief) -> object:
        return unreadable(SystemExit(3), dataclass)

    task = Task(id="t", description="File it", worker="clerk")
    async with ch.Supervisor([clerk], limits=ch.Limits(attempts=1)) as boss:
        result = await boss.run(ch.Plan(goal="File", tasks=[task]))
    assert result.status == "failed"
    assert "field 'cell' of Record" in str(result.tasks["t"].error)


def test_brackets_in_texts_are_no_levels_and_no_parts() -> None:
    texts = ["[" * 300, '"[' * 300, "\\" * 301 + "[" * 300, '{"' * 200, "", '\\"']
    assert Value.of([texts, {"[" * 250: texts}]).read() == [texts, {"[" * 250: texts}]


def test_an_exception_that_cannot_even_be_asked_what_it_is_is_a_failure() -> None:
    class Shy(Exception):
        @property  # type: ignore[misc]  # the very fault
        def __class__(self) -> type:
            raise SystemExit(3)

    class Nameless(type):
        @property
        def __name__(cls) -> str:  # type: ignore[override]  # the very fault
            raise RuntimeError("no name")

    class Lost(Exception, metaclass=Nameless):
        pass

    assert failed_by(Shy()).message == (
        "what its function returned or raised could not be read (Shy)"
    )
    assert failed_by(Lost("words")).kind == "logic"


def test_an_error_whose_words_end_the_process_is_a_failure_that_says_so() -> None:
    class Ends(Exception):
        def __str__(self) -> str:
            raise SystemExit(3)

    assert "cannot be read (SystemExit)" in failed_by(Ends()).message


def _brief() -> Brief:
    return Brief("r", Task(id="t", description="Count", worker="w"), 1, "w", {}, None)


@pytest.mark.parametrize("source", [object(), 5, b"x", "\ud800", "x" * 2_000_000])
def test_an_untrusted_source_is_a_text(source: Any) -> None:
    with pytest.raises(UsageError, match=r"brief\.distrust"):
        _brief().distrust(source)


async def test_a_choice_that_is_no_text_is_named_by_its_place() -> None:
    with pytest.raises(UsageError, match=r"choices\[1\]=2 must be a text"):
        await _brief().ask("Which?", choices=["a", 2])  # type: ignore[list-item]  # likewise


async def test_a_question_has_a_bounded_number_of_choices() -> None:
    with pytest.raises(UsageError, match="more than 1,000"):
        await _brief().ask("Which?", choices=itertools.repeat("a"))  # type: ignore[arg-type]  # as a worker might
