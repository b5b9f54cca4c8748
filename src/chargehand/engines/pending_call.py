"""A call of a brief that waits to be awaited, and that refuses to be taken for its result."""

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, cast

from chargehand.errors import NotAwaited

P = ParamSpec("P")
T = TypeVar("T")

#: characters of a question or a step's name that tell a call from others
_SHOWN = 60
#: what is done to a result and never to a coroutine. `__repr__` is for debuggers and logs, and `__hash__`
#: for `asyncio.gather`, so these two remain.
_USES = (
    *("str", "format", "int", "float", "len", "iter", "contains", "getitem"),
    *("eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "mod"),
)


class PendingCalls:
    """The calls of one attempt that nobody has awaited yet."""

    __slots__ = ("_calls", "is_plain")

    def __init__(self) -> None:
        self._calls: dict[PendingCall[Any], None] = {}
        #: whether the worker is no async function, and so cannot write `await`
        self.is_plain = False

    def add(self, call: "PendingCall[Any]") -> None:
        self._calls[call] = None

    def begin(self, call: "PendingCall[Any]") -> None:
        """It is awaited now, or a task will do it."""
        self._calls.pop(call, None)

    def drop(self) -> tuple[str, ...]:
        """Close what was left, without Python's warning of it; returns the calls, as they were written."""
        left = [*self._calls]
        for call in left:
            call.close()
        return tuple(call.words for call in left)

    def refusal(self, *calls: str) -> NotAwaited:
        return NotAwaited(calls, is_plain=self.is_plain)


class PendingCall(Coroutine[Any, Any, T]):
    """The coroutine of a call. Whoever takes it for its result gets `NotAwaited` instead of a wrong one."""

    __slots__ = ("_coroutine", "_pending", "words")

    def __init__(
        self, words: str, coroutine: Coroutine[Any, Any, T], pending: PendingCalls
    ) -> None:
        self.words = words
        self._coroutine = coroutine
        self._pending = pending
        pending.add(self)

    def __await__(self) -> Generator[Any, Any, T]:
        self._pending.begin(self)
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        self._pending.begin(self)
        return self._coroutine.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        self._pending.begin(self)
        if value is None and traceback is None:
            return self._coroutine.throw(kind)  # the form with three arguments is deprecated
        return self._coroutine.throw(kind, value, traceback)

    def close(self) -> None:
        self._pending.begin(self)
        self._coroutine.close()

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<{self.words}, to be awaited>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cr_") or name in ("__name__", "__qualname__"):
            return getattr(self._coroutine, name)
        raise self._pending.refusal(self.words)

    def __bool__(self) -> bool:
        # asyncio asks it of the coroutine of a task, to describe the task in a log.
        caller: str = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 - there is no public way
        if not caller.startswith("asyncio."):
            self.refuse()
        return True

    def refuse(self, *_: object) -> NoReturn:
        """Raise `NotAwaited`."""
        raise self._pending.refusal(self.words)


for _use in _USES:
    setattr(PendingCall, f"__{_use}__", PendingCall.refuse)


class _CallOwner(Protocol):
    """A brief, or a board of one."""

    @property
    def pending_calls(self) -> PendingCalls: ...


def to_await(
    method: Callable[P, Coroutine[Any, Any, T]], of: str = "brief"
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have an attempt fail whose worker calls this method without `await`."""
    name = f"{of}.{method.__name__}"

    def called(self: _CallOwner, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, T]:
        first = args[0] if args else None
        words = f"{name}({_shown(first) if isinstance(first, str) else ''})"
        coroutine = cast("Callable[..., Coroutine[Any, Any, T]]", method)(self, *args, **kwargs)
        return PendingCall(words, coroutine, self.pending_calls)

    functools.update_wrapper(called, method)
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(called)
    return cast("Callable[P, Coroutine[Any, Any, T]]", called)


C = TypeVar("C", bound=type)


def board_to_await(board: C) -> C:
    """The same for all that a worker can do with its board."""
    for name, method in inspect.getmembers(board, inspect.iscoroutinefunction):
        is_tracked = hasattr(method, "__wrapped__") and name not in vars(board)
        if not name.startswith("_") and not is_tracked:
            setattr(board, name, to_await(method, "brief.board"))
    return board


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")
