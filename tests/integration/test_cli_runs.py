"""The command line as people have it: a process of its own, signals, a terminal."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CREW = """
import asyncio
import chargehand as ch

@ch.worker("quick", "Does things")
async def quick(brief: ch.Brief) -> str:
    return f"did {brief.task.id}"

@ch.worker("steady", "Takes a moment")
async def steady(brief: ch.Brief) -> str:
    await asyncio.sleep(0.3)
    return f"did {brief.task.id}"

@ch.worker("slow", "Takes for ever")
async def slow(brief: ch.Brief) -> str:
    await asyncio.sleep(600)
    return "did it at last"

@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return "painted " + await brief.ask("Which colour?", choices=["red", "blue"])

workers = [quick, steady, slow, asker]
boss = ch.Supervisor(workers, parallel=1)
"""
PROGRAM = [sys.executable, "-m", "chargehand"]
UNWANTED = ("CI", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "CHARGEHAND_MODEL", "CHARGEHAND_JOURNAL")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in UNWANTED}
ENVIRONMENT["CHARGEHAND_HTTP"] = "off"  # tests/server has servers that listen


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "crew.py").write_text(CREW)
    return tmp_path


def plan(place: Path, *workers: str) -> str:
    """A plan in which each worker has one task, after the one before it."""
    tasks = [
        {
            "id": f"t{number}",
            "description": f"Do thing number {number}",
            "worker": worker,
            "needs": [f"t{number - 1}"] if number else [],
        }
        for number, worker in enumerate(workers)
    ]
    (place / "plan.json").write_text(json.dumps({"goal": "Get it done", "tasks": tasks}))
    return "plan.json"


def chargehand(place: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, *args],
        cwd=place,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def start(place: Path, *args: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*PROGRAM, *args],
        cwd=place,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """What the process says on stderr, up to the line with these words."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if words in line:
            return said
    raise AssertionError(f"{words!r} was never said:\n{said}")


class Screen:
    """A process in a terminal of its own: what it shows, and a keyboard."""

    def __init__(self, place: Path, args: tuple[str, ...], environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*PROGRAM, *args],
            cwd=place,
            env={**ENVIRONMENT, "TERM": "xterm", **environment},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.shown = ""

    def read_until(self, words: str) -> None:
        """Read on until these words have been shown since the last call."""
        seen = ""
        while words not in seen:
            data = self._read()
            assert data, f"{words!r} was never shown:\n{self.shown}"
            seen += data
            self.shown += data

    def read_all(self) -> int:
        """Read to the end, and return the exit code."""
        while data := self._read():
            self.shown += data
        return self.process.wait()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def _read(self) -> str:
        try:
            return os.read(self._ours, 65536).decode().replace("\r\n", "\n")
        except OSError:  # the other side is closed
            return ""

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def terminal(place: Path, *args: str, **environment: str) -> Iterator[Screen]:
    screen = Screen(place, args, environment)
    try:
        yield screen
    finally:
        screen.close()


RUN = ("run", "--crew", "crew.py:boss", "--plan")


# Signals


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_lets_what_runs_end_and_prints_how_to_go_on(
    place: Path, sign: signal.Signals
) -> None:
    process = start(place, *RUN, plan(place, "quick", "steady", "quick"))
    read_until(process, "t1 started")
    process.send_signal(sign)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "t1 done" in err
    assert "t2 started" not in err
    assert "missing: t2" in err  # what there is by then, with its gap
    (command,) = [line for line in err.splitlines() if "chargehand resume" in line]  # said once
    resume = command.partition("chargehand ")[2].split()
    resumed = chargehand(place, *resume)
    assert (resumed.returncode, resumed.stdout) == (0, "did t2\n"), resumed.stderr
    assert "t1 started" not in resumed.stderr  # done is done


def test_a_second_signal_cancels(place: Path) -> None:
    process = start(place, *RUN, plan(place, "slow"))
    read_until(process, "t0 started")
    process.send_signal(signal.SIGINT)
    read_until(process, "Ctrl-C again cancels")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "cancelled" in err
    assert "it will continue from there later" not in err.partition("interrupted twice")[2]
    assert "cancelled" in chargehand(place, "runs").stdout


def test_a_run_is_cancelled_from_another_terminal(place: Path) -> None:
    process = start(place, *RUN, plan(place, "quick", "slow"))
    read_until(process, "t1 started")
    assert chargehand(place, "cancel", "last").returncode == 0
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "missing: t1 (cancelled)" in err


def test_a_run_answers_at_once_when_another_terminal_wants_it(place: Path) -> None:
    process = start(place, *RUN, plan(place, "quick", "slow"))
    read_until(process, "t1 started")
    done = chargehand(place, "cancel", "last", "--answer-now")
    assert done.returncode == 0, done.stderr
    _, err = process.communicate(timeout=30)
    assert process.returncode == 3, err
    assert "missing: t1" in err


def test_whoever_stops_listening_does_not_stop_the_run(place: Path) -> None:
    process = start(place, *RUN, plan(place, "steady", "steady"), "--json")
    assert process.stdout is not None
    assert "RunRequested" in process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        process.stderr.read()
    assert process.wait(timeout=30) == 0
    assert "succeeded" in chargehand(place, "runs").stdout


# A terminal


