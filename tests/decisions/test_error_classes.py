"""Which class each exception of a worker has: those of Python, and of the usual HTTP clients."""

import asyncio
import errno
import http.client
import socket
import ssl
import urllib.error
from email.message import Message

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from chargehand.errors import JournalBusy, JournalFull, ToolError, WorkerError
from chargehand.facts.outcome import classify, failed_by

KEY = ConnectionKey("example.org", 443, True, True, None, None, None)
REQUEST = aiohttp.RequestInfo(URL("https://example.org"), "GET", CIMultiDictProxy(CIMultiDict()))


def of_system(number: int) -> OSError:
    return OSError(number, errno.errorcode[number])


def of_urllib(status: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("https://example.org", status, "", Message(), None)


def of_aiohttp(status: int) -> aiohttp.ClientResponseError:
    return aiohttp.ClientResponseError(REQUEST, (), status=status)


PYTHON = [
    (of_system(errno.EMFILE), "resource"),
    (of_system(errno.ENFILE), "resource"),
    (of_system(errno.ENOMEM), "resource"),
    (of_system(errno.EAGAIN), "resource"),
    (of_system(errno.ENOSPC), "resource"),
    (of_system(errno.EDQUOT), "resource"),
    (of_system(errno.ENETUNREACH), "network"),
    (of_system(errno.ENETDOWN), "network"),
    (of_system(errno.EHOSTUNREACH), "network"),
    (of_system(errno.ECONNREFUSED), "network"),
    (of_system(errno.ECONNRESET), "network"),
    (of_system(errno.EPIPE), "network"),
    (of_system(errno.ETIMEDOUT), "timeout"),
    (of_system(errno.EACCES), "denied"),
    (of_system(errno.EPERM), "denied"),
    (of_system(errno.ENOENT), "logic"),
    (of_system(errno.EEXIST), "logic"),
    (of_system(errno.EISDIR), "logic"),
    (of_system(errno.ENOTDIR), "logic"),
    (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "network"),
    (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "network"),
    (socket.gaierror(errno.EMFILE, "a number of the resolver, not of the system"), "network"),
    (socket.herror(1, "Unknown host"), "network"),
    (ssl.SSLError(1, "handshake failure"), "network"),
    (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "network"),
    (ssl.SSLCertVerificationError(1, "certificate verify failed"), "network"),
    (TimeoutError(), "timeout"),
    (asyncio.IncompleteReadError(b"", 3), "network"),
    (http.client.RemoteDisconnected("closed"), "network"),
    (http.client.IncompleteRead(b""), "network"),
    (urllib.error.URLError(socket.gaierror(-2, "Name or service not known")), "network"),
    (urllib.error.URLError(ConnectionRefusedError()), "network"),
    (urllib.error.URLError(TimeoutError()), "timeout"),
    (urllib.error.URLError("unknown url type: gopher"), "logic"),
    (of_urllib(404), "logic"),
    (of_urllib(429), "resource"),
    (of_urllib(503), "network"),
    (MemoryError(), "resource"),
    (JournalFull("full"), "resource"),
    (JournalBusy("busy"), "resource"),
    (WorkerError("x", kind="denied"), "denied"),
    (ToolError("x", kind="timeout"), "timeout"),
    (ValueError("x"), "logic"),
    (KeyError("x"), "logic"),
    (RecursionError(), "logic"),
]
AIOHTTP = [
    (aiohttp.ClientConnectionError(), "network"),
    (aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNREFUSED, "refused")), "network"),
    (aiohttp.ClientConnectorError(KEY, OSError(errno.EMFILE, "too many")), "resource"),
    (aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(-2, "unknown")), "network"),
    (aiohttp.ClientConnectorCertificateError(KEY, ssl.CertificateError()), "network"),
    (aiohttp.ServerDisconnectedError(), "network"),
    (aiohttp.ClientPayloadError(), "network"),
    (aiohttp.ServerTimeoutError(), "timeout"),
    (aiohttp.ConnectionTimeoutError(), "timeout"),
    (aiohttp.SocketTimeoutError(), "timeout"),
    (aiohttp.InvalidURL("x"), "logic"),
    (of_aiohttp(401), "denied"),
    (of_aiohttp(402), "resource"),
    (of_aiohttp(404), "logic"),
    (of_aiohttp(408), "timeout"),
    (of_aiohttp(500), "network"),
]


