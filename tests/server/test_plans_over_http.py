"""Plans over HTTP: checked, approved or rejected by a person, edited while they run."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.roles.board import Board
from chargehand.server.http import plan_routes
from chargehand.server.http.access_tokens import Scope
from chargehand.tools.files import files
from tests.server.conftest import CREW, Served, clerk, serving, task


def written(*tasks: dict[str, Any], goal: str = "Show one thing") -> str:
    """A plan as a model writes it."""
    full = [{"needs": [], "accept": "", "optional": False, **each} for each in tasks]
    return json.dumps({"goal": goal, "instruction": "", "strategy": "merge", "tasks": full})


def planned(id_: str, worker: str = "clerk", *needs: str) -> dict[str, Any]:
    words = f"Produce the result of {id_}"
    return {"id": id_, "description": words, "worker": worker, "needs": list(needs)}


def boss_with(place: Path, *replies: Any, crew: Any = CREW) -> ch.Supervisor:
    model = ch.ScriptedModel([*replies, ch.When("answer", "It is done."), *["It is done."] * 9])
    return ch.Supervisor(list(crew), journal=place / "runs.db", model=model, parallel=4)


async def asked(served: Served, **more: Any) -> str:
    reply = await served.post("runs", {"request": "Show one thing", "review_plan": True, **more})
    assert reply.status == 202, reply
    return str(reply.json["id"])


async def until(served: Served, path: str, holds: Callable[[Any], bool]) -> Any:
    """What this path returns, once it is as wanted."""
    signal = served.boss.journal.boards.signal
    while True:
        known = signal.count
        view = await served.get(path)
        if holds(view):
            return view
        async with asyncio.timeout(20):
            await signal.wait(since=known)


def proposed(view: Any) -> int:
    """How many new tasks wait for approval."""
    return len(view["review"]["plan"]["tasks"]) if view["review"] else 0


def states_in(snapshot: Any) -> dict[str, str]:
    return {each["id"]: each["state"] for each in snapshot["tasks"] if not each["system"]}


async def test_nothing_starts_before_a_person_has_approved_the_plan(tmp_path: Path) -> None:
    boss = boss_with(tmp_path, written(planned("t1"), planned("t2", "clerk", "t1")))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        snapshot = await served.until(run, "waiting")
        assert snapshot["questions"][0]["kind"] == "plan"
        view = await served.get(f"runs/{run}/plan")
        assert [each["id"] for each in view["plan"]["tasks"]] == ["t1", "t2"]
        assert view["review"]["is_change"] is False
        reply = await served.post(f"runs/{run}/plan/approve", {"version": view["etag"]})
        assert reply.status == 200, reply
        done = await served.until(run, "succeeded")
        assert [each["id"] for each in done["tasks"] if not each["system"]] == ["t1", "t2"]
        again = await served.post(f"runs/{run}/plan/approve")
        assert again.status == 409
        assert again.json["text"] == "approve"


async def test_a_draft_is_saved_and_what_is_approved_is_the_draft(tmp_path: Path) -> None:
    boss = boss_with(tmp_path, written(planned("t1")))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        await served.until(run, "waiting")
        view = await served.get(f"runs/{run}/plan")
        wanted = {**view["plan"], "tasks": [task("t1"), task("extra", "clerk", "t1")]}
        put = await served.call(
            "PUT", f"runs/{run}/plan", {"plan": wanted}, headers={"If-Match": view["etag"]}
        )
        assert put.status == 200, put
        late = await served.call(
            "PUT", f"runs/{run}/plan", {"plan": wanted}, headers={"If-Match": view["etag"]}
        )
        assert late.status == 409
        assert late.json["current"]["etag"] == put.json["etag"]
        assert (
            await served.post(f"runs/{run}/plan/approve", {"version": put.json["etag"]})
        ).status == 200
        done = await served.until(run, "succeeded")
        assert [each["id"] for each in done["tasks"] if not each["system"]] == ["t1", "extra"]


async def test_of_many_drafts_of_one_version_one_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have passed the check of If-Match before the first draft is written."""
    boss = boss_with(tmp_path, written(planned("t1")))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        await served.until(run, "waiting")
        view = await served.get(f"runs/{run}/plan")
        checked: list[Any] = []
        are_all_checked, is_one_saved = asyncio.Event(), asyncio.Event()
        check, find, write = plan_routes._refuse_stale, Board.find, Board.write

        def counted(*given: Any, **more: Any) -> None:
            check(*given, **more)
            checked.append(asyncio.current_task())
            if len(checked) == 5:
                are_all_checked.set()

        async def find_late(self: Board, *given: Any, **more: Any) -> Any:
            if (
                asyncio.current_task() in checked[1:]
            ):  # what it reads now is newer than what it checked
                await is_one_saved.wait()
            return await find(self, *given, **more)

        async def write_late(self: Board, *given: Any, **more: Any) -> Any:
            await are_all_checked.wait()
            written = await write(self, *given, **more)
            is_one_saved.set()
            return written

        monkeypatch.setattr(plan_routes, "_refuse_stale", counted)
        monkeypatch.setattr(Board, "find", find_late)
        monkeypatch.setattr(Board, "write", write_late)

        async def put(number: int) -> Any:
            wanted = {**view["plan"], "tasks": [task(f"n{number}")]}
            match = {"If-Match": view["etag"]}
            return await served.call("PUT", f"runs/{run}/plan", {"plan": wanted}, headers=match)

        async with asyncio.timeout(20):
            replies = await asyncio.gather(*map(put, range(5)))
        assert sorted(each.status for each in replies) == [200, 409, 409, 409, 409]
        (won,) = (each.json["review"]["draft"] for each in replies if each.status == 200)
        for each in replies:
            if each.status == 409:
                assert each.kind == "PlanChanged"
                assert each.json["current"]["review"]["draft"] == won