def test_on_a_terminal_a_summary_of_six_lines_follows(place: Path) -> None:
    with terminal(place, *RUN, plan(place, "quick", "quick")) as screen:
        assert screen.read_all() == 0
        *_, status, time, tasks, waited, spent, following = screen.shown.splitlines()
    assert status.startswith("status    succeeded, run r")
    assert time.startswith("time      ")
    assert "times as fast" not in time  # one task after another: a speed-up below 1 says nothing
    assert tasks == "tasks     2 done"
    assert waited == "waited on t0 → t1"
    assert spent.startswith("spent     0 calls")
    assert following.startswith("next      chargehand trace r")


def test_a_plain_display_has_no_summary(place: Path) -> None:
    with terminal(place, *RUN, plan(place, "quick"), "--display", "plain") as screen:
        assert screen.read_all() == 0
    assert "status  " not in screen.shown


def test_on_a_terminal_a_question_is_asked_and_answered_there(place: Path) -> None:
    with terminal(place, *RUN, plan(place, "asker")) as screen:
        screen.read_until("2  blue")
        screen.type("green\n")
        screen.read_until("'green' is none of the choices")
        screen.type("2\n")
        assert screen.read_all() == 0
    assert "painted blue" in screen.shown


def test_a_question_on_a_terminal_may_be_answered_from_another(place: Path) -> None:
    with terminal(place, *RUN, plan(place, "asker")) as screen:
        screen.read_until("2  blue")
        assert chargehand(place, "answer", "last", "red").returncode == 0
        assert screen.read_all() == 0
    assert "painted red" in screen.shown


def test_a_question_to_a_person_who_has_left_ends_the_command(place: Path) -> None:
    with terminal(place, *RUN, plan(place, "asker")) as screen:
        screen.read_until("2  blue")
        screen.type("\x04")  # the end of all input
        assert screen.read_all() == 4
    assert "chargehand answer r" in screen.shown


def test_a_question_may_end_the_command_on_a_terminal_too(place: Path) -> None:
    with terminal(place, *RUN, plan(place, "asker"), "--on-question", "return") as screen:
        assert screen.read_all() == 4
    assert "chargehand answer r" in screen.shown
    assert "chargehand resume r" in screen.shown


@pytest.mark.parametrize(
    ("keys", "code", "shown"), [("y\n", 0, "did t0"), ("n\n", 130, "nothing was started")]
)
def test_a_plan_is_reviewed_before_it_is_carried_out(
    place: Path, keys: str, code: int, shown: str
) -> None:
    with terminal(place, *RUN, plan(place, "quick"), "--review") as screen:
        screen.read_until("y(es), e(dit), n(o)")
        assert "t0 started" not in screen.shown
        screen.type(keys)
        assert screen.read_all() == code
    assert shown in screen.shown


PLANNED = """
import json
PLAN = {"goal": "Do it", "instruction": "", "strategy": "merge", "tasks": [
    {"id": "t1", "description": "Do the thing in question", "worker": "quick", "needs": []}]}
boss = ch.Supervisor(workers, model=ch.ScriptedModel([json.dumps(PLAN), "It is all done."]))
"""


def test_a_review_of_a_request_is_part_of_the_run_and_of_its_budget(place: Path) -> None:
    (place / "crew.py").write_text(CREW + PLANNED)
    (place / "editor.py").write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n"
        "file.write_text(file.read_text().replace('quick', 'steady'))\n"
    )
    asked = ("run", "--here", "--review", "--crew", "crew.py:boss", "Do the thing")
    with terminal(place, *asked, VISUAL=f"{sys.executable} editor.py") as screen:
        screen.read_until("y  carry it out")
        assert "t1  quick" in screen.shown
        screen.type("e\n")
        screen.read_until("t1  steady")
        screen.type("y\n")
        assert screen.read_all() == 0
    assert "t1 started by steady" in screen.shown
    assert "2 calls" in screen.shown  # of the planner, and for the answer
    with terminal(place, *asked, "--tokens", "1") as screen:
        assert screen.read_all() == 5
    assert "carry it out" not in screen.shown


def test_a_plan_of_a_request_can_be_rejected(place: Path) -> None:
    (place / "crew.py").write_text(CREW + PLANNED)
    asked = ("run", "--here", "--review", "--crew", "crew.py:boss", "Do the thing")
    with terminal(place, *asked) as screen:
        screen.read_until("n  reject it")
        screen.type("n\n")
        assert screen.read_all() == 1
    assert "a person rejected the plan" in screen.shown
    assert "t1 started" not in screen.shown


def test_a_review_edits_the_plan_until_it_is_sound(place: Path) -> None:
    (place / "editor.py").write_text(
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\nflag = pathlib.Path('edited')\n"
        "new = 'steady' if flag.exists() else 'nobody'\nflag.touch()\n"
        "file.write_text(file.read_text().replace('quick', new))\n"
    )
    editor = f"{sys.executable} editor.py"
    with terminal(place, *RUN, plan(place, "quick"), "--review", VISUAL=editor) as screen:
        screen.read_until("n(o)")
        screen.type("e\n")
        screen.read_until("so the plan is unchanged")
        screen.type("e\n")
        screen.read_until("t0  steady")
        screen.type("y\n")
        assert screen.read_all() == 0
    assert "t0 started by steady" in screen.shown
