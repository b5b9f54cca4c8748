"""Converts web pages to Markdown for a model, with links and without pictures.

Parses in one pass, in time linear in the length of the page: the standard library's parser takes
hours for some pages of a megabyte and would block the whole process meanwhile.
"""

import codecs
import html
import re
from typing import NamedTuple
from urllib.parse import urljoin

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{2,40})", re.IGNORECASE)
_HREF = re.compile(r"\shref\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)
_ALT = re.compile(r"\salt\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", re.IGNORECASE)
_MANY_LINES = re.compile(r"\n{3,}")
#: elements whose contents are skipped; the title is kept separately
_RAW = {"script", "style", "template", "noscript", "svg", "iframe", "object", "textarea", "title"}
_BLOCKS = set(
    "address article aside blockquote br caption dd details div dl dt fieldset figcaption figure "  # noqa: SIM905
    "footer form header hr main nav ol option p pre section summary table tbody thead tr ul".split()
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`"}
LONGEST_LINK = 1_000
#: characters of a tag that are searched for attributes
LONGEST_TAG = 4_000


class Page(NamedTuple):
    """The title and the text of a web page."""

    title: str
    text: str


def read_page(source: str, address: str) -> Page:
    """The page as Markdown; relative links are resolved against its address."""
    return _Reader(source, address).read()


def decoded(data: bytes, charset: str) -> str:
    """Decode bytes by their byte order mark, by `charset`, by their `meta` tag, or as UTF-8."""
    for mark, encoding in ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if not charset and (found := _CHARSET.search(data, 0, 2048)):
        charset = found[1].decode("ascii")
    try:
        return str(data, charset or "utf-8", errors="replace")
    except (LookupError, ValueError):
        return str(data, "utf-8", errors="replace")


class _Reader:
    def __init__(self, source: str, address: str) -> None:
        self._source = source
        self._folded = source.lower() if source.isascii() else _ascii_lower(source)
        self._address = address
        self._pieces: list[str] = []
        self._title = ""
        self._link = ""
        self._link_at = 0

    def read(self) -> Page:
        at = 0
        while (opening := self._source.find("<", at)) >= 0:
            self._say(self._source[at:opening])
            at = self._step(opening)
        self._say(self._source[at:])
        return Page(" ".join(self._title.split()), _tidied("".join(self._pieces)))

    def _step(self, at: int) -> int:
        """Handle the tag or comment at this position; returns the position after it."""
        if self._source.startswith("<!--", at):
            return self._after("-->", at + 4)
        if self._source.startswith(("<!", "<?"), at):
            return self._after(">", at)
        tag = _TAG.match(self._source, at)
        if tag is None:
            self._say("<")
            return at + 1
        end = self._after(">", tag.end())
        name = tag[2].lower()
        if tag[1]:
            self._close(name)
        elif name in _RAW:
            return self._skip(name, end)
        else:
            self._open(name, self._source[tag.end() : min(end - 1, tag.end() + LONGEST_TAG)])
        return end

    def _after(self, mark: str, at: int) -> int:
        """The position after the next `mark`; without one, the end, as in browsers, so no text is scanned twice."""
        found = self._source.find(mark, at)
        return len(self._source) if found < 0 else found + len(mark)

    def _skip(self, name: str, at: int) -> int:
        closing = self._folded.find(f"</{name}", at)
        end = len(self._source) if closing < 0 else closing
        if name == "title" and not self._title:
            self._title = html.unescape(self._source[at : min(end, at + 500)])
        return self._after(">", end)

    def _open(self, name: str, attributes: str) -> None:
        if name in _HEADINGS:
            self._pieces.append(f"\n\n{_HEADINGS[name]} ")
        elif name == "li":
            self._pieces.append("\n- ")
        elif name in ("td", "th"):
            self._pieces.append(" | ")
        elif name == "a":
            self._end_link()
            self._link = self._whole(_attribute(_HREF, attributes))
            self._link_at = len(self._pieces)
        elif name == "img":
            # Only the alternative text; the address would be fetched.
            self._say(_attribute(_ALT, attributes))
        else:
            self._mark(name)

    def _close(self, name: str) -> None:
        if name == "a":
            self._end_link()
        elif name in _HEADINGS:
            self._pieces.append("\n\n")
        else:
            self._mark(name)

    def _mark(self, name: str) -> None:
        if name in _BLOCKS:
            is_apart = name in ("p", "pre", "table", "ul", "ol")
            self._pieces.append("\n\n" if is_apart else "\n")
        elif name in _MARKS:
            self._pieces.append(_MARKS[name])

    def _end_link(self) -> None:
        link, self._link = self._link, ""
        words = "".join(self._pieces[self._link_at :]) if link else ""
        if words.strip():
            self._pieces[self._link_at :] = [f"[{' '.join(words.split())}]({link})"]

    def _whole(self, href: str) -> str:
        try:
            link = urljoin(self._address, href.strip())
        except ValueError:
            return ""
        is_shown = link.startswith(("http://", "https://")) and len(link) <= LONGEST_LINK
        return link.replace(" ", "%20").replace(")", "%29") if is_shown and href else ""

    def _say(self, text: str) -> None:
        if text:
            self._pieces.append(html.unescape(text) if "&" in text else text)


def _attribute(pattern: re.Pattern[str], attributes: str) -> str:
    found = pattern.search(f" {attributes}")
    return html.unescape(next(filter(None, found.groups()), "")) if found else ""


def _ascii_lower(text: str) -> str:
    """Lower-case ASCII letters only: `str.lower` may change the length, and positions must match the source."""
    return text.translate({upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)})


def _tidied(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return _MANY_LINES.sub("\n\n", "\n".join(lines)).strip()
