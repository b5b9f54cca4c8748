"""Recordings that other people made: nothing in them is trusted, and every refusal has a name."""

import asyncio
import os
import zipfile
from pathlib import Path

import msgspec
import pytest

import chargehand as ch
from chargehand import recordings
from chargehand.errors import ImportedKey, RecordingTooLarge
from tests.recordings.forged_recording import Line, forged
from tests.recordings.recorded_run import chargehand, plan_of, reader, task


@pytest.fixture
def file(run: str, journal: str, tmp_path: Path) -> Path:
    file = tmp_path / "run.chargehand"
    asyncio.run(recordings.record(run, file, journal))
    return file


# idempotency keys


async def keyed(journal: str, key: str = "order-7") -> ch.RunResult:
    async with ch.Supervisor([reader], journal=journal) as boss:
        return await boss.run(plan_of(task("a")), key=key)


async def test_an_imported_run_does_not_answer_for_a_key(tmp_path: Path) -> None:
    """Whoever guesses a key could otherwise bring its answer."""
    source, file = str(tmp_path / "source.db"), tmp_path / "run.chargehand"
    target = str(tmp_path / "target.db")
    run = (await keyed(source)).id
    await recordings.record(run, file, source)

    def lie(lines: list[Line]) -> list[Line]:
        for line in lines:
            line["event"] = msgspec.Raw(bytes(line["event"]).replace(b"read Look", b"a LIE at"))
        return lines

    await recordings.copy([forged(file, tmp_path / "lie.chargehand", lie)], target, target)
    with pytest.raises(ImportedKey, match=f"'order-7' belongs to run '{run}'") as caught:
        await keyed(target)
    assert caught.value.run == run
    async with ch.Supervisor([reader], journal=target) as boss:
        with pytest.raises(ImportedKey):
            await boss.post(plan_of(task("a")), key="order-7")
        seen = await boss.look(run)
        assert "LIE" in await asyncio.to_thread(lambda: str(seen.answer)), "it can be read"
        assert (await boss.run(plan_of(task("a")), key="order-8")).status == "succeeded"
    # Retention and a second import do not take the mark away.
    async with ch.Supervisor([reader], journal=target) as boss:
        assert await boss.journal.storage.forget([run], known=())
    await recordings.copy([tmp_path / "lie.chargehand"], target, target)
    with pytest.raises(ImportedKey):
        await keyed(target)
    # The mark stays with the run in every journal that it is copied to.
    third = str(tmp_path / "third.db")
    await recordings.copy([run], target, third)
    with pytest.raises(ImportedKey):
        await keyed(third)


async def test_a_trusted_recording_answers_for_its_key(tmp_path: Path) -> None:
    source, file = str(tmp_path / "source.db"), tmp_path / "run.chargehand"
    target = str(tmp_path / "target.db")
    run = (await keyed(source)).id
    await recordings.record(run, file, source)
    await recordings.copy([file], target, target, trust=True)
    assert (await keyed(target)).id == run
    await recordings.copy([file], target, target)
    assert (await keyed(target)).id == run, "importing what is there already changes nothing"
    copied = str(tmp_path / "copied.db")
    await recordings.copy([run], source, copied)
    assert (await keyed(copied)).id == run, "a copy from journal to journal keeps its keys"


def test_keys_of_other_streams_are_refused(file: Path, tmp_path: Path) -> None:
    """A key is outside of the hash chain, and could name any board."""

    def plant(head: dict[str, object]) -> None:
        head["streams"][0]["keys"] = [["board:plans", "order-7", "d", 1]]  # type: ignore[index]  # parsed JSON

    bad = forged(file, tmp_path / "bad.chargehand", list, plant)
    result = chargehand("replay", str(bad))
    assert result.exit_code == 2
    assert "a key of" in result.stderr


def test_a_stream_that_does_not_belong_to_the_run_is_refused(file: Path, tmp_path: Path) -> None:
    """It would be imported with it: another run, or a board with a name of its own."""

    def rename(head: dict[str, object]) -> None:
        boards = [each for each in head["streams"] if each["name"].startswith("board:")]  # type: ignore[attr-defined]  # parsed JSON
        boards[0] |= {"name": "board:plans"}

    bad = forged(file, tmp_path / "bad.chargehand", list, rename)
    assert "is damaged" in chargehand("replay", str(bad)).stderr
    bad = forged(file, tmp_path / "bad2.chargehand", lambda lines: lines[:1])
    result = chargehand("replay", str(bad))
    assert result.exit_code == 2
    assert "does not belong to" in result.stderr


# sizes


def test_a_bomb_is_refused_by_name(file: Path, tmp_path: Path) -> None:
    """A file of 1 MB that unpacks to 324 MB."""
    bomb = tmp_path / "bomb.chargehand"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name != "streams/0.jsonl":
                new.writestr(name, old.read(name))
        with new.open("streams/0.jsonl", "w") as member:
            for _ in range(30):
                member.write(b'{"seq":1}                 \n' * 400_000)
    assert bomb.stat().st_size < 10_000_000
    with pytest.raises(RecordingTooLarge, match="max_size") as caught:
        asyncio.run(recordings.load(bomb, ""))
    assert caught.value.most == 2**28


def test_the_bound_can_be_set(file: Path) -> None:
    assert chargehand("replay", str(file), "--max-size", "1kB").exit_code == 2
    assert chargehand("replay", str(file), "--max-size", "1GB").exit_code == 0
    result = chargehand("diff", str(file), str(file), "--max-size", "1kB")
    assert "--max-size" in result.stderr
    asyncio.run(recordings.load(file, "", max_size=10**9))


