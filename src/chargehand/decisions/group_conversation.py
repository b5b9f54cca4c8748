"""Group conversations: which tasks are turns of members, and to whom each of them speaks."""

import msgspec
from msgspec import Struct

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
