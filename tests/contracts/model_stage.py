"""What the tests of models share: a tool, two calls of it, a key, and models of each protocol."""

from collections.abc import Callable
from typing import Any

from chargehand.models.base import Model, ModelRequest, ToolCall, ToolSpec, Turn, user
from chargehand.models.open_model import open_model
from chargehand.testing.model_server import ModelServer

ADD = ToolSpec(
    "add",
    "Adds two numbers",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
FIRST = ToolCall("call_1", "add", '{"a":1,"b":2}')
SECOND = ToolCall("call_2", "add", '{"a":3,"b":4}')
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 1}},
    "required": ["city", "people"],
}
MAP = {"type": "object", "additionalProperties": {"type": "integer"}}
KEY = "sk-test-0123456789abcdef"


def chat_model(server: ModelServer, **options: Any) -> Model:
    return open_model("openai:gpt-4.1", base_url=f"{server.url}/v1", key=KEY, **options)


def responses_model(server: ModelServer, **options: Any) -> Model:
    options = {"protocol": "responses", **options}
    return open_model("openai:gpt-5", base_url=f"{server.url}/v1", key=KEY, **options)


def anthropic_model(server: ModelServer, **options: Any) -> Model:
    return open_model("anthropic:claude-sonnet-5", base_url=server.url, key=KEY, **options)


Opening = Callable[..., Model]
PROTOCOLS: dict[str, Opening] = {
    "chat": chat_model,
    "responses": responses_model,
    "anthropic": anthropic_model,
}


def asking(*turns: Turn, **options: Any) -> ModelRequest:
    return ModelRequest(turns=turns or (user("hello"),), **options)


def sent(server: ModelServer) -> dict[str, Any]:
    """The body of the last request."""
    return server.requests[-1].body


def form_of(body: dict[str, Any]) -> Any:
    """The schema that the provider was asked to hold the answer to, whole."""
    if "response_format" in body:
        return body["response_format"]["json_schema"]
    if "text" in body:
        return body["text"]["format"]
    return body.get("output_config", {}).get("format")
