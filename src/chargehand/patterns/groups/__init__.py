"""Groups: workers that talk to each other, led by a manager, and share blocks."""

from chargehand.patterns.groups.group import Group
from chargehand.patterns.groups.managers import (
    Act,
    DynamicManager,
    Manager,
    RoundRobinManager,
    SupervisorManager,
    TurnAssignment,
)
from chargehand.patterns.groups.messages import Message, Talk
from chargehand.patterns.groups.result import GroupResult, Replies
from chargehand.patterns.groups.shared_blocks import SharedBlock

__all__ = [
    "Act",
    "DynamicManager",
    "Group",
    "GroupResult",
    "Manager",
    "Message",
    "Replies",
    "RoundRobinManager",
    "SharedBlock",
    "SupervisorManager",
    "Talk",
    "TurnAssignment",
]
