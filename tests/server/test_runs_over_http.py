"""Runs over HTTP: submit, follow, look, answer, cancel."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

import chargehand as ch
from chargehand.errors import QuestionTaken
from chargehand.journal.base import Mail
from chargehand.server.http.access_tokens import Scope
from chargehand.server.http.json_types import RunEntry
from chargehand.server.http.question_routes import AnswerBody, answer_text
from chargehand.server.http.run_directory import RunDirectory, RunStanding
from chargehand.testing import FakeClock, run_virtual
from tests.server.conftest import CREW, Served, asker, serving, task


async def frames(
    served: Served, run: str, after: int = 0, tokens: int = 0, **headers: str
) -> AsyncIterator[tuple[str, str, Any]]:
    """The frames of a run's stream: the event, the id and the data."""
    url = f"{served.url}/api/v1/runs/{run}/events?after={after}&tokens={tokens}"
    sent = {"Authorization": f"Bearer {served.token}", **headers}
    async with served.session.get(url, headers=sent) as reply:
        assert reply.status == 200
        assert reply.content_type == "text/event-stream"
        found: dict[str, str] = {}
        async for line in reply.content:
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                continue
            if text:
                name, _, value = text.partition(": ")
                found[name] = value
            elif found:
                yield (
                    found.get("event", ""),
                    found.get("id", ""),
                    msgspec.json.decode(found["data"]),
                )
                found = {}


def _counted(method: Any, name: str, calls: list[str]) -> Any:
    """The method, which notes its name for each call."""

    async def counted() -> Any:
        calls.append(name)
        return await method()

    return counted


async def test_a_plan_is_submitted_followed_and_its_result_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a"), task("b", "clerk", "a"))
        seen = [event async for kind, _, data in frames(served, run) if not kind for event in data]
        assert [each["seq"] for each in seen] == list(range(1, len(seen) + 1))
        assert seen[0]["kind"] == "RunRequested"
        assert seen[-1]["kind"] == "RunFinished"
        assert (await served.get(f"runs/{run}/result"))["answer"] == "did b"
        snapshot = await served.get(f"runs/{run}/snapshot")
        assert snapshot["seq"] == seen[-1]["seq"]
        assert snapshot["run"]["tasks"]["done"] == 2
        assert snapshot["critical_path"] == ["a", "b"]


