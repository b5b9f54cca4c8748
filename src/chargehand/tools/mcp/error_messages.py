"""Turns exceptions from the connection to an MCP server into error messages and error classes."""

import errno
from collections.abc import Callable, Iterator
from datetime import timedelta

import msgspec
from mcp import MCPError, types
from mcp.types import CONNECTION_CLOSED, PARSE_ERROR, UNSUPPORTED_PROTOCOL_VERSION
from pydantic import ValidationError

from chargehand.errors import ToolError
from chargehand.tools.mcp.http_transport import STOOD_IN, HttpRefusal
from chargehand.tools.mcp.server_failure import ServerFailure, brief_words
from chargehand.tools.mcp.stdio_process import OVERLONG

_SHORTAGES = {errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
IN_DOUBT = "; whether it took effect is not known"


class ErrorMessages:
    """Creates the error messages of one server; each contains the name of the server."""

    def __init__(self, name: str, last_words: Callable[[], str]) -> None:
        self._server = f"MCP server {name!r}"
        self._last_words = last_words

    def ended(self, how: str) -> ServerFailure:
        return ServerFailure(f"{self._server} {how}")

    def lost(self, end: ServerFailure, what: str) -> ServerFailure:
        """The failure of a request that was in progress when the connection ended."""
        return ServerFailure(f"{end.text}, while it was to {what}{IN_DOUBT}", end.kind)

    def too_slow(self, what: str, limit: timedelta) -> ServerFailure:
        text = f"{self._server} took longer than {limit.total_seconds():g} s to {what}"
        return ServerFailure(f"{text}{self._last_words()}", "timeout")

    def of(self, error: BaseException, what: str) -> ServerFailure:
        """The failure of a request that raised this exception."""
        cause = next((each for each in _causes(error) if isinstance(each, Exception)), error)
        match cause:
            case ToolError():
                return ServerFailure(f"{self._server}: {cause}", cause.kind)
            case MCPError():
                return self._refused(cause.error, what)
            case ValidationError():
                return ServerFailure(
                    f"{self._server} answered with what the protocol does not allow "
                    f"when it was to {what}: {_faults(cause)}{IN_DOUBT}",
                    "logic",
                )
            case OSError():
                kind = "resource" if cause.errno in _SHORTAGES else "denied"
                return ServerFailure(f"{self._server} cannot be started: {cause}", kind)
            case RuntimeError() if "protocol version" in str(cause):
                return ServerFailure(f"{self._server} speaks another version: {cause}", "denied")
        words = brief_words(f"{type(cause).__name__}: {cause}")
        return ServerFailure(f"{self._server} could not {what}: {words}{self._last_words()}")

    def _refused(self, error: types.ErrorData, what: str) -> ServerFailure:
        words = brief_words(error.message)
        if error.code == STOOD_IN:
            return self._stood_in(error, what)
        if error.code == UNSUPPORTED_PROTOCOL_VERSION:
            return ServerFailure(f"{self._server} speaks another version: {words}", "denied")
        if error.code in (OVERLONG, CONNECTION_CLOSED, PARSE_ERROR):
            kind = "logic" if error.code == OVERLONG else "network"
            return ServerFailure(f"{self._server} could not {what}: {words}{IN_DOUBT}", kind)
        return ServerFailure(f"{self._server} refused to {what}: {words}", "logic")

    def _stood_in(self, error: types.ErrorData, what: str) -> ServerFailure:
        words = brief_words(error.message)
        refusal = refusal_in(error)
        after = None if refusal.retry_after is None else timedelta(seconds=refusal.retry_after)
        return ServerFailure(f"{self._server} {words} when it was to {what}", refusal.kind, after)


def refusal_in(error: types.ErrorData) -> HttpRefusal:
    """The details that our HTTP client attached to an error; a server that forges them harms only itself."""
    try:
        return msgspec.convert(error.data, HttpRefusal)
    except msgspec.ValidationError:
        return HttpRefusal("network")


def is_lost(error: BaseException) -> bool:
    """Whether the connection is unusable after this error."""
    found = [each.error for each in _causes(error) if isinstance(each, MCPError)]
    return any(each.code == STOOD_IN and refusal_in(each).is_lost for each in found)


def _faults(error: ValidationError) -> str:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    places = [".".join(str(part) for part in each["loc"]) for each in faults[:3]]
    return brief_words("; ".join(f"{p}: {f['msg']}" for p, f in zip(places, faults, strict=False)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside nested exception groups, which task groups raise."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _causes(each)
    else:
        yield error
