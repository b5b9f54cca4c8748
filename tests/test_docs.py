"""The documentation is held to the code: every block runs, every name appears, promises are kept."""

import inspect
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import chargehand
from chargehand import errors
from chargehand.facts import events
from chargehand.facts.failure_policy import ABOUT_BUDGET, ABOUT_FAILURE
from chargehand.facts.plan import is_vague
from chargehand.models.base import Model
from chargehand.presentation.questions_and_typed_answers import ABOUT_APPROVAL
from chargehand.roles.plan_approval import ABOUT_PLAN
from tests.test_architecture import ROWS
from tests.watching import silent_waits, watched

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
REFERENCE = sorted((DOCS / "reference").glob("*.md"))

BLOCK = re.compile(
    r"(?:^<!--(?P<note>[^\n]*?)-->[ \t]*\n\s*)?^```python[ \t]*\n(?P<code>.*?)^```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


class Story(NamedTuple):
    """One or more blocks that run as one program."""

    line: int
    code: str


def stories_in(text: str) -> Iterator[Story]:
    """The programs of a page: each block alone, or with the ones that continue it.

    `<!-- continues -->` above a block joins it to the one before; `<!-- not run: why -->` leaves it
    out.
    """
    story: Story | None = None
    for block in BLOCK.finditer(text):
        note = (block["note"] or "").strip()
        line = text.count("\n", 0, block.start("code")) + 1
        if note.startswith("not run"):
            if not re.fullmatch(r"not run: ?\S.*", note):
                raise ValueError(f"line {line}: say why: <!-- not run: why -->")
        elif note == "continues":
            if story is None:
                raise ValueError(f"line {line}: there is no block before it to continue")
            story = Story(story.line, f"{story.code}\n\n{block['code']}")
        else:
            if story is not None:
                yield story
            story = Story(line, block["code"])
    if story is not None:
        yield story


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in an empty folder of its own, as a reader would."""
    (folder / "story.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "error", "story.py"]
    return subprocess.run(
        command, cwd=folder, env=watched(folder), capture_output=True, text=True, timeout=60
    )


ALL_STORIES = [
    pytest.param(story.code, id=f"{page.relative_to(ROOT)}:{story.line}")
    for page in PAGES
    for story in stories_in(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("code", ALL_STORIES)
def test_every_block_of_python_runs(code: str, tmp_path: Path) -> None:
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert silent_waits(tmp_path) == []


TOML = re.compile(r"^```toml[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if "```toml" in page.read_text("utf-8")])
def test_every_block_of_toml_can_be_read(page: Path) -> None:
    blocks = TOML.findall(page.read_text("utf-8"))
    assert blocks
    assert all(tomllib.loads(block) for block in blocks)


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    assert run("assert 1 == 2", tmp_path).returncode != 0


def test_blocks_stand_alone_unless_they_continue() -> None:
    page = """
```python
one
```
<!-- continues -->
```python
two
```

```python
three
```

<!-- not run: needs a model -->
```python
four
```
"""
    assert [(s.line, s.code.split()) for s in stories_in(page)] == [
        (3, ["one", "two"]),
        (11, ["three"]),
    ]


@pytest.mark.parametrize("note", ["not run", "not run:", "not run: ", "continues"])
def test_a_note_that_leaves_something_out_is_refused(note: str) -> None:
    with pytest.raises(ValueError, match=r"say why|no block before"):
        list(stories_in(f"<!-- {note} -->\n```python\nx\n```\n"))


# Names


def written() -> set[str]:
    """Every word that docs/ shows as code, in headings included."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    code = re.findall(r"`+[^`]*`+|^#+ .*$", pages, re.MULTILINE)
    return set(re.findall(r"\w+", "\n".join(code)))


def test_no_task_of_a_sample_is_too_vague_to_be_checked() -> None:
    """What a newcomer copies brings no `plan_warning`; a page may show one that it names as such."""
    vague = [
        (page.name, words)
        for page, text in ((page, page.read_text("utf-8")) for page in PAGES)
        for words in re.findall(r'description"?[=:]\s*"([^"]+)"', text)
        if is_vague(words) and f"'{words}' is too vague" not in text
    ]
    assert vague == []


def test_every_public_name_appears_in_the_docs() -> None:
    public = vars(chargehand).get("__all__", [])
    assert public, "chargehand.__all__ names what other code may rely on"
    assert set(public) - written() == set()


def test_every_kind_of_event_appears_in_the_docs() -> None:
    assert set(events.KINDS) - written() == set()


def test_every_error_appears_in_the_docs() -> None:
    names = {
        name
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, errors.ChargehandError)
    }
    assert len(names) > 10
    assert names - written() == set()


@pytest.mark.parametrize("page", ["outcomes", "notify"])
def test_every_kind_of_question_is_in_the_reference(page: str) -> None:
    text = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    kinds = (ABOUT_APPROVAL, "in_doubt", ABOUT_FAILURE, ABOUT_BUDGET, ABOUT_PLAN)
    assert f"kind of question: plain, {', '.join(kinds)}" in text


def test_every_member_of_a_model_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "models.md").read_text(encoding="utf-8")
    members = {name for name in vars(Model) if not name.startswith("_")}
    assert members == {"name", "account", "abilities", "ask", "stream"}
    assert [name for name in members if f"### Model.{name}" not in text] == []


def test_the_reference_is_up_to_date() -> None:
    command = [sys.executable, str(DOCS / "generate_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


DOORS = ["chargehand", "chargehand.patterns", "chargehand.patterns.groups"]
DOORS += ["chargehand.patterns.pool", "chargehand.interop", "chargehand.notify"]
DOORS += [
    "chargehand.tools.mcp",
    "chargehand.server.mcp",
    "chargehand.evaluation",
    "chargehand.documents",
]


@pytest.mark.parametrize("door", DOORS)
def test_every_public_class_and_function_is_in_the_reference(door: str) -> None:
    module = import_module(door)
    pages = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE)
    headings = set(re.findall(r"^## (\w+)$", pages, re.MULTILINE))
    names = {
        name
        for name in module.__all__
        if inspect.isclass(getattr(module, name)) or inspect.isroutine(getattr(module, name))
    }
    assert names - headings == set()


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if find_spec("material") is None:
        pytest.skip("needs mkdocs-material; get it with: pip install --group docs")
    # Not with --quiet: it would silence the warnings that --strict counts.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(
        [*command, "--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path)],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    home = (tmp_path / "index.html").read_text(encoding="utf-8")
    loaded = re.findall(r"<(?:script|img|link rel=\"stylesheet\")[^>]*https?://[^>]*>", home)
    assert loaded == []
    assert (tmp_path / "search" / "search_index.json").exists()
    assert 'data-md-color-scheme="slate"' in home


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [
        *PAGES,
        *REFERENCE,
        *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    ]
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


# The design


def named_in_the_table() -> list[list[str]]:
    """The packages and modules of each row of the table in docs/design.md."""
    text = (DOCS / "design.md").read_text(encoding="utf-8")
    table = text.split("## Packages")[1].split("\n## ")[0]
    rows = re.findall(r"^\| \w[^|]*\| (`[^|]*) \|", table, re.MULTILINE)
    return [re.findall(r"`(\w+)`", row) for row in rows]


