"""Software delivery by a group: a tester, a developer and an operator, until the release.

The tester really runs the tests. The developer tries other comparisons in the code, one place at a time, and
keeps the one with the fewest failing tests. The operator packages only code that passes all tests, and tries the
package. A manager chooses the next speaker after each turn, and the token `RELEASED` ends the conversation. Only
the developer may write the block with the code. The choice is scripted, so no API key is needed; with
`--model openai:gpt-5-mini` that model chooses. Whatever it chooses, a release passes the tests.
"""

import argparse
import asyncio
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import shorten

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

import chargehand as ch
from chargehand.models.base import ModelRequest
from chargehand.patterns.groups import DynamicManager, Group, GroupResult, Message, SharedBlock

DATA = Path(__file__).parent / "groups_data"
CONSOLE = Console(highlight=False)
RELEASED = "RELEASED"
OTHERWISE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
PASSED = re.compile(r"(\d+) of (\d+) tests pass")


def run_tests(code: str) -> tuple[int, int, list[str]]:
    """The number of passing tests, the number of tests, and the failing ones."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "slugs.py").write_text(code, encoding="utf-8")
        Path(folder, "test_slugs.py").write_text((DATA / "test_slugs.py.txt").read_text("utf-8"))
        command = [sys.executable, "-m", "unittest", "test_slugs"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30)
    total = int(re.findall(r"Ran (\d+) test", done.stderr)[0])
    failed = re.findall(r"^(?:FAIL|ERROR): test_(\w+)", done.stderr, re.MULTILINE)
    return total - len(failed), total, failed


def changes_of(code: str) -> Iterator[tuple[str, str]]:
    """For every comparison in the code: the code with it changed, and a description of the change."""
    for found in re.finditer(r"(?<=\s)[<>]=?(?=\s)", code):
        other = OTHERWISE[found[0]]
        line = code.count("\n", 0, found.start()) + 1
        yield (
            code[: found.start()] + other + code[found.end() :],
            f"{found[0]} to {other} in line {line}",
        )


@ch.worker("tester", "Runs the tests")
def tester(brief: ch.Brief) -> str:
    code = brief.wait(brief.board.read("code"))
    passed, total, failed = run_tests(code.value)
    missing = f"; not: {', '.join(name.replace('_', ' ') for name in failed)}" if failed else ""
    return f"Version {code.version}: {passed} of {total} tests pass{missing}"


@ch.worker("developer", "Changes the code")
def developer(brief: ch.Brief) -> str:
    code = brief.wait(brief.board.read("code"))
    tried = [(run_tests(changed)[0], changed, what) for changed, what in changes_of(code.value)]
    _, best, what = max(tried)
    written = brief.wait(brief.board.write("code", best, expect=code.version))
    return (
        f"Version {written.version}: changed {what}; of {len(tried)} ways, the most tests pass so"
    )


@ch.worker("operator", "Packs and releases")
def operator(brief: ch.Brief) -> str:
    code = brief.wait(brief.board.read("code"))
    passed, total, _ = run_tests(code.value)
    if passed < total:
        raise ValueError(f"{passed} of {total} tests pass; nothing is released before all do")
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "slugs.zip")
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr(zipfile.ZipInfo("slugs.py"), code.value)
        program = f"import sys; sys.path[0] = {str(package)!r}; import slugs; print(slugs.slug('It works!'))"
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        )
        digest = hashlib.sha256(package.read_bytes()).hexdigest()[:12]
    return f"slugs.zip of version {code.version}, {digest}; tried it: {done.stdout.strip()!r}. {RELEASED}"


def choose(request: ModelRequest) -> str:
    """The next speaker: after the tester the one its result calls for, after the others the tester."""
    text = request.turns[-1].text
    said = re.findall(r"^BEGIN t\d+ from (\w+) .*\n(.*)\nEND", text, re.MULTILINE)
    speaker, words = said[-1] if said else ("", "")
    passed = PASSED.search(words)
    after = "operator" if passed and passed[1] == passed[2] else "developer"
    return json.dumps({"next": after if speaker == "tester" else "tester", "why": "by the result"})


def group(model: str = "") -> Group:
    code = (DATA / "slugs.py.txt").read_text(encoding="utf-8")
    chooser = model or ch.ScriptedModel([choose] * 12)
    return Group(
        [tester, developer, operator],
        manager=DynamicManager(chooser, termination_token=RELEASED, max_turns=12),
        name="delivery",
        blocks=[SharedBlock("code", code, writers=["developer"])],
    )


def show(said: Message) -> None:
    words = escape(shorten(said.text, 300, placeholder=" …"))
    line = f"[bold cyan]{said.sender}[/] to {', '.join(said.to)}: {words}"
    CONSOLE.print(Padding(line, (0, 0, 0, 2), expand=False))


async def deliver(model: str = "") -> tuple[GroupResult, list[str]]:
    """Print the result, and the changes in the code from its first to its last version."""
    async with group(model) as crew:
        result = await crew.send("Release slugs, with all tests passing", hear=show)
        lines = (await crew.board(crew.blocks.home).diff("code", 1)).splitlines()
        return result, [line for line in lines if re.match(r"[-+](?![-+])", line)]


def main(arguments: Sequence[str] = ()) -> GroupResult:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="provider:model, to choose who is next")
    model = parser.parse_args(arguments).model
    CONSOLE.print("A function with two mistakes, and three who get it out of the door:\n")
    result, changes = asyncio.run(deliver(model))
    CONSOLE.print("\n[bold]What was changed:[/]")
    for line in changes:
        CONSOLE.print(f"  {escape(line)}")
    is_out = RELEASED in result.messages[-1].text
    told = "It is released" if is_out else "Nothing was released"
    CONSOLE.print(
        f"\n{told}. {result.status.value.capitalize()}: {result.turns} turns; {result.ended}."
    )
    CONSOLE.print("\nNext: docs/groups.md; or break slugs.py.txt in groups_data in another way")
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
