"""Groups: workers who talk with each other under a manager, and share blocks."""

from chargehand.patterns.groups.blocks import SharedBlock
from chargehand.patterns.groups.group import Group
from chargehand.patterns.groups.managers import (
    Act,
    Assignment,
    DynamicManager,
    Manager,
    RoundRobinManager,
)
from chargehand.patterns.groups.result import GroupResult, Replies
from chargehand.patterns.groups.supervising import SupervisorManager
from chargehand.patterns.groups.talk import Message, Talk

__all__ = [
    "Act",
    "Assignment",
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
]
