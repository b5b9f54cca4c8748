"""Any callable as a worker, what is said when a package is missing, and how others' errors are classed."""

import functools
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import UsageError
from chargehand.interop import callable_worker
from chargehand.interop.error_classes import class_of, failure_of
from tests.integration.interop_at_work import run

MAIN = threading.main_thread()


async def outcome(function: Callable[..., Any], args: dict[str, Any] | None = None) -> Any:
    """What comes of a task with these arguments."""
    task = ch.Task(id="t", description="Count the stars", worker="clerk", args=args or {})
    worker = callable_worker(function, "clerk", "Counts")
    result = await run(worker, ch.Plan(goal="Know", tasks=[task]))
    error = result.tasks["t"].error
    return result.tasks["t"].output if error is None else error.message


# Parameters


def join(left: str, right: str = "!") -> str:
    return left + right


async def test_parameters_are_filled_by_name_and_defaults_stay() -> None:
    assert await outcome(join, {"left": "a", "right": "b"}) == "ab"
    assert await outcome(join, {"left": "a", "other": 1}) == "a!"


async def test_a_function_whose_parameters_the_task_does_not_name_is_told_the_task_in_words() -> (
    None
):
    assert await outcome(join) == "Count the stars!"
    assert await outcome(str.upper) == "COUNT THE STARS"
    told = await outcome(lambda words: words, {"depth": 3})
    assert told == 'Count the stars\nGiven: {"depth":3}'


async def test_what_others_found_is_handed_over_by_the_name_of_the_need() -> None:
    def read() -> str:
        return "two apples"

    def count(text: str) -> int:
        return len(text.split())

    tasks = [
        ch.Task(id="page", description="Read the page", worker="reader"),
        ch.Task(
            id="n",
            description="Count its words",
            worker="counter",
            needs=[ch.Need("page", name="text")],
        ),
    ]
    workers = [
        callable_worker(read, "reader", "Reads"),
        callable_worker(count, "counter", "Counts"),
    ]
    result = await ch.Supervisor(workers).run(ch.Plan(goal="Know", tasks=tasks))
    assert result.tasks["n"].output == 2


async def test_a_parameter_may_ask_for_the_brief_by_name_or_by_type() -> None:
    def by_name(brief: Any, left: str) -> str:
        return f"{brief.task.id} {left}"

    def by_type(mine: ch.Brief) -> str:
        return mine.task.id

    def by_word(mine: "ch.Brief", left: str) -> str:
        return f"{mine.task.id} {left}"

    assert await outcome(by_name, {"left": "a"}) == "t a"
    assert await outcome(by_type) == "t"
    assert await outcome(by_word) == "t Count the stars"


