"""The live view in a real terminal: a pseudo-terminal with a screen that interprets what is painted."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from tests.pseudo_terminal import PROGRAM, Terminal, terminal

ROOT = Path(__file__).parents[2]
CREW = """
import asyncio, os
from pathlib import Path
import chargehand as ch

async def opened(name):
    while not Path("gates", name).exists():
        await asyncio.sleep(0.01)
    return name

@ch.worker("waiter", "Waits for its gate")
async def wait(brief):
    return await brief.step("gate", opened, brief.task.id)

@ch.worker("asker", "Asks a person")
async def ask(brief):
    return await brief.ask("Which colour?", choices=["red", "blue"])

@ch.worker("chooser", "Asks a person for one of many")
async def choose(brief):
    return await brief.ask("Which?", choices=[f"number {n} of 40" for n in range(1, 41)])

@ch.worker("talker", "Asks a person for a text")
async def talk(brief):
    return await brief.ask("What is it called?")

@ch.worker("evil", "Says what a terminal would obey")
async def evil(brief):
    return "\\x1b[2J\\x1b]0;owned\\x07 \\u202egnp"

@ch.worker("quick", "Is done at once")
async def quick(brief):
    return brief.task.id

model = ch.ScriptedModel(['{"can_answer": true, "answer": "blue"}'])
boss = ch.Supervisor([wait, ask, choose, talk, evil, quick], model=model, limits=ch.Limits(tasks=5000))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "crew.py").write_text(CREW)
    (tmp_path / "gates").mkdir()
    return tmp_path


def run_of(place: Path, *workers: str, chained: bool = False) -> tuple[str, ...]:
    """The arguments that run a plan with a task for each of these workers."""
    import chargehand as ch

    tasks = [
        ch.Task(
            id=f"t{n}",
            description=f"Do part {n}",
            worker=worker,
            needs=[f"t{n - 1}"] if chained and n > 1 else [],
        )
        for n, worker in enumerate(workers, 1)
    ]
    (place / "plan.json").write_text(ch.Plan(goal="All parts", tasks=tasks).to_json())
    return ("run", "--crew", "crew.py:boss", "--plan", "plan.json", "--journal", "runs.db")


def open_gate(place: Path, *tasks: str) -> None:
    for task in tasks:
        (place / "gates" / task).touch()


def chargehand(place: Path, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*PROGRAM, *args], cwd=place, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def asking(place: Path) -> Iterator[Terminal]:
    """A run in a terminal that asks for a colour."""
    with terminal(80, 24, place, *run_of(place, "asker", "waiter")) as shown:
        shown.wait_for("› █")
        yield shown


