"""Listens for HTTP, and ends within half a second however many streams are open."""

import asyncio
import contextlib
import errno
import logging
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, TypeAlias

import uvicorn
from msgspec import Struct

from chargehand.checked_path import checked_path
from chargehand.errors import UsageError
from chargehand.regular_file import read_regular_file
from chargehand.server.http.access_tokens import TOKEN_VARIABLE, AccessTokens
from chargehand.server.http.api_context import ApiContext, ServerFacts
from chargehand.server.http.app import guarded_app
from chargehand.server.http.request_guard import GuardRules, hosts_for
from chargehand.server.listening_socket import address_of, is_loopback, listening
from chargehand.supervisor import Supervisor

#: where it listens if nobody says otherwise; another free port if this one is taken
HOST, PORT = "127.0.0.1", 8642
#: seconds that open requests have to end
GRACE = 1
#: seconds in which the head of a request must be there
HEAD_TIME = 10.0
#: turns of uvicorn's loop, ten a second, between two looks at the connections
TURNS = 5
#: connections at once; more are answered with 503
MOST_CONNECTIONS = 2_000
#: connections that wait to be accepted
BACKLOG = 256
#: why a connection that waits cannot be accepted: open files, memory
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: seconds until that is said again
SAID_AGAIN = 60.0

log = logging.getLogger("chargehand")
_ErrorHandler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class WebOptions(Struct, frozen=True, kw_only=True):
    """How the API is served."""

    host: str = HOST
    #: None: the usual one, or any that is free
    port: int | None = None
    #: further names that it answers to
    hosts: tuple[str, ...] = ()
    #: the path that a reverse proxy serves it under
    base: str = ""
    #: behind a proxy that speaks https with browsers
    is_secure: bool = False
    is_read_only: bool = False
    token_file: str = ""
    #: in place of the owner's token in the file
    token: str = ""
    certificate: str = ""
    key: str = ""
    #: where the crew comes from
    source: dict[str, Any] = {}
    head_time: float = HEAD_TIME


class _Server(uvicorn.Server):
    """A server that leaves signals to the command that runs it, and waits for no head of a request for long."""

    def __init__(self, config: uvicorn.Config, head_time: float) -> None:
        super().__init__(config)
        self._head_time = head_time
        #: since when each connection has owed a request
        self._owing: dict[Any, float] = {}

    async def on_tick(self, counter: int) -> bool:
        if counter % TURNS == 0:
            self._close_silent_connections()
        return await super().on_tick(counter)

    def _close_silent_connections(self) -> None:
        """uvicorn ends idle connections that had a request, but waits for ever for one that has begun."""
        at = time.monotonic()
        connections = filter(_owes_request, self.server_state.connections)
        self._owing = {each: self._owing.get(each, at) for each in connections}
        for each, since in self._owing.items():
            if at - since >= self._head_time:
                each.transport.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _AcceptErrors:
    """Handles errors of the event loop: that no connection can be accepted is said once a minute.

    asyncio reports it with a stack for each connection that waits, some thousand times a second.
    """

    def __init__(self, other: _ErrorHandler | None) -> None:
        self._other = other
        self._said_at = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES):
            if self._other is None:
                loop.default_exception_handler(context)
            else:
                self._other(loop, context)
        elif loop.time() - self._said_at >= SAID_AGAIN:
            self._said_at = loop.time()
            log.warning(
                "connections_not_accepted error=%s; those that wait are accepted when others have ended; "
                "raise the limit (ulimit -n) if that happens often",
                error.strerror,
            )


