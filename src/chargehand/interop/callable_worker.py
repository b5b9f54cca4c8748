"""Turns any callable into a worker; its parameters are filled from the task by name."""

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Unpack

from chargehand.engines.brief import Brief
from chargehand.errors import UsageError, WorkerError
from chargehand.interop.agent_worker_base import AgentOptions
from chargehand.roles.function_worker import FunctionWorker, Work
from chargehand.supervisor.nested_requests import words_from

_NOTHING = Parameter.empty
_NAMED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def callable_worker(
    function: Callable[..., Any], name: str, description: str, **standing: Unpack[AgentOptions]
) -> FunctionWorker:
    """Turn any callable into a worker: a function, a bound method, a `functools.partial`, an object with `__call__`.

    A parameter gets the task's argument or input of the same name; a parameter that is named `brief` or
    annotated with `Brief` gets the brief. If no name matches, the first required parameter gets the task
    as text. An async callable runs on the event loop, any other in a thread.
    """
    if not callable(function):
        raise UsageError(f"worker {name!r}: {function!r} cannot be called")
    call = _Call(function, name)
    work = _awaited(call) if _is_async(function) else _called(call)
    return FunctionWorker(functools.update_wrapper(work, function), name, description, **standing)


def _awaited(call: Work) -> Work:
    async def work(brief: Brief) -> Any:
        return await call(brief)

    return work


def _called(call: Work) -> Work:
    def work(brief: Brief) -> Any:
        result = call(brief)
        return brief.wait(result) if inspect.isawaitable(result) else result

    return work


class _Call:
    """Calls a function with arguments from a brief."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self._name = name
        self._parameters = _parameters_of(function)

    def __call__(self, brief: Brief) -> Any:
        given = {**brief.inputs, **brief.args}
        values = {each.name: given[each.name] for each in self._open if each.name in given}
        values |= {each.name: brief for each in self._open if _is_brief(each)}
        required = [each.name for each in self._open if each.default is _NOTHING]
        lacking = [name for name in required if name not in values]
        if self._parameters is None or self._is_told(given, lacking):
            words = words_from(brief)
            if not lacking:
                return self._function(words)
            values[lacking.pop(0)] = words
        elif any(each.kind is Parameter.VAR_KEYWORD for each in self._parameters):
            values = {**given, **values}
        if lacking:
            has = ", ".join(given) or "nothing by name"
            raise WorkerError(
                f"worker {self._name!r} needs {', '.join(lacking)}, but the task gives {has}; "
                "give the task an argument or a need of that name"
            )
        return self._called_with(values)

    @property
    def _open(self) -> list[Parameter]:
        """The parameters with a name: all except *args and **kwargs."""
        return [each for each in self._parameters or () if each.kind in _NAMED]

    def _is_told(self, given: dict[str, Any], lacking: list[str]) -> bool:
        """Whether the function gets the task as text, because no parameter matches a name in the brief."""
        kinds = {each.kind for each in self._parameters or ()}
        takes_any = Parameter.VAR_POSITIONAL in kinds and not self._open
        is_named = any(each.name in given for each in self._open)
        return not is_named and (bool(lacking) or takes_any)

    def _called_with(self, values: dict[str, Any]) -> Any:
        first = [each for each in self._open if each.kind is Parameter.POSITIONAL_ONLY]
        by_place = [values.pop(each.name, each.default) for each in first]
        return self._function(*by_place, **values)


def _parameters_of(function: Callable[..., Any]) -> list[Parameter] | None:
    """The parameters of a function; None if they are unknown, as for some functions written in C."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _is_brief(parameter: Parameter) -> bool:
    hint = parameter.annotation
    named = hint.rpartition(".")[2] if isinstance(hint, str) else getattr(hint, "__name__", "")
    return parameter.name == "brief" or named == Brief.__name__


def _is_async(function: Callable[..., Any]) -> bool:
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    if not inspect.isroutine(called):
        called = getattr(called, "__call__", called)  # noqa: B004 - the method, not whether there is one
    return inspect.iscoroutinefunction(called)
