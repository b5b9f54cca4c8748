"""The Python client, and `chargehand run --server`."""

import asyncio
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

import chargehand as ch
from chargehand.cli import main, remote_run
from chargehand.client import Client, RemoteResult, event_follower, slow_server_warnings
from chargehand.client.token_sources import find_token
from chargehand.errors import (
    KeyConflict,
    PlanChanged,
    PlanRefused,
    QuestionTaken,
    ServerRefused,
    ServerUnreachable,
    UnknownKeyword,
    UnknownRun,
    UsageError,
)
from chargehand.facts.outcome import Usage
from chargehand.facts.value import Value
from chargehand.server.mcp.tool_replies import RunReply
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
        assert [each["id"] for each in await client.runs(state="done", limit=5)] == [run]
        with pytest.raises(UnknownKeyword, match=r"runs takes no 'status'; .*state"):
            await client.runs(status="succeeded")  # type: ignore[call-arg]  # the typo is the point
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
        with pytest.raises(ServerRefused, match="give at least one of money, tokens and calls"):
            await client.change_budget(run)
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
        assert cost.usage["money"] is None, "no price list has this model"
        assert cost.unpriced == ("scripted:model",)
        costs = [row["usage"]["money"] for row in (*cost.by_worker, *cost.by_model)]
        assert sorted(costs, key=str) == [0.0, None, None], "only a function costs nothing"
        snapshot = await served.get(f"runs/{run}/snapshot")
        rows = {row["id"]: row["cost"] for row in snapshot["tasks"]}
        assert (snapshot["run"]["cost"], rows["w"], rows["q"]) == (None, None, 0.0)
        same = await served.get(f"compare?a={run}&b={run}")
        assert same["money"] == {"a": None, "b": None}
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