@pytest.mark.parametrize(("error", "kind"), [*PYTHON, *AIOHTTP], ids=repr)
def test_an_exception_has_this_class(error: Exception, kind: str) -> None:
    assert classify(error) == kind
    assert failed_by(error).kind == kind


#: the classes of packages that need not be installed, each with its bases from the package
OTHERS = {
    "requests": {
        "ConnectionError RequestException OSError": "network",
        "ProxyError ConnectionError RequestException OSError": "network",
        "SSLError ConnectionError RequestException OSError": "network",
        "ChunkedEncodingError RequestException OSError": "network",
        "Timeout RequestException OSError": "timeout",
        "ReadTimeout Timeout RequestException OSError": "timeout",
        "ConnectTimeout ConnectionError Timeout RequestException OSError": "timeout",
        "MissingSchema RequestException ValueError": "logic",
        "JSONDecodeError RequestException OSError": "logic",
        "TooManyRedirects RequestException OSError": "logic",
    },
    "httpx": {
        "ConnectError NetworkError TransportError RequestError HTTPError Exception": "network",
        "ReadError NetworkError TransportError RequestError HTTPError Exception": "network",
        "RemoteProtocolError ProtocolError TransportError RequestError Exception": "network",
        "ProxyError TransportError RequestError HTTPError Exception": "network",
        "ConnectTimeout TimeoutException TransportError RequestError Exception": "timeout",
        "ReadTimeout TimeoutException TransportError RequestError Exception": "timeout",
        "PoolTimeout TimeoutException TransportError RequestError Exception": "timeout",
        "UnsupportedProtocol TransportError RequestError HTTPError Exception": "logic",
        "InvalidURL Exception": "logic",
        "DecodingError RequestError HTTPError Exception": "logic",
    },
    "urllib3": {
        "NewConnectionError HTTPError Exception": "network",
        "MaxRetryError RequestError PoolError HTTPError Exception": "network",
        "ReadTimeoutError TimeoutError RequestError PoolError HTTPError Exception": "timeout",
    },
}


def lookalike(names: str) -> Exception:
    """An exception whose class has these names among its bases, the last of them Python's own."""
    *own, last = names.split()
    base: type[Exception] = {"OSError": OSError, "ValueError": ValueError, "Exception": Exception}[
        last
    ]
    for name in reversed(own):
        base = type(name, (base,), {})
    return base("as they raise it")


@pytest.mark.parametrize(
    ("names", "kind"), [row for package in OTHERS.values() for row in package.items()]
)
def test_an_exception_of_another_package_is_known_by_its_name(names: str, kind: str) -> None:
    assert classify(lookalike(names)) == kind


@pytest.mark.parametrize("package", OTHERS)
def test_the_packages_have_the_classes_that_are_known_here(package: str) -> None:
    if package == "urllib3":
        module = pytest.importorskip("urllib3.exceptions", reason="needs urllib3")
    else:
        module = pytest.importorskip(package, reason=f"needs {package}")
    for names in OTHERS[package]:
        name, *bases = names.split()
        kind = getattr(module, name, None) or getattr(module.exceptions, name)
        assert set(bases) <= {each.__name__ for each in kind.__mro__}, name


@pytest.mark.parametrize(("status", "is_final"), [(402, True), (404, False), (429, False)])
def test_only_an_unpaid_account_is_not_worth_another_try(status: int, *, is_final: bool) -> None:
    assert failed_by(of_aiohttp(status)).is_final is is_final
