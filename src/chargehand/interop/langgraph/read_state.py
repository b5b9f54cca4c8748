"""Reads the state of a LangGraph graph: a mapping, a dataclass or a Pydantic model. Imports LangChain."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import BaseMessage

#: the conventional key of the messages in a state
MESSAGES = "messages"


def has(state: Any, key: str) -> bool:
    return key in state if isinstance(state, Mapping) else hasattr(state, key)


def found_in(state: Any, key: str) -> Any:
    """The value of a key; for a list of messages, the text of the last message."""
    found = state[key] if isinstance(state, Mapping) else getattr(state, key)
    is_talk = isinstance(found, list) and found and isinstance(found[-1], BaseMessage)
    return str(found[-1].text) if is_talk else found
