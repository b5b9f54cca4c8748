"""The state of a LangGraph graph, whatever it is made of: a mapping, a dataclass, a Pydantic model. Imports LangChain."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage

#: the key that graphs of messages have by convention
MESSAGES = "messages"


def has(state: Any, key: str) -> bool:
    return key in state if isinstance(state, Mapping) else hasattr(state, key)


def found_in(state: Any, key: str) -> Any:
    """What lies there; of a list of messages, the words of the last."""
    found = state[key] if isinstance(state, Mapping) else getattr(state, key)
    is_talk = isinstance(found, list) and found and isinstance(found[-1], BaseMessage)
    return str(found[-1].text) if is_talk else found
