"""Names and sizes: every public class has a name of its own, modules are nouns, functions stay short."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "chargehand"

#: modules whose name ends in -ing because the field calls it so
TERMS = {"hedging", "routing", "streaming", "testing"}
#: a function has fewer lines than this
LONGEST_FUNCTION = 60


def _modules(package: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        yield str(path.relative_to(package)), ast.parse(path.read_text(encoding="utf-8"))


def shared_class_names(package: Path) -> list[str]:
    """Public classes of one name in several modules."""
    places: dict[str, list[str]] = defaultdict(list)
    for module, tree in _modules(package):
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    return [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]


def verb_modules(package: Path) -> list[str]:
    """Modules that are named for an activity, although the field has no such term."""
    paths = (path.relative_to(package) for path in sorted(package.rglob("*.py")))
    return [str(path) for path in paths if path.stem.endswith("ing") and path.stem not in TERMS]


def long_functions(package: Path) -> list[str]:
    """Functions with more lines than fit on a screen, signature and docstring included; decorators do not count."""
    return [
        f"{module}:{node.lineno} {node.name} has {length} lines"
        for module, tree in _modules(package)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (length := _end(node) - node.lineno + 1) >= LONGEST_FUNCTION
    ]


def detached_comments(package: Path) -> list[str]:
    """`#:` comments with nothing below them to describe."""
    return [
        f"{path.relative_to(package)}:{number} {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for lines in [path.read_text(encoding="utf-8").splitlines()]
        for number, (line, below) in enumerate(pairwise([*lines, ""]), 1)
        if line.lstrip().startswith("#:") and not below.strip()
    ]


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


@pytest.mark.parametrize(
    "rule", [shared_class_names, verb_modules, long_functions, detached_comments]
)
def test_the_package_keeps_the_rule(rule: object) -> None:
    assert callable(rule)
    assert rule(SOURCE) == []


def test_what_is_planted_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Gate:\n    pass\n")
    (tmp_path / "leading.py").write_text("class Gate:\n    pass\n")
    (tmp_path / "routing.py").write_text("def long():\n" + "    print()\n" * (LONGEST_FUNCTION - 1))
    (tmp_path / "commented.py").write_text("#: of what\n\nLENGTH = 1\n#: of this\nWIDTH = 1\n")
    assert detached_comments(tmp_path) == ["commented.py:1 #: of what"]
    assert shared_class_names(tmp_path) == ["Gate: leading.py, one.py"]
    assert verb_modules(tmp_path) == ["leading.py"]
    assert long_functions(tmp_path) == ["routing.py:1 long has 60 lines"]
