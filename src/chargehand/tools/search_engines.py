"""Search engines, used through their APIs; no result page is scraped."""

import os
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from chargehand.errors import ToolError
from chargehand.tools.public_http import Reply, Resolve, Transport, look_up
from chargehand.tools.redaction import SHORTEST_SECRET, Redactor

BRAVE = "https://api.search.brave.com/res/v1/web/search"
BRAVE_KEY = "BRAVE_SEARCH_API_KEY"
#: characters of a query that are sent
MOST_WORDS = 400


class SearchHit(Struct, frozen=True):
    """One result of a search."""

    title: str
    url: str
    text: str = ""


class SearchProvider(Protocol):
    """Finds pages for a query."""

    @property
    def host(self) -> str:
        """The host that receives the query."""

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        """The results, best first. Raises `ToolError` if the search fails."""


class BraveSearch:
    """Brave Search, or any service with the same API.

    Without `key`, the key is read from the environment variable BRAVE_SEARCH_API_KEY.
    """

    def __init__(
        self,
        key: str | None = None,
        *,
        url: str = BRAVE,
        allow_private: bool = False,
        resolve: Resolve = look_up,
    ) -> None:
        self._key = key
        self._url = url
        self.host, port = _host_and_port(url)
        allow = [self.host, f"{self.host}:{port}"]
        self._transport = Transport(allow, allow_private=allow_private, resolve=resolve)

    async def search(self, query: str, count: int) -> Sequence[SearchHit]:
        key = self._key or os.environ.get(BRAVE_KEY, "")
        if not key:
            raise ToolError(
                f"searching needs a key, and there is none; set {BRAVE_KEY}", kind="denied"
            )
        words = urlencode({"q": query[:MOST_WORDS], "count": count})
        headers = {"X-Subscription-Token": key, "Accept": "application/json"}
        reply = await self._transport.ask("GET", f"{self._url}?{words}", headers)
        hits = _hits(reply, count)
        return _without(key, hits) if len(key) >= SHORTEST_SECRET else hits


def _host_and_port(url: str) -> tuple[str, int]:
    from yarl import URL

    parsed = URL(url)
    return (parsed.raw_host or "").lower(), parsed.port or 0


def _hits(reply: Reply, count: int) -> list[SearchHit]:
    if reply.status in (401, 403):
        raise ToolError("the search engine does not accept its key", kind="denied")
    reply.refuse_failure("the search engine")
    try:
        found = msgspec.json.decode(reply.body, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ToolError(
            f"the search engine's answer cannot be read: {error}", kind="network"
        ) from None
    return [SearchHit(each.title, each.url, each.description) for each in found.web.results[:count]]


def _without(key: str, hits: Sequence[SearchHit]) -> list[SearchHit]:
    """The results without the key: an engine that echoes the request must not reveal it to a model."""
    cleaned: Any = Redactor({"search key": key}).data(msgspec.to_builtins(hits))
    return msgspec.convert(cleaned, list[SearchHit])


class _Result(Struct):
    title: str = ""
    url: str = ""
    description: str = ""


class _Web(Struct):
    results: list[_Result] = []


class _Answer(Struct):
    web: _Web = msgspec.field(default_factory=_Web)
