"""A model for tests: it says what it was told to say, in order, and nothing else."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from chargehand.errors import ModelDenied, UsageError
from chargehand.facts.argument_checks import Duration, duration
from chargehand.facts.outcome import NO_USAGE, Usage
from chargehand.models.base import (
    Abilities,
    ModelReply,
    ModelRequest,
    Part,
    StopReason,
    Text,
    ToolCall,
    ToolOutput,
)

Reply: TypeAlias = "str | ModelReply | ToolCall | Sequence[Part] | BaseException | type[Exception]"
Said: TypeAlias = "Reply | Callable[[ModelRequest], Reply | Awaitable[Reply]]"
Line: TypeAlias = "Said | When"

_PIECE = re.compile(r"\S*\s*")


@dataclass(frozen=True)
class When:
    """A line for the first request that matches, whatever lines come before it."""

    #: a function of the request, or words that the request must contain
    where: Callable[[ModelRequest], bool] | str
    line: Said

    def fits(self, request: ModelRequest) -> bool:
        if callable(self.where):
            return self.where(request)
        return any(self.where in turn.text for turn in request.turns)


class ScriptedModel:
    """A model for tests: answers each request with the next line of its script.

    A line is the text of a reply, one or more tool calls, a whole `ModelReply`, an exception to
    raise, or a function from the request to any of these. A line inside `When` waits for a
    request that matches it. A request without a line is denied, so that it is not retried.

    A process that resumes a run starts with the first line again. Lines inside `When`, and the
    replies of `written:`, are found by the request, and so stay right.

        model = ScriptedModel([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."])
    """

    def __init__(
        self,
        script: Iterable[Line] = (),
        *,
        name: str = "scripted:model",
        latency: Duration = 0.0,
        abilities: Abilities | None = None,
    ) -> None:
        #: all that was asked, in the order of arrival
        self.requests: list[ModelRequest] = []
        self.name = name
        self.account = f"scripted:{id(self):x}"
        self.abilities = abilities or Abilities(is_real=False)
        self._latency = duration(
            latency, "ScriptedModel: latency", may_be_zero=True
        ).total_seconds()
        if isinstance(script, str):
            raise UsageError("a script is a list of lines: ScriptedModel(['…', '…'])")
        self._left: list[Line] = list(script)
        self._unforeseen: list[ModelRequest] = []

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.name}, {len(self._left)} lines left>"

    def add(self, *lines: Line) -> None:
        """Append lines to the script."""
        self._left += lines

    def assert_complete(self) -> None:
        """Fail unless every line was used and every request had a line."""
        faults = [f"a request without a line: {request_line(each)}" for each in self._unforeseen]
        faults += [f"a line that was not asked for: {line!r}"[:300] for line in self._left]
        if faults:
            listed = "".join(f"\n  - {fault}" for fault in faults)
            raise AssertionError(f"the script of {self.name} was not played as written:{listed}")

    async def ask(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        # The line is taken on arrival: what is answered does not depend on who waits how long.
        line = self._take(request)
        if self._latency:
            await asyncio.sleep(self._latency)
        said = line(request) if callable(line) and not isinstance(line, type) else line
        return _reply(await said if inspect.isawaitable(said) else said, request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        reply = await self.ask(request)
        for piece in pieces(reply):
            yield piece
        yield reply

    def _take(self, request: ModelRequest) -> Said:
        for place, line in enumerate(self._left):
            if not isinstance(line, When):
                del self._left[place]
                return line
            if line.fits(request):
                del self._left[place]
                return line.line
        self._unforeseen.append(request)
        raise ModelDenied(
            f"the script of {self.name} has no line for this request: {request_line(request)}; "
            "add one, or find out why it was asked"
        )


def _reply(line: object, request: ModelRequest) -> ModelReply:
    match line:
        case ModelReply():
            return line if line.usage != NO_USAGE else counted(line, request)
        case str():
            parts: tuple[Part, ...] = (Text(line),) if line else ()
        case ToolCall():
            parts = (line,)
        case BaseException():
            raise line
        case type() if issubclass(line, BaseException):
            raise line("as scripted")
        case [*several] if several and all(isinstance(part, Part) for part in several):
            parts = tuple(part for part in several if isinstance(part, Part))
        case _:
            raise UsageError(f"{line!r} is not a line of a script; see ScriptedModel")
    is_calling = any(isinstance(part, ToolCall) for part in parts)
    stop = StopReason.TOOLS if is_calling else StopReason.END
    return counted(ModelReply(parts=parts, stop=stop, model="scripted"), request)


def pieces(reply: ModelReply) -> Iterator[str]:
    """The text of a reply word by word, as a stream brings it."""
    return filter(None, _PIECE.findall(reply.text))


def counted(reply: ModelReply, request: ModelRequest) -> ModelReply:
    """With a usage as if four letters were a token: budgets can be tested, and no two runs differ."""
    said = sum(map(_length, reply.parts))
    heard = sum(_length(part) for turn in request.turns for part in turn.parts)
    usage = Usage(calls=1, tokens_in=-(-heard // 4), tokens_out=-(-said // 4))
    return ModelReply(parts=reply.parts, stop=reply.stop, usage=usage, model=reply.model)


def _length(part: Part) -> int:
    match part:
        case Text(text=text) | ToolOutput(text=text):
            return len(text)
        case ToolCall(name=name, arguments=arguments):
            return len(name) + len(arguments)
    return 0


def request_line(request: ModelRequest, most: int = 200) -> str:
    """The last thing said to the model, in one line."""
    last = request.turns[-1] if request.turns else None
    said = [getattr(part, "text", type(part).__name__) for part in last.parts] if last else []
    line = " ".join(" ".join(said).split())
    return repr(line if len(line) <= most else f"{line[: most - 1]}…")