async def test_a_snapshot_is_as_new_as_the_number_of_its_last_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends while its snapshot is made. It must not say `running` and leave out the end."""
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "asker"))
        await served.until(run, "waiting")
        looked = RunDirectory.questions
        looks = 0

        async def ends_meanwhile(self: RunDirectory, standing: RunStanding, **more: Any) -> Any:
            nonlocal looks
            looks += 1
            if looks == 1:
                (asked,) = await looked(self, standing, **more)
                await served.boss.answer(asked.id, "red")
                await served.until(run, "succeeded")
            return await looked(self, standing, **more)

        monkeypatch.setattr(RunDirectory, "questions", ends_meanwhile)
        snapshot = await served.get(f"runs/{run}/snapshot")
        assert looks > 2
        assert snapshot["run"]["state"] == "succeeded"
        assert [each["answered"]["text"] for each in snapshot["questions"]] == ["red"]


async def test_a_stream_resumes_behind_the_last_event(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a"))
        await served.until(run, "succeeded")
        whole = (await served.get(f"runs/{run}/log"))["events"]
        header: dict[str, Any] = {"Last-Event-ID": str(whole[2]["seq"])}
        heard = [
            e
            for kind, _, data in [f async for f in frames(served, run, **header)]
            if not kind
            for e in data
        ]
        assert heard == whole[3:]
        assert [f async for f in frames(served, run, after=whole[-1]["seq"])] == [("end", "", {})]


@pytest.mark.parametrize("choices", [("10", "5", "1"), ("1 week", "soon")])
def test_a_number_is_no_answer_where_the_choices_are_numbers(choices: tuple[str, ...]) -> None:
    """It could mean the first choice, or the choice of that name."""
    question = ch.Question(id="r1:a:1", text="How many?", choices=choices)
    with pytest.raises(ch.UsageError, match="give the choice as a text"):
        answer_text(question, AnswerBody(choice=1))
    assert answer_text(question, AnswerBody(choice=choices[0])) == choices[0]
    with pytest.raises(ch.UsageError, match="has no choice 3"):
        answer_text(ch.Question(id="q", text="?", choices=("a", "b")), AnswerBody(choice=3))


async def test_the_first_answer_counts_and_the_second_is_told_which(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "asker"))
        snapshot = await served.until(run, "waiting")
        (question,) = (await served.get("questions"))["questions"]
        assert question["id"] == snapshot["questions"][0]["id"]
        assert (await served.get("attention"))["questions"] == 1
        assert (
            await served.post(f"questions/{question['id']}/answer", {"choice": 1})
        ).status == 200
        late = await served.post(f"questions/{question['id']}/answer", {"choice": "blue"})
        assert late.status == 409
        assert late.json["text"] == "red"
        assert late.json["by"]
        await served.until(run, "succeeded")
        assert (await served.get(f"runs/{run}/result"))["answer"] == "painted red"


async def test_a_letter_that_cannot_be_read_hides_no_run_and_no_question(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "asker"))
        await served.until(run, "waiting")
        letter = Mail(key="answer gone:a:1", stream="gone", subject="answer", body=b"not JSON")
        await served.boss.journal.mail.post(letter)
        assert (await served.get("attention"))["questions"] == 1
        (question,) = (await served.get("questions"))["questions"]
        assert (await served.get("runs"))["runs"][0]["state"] == "waiting"
        assert (await served.get(f"runs/{run}/snapshot"))["questions"][0]["id"] == question["id"]
        answered = await served.post(f"questions/{question['id']}/answer", {"text": "red"})
        assert answered.status == 200
        await served.until(run, "succeeded")


async def test_the_count_of_questions_reads_the_mail_as_often_for_many_runs_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ch.Supervisor([asker], journal=tmp_path / "runs.db") as boss:
        plan = ch.Plan(
            goal="paint", tasks=[ch.Task(id="a", description="Ask for it", worker="asker")]
        )
        journal, reads = boss.journal, list[str]()
        for target, name in ((journal.mail, "unread"), (journal.processes, "alive")):
            monkeypatch.setattr(target, name, _counted(getattr(target, name), name, reads))
        counts = []
        for _ in range(3):
            await boss.run(plan, on_question="return")
            reads.clear()
            found = await RunDirectory(boss).overview("")
            counts.append((len(found.questions), sorted(reads)))
        once = ["alive", "unread", "unread"]  # the second for runs that were submitted
        assert counts == [(1, once), (2, once), (3, once)]


def test_a_list_says_the_speedup_that_the_trace_says() -> None:
    """With the work of nested runs, and without the wait for a person."""

    @ch.worker("slow", "Takes a second", capacity=10)
    async def slow(brief: ch.Brief) -> str:
        await asyncio.sleep(1)
        return brief.task.id

    @ch.worker("patient", "Asks a person")
    async def patient(brief: ch.Brief) -> str:
        return await brief.ask("May I?", patience=3600)

    def parts(_: object) -> ch.Plan:
        tasks = [ch.Task(id=f"t{n}", description="Do a part", worker="slow") for n in range(10)]
        return ch.Plan(goal="Do all parts", tasks=tasks)

    async def main() -> tuple[RunEntry, ch.Trace]:
        below = ch.Supervisor([slow], name="below", description="Leads", plan_for=parts)
        async with ch.Supervisor([below, patient], clock=FakeClock(), on_question="wait") as boss:
            first = ch.Task(id="a", description="Do it all", worker="below")
            then = ch.Task(id="b", description="Ask", worker="patient", needs=["a"])
            run = await boss.submit(ch.Plan(goal="Do and ask", tasks=[first, then]))
            await asyncio.sleep(1001)
            (question,) = (await boss.look(run.id)).questions
            await boss.answer(question.id, "yes")
            trace = (await run.wait()).trace
            (row,) = (await RunDirectory(boss).page("", states=[], q="", before="", limit=9)).runs
            return row, trace

    row, trace = run_virtual(main())
    assert row.wall == pytest.approx(1001, abs=0.1)
    assert row.idle == pytest.approx(1000, abs=0.1)
    assert row.speedup == round(trace.speedup, 3) == pytest.approx(10, rel=0.05)


async def test_an_answer_does_not_read_the_run_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "asker"))
        await served.until(run, "waiting")
        (question,) = (await served.get("questions"))["questions"]
        journal, begins = served.boss.journal, list[int]()
        read = journal.read

        def noted(stream: str, after: int = 0) -> Any:
            begins.append(after)
            return read(stream, after)

        monkeypatch.setattr(journal, "read", noted)
        answered = await served.post(f"questions/{question['id']}/answer", {"choice": 1})
        assert answered.status == 200
        assert 0 not in begins
        late = await served.post(f"questions/{question['id']}/answer", {"choice": 2})
        assert late.json["text"] == "red"
        assert 0 in begins  # only a refusal has to find out who was first


async def test_a_run_is_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "stuck"))
        await served.until(run, "running")
        assert (await served.post(f"runs/{run}/cancel", {"reason": "enough"})).status == 202
        await served.until(run, "cancelled")


async def test_the_record_names_the_token_that_paused_and_cancelled(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        token = served.web.tokens.add("ada", Scope.OPERATE)[1]
        run = await served.submit(task("a", "stuck"))
        await served.until(run, "running")
        for word in ("pause", "unpause", "cancel"):
            assert (await served.post(f"runs/{run}/{word}", token=token)).status == 202
        await served.until(run, "cancelled")
        log = (await served.get(f"runs/{run}/log"))["events"]
        kinds = ("RunPaused", "RunUnpaused", "CancelRequested")
        assert [(e["kind"], e["by"]) for e in log if e["kind"] in kinds] == [
            (kind, "ada") for kind in kinds
        ]


async def test_the_same_key_begins_one_run_and_another_plan_conflicts(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        first = await served.submit(task("a"), key="once")
        assert await served.submit(task("a"), key="once") == first
        other = {"plan": {"goal": "Another", "tasks": [task("z")]}}
        reply = await served.post("runs", other, headers={"Idempotency-Key": "once"})
        assert (reply.status, reply.kind) == (409, "KeyConflict")


async def test_a_run_is_limited_to_the_workers_that_were_chosen(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("t1"), workers=["clerk"])
        done = await served.until(run, "succeeded")
        assert done["run"]["workers"] == ["clerk"]
        plan = {"goal": "Show one thing", "tasks": [task("t1", "asker")]}
        refused = await served.post("runs", {"plan": plan, "workers": ["clerk"]})
        assert (refused.status, refused.kind) == (422, "PlanRefused")
        assert "asker" in refused.json["faults"][0]["message"]
        unknown = await served.post("runs", {"plan": plan, "workers": ["ann"]})
        assert unknown.status == 422
        assert "there are clerk, asker" in unknown.json["error"]["hint"]


async def test_open_streams_end_within_half_a_second_of_a_stop(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("a", "stuck"))
        await served.until(run, "running")
        streams = [frames(served, run) for _ in range(20)]
        for stream in streams:
            await anext(stream)
        loop = asyncio.get_running_loop()
        began = loop.time()
        served.web.stop()
        for stream in streams:
            *_, last = [frame async for frame in stream]
            assert last[0] == "bye"
        assert loop.time() - began < 0.5


@pytest.mark.parametrize("path", ["/", "/runs/x", "/new"])
async def test_pages_are_served_without_a_token_and_hold_no_data(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as served:
        reply = await served.call("GET", path, token="")
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in reply.headers["content-security-policy"]


async def test_what_models_write_is_streamed_on_request_and_the_answer_always(
    tmp_path: Path,
) -> None:
    writer = ch.Worker("writer", "Writes", model=ch.ScriptedModel(["one two three"]))
    model = ch.ScriptedModel([json.dumps({"answer": "four five six"}), "four five six"])
    boss = ch.Supervisor([writer, asker], journal=tmp_path / "runs.db", model=model)
    async with serving(tmp_path, boss=boss) as served:
        tasks = [task("q", "asker"), task("a", "writer", "q")]
        plan = {"goal": "Show one thing", "instruction": "One word", "tasks": tasks}
        run = (await served.post("runs", {"plan": plan})).json["id"]
        question = (await served.until(run, "waiting"))["questions"][0]["id"]
        loud, quiet = frames(served, run, tokens=1), frames(served, run)
        for stream in (loud, quiet):
            await anext(stream)
        while served.web.api.streams.count < 2 or not boss.text_streams.wants_tokens(run):
            await asyncio.sleep(0)
        await boss.answer(question, "red")
        heard, overheard = [each async for each in loud], [each async for each in quiet]
        written = "".join(told["text"] for kind, _, told in heard if kind == "token")
        assert written == "one two three"
        assert [id_ for kind, id_, _ in heard if kind in ("token", "answer")] == [""] * len(
            [kind for kind, _, _ in heard if kind in ("token", "answer")]
        )
        assert "token" not in {kind for kind, _, _ in overheard}
        assert "answer" in {kind for kind, _, _ in overheard}
        assert heard[-1] == overheard[-1] == ("end", "", {})


async def test_a_question_is_answered_by_http_and_by_the_command_line_and_the_first_counts(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        first, second = [await served.submit(task("a", "asker")) for _ in range(2)]
        asked = {}
        for run in (first, second):
            asked[run] = (await served.until(run, "waiting"))["questions"][0]["id"]
        other = ch.Supervisor([], journal=tmp_path / "runs.db")  # as `chargehand answer` has it
        assert (
            await served.post(f"questions/{asked[first]}/answer", {"text": "red"})
        ).status == 200
        with pytest.raises(QuestionTaken, match="'red'"):
            await other.answer(asked[first], "blue")
        await other.answer(asked[second], "blue", by="terminal")
        late = await served.post(f"questions/{asked[second]}/answer", {"text": "red"})
        assert (late.status, late.json["by"], late.json["text"]) == (409, "terminal", "blue")
        for run, colour in ((first, "red"), (second, "blue")):
            await served.until(run, "succeeded")
            assert (await served.get(f"runs/{run}/result"))["answer"] == f"painted {colour}"
        await other.close()


async def test_a_task_over_items_asks_while_they_do_and_its_estimate_counts_them(
    tmp_path: Path,
) -> None:
    limits = ch.Limits(parallel=1)
    boss = ch.Supervisor(list(CREW), journal=tmp_path / "runs.db", limits=limits)
    async with serving(tmp_path, boss=boss) as served:
        run = await served.submit(task("each", "asker", for_each=[1, 2, 3], expect=10.0))
        snapshot = await served.until(run, "waiting")
        (row,) = [row for row in snapshot["tasks"] if row["id"] == "each"]
        assert (row["state"], row["worker"]) == ("needs", "asker")
        assert snapshot["estimates"]["each"] == 30
        assert (await served.get(f"runs/{run}/plan"))["editable"] == []
        await served.post(f"runs/{run}/cancel", {})


async def test_a_task_is_expected_to_take_what_its_own_worker_took_before(tmp_path: Path) -> None:
    """Before, a task of a worker that had done nothing yet counted as long as those of the others."""
    async with serving(tmp_path) as served:
        await served.until(await served.submit(task("a")), "succeeded")
        run = await served.submit(
            task("ask", "asker"), task("known", "clerk", "ask"), task("b", "failing", "ask")
        )
        snapshot = await served.until(run, "waiting")
        assert set(snapshot["estimates"]) == {"known"}
        await served.post(f"runs/{run}/cancel", {})


async def test_the_calls_of_one_task_are_found_among_those_of_a_run(tmp_path: Path) -> None:
    @ch.worker("stepper", "Works in steps")
    async def stepper(brief: ch.Brief) -> str:
        for n in range(3):
            await brief.step(f"count {n}", asyncio.sleep, 0)
        return "counted"

    boss = ch.Supervisor([stepper], journal=tmp_path / "runs.db")
    async with serving(tmp_path, boss=boss) as served:
        run = await served.submit(task("a", "stepper"), task("b", "stepper"))
        await served.until(run, "succeeded")
        assert len((await served.get(f"runs/{run}/calls"))["calls"]) == 6
        found = await served.get(f"runs/{run}/calls?task=b&limit=2")
        assert [each["task"] for each in found["calls"]] == ["b", "b"]
        rest = await served.get(f"runs/{run}/calls?task=b&after={found['next']}")
        assert [each["task"] for each in rest["calls"]] == ["b"]


async def test_partial_runs_are_not_counted_as_failed(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        part = await served.submit(task("a"), task("b", "failing"))
        await served.until(part, "partial")
        failed = await served.submit(task("a", "failing"))
        await served.until(failed, "failed")
        assert (await served.get("attention"))["failed"] == 1
        for state, runs in (("failed", [failed]), ("partial", [part]), ("all", [failed, part])):
            found = await served.get(f"runs?state={state}&limit=1")
            assert [each["id"] for each in found["runs"]] == runs[:1]
            assert found["fitting"] == len(runs)
            assert (found["counts"]["failed"], found["counts"]["partial"]) == (1, 1)


async def test_a_filter_that_names_nothing_is_refused_with_what_it_may_name(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        done = await served.submit(task("a"))
        await served.until(done, "succeeded")
        failed = await served.submit(task("a", "failing"))
        await served.until(failed, "failed")
        for state, runs in (
            ("done", [done]),
            ("succeeded", [done]),
            ("ended", [failed, done]),
            ("done,failed", [failed, done]),
            ("submitted", []),
        ):
            found = await served.get(f"runs?state={state}")
            assert [each["id"] for each in found["runs"]] == runs, state
            assert (found["counts"]["done"], found["counts"]["ended"]) == (1, 2)
        reply = await served.call("GET", "runs?state=done,foo")
        assert (reply.status, reply.kind) == (422, "InvalidRequest")
        error = reply.json["error"]
        assert error["message"] == "state: 'foo' is not a state of a run"
        assert "needs, partial, failed, done, ended, submitted, planning" in error["hint"]
        reply = await served.call("GET", "runs?status=succeeded")
        assert (reply.status, reply.json["error"]["message"]) == (
            *(422, "'status' is not a parameter of this route"),
        )
        assert reply.json["error"]["hint"] == "it takes state, q, before, limit"
        reply = await served.call("GET", f"runs/{done}/cost?full=1")
        assert reply.json["error"]["hint"] == "it takes none"


async def test_a_page_begins_at_a_cursor_and_nowhere_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        for _ in range(2):
            await served.post("runs", {"plan": {"goal": "g", "tasks": [task("t")]}})
        first = await served.get("runs?limit=1")
        second = await served.get(f"runs?before={quote(first['next'])}")
        assert [each["id"] for each in second["runs"]] != [each["id"] for each in first["runs"]]
        assert len(second["runs"]) == 1
        for before in ("zzz", "aaa", "|", "9999", "~", "2026~r1", "zzz~r1"):
            reply = await served.call("GET", f"runs?before={quote(before)}")
            assert (reply.status, reply.kind) == (422, "InvalidRequest"), before


async def test_a_key_that_is_given_twice_is_a_fault_of_the_body(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        body = b'{"plan": {"goal": "g", "tasks": [{"id": "t", "id": "s", "description": "d", "worker": "clerk"}]}, "key": "a", "key": "b"}'
        reply = await served.call("POST", "runs", data=body)
        assert (reply.status, reply.kind) == (422, "InvalidBody")
        message = reply.json["error"]["message"]
        assert "the body: key: is given twice" in message
        assert "task 1 ('s'), id: is given twice" in message


async def test_a_body_with_a_field_that_is_not_known_is_refused_with_the_fields_that_are(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served:
        for path, body, hint in (
            ("questions/q/answer", {"answer": "red"}, "the body: text, choice, approve, arguments"),
            ("runs/r/steer", {}, "the body: note (required), key"),
            ("runs", {"limits": {"mony": 1}}, "limits: money, tokens, calls, time"),
        ):
            reply = await served.post(path, body)
            assert (reply.status, reply.kind) == (422, "InvalidBody")
            assert reply.json["error"]["hint"] == f"the fields of {hint}"


async def test_items_take_from_the_first_start_to_the_last_end_and_work_under_way_counts(
    tmp_path: Path,
) -> None:
    go_on = asyncio.Event()

    @ch.worker("slow", "Works until it may go on", capacity=3)
    async def slow(brief: ch.Brief) -> str:
        await go_on.wait()
        return "done"

    async with serving(tmp_path, crew=(*CREW, slow)) as served:
        run = await served.submit(task("each", "slow", for_each=["a", "b", "c"]))
        async with asyncio.timeout(20):  # three work at once, and none has finished
            while ((await served.get(f"runs/{run}/snapshot"))["run"]["speedup"] or 0) < 1.5:
                await asyncio.sleep(0)
        go_on.set()
        snapshot = await served.until(run, "succeeded")
        (row,) = (each for each in snapshot["tasks"] if each["id"] == "each")
        assert 0 < row["seconds"] <= snapshot["run"]["wall"]
        tried = (await served.get(f"runs/{run}/tasks/each"))["history"]
        named = {each["task"]: each.get("item") for each in tried}
        assert named == {"each[0]": '"a"', "each[1]": '"b"', "each[2]": '"c"', "each": None}
        compared = await served.get(f"compare?a={run}&b={run}")
        (same,) = (each for each in compared["tasks"] if each["task"] == "each")
        assert same["seconds"]["a"] == pytest.approx(row["seconds"], abs=0.001)


async def test_what_the_supervisor_does_for_a_task_is_told_in_words(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        run = await served.submit(task("each", for_each=["a", "b"]), task("last", "clerk", "each"))
        snapshot = await served.until(run, "succeeded")
        rows = {each["id"]: each for each in snapshot["tasks"]}
        assert rows["@items:each"]["description"] == "List the items of each"
        assert {row["worker"] for row in rows.values()} == {"clerk", "supervisor"}
        assert snapshot["critical_path"][-2:] == ["each", "last"]
        assert not any(each.startswith("@") for each in snapshot["critical_path"])
