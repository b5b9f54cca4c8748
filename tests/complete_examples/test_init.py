"""`chargehand init --example` copies an example that runs where it is put."""

import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from chargehand.cli import main
from chargehand.cli.init import examples
from tests.complete_examples.checks import EXAMPLES
from tests.complete_examples.test_every_example import CASES


def test_the_copy_of_an_example_runs_by_itself(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    done = CliRunner().invoke(main, ["init", str(target), "--example", "contract-review"])
    assert done.exit_code == 0, done.output
    script = target / "contract_review.py"
    assert f"python {script}" in done.output
    ran = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "contract_review.html").exists()


def test_the_copy_of_every_example_has_no_link_that_leads_out_of_it(tmp_path: Path) -> None:
    for name in examples():
        done = CliRunner().invoke(main, ["init", str(tmp_path / name), "--example", name])
        assert done.exit_code == 0, done.output
        assert "](../" not in (tmp_path / name / "README.md").read_text()
    copied = (tmp_path / "contract-review" / "README.md").read_text()
    assert "a document (docs/documents.md of chargehand)" in copied


def test_the_crew_file_to_start_from_says_what_its_turns_are_counted_over(tmp_path: Path) -> None:
    target = tmp_path / "crew.toml"
    assert CliRunner().invoke(main, ["init", str(target)]).exit_code == 0
    (line,) = [line for line in target.read_text().splitlines() if "turns =" in line]
    assert line.endswith("# model calls of one task, over all its tries")


def test_help_lists_the_examples() -> None:
    words = CliRunner().invoke(main, ["init", "--help"]).output.split()
    for name in examples():
        assert name in {word.strip(",.") for word in words}


def test_what_is_there_is_left_alone_and_unknown_names_are_listed(tmp_path: Path) -> None:
    taken = CliRunner().invoke(main, ["init", str(tmp_path), "--example", "contract-review"])
    assert taken.exit_code == 2
    assert "already exists" in taken.output
    unknown = CliRunner().invoke(main, ["init", "--example", "nonsense"])
    assert unknown.exit_code == 2
    assert "contract-review" in unknown.output


def test_every_complete_example_is_listed_shipped_and_tested() -> None:
    index = (EXAMPLES / "README.md").read_text()
    shipped = (EXAMPLES.parent / "pyproject.toml").read_text()
    tests = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert {folder.name for folder in examples().values()} == set(CASES)
    for folder in examples().values():
        assert f"]({folder.name})" in index
        assert f'"examples/{folder.name}" = "chargehand/examples/{folder.name}"' in shipped
        assert f"test_{folder.name}" in tests
        assert (folder / "README.md").exists()