class WebServer:
    """The API of one supervisor on one socket."""

    def __init__(self, boss: Supervisor, options: WebOptions) -> None:
        base = base_path(options.base)
        tokens = AccessTokens(
            checked_path(options.token_file, "the token file") if options.token_file else None,
            options.token,
        )
        refuse_bad_certificate(options.certificate, options.key)
        is_public = not is_loopback(options.host)
        if is_public and not tokens.grants:
            raise UsageError(
                f"{options.host} can be reached from other machines, and there is no token yet; make one with "
                f"chargehand tokens add NAME --token-file {options.token_file or 'FILE'}, or set {TOKEN_VARIABLE}"
            )
        self._listener = _listener(options)
        self.tokens = tokens
        self.owner = None if is_public else tokens.owner()
        self.is_secure = bool(options.certificate) or options.is_secure
        hosts, any_address = hosts_for(options.host, options.hosts)
        port = self._listener.getsockname()[1]
        rules = GuardRules(
            hosts=hosts,
            any_address=any_address,
            base=base,
            is_secure=self.is_secure,
            is_read_only=options.is_read_only,
            cookie=f"chargehand-{port}",
        )
        facts = ServerFacts(
            version=version("chargehand"), source=options.source, models=boss.offer().models
        )
        self.api = ApiContext(boss, tokens, rules, facts)
        self.guard = guarded_app(self.api)
        config = uvicorn.Config(
            self.guard,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            limit_concurrency=MOST_CONNECTIONS,
            backlog=BACKLOG,
            ssl_certfile=options.certificate or None,
            ssl_keyfile=options.key or None,
            ws="none",
            lifespan="off",
        )
        self._server = _Server(config, options.head_time)
        scheme = "https" if options.certificate else "http"
        self.url = f"{scheme}://{address_of(self._listener)}{base}/"

    async def run(self) -> None:
        """Serve until `stop`."""
        with self._listener:
            loop = asyncio.get_running_loop()
            before = loop.get_exception_handler()
            loop.set_exception_handler(_AcceptErrors(before))
            try:
                await self._server.serve(sockets=[self._listener])
            finally:
                loop.set_exception_handler(before)
                await self.api.close()

    def close(self) -> None:
        """Listen no longer, if it was never run."""
        self._listener.close()

    def stop(self) -> None:
        """End soon: streams say good-bye, requests under way have a second."""
        self.api.streams.stop()
        self._server.should_exit = True


def refuse_bad_certificate(certificate: str, key: str) -> None:
    """Raise `UsageError`, naming the file, unless both are given and fit each other, or neither is given."""
    if not certificate and not key:
        return
    if not certificate or not key:
        given, missing = ("--tls-cert", "--tls-key") if certificate else ("--tls-key", "--tls-cert")
        raise UsageError(f"{given} {certificate or key} needs {missing} FILE as well")
    for option, name in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            read_regular_file(checked_path(name))
        except OSError as error:
            raise UsageError(f"{option} {name} cannot be read: {error.strerror}") from None
        except UsageError as error:
            raise UsageError(f"{option} {error}") from None
    try:
        # An empty password: a key that has one must not ask for it at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # of which ssl.SSLError is one
        raise UsageError(
            f"--tls-cert {certificate} and --tls-key {key} are not a certificate and its key in PEM form, "
            f"without a password ({error})"
        ) from None


def _owes_request(connection: Any) -> bool:
    """Whether a connection has neither a request under way nor uvicorn's own timer for the next."""
    cycle = getattr(connection, "cycle", None)
    has_request = cycle is not None and not cycle.response_complete
    return not has_request and getattr(connection, "timeout_keep_alive_task", None) is None


def _listener(options: WebOptions) -> socket.socket:
    if options.port is not None:
        return listening(options.host, options.port)
    try:
        return listening(options.host, PORT)
    except UsageError:
        return listening(options.host, 0)


def base_path(given: str) -> str:
    """A base path without the slash at its end. Raises `UsageError` for what is no path."""
    base = given.rstrip("/")
    if base and (not base.startswith("/") or not all(c.isalnum() or c in "/-_.~" for c in base)):
        raise UsageError(
            f"--base-path {given!r} must begin with / and hold letters, digits, - and _"
        )
    return base
