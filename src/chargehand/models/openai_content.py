"""Images, documents and tool outputs, in the forms that OpenAI's two protocols share."""

import base64
import binascii

from chargehand.models.base import File, Image, ToolOutput


def image_url(image: Image) -> str:
    """Where the picture lies: its own address, or one that holds its bytes."""
    return image.url or f"data:{image.media_type};base64,{image.data}"


def file_url(file: File) -> str:
    return f"data:{file.media_type};base64,{file.data}"


def is_text(file: File) -> bool:
    """Whether the document is plain text, which every model can read as such."""
    kind = file.media_type.partition(";")[0].strip()
    return kind.startswith("text/") or kind in ("application/json", "application/xml")


def text_in(file: File) -> str | None:
    """The words of a document of plain text; None if its bytes are not in base64."""
    try:
        return base64.b64decode(file.data, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return None


def titled(file: File, text: str) -> str:
    """A document's words, marked off from what is said around them."""
    return f"[file {file.name}]\n{text}\n[end of {file.name}]"


def output_text(output: ToolOutput) -> str:
    """What a tool said; a failure is told in words, for these protocols have no mark for it."""
    return f"Error: {output.text}" if output.is_error else output.text
