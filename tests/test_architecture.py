"""The shape of the source: which room may know which, what is banned, what stays pure.

Each rule is a function from a folder to its faults. It is run over the real source, where it must
find nothing, and over small planted trees, where it must find what was planted.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "chargehand"

PORTS = ("journal", "models", "tools", "engines", "notify", "telemetry")
WINDOWS = (
    *("supervisor_factory", "crews", "interop", "testing", "recorder", "alerts", "documents"),
    *("evaluation", "presentation", "cli", "server", "client"),
)
ROWS = (
    ("errors",),
    ("facts",),
    ("decisions",),
    (
        *("clock", "sync_async_bridge", "interrupt_signals", "terminal_detection"),
        *("regular_file", "subreaper", "fork_guard", "usable_path"),
        "toml_parser",
    ),
    PORTS,
    ("roles",),
    ("result", "past_runs", "recordings"),
    ("runtime",),
    ("supervisor",),
    ("patterns",),
    WINDOWS,
    ("__init__", "__main__"),
)
ROW_OF = {room: number for number, row in enumerate(ROWS) for room in row}
#: a worker's steps and a tool's results are stored, a tool is shown to a model, and errors of both hold no secrets
ACROSS_PORTS = {
    ("engines", "chargehand.journal.base"),
    ("tools", "chargehand.journal.base"),
    ("tools", "chargehand.models.base"),
    ("models", "chargehand.tools.redaction"),
}
EMPTY_NAMES = {"core", "common", "utils", "util", "helpers", "misc"}

BANNED_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
BANNED_NAMES = {"eval", "exec", "builtins.eval", "builtins.exec", "yaml.load", "yaml.unsafe_load"}
SHELLS = {"os.system", "os.popen", "asyncio.create_subprocess_shell"}
IMPURE_MODULES = {
    *("asyncio", "time", "threading", "os", "secrets", "uuid", "socket", "subprocess"),
    *("pathlib", "tempfile", "multiprocessing", "concurrent", "apsw", "sqlite3"),
}
IMPURE_CALLS = {
    f"datetime.{kind}.{name}"
    for kind in ("datetime", "date")
    for name in ("now", "utcnow", "today")
} | {"open", "input", "print"}

DOTTED = re.compile(r"\w+(?:\.\w+)*")

Rule = Callable[[Path], list[str]]


# Reading modules


def modules_under(package: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_in(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[tuple[str, str, int]]:
    """All imports, wherever they stand: (module, name taken from it or nothing, line)."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "", node.lineno) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                package = module.split(".") if is_package else module.split(".")[:-1]
                above = package[: len(package) - level + 1] if level else []
                origin = ".".join([*above, *([source] if source else [])])
                yield from ((origin, alias.name, node.lineno) for alias in names)
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_]) if ast.unparse(
                func
            ).endswith(("import_module", "__import__")):
                yield name, "", node.lineno


def edges_of(module: str, path: Path, known: Mapping[str, Path]) -> dict[str, int]:
    """The modules of the same package that this one imports, and the line where."""
    root = module.split(".")[0]
    edges: dict[str, int] = {}
    for origin, name, line in imports_in(
        parsed(path), module, is_package=path.name == "__init__.py"
    ):
        if origin.split(".")[0] != root:
            continue
        wanted = f"{origin}.{name}" if f"{origin}.{name}" in known else origin
        while wanted not in known:
            wanted = wanted.rpartition(".")[0]
        if wanted != module:
            edges.setdefault(wanted, line)
    return edges


