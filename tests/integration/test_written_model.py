"""Written replies: found by what is asked, and refused in words that help."""

import os
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.crews.toml_crews import toml_crew
from chargehand.errors import UsageError
from chargehand.models.base import ModelRequest, user
from chargehand.models.replies_from_file import WrittenModel, open_model, purpose_of
from chargehand.tools.files import files

HEAD = 'note = "by hand"\nrequest = "Add one and two"\n'
WHOLE = (
    HEAD
    + """
[[reply]]
to = "work"
when = ["Task: Add", "one"]
turns = [{ call = "add", with = { a = 1, b = 2 } }, { say = "It is 3." }]

[[reply]]
when = ["Task: Say"]
unless = ["not that"]
say = "Hello."
"""
)


@ch.tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_replies_are_found_by_what_is_asked_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "replies.toml").write_text(WHOLE)
    model = f"written:{tmp_path / 'replies.toml'}"
    crew = [ch.Worker("adder", "Adds", tools=[add]), ch.Worker("talker", "Talks")]
    tasks = [
        ch.Task(id="say", description="Say hello", worker="talker"),
        ch.Task(id="sum", description="Add one and two", worker="adder"),
        ch.Task(id="no", description="Say not that", worker="talker", optional=True),
    ]
    result = ch.Supervisor(crew, model=model).run_sync(ch.Plan(goal="Add", tasks=tasks))
    assert result.tasks["say"].output == "Hello."
    assert result.tasks["sum"].output == "It is 3.", result.tasks["sum"].why
    assert "answers only the request 'Add one and two'" in result.tasks["no"].why
    assert "--model" in result.tasks["no"].why


def test_a_mark_at_the_beginning_is_skipped_and_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "replies.toml").write_bytes(b"\xef\xbb\xbf" + WHOLE.encode())
    assert len(WrittenModel(tmp_path / "replies.toml").replies.reply) == 2
    os.mkfifo(tmp_path / "pipe.toml")
    for path, words in ((tmp_path / "pipe.toml", "a pipe"), (Path("/dev/zero"), "a device")):
        with pytest.raises(UsageError, match=words):
            WrittenModel(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("note = 1", "is not a file of replies; it has 3 faults:\n  - note: must be str, not 1"),
        ('x = "x"', "note: is missing\n  - request: is missing\n  - reply: is missing"),
        (
            HEAD + "reply = [{ too = 'plan' }, { to = 'pla' }]",
            "[[reply]] 1, too: is not a known key",
        ),
        (
            HEAD + "reply = [{ to = 'pla' }]",
            "[[reply]] 1, to: must be one of plan, work, check, answer",
        ),
        ("a = " + "[" * 3000 + "]" * 3000, "nested too deep"),
        ("not toml", "is not TOML: Expected"),
        (HEAD + 'reply = [{ when = ["a"] }]', "reply 1 needs either `say` or `turns`"),
        (HEAD + 'reply = [{ say = "a", turns = [{ say = "b" }] }]', "reply 1 needs either"),
        (HEAD + "reply = [{ turns = [{ }] }]", "each turn either `say` or `call`"),
        (HEAD + 'reply = [{ say = "a", whne = ["b"] }]', "whne"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "replies.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ch.UsageError, match=r"replies\.toml") as refused:
        WrittenModel(path)
    assert words in str(refused.value)


def test_all_faults_of_a_file_are_told_together(tmp_path: Path) -> None:
    path = tmp_path / "replies.toml"
    path.write_text(HEAD + "reply = [{ }, { say = 'a' }, { turns = [{ }] }, { when = ['a'] }]")
    with pytest.raises(ch.UsageError, match="has 3 faults") as refused:
        WrittenModel(path)
    assert [n for n in range(1, 5) if f"reply {n} needs" in str(refused.value)] == [1, 3, 4]


def test_a_written_model_needs_its_file() -> None:
    with pytest.raises(ch.UsageError, match="written:PATH"):
        open_model("")


def test_the_purpose_of_a_call_is_told_by_the_form_it_asks_for() -> None:
    forms = {"plan": "tasks", "answer": "claims", "check": "met", "work": "anything"}
    for purpose, name in forms.items():
        schema: dict[str, Any] = {"properties": {name: {}}}
        assert purpose_of(ModelRequest(turns=(user("?"),), schema=schema)) == purpose


def test_an_answer_in_words_is_an_answer(tmp_path: Path) -> None:
    """As a supervisor composes it whose caller asked for no form."""
    plan = """{"goal": "A sum", "instruction": "", "strategy": "merge", "tasks": [{"id": "t1", "needs": [],
    "worker": "adder", "description": "Add one and two", "accept": "", "optional": false, "for_each": ""}]}"""
    path = tmp_path / "replies.toml"
    path.write_text(
        f"""{HEAD}
reply = [
    {{ to = "plan", say = '''{plan}''' }},
    {{ to = "answer", say = "It is three. [t1]\\nCONFIDENCE: 0.9" }},
    {{ to = "work", say = "3" }},
]
"""
    )
    boss = ch.Supervisor([ch.Worker("adder", "Adds")], model=f"written:{path}")
    result = boss.run_sync("Add one and two")
    assert (result.output, result.answer.confidence) == ("It is three.", 0.9)


def test_a_file_among_the_material_is_not_the_one_that_is_asked_about(tmp_path: Path) -> None:
    """Each item of a `for_each` gets its own reply, although every request lists all files."""
    (tmp_path / "notes").mkdir()
    replies = ['note = "by hand"', 'request = "Read"']
    for name in ("a", "b"):
        (tmp_path / "notes" / f"{name}.md").write_text("text\n")
        replies += ["[[reply]]", f'when = ["notes/{name}.md"]', f'say = "This is {name}."']
    (tmp_path / "replies.toml").write_text("\n".join(replies))
    reader = ch.Worker("reader", "Reads", tools=files(tmp_path))
    task = ch.Task(
        id="read", description="Read it", worker="reader", for_each={"files": "notes/*.md"}
    )
    boss = ch.Supervisor([reader], model=f"written:{tmp_path / 'replies.toml'}")
    result = boss.run_sync(ch.Plan(goal="Read", tasks=[task]))
    assert result.tasks["read"].output == ["This is a.", "This is b."]


def test_faults_of_replies_are_found_when_the_crew_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, however many workers answer from the file, and together with the faults of the crew."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "replies.toml").write_text('request = "x"\n[[reply]]\nsays = "y"\n')
    crew = tmp_path / "crew.toml"
    crew.write_text(
        '[crew]\nmodel = "written:replies.toml"\n[[worker]]\nname = "a"\ndescription = "Does a"\n'
        'model = "written:replies.toml"\nskils = []\n'
    )
    with pytest.raises(ch.UsageError) as refused:
        toml_crew(crew)
    told = str(refused.value)
    assert "has 2 faults" in told
    assert "did you mean 'skills'?" in told
    assert told.count("replies.toml is not a file of replies; it has 2 faults") == 1
    assert "\n    - [[reply]] 1, says: is not a known key; did you mean 'say'?" in told