async def test_a_draft_that_comes_after_the_decision_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss = boss_with(tmp_path, written(planned("t1")))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        await served.until(run, "waiting")
        view = await served.get(f"runs/{run}/plan")
        write = Board.write

        async def write_late(self: Board, *given: Any, **more: Any) -> Any:
            assert (await served.post(f"runs/{run}/plan/approve")).status == 200
            return await write(self, *given, **more)

        monkeypatch.setattr(Board, "write", write_late)
        wanted = {**view["plan"], "tasks": [task("other")]}
        match = {"If-Match": view["etag"]}
        reply = await served.call("PUT", f"runs/{run}/plan", {"plan": wanted}, headers=match)
        assert (reply.status, reply.kind) == (409, "PlanChanged"), reply
        assert reply.json["current"]["review"] is None


async def test_a_note_has_the_plan_written_again_and_a_rejection_ends_the_run(
    tmp_path: Path,
) -> None:
    boss = boss_with(tmp_path, written(planned("t1")), written(planned("t1"), planned("t2")))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        await served.until(run, "waiting")
        first = (await served.get(f"runs/{run}/plan"))["review"]["question"]
        assert (
            await served.post(f"runs/{run}/plan/reject", {"note": "Do two things"})
        ).status == 200
        while True:
            await served.until(run, "waiting")
            review = (await served.get(f"runs/{run}/plan"))["review"]
            if review is not None and review["question"] != first:
                break
        assert len(review["plan"]["tasks"]) == 2
        assert (await served.post(f"runs/{run}/plan/reject")).status == 200
        done = await served.until(run, "failed")
        assert "a person rejected the plan" in done["tasks"][0]["error"]["message"]
        view = await served.get(f"runs/{run}/plan")
        assert (view["plan"], view["review"]) == (None, None)
        assert [each["id"] for each in view["refused"]["plan"]["tasks"]] == ["t1", "t2"]


async def test_an_edited_plan_with_faults_is_refused_with_all_of_them(tmp_path: Path) -> None:
    boss = boss_with(tmp_path, written(planned("t1")))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        await served.until(run, "waiting")
        wanted = {"goal": "x", "tasks": [task("a", "nobody"), task("b", "clerk", "missing")]}
        reply = await served.post(f"runs/{run}/plan/approve", {"plan": wanted})
        assert reply.status == 422
        assert {(each["task"], each["field"]) for each in reply.json["faults"]} == {
            ("a", "worker"),
            ("b", "needs"),
        }
        assert (await served.get(f"runs/{run}/plan"))["review"] is not None


