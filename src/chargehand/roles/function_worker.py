"""Workers that are plain Python functions."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from chargehand.decisions.dispatch import Place
from chargehand.decisions.elastic_capacity import Elastic
from chargehand.decisions.system_tasks import is_system_task
from chargehand.engines.brief import Brief
from chargehand.errors import UsageError
from chargehand.facts import argument_checks as checks
from chargehand.facts.argument_checks import Duration
from chargehand.facts.failure_policy import OnFailure

Work = Callable[[Brief], Any]
"""What a worker does: takes its brief, returns JSON (or a dataclass, a Pydantic model), or raises."""


class Where(StrEnum):
    """Where a function runs."""

    LOOP = "loop"  #: an async function, on the supervisor's event loop
    HERE = "here"  #: on that loop too, by another supervisor: it must know whose task it has
    THREAD = "thread"  #: a plain function; cannot be killed, so its place stays taken until it ends
    PROCESS = "process"  #: in a child process: for much computing, and for what must be killable


class FunctionWorker:
    """A function with a name and a description, as a worker on a roster."""

    def __init__(
        self,
        function: Work,
        name: str,
        description: str,
        *,
        skills: Sequence[str] = (),
        capacity: int | Elastic | None = None,
        weight: float | None = None,
        timeout: Duration | None = None,
        process: bool = False,
        memory: int | None = None,
        cpu_seconds: float | None = None,
        version: str = "",
        on_failure: OnFailure | None = None,
    ) -> None:
        check_words(name, description)
        if not callable(function):
            raise UsageError(f"worker {name!r}: {function!r} is not a function")
        _check_signature(name, function)
        _check_bounds(name, memory, cpu_seconds, process=process)
        self.function = function
        self.name = name
        self.description = description
        self.skills = checks.names(skills, f"worker {name!r}: skills")
        # Children beyond the number of processors would only wait for each other.
        self.capacity = (os.cpu_count() or 1) if process and capacity is None else capacity
        self.weight = weight
        self.timeout = checks.duration_or_none(timeout, f"worker {name!r}: timeout")
        self.on_failure = on_failure
        self.memory = memory
        self.cpu = None if cpu_seconds is None else timedelta(seconds=cpu_seconds)
        self.where = Where.PROCESS if process else _where(function)
        self._version = version
        functools.update_wrapper(self, function)

    def __call__(self, brief: Brief) -> Any:
        return self.function(brief)

    def __repr__(self) -> str:
        return f"<worker {self.name!r}: {self.description}>"

    def work(self, resources: object) -> Work:  # noqa: ARG002 - as all members of a roster
        """The function itself; it needs no resources."""
        return self.function

    def version(self, resources: object) -> str:  # noqa: ARG002 - as all members of a roster
        """The worker's name and version; empty without a version, so that its results are not reused."""
        return f"{self.name} {self._version}" if self._version else ""

    @property
    def place(self) -> Place:
        return Place(
            worker=self.name, skills=self.skills, capacity=self.capacity, weight=self.weight
        )


@checks.keywords_checked
def worker(
    name: str,
    description: str,
    *,
    skills: Sequence[str] = (),
    capacity: int | Elastic | None = None,
    weight: float | None = None,
    timeout: Duration | None = None,
    process: bool = False,
    memory: int | None = None,
    cpu_seconds: float | None = None,
    version: str = "",
    on_failure: OnFailure | None = None,
) -> Callable[[Work], FunctionWorker]:
    """Turn a function into a worker: `@worker("counter", "Counts the words of a text")`.

    An async function runs on the event loop, a plain one in a thread; with `process=True`
    either runs in a child process and must be importable. `capacity` is the number of attempts
    at once (in processes: by default the number of processors), `timeout` the time limit of one
    attempt. In processes, `memory` limits the address space in bytes, Python included, and
    `cpu_seconds` the processor time of each attempt, in whole seconds. A worker with a
    `version` promises the same result for the same task: later runs may reuse its results until
    the version changes. `on_failure` is the failure policy of its tasks.
    """

    def made(function: Work) -> FunctionWorker:
        return FunctionWorker(
            function,
            name,
            description,
            skills=skills,
            capacity=capacity,
            weight=weight,
            timeout=timeout,
            process=process,
            memory=memory,
            cpu_seconds=cpu_seconds,
            version=version,
            on_failure=on_failure,
        )

    return made


def check_words(name: str, description: str, kind: str = "worker") -> None:
    """Raise `UsageError` for what no worker can be called or described by."""
    if (
        not checks.text(name, f"the name of a {kind}").strip()
        or not checks.text(description, f"the description of {kind} {name!r}").strip()
    ):
        raise UsageError(f"a {kind} needs a name and a description; the planner chooses by them")
    checks.name(name, f"the name of a {kind}")
    refuse_system_name(name)


def refuse_system_name(name: str) -> None:
    """Raise `UsageError` for a name that only a worker of the supervisor itself may have."""
    if is_system_task(name):
        raise UsageError(f"worker {name!r}: no name may begin with @; chargehand's own workers do")


def _check_signature(name: str, function: Work) -> None:
    """Refuse a function that cannot be called with a brief: every attempt would fail alike."""
    if (why := checks.why_uncallable(function, None)) is None:
        return
    called = getattr(function, "__name__", type(function).__name__)
    signature = inspect.signature(function, follow_wrapped=False)
    raise UsageError(
        f"worker {name!r}: {called}{signature} cannot be called with the brief alone ({why}); "
        f"a worker function takes one argument: def {called}(brief)"
    )


def _check_bounds(
    name: str, memory: int | None, cpu_seconds: float | None, *, process: bool
) -> None:
    for what, value in (("memory", memory), ("cpu_seconds", cpu_seconds)):
        if value is None:
            continue
        if not process:
            raise UsageError(
                f"worker {name!r}: {what}={value} can be kept only in a process; add process=True"
            )
        if checks.amount(value, f"worker {name!r}: {what}") <= 0:
            raise UsageError(f"worker {name!r}: {what}={value} must be more than 0")


def _where(function: Work) -> Where:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    # The function itself, too: a `functools.partial` has a `__call__` that tells nothing.
    is_async = any(map(inspect.iscoroutinefunction, (function, called)))
    return Where.LOOP if is_async else Where.THREAD
