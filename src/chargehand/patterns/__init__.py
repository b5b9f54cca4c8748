"""Ready-made ways to use a supervisor: each a few lines over it, to be used or to be read."""

from chargehand.patterns.groups import (
    DynamicManager,
    Group,
    RoundRobinManager,
    SharedBlock,
    SupervisorManager,
)
from chargehand.patterns.recursive import RecursiveSupervisor, recursive
from chargehand.patterns.routing import route

__all__ = [
    "DynamicManager",
    "Group",
    "RecursiveSupervisor",
    "RoundRobinManager",
    "SharedBlock",
    "SupervisorManager",
    "recursive",
    "route",
]