async def test_after_a_failure_only_the_change_is_asked_about(tmp_path: Path) -> None:
    change = {
        "reason": "another way",
        "replaced": ["t1"],
        "tasks": [{"needs": [], "accept": "", "optional": False, **planned("t3")}],
    }
    plan = written(planned("t1", "failing"), planned("t2"))
    boss = boss_with(tmp_path, plan, ch.When("failed", json.dumps(change)))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        await served.until(run, "waiting")
        await served.post(f"runs/{run}/plan/approve")
        while True:
            view = await served.get(f"runs/{run}/plan")
            if view["review"] is not None and view["review"]["is_change"]:
                break
            await served.boss.journal.mail.wait_changed()
        assert [each["id"] for each in view["review"]["plan"]["tasks"]] == ["t3"]
        assert (await served.post(f"runs/{run}/plan/approve")).status == 200
        done = await served.until(run, "succeeded", "partial")
        states = {each["id"]: each["state"] for each in done["tasks"] if not each["system"]}
        assert states["t2"] == states["t3"] == "done"


async def test_a_change_is_written_again_and_what_has_ended_meanwhile_is_not_removed(
    tmp_path: Path,
) -> None:
    """A person steers and approves; while the change waits, the plan that was approved goes on."""

    def change(*tasks: dict[str, Any]) -> str:
        full = [{"accept": "", "optional": False, **each} for each in tasks]
        return json.dumps({"reason": "more", "replaced": [], "removed": ["t2"], "tasks": full})

    plan = written(planned("t1", "asker"), planned("t2", "clerk", "t1"))
    drafts = [change(planned("t3")), change(planned("t3"), planned("t4"))]
    boss = boss_with(tmp_path, plan, *(ch.When("has left a note", each) for each in drafts))
    async with serving(tmp_path, boss=boss) as served:
        run = await asked(served)
        await served.until(run, "waiting")
        await served.post(f"runs/{run}/plan/approve")
        await served.until(run, "waiting")
        assert (await served.post(f"runs/{run}/steer", {"note": "More"})).status == 202

        view = await until(served, f"runs/{run}/plan", lambda view: proposed(view) == 1)
        put = await served.call(
            "PUT", f"runs/{run}/plan", {"plan": view["plan"]}, headers={"If-Match": "*"}
        )
        assert (put.status, put.kind) == (422, "UsageError"), put
        assert "waits for approval" in put.json["error"]["message"]
        await served.post(f"runs/{run}/plan/reject", {"note": "Two things"})
        await until(served, f"runs/{run}/plan", lambda view: proposed(view) == 2)
        questions = (await served.get(f"runs/{run}/questions"))["questions"]
        (colour,) = (each["id"] for each in questions if each["kind"] == "question")
        await served.post(f"questions/{colour}/answer", {"choice": 1})
        await until(served, f"runs/{run}/snapshot", lambda view: states_in(view)["t2"] == "done")
        assert (await served.post(f"runs/{run}/plan/approve")).status == 200
        states = states_in(await served.until(run, "succeeded"))
        assert states == dict.fromkeys(("t1", "t2", "t3", "t4"), "done")


async def test_the_unstarted_part_of_a_running_plan_is_edited(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=CREW) as served:
        run = await served.submit(
            task("a", "asker"), task("b", "clerk", "a"), task("c", "clerk", "b"), task("d")
        )
        await served.until(run, "waiting")
        view = await served.get(f"runs/{run}/plan")
        assert view["editable"] == ["b", "c"]
        tasks = {each["id"]: each for each in view["plan"]["tasks"]}
        tasks["b"]["description"] = "Produce something else entirely"
        wanted = {**view["plan"], "tasks": [*tasks.values(), task("e", "clerk", "c")]}
        sent = {"If-Match": f'"{view["etag"]}"'}
        put = await served.call("PUT", f"runs/{run}/plan", {"plan": wanted}, headers=sent)
        assert put.status == 200, put
        assert put.json["renamed"] == {"b": "b.2", "c": "c.2"}
        assert put.json["version"] == 2
        stale = await served.call("PUT", f"runs/{run}/plan", {"plan": wanted}, headers=sent)
        assert stale.status == 409
        missing = await served.call("PUT", f"runs/{run}/plan", {"plan": wanted})
        assert missing.status == 428
        question = (await served.get("questions"))["questions"][0]["id"]
        await served.post(f"questions/{question}/answer", {"choice": 1})
        done = await served.until(run, "succeeded")
        states = {each["id"]: each["state"] for each in done["tasks"]}
        assert states == {
            "a": "done",
            "b": "cancelled",
            "c": "cancelled",
            "d": "done",
            "b.2": "done",
            "c.2": "done",
            "e": "done",
        }


