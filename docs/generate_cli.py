"""Writes what each command says of itself into docs/cli.md, between the marks that stand there.

`python docs/generate_cli.py` writes it; with `--check` it only says whether it is up to date.
"""

import re
import sys
from pathlib import Path

from click.testing import CliRunner

from chargehand.cli import COMMANDS
from chargehand.cli import main as commands

PAGE = Path(__file__).parent / "cli.md"
WIDTH = 100
BLOCK = re.compile(r"(<!-- help: (?P<command>[\w ]*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def help_of(words: str) -> str:
    """The help of a command, as it prints it itself in a terminal of this width."""
    args = [*words.split(), "--help"]
    told = CliRunner().invoke(commands, args, prog_name="chargehand", terminal_width=WIDTH)
    return told.stdout.rstrip("\n")


def page(text: str) -> str:
    """The page with every block of help as it is now."""

    def told(block: re.Match[str]) -> str:
        return f"{block[1]}```text\n{help_of(block['command'])}\n```\n{block[3]}"

    return BLOCK.sub(told, text)


def missing(text: str) -> list[str]:
    """Commands that the page has no block for."""
    shown = {block["command"] for block in BLOCK.finditer(text)}
    return [name for name in COMMANDS if name not in shown]


def main() -> int:
    before = PAGE.read_text(encoding="utf-8")
    after = page(before)
    if absent := missing(after):
        print(f"docs/cli.md says nothing of: {', '.join(absent)}")
        return 1
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(after, encoding="utf-8")
        return 0
    if before == after:
        return 0
    print("docs/cli.md is out of date; run: python docs/generate_cli.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
