"""Writes the states of a task and the changes between them into docs/states.md, between the marks.

`python docs/generate_states.py` writes them; with `--check` it only says whether they are up to date.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from chargehand.decisions.schedule import TRANSITIONS
from chargehand.decisions.task_graph import TaskState

PAGE = Path(__file__).parent / "states.md"
BLOCK = re.compile(r"(<!-- (?P<name>states|picture|transitions) -->\n).*?(<!-- end -->)", re.DOTALL)
MEANING = re.compile(r'"(?P<state>\w+)"  #: (?P<meaning>.+)')


def states() -> Iterator[str]:
    """Each state with the comment that stands beside it in the source."""
    meanings = dict(MEANING.findall(inspect.getsource(TaskState)))
    yield "| state | meaning |\n|---|---|"
    for state in TaskState:
        yield f"| `{state.value}` | {meanings[state.value]} |"


def picture() -> Iterator[str]:
    """Which state (row) leads to which (column)."""
    yield "```text"
    yield " " * 12 + " ".join(state.value for state in TaskState)
    for before in TaskState:
        if not before.is_settled:
            cells = [
                ("●" if (before, after) in TRANSITIONS else "·").center(len(after.value))
                for after in TaskState
            ]
            yield f"{before.value:<12}{' '.join(cells)}".rstrip()
    yield "```"


def transitions() -> Iterator[str]:
    """Each change and what leads to it."""
    yield "| from | to | when |\n|---|---|---|"
    for (before, after), when in TRANSITIONS.items():
        yield f"| `{before.value}` | `{after.value}` | {when} |"


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "states": states,
    "picture": picture,
    "transitions": transitions,
}


def page(text: str) -> str:
    """The page with every block as the source has it now."""

    def told(block: re.Match[str]) -> str:
        return block[1] + "\n".join(PARTS[block["name"]]()) + f"\n{block[3]}"

    return BLOCK.sub(told, text)


def main() -> int:
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(after, encoding="utf-8")
        return 0
    if before == after:
        return 0
    print("docs/states.md is out of date; run: python docs/generate_states.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
