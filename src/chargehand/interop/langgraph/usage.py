"""What the models inside a LangGraph graph spend, as LangChain's callbacks tell it. Imports LangChain."""

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from chargehand.facts.outcome import NO_USAGE, ONE_CALL, ErrorClass, Usage
from chargehand.interop.call_cost import priced
from chargehand.interop.error_classes import class_of
from chargehand.models.http_adapter import usage_of as usage_told


class Spending(BaseCallbackHandler):
    """Adds up every model call that is made under it, whether its message ends in the state or not."""

    # Called where it happens, one after the other: what is added up must not be torn apart.
    run_inline = True

    def __init__(self) -> None:
        self.usage = NO_USAGE

    def on_llm_error(self, error: BaseException, **_: Any) -> None:
        if class_of(error) is ErrorClass.TIMEOUT:  # it may have been answered, and paid for
            self.usage += ONE_CALL

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        for generations in response.generations:
            for generation in generations[:1]:  # more than one share what they cost
                message = generation.message if isinstance(generation, ChatGeneration) else None
                if isinstance(message, AIMessage):
                    self.usage += _spent(message)


def _spent(message: AIMessage) -> Usage:
    counts: dict[str, Any] = dict(message.usage_metadata or {})
    details = counts.get("input_token_details") or {}
    told = message.response_metadata
    model = f"{told.get('model_provider', '')}:{told.get('model_name', '')}"
    cached = details.get("cache_read"), details.get("cache_creation")
    usage = usage_told(counts.get("input_tokens"), counts.get("output_tokens"), *cached)
    return priced(model, usage)