def test_the_screens_of_the_docs_are_those_of_a_run() -> None:
    """At 80×24, 120×40 and 60×14: while it works, when it asks, at the end."""
    command = [sys.executable, str(ROOT / "docs" / "capture_terminal.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_interrupted_once_it_starts_nothing_new_and_says_how_to_resume(place: Path) -> None:
    with terminal(80, 24, place, *run_of(place, "waiter", "waiter", chained=True)) as shown:
        shown.wait_for("◐ waiter  t1")
        shown.type("\x03")
        assert "the rest can be resumed" in shown.wait_for("stopping")
        open_gate(place, "t1")
        assert shown.finish() == 130
        assert "✓ t1" in shown.everything()
        assert shown.everything().count("chargehand resume r") == 1
        assert shown.is_echoing
    open_gate(place, "t2")
    assert chargehand(place, "resume", "last", "--journal", "runs.db").returncode == 0


def test_a_closed_terminal_stops_the_run_so_that_it_can_be_resumed(place: Path) -> None:
    with terminal(80, 24, place, *run_of(place, "waiter", "waiter", chained=True)) as shown:
        shown.wait_for("◐ waiter  t1")
        shown.hang_up()
        open_gate(place, "t1")
        assert shown.process.wait(timeout=60) == 130
    open_gate(place, "t2")
    assert "interrupted" in chargehand(place, "show", "last", "--journal", "runs.db").stdout
    assert chargehand(place, "resume", "last", "--journal", "runs.db").returncode == 0


def test_interrupted_twice_it_cancels(place: Path) -> None:
    with terminal(80, 24, place, *run_of(place, "waiter")) as shown:
        shown.wait_for("◐ waiter  t1")
        shown.type("\x03")
        stopping = shown.wait_for("t plan · Ctrl-C again cancels the run")
        assert "twice cancels" not in stopping
        shown.type("\x03")
        assert shown.finish() == 130
        text = shown.everything()
        assert "interrupted twice: cancelling the run" in text
        assert re.search(r"status +cancelled", text)
        assert "█" not in shown.shown()  # no view is left behind


def test_a_question_is_answered_by_number_after_a_wrong_line(place: Path, asking: Terminal) -> None:
    asking.type("green\r")
    asking.wait_for("'green' is none of the choices")
    asking.type("x\x7f2\r")
    asking.wait_for(lambda text: "› █" not in text and "✓ t1" in text)
    open_gate(place, "t2")
    assert asking.finish() == 0
    assert '"t1": "blue"' in asking.everything()


def test_tab_shows_the_plan_while_an_answer_is_typed(place: Path, asking: Terminal) -> None:
    """Keys that write something go into the answer; in 24 rows the plan is shown only if it is wanted."""
    asking.type("pt")
    before = asking.wait_for("› pt█")
    assert "  1  ▲ t1" not in before
    assert "Tab plan" in before
    asking.type("\t")
    assert "› pt█" in asking.wait_for("  1  ▲ t1  ◐ t2")
    asking.type("\t")
    asking.wait_for(lambda text: "  1  ▲ t1" not in text and "› pt█" in text)
    open_gate(place, "t2")


def test_a_question_that_is_answered_elsewhere_closes_and_says_by_whom(
    place: Path, asking: Terminal
) -> None:
    (question,) = re.findall(
        r"chargehand answer (\S+)", chargehand(place, "show", "last", "--journal", "runs.db").stdout
    )[:1]
    done = chargehand(place, "answer", question, "red", "--journal", "runs.db")
    assert done.returncode == 0, done.stderr
    asking.wait_for(lambda text: "› █" not in text and "t1 was answered by" in text)
    open_gate(place, "t2")
    assert asking.finish() == 0


def test_what_was_begun_for_a_question_that_closed_is_no_answer_to_the_next(place: Path) -> None:
    """Keys of the next moment were meant for the first question, too."""
    with terminal(80, 24, place, *run_of(place, "asker", "asker")) as shown:
        first = re.findall(r"▲ (t\d) asks  \(question 1 of 2", shown.wait_for("question 1 of 2"))
        shown.type("blu")
        shown.wait_for("› blu█")
        (question,) = (
            each["id"]
            for each in json.loads(
                chargehand(place, "show", "last", "--json", "--journal", "runs.db").stdout
            )["questions"]
            if f":{first[0]}:" in each["id"]
        )
        chargehand(place, "answer", question, "red", "--journal", "runs.db")
        shown.wait_for("what you typed for it was dropped")
        shown.type("e\r")
        shown.look(1.2)
        shown.type("2\r")
        assert shown.finish() == 0
        assert sorted(re.findall(r'"t\d": "(\w+)"', shown.everything())) == ["blue", "red"]


def test_the_supervisor_answers_where_it_is_asked_to(place: Path, asking: Terminal) -> None:
    asking.type("s\r")
    asking.wait_for("t1 was answered by supervisor: blue")
    open_gate(place, "t2")
    assert asking.finish() == 0


def test_an_answer_can_be_written_in_an_editor(place: Path) -> None:
    editor = place / "editor"
    editor.write_text("#!/bin/sh\necho 'two words' > \"$1\"\n")
    editor.chmod(0o755)
    run = run_of(place, "talker")
    with terminal(80, 24, place, *run, VISUAL=str(editor), EDITOR=str(editor)) as shown:
        shown.wait_for("› █")
        shown.type("e\r")
        assert shown.finish() == 0
        assert shown.shown().count("two words") >= 1
        assert shown.is_echoing


def test_p_pauses_the_run_and_lets_it_go_on(place: Path) -> None:
    with terminal(80, 24, place, *run_of(place, "waiter", "quick", chained=True)) as shown:
        shown.wait_for("◐ waiter  t1")
        shown.type("p")
        shown.wait_for(lambda text: "paused  r" in text)
        open_gate(place, "t1")
        shown.type("p")
        assert shown.finish() == 0


def test_a_smaller_terminal_gets_a_smaller_view(place: Path) -> None:
    with terminal(100, 30, place, *run_of(place, *["waiter"] * 12)) as shown:
        shown.wait_for("◐ waiter  t12")
        shown.resize(60, 14)
        shown.process.send_signal(signal.SIGWINCH)
        shown.wait_for("more running")
        shown.resize(58, 10)
        shown.wait_for(lambda text: "◐" not in text and "p pause" in text)
        open_gate(place, *(f"t{n}" for n in range(1, 13)))
        assert shown.finish() == 0


def test_keys_scroll_a_question_that_does_not_fit(place: Path) -> None:
    """The arrows by a row, Page Up and Page Down by all that is in sight; nothing of it is typed."""
    with terminal(80, 16, place, *run_of(place, "chooser")) as shown:
        assert "▌ 1  number 1 of 40" in shown.wait_for("more rows: ↓")
        shown.type("\x1b[B\x1b[B")
        shown.wait_for("2 rows above: ↑")
        shown.type("\x1b[6~" * 9)
        shown.wait_for(lambda text: "number 40 of 40" in text and "more rows" not in text)
        shown.type("\x1b[5~" * 9)
        assert "› █" in shown.wait_for("number 1 of 40")
        shown.type("33\r")
        assert shown.finish() == 0
        assert "number 33 of 40" in shown.shown()


@pytest.mark.parametrize("meanwhile", ["", "bg"])
def test_a_shell_keeps_what_it_prints_while_the_run_is_suspended(
    place: Path, meanwhile: str
) -> None:
    """Ctrl-Z takes the view away, `fg` paints it anew below, and keys are obeyed again."""
    shell = which("bash")
    if shell is None:
        pytest.skip("needs bash")
    bash = (shell, "--norc", "--noprofile", "-i")
    command = shlex.join([*PROGRAM, *run_of(place, "waiter", "talker")])
    with terminal(
        80, 24, place, program=bash, PS1="$ ", BASH_SILENCE_DEPRECATION_WARNING="1"
    ) as shown:
        shown.wait_for("$")
        shown.type(f"clear; {command}\n")
        shown.wait_for("› █")
        shown.type("\x1a")
        stopped = shown.wait_for("Stopped")
        assert "› █" not in stopped
        shown.type("echo $((6 * 7)) is kept\n")
        shown.wait_for("42 is kept")
        if meanwhile:
            shown.type("bg\n")
            shown.wait_for("&\n")
        shown.type("fg\n")
        again = shown.wait_for(lambda text: "42 is kept" in text and "› █" in text)
        assert again.index("42 is kept") < again.index("asks\n▌ What")
        shown.type("Bob\r")
        assert "Bob" in shown.wait_for("t2 was answered by")
        assert "› Bob" not in shown.everything()
        open_gate(place, "t1")
        shown.wait_for("status    succeeded")


def test_what_workers_say_cannot_touch_the_terminal(place: Path) -> None:
    with terminal(80, 24, place, *run_of(place, "evil")) as shown:
        assert shown.finish() == 0
        assert "\\x1b[2J\\x1b]0;owned\\x07 \\u202egnp" in shown.everything()
        assert b"\x1b[2J" not in shown.raw
        assert "\u202e" not in shown.raw.decode()


@pytest.mark.parametrize(
    ("environment", "more"),
    [({"CI": "1"}, ()), ({"NO_PROGRESS": "1"}, ()), ({}, ("--display", "plain"))],
)
def test_plain_lines_have_no_escapes(
    place: Path, environment: dict[str, str], more: tuple[str, ...]
) -> None:
    with terminal(80, 24, place, *run_of(place, "quick"), *more, **environment) as shown:
        assert shown.finish() == 0
        assert b"\x1b" not in shown.raw
        assert re.search(r"\d\d:\d\d:\d\d  t1 done in", shown.everything())


def test_colours_go_and_the_view_stays_with_no_color(place: Path) -> None:
    with terminal(80, 24, place, *run_of(place, "waiter"), NO_COLOR="1") as shown:
        shown.wait_for("◐ waiter  t1")
        open_gate(place, "t1")
        assert shown.finish() == 0
        assert not re.search(rb"\x1b\[[0-9;]*m", shown.raw)
    with terminal(80, 24, place, *run_of(place, "quick"), "--display", "live", CI="1") as shown:
        assert shown.finish() == 0
        assert re.search(rb"\x1b\[[0-9;]*m", shown.raw)


def test_piped_it_prints_lines_and_live_is_refused(place: Path) -> None:
    done = chargehand(place, *run_of(place, "quick"))
    assert (done.returncode, done.stdout) == (0, "t1\n")
    assert "\x1b" not in done.stderr
    assert "t1 done in" in done.stderr
    refused = chargehand(place, *run_of(place, "quick"), "--display", "live")
    assert refused.returncode == 2
    assert "needs a terminal" in refused.stderr


def test_many_tasks_are_few_lines(place: Path) -> None:
    """Two thousand tasks that end at once are counted, not listed."""
    with terminal(80, 24, place, *run_of(place, *["quick"] * 2000), "--output", "out") as shown:
        assert shown.finish() == 0
        lines = shown.everything().splitlines()
        assert len(lines) < 400
        assert (
            sum(
                int(n.replace(",", ""))
                for n in re.findall(r"✓ ([\d,]+) tasks done", "\n".join(lines))
            )
            > 1000
        )


def test_a_watched_run_is_shown_alike(place: Path) -> None:
    """`watch` shows what happened before it began, and leaves without ending the run."""
    keep = {k: v for k, v in os.environ.items() if k != "CI"}
    leader = subprocess.Popen(
        [*PROGRAM, *run_of(place, "quick", "waiter", chained=True)],
        cwd=place,
        env=keep,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert leader.stderr is not None
    assert any("t2 started" in line for line in leader.stderr)
    with terminal(80, 24, place, "watch", "last", "--journal", "runs.db") as shown:
        assert "✓ t1  quick" in shown.wait_for("◐ waiter  t2")
        shown.type("\x03")
        assert shown.finish() == 130
        assert "the run continues" in shown.everything()
    open_gate(place, "t2")
    leader.communicate(timeout=60)
    assert leader.returncode == 0


def test_the_keys_say_that_ctrl_c_leaves_a_run_that_another_process_leads(place: Path) -> None:
    """A run that was handed over to a server, then watched: only the first has a model that could answer."""
    served = ("serve", "--crew", "crew.py:boss", "--journal", "runs.db")
    server = subprocess.Popen(
        [*PROGRAM, *served], cwd=place, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stderr is not None
        assert any("serving" in line for line in server.stderr)
        with terminal(80, 24, place, *run_of(place, "asker", "waiter")) as shown:
            asked = shown.wait_for("› █")
            assert "handed over to process" in asked
            assert "Enter answers · e editor · s supervisor · Ctrl-C leaves" in asked
            shown.type("\x03")
            assert shown.finish() == 130
        with terminal(80, 24, place, "watch", "last", "--journal", "runs.db") as shown:
            assert "Enter answers · e editor · Ctrl-C leaves" in shown.wait_for("› █")
            shown.type("1\r")
            shown.wait_for("p pause · Ctrl-C leaves; the run continues")
            open_gate(place, "t2")
            assert shown.finish() == 0
    finally:
        server.kill()
        server.communicate(timeout=60)