async def test_a_function_that_takes_all_names_gets_all_arguments() -> None:
    def all_of(**given: Any) -> Any:
        return given

    def some_of(left: str, **given: Any) -> Any:
        return [left, given]

    assert await outcome(all_of, {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert await outcome(some_of, {"left": "a", "b": 2}) == ["a", {"b": 2}]
    assert await outcome(some_of) == ["Count the stars", {}]


async def test_parameters_without_names_are_filled_in_their_order() -> None:
    def ordered(left: str, right: str = "?", /, end: str = "") -> str:
        return left + right + end

    assert await outcome(ordered, {"left": "a", "end": "."}) == "a?."
    assert await outcome(lambda *words: list(words)) == ["Count the stars"]


async def test_what_is_missing_is_named() -> None:
    def paint(wall: str, colour: str) -> str:
        return f"{wall} {colour}"

    said = await outcome(paint, {"wall": "east"})
    assert said == (
        "worker 'clerk' needs colour, but the task gives wall; give the task an argument or a need of that name"
    )


# Kinds of callables


class Counter:
    def __init__(self) -> None:
        self.thread: threading.Thread | None = None

    def method(self, words: str) -> int:
        self.thread = threading.current_thread()
        return len(words.split())

    async def waiting(self, words: str) -> int:
        self.thread = threading.current_thread()
        return len(words.split())

    def promising(self, words: str) -> Awaitable[int]:
        return self.waiting(words)


class Called:
    def __call__(self, words: str) -> int:
        return len(words)


class Awaited:
    async def __call__(self, words: str) -> int:
        assert threading.current_thread() is MAIN
        return len(words)


async def test_what_is_plain_runs_in_a_thread_and_what_is_async_on_the_loop() -> None:
    counter = Counter()
    assert await outcome(counter.method) == 3
    assert counter.thread is not MAIN
    assert await outcome(counter.waiting) == 3
    assert counter.thread is MAIN
    assert await outcome(functools.partial(counter.waiting, "a b")) == 2
    assert counter.thread is MAIN


async def test_objects_and_partials_and_promises_are_called_too() -> None:
    assert await outcome(Called()) == await outcome(Awaited()) == 15
    assert await outcome(functools.partial(join, right="?")) == "Count the stars?"
    assert await outcome(functools.partial(join, "a"), {"right": "b"}) == "ab"
    assert await outcome(Counter().promising) == 3


async def test_a_runnable_of_langchain_is_called_by_its_invoke() -> None:
    runnables = pytest.importorskip(
        "langchain_core.runnables", reason="needs langgraph: pip install chargehand[langgraph]"
    )
    shout = runnables.RunnableLambda(lambda text: text.upper())
    assert await outcome(shout.invoke) == "COUNT THE STARS"
    assert await outcome(shout.ainvoke, {"input": "moons"}) == "MOONS"


async def test_it_stands_on_the_roster_like_any_other() -> None:
    worker = callable_worker(
        join, "clerk", "Joins", skills=["joining"], capacity=2, timeout=timedelta(seconds=9)
    )
    assert (worker.name, worker.skills, worker.capacity) == ("clerk", ("joining",), 2)
    assert worker.timeout == timedelta(seconds=9)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(UsageError, match="worker 'clerk': 3 cannot be called"):
        callable_worker(3, "clerk", "Counts")  # type: ignore[arg-type]  # that is the point


# Missing packages

DOORS = {
    "langgraph": (
        "langgraph",
        "from chargehand.interop.langgraph import graph_worker; graph_worker(None, 'a', 'b')",
    ),
    "langgraph as a node": (
        "langgraph",
        "from chargehand.interop.langgraph import node; node(None)",
    ),
    "pydantic_ai": (
        "pydantic-ai",
        "from chargehand.interop.pydantic_ai import agent_worker; agent_worker(None, 'a', 'b')",
    ),
    "agents": (
        "openai-agents",
        "from chargehand.interop.openai_agents import agent_worker; agent_worker(None, 'a', 'b')",
    ),
}


@pytest.mark.parametrize("package", DOORS)
def test_a_missing_package_is_named_with_its_extra_when_it_is_first_used(package: str) -> None:
    extra, code = DOORS[package]
    blocked = f"import sys; sys.modules[{package.partition(' ')[0]!r}] = None; {code}"
    command = [sys.executable, "-c", blocked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("chargehand.errors.UsageError")
    assert last.endswith(f"; pip install 'chargehand[{extra}]'")


def test_importing_the_room_imports_none_of_them() -> None:
    code = (
        "import chargehand.interop.langgraph, chargehand.interop.pydantic_ai, sys\n"
        "import chargehand.interop.openai_agents\n"
        "print({'langgraph', 'langchain_core', 'pydantic_ai', 'agents', 'openai'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# Errors of others


class Response:
    def __init__(self, status_code: int, **headers: str) -> None:
        self.status_code = status_code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def __bool__(self) -> bool:
        """As in `requests`: false for whatever went wrong."""
        return self.status_code < 400


class HTTPStatusError(Exception):
    """As HTTP clients raise it: with the response."""

    def __init__(self, response: Response) -> None:
        self.response = response
        super().__init__(f"status {response.status_code}, key sk-0123456789abcdef")


class APITimeoutError(Exception): ...


class APIConnectionError(Exception): ...


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "denied"),
        (403, "denied"),
        (404, "logic"),
        (408, "timeout"),
        (422, "logic"),
        (429, "resource"),
        (500, "network"),
        (504, "timeout"),
        (529, "resource"),
    ],
)
def test_a_status_decides(status: int, kind: str) -> None:
    assert class_of(HTTPStatusError(Response(status))) == kind


def test_a_status_may_stand_in_the_error_itself() -> None:
    class ClientResponseError(Exception):
        status = 403

    assert class_of(ClientResponseError()) == "denied"


def test_a_cause_tells_what_the_error_itself_does_not() -> None:
    error = RuntimeError("the tool broke")
    error.__cause__ = APIConnectionError("no route")
    assert class_of(error) == "network"
    error.__cause__ = APITimeoutError("slow")
    assert class_of(error) == "timeout"
    error.__cause__ = ValueError("bad")
    assert class_of(error) == "logic"
    assert class_of(ExceptionGroup("several", [PermissionError("no"), OSError("x")])) == "denied"


def test_a_circle_of_causes_has_an_end() -> None:
    error = RuntimeError("first")
    error.__cause__ = RuntimeError("second")
    error.__cause__.__cause__ = error
    assert class_of(error) == "logic"


def test_the_wait_that_was_asked_for_is_kept_and_the_key_that_was_quoted_is_not() -> None:
    failed = failure_of(HTTPStatusError(Response(429, Retry_After="3")))
    assert failed.retry_after == timedelta(seconds=3)
    assert "0123456789" not in failed.message + failed.stack