async def test_what_was_started_cannot_be_edited(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[*CREW]) as served:
        run = await served.submit(task("a", "asker"), task("b", "clerk", "a"))
        await served.until(run, "waiting")
        view = await served.get(f"runs/{run}/plan")
        wanted = {**view["plan"], "tasks": [task("a", "clerk"), task("b", "clerk", "a")]}
        put = await served.call(
            "PUT", f"runs/{run}/plan", {"plan": wanted}, headers={"If-Match": "*"}
        )
        assert put.status == 422
        assert ("a", "started") in {(each["task"], each["kind"]) for each in put.json["faults"]}


async def test_a_plan_is_checked_without_being_run(tmp_path: Path) -> None:
    async with serving(tmp_path, crew=[clerk]) as served:
        plan = {"goal": "x", "tasks": [task("a"), task("b", "clerk", "a"), task("c", "clerk", "a")]}
        found = (await served.post("plan/check", {"plan": plan})).json
        assert found["faults"] == []
        assert found["totals"] == {"tasks": 3, "depth": 2, "width": 2, "estimate": None}
        plan["tasks"] = [task("a", "clerk", "b"), task("b", "clerk", "a")]
        assert [
            each["kind"]
            for each in (await served.post("plan/check", {"plan": plan})).json["faults"]
        ] == ["cycle"]
        plan["tasks"] = [task("a", for_each={"files": "*.txt"})]
        (fault,) = (await served.post("plan/check", {"plan": plan})).json["faults"]
        assert (fault["kind"], fault["field"]) == ("bad_for_each", "for_each")
        assert (await served.post("runs", {"plan": plan})).status == 422
        broken = (await served.post("plan/check", {"plan": {"tasks": 3}})).json
        assert broken["faults"][0]["kind"] == "not_a_plan"
        assert (await served.get("runs"))["runs"] == []


async def test_a_plan_that_names_a_missing_file_is_warned_of(tmp_path: Path) -> None:
    folder = tmp_path / "supply"
    folder.mkdir()
    (folder / "orders.csv").write_text("supplier,units\nTiller,40\n")
    reader = ch.Worker("reader", "Reads files", tools=files(folder), model=ch.ScriptedModel([]))
    wanted = {"id": "a", "worker": "reader", "description": "Add up the units in deliveries.csv"}
    async with serving(tmp_path, crew=[reader]) as served:
        body = {"plan": {"goal": "x", "tasks": [wanted]}}
        found = (await served.post("plan/check", body)).json
        assert found["faults"] == []
        (warning,) = found["warnings"]
        assert (warning["kind"], warning["field"]) == ("missing_file", "description")
        assert "there are: orders.csv" in warning["message"]
        looker = served.web.tokens.add("looker", Scope.READ)[1]
        shown = (await served.post("plan/check", body, token=looker)).json
        assert shown["warnings"] == []


async def test_a_plan_far_above_the_cap_is_checked_at_once(tmp_path: Path) -> None:
    """20,000 tasks in a chain; and 600 that each need all before them, the last one first."""
    chain = [task("t0"), *(task(f"t{n}", "clerk", f"t{n - 1}") for n in range(1, 20_000))]
    dense = [task(f"t{n}", "clerk", *(f"t{m}" for m in range(n))) for n in reversed(range(600))]
    async with serving(tmp_path) as served:
        for tasks in (chain, dense):
            begun = time.process_time()
            reply = await served.post("plan/check", {"plan": {"goal": "x", "tasks": tasks}})
            assert time.process_time() - begun < 1.5  # 0.4 s; it took 7 s
            assert [each["kind"] for each in reply.json["faults"]] == ["too_many_tasks"]
            assert reply.json["totals"]["depth"] == len(tasks)
            assert reply.json["totals"]["width"] == 1
