"""Writes docs/reference.md from the source: public names, events, errors, faults, limits, words.

`python docs/generate_reference.py` writes it; with `--check` it only says whether it is up to date.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path

import chargehand
from chargehand import errors
from chargehand.facts import events, limits, outcome, plan

PAGE = Path(__file__).parent / "reference.md"

HEAD = """\
# Reference

Written from the docstrings by `docs/generate_reference.py`; change the source, not this page.
"""


def page() -> str:
    parts = [
        HEAD,
        "## Public names\n",
        "What `import chargehand` offers. Everything else may change without notice.\n",
        *public_names(),
        "## Limits\n",
        *fields_of(limits.Limits),
        *fields_of(limits.TaskLimits),
        "## Plans\n",
        *fields_of(plan.Plan),
        *fields_of(plan.Task),
        *fields_of(plan.Need),
        "### What is wrong with a plan\n",
        table(("kind", "meaning"), ((f"`{kind}`", text) for kind, text in plan.FAULTS.items())),
        "## Choices\n",
        *choices(),
        "## Events\n",
        f"All that can happen to a run, in version {events.VERSION}. Every event also has `at`: "
        "the instant, in UTC, never earlier than that of the event before it.\n",
        *(part for kind in events.KINDS.values() for part in fields_of(kind)),
        "## Errors\n",
        "One tree, branched by who must act.\n",
        error_tree(),
        *error_list(),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def public_names() -> Iterator[str]:
    rows = []
    for name in getattr(chargehand, "__all__", ()):
        thing = getattr(chargehand, name)
        rows.append((f"`{name}`", first_line(thing)))
    if rows:
        yield table(("name", "what it is"), rows)


def first_line(thing: object) -> str:
    """The promise of a class or function; a plain value is shown, a union by its members."""
    if inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing):
        return (inspect.getdoc(thing) or "").partition("\n")[0]
    members = getattr(thing, "__args__", ())
    if members:
        return " or ".join(f"`{getattr(member, '__name__', member)}`" for member in members)
    return "a value"


def choices() -> Iterator[str]:
    for kind in (events.RunStatus, outcome.ErrorClass, events.Effect, events.RetryHow):
        yield f"### {kind.__name__}\n"
        yield f"{inspect.getdoc(kind)}\n"
        yield table(("value", "meaning"), enum_rows(kind))


def enum_rows(kind: type[Enum]) -> Iterator[tuple[str, str]]:
    source = inspect.getsource(kind)
    for member in kind:
        found = re.search(rf"^\s*{member.name} = .*?#: (.*)$", source, re.MULTILINE)
        yield f"`{member.value}`", found[1] if found else ""


def fields_of(kind: type) -> Iterator[str]:
    """A heading, the docstring, and a table of the fields with what the source says above them."""
    yield f"### {kind.__name__}\n"
    yield f"{inspect.getdoc(kind)}\n"
    rows = list(field_rows(kind))
    if rows:
        yield table(("field", "type", "meaning"), rows)


def field_rows(kind: type) -> Iterator[tuple[str, str, str]]:
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    definition = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ClassDef))
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = f" = {ast.unparse(node.value)}" if node.value else ""
            meaning = " ".join(comment_above(lines, node.lineno))
            yield f"`{node.target.id}`", f"`{ast.unparse(node.annotation)}{default}`", meaning


def comment_above(lines: list[str], number: int) -> Iterator[str]:
    """The `#:` lines directly above line `number`, counted from 1."""
    first = number - 1
    while first and lines[first - 1].strip().startswith("#:"):
        first -= 1
    for line in lines[first : number - 1]:
        yield line.strip().removeprefix("#:").strip()


def error_tree() -> str:
    tree = (inspect.getdoc(errors) or "").partition("\n\n")[2]
    return f"```text\n{tree}\n```\n"


def error_list() -> Iterator[str]:
    for thing in vars(errors).values():
        if inspect.isclass(thing) and issubclass(thing, errors.ChargehandError):
            yield f"### {thing.__name__}\n"
            yield f"{inspect.getdoc(thing)}\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    # A bar inside a cell would start another one, in code too.
    return "".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |\n" for row in lines)


def main() -> int:
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/reference.md is out of date; run: python docs/generate_reference.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
