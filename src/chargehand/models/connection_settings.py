"""Where a model is reached, as whom, and how patiently."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import urlsplit

from chargehand.errors import ModelDenied, UsageError
from chargehand.facts.argument_checks import Span, SpanOrNone, duration_or_none, usually


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimeouts:
    """How long a model may keep us waiting; numbers are seconds."""

    connect: Span = usually(timedelta(seconds=10))
    #: until a reply that comes in one piece is there as a whole, and until a streamed one begins
    answer: Span = usually(timedelta(minutes=10))
    #: between two bytes of a reply that is streamed
    silence: Span = usually(timedelta(seconds=60))
    #: for a whole call, whatever comes
    total: SpanOrNone = usually(None)

    def __post_init__(self) -> None:
        for name in ("connect", "answer", "silence", "total"):
            given = duration_or_none(getattr(self, name), f"Timeouts: {name}")
            object.__setattr__(self, name, given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A provider's address, with the key to it. Shown without the key."""

    provider: str
    base_url: str
    #: the provider's own address; messages name any other one
    own_url: str = ""
    key: str = field(default="", repr=False)
    #: any other than this gets the bare key, without `Bearer`
    key_header: str = "Authorization"
    #: where a user would look for the key, for messages
    key_source: str = "key="
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeouts: ModelTimeouts = ModelTimeouts()

    def __post_init__(self) -> None:
        # A key read from a file or a variable often ends in a line break; inside one it is a fault.
        object.__setattr__(self, "key", self.key.strip())
        object.__setattr__(self, "base_url", self.base_url.strip().rstrip("/"))
        if not (self.key.isascii() and self.key.isprintable()):
            raise ModelDenied(
                f"the key for {self.provider} has characters that no key has; "
                f"check {self.key_source}"
            )
        if not _is_address(self.base_url):
            raise UsageError(
                f"the base URL for {self.provider} is not an address of a web server; "
                "give one such as https://host/v1"
            )

    @property
    def shown_name(self) -> str:
        """The provider, with the host if the base URL is not the provider's own."""
        return self.provider if self.base_url == self.own_url else f"{self.provider} at {self.host}"

    @property
    def host(self) -> str:
        """With its port, if it has one."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def shown_url(self) -> str:
        """The base URL without what may be secret in it."""
        where = urlsplit(self.base_url)
        return f"{where.scheme}://{self.host}{where.path}"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return is_loopback(urlsplit(self.base_url).hostname or "")

    def sent_headers(self) -> dict[str, str]:
        """What goes with every request."""
        headers = {"Content-Type": "application/json", **self.headers}
        if self.key:
            is_bearer = self.key_header == "Authorization"
            headers[self.key_header] = f"Bearer {self.key}" if is_bearer else self.key
        return headers


def _is_address(url: str) -> bool:
    try:
        where = urlsplit(url)
        is_whole = where.scheme in ("http", "https") and bool(where.hostname) and where.port != 0
    except ValueError:
        return False
    return is_whole and where.netloc.isprintable() and " " not in where.netloc


def is_loopback(host: str) -> bool:
    """Whether this name or address can only be this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
