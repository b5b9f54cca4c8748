"""Tools: typed functions that a model may call.

`Tool.call` is the only way from a model to code. It checks the arguments, returns JSON of bounded
size without secrets, and raises nothing but `ToolError` and cancellation.
"""

import asyncio
import dataclasses
import inspect
import re
import sys
from collections.abc import AsyncIterable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload

import msgspec

from chargehand.errors import ToolError, UsageError
from chargehand.facts.argument_checks import (
    Duration,
    Span,
    count,
    duration,
    host,
    refuse_unknown,
    usually,
)
from chargehand.facts.events import Effect
from chargehand.facts.outcome import failed_by
from chargehand.facts.value import canonical, digest_of
from chargehand.models.base import ToolSpec
from chargehand.sync_async_bridge import in_thread
from chargehand.tools.data_catalog import Material
from chargehand.tools.docstrings import read_docstring
from chargehand.tools.redaction import NOTHING_SECRET, Redactor
from chargehand.tools.tool_output import (
    MOST_SPOOLED,
    OutputBuffer,
    Spool,
    ToolResult,
    finish,
    plain_form,
)

if TYPE_CHECKING:
    from chargehand.tools.tool_arguments import Arguments

TIMEOUT = timedelta(seconds=60)
LIMIT = 64 * 1024
#: below this limit, the mark that says that output was cut would not fit
SMALLEST_LIMIT = 256
#: characters of an error message that a model is shown
MOST_WORDS = 4_000
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")  # what all providers take


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Facts about a tool call; passed to the tool if its first parameter has this type."""

    run: str = ""
    task: str = ""
    attempt: int = 1
    worker: str = ""
    #: idempotency key of a keyed tool: the same each time that the same call is repeated
    key: str = ""
    #: the caller's own object, from `Supervisor(deps=…)`
    deps: Any = None
    #: the secrets that are granted to this call, by name
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: redacts all known secrets; the granted secrets are added if they are missing
    redactor: Redactor = NOTHING_SECRET
    spool: Spool | None = field(default=None, repr=False)
    #: called with progress, always on the event loop
    report: Callable[[str], None] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.secrets and not self.redactor.covers(self.secrets.values()):
            object.__setattr__(self, "redactor", self.redactor.including(self.secrets))

    def secret(self, name: str) -> str:
        """The value of a secret that was granted to this call."""
        if name not in self.secrets:
            raise ToolError(
                f"the secret {name!r} is not granted to this tool; to grant it: Worker(…, secrets=[{name!r}])",
                kind="denied",
            )
        return self.secrets[name]

    def progress(self, text: str) -> None:
        """Report progress. Never waits."""
        if self.report is not None:
            self.report(self.redactor.text(text))

    def for_thread(self, loop: asyncio.AbstractEventLoop) -> "ToolContext":
        """The same context, for use outside the thread of `loop`; progress is reported on `loop`."""
        report = self.report
        if report is None:
            return self

        def relay(text: str) -> None:
            loop.call_soon_threadsafe(report, text)

        return dataclasses.replace(self, report=relay)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that a model may call, with its schema, effect, timeout and permissions."""

    name: str
    description: str
    arguments: "Arguments"
    #: called with the arguments by name, after the context if it takes one
    function: Callable[..., Any]
    takes_context: bool = False
    effect: Effect = Effect.ONCE
    timeout: Span = usually(TIMEOUT)
    #: a person is asked before each call
    approve: bool = False
    #: its output comes from untrusted sources, and taints all values that derive from the output
    untrusted: bool = False
    #: bytes of output that a model is shown
    limit: int = LIMIT
    #: the host that gets the arguments, fixed or computed from the arguments; None: no host is known
    destination: str | Callable[[Mapping[str, Any]], str] | None = None
    #: the server of the tool, which may get back its own output; empty: none
    server: str = ""
    #: lists the names of the files, tables and resources that it can reach, for planners and `for_each`
    holds: Callable[[], Material] | None = None
    #: planners see its name, because the worker's description does not cover it
    is_announced: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"tool {self.name!r}: a name has 1 to 64 letters, digits, _ and -, a letter first"
            )
        if not self.description.strip():
            raise UsageError(_undescribed(self.name))
        timeout = duration(self.timeout, f"tool {self.name!r}: timeout")
        object.__setattr__(self, "timeout", timeout)
        count(self.limit, f"tool {self.name!r}: limit", least=SMALLEST_LIMIT)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were not a tool."""
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, self.arguments.schema)

    @property
    def version(self) -> str:
        """A hash of the name, the description, the arguments and, if Python shows it, the code."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        body = repr((code.co_code, code.co_names, code.co_consts)) if code is not None else ""
        # Constants may contain code objects, whose `repr` contains their memory address.
        body = _ADDRESS.sub("", body)
        return digest_of(canonical([self.name, self.description, self.arguments.schema, body]))

    def destination_of(self, arguments: str) -> str | None:
        """The host to which a call would send these arguments; raises `ToolError` for faulty arguments."""
        if callable(self.destination):
            return self.destination(self.arguments.read(arguments))
        return self.destination

    async def call(self, context: ToolContext, arguments: str) -> ToolResult:
        """Run the tool with the arguments that a model wrote; a plain function runs in a thread.

        Raises only `ToolError`, with a message for the model, and `CancelledError` if this task is
        cancelled. A plain function that times out is abandoned, not killed.
        """
        try:
            raw = await self._run(context, self.arguments.read(arguments))
            result = await finish(raw, context.redactor, self.limit, context.spool)
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            failure = _failure(self.name, error, context.redactor)
        except BaseException as error:  # noqa: BLE001 - a tool's SystemExit must not end the supervisor
            failure = _failure(self.name, error, context.redactor)
        else:
            return self._tainted(result)
        # Raised outside of `except`: as its context, the original error could leak secrets.
        raise failure

    def _tainted(self, result: ToolResult) -> ToolResult:
        if not self.untrusted:
            return result
        sources = dict.fromkeys((f"tool:{self.name}", *result.taint))
        return msgspec.structs.replace(result, taint=tuple(sources))

    async def _run(self, context: ToolContext, values: dict[str, Any]) -> object:
        """Run the function; returns its data, or an `OutputBuffer` if it streams."""
        reel = OutputBuffer(
            self.limit + context.redactor.margin if context.spool is None else MOST_SPOOLED
        )
        seconds = self.timeout.total_seconds()
        try:
            async with asyncio.timeout(seconds) as clock:
                return await self._play(context, values, reel)
        except TimeoutError:
            if not clock.expired():
                raise  # raised by the tool itself
            raise ToolError(
                f"{self.name} took longer than {seconds:g} s and was given up", kind="timeout"
            ) from None
        finally:
            reel.close()

    async def _play(
        self, context: ToolContext, values: dict[str, Any], reel: OutputBuffer
    ) -> object:
        result: object
        if _is_async(self.function):
            result = self.function(*([context] if self.takes_context else []), **values)
        else:
            context = context.for_thread(asyncio.get_running_loop())

            def called() -> object:
                given = [context] if self.takes_context else []
                return plain_form(self.function(*given, **values))

            result = await in_thread(called)
        if inspect.isawaitable(result):
            result = await result
        if isinstance(result, AsyncIterable):
            return await reel.read(result)
        return await in_thread(reel.read_plain, result) if isinstance(result, Iterator) else result


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    effect: Effect | str = Effect.ONCE,
    timeout: Duration = TIMEOUT,
    approve: bool = False,
    untrusted: bool = False,
    limit: int = LIMIT,
    destination: str | Callable[[Mapping[str, Any]], str] | None = None,
    holds: Callable[[], Material] | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect | str = Effect.ONCE,
    **terms: Any,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Turn a typed function into a tool; its docstring becomes the description that the model reads.

    `effect` specifies whether a call may be repeated; with the default, `once`, a call is never
    repeated without asking a person. A first parameter of type `ToolContext` is filled in and not
    shown to the model.
    """
    refuse_unknown(terms, _TERMS, "tool")
    if effect not in list(Effect):
        raise UsageError(f"effect={effect!r} is none of {', '.join(Effect)}")

    def made(function: Callable[..., Any]) -> Tool:
        return _made(function, name, {"effect": Effect(effect), **terms})

    return made if function is None else made(function)


_TERMS = ("name", "effect", "timeout", "approve", "untrusted", "limit", "destination", "holds")


def _made(function: Callable[..., Any], name: str | None, terms: dict[str, Any]) -> Tool:
    # Imported here because it imports Pydantic, which `import chargehand` must not do.
    from chargehand.tools.tool_arguments import SignatureArguments, hints_of

    name = name or getattr(function, "__name__", "")
    if isinstance(terms.get("destination"), str):
        terms["destination"] = host(terms["destination"], f"tool {name!r}: destination")
    if not name:
        raise UsageError(f"{function!r} has no name of its own; give it one with name=")
    first = next(iter(inspect.signature(function).parameters), "")
    takes_context = hints_of(function, name).get(first) is ToolContext
    return Tool(
        name=name,
        description=read_docstring(function).summary,
        arguments=SignatureArguments(function, name, hidden=first if takes_context else ""),
        function=function,
        takes_context=takes_context,
        **terms,
    )


def _undescribed(name: str) -> str:
    """What is wrong with a tool that has no description, and the way out."""
    if sys.flags.optimize < 2:
        return f"tool {name!r} needs a docstring; models choose tools by it"
    return (
        f"tool {name!r} has no description: Python drops docstrings (-OO, PYTHONOPTIMIZE=2), and models choose tools by "
        "them; use -O or PYTHONOPTIMIZE=1 instead, which keeps docstrings"
    )


def _is_async(function: Callable[..., Any]) -> bool:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def _is_being_cancelled() -> bool:
    """Whether this task is being cancelled; if not, the tool itself raised `CancelledError`."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure(name: str, error: BaseException, redactor: Redactor) -> ToolError:
    """The error for the model; a note, for the journal, contains the stack."""
    kind = type(error).__name__
    failed = failed_by(error)
    words = failed.message
    if not isinstance(error, ToolError):
        words = f"{name} failed: {words if words.startswith(kind) else f'{kind}: {words}'}"
    told = ToolError(
        redactor.text(words)[:MOST_WORDS], kind=failed.kind, retry_after=failed.retry_after
    )
    if failed.stack and not isinstance(error, ToolError):
        # The stack may have been cut in the middle of a secret, so its first characters are dropped.
        told.add_note(redactor.text(failed.stack)[redactor.margin :])
    return told
