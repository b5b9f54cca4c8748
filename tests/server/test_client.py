"""The Python client, and `chargehand run --server`."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

import chargehand as ch
from chargehand.client import Client
from chargehand.client.token_sources import find_token
from chargehand.errors import (
    KeyConflict,
    PlanChanged,
    PlanRefused,
    QuestionTaken,
    ServerRefused,
    ServerUnreachable,
    UnknownRun,
    UsageError,
)
from tests.pseudo_terminal import terminal
from tests.server.conftest import asker, clerk, serving, task


def plan_of(*workers: str) -> ch.Plan:
    tasks = [task(f"t{number}", worker) for number, worker in enumerate(workers)]
    return ch.Plan.from_json(json.dumps({"goal": "Show one thing", "tasks": tasks}))


async def test_a_run_is_submitted_followed_and_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, Client(served.url, token=served.token) as client:
        run = await client.submit(plan_of("asker"), key="once")
        kinds = []
        async for event in client.events(run):
            kinds.append(event["kind"])
            if event["kind"] == "AttemptFinished" and event["outcome"]["is"] == "needs_input":
                (question,) = await client.questions(run)
                await client.answer(question["id"], "blue")
                with pytest.raises(QuestionTaken) as taken:
                    await client.answer(question["id"], "red")
                assert taken.value.text == "blue"
        assert kinds[0] == "RunRequested"
        assert kinds[-1] == "RunFinished"
        result = await client.wait(run)
        assert (result.status, result.answer, result.has_ended) == (
            "succeeded",
            "painted blue",
            True,
        )
        assert [each["id"] for each in await client.runs()] == [run]
        with pytest.raises(KeyConflict, match=f"for run {run} with another plan") as conflict:
            await client.submit(plan_of("clerk", "clerk"), key="once")
        assert conflict.value.run == run
        with pytest.raises(PlanRefused) as refused:
            await client.submit(plan_of("nobody"))
        assert refused.value.faults[0].task == "t0"
        with pytest.raises(UnknownRun):
            await client.result("r0")
        with pytest.raises(ServerRefused, match="no such route"):
            await client.result("../../me")


async def test_a_run_is_cancelled_and_wrong_tokens_are_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        async with Client(f"{served.web.url}#token={served.token}") as client:
            run = await client.submit(plan_of("stuck"))
            await client.cancel(run, "enough")
            result = await client.wait(run)
            assert (result.status, result.answer, result.text) == ("cancelled", None, "")
            assert (await served.get(f"runs/{run}/result"))["answer"] is None
        async with Client(served.url, token="wrong") as stranger:
            with pytest.raises(ServerRefused) as refused:
                await stranger.runs()
            assert refused.value.status == 401
            assert "the token came from the token that was given" in str(refused.value)


class Wall(BaseModel):
    colour: str


@ch.worker("measurer", "Measures a wall")
async def measure(brief: ch.Brief) -> dict[str, int]:
    return {"metres": 3}


async def test_an_answer_is_the_same_object_over_http_as_locally(tmp_path: Path) -> None:
    said = {"answer": {"colour": "red"}, "claims": [], "contradictions": [], "confidence": 1.0}
    model = ch.ScriptedModel([json.dumps(said)] * 3)
    boss = ch.Supervisor([clerk, measure], journal=tmp_path / "runs.db", model=model)
    async with (
        serving(tmp_path, boss=boss) as served,
        Client(served.url, token=served.token) as client,
    ):
        for plan, output, expected in (
            (plan_of("clerk"), None, "did t0"),
            (plan_of("measurer"), None, {"metres": 3}),
            (plan_of("clerk"), Wall, Wall(colour="red")),
            (plan_of("clerk"), Wall.model_json_schema(), {"colour": "red"}),
        ):
            there = await client.run(plan, output=output)
            assert (there.status, there.answer, there.output) == ("succeeded", expected, expected)
            here = await served.boss.resume(there.id, output=output)
            assert here.output == expected
            assert there.text == here.answer.text


async def test_a_run_is_paused_changed_and_read(tmp_path: Path) -> None:
    crew: list[Any] = [
        asker,
        clerk,
        ch.Worker("writer", "Writes", model=ch.ScriptedModel(["a b c"])),
    ]
    boss = ch.Supervisor(crew, journal=tmp_path / "runs.db")
    async with (
        serving(tmp_path, boss=boss) as served,
        asyncio.timeout(30),
        Client(served.url, token=served.token) as client,
    ):
        tasks = [task("q", "asker"), task("w", "writer", "q"), task("c", "clerk", "q")]
        plan = {"goal": "Show one thing", "tasks": tasks}
        run = await client.submit(ch.Plan.from_json(json.dumps(plan)), limits={"calls": 20})
        await served.until(run, "waiting")
        await client.pause(run, "lunch")
        await served.until(run, "paused")
        await client.change_budget(run, calls=10)
        assert (await served.get(f"runs/{run}/cost"))["budget"]["calls"] == 10
        assert (await served.get(f"runs/{run}/snapshot"))["run"]["limits"]["calls"] == 10
        read = await client.plan(run)
        assert read.plan is not None
        assert (read.version, read.editable, read.review) == (1, ("w", "c"), None)
        other = msgspec.structs.replace(read.plan, tasks=read.plan.tasks[:2])
        changed = await client.change_plan(run, other, etag=read.etag, reason="shorter")
        assert changed.plan is not None
        assert ([each.id for each in changed.plan.tasks], changed.version) == (["q", "w"], 2)
        with pytest.raises(PlanChanged) as stale:
            await client.change_plan(run, other, etag=read.etag)
        assert stale.value.version == 2
        await client.unpause(run)
        await served.until(run, "waiting", "running")

        async def heard() -> list[dict[str, Any]]:
            return [event async for event in client.events(run, tokens=True)]

        hearing = asyncio.create_task(heard())
        while not boss.text_streams.wants_tokens(run):  # from when it has read what is past
            await asyncio.sleep(0)
        (question,) = await client.questions(run)
        await client.answer(question["id"], "red")
        told = await hearing
        written = "".join(each["text"] for each in told if each["kind"] == "TaskPiece")
        assert written == "a b c"
        kinds = {event["kind"] async for event in client.events(run)}
        assert {"RunPaused", "BudgetChanged", "RunUnpaused"} <= kinds
        cost = await client.cost(run)
        assert cost.usage["calls"] == 1
        assert "w" in {each["task"] for each in cost.by_task}
        trace = await client.trace(run)
        assert (trace["run"], trace["status"]) == (run, "succeeded")
        assert await client.trace(run, content=False) != trace
        with pytest.raises(ServerRefused) as ended:
            await client.pause(run)
        assert ended.value.kind == "RunEnded"


async def test_a_run_is_steered(tmp_path: Path) -> None:
    plan = {"goal": "Show one thing", "tasks": [task("t0", "asker"), task("t1", "clerk", "t0")]}
    model = ch.ScriptedModel([json.dumps(plan)] + ["no plan"] * 9)
    boss = ch.Supervisor([asker, clerk], journal=tmp_path / "runs.db", model=model)
    async with (
        serving(tmp_path, boss=boss) as served,
        asyncio.timeout(30),
        Client(served.url, token=served.token) as client,
    ):
        run = await client.submit("Show one thing")
        await served.until(run, "waiting")
        await client.steer(run, "Be brief", key="once")
        async for event in client.events(run):
            if event["kind"] == "RunSteered":
                break
        assert event["note"] == "Be brief"
        await client.cancel(run)
        await client.wait(run)


async def test_a_plan_under_review_is_edited_approved_and_rejected(tmp_path: Path) -> None:
    plan = {"goal": "Show one thing", "tasks": [task("t1"), task("t2")]}
    model = ch.ScriptedModel([json.dumps(plan)] * 2 + ["It is done."] * 9)
    boss = ch.Supervisor([clerk], journal=tmp_path / "runs.db", model=model)
    async with (
        serving(tmp_path, boss=boss) as served,
        asyncio.timeout(30),
        Client(served.url, token=served.token) as client,
    ):
        other = await client.submit("Show another thing", review_plan=True)
        await served.until(other, "waiting")
        await client.reject_plan(other)
        assert (await client.wait(other)).status == "failed"
        run = await client.submit("Show one thing", review_plan=True)
        await served.until(run, "waiting")
        read = await client.plan(run)
        assert read.review is not None
        assert read.plan is not None
        shorter = msgspec.structs.replace(read.plan, tasks=read.plan.tasks[:1])
        draft = await client.change_plan(run, shorter, etag=read.etag)
        with pytest.raises(PlanChanged):
            await client.approve_plan(run, etag=read.etag)
        await client.approve_plan(run, etag=draft.etag)
        assert (await client.wait(run)).status == "succeeded"
        assert {each["id"] for each in (await client.snapshot(run))["tasks"]} >= {"t1"}


async def test_failed_tasks_are_done_again_in_a_new_run(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, Client(served.url, token=served.token) as client:
        run = await client.submit(plan_of("failing", "clerk"))
        await client.wait(run)
        again = await client.retry(run)
        assert again != run
        assert (await client.wait(again)).status in ("failed", "partial")


async def test_following_goes_on_after_a_restart_of_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        port = int(served.url.rpartition(":")[2])
        client = Client(served.url, token=served.token)
        run = await client.submit(plan_of("asker"))
        await served.until(run, "waiting")
        heard = client.events(run)
        first = [await anext(heard) for _ in range(3)]
    async with client, serving(tmp_path, port=port) as served:
        (question,) = await client.questions(run)
        await client.answer(question["id"], "red")
        await served.post(f"runs/{run}/resume")
        rest = [event async for event in heard]
        seqs = [event["seq"] for event in [*first, *rest]]
        assert seqs == list(range(1, len(seqs) + 1))
        assert rest[-1]["kind"] == "RunFinished"


async def test_nobody_there_is_said() -> None:
    async with Client("http://127.0.0.1:9", token="x" * 20) as client:
        with pytest.raises(ServerUnreachable, match="chargehand serve"):
            await client.runs()


def test_the_token_is_found_in_the_places_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHARGEHAND_TOKEN", "CHARGEHAND_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    url = "http://127.0.0.1:8642"
    usual = [tmp_path / "tokens.json", tmp_path / ".chargehand" / "tokens.json"]
    with pytest.raises(UsageError, match="CHARGEHAND_TOKEN") as missing:
        find_token(url)
    assert all(str(path) in str(missing.value) for path in usual)
    for path in reversed(usual):
        path.parent.mkdir(exist_ok=True)
        kept = {"tokens": [{"name": "guest", "digest": "x"}, {"name": "owner", "token": path.name}]}
        path.write_text(json.dumps(kept))
        assert find_token(url) == (path.name, str(path))
    journal = tmp_path / "far" / "runs.db"
    journal.parent.mkdir()
    (journal.parent / "tokens.json").write_text("far")
    monkeypatch.setenv("CHARGEHAND_JOURNAL", str(journal))
    assert find_token(url).text == "far"
    with pytest.raises(UsageError) as elsewhere:
        find_token("https://ops.example")
    assert "looked" not in str(elsewhere.value)
    (tmp_path / "token").write_text("filed\n")
    monkeypatch.setenv("CHARGEHAND_TOKEN_FILE", str(tmp_path / "token"))
    assert find_token(url).text == "filed"
    monkeypatch.setenv("CHARGEHAND_TOKEN", "set")
    assert find_token(url).text == "set"
    assert find_token(url, token_file=tmp_path / "token").text == "filed"
    assert find_token(url, "given").text == "given"


async def test_the_command_line_has_a_server_do_a_run(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_of("clerk").to_json())
    (tmp_path / "dear.json").write_text(plan_of("writer").to_json())
    writer = ch.Worker("writer", "Writes", model=ch.ScriptedModel(["a line"]))
    async with serving(tmp_path, crew=(clerk, writer)) as served:
        environment = {**os.environ, "CHARGEHAND_TOKEN": served.token}

        async def chargehand(*args: str) -> "subprocess.CompletedProcess[str]":
            command = [sys.executable, "-m", "chargehand", "run", *args]
            return await asyncio.to_thread(
                subprocess.run, command, cwd=tmp_path, env=environment, capture_output=True,
                text=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip

        told = await chargehand("--server", served.url, "--plan", "plan.json")
        assert (told.returncode, told.stdout) == (0, "did t0\n"), told
        assert "t0 done" in told.stderr
        refused = await chargehand(
            "--server", served.url, "--plan", "plan.json", "--crew", "x.py:y"
        )
        assert refused.returncode == 2
        assert "--crew cannot be combined with --server" in refused.stderr
        refused = await chargehand(
            "--server", served.url, "--plan", "plan.json", "--display", "live"
        )
        assert refused.returncode == 2
        assert "--display live cannot be combined with --server" in refused.stderr
        kept = await chargehand("--server", served.url, "--plan", "plan.json", "--output", "out")
        assert (kept.returncode, kept.stdout) == (0, "")
        assert (tmp_path / "out").read_text() == "did t0\n"
        unkept = await chargehand(
            "--server", served.url, "--plan", "plan.json", "--output", "/dev/full"
        )
        assert (unkept.returncode, unkept.stdout) == (1, "did t0\n")
        short = await chargehand("--server", served.url, "--plan", "dear.json", "--calls", "0")
        assert short.returncode == 5, short


@ch.worker("late", "Is done after a while")
async def late(brief: ch.Brief) -> str:
    await asyncio.sleep(0.5)
    if brief.task.id == "broken":
        raise ch.WorkerError("the press is jammed", kind="denied")
    return "late"


async def test_all_that_happened_before_a_question_is_shown(tmp_path: Path) -> None:
    tasks = [task("t0", "asker"), task("broken", "late"), task("t2", "late")]
    plan = ch.Plan.from_json(json.dumps({"goal": "Show one thing", "tasks": tasks}))
    (tmp_path / "plan.json").write_text(plan.to_json())
    async with serving(tmp_path, crew=(asker, late)) as served:
        command = [sys.executable, "-m", "chargehand", "run", "--server", served.url]
        told = await asyncio.to_thread(
            subprocess.run, [*command, "--plan", "plan.json"], cwd=tmp_path, text=True,
            env={**os.environ, "CHARGEHAND_TOKEN": served.token}, capture_output=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert told.returncode == 4, told
        lines = told.stderr.splitlines()
        (asked,) = [n for n, line in enumerate(lines) if line.startswith("r") and " asks: " in line]
        shown = "\n".join(lines[:asked])
        assert re.search("gave up on broken after .*s: denied: the press is jammed", shown), (
            told.stderr
        )
        assert "t2 done" in shown, told.stderr


async def test_a_prompt_ends_when_somebody_else_answers(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_of("asker").to_json())
    async with serving(tmp_path) as served, Client(served.url, token=served.token) as client:
        args = ("run", "--server", served.url, "--plan", "plan.json")
        with terminal(100, 30, tmp_path, *args, CHARGEHAND_TOKEN=served.token) as window:
            await asyncio.to_thread(window.wait_for, "2  blue")
            (question,) = await client.questions()
            await client.answer(question["id"], "blue")
            code = await asyncio.to_thread(window.finish)
            assert (code, "painted blue" in window.everything()) == (0, True), window.everything()


async def test_questions_of_a_run_at_a_server_are_asked_one_after_another(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_of("asker", "asker").to_json())
    async with serving(tmp_path) as served:
        args = ("run", "--server", served.url, "--plan", "plan.json")
        with terminal(100, 40, tmp_path, *args, CHARGEHAND_TOKEN=served.token) as window:
            await asyncio.to_thread(window.wait_for, "2  blue")
            window.type("2\n")
            await asyncio.to_thread(window.wait_for, lambda text: text.count("2  blue") == 2)
            window.type("1\n")
            assert await asyncio.to_thread(window.finish) == 0, window.everything()
            for words in ("painted blue", "painted red"):
                assert words in window.everything()


def test_the_library_loads_no_web_framework() -> None:
    code = "import sys, chargehand, chargehand.cli, chargehand.client; print([m for m in ('fastapi', 'uvicorn', 'starlette') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
