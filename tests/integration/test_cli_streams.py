"""Streams that are closed or full, and names and files that are odd: one line on stderr, never a stack."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its shell is another")

PROGRAM = f'"{sys.executable}" -c "from chargehand.cli import main; main()"'
REQUEST = "What is 2 + 2? ☃ … 😀"
RUN = f'run "{REQUEST}" --journal j.db'


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


@pytest.mark.parametrize(
    "line",
    [
        "run -",
        "plan -",
        "run --plan - --crew crew.py:boss",
        "simulate -",
        "mcp --crew crew.py:boss",
    ],
)
def test_a_command_that_needs_stdin_says_that_it_is_closed(tmp_path: Path, line: str) -> None:
    (tmp_path / "crew.py").write_text("import chargehand as ch\nboss = ch.Supervisor([])\n")
    code, out, err = shell(f"chargehand {line} <&-", tmp_path)
    assert (code, out) == (2, "")
    assert "closed" in err
    assert err.startswith("chargehand: ")


def test_stdin_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    for line in ("run -", "simulate -"):
        code, out, err = shell(
            f"printf '\\377' | PYTHONIOENCODING=utf-8:strict chargehand {line}", tmp_path
        )
        assert (code, out) == (2, "")
        assert err == "chargehand: stdin is not UTF-8 text; convert it\n"


@pytest.mark.parametrize("encoding", ["latin-1:strict", "ascii:strict", "cp1252", "utf-16"])
def test_characters_that_stdout_cannot_show_are_escaped(folder: Path, encoding: str) -> None:
    prefix = f"PYTHONIOENCODING={encoding} chargehand"
    for command in ("trace last --journal j.db", "show last --journal j.db", "run --help"):
        done = binary(f"{prefix} {command}", folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    told = binary(f"{prefix} trace last --json --journal j.db", folder)
    # What click writes where Python would write ASCII is UTF-8.
    used = "utf-8" if encoding.startswith("ascii") else encoding.partition(":")[0]
    assert json.loads(told.stdout.decode(used))["request"] == REQUEST


def binary(line: str, folder: Path) -> "subprocess.CompletedProcess[bytes]":
    done = subprocess.run(
        line.replace("chargehand", PROGRAM), shell=True, cwd=folder, capture_output=True, check=False, timeout=60
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr
    return done


def test_no_command_waits_for_a_pipe_in_place_of_a_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe.toml")
    (folder / "crew.py").write_text("import chargehand as ch\nboss = ch.Supervisor([])\n")
    (folder / "plan.json").write_text('{"goal": "x", "tasks": []}')
    (folder / "suite.toml").write_text('[[case]]\nid = "a"\nrequest = "r"\n')
    serve = "serve --crew crew.py:boss --journal s.db --http 127.0.0.1:0"
    commands = (
        "run --plan pipe.toml --crew crew.py:boss",
        "run x --crew pipe.toml",
        "run x --model written:pipe.toml",
        "simulate pipe.toml",
        "simulate plan.json --durations pipe.toml",
        "eval pipe.toml",
        "eval suite.toml --compare pipe.toml",
        "fork last --plan pipe.toml --journal j.db",
        f"{serve} --tls-cert pipe.toml --tls-key pipe.toml",
        f"{serve} --token-file pipe.toml",
        "tokens list --token-file pipe.toml",
    )
    for command in commands:
        code, out, err = shell(f"chargehand {command} </dev/null", folder)
        assert (code, out) == (2, ""), command
        assert "pipe.toml is a pipe, not a regular file; " in err, command
    remote = "CHARGEHAND_TOKEN_FILE=pipe.toml chargehand run x --server http://127.0.0.1:9"
    code, _, err = shell(f"env -u CHARGEHAND_TOKEN {remote}", folder)
    assert (code, "pipe.toml is a pipe" in err) == (2, True)
