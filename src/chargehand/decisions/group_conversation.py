"""Group conversations: which tasks are turns of members, and the last message to everyone."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from chargehand.decisions.system_tasks import is_of_plan
from chargehand.decisions.task_graph import TaskNode, TaskState
from chargehand.facts.plan import Task

#: the id that stands for all members of a group
EVERYONE = "everyone"


class SpokenTurn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A turn of a member, as the `args` of its task describe it."""

    #: its number in the conversation, from 1
    turn: int
    #: turns of one round run in parallel
    round: int
    #: author of the message to answer
    sender: str
    #: who gets the reply
    reply_to: str
    #: earlier messages that are no longer shown
    folded: int = 0
    #: the text that ends the conversation
    token: str = ""

    @classmethod
    def of(cls, task: Task) -> "SpokenTurn | None":
        """The turn of this task; None if the task is no turn."""
        if "turn" not in task.args or "reply_to" not in task.args:
            return None
        try:
            return msgspec.convert(task.args, cls)
        except msgspec.ValidationError:
            return None  # another plan whose arguments have the same names


def last_said(nodes: Mapping[str, TaskNode]) -> str | None:
    """The task with the newest message to everyone; None if the run is no conversation.

    Later turns that failed change nothing. None also if the newest done task is a manager's answer or a
    reply to only one member.
    """
    for id_ in reversed(list(nodes)):
        node = nodes[id_]
        if node.state is TaskState.DONE and is_of_plan(node):
            turn = SpokenTurn.of(node.task)
            return id_ if turn is not None and turn.reply_to == EVERYONE else None
    return None


def without_token(task: Task, said: Any) -> Any:
    """The message of a turn, without the text that ends the conversation."""
    turn = SpokenTurn.of(task)
    token = "" if turn is None else turn.token
    return said.replace(token, "").strip() if isinstance(said, str) and token else said
