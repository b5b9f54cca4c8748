"""Questions of a script's runs: asked at its terminal, answered by a function, or left open with the commands."""

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel

import chargehand as ch
from chargehand.presentation.ask_at_terminal import answer_questions, waiting_lines

SCRIPT = """
import chargehand as ch
from chargehand.presentation.ask_at_terminal import answer_questions

@ch.worker("painter", "Paints a wall")
async def paint(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?", choices=["red", "blue"])

boss = ch.Supervisor([paint])
task = ch.Task(id="wall", description="Paint the wall", worker="painter")
result = boss.run_sync(ch.Plan(goal="A wall", tasks=[task]), on_question="return")
print("painted", answer_questions(boss, result).output)
"""


class Wall(BaseModel):
    colour: str


@ch.worker("painter", "Paints a wall")
async def paint(brief: ch.Brief) -> str:
    first = await brief.ask("Which colour?", choices=["red", "blue"])
    return f"{first}, {await brief.ask('Gloss or matt?')}"


PLAN = ch.Plan(
    goal="A wall", tasks=[ch.Task(id="wall", description="Paint the wall", worker="painter")]
)


def painters(journal: Path | None = None) -> ch.Supervisor:
    said = {"answer": {"colour": "red"}, "claims": [], "contradictions": [], "confidence": 1.0}
    model = ch.ScriptedModel([json.dumps(said)])
    return ch.Supervisor([paint], model=model, journal=journal and str(journal))


def test_one_question_after_another_is_answered_and_the_result_is_typed() -> None:
    boss, asked = painters(), []

    def answer(question: ch.Question) -> str:
        asked.append(question.text)
        return "red"

    result = boss.run_sync(PLAN, output=Wall, on_question="return")
    ended = answer_questions(boss, result, answer, output=Wall)
    assert asked == ["Which colour?", "Gloss or matt?"]
    assert ended.output == Wall(colour="red")


def test_a_question_without_an_answer_stays_open_with_the_command_that_answers_it(
    tmp_path: Path,
) -> None:
    boss = painters(tmp_path / "runs.db")
    result = boss.run_sync(PLAN, output=Wall, on_question="return")
    left = answer_questions(boss, result, lambda _: None)
    assert left.status == "waiting"
    lines = waiting_lines(left, "my runs.db")
    assert lines[0] == "? Which colour?"
    assert lines[-2:] == [
        f"answer it:  chargehand answer {left.questions[0].id} TEXT --journal 'my runs.db'",
        f"then:       chargehand resume {left.id} --crew FILE.py:NAME --journal 'my runs.db'",
    ]
    assert waiting_lines(left, Path("my runs.db")) == lines
    assert waiting_lines(boss.run_sync(PLAN, on_question="fail"), Path("runs.db")) == []


def test_the_commands_that_are_printed_for_a_waiting_run_continue_it(tmp_path: Path) -> None:
    (tmp_path / "crew.py").write_text(SCRIPT.partition("task =")[0])
    code = "import sys; sys.path.insert(0, '.'); import crew; from pathlib import Path\n" + (
        "from chargehand.presentation.ask_at_terminal import waiting_lines\n"
        "import chargehand as ch\n"
        "boss = ch.Supervisor([crew.paint], journal=Path('runs.db'))\n"
        "task = ch.Task(id='wall', description='Paint the wall', worker='painter')\n"
        "result = boss.run_sync(ch.Plan(goal='A wall', tasks=[task]), on_question='return')\n"
        "print(*waiting_lines(result, Path('runs.db'), 'crew.py:boss')[-2:], sep='\\n')\n"
    )

    def run(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = run("-c", code).splitlines()
    answer, resume = (shlex.split(line.partition("chargehand ")[2]) for line in lines)
    run("-m", "chargehand", *("red" if word == "TEXT" else word for word in answer))
    assert run("-m", "chargehand", *resume) == "red\n"


def test_a_run_that_goes_on_by_its_key_has_its_typed_result(tmp_path: Path) -> None:
    first = painters(tmp_path / "runs.db")
    left = first.run_sync(PLAN, output=Wall, key="one", on_question="return")
    for text in ("red", "gloss"):
        first.answer_sync(left.questions[0].id, text)
        left = first.run_sync(PLAN, output=Wall, key="one", on_question="return")
    assert left.output == Wall(colour="red")
    again = painters(tmp_path / "runs.db").run_sync(PLAN, output=Wall, key="one")
    assert again.output == Wall(colour="red")


def test_the_person_at_the_terminal_is_asked_until_a_choice_is_typed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ours, theirs = pty.openpty()
    os.write(ours, b"green\n2\n")
    environment = {**os.environ, "TERM": "xterm", "CI": ""}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdin=theirs,
        stderr=theirs,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as program:
        os.close(theirs)
        said, _ = program.communicate(timeout=60)
        shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert said == "painted blue\n"
    assert "? Which colour?" in shown
    assert "'green' is none of the choices" in shown
