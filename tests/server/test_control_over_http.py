"""Control of runs over HTTP: by several servers on one journal, of runs that have ended, with a full disk."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import chargehand as ch
from chargehand.errors import JournalFull, UnknownQuestion
from chargehand.facts.events import Event, QuestionAnswered, RunRequested
from chargehand.journal.base import Mail, Position
from chargehand.journal.sqlite import SqliteJournal
from chargehand.runtime.command_inbox import why_closed
from chargehand.supervisor import run_control
from tests.server.conftest import CREW, Reply, Served, serving, task


@asynccontextmanager
async def two_servers(place: Path) -> AsyncIterator[tuple[Served, Served]]:
    """A server that leads what is submitted through it, and another on the same journal."""
    async with serving(place) as leader, serving(place) as other:
        yield leader, other


async def test_commands_take_effect_in_the_order_in_which_two_servers_accepted_them(
    tmp_path: Path,
) -> None:
    """The leader applies what another server has accepted before its own later command."""
    async with two_servers(tmp_path) as (leader, other):
        for _ in range(3):
            run = await leader.submit(task("a", "asker"))
            await leader.until(run, "waiting")
            assert (await other.post(f"runs/{run}/pause")).status == 202
            assert (await leader.post(f"runs/{run}/unpause")).status == 202
            events = (await leader.get(f"runs/{run}/log"))["events"]
            told = [each["kind"] for each in events if "paused" in each["kind"].lower()]
            assert told == ["RunPaused", "RunUnpaused"]
            (question,) = (await leader.get(f"runs/{run}/questions"))["questions"]
            first = await other.post(f"questions/{question['id']}/answer", {"text": "red"})
            assert first.status == 200
            second = await leader.post(f"questions/{question['id']}/answer", {"text": "blue"})
            assert (second.status, second.json["text"]) == (409, "red")
            await leader.until(run, "succeeded")


async def test_a_key_that_another_server_has_just_used_returns_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first server leads the run and has not written it yet when the second gets the same key."""
    is_led, is_asked = asyncio.Event(), asyncio.Event()

    class SlowJournal(SqliteJournal):
        async def append(self, stream: str, events: Sequence[Event], **how: Any) -> Position:
            if any(isinstance(each, RunRequested) for each in events):
                is_led.set()
                await is_asked.wait()
            return await super().append(stream, events, **how)

    journal = SlowJournal(tmp_path / "runs.db")
    boss = ch.Supervisor(list(CREW), journal=journal)
    async with serving(tmp_path, boss=boss) as first, serving(tmp_path) as second:
        leases = second.boss.journal.leases
        lead = leases.lead

        async def refused(*given: Any) -> int:
            try:
                return await lead(*given)
            finally:
                is_asked.set()

        monkeypatch.setattr(leases, "lead", refused)
        plan = {"goal": "Show one thing", "tasks": [task("a", "asker")]}
        body: dict[str, Any] = {"plan": plan, "key": "same"}
        async with asyncio.timeout(20):
            begun = asyncio.ensure_future(first.post("runs", body))
            await is_led.wait()
            again = await second.post("runs", body)
            assert again.status == 202, again
            assert again.json == (await begun).json
            assert (await second.post("runs", body)).json == again.json
            body["plan"]["tasks"] = [task("b")]
            other = await second.post("runs", body)
            assert (other.status, other.kind) == (409, "KeyConflict"), other
    await journal.close()


async def test_a_plan_is_changed_through_a_server_that_does_not_lead(tmp_path: Path) -> None:
    async with two_servers(tmp_path) as (leader, other):
        run = await leader.submit(task("a", "asker"), task("b", "clerk", "a"))
        await leader.until(run, "waiting")
        view = await other.get(f"runs/{run}/plan")
        for words in ("First change", "Second change"):
            plan = {**view["plan"], "tasks": [dict(each) for each in view["plan"]["tasks"]]}
            plan["tasks"][-1]["description"] = words
            reply = await other.call(
                "PUT", f"runs/{run}/plan", {"plan": plan}, headers={"If-Match": view["etag"]}
            )
            assert reply.status == 200, reply
            assert reply.json["version"] == view["version"] + 1
            assert reply.headers["etag"] == f'"{reply.json["version"]}"'
            assert reply.json["plan"]["tasks"][-1]["description"] == words
            assert reply.json["pending"] == ""
            view = reply.json


