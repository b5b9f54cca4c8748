"""The HTTP server, which stops within about a second even if many streams are open."""

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

from chargehand.errors import UsageError
from chargehand.regular_file import read_regular_file
from chargehand.server.http.access_tokens import TOKEN_VARIABLE, AccessTokens
from chargehand.server.http.api_context import ApiContext, ServerFacts
from chargehand.server.http.app import guarded_app
from chargehand.server.http.authentication_guard import GuardRules, hosts_for
from chargehand.server.listening_socket import address_of, is_loopback, listening
from chargehand.supervisor import Supervisor
from chargehand.usable_path import checked_path

#: default address; if the port is taken, another free port is used
HOST, PORT = "127.0.0.1", 8642
#: seconds that open requests have to finish when the server stops
GRACE = 1
#: seconds within which the head of a request must be received
HEAD_TIME = 10.0
#: ticks of uvicorn, ten per second, between two checks of the connections
TURNS = 5
#: most open connections; further requests get 503
MOST_CONNECTIONS = 2_000
#: most connections that wait to be accepted
BACKLOG = 256
#: errors when a connection cannot be accepted: too many open files, no memory
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
#: seconds between two warnings about that
SAID_AGAIN = 60.0

log = logging.getLogger("chargehand")
_ErrorHandler: TypeAlias = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class WebOptions(Struct, frozen=True, kw_only=True):
    """The options of the HTTP server."""

    host: str = HOST
    #: None: the default port, or any free port
    port: int | None = None
    #: further allowed host names
    hosts: tuple[str, ...] = ()
    #: the path under which a reverse proxy serves it
    base: str = ""
    #: whether a proxy serves it to browsers over HTTPS
    is_secure: bool = False
    is_read_only: bool = False
    token_file: str = ""
    #: replaces the owner's token in the file
    token: str = ""
    certificate: str = ""
    key: str = ""
    #: where the crew comes from
    source: dict[str, Any] = {}
    head_time: float = HEAD_TIME


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers and with a timeout for the heads of requests."""

    def __init__(self, config: uvicorn.Config, head_time: float) -> None:
        super().__init__(config)
        self._head_time = head_time
        #: when each connection without a request was first seen
        self._owing: dict[Any, float] = {}

    async def on_tick(self, counter: int) -> bool:
        if counter % TURNS == 0:
            self._close_silent_connections()
        return await super().on_tick(counter)

    def _close_silent_connections(self) -> None:
        """Close connections that do not complete the head of a request in time: uvicorn would wait forever."""
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
    """An exception handler of the event loop that logs failures to accept connections only once a minute.

    asyncio reports each failure with a stack trace, about a thousand times a second.
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
    """Serves the API of one supervisor on one socket."""

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
        """Close the socket of a server that was never run."""
        self._listener.close()

    def stop(self) -> None:
        """Stop soon: streams end with `event: bye`, and open requests have `GRACE` seconds to finish."""
        self.api.streams.stop()
        self._server.should_exit = True


def refuse_bad_certificate(certificate: str, key: str) -> None:
    """Raise `UsageError` unless certificate and key match, or neither is given."""
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
        # With an empty password, an encrypted key fails instead of asking at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise UsageError(
            f"--tls-cert {certificate} and --tls-key {key} are not a certificate and its key in PEM form, "
            f"without a password ({error})"
        ) from None


def _owes_request(connection: Any) -> bool:
    """Whether a connection has neither a running request nor uvicorn's keep-alive timer."""
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
    """A base path without trailing slashes. Raises `UsageError` if it is invalid."""
    base = given.rstrip("/")
    if base and (not base.startswith("/") or not all(c.isalnum() or c in "/-_.~" for c in base)):
        raise UsageError(
            f"--base-path {given!r} must begin with / and hold letters, digits, - and _"
        )
    return base