async def test_failed_items_of_a_done_task_are_done_again_and_the_others_are_kept(
    tmp_path: Path,
) -> None:
    did: list[object] = []

    @ch.worker("odd", "Does one item, at the second try")
    async def odd(brief: ch.Brief) -> int:
        did.append(brief.item)
        if brief.item == 2 and did.count(2) == 1:
            raise ch.WorkerError("no amount", kind="denied")
        return int(brief.item)

    task = ch.Task(id="m", description="Do each", worker="odd", for_each=[1, 2, 3], at_least=2)
    async with (
        serving(tmp_path, crew=[odd]) as served,
        asyncio.timeout(30),
        Client(served.url, token=served.token) as client,
    ):
        run = await client.submit(ch.Plan(goal="Do them", tasks=[task]))
        assert (await client.wait(run)).status == "succeeded"
        did.clear()
        did.append(2)
        again = await client.wait(await client.retry(run))
        assert (again.status, did) == ("succeeded", [2, 2])
        assert again.answer == [1, 2, 3]


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


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://u:secret@127.0.0.1:1", "'http://…@127.0.0.1:1' .* leave out what is in front"),
        ("http://", "'http://' .* it has no host"),
        ("http://127.0.0.1:99999", "Port out of range"),
        ("http://127.0.0.1:0", "no server has port 0"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("ftp://x", "give http://… or https://…"),
        (5, "Client: url=5 must be a text"),
    ],
)
def test_an_address_where_no_server_can_be_is_refused_at_once(url: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        Client(url, token="x")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("token", ["a\nb", "é", 5])
def test_a_token_that_cannot_be_sent_is_refused_at_once(token: Any) -> None:
    with pytest.raises(UsageError, match=r"no token has|must be a text"):
        Client("http://127.0.0.1:1", token=token)


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


@ch.worker("counter", "Asks models by itself")
async def counter(brief: ch.Brief) -> ch.Done:
    return ch.Done(Value.of("counted"), usage=Usage(calls=5))


async def test_caps_that_workers_exceed_by_what_they_report_are_told_over_http(
    tmp_path: Path,
) -> None:
    told = ("5 calls, more than Limits(calls=3)",)
    boss = ch.Supervisor([counter], journal=tmp_path / "runs.db", limits=ch.Limits(calls=3))
    async with (
        serving(tmp_path, boss=boss) as served,
        Client(served.url, token=served.token) as client,
    ):
        result = await client.run(plan_of("counter"))
        assert (result.status, result.answer, result.over_budget) == ("succeeded", "counted", told)
        assert (await client.cost(result.id)).over_budget == told
        reply = RunReply.of(await boss.look(result.id), "succeeded", is_here=True)
        assert tuple(reply.over_budget) == told
        (tmp_path / "plan.json").write_text(plan_of("counter").to_json())
        command = ["run", "--server", served.url, "--plan", str(tmp_path / "plan.json")]
        ran = await asyncio.to_thread(
            CliRunner().invoke, main, command, env={"CHARGEHAND_TOKEN": served.token}
        )
        assert ran.exit_code == 0
        assert f"over budget: {told[0]}\n" in ran.stderr


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
        (asked,) = [n for n, line in enumerate(lines) if line.startswith("? ")]
        shown = "\n".join(lines[:asked])
        assert re.search("gave up on broken after .*s: denied: the press is jammed", shown), (
            told.stderr
        )
        assert "t2 done" in shown, told.stderr


class ClientInBursts:
    """A client whose server sends the last events together, just after it told of the state before them."""

    url = "http://ops.example"

    def __init__(self, url: str) -> None:
        self._is_looked_at = asyncio.Event()
        self._looks = 0

    async def __aenter__(self) -> "ClientInBursts":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def submit(self, *_: object, **__: object) -> str:
        return "r1"

    async def events(self, _: str) -> AsyncIterator[dict[str, Any]]:
        yield {"kind": "StepStarted", "seq": 1}
        await self._is_looked_at.wait()
        for seq in (2, 3, 4):
            yield {"kind": "StepStarted", "seq": seq}
        await asyncio.Event().wait()

    async def questions(self, _: str) -> list[dict[str, Any]]:
        return [
            {
                "id": "r1:t1:1", "text": "Which colour?", "choices": ["red", "blue"], "telling": "", "default": None,
                "kind": "question", "evidence": None, "answered": None, "is_closed": False,
            }
        ]  # fmt: skip

    async def snapshot(self, run: str) -> dict[str, Any]:
        self._looks += 1
        self._is_looked_at.set()
        seq, state = (2, "running") if self._looks == 1 else (4, "waiting")
        return {"seq": seq, "run": {"state": state}, "questions": await self.questions(run)}

    async def result(self, run: str) -> RemoteResult:
        return RemoteResult(id=run, status="waiting", answer=None)


def test_a_run_at_a_server_that_only_waits_for_a_person_ends_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if its last events come together: what they change must not be missed."""
    monkeypatch.setattr(remote_run, "Client", ClientInBursts)
    args = ["run", "--server", "http://ops.example#token=secret", "Paint"]
    told = CliRunner().invoke(main, args)
    assert told.exit_code == 4, told.stderr
    assert "? Which colour?\n  1  red\n  2  blue\n" in told.stderr
    assert "answer r1:t1:1 --server 'http://ops.example#token=TOKEN' TEXT\n" in told.stderr
    assert "http://ops.example/runs/r1/questions" in told.stderr
    assert "secret" not in told.stderr


async def test_the_question_of_a_run_at_a_server_is_answered_with_the_printed_command(
    tmp_path: Path,
) -> None:
    (tmp_path / "plan.json").write_text(plan_of("asker").to_json())
    async with serving(tmp_path) as served:
        environment = {**os.environ, "CHARGEHAND_TOKEN": served.token}
        start = partial(
            asyncio.create_subprocess_exec, sys.executable, "-m", "chargehand", cwd=tmp_path,
            env=environment, stdin=subprocess.DEVNULL, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        options = ("--server", served.url, "--plan", "plan.json", "--on-question")
        left = await start("run", *options, "return")
        assert await left.wait() == 4
        waiting = await start("run", *options, "wait")
        assert waiting.stderr is not None
        assert waiting.stdout is not None
        async with asyncio.timeout(30):
            while not (line := (await waiting.stderr.readline()).decode()).startswith("answer it:"):
                assert line, "it has ended"
        _, _, *command, _ = shlex.split(line.partition(":")[2])
        for text, code in (("green", 2), ("2", 0), ("1", 2)):
            given = await start("answer", *command, text)
            _, said = await given.communicate()
            assert given.returncode == code, said
        assert (await waiting.stdout.read(), await waiting.wait()) == (b"painted blue\n", 0)
        refused = await start("run", *options, "fail")
        assert await refused.wait() == 2
        refused = await start("answer", *command, "2", "--journal", "runs.db")
        assert await refused.wait() == 2


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


# servers that are none


@asynccontextmanager
async def lying(*replies: bytes) -> AsyncIterator[Client]:
    """A client of a server that gives these replies, one for each connection, and the last one ever after."""
    left = list(replies)

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"http://127.0.0.1:{port}", token="x" * 20) as client:
        yield client


def http(status: int, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}Connection: close\r\n\r\n"
    return head.encode() + body


def stream(body: bytes) -> bytes:
    return http(200, body, "text/event-stream")


DEEP = b"[" * 20_000


@pytest.mark.parametrize(
    ("status", "body", "fact"),
    [
        (200, b"null", "answered 200 with JSON of another form"),
        (200, b"[]", "answered 200 with JSON of another form"),
        (200, b"{}", "missing required field `id`"),
        (200, b'{"id":5}', "Expected `str`, got `int`"),
        (200, b'{"id":"../../x\\u001b[31m"}', "answered 200 with JSON of another form"),
        (200, b"", "answered 200 with an empty body"),
        (200, b"\xff\xfe", "answered 200 with something else than JSON"),
        (200, b'{"x":' + DEEP, "answered 200 with JSON that is nested too deep"),
        (204, b"", "answered 204 with an empty body"),
        (400, b'{"error":["x"]}', "answered 400 with JSON of another form"),
        (404, b'{"error":5}', "answered 404 with JSON of another form"),
        (404, b'{"error":{"kind":"UnknownRun","message":null}}', "Expected `str`, got `null`"),
        (429, b"", "answered 429 with an empty body"),
        (502, b"<html>", "answered 502 with something else than JSON"),
    ],
)
async def test_a_reply_of_another_server_is_refused_with_the_address_and_the_fact(
    status: int, body: bytes, fact: str
) -> None:
    async with lying(http(status, body)) as client:
        with pytest.raises(ServerRefused) as refused:
            await client.submit("Show one thing")
        assert str(refused.value).startswith(client.url)
        assert fact in str(refused.value)
        assert refused.value.status == status


async def test_every_call_refuses_replies_of_another_form() -> None:
    for body in (b"null", b"5", b'{"runs":5,"questions":[{}],"plan":5,"by_worker":null}'):
        async with lying(http(200, body)) as client:
            for call in (
                client.result("r1"),
                client.runs(),
                client.snapshot("r1"),
                client.cost("r1"),
                client.plan("r1"),
                client.questions("r1"),
                client.retry("r1"),
            ):
                with pytest.raises(ServerRefused, match="with JSON of another form"):
                    await call
    plan = b'{"plan":{"goal":"x","tasks":5},"version":1,"etag":"1"}'
    async with lying(http(200, plan)) as client:
        with pytest.raises(ServerRefused, match="a plan that cannot be read"):
            await client.plan("r1")


async def test_a_redirect_is_refused_and_names_where_it_leads() -> None:
    async with lying(http(307, b"", more="Location: https://ops.example/x\r\n")) as client:
        for call in (client.runs(), client.wait("r1")):
            with pytest.raises(ServerRefused, match=r"a redirect to 'https://ops\.example/x'"):
                await call


async def test_facts_of_an_error_that_are_missing_leave_its_words() -> None:
    told = {"error": {"kind": "KeyConflict", "message": "the key is taken", "hint": "use another"}}
    async with lying(http(409, json.dumps(told).encode())) as client:
        with pytest.raises(ServerRefused, match="the key is taken; use another") as refused:
            await client.submit("Show one thing", key="once")
        assert (refused.value.status, refused.value.kind) == (409, "KeyConflict")


@pytest.mark.parametrize(
    ("reply", "fact"),
    [
        (http(200, b"null"), "application/json instead of a stream of events"),
        (http(204, b""), "instead of a stream of events"),
        (stream(b"data: junk\n\n"), "a stream of something else than JSON"),
        (stream(b"data: \xff\xfe\n\n"), "a stream of something else than JSON"),
        (stream(b"data: null\n\n"), "a stream of JSON of another form"),
        (stream(b'data: [{"x":' + DEEP + b"\n\n"), "nested too deep"),
        (stream(b'data: [{"kind":"RunFinished"}]\n\n'), "events without a number or a kind"),
        (stream(b'data: [{"kind":"x","seq":"1"}]\n\n'), "events without a number or a kind"),
    ],
)
async def test_a_stream_of_something_else_is_refused(reply: bytes, fact: str) -> None:
    async with lying(reply) as client:
        with pytest.raises(ServerRefused) as refused:
            await client.wait("r1")
        assert str(refused.value).startswith(client.url)
        assert fact in str(refused.value)


@pytest.mark.parametrize(
    ("reply", "fact"),
    [
        (b"", "cannot be reached: Server disconnected"),
        (b"\0\1\2", "cannot be reached: Bad status line"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "cannot be reached"),
        (stream(b": chargehand\n\n"), "before the run had ended"),
        (stream(b"event: bye\ndata: {}\n\n"), "before the run had ended"),
        (stream(b'event: x\ndata: {"kind":"RunFinished"}\n\n'), "before the run had ended"),
    ],
)
async def test_a_stream_that_tells_nothing_is_warned_of_and_given_up(
    reply: bytes, fact: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_follower, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(event_follower, "LONGEST_WAIT", 0.05)
    monkeypatch.setattr(slow_server_warnings, "LATE", 0.01)
    async with lying(reply) as client:
        with pytest.raises(ServerUnreachable) as lost:
            await client.wait("r1")
    assert fact in str(lost.value)
    assert "\n" not in str(lost.value)
    (said,) = [line.getMessage() for line in caplog.records if line.name == "chargehand"]
    assert said.startswith(f"server_waits for=the events of run r1 why={client.url} ")
    assert said.endswith("Ctrl-C ends this wait, not the run")


async def test_events_that_come_again_are_handed_on_once_and_reset_the_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_follower, "FIRST_WAIT", 0.0)
    first = b'id: 1\ndata: [{"kind":"RunRequested","seq":1}]\n\n'
    second = b'id: 2\ndata: [{"kind":"RunFinished","seq":2}]\n\nevent: end\ndata: {}\n\n'
    vain = [b""] * (event_follower.MOST_TRIES - 1)
    async with lying(*vain, stream(first), *vain, stream(first + second)) as client:
        assert [event["seq"] async for event in client.events("r1")] == [1, 2]


async def test_a_reply_that_is_late_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slow_server_warnings, "LATE", 0.0)
    is_said = asyncio.Event()

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_said.set()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_said.wait()
        writer.write(http(200, b'{"runs":[]}'))
        writer.close()

    handler = Said()
    logging.getLogger("chargehand").addHandler(handler)
    try:
        async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with Client(url, token="x" * 20) as client:
                assert await client.runs() == []
    finally:
        logging.getLogger("chargehand").removeHandler(handler)
    assert f"for=the reply to GET runs why={url} has not replied; the wait ends" in caplog.text


def test_a_token_file_that_is_no_file_or_too_large_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(2**30)
    for path, fact in (
        (tmp_path / "pipe", "is a pipe, not a regular file"),
        (Path("/dev/zero"), "is a device, not a regular file"),
        (tmp_path, "is a folder, not a regular file"),
        (large, "is larger than 1.0 MB"),
    ):
        with pytest.raises(UsageError, match=fact):
            find_token("http://127.0.0.1:8642", token_file=path)
        if path != large:
            with pytest.raises(UsageError, match=fact):
                Client("https://127.0.0.1:8642", token="x", ca_file=path)
