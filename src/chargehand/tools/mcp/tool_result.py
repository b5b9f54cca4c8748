"""What a server's answer to a call becomes: JSON data, or a `ToolError`."""

from typing import Any

from mcp import types

from chargehand.errors import ToolError


def value_of(result: types.CallToolResult, tool: str) -> Any:
    """The data of an answer. What is neither text nor data is only named."""
    told = [_told(block) for block in result.content]
    text = "\n\n".join(told)
    if result.is_error:
        raise ToolError(text or f"{tool} failed and did not say why")
    if result.structured_content is None:
        return text or None
    # The protocol has servers repeat the data as text; only what is not text can add to it.
    others = [block for block in result.content if not isinstance(block, types.TextContent)]
    if not others:
        return result.structured_content
    return {"data": result.structured_content, "also": [_told(block) for block in others]}


def _told(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            return f"[image: {_size(block.mime_type, block.data)}]"
        case types.AudioContent():
            return f"[audio: {_size(block.mime_type, block.data)}]"
        case types.ResourceLink():
            return f"[link: {block.name}, {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource: {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            kind = resource.mime_type or "of unknown type"
            return f"[resource: {resource.uri}, {_size(kind, resource.blob)}]"
    raise ToolError(f"the answer holds a {type(block).__name__}, which is unknown here")


def _size(kind: str, base64: str) -> str:
    return f"{kind}, {len(base64) * 3 // 4 - base64.count('=', -2)} bytes, not shown"
