"""Extracts the text of documents: plain text, Markdown, CSV, HTML and PDF."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from chargehand.errors import ToolError
from chargehand.tools.html_text import read_page
from chargehand.tools.table_process import OLD, encoding_by_mark

if TYPE_CHECKING:
    from pypdf import PdfReader

#: bytes of a file that is read as a document
MOST_BYTES = 20 * 1024 * 1024
#: characters of extracted text; a small file can expand to a very large text
MOST_TEXT = 8 * 1024 * 1024
MOST_PAGES = 2_000


def read_document(file: BinaryIO, path: str) -> str:
    """The text of a document, in lines. Raises `ToolError` if it cannot be read."""
    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ToolError(f"{path!r} is larger than {MOST_BYTES // 2**20} MB, too large to be read")
    reader = _READERS.get(path.rpartition(".")[2].lower(), _plain)
    text = reader(data, path)
    if len(text) > MOST_TEXT:
        raise ToolError(f"{path!r} holds more than {MOST_TEXT // 2**20} million characters of text")
    return text


def _plain(data: bytes, path: str) -> str:
    text = _decoded(data)
    if "\0" in text:
        raise ToolError(f"{path!r} is not a text: it holds binary data")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(data: bytes) -> str:
    if (encoding := encoding_by_mark(data)) is not None:
        return data.decode(encoding, errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode(OLD, errors="replace")  # the most common encoding of old texts


def _html(data: bytes, path: str) -> str:
    page = read_page(_plain(data, path), "")
    lines = [page.title, *page.text.split("\n")]
    return "\n".join(line for line in lines if line.strip())


def _pdf(data: bytes, path: str) -> str:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        raise ToolError(
            "PDF files cannot be read here; install chargehand[documents]", kind="denied"
        ) from None
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolError(f"{path!r} is protected by a password", kind="denied")
        return _pages(reader, path)
    except (
        PyPdfError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        # A damaged file can raise almost any of these.
        raise ToolError(f"{path!r} cannot be read as a PDF: {type(error).__name__}") from None


def _pages(reader: "PdfReader", path: str) -> str:
    texts: list[str] = []
    size = 0
    for number, page in enumerate(reader.pages, 1):
        text = page.extract_text()
        size += len(text)
        if number > MOST_PAGES or size > MOST_TEXT:
            raise ToolError(f"{path!r} has too many pages or too much text to be read")
        texts.append(f"[page {number}]\n{text.strip()}\n")
    return "\n".join(texts)


_READERS: dict[str, Callable[[bytes, str], str]] = {
    "html": _html,
    "htm": _html,
    "xhtml": _html,
    "pdf": _pdf,
}
