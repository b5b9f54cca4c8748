"""Ready-made patterns on top of a supervisor, to use or to read as examples."""

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