def full_names(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Every name and attribute that is read, spelt out in full: `dt.now` as `datetime.datetime.now`."""
    meaning: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            meaning |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            meaning |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            name = ast.unparse(node)
            if DOTTED.fullmatch(name):  # not what hangs on a call: `Random(7).random`
                first, dot, rest = name.partition(".")
                yield meaning.get(first, first) + dot + rest, node


# The rules


def layer_faults(package: Path) -> list[str]:
    """Imports that point the wrong way, circles of modules, and files in rooms nobody knows."""
    known = modules_under(package)
    faults = []
    graph: dict[str, list[str]] = {}
    for module, path in known.items():
        if room_of(module) not in ROW_OF:
            faults.append(f"{module} is in no known room; say in ROWS where {room_of(module)} is")
            continue
        if EMPTY_NAMES & set(module.split(".")):
            faults.append(f"{module} is not named for a noun of the domain")
        edges = edges_of(module, path, known)
        graph[module] = list(edges)
        faults += [
            f"{module}:{line} may not import {imported}"
            for imported, line in edges.items()
            if not may_import(module, imported)
        ]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        faults.append(f"modules import each other in a circle: {' ← '.join(error.args[1])}")
    return faults


def may_import(importer: str, imported: str) -> bool:
    here, there = room_of(importer), room_of(imported)
    if there not in ROW_OF:
        return False
    if here == there or ROW_OF[there] < ROW_OF[here]:
        return True
    if ROW_OF[there] == ROW_OF[here]:
        return here not in PORTS or (here, imported) in ACROSS_PORTS
    return False


def banned_faults(package: Path) -> list[str]:
    """Ways to run what was meant to be data."""
    faults = []
    for module, path in modules_under(package).items():
        tree = parsed(path)
        found = [
            (line, f"import of {name}")
            for name, _, line in imports_in(tree, module, is_package=False)
            if name.split(".")[0] in BANNED_MODULES
        ]
        found += [
            (node.lineno, f"use of {name}")
            for name, node in full_names(tree)
            if name in BANNED_NAMES or name in SHELLS
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "shell" and not is_false(node.value):
                found.append((node.lineno, "use of shell=True"))
        faults += [f"{module}:{line} {what} is banned" for line, what in found]
    return faults


def is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def purity_faults(package: Path) -> list[str]:
    """Waiting, clocks, chance and disks in the rooms that only hold facts or decide."""
    faults = []
    for module, path in modules_under(package).items():
        if room_of(module) in ("facts", "decisions"):
            faults += [f"{module}:{line} {what}" for line, what in impurities(parsed(path))]
    return faults


def impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for name, _, line in imports_in(tree, "", is_package=False):
        if name.split(".")[0] in IMPURE_MODULES:
            yield line, f"imports {name}"
    for name, node in full_names(tree):
        if name in IMPURE_CALLS:
            yield node.lineno, f"uses {name}"
        elif name.startswith("random.") and name.split(".")[1] != "Random":
            yield node.lineno, f"uses {name}: draw from a random.Random with a seed"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    unseeded = {id(call.func) for call in calls if not call.args and not call.keywords}
    for name, node in full_names(tree):
        if name == "random.Random" and id(node) in unseeded:
            yield node.lineno, "makes a random.Random without a seed"
    for function in ast.walk(tree):
        if isinstance(function, ast.AsyncFunctionDef):
            yield function.lineno, f"has an async def: {function.name}"


#: where events change a run's state, and where reports about it are admitted
LIVE_RUN = "chargehand.decisions.live_run"
STATE_OF_A_RUN = {"schedule", "results", "Schedule"}


def fold_faults(package: Path) -> list[str]:
    """Places beside the live run that apply events to a run, admit reports, or make a schedule."""
    return [
        f"{module}:{line} {what}"
        for module, path in modules_under(package).items()
        if module != LIVE_RUN
        for line, what in folds_in(parsed(path))
    ]


def folds_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="Schedule") | ast.Attribute(attr="Schedule")):
                yield node.lineno, "makes a Schedule: make a LiveRun"
            case ast.Call(func=ast.Attribute(attr="admit")):
                yield node.lineno, "admits a report: LiveRun.take does"
            case ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr="apply"):
                if name.lstrip("_") in STATE_OF_A_RUN:
                    yield node.lineno, f"applies an event to {name}: LiveRun does"


#: classes with one subclass in the package, and why there is no second: "is a", never a slice of it
ONE_SUBCLASS = {
    "errors.ModelDenied": "an exception: one kind of denial has a way out of its own",
    "errors.ModelRefused": "an exception: a reply that a provider withheld",
    "errors.ModelTooSlow": "an exception: whoever waits for it need not know whose time was over",
    "errors.UnknownQuestion": "an exception: a question that is not open because it is answered",
    "patterns.pool.worker_with_shared_memory.MemoryWorker": "a worker that asks no model in its place; one file",
    "roles.board.Board": "the same board for one attempt: every call is a step; by hooks, not by state",
    "roles.function_worker.FunctionWorker": "the agent of a framework is called as a function",
    "supervisor.supervisor.Supervisor": "public API: a group is a supervisor, with a planner of its own",
    "tools.safe_open.Root": "several folders are opened wherever one is",
}


class ClassShape(NamedTuple):
    """A class as its source tells it."""

    module: str
    #: full names of the bases that this package has
    bases: tuple[str, ...]
    #: private names that it defines: methods, class attributes, what it assigns to `self`
    defines: frozenset[str]
    #: private names that it reads from `self`
    reads: frozenset[str]


def classes_under(package: Path) -> dict[str, ClassShape]:
    """Every class of the package by its full name."""
    found: dict[str, ClassShape] = {}
    aliases: dict[str, str] = {}
    for module, path in modules_under(package).items():
        tree = parsed(path)
        is_package = path.name == "__init__.py"
        names = {
            name: f"{origin}.{name}"
            for origin, name, _ in imports_in(tree, module, is_package=is_package)
        }
        aliases |= {f"{module}.{name}": origin for name, origin in names.items()}
        names |= {n.name: f"{module}.{n.name}" for n in tree.body if isinstance(n, ast.ClassDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                plain = (b.value if isinstance(b, ast.Subscript) else b for b in node.bases)
                bases = tuple(names.get(ast.unparse(base), "") for base in plain)
                found[f"{module}.{node.name}"] = ClassShape(module, bases, *privates_of(node))

    def known(name: str) -> str:
        while name not in found and name in aliases:
            name = aliases[name]
        return name if name in found else ""

    return {
        name: each._replace(bases=tuple(filter(None, map(known, each.bases))))
        for name, each in found.items()
    }


def privates_of(node: ast.ClassDef) -> tuple[frozenset[str], frozenset[str]]:
    """The private names that a class defines, and those that it reads from `self`."""
    defines, reads = set[str](), set[str]()
    for each in ast.walk(node):
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                defines.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)) if each.value is not None:
                defines.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                defines.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ctx):
                (reads if isinstance(ctx, ast.Load) else defines).add(name)
    is_private = re.compile(r"_[a-z]").match
    return frozenset(filter(is_private, defines)), frozenset(filter(is_private, reads))


def slice_faults(package: Path, reasons: Mapping[str, str] = ONE_SUBCLASS) -> list[str]:
    """Classes that are spread over files by inheritance, and bases of one class without a reason."""
    classes = classes_under(package)
    faults = []
    below: dict[str, list[str]] = {name: [] for name in classes}
    for name, shape in classes.items():
        for base in shape.bases:
            below[base].append(name)
        for base in ancestors_of(name, classes):
            if classes[base].module != shape.module:
                shared = (shape.reads - shape.defines) & classes[base].defines
                faults += [f"{name} reads {each} of its base {base}" for each in sorted(shared)]
    single = {name: each[0] for name, each in below.items() if len(each) == 1}
    for name, subclass in single.items():
        if name.removeprefix("chargehand.") not in reasons:
            faults.append(f"{name} has one subclass, {subclass}: compose, or give a reason")
    gone = [name for name in reasons if f"chargehand.{name}" not in single]
    return faults + [f"{name} needs no reason any more" for name in gone]


def ancestors_of(name: str, classes: Mapping[str, ClassShape]) -> set[str]:
    bases = set(classes[name].bases)
    return bases.union(*(ancestors_of(base, classes) for base in bases - {name}))


def state_faults(package: Path) -> list[str]:
    """Places beside `Schedule._move` that change the state of a task."""
    faults = []
    for module, path in modules_under(package).items():
        if room_of(module) == "decisions":
            attributes = (
                each for each in ast.walk(parsed(path)) if isinstance(each, ast.Attribute)
            )
            lines = [each.lineno for each in attributes if sets_state_of_another(each)]
            allowed = 1 if module.endswith("decisions.schedule") else 0
            faults += [f"{module}:{line} sets a task's state" for line in lines[allowed:]]
    return faults


def sets_state_of_another(attribute: ast.Attribute) -> bool:
    is_set = attribute.attr == "state" and isinstance(attribute.ctx, ast.Store)
    return is_set and ast.unparse(attribute.value) != "self"


MACHINE_PATH = re.compile(r"(?<![\w.)}*~-])/(?:home|Users|root|work|tmp|private/var)/\w+")
UNNUMBERED = re.compile(r"(?:#|--|//|<!--).*\b(?:TO[D]O|FIX[M]E)\b(?!\W{0,3}(?:issue )?\d)")
TEXTS = {
    ".py",
    ".ts",
    ".tsx",
    ".css",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".sql",
    ".sh",
    ".cfg",
    ".ini",
    "",
}


def text_faults(folder: Path) -> list[str]:
    """Paths of somebody's machine, and work put off without an issue number."""
    faults = []
    for path in sorted(texts_under(folder)):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{path.relative_to(folder)}:{number}"
            if found := MACHINE_PATH.search(line):
                faults.append(f"{where} names a place of one machine: {found[0]}")
            if UNNUMBERED.search(line):
                faults.append(f"{where} puts work off without an issue number")
    return faults


def texts_under(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            built = {"__pycache__", "site", "build", "dist", "data", "node_modules", "static"}
            if not hidden and path.name not in built:
                yield from texts_under(path)
        elif path.suffix in TEXTS and not path.name.startswith("."):
            yield path


# The source keeps them


@pytest.mark.parametrize(
    "rule", [layer_faults, banned_faults, purity_faults, fold_faults, state_faults]
)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    assert rule(SOURCE) == []


def test_the_fault_simulation_leads_runs_as_the_kernel_does() -> None:
    assert fold_faults(ROOT / "tests" / "simulation") == []


def test_no_text_names_a_place_of_one_machine_or_puts_work_off() -> None:
    assert text_faults(ROOT) == []


def test_every_room_that_the_rows_name_is_told_once() -> None:
    assert len(ROW_OF) == sum(len(row) for row in ROWS)


# The rules find what is planted


def plant(folder: Path, files: Mapping[str, str]) -> Path:
    """A small package called chargehand with these files."""
    package = folder / "chargehand"
    for name, text in {"__init__.py": "", **files}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package


SOUND = {
    "errors.py": "",
    "facts/plan.py": "from chargehand.errors import X",
    "decisions/schedule.py": "import random\nfrom chargehand.facts import plan\nr = random.Random(7)",
    "clock.py": "import asyncio, time",
    "journal/__init__.py": "from chargehand.journal import sqlite",
    "journal/base.py": "from ..facts.plan import Plan",
    "journal/sqlite.py": "from . import base",
    "engines/local_engine.py": "from chargehand.journal.base import Journal",
    "supervisor/__init__.py": "from chargehand.supervisor.supervisor import Supervisor",
    "supervisor/supervisor.py": "import chargehand.engines.local_engine, chargehand.decisions.schedule",
    "supervisor_factory.py": "from chargehand.supervisor import Supervisor",
    "cli/main.py": "from chargehand import supervisor_factory",
    "__init__.py": "from chargehand.supervisor import Supervisor",
    "__main__.py": "from chargehand.cli.main import main",
}


def test_a_sound_tree_has_no_faults(tmp_path: Path) -> None:
    package = plant(tmp_path, SOUND)
    assert layer_faults(package) == banned_faults(package) == purity_faults(package) == []
    assert slice_faults(package, {}) == []


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("errors.py", "from chargehand.facts import plan", "errors:1 may not import"),
        ("facts/plan.py", "import chargehand.decisions.schedule", "facts.plan:1 may not import"),
        ("decisions/schedule.py", "from .. import clock", "may not import chargehand.clock"),
        ("journal/sqlite.py", "from ..engines import local", "sqlite:1 may not import"),
        ("models/base.py", "from chargehand.journal import base", "models.base:1 may not"),
        (
            "engines/child_main.py",
            "import chargehand.journal.sqlite",
            "child_main:1 may not import",
        ),
        ("engines/child_main.py", "import chargehand.supervisor", "child_main:1 may not import"),
        ("roles/llm_worker.py", "from chargehand import supervisor", "worker:1 may not import"),
        (
            "supervisor/supervisor.py",
            "from chargehand import supervisor_factory",
            "supervisor:1 may not import",
        ),
        ("facts/plan.py", "def f():\n    from chargehand import clock", "plan:2 may not import"),
        (
            "facts/plan.py",
            "if TYPE_CHECKING:\n    from chargehand.clock import Clock",
            "plan:2 may not import chargehand.clock",
        ),
        ("facts/plan.py", "import_module('chargehand.clock')", "plan:1 may not import"),
        ("facts/plan.py", "from chargehand import anything", "may not import chargehand"),
        ("decisions/retry.py", "from chargehand.shed import x", "may not import"),
        ("shed/tool.py", "", "chargehand.shed.tool is in no known room"),
        ("extras.py", "", "chargehand.extras is in no known room"),
        ("facts/utils.py", "", "not named for a noun"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(
    tmp_path: Path, file: str, text: str, fault: str
) -> None:
    faults = layer_faults(plant(tmp_path, SOUND | {file: text}))
    assert any(fault in found for found in faults), faults


def test_a_circle_inside_one_room_is_found(tmp_path: Path) -> None:
    circle = {
        "facts/one.py": "from chargehand.facts import two",
        "facts/two.py": "def late():\n    from chargehand.facts.three import x",
        "facts/three.py": "from . import one",
    }
    (fault,) = layer_faults(plant(tmp_path, SOUND | circle))
    assert fault.startswith("modules import each other in a circle")
    assert all(name in fault for name in ("facts.one", "facts.two", "facts.three"))


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "def f():\n    import shelve",
        "import dill as d",
        "import importlib\nimportlib.import_module('pickle')",
        "eval('1')",
        "exec('x = 1')",
        "run = eval",
        "import builtins\nbuiltins.exec('')",
        "import yaml\nyaml.load('')",
        "from yaml import load as read\nread('')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=flag)",
        "import os\nos.system('ls')",
    ],
)
def test_what_is_banned_is_found(tmp_path: Path, text: str) -> None:
    assert banned_faults(plant(tmp_path, {"tools/base.py": text}))


@pytest.mark.parametrize(
    "text",
    [
        "db.exec('select 1')",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "import yaml\nyaml.safe_load('')",
        "evaluate = 1",
    ],
)
def test_what_only_looks_banned_is_left_alone(tmp_path: Path, text: str) -> None:
    assert banned_faults(plant(tmp_path, {"tools/base.py": text})) == []


@pytest.mark.parametrize("room", ["facts", "decisions"])
@pytest.mark.parametrize(
    "text",
    [
        "async def f(): ...",
        "class A:\n    async def f(self): ...",
        "import asyncio",
        "from time import monotonic",
        "import threading",
        "def f():\n    import os.path",
        "from datetime import datetime\ndatetime.now()",
        "from datetime import datetime as dt, UTC\ndt.now(UTC)",
        "import datetime\ndatetime.date.today()",
        "import random\nrandom.random()",
        "from random import choice\nchoice([1])",
        "import random\nrandom.Random()",
        "from random import Random\nRandom()",
        "import random as r\nr.shuffle([])",
        "open('x')",
    ],
)
def test_an_impure_fact_or_decision_is_found(tmp_path: Path, room: str, text: str) -> None:
    assert purity_faults(plant(tmp_path, {f"{room}/thing.py": text}))
    assert not purity_faults(plant(tmp_path / "elsewhere", {"roles/thing.py": text}))


@pytest.mark.parametrize(
    "text",
    [
        "self.schedule.apply(event)",
        "live_run.results.apply(event)",
        "self._schedule.apply(event)",
        "Schedule.apply(schedule, event)",
        "apply = schedule.apply",
        "live_run.schedule.admit(event)",
        "schedule = Schedule(None)",
        "import chargehand.decisions.schedule as s\ns.Schedule()",
    ],
)
def test_a_second_fold_is_found(tmp_path: Path, text: str) -> None:
    assert fold_faults(plant(tmp_path, {"roles/thing.py": text}))
    assert not fold_faults(plant(tmp_path / "there", {"decisions/live_run.py": text}))


BASE = "class Start:\n    def __init__(self):\n        self._path = ''\n    def _begin(self): ..."
ABOVE = "from chargehand.supervisor.start import Start\n"


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("class Boss(Start): ...", ["one subclass"]),
        ("class Boss(Start):\n    def run(self): self._begin()", ["_begin", "one subclass"]),
        ("class Boss(Start):\n    def run(self): return self._path", ["_path", "one subclass"]),
        ("class Boss(Start[int]): ...", ["one subclass"]),
        ("class A(Start): ...\nclass B(Start): ...", []),
        ("class A(Start): ...\nclass B(Start):\n    def f(self): self._begin()", ["_begin"]),
        ("class A(Start): ...\nclass B(Start):\n    def _begin(self): self._begin()", []),
        ("class Boss:\n    def __init__(self, start: Start): self._start = start", []),
    ],
)
def test_a_class_that_is_spread_over_files_is_found(
    tmp_path: Path, text: str, faults: list[str]
) -> None:
    planted = {"supervisor/start.py": BASE, "supervisor/boss.py": ABOVE + text}
    found = slice_faults(plant(tmp_path, planted), {})
    assert len(found) == len(faults)
    assert all(fault in each for fault, each in zip(faults, found, strict=True))


