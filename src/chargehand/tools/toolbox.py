"""The tools of one worker, by name."""

import difflib
from collections.abc import Iterable, Iterator

from chargehand.errors import ToolError, UsageError
from chargehand.models.base import ToolSpec
from chargehand.tools.base import Tool


class Toolbox:
    """The tools of one worker, by name."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for each in tools:
            if not isinstance(each, Tool):
                raise UsageError(f"{each!r} is not a tool; write @tool above the function")
            if each.name in self._tools:
                raise UsageError(f"two tools are called {each.name!r}; give one another name=")
            self._tools[each.name] = each
        self._specs = tuple(each.spec for each in self)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The specifications that the model gets, in the order in which the tools were given."""
        return self._specs

    def only(self, names: Iterable[str]) -> "Toolbox":
        """A toolbox with only the tools of these names."""
        wanted = set(names)
        return Toolbox(each for each in self if each.name in wanted)

    def find(self, name: str) -> Tool:
        """The tool of this name. Raises `ToolError`, which lists the tools, if there is none."""
        if name in self._tools:
            return self._tools[name]
        close = difflib.get_close_matches(name, self._tools, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        there = ", ".join(self._tools) or "none"
        raise ToolError(f"there is no tool {name[:80]!r}; {meant}you have: {there}")
