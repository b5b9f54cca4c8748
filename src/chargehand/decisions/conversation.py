"""Runs that are conversations: which tasks are turns of members, and what was said last to everyone."""

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
    """What a task of a group's plan says about itself, in its `args`."""

    #: its number in the conversation, from 1
    turn: int
    #: turns of one round are spoken side by side
    round: int
    #: who the message comes from that is to be answered
    sender: str
    #: who reads the answer
    reply_to: str
    #: earlier messages that are no longer shown
    folded: int = 0
    #: the word that ends the conversation
    token: str = ""

    @classmethod
    def of(cls, task: Task) -> "SpokenTurn | None":
        """The turn that this task is; None if it is none."""
        if "turn" not in task.args or "reply_to" not in task.args:
            return None
        try:
            return msgspec.convert(task.args, cls)
        except msgspec.ValidationError:
            return None  # a plan of somebody's own, whose arguments have the same names


def last_said(nodes: Mapping[str, TaskNode]) -> str | None:
    """The task with the newest message to everyone; None for a run that is no conversation.

    Members that could not answer after it change nothing. None also once a manager has given its answer, or if the
    newest reply is for one member alone.
    """
    for id_ in reversed(list(nodes)):
        node = nodes[id_]
        if node.state is TaskState.DONE and is_of_plan(node):
            turn = SpokenTurn.of(node.task)
            return id_ if turn is not None and turn.reply_to == EVERYONE else None
    return None


def without_token(task: Task, said: Any) -> Any:
    """What was said in a turn, without the word that ends the conversation."""
    turn = SpokenTurn.of(task)
    token = "" if turn is None else turn.token
    return said.replace(token, "").strip() if isinstance(said, str) and token else said
