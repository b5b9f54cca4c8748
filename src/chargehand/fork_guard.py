"""What becomes of a copy of this process that a worker makes with `os.fork`.

The copy has the thread that called `os.fork`, with all that waits on its stack for the result, and every
file and socket of this process. If it came back from the worker, it would go on as a second supervisor:
lead the same runs, carry out the same steps, and take its parent's event loop apart, whose selector it
shares. So it ends before any of our code goes on. Copies that end by themselves, as those of
`multiprocessing` do, never come back and are no concern of this module.
"""

import os
import types
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

from chargehand.errors import ForkedCopy

P = ParamSpec("P")
T = TypeVar("T")

#: of a copy that came back; EX_SOFTWARE of sysexits.h
EXIT_CODE = 70


def refuse_copy(home: int) -> None:
    """Raise `ForkedCopy` unless this is the process with this id."""
    if os.getpid() != home:
        raise ForkedCopy(home)


def end_copy(home: int) -> None:
    """End this process at once, with a word to standard error, unless it is the one with this id.

    Not by an exception: on its way up it would run the `finally` blocks of everything that the parent has open.
    """
    if os.getpid() != home:
        with suppress(OSError):
            os.write(2, f"chargehand: {ForkedCopy(home)}\n".encode())
        os._exit(EXIT_CODE)


@types.coroutine
def call_uncopied(
    function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> Generator[Any, Any, T]:
    """`await function(…)`; a copy of this process that comes back from any step of it ends there.

    Every step is looked at, because a copy that waits would run the other tasks of the event loop.
    """
    home = os.getpid()
    steps = _awaited(partial(function, *args, **kwargs))
    step: Callable[[], Any] = partial(steps.send, None)
    while True:
        end_copy(home)  # made by another task, which waits now
        try:
            waits_for = step()
        except StopIteration as ended:
            result: T = ended.value
            return result
        finally:
            end_copy(home)
        try:
            step = partial(steps.send, (yield waits_for))
        except BaseException as error:  # noqa: BLE001 - raised again in there
            step = partial(steps.throw, error)


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