def test_the_table_of_packages_is_the_tree() -> None:
    tree = {
        path.stem
        for path in (ROOT / "src" / "chargehand").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    named = [name for row in named_in_the_table() for name in row]
    assert len(named) == len(set(named))
    assert set(named) == tree


def test_the_table_of_packages_has_the_layers_that_the_imports_keep() -> None:
    named = named_in_the_table()
    kept = [[name for name in layer if any(name in row for row in named)] for layer in ROWS]
    assert [sorted(row) for row in named] == [sorted(layer) for layer in kept if layer]


@pytest.mark.parametrize("page", ["docs/design.md", "CONTRIBUTING.md"])
def test_every_path_that_the_design_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"`([\w./]+(?:/|\.py))`", text)
    assert len(paths) > 5
    above = (ROOT, ROOT / "src" / "chargehand")
    built = ("site/", "src/chargehand/server/static/")
    lost = [each for each in paths if not any((folder / each).exists() for folder in above)]
    assert set(lost) <= set(built)


# What CONTRIBUTING promises of skips


SKIPS = """
import pytest

def test_a():
    pytest.skip("needs a thing that is not here")

@pytest.mark.skipif(True, reason="needs a thing that is not here")
def test_b(): ...

def test_c():
    pytest.skip("only on another system")
"""


def skips_under(ci: str, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a file of tests under our conftest and nothing else of ours."""
    (folder / "conftest.py").write_bytes((ROOT / "tests" / "conftest.py").read_bytes())
    (folder / "test_skips.py").write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    outside = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"],
        cwd=folder,
        env=outside | {"CI": ci},
        capture_output=True,
        text=True,
    )


def test_in_ci_a_skip_for_want_of_something_fails(tmp_path: Path) -> None:
    done = skips_under("true", tmp_path, SKIPS)
    assert "1 failed, 1 skipped, 1 error" in done.stdout, done.stdout
    assert "skipped although CI=true: needs a thing" in done.stdout
    assert done.returncode == 1


def test_elsewhere_a_skip_is_a_skip(tmp_path: Path) -> None:
    done = skips_under("", tmp_path, SKIPS)
    assert "3 skipped" in done.stdout, done.stdout
    assert done.returncode == 0


def test_in_ci_a_module_that_needs_something_fails_too(tmp_path: Path) -> None:
    text = "import pytest\npytest.skip('needs a thing', allow_module_level=True)\n"
    done = skips_under("true", tmp_path, text)
    assert "skipped although CI=true: needs a thing" in done.stdout, done.stdout
    assert done.returncode != 0


# The walk of a request


@pytest.fixture(scope="module")
def measure_walk() -> Any:
    spec = spec_from_file_location("measure_walk", DOCS / "measure_walk.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def walks(measure_walk: Any) -> tuple[Any, Any]:
    return measure_walk.measured("run"), measure_walk.measured("pool")


def test_the_walk_of_a_request_is_the_one_that_is_measured(
    measure_walk: Any, walks: tuple[Any, Any]
) -> None:
    page = (DOCS / "design.md").read_text(encoding="utf-8")
    way_out = "python docs/measure_walk.py --write brings docs/design.md up to date"
    assert measure_walk.faults_in(page, *walks) == [], way_out


def test_a_walk_that_is_not_the_measured_one_is_found(
    measure_walk: Any, walks: tuple[Any, Any]
) -> None:
    page = measure_walk.section(*walks)
    assert measure_walk.faults_in(page, *walks) == []
    renamed = page.replace("`runtime/run_leader.py`", "`runtime/wheel.py`")
    assert measure_walk.faults_in(renamed, *walks) == [
        "run does not enter runtime/wheel.py",
        "run enters runtime/run_leader.py, which is not listed",
    ]


def test_the_walks_stay_short(measure_walk: Any, walks: tuple[Any, Any]) -> None:
    """The most files, and edges between them, that a request may enter: a ratchet."""
    run, pool = ((walk.files.keys() - measure_walk.SOMETIMES, walk.edges) for walk in walks)
    assert (len(run[0]) <= 45, run[1] <= 115) == (True, True)
    assert (len(pool[0]) <= 30, pool[1] <= 80) == (True, True)
