"""Captures the screens of docs/terminal.md from real runs in a pseudo-terminal.

`--check` says whether the page still shows what a run shows; `--write` writes it.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.pseudo_terminal import prepared_crew, terminal

FOLDER = Path(__file__).parent
PAGE = FOLDER / "terminal.md"
SIZES = ((80, 24), (120, 40), (60, 14))


def steady(text: str) -> str:
    """A screen without what differs from run to run: ids, lengths of time, averages."""
    text = re.sub(r"\br[0-9a-f]{15}\b", "r0123456789abcde", text)
    text = re.sub(r"\b\d+\.\ds\b", "1.2s", text)
    text = re.sub(r"\b\d+\.\d (times|tasks at once)", r"3.1 \1", text)
    return re.sub(r"waited on .*", "waited on south-1 → compare-south → summary", text)


def captured(columns: int, rows: int) -> dict[str, str]:
    """The screens of one run at this size, by what they show."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        args = prepared_crew(folder)
        gates = folder / "gates"
        with terminal(columns, rows, folder, *args, CHARGEHAND_GATES=str(gates)) as shown:
            screens = {}
            shown.wait_for("5 running")
            for task in ("north-1", "north-2", "north-3"):
                (gates / task).touch()
                shown.wait_for(f"✓ {task}")
            screens["working"] = shown.wait_for("3 of 10 done")
            for task in ("south-1", "south-2", "south-3", "checks", "compare-north"):
                (gates / task).touch()
                shown.wait_for(f"✓ {task}")
            (gates / "compare-south").touch()
            shown.wait_for("▲ summary asks")
            screens["asking"] = shown.wait_for("9 of 10 done")
            shown.type("2\r")
            (gates / "summary").touch()
            if shown.finish() != 0:
                raise RuntimeError(shown.everything())
            screens["end"] = shown.shown()
    return {name: steady(text) for name, text in screens.items()}


def page_with(page: str, screens: dict[str, str]) -> str:
    """The page with these screens between their marks."""
    for name, text in screens.items():
        begin, end = f"<!-- screen: {name} -->", "<!-- end of screen -->"
        head, found, rest = page.partition(begin)
        if found:
            page = f"{head}{begin}\n```text\n{text}\n```\n{end}{rest.partition(end)[2]}"
    return page


def all_screens() -> dict[str, str]:
    return {
        f"{name} {columns}x{rows}": text
        for columns, rows in SIZES
        for name, text in captured(columns, rows).items()
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--write", action="store_true")
    is_written = options.parse_args().write
    screens = all_screens()
    wanted = page_with(PAGE.read_text(), screens)
    if is_written:
        PAGE.write_text(wanted)
    elif wanted != PAGE.read_text():
        print("docs/terminal.md is out of date; run: python docs/capture_terminal.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