async def test_a_change_that_came_second_at_another_server_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both servers have read the same version; the leader makes its own change before the other's letter."""
    async with two_servers(tmp_path) as (leader, other):
        run = await leader.submit(task("a", "asker"), task("b", "clerk", "a"))
        await leader.until(run, "waiting")
        view = await other.get(f"runs/{run}/plan")
        mailbox = other.boss.journal.mail
        post, first = mailbox.post, []

        async def put(served: Served, words: str) -> Reply:
            plan = {**view["plan"], "tasks": [dict(each) for each in view["plan"]["tasks"]]}
            plan["tasks"][-1]["description"] = words
            match = {"If-Match": view["etag"]}
            return await served.call("PUT", f"runs/{run}/plan", {"plan": plan}, headers=match)

        async def post_late(mail: Mail) -> bool:
            first.append(await put(leader, "Do it as the first wants"))
            return await post(mail)

        monkeypatch.setattr(mailbox, "post", post_late)
        second = await put(other, "Do it as the second wants")
        assert [each.status for each in first] == [200], first
        assert (second.status, second.kind) == (409, "PlanChanged"), second
        assert second.json["current"]["version"] == 2
        made = [each["description"] for each in second.json["current"]["plan"]["tasks"]]
        assert made[-1] == "Do it as the first wants"


async def test_a_change_that_no_leader_has_taken_is_said_to_be_on_its_way(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "asker"), task("b", "clerk", "a"))
        await served.until(run, "waiting")
    async with serving(tmp_path, leads=False) as served:
        view = await served.get(f"runs/{run}/plan")
        replies = []
        for words in ("First change", "Second change"):
            plan = {**view["plan"], "tasks": [dict(each) for each in view["plan"]["tasks"]]}
            plan["tasks"][-1]["description"] = words
            match = {"If-Match": view["etag"]}
            replies.append(
                await served.call("PUT", f"runs/{run}/plan", {"plan": plan}, headers=match)
            )
        assert [each.status for each in replies] == [202, 409]
        assert replies[0].json["pending"].startswith("no process leads the run now")
        assert replies[1].kind == "PlanChanged"
        assert "on its way" in replies[1].json["error"]["message"]
        assert b"amend" not in replies[1].body
        assert (await served.post(f"runs/{run}/resume")).status == 202
        async with asyncio.timeout(20):
            while view["version"] != 2:
                view = await served.get(f"runs/{run}/plan")
        assert view["plan"]["tasks"][-1]["description"] == "First change"


