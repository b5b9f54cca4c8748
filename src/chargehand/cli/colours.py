"""Terminal colours: renders the styles of lines as escape sequences. Respects `NO_COLOR` and `FORCE_COLOR`."""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TextIO

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from chargehand.presentation.live_frame import Line

#: orange is reserved for: a person is needed
STYLES = {
    "bold": "bold",
    "dim": "#8a929b",
    "done": "#3fa876",
    "failed": "#ef5b5b",
    "needs": "bold #ff8a33",
    "ready": "#868e97",
    "retrying": "#b07cf2",
    "running": "#4c8bff",
    "waiting": "#868e97",
}
_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}


class Colours:
    """Renders styled lines for one stream."""

    def __init__(self, stream: TextIO) -> None:
        console = Console(file=stream, highlight=False)
        system = None if console.no_color else console.color_system
        self._system = None if system is None else _SYSTEMS.get(system)

    def rendered(self, line: Line) -> str:
        """The line with escape sequences for its styles, if the stream shows colours."""
        if self._system is None:
            return "".join(part.text for part in line).rstrip()
        return "".join(_styled(part.text, part.style, self._system) for part in line)

    def all_rendered(self, lines: Sequence[Line]) -> list[str]:
        return [self.rendered(line) for line in lines]


@lru_cache(maxsize=2048)
def _styled(text: str, style: str, system: ColorSystem) -> str:
    return text if style not in STYLES else _style(style).render(text, color_system=system)


@cache
def _style(name: str) -> Style:
    return Style.parse(STYLES[name])
