"""Tools that read the web: fetch a page, or search. They only read; they submit no forms."""

import io
from collections.abc import Iterable, Mapping
from typing import Any

from chargehand.errors import ToolError
from chargehand.sync_async_bridge import in_thread
from chargehand.tools.base import Tool, tool
from chargehand.tools.document_text import read_document
from chargehand.tools.html_text import decoded, read_page
from chargehand.tools.public_http import Reply, Resolve, Transport, host_of, look_up
from chargehand.tools.search_engines import BraveSearch, SearchProvider

#: characters of a page that are returned at a time
MOST_SHOWN = 40_000
MOST_HITS = 20
_TEXTS = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
_PAGES = ("text/html", "application/xhtml+xml")


def web(
    allow: Iterable[str],
    *,
    search: SearchProvider | None = None,
    allow_private: bool = False,
    resolve: Resolve = look_up,
) -> tuple[Tool, Tool]:
    """The tools `fetch_page` and `search_web`.

    `allow` lists the hosts that may be contacted, including their subdomains; ["*"] is every public
    host. Hosts in private networks are refused even then, unless `allow_private` is set. Without
    `search`, Brave Search is used; its key comes from the environment.
    """
    transport = Transport(allow, allow_private=allow_private, resolve=resolve)
    return WebTools(transport, search or BraveSearch()).tools()


class WebTools:
    """The implementation of the tools `fetch_page` and `search_web`."""

    def __init__(self, transport: Transport, search: SearchProvider) -> None:
        self._transport = transport
        self._search = search

    def tools(self) -> tuple[Tool, Tool]:
        # Not pure: a page may have changed when it is fetched again.
        terms: dict[str, Any] = {"effect": "idempotent", "untrusted": True}
        return (
            tool(name="fetch_page", destination=self._host, **terms)(self.fetch_page),
            tool(name="search_web", destination=self._search.host, **terms)(self.search_web),
        )

    async def fetch_page(self, url: str, start: int = 0) -> dict[str, Any]:
        """Read a web page, or a text, JSON or PDF file on the web.

        Args:
            url: its whole address, beginning with https:// or http://
            start: where in a long text to go on, as told at the end of its last part
        """
        reply = await self._transport.get(url)
        if reply.moved_to:
            return {
                "url": reply.url,
                "moved_to": reply.moved_to,
                "note": "it has moved to another host; fetch that address if you want it",
            }
        reply.refuse_failure(reply.url)
        title, text = await in_thread(_readable, reply)
        return _part(reply.url, title, text, max(0, start))

    async def search_web(self, query: str, count: int = 8) -> list[dict[str, str]]:
        """Search the web and return titles, addresses and short texts of the best pages.

        Args:
            query: what to look for, in a few words
            count: how many pages
        """
        if not query.strip():
            raise ToolError("the query is empty; say what to look for")
        hits = await self._search.search(query, min(max(1, count), MOST_HITS))
        return [{"title": hit.title, "url": hit.url, "text": hit.text} for hit in hits]

    def _host(self, arguments: Mapping[str, Any]) -> str:
        return host_of(self._transport.target(arguments["url"]))


def _readable(reply: Reply) -> tuple[str, str]:
    """The title and the text of a page."""
    if reply.kind in _PAGES:
        return read_page(decoded(reply.body, reply.charset), reply.url)
    if reply.kind == "application/pdf":
        return "", read_document(io.BytesIO(reply.body), "page.pdf")
    if reply.kind.startswith(_TEXTS) or reply.kind.endswith(("+json", "+xml")):
        text = decoded(reply.body, reply.charset)
        if "\0" in text:
            raise ToolError(f"{reply.url} says that it is a text, but holds binary data")
        return "", text
    raise ToolError(f"{reply.url} is of a kind that cannot be read: {reply.kind[:80]}")


def _part(url: str, title: str, text: str, start: int) -> dict[str, Any]:
    told: dict[str, Any] = {"url": url, "title": title, "text": text[start : start + MOST_SHOWN]}
    if start + MOST_SHOWN < len(text):
        told["more"] = f"{len(text)} characters in all; go on with start={start + MOST_SHOWN}"
    return {name: value for name, value in told.items() if value or name == "text"}