async def test_a_stream_from_beyond_the_last_event_ends(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        ended = await served.submit(task("a"))
        last = (await served.until(ended, "succeeded"))["seq"]
        live = await served.submit(task("a", "asker"))
        await served.until(live, "waiting")
        for path, headers, end in (
            (f"runs/{ended}/events?after={last}", {}, b"event: end"),
            (f"runs/{ended}/events?after={last + 1}", {}, b"event: resync"),
            (f"runs/{live}/events", {"Last-Event-ID": "900"}, b"event: resync"),
        ):
            async with asyncio.timeout(10):
                reply = await served.call("GET", path, headers=headers)
            assert reply.body.strip().splitlines()[-2] == end, (path, reply.body)


async def test_a_run_that_has_ended_refuses_every_command_alike_and_stays_as_it_is(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a"))
        await served.until(run, "succeeded")
        for what, given in (
            ("pause", {}),
            ("unpause", {}),
            ("steer", {"note": "faster"}),
            ("budget", {"money": 5}),
            ("resume", {}),
        ):
            reply = await served.post(f"runs/{run}/{what}", given)
            assert (reply.status, reply.kind) == (409, "RunEnded"), what
            assert reply.json["state"] == "succeeded"
            assert "in a new run" in reply.json["error"]["hint"]
        for body in ({}, {"answer_now": True}):
            reply = await served.post(f"runs/{run}/cancel", body)
            assert (reply.status, reply.json) == (200, {"id": run, "state": "succeeded"})


class FullJournal(SqliteJournal):
    """A journal without room for events while `is_full`; its leases still find some."""

    is_full = False

    async def append(self, stream: str, events: Sequence[Event], **how: Any) -> Position:
        if self.is_full and events:
            raise JournalFull("its disk is full; make room")
        return await super().append(stream, events, **how)


async def test_a_full_disk_is_said_at_once_and_runs_go_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    journal = FullJournal(tmp_path / "runs.db")
    boss = ch.Supervisor(list(CREW), journal=journal)
    plan = {"plan": {"goal": "Show one thing", "tasks": [task("a")]}}
    async with serving(tmp_path, boss=boss) as served, asyncio.timeout(20):
        run = await served.submit(task("a", "asker"))
        (question,) = (await served.until(run, "waiting"))["questions"]
        journal.is_full = True
        reply = await served.post("runs", {**plan, "key": "again"})
        assert (reply.status, reply.kind) == (507, "JournalFull")
        answer = await served.post(f"questions/{question['id']}/answer", {"text": "red"})
        assert (answer.status, answer.kind) == (507, "JournalFull"), answer
        assert "takes effect when" in answer.json["error"]["hint"]
        late = await served.post(f"questions/{question['id']}/answer", {"text": "blue"})
        assert (late.status, late.kind) == (507, "JournalFull"), late
        assert (await served.get("health"))["journal"] == "cannot be written: JournalFull"
        for path, body in (("runs", plan), (f"runs/{run}/pause", {})):
            reply = await served.post(path, body)
            assert (reply.status, reply.kind) == (507, "JournalFull"), path
        journal.is_full = False
        done = await served.until(run, "succeeded")
        assert done["run"]["state"] == "succeeded"
        assert (await served.get(f"runs/{run}/result"))["answer"] == "painted red"
        assert (await served.get("health"))["journal"] == "ok"
        again = await served.post("runs", {**plan, "key": "again"})
        assert again.status == 202
        await served.until(again.json["id"], "succeeded")
        assert len((await served.get("runs"))["runs"]) == 2
    await journal.close()


async def test_the_first_command_on_a_full_disk_is_told_so(tmp_path: Path) -> None:
    """Nobody knows before it that the disk is full, so it finds out."""
    journal = FullJournal(tmp_path / "runs.db")
    boss = ch.Supervisor(list(CREW), journal=journal)
    async with serving(tmp_path, boss=boss) as served, asyncio.timeout(20):
        for what, body in (
            ("pause", {}),
            ("budget", {"tokens": 9_000}),
            ("cancel", {"answer_now": True}),
            ("cancel", {}),
        ):
            run = await served.submit(task("a", "asker"), limits={"tokens": 1_000})
            await served.until(run, "waiting")
            journal.is_full = True
            reply = await served.post(f"runs/{run}/{what}", body)
            assert (reply.status, reply.kind) == (507, "JournalFull"), (what, reply)
            journal.is_full = False
            async with asyncio.timeout(10):
                while (await served.get("health"))["journal"] != "ok":
                    pass
    await journal.close()


async def test_who_is_late_by_a_moment_is_told_who_was_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question is closed in memory, and its answer on its way to the disk, when the second answer comes."""
    is_taken, is_late_here, is_looked_up = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class SlowJournal(SqliteJournal):
        async def append(self, stream: str, events: Sequence[Event], **how: Any) -> Position:
            if any(isinstance(each, QuestionAnswered) for each in events):
                is_taken.set()
                await is_late_here.wait()
                with suppress(
                    TimeoutError
                ):  # the longest that a look into the journal may come too early
                    await asyncio.wait_for(is_looked_up.wait(), 0.5)
            return await super().append(stream, events, **how)

    look_up, closed = why_closed, run_control.RunControl.why_closed

    async def looked_up(journal: Any, question: str) -> UnknownQuestion:
        found = await look_up(journal, question)
        is_looked_up.set()
        return found

    async def late(self: Any, question: str) -> UnknownQuestion:
        is_late_here.set()
        return await closed(self, question)

    monkeypatch.setattr(run_control, "why_closed", looked_up)
    monkeypatch.setattr(run_control.RunControl, "why_closed", late)
    journal = SlowJournal(tmp_path / "runs.db")
    boss = ch.Supervisor(list(CREW), journal=journal)
    async with serving(tmp_path, boss=boss) as served, asyncio.timeout(20):
        run = await served.submit(task("a", "asker"))
        (question,) = (await served.until(run, "waiting"))["questions"]
        path = f"questions/{question['id']}/answer"
        first = asyncio.ensure_future(served.post(path, {"text": "red"}))
        await is_taken.wait()
        late_ones = [served.post(path, {"text": words}) for words in ("red", "blue")]
        for reply in await asyncio.gather(*late_ones):
            assert (reply.status, reply.json.get("text")) == (409, "red"), reply
            assert reply.json["by"]
            assert reply.json["at"] is not None
        assert (await first).status == 200
        await served.until(run, "succeeded")
    await journal.close()


async def test_retry_does_failed_items_again_and_says_if_nothing_has_failed(
    tmp_path: Path,
) -> None:
    """A task with `for_each` can be done although items failed: the rest of its results is kept."""
    tries: list[str] = []

    @ch.worker("picky", "Refuses one item the first time")
    async def picky(brief: ch.Brief) -> str:
        tries.append(brief.task.id)
        if brief.task.id == "each[1]" and tries.count("each[1]") == 1:
            raise ch.WorkerError("not this one", kind="denied")
        return "fine"

    async with serving(tmp_path, crew=(*CREW, picky)) as served:
        run = await served.submit(task("each", "picky", for_each=["a", "b", "c"]))
        snapshot = await served.until(run, "partial")
        assert snapshot["items"]["each"]["failed"] == 1
        (row,) = (each for each in snapshot["tasks"] if each["id"] == "each")
        (gap,) = row["gaps"]
        assert 'item 1 ("b")' in gap
        assert "not this one" in gap
        reply = await served.post(f"runs/{run}/retry")
        assert reply.status == 202, reply
        again = await served.until(reply.json["id"], "succeeded")
        assert "gaps" not in next(each for each in again["tasks"] if each["id"] == "each")
        assert sorted(tries) == ["each[0]", "each[1]", "each[1]", "each[2]"]
        nothing = await served.post(f"runs/{reply.json['id']}/retry")
        assert nothing.status == 422
        assert "has failed" in nothing.json["error"]["message"]