def test_the_command_trusts_a_recording_if_it_is_told_to(
    run: str, file: Path, tmp_path: Path
) -> None:
    marks = []
    for words in ((), ("--trust",)):
        target = str(tmp_path / f"target{len(words)}.db")
        assert chargehand("copy", str(file), *words, "--to", target).exit_code == 0
        archive = asyncio.run(recordings.load(run, target))
        marks.append([each.key.name for each in archive.streams[run].keys])
    assert marks == [["@imported"], []]


def test_other_ways_to_pack_are_refused(file: Path, tmp_path: Path) -> None:
    """Python unpacks LZMA and bzip2 without a bound."""
    other = tmp_path / "other.chargehand"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(other, "w", zipfile.ZIP_LZMA) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert "packed in a way that no recording is" in chargehand("replay", str(other)).stderr


# events that cannot have happened


def test_events_that_cannot_have_happened_are_named(file: Path, tmp_path: Path) -> None:
    """Left out, doubled or swapped in a chain that is whole: a difference or a refusal, never a stack trace."""
    count = len(list(asyncio.run(recordings.load(file, "")).events(_root(file))))
    codes, named = [], 0
    for place in range(count):
        for change in (
            lambda lines, at=place: lines[:at] + lines[at + 1 :],
            lambda lines, at=place: [*lines[: at + 1], dict(lines[at]), *lines[at + 1 :]],
            lambda lines, at=place: lines[:at] + lines[at : at + 2][::-1] + lines[at + 2 :],
        ):
            bad = forged(file, tmp_path / "bad.chargehand", change)
            for words in (("replay", str(bad)), ("diff", str(bad), str(file))):
                result = chargehand(*words)  # raises what is not a message
                assert result.exit_code in (0, 1, 2)
                assert "Traceback" not in result.stderr
                codes.append(result.exit_code)
                named += "cannot have happened" in result.stderr
    assert {1, 2} <= set(codes)
    assert named > 10


def _root(file: Path) -> str:
    return asyncio.run(recordings.load(file, "")).root


# what is not a file


@pytest.mark.parametrize("suffix", [".chargehand", ""])
def test_a_pipe_is_refused_at_once(suffix: str, tmp_path: Path) -> None:
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    journal = str(tmp_path / "runs.db")
    for words in (
        ("replay", str(pipe)),
        ("diff", str(pipe), str(pipe)),
        ("copy", str(pipe), "--to", str(tmp_path / "other.db")),
        ("run", "--plan", str(pipe)),
        ("run", "--crew", f"{pipe}.toml", "do it"),
        ("simulate", str(pipe)),
    ):
        if words[1] == "--crew":
            os.mkfifo(f"{pipe}.toml")
        result = chargehand(*words, *([] if words[0] == "simulate" else ["--journal", journal]))
        assert result.exit_code == 2, words
        if suffix or words[0] in ("run", "simulate"):
            assert "a pipe, not a regular file" in result.stderr, words


def test_a_device_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "zero.chargehand"
    link.symlink_to("/dev/zero")
    assert "a device, not a regular file" in chargehand("replay", str(link)).stderr


def test_a_recording_is_not_written_to_a_pipe(run: str, journal: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = chargehand("record", run, "-o", str(pipe), "--journal", journal)
    assert result.exit_code == 2
    assert "exists" in result.stderr


# runs that were only submitted, and runs that retention deleted


def test_a_run_that_was_only_submitted_says_so(run: str, journal: str, tmp_path: Path) -> None:
    async def post() -> str:
        boss = ch.Supervisor([reader], journal=journal)
        try:
            return await boss.post(plan_of(task("z")))
        finally:
            await boss.close()

    waiting = asyncio.run(post())
    other = str(tmp_path / "other.db")
    for words in (
        ("record", waiting, "-o", str(tmp_path / "x.chargehand")),
        ("replay", waiting),
        ("diff", waiting, run),
        ("fork", waiting, "--dry-run"),
        ("trace", waiting),
        ("verify", waiting),
        ("copy", waiting, "--to", other),
    ):
        result = chargehand(*words, "--journal", journal)
        assert result.exit_code == 2, words
        assert "was submitted and has no events yet" in result.stderr, words
    result = chargehand("copy", "--all", "--journal", journal, "--to", other)
    assert result.exit_code == 0
    assert f"run {run}:" in result.stdout
    assert f"run {waiting}: skipped, because it was submitted but has not started" in result.stderr


def test_a_deleted_run_is_restored_from_its_recording(
    run: str, journal: str, file: Path, tmp_path: Path
) -> None:
    """It is compared with what retention kept of it; `--all` does not bring it back unasked."""
    before = chargehand("show", run, "--journal", journal).stdout
    backup = str(tmp_path / "backup.db")
    chargehand("copy", run, "--journal", journal, "--to", backup)
    assert chargehand("prune", "--keep", "0", "--journal", journal).exit_code == 0
    assert "retention deleted" in chargehand("show", run, "--journal", journal).stderr
    result = chargehand("copy", "--all", "--journal", backup, "--to", journal)
    assert f"run {run}: skipped, because retention deleted it" in result.stderr
    lie = forged(file, tmp_path / "lie.chargehand", lambda lines: lines[:-1])
    refused = chargehand("copy", str(lie), "--to", journal)
    assert refused.exit_code == 2
    assert "when retention deleted it" in refused.stderr
    restored = chargehand("copy", str(file), "--to", journal)
    assert restored.exit_code == 0, restored.stderr
    assert chargehand("show", run, "--journal", journal).stdout == before
    assert chargehand("verify", "--journal", journal).exit_code == 0