def test_a_reason_holds_as_long_as_there_is_one_subclass(tmp_path: Path) -> None:
    planted = {"supervisor/start.py": BASE, "supervisor/boss.py": f"{ABOVE}class Boss(Start): ..."}
    package = plant(tmp_path, planted)
    assert slice_faults(package, {"supervisor.start.Start": "a boss is a start"}) == []
    assert slice_faults(package, {"supervisor.gone.Gone": "long ago"})[-1].startswith(
        "supervisor.gone"
    )


@pytest.mark.parametrize(
    "text", ["node.state = 1", "self.nodes[id_].state = 1", "node.state, node.attempt = 1, 2"]
)
def test_a_second_place_that_changes_states_is_found(tmp_path: Path, text: str) -> None:
    assert state_faults(plant(tmp_path, {"decisions/thing.py": text}))
    assert state_faults(plant(tmp_path, {"decisions/schedule.py": f"node.state = 1\n{text}"}))
    assert not state_faults(plant(tmp_path / "own", {"decisions/schedule.py": "node.state = 1"}))


@pytest.mark.parametrize(
    ("text", "is_fault"),
    [
        ("path = '" + "/ho" + "me/ada/runs.db'", True),
        ("see " + "/Us" + "ers/ada", True),
        ("https://example.org/home/ada", False),
        ("src/work/thing", False),
        ("# TO" + "DO: later", True),
        ("x = 1  # FIX" + "ME", True),
        ("# TO" + "DO #12: later", False),
        ("no `TODO` in prose", False),
    ],
)
def test_a_machine_path_or_unnumbered_work_is_found(
    tmp_path: Path, text: str, is_fault: bool
) -> None:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    assert bool(text_faults(tmp_path)) is is_fault


