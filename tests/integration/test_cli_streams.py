"""Streams that are closed or full, and names and files that are odd: one line on stderr, never a stack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its shell is another")

PROGRAM = f'"{sys.executable}" -c "from chargehand.cli import main; main()"'
RUN = 'run "What is 2 + 2?" --journal j.db'


def shell(line: str, folder: Path) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a line in which `chargehand` is the program."""
    keep = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    done = subprocess.run(
        line.replace("chargehand", PROGRAM),
        shell=True,
        cwd=folder,
        env=keep,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("streams")
    code, _, told = shell(f"chargehand {RUN}", place)
    assert code == 0, told
    return place


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(
    "command", [RUN, *(f"{c} --journal j.db" for c in ("runs", "show last", "trace last"))]
)
def test_a_full_disk_under_stdout_is_one_line_and_an_exit_code(folder: Path, command: str) -> None:
    code, _, told = shell(f"chargehand {command} > /dev/full", folder)
    assert code == 1
    assert told.count("the output cannot be written: No space left on device") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_a_run_does_without_streams_that_are_closed(folder: Path, closed: str) -> None:
    code, _, told = shell(f"chargehand {RUN} {closed}", folder)
    assert code == 0, told


@pytest.mark.parametrize("command", [f"{RUN} --json", "trace last --journal j.db"])
def test_a_reader_that_goes_away_ends_nothing(folder: Path, command: str) -> None:
    code, said, told = shell(f"chargehand {command} | head -1", folder)
    assert code == 0
    assert said.count("\n") == 1
    assert "cannot be written" not in told


def test_odd_names_and_files_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("a=" + "[" * 5_000)
    for command, why in (
        ('run x --journal "$(printf "j\\377.db")"', "is not UTF-8"),
        ("plan x --crew deep.toml", "nested too deep"),
    ):
        code, _, told = shell(f"chargehand {command}", tmp_path)
        assert code == 2
        assert why in told.splitlines()[-1]


def test_a_byte_order_mark_before_a_crew_file_is_passed_over(tmp_path: Path) -> None:
    code, _, told = shell("chargehand init crew.toml", tmp_path)
    assert code == 0, told
    crew = tmp_path / "crew.toml"
    crew.write_bytes(b"\xef\xbb\xbf" + crew.read_bytes())
    code, _, told = shell('chargehand plan "What is 2 + 2?" --crew crew.toml', tmp_path)
    assert code == 0, told
