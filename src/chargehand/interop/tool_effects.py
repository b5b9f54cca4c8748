"""What calling a tool of another framework twice would mean. It does not say so itself; whoever hires it does."""

from collections.abc import Mapping
from typing import TypeAlias

from chargehand.errors import UsageError
from chargehand.facts.events import Effect

Effects: TypeAlias = "Effect | str | Mapping[str, Effect | str]"
"""Of all tools, or by the name of the tool; one that is not named is `once`."""


class ToolEffects:
    """The effect of each tool, as it was declared."""

    def __init__(self, effects: Effects) -> None:
        self._all = _effect(effects) if isinstance(effects, str) else Effect.ONCE
        named = {} if isinstance(effects, str) else effects
        self._named = {tool: _effect(effect) for tool, effect in named.items()}

    def of(self, tool: str) -> Effect:
        return self._named.get(tool, self._all)


def _effect(word: str) -> Effect:
    # Not keyed: there is no way to hand such a tool its key.
    known = [each for each in Effect if each is not Effect.KEYED]
    if word not in known:
        words = ", ".join(each.value for each in known)
        raise UsageError(f"{word!r} is no effect that a tool can have here; there are {words}")
    return Effect(word)