# What comes along with the package


HEAVY = {"apsw", "pydantic", "aiohttp", "rich", "click"}


def heavy_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()} & HEAVY


def test_importing_chargehand_brings_in_nothing_heavy() -> None:
    assert heavy_after("import chargehand") == set()
    assert heavy_after("import chargehand, apsw") == {"apsw"}, "this test can fail"


def test_i17_there_are_at_most_ten_direct_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(project["dependencies"]) <= 10


def complete() -> list[Path]:
    """The folders of the complete examples."""
    return [replies.parent for replies in (ROOT / "examples").glob("*/replies.toml")]


def test_i17_the_wheel_holds_the_package_and_nothing_that_python_runs_by_itself() -> None:
    """No `.pth` file, and no build hook or data folder that could bring one in."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["build-system"]["build-backend"] == "hatchling.build"
    build = settings["tool"]["hatch"]["build"]
    # The complete examples, below the package, and nothing else.
    included = build["targets"]["wheel"].pop("force-include")
    assert included == {f"examples/{e.name}": f"chargehand/examples/{e.name}" for e in complete()}
    # The dashboard is built and not in git; the hook refuses to package without it.
    assert build.pop("artifacts") == ["src/chargehand/server/static/**"]
    assert build.pop("hooks") == {"custom": {}}
    assert build == {"targets": {"wheel": {"packages": ["src/chargehand"]}}}
    names = {path.name for root in (SOURCE, *complete()) for path in root.rglob("*")}
    assert not {name for name in names if name.endswith((".pth", ".so", ".pyd"))}
    assert not names & {"sitecustomize.py", "usercustomize.py"}
