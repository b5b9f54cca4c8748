"""Leading a group by rules: everybody is asked once, and what they said is the answer."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from chargehand.models.base import ModelRequest, Role, ToolCall
from chargehand.models.offline.assigning import best_worker
from chargehand.models.offline.planning import request_in, roster_in
from chargehand.models.offline.reading import parts_of

TO_ALL, FINISH = "assign_to_all", "finish"
_MANAGES = {TO_ALL, "assign_to_one", FINISH}
_SAID = re.compile(r"t\d+ from (.+) to .+")
#: the name of a message between its borders


def management_calls(request: ModelRequest) -> list[ToolCall]:
    """What a manager calls next, if these are a manager's tools; none if they are not."""
    names = {tool.name for tool in request.tools}
    if not names or not names <= _MANAGES:
        return []
    asked = next((t.text for t in reversed(request.turns) if t.role is Role.USER), "")
    said = _said_in(asked)
    if said and FINISH in names:
        answer = "\n".join(f"{speaker}: {text}" for speaker, text in said)
        return [_call(FINISH, answer=answer)]
    if TO_ALL not in names:
        return []
    return [_call(TO_ALL, message=request_in(asked, {}))]


def next_speaker(choices: Sequence[str], asked: str, prompts: str) -> dict[str, Any] | None:
    """Whoever was not heard yet and fits the request best; then the word that ends it."""
    roster = roster_in(choices, prompts)
    speakers = [speaker for speaker, _ in _said_in(asked)]
    members = [name for name in choices if roster.get(name)]
    unheard = {name: roster[name] for name in members if name not in speakers}
    if unheard:
        worker = best_worker(request_in(asked, unheard), unheard)
        return {"next": worker, "why": "of those not heard yet, its description fits best"}
    ends = [choice for choice in choices if choice not in members]
    if not ends:
        return None
    return {"next": ends[0], "why": "everybody was heard"}


def _said_in(asked: str) -> list[tuple[str, str]]:
    """Who said what, in order."""
    found = [(_SAID.fullmatch(name), text) for name, text in parts_of(asked).data]
    return [(name[1], text.strip()) for name, text in found if name is not None]


def _call(name: str, **arguments: str) -> ToolCall:
    return ToolCall(f"offline-{name}", name, msgspec.json.encode(arguments).decode())
