"""Recordings end to end: real SQLite, a real HTTP model server, real files, the command line."""

import asyncio
import json
import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import recordings
from chargehand.errors import JournalVersion, UsageError
from chargehand.models.base import ToolCall
from chargehand.recordings.recording_file import FORMAT_VERSION, is_recording
from chargehand.testing.model_server import Say, model_server
from tests.recordings.recorded_run import LONG, SECRET_WORDS, chargehand, plan_of, reader, task

# record and replay


def test_a_recording_holds_all_that_belongs_to_a_run(
    run: str, journal: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.chargehand"
    assert chargehand("record", run, "-o", str(file), "--journal", journal).exit_code == 0
    archive = asyncio.run(recordings.load(file, ""))
    assert archive.root == run
    assert len(archive.runs) == 2, "the nested run is in it"
    assert [name for name in archive.streams if name.startswith("board:")]
    assert len(archive.blobs()) == 1
    Path(journal).unlink()
    report = asyncio.run(recordings.replay(archive))
    assert report.difference is None
    assert report.answer is not None
    assert [each.recomputed for each in report.runs] == [each.hash for each in report.runs]
    assert report.runs[0].decisions >= 2, "the retry and the end"


def test_the_same_run_gives_the_same_file(run: str, journal: str, tmp_path: Path) -> None:
    files = [tmp_path / "1.chargehand", tmp_path / "2.chargehand"]
    for file in files:
        asyncio.run(recordings.record(run, file, journal))
    assert files[0].read_bytes() == files[1].read_bytes()


def test_replay_prints_the_answer_and_the_hash(run: str, journal: str, tmp_path: Path) -> None:
    file = tmp_path / "run.chargehand"
    recorded = chargehand("record", run, "-o", str(file), "--journal", journal)
    shown = chargehand("show", run, "--journal", journal)
    from_file = chargehand("replay", str(file))
    from_journal = chargehand("replay", run, "--journal", journal)
    assert from_file.exit_code == from_journal.exit_code == 0
    assert from_file.stdout == from_journal.stdout
    event_hash = recorded.stderr.split("event hash ")[1].strip()
    assert f"event hash {event_hash}" in from_file.stdout
    answer = from_file.stdout.split("\nanswer:\n")[1].strip()
    assert answer
    assert answer in shown.stdout


def test_replay_lists_events_with_their_numbers(run: str, journal: str) -> None:
    """As `fork --at` takes them."""
    lines = chargehand("replay", run, "--events", "--journal", journal).stdout.splitlines()
    assert lines[0].split()[0::2] == ["1", "RunRequested"]
    told = json.loads(chargehand("replay", run, "--events", "--json", "--journal", journal).stdout)
    assert [each["seq"] for each in told["events"]] == list(range(1, told["runs"][0]["events"] + 1))
    last = told["events"][-1]
    assert (last["kind"], last["task"]) == ("RunFinished", "")


def test_a_changed_decision_is_named_and_the_exit_code_is_1(
    run: str, journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "chargehand.facts.retry_policy.RetryPolicy.backoff", lambda *_: ch.RetryPolicy().cap
    )
    result = chargehand("replay", run, "--journal", journal)
    assert result.exit_code == 1
    assert "RetryPlanned of b: due_at was recorded as" in result.stdout
    told = json.loads(chargehand("replay", run, "--journal", journal, "--json").stdout)
    difference = told["runs"][0]["difference"]
    assert (difference["kind"], difference["task"], difference["field"]) == (
        "RetryPlanned",
        "b",
        "due_at",
    )
    assert told["is_same"] is False


def test_a_recording_without_content_has_the_structure_and_no_texts(
    run: str, journal: str, tmp_path: Path
) -> None:
    file = tmp_path / "bare.chargehand"
    chargehand("record", run, "-o", str(file), "--no-content", "--journal", journal)
    with zipfile.ZipFile(file) as inside:
        names = inside.namelist()
        words = b"".join(inside.read(name) for name in names).decode()
    assert not [name for name in names if name.startswith("blobs/")]
    for text in (SECRET_WORDS, "Look at part", "read Look", "a note", "gone", LONG[:50]):
        assert text not in words
    whole, bare = (asyncio.run(recordings.load(each, journal)) for each in (run, file))
    assert bare.runs == whole.runs
    assert bare.hash(run) == whole.hash(run)
    result = chargehand("replay", str(file))
    assert result.exit_code == 0
    assert "no difference" in result.stdout
    assert "left out" in result.stdout
    compared = asyncio.run(recordings.compare(whole, bare))
    assert compared.seconds.is_same
    assert compared.calls.is_same
    refused = chargehand("copy", str(file), "--to", str(tmp_path / "other.db"))
    assert refused.exit_code == 2
    assert "--no-content" in refused.stderr


# a real model server


async def test_a_run_of_a_real_server_replays_with_everything_forbidden(tmp_path: Path) -> None:
    """The child process has no network at all: not even loopback is up in its namespace."""
    journal, file = tmp_path / "runs.db", tmp_path / "run.chargehand"
    looked: list[str] = []

    @ch.tool(effect="pure")
    def look(what: str) -> str:
        """Look at something."""
        looked.append(what)
        return "a tower"

    async with model_server() as server:
        server.always = lambda received: Say(
            text=f"reply to {len(received.body['messages'])} messages"
        )
        model = ch.open_model("openai:gpt-4.1", base_url=f"{server.url}/v1", key="sk-test-key")
        server.say(Say(calls=(ToolCall("1", "look", '{"what": "it"}'),)))
        llm = ch.Worker("thinker", "Thinks about things", model=model, tools=[look])
        plan = plan_of(task("a", "thinker"), task("b", "thinker", "a"))
        async with ch.Supervisor([llm], journal=journal) as boss:
            result = await boss.run(plan)
        assert result.status == "succeeded"
        assert (len(server.requests), looked) == (3, ["it"])
        archive = await recordings.record(result.id, file, journal)
        answer = await asyncio.to_thread(lambda: str(result.answer))
    code = f"""
import asyncio, socket, sys
def forbidden(*_, **__):
    raise AssertionError("the network is forbidden")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = forbidden
import chargehand.models.gateway, chargehand.roles.function_worker, chargehand.tools.base
chargehand.models.gateway.ModelGateway.__init__ = forbidden
chargehand.roles.function_worker.FunctionWorker.work = forbidden
chargehand.tools.base.Tool.__init__ = forbidden
from chargehand import recordings
async def main():
    archive = await recordings.load({str(file)!r}, "")
    report = await recordings.replay(archive)
    assert report.difference is None, report.difference
    print(report.runs[0].recomputed)
    print(report.answer)
asyncio.run(main())
loaded = [name for name in sys.modules if name in ("aiohttp", "apsw", "asyncpg")]
assert not loaded, loaded
"""
    words = [sys.executable, "-c", code]
    if os.geteuid() == 0:
        words = ["unshare", "--net", *words]
    child = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await child.communicate()
    assert child.returncode == 0, err.decode()
    first, *rest = out.decode().splitlines()
    assert first == archive.hash(result.id)
    assert "\n".join(rest) == answer


# damage, foreign files, newer versions


@pytest.fixture
def file(run: str, journal: str, tmp_path: Path) -> Path:
    path = tmp_path / "run.chargehand"
    asyncio.run(recordings.record(run, path, journal))
    return path


def rewritten(file: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The same file with other members."""
    with zipfile.ZipFile(file) as old:
        members = {name: old.read(name) for name in old.namelist()}
    change(members)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in members.items():
            new.writestr(name, data)
    return file


def refused(file: Path) -> str:
    result = chargehand("replay", str(file))
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert result.stdout == ""
    return result.stderr


def header_of(**changes: object) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        header = json.loads(members["recording.json"]) | changes
        members["recording.json"] = json.dumps(header).encode()

    return change


def test_a_flipped_byte_anywhere_is_refused(file: Path) -> None:
    """Or it changes nothing: a date in the directory of the archive may."""
    whole = file.read_bytes()
    answer = chargehand("replay", str(file)).stdout
    for place in range(0, len(whole), max(1, len(whole) // 150)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        result = chargehand("replay", str(file))
        assert result.exit_code == 2 or result.stdout == answer, place
        assert not isinstance(result.exception, Exception) or result.exit_code == 2


def test_a_file_that_ends_too_early_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in (10, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert "damaged" in refused(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda members: members.update({"streams/0.jsonl": b""}),
        lambda members: members.pop("streams/1.jsonl"),
        lambda members: members.update(
            {"streams/0.jsonl": members["streams/0.jsonl"].replace(b"flaky", b"freak")}
        ),
        lambda members: members.update({"streams/0.jsonl": members["streams/0.jsonl"] + b"{}\n"}),
        lambda members: members.update({"streams/0.jsonl": b"[" * 100_000}),
        lambda members: members.update({name: b"x" for name in members if "blobs/" in name}),
        lambda members: [members.pop(name) for name in list(members) if "blobs/" in name],
        lambda members: members.update({"../../etc/passwd": b"x"}),
        lambda members: members.update({"/etc/cron.d/x": b"x"}),
        header_of(root="another"),
        header_of(streams=[]),
        header_of(streams="none"),
    ],
)
def test_a_changed_file_is_refused(change: Callable[[dict[str, bytes]], None], file: Path) -> None:
    assert "is damaged" in refused(rewritten(file, change))


def test_a_recording_of_a_newer_version_is_refused_by_name(file: Path) -> None:
    rewritten(file, header_of(version=FORMAT_VERSION + 1))
    assert f"version {FORMAT_VERSION + 1}" in refused(file)
    with pytest.raises(JournalVersion, match="upgrade chargehand"):
        asyncio.run(recordings.load(file, ""))


@pytest.mark.parametrize("content", [b"", b"not a recording at all", b"SQLite format 3\0" * 100])
def test_a_foreign_file_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.chargehand"
    file.write_bytes(content)
    assert "is not a recording of chargehand" in refused(file)


def test_a_foreign_archive_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert is_recording(file)
    assert "is not a recording of chargehand" in refused(file)
    rewritten(file, lambda members: members.update({"recording.json": b'{"format": "a"}'}))
    assert "is not a recording of chargehand" in refused(file)


def test_a_header_has_a_bound_of_its_own(file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("recording.json", b" " * (2**26 + 10))
    assert "larger than" in refused(file)


def test_a_file_that_is_not_there_is_named() -> None:
    assert "there is no file" in refused(Path("nowhere.chargehand"))


def test_an_existing_file_is_kept_without_force(run: str, journal: str, tmp_path: Path) -> None:
    file = tmp_path / "run.chargehand"
    file.write_text("mine")
    result = chargehand("record", run, "-o", str(file), "--journal", journal)
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert file.read_text() == "mine"
    assert (
        chargehand("record", run, "-o", str(file), "--force", "--journal", journal).exit_code == 0
    )
    assert chargehand("replay", str(file)).exit_code == 0
    assert [each.name for each in tmp_path.glob(".*part")] == []


def test_a_recording_that_cannot_be_written_leaves_nothing(
    run: str, journal: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        asyncio.run(recordings.record(run, tmp_path / "no" / "run.chargehand", journal))
    assert not (tmp_path / "no").exists()


def test_an_unknown_run_gives_no_recording(tmp_path: Path) -> None:
    journal = ch.open_journal()
    with pytest.raises(UsageError, match="is not in this journal"):
        asyncio.run(recordings.record("r-none", tmp_path / "x.chargehand", journal))
    assert not (tmp_path / "x.chargehand").exists()


def test_items_of_a_mapped_task_are_content(tmp_path: Path) -> None:
    """The list in the plan, the items as they were listed, and their results."""
    journal, file = tmp_path / "runs.db", tmp_path / "bare.chargehand"
    words = ["the first secret", "the second secret"]
    mapped = [
        ch.Task(id="a", description="Read each of them", worker="reader", for_each=words),
        ch.Task(id="b", description="Read it again", worker="reader", for_each="a", needs=["a"]),
    ]

    async def led() -> str:
        async with ch.Supervisor([reader], journal=journal) as boss:
            result = await boss.run(plan_of(*mapped))
        assert result.status == "succeeded"
        await recordings.record(result.id, file, journal, content=False)
        return result.id

    run = asyncio.run(led())
    with zipfile.ZipFile(file) as inside:
        assert b"secret" not in b"".join(inside.read(name) for name in inside.namelist())
    for each in (run, str(file)):
        result = chargehand("replay", each, "--journal", str(journal))
        assert result.exit_code == 0, result.stdout


def test_names_that_workers_and_planners_make_up_are_content(tmp_path: Path) -> None:
    """Of steps and of inputs. The ids of tasks and the names of workers and tools are kept."""
    journal, file = tmp_path / "runs.db", tmp_path / "bare.chargehand"

    @ch.worker("mailer", "Writes letters")
    async def mailer(brief: ch.Brief) -> list[str]:
        for name in ("mail secret@example.com", "tool of the secret trade", "tool send_mail"):
            await brief.step(name, lambda: "sent", effect="pure")
        return ["one", "two"]

    plan = plan_of(
        task("a", "mailer"),
        ch.Task(
            id="b",
            description="Look at each of them",
            worker="reader",
            needs=[ch.Need("a", name="secret letters")],
            for_each="secret letters",
        ),
    )

    async def led() -> str:
        async with ch.Supervisor([mailer, reader], journal=journal) as boss:
            result = await boss.run(plan)
        assert result.status == "succeeded"
        await recordings.record(result.id, file, journal, content=False)
        return result.id

    asyncio.run(led())
    with zipfile.ZipFile(file) as inside:
        words = b"".join(inside.read(name) for name in inside.namelist())
    assert b"secret" not in words
    assert b'"tool send_mail"' in words
    assert b'"mailer"' in words
    assert chargehand("replay", str(file)).exit_code == 0
    assert asyncio.run(recordings.compare(*[asyncio.run(recordings.load(file, ""))] * 2)).is_same
