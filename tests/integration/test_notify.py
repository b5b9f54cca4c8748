"""Notices: people hear of questions wherever they are, and no run waits for that."""

import asyncio
import json
import logging
import os
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

import chargehand as ch
from chargehand.errors import NoticeNotSent
from chargehand.notify import Command, Log, Notice, NoticeKind, Subscription, Webhook, is_genuine
from chargehand.notify import delivery as couriers
from chargehand.notify.open_notifier import open_notifier, open_notifiers
from chargehand.supervisor_factory import Choice, supervisor_for
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

SECRET = "a secret of the operator"
ALL = tuple(NoticeKind)
NOTICE = Notice(
    id="r1:t:1",
    kind=NoticeKind.QUESTION,
    run="r1",
    text="Which colour?\nred",
    at=datetime(2030, 1, 1, tzinfo=UTC),
    question="r1:t:1",
    choices=("red", "blue"),
    answer="chargehand answer r1:t:1 TEXT --journal runs.db",
)


class Heard:
    """A notifier that remembers what it was told."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.came = asyncio.Event()

    async def notify(self, notice: Notice) -> None:
        self.notices.append(notice)
        self.came.set()


class Hangs:
    async def notify(self, notice: Notice) -> None:
        await asyncio.Event().wait()


class Fails:
    def __init__(self, error: BaseException) -> None:
        self._error = error

    async def notify(self, notice: Notice) -> None:
        raise self._error


@ch.worker("asker", "Asks for a colour")
async def asker(brief: ch.Brief) -> str:
    return await brief.ask("Which colour?", choices=["red", "blue"])


@ch.worker("quick", "Is done at once")
async def quick(brief: ch.Brief) -> str:
    return "done"


ASKS = make_plan(make_task("t", "asker"))
DONE = make_plan(make_task("t", "quick"))


# Webhooks


class Server:
    """A host that answers with these statuses, one after another, and keeps what it was sent."""

    def __init__(self, *statuses: int, **headers: str) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.url = ""
        self.is_over = asyncio.Event()
        self._statuses = list(statuses)
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.read()))
        status = self._statuses.pop(0) if self._statuses else 200
        if status == 0:
            await self.is_over.wait()
            status = 200
        return web.Response(status=status, headers=self._headers)


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield server
    finally:
        server.is_over.set()
        await runner.cleanup()


def hook(server: Server, **more: Any) -> Webhook:
    return Webhook(server.url, backoff=timedelta(milliseconds=1), **more)


async def test_a_webhook_gets_the_notice_as_signed_json() -> None:
    async with serving(Server()) as server:
        await hook(server, secret=SECRET, headers={"Authorization": "Bearer x"}).notify(NOTICE)
    ((headers, body),) = server.requests
    assert msgspec.json.decode(body, type=Notice) == NOTICE
    assert headers["Idempotency-Key"] == NOTICE.id
    assert headers["Authorization"] == "Bearer x"
    assert is_genuine(body, headers["X-Chargehand-Signature"], SECRET)


async def test_a_signature_holds_for_this_body_this_secret_and_not_for_ever() -> None:
    async with serving(Server()) as server:
        await hook(server, secret=SECRET).notify(NOTICE)
    headers, body = server.requests[0]
    signature = headers["X-Chargehand-Signature"]
    assert not is_genuine(body + b" ", signature, SECRET)
    assert not is_genuine(body, signature, "another secret")
    assert not is_genuine(body, signature, "")
    assert not is_genuine(body, "", SECRET)
    assert not is_genuine(body, signature, SECRET, within=0)
    later = signature.replace("t=", "t=1")
    assert not is_genuine(body, later, SECRET), "the time is signed too"


async def test_without_a_secret_nothing_is_signed() -> None:
    async with serving(Server()) as server:
        await hook(server).notify(NOTICE)
    assert "X-Chargehand-Signature" not in server.requests[0][0]


async def test_a_webhook_that_is_busy_is_tried_again_with_the_same_key() -> None:
    async with serving(Server(503, 429, 500)) as server:
        await hook(server).notify(NOTICE)
    assert [headers["Idempotency-Key"] for headers, _ in server.requests] == [NOTICE.id] * 4


@pytest.mark.parametrize(
    ("status", "tries", "why"),
    [(400, 1, "answered 400"), (404, 1, "answered 404"), (503, 4, "answered 503")],
)
async def test_a_webhook_is_given_up_where_trying_again_cannot_help(
    status: int, tries: int, why: str
) -> None:
    async with serving(Server(*[status] * 9)) as server:
        with pytest.raises(NoticeNotSent, match=why):
            await hook(server).notify(NOTICE)
    assert len(server.requests) == tries


async def test_no_redirect_is_followed_wherever_it_leads() -> None:
    async with serving(Server()) as inside, serving(Server(307, Location=inside.url)) as server:
        with pytest.raises(NoticeNotSent, match="redirects are not followed"):
            await hook(server).notify(NOTICE)
    assert inside.requests == []


async def test_a_webhook_that_says_nothing_is_not_waited_for() -> None:
    async with serving(Server(0)) as server:
        hurried = Webhook(server.url, timeout=timedelta(milliseconds=50), retries=0)
        with pytest.raises(NoticeNotSent, match=r"did not answer within 0\.05 s"):
            await hurried.notify(NOTICE)


async def test_a_webhook_that_is_not_there_is_named_by_its_host_only() -> None:
    gone = Webhook("http://127.0.0.1:9/services/T000/secret-part", retries=0)
    with pytest.raises(NoticeNotSent, match=r"^webhook 127\.0\.0\.1 cannot be reached") as caught:
        await gone.notify(NOTICE)
    assert "secret-part" not in str(caught.value) + repr(gone)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.org/x", "needs a URL such as"),
        ("https://", "needs a URL such as"),
        ("example.org", "needs a URL such as"),
        ("https://example.org/a b", "needs a URL such as"),
        ("https://example.org:99999/", "cannot be read"),
        ("https://me:pass@example.org/", "put it into a header"),
        ("http://example.org/hook", "unencrypted"),
    ],
)
def test_a_webhook_with_an_unfit_url_is_refused_at_once(url: str, why: str) -> None:
    with pytest.raises(ch.UsageError, match=why):
        Webhook(url)


def test_plain_http_elsewhere_has_to_be_asked_for() -> None:
    assert repr(Webhook("http://example.org/hook", allow_http=True)) == "webhook example.org"


def test_a_header_with_a_line_break_is_refused() -> None:
    with pytest.raises(ch.UsageError, match="'X-A' holds a line break"):
        Webhook("https://example.org", headers={"X-A": "1\r\nX-B: 2"})


# Commands


def script(folder: Path, text: str) -> str:
    path = folder / "told"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def test_a_command_gets_the_notice_on_its_input_and_nothing_else(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import json, pathlib, sys\n"
        "told = {'argv': sys.argv[1:], 'notice': json.load(sys.stdin)}\n"
        "pathlib.Path(sys.argv[0] + '.json').write_text(json.dumps(told))\n",
    )
    await Command([program, "$(id); `id` && id"]).notify(NOTICE)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["argv"] == ["$(id); `id` && id"], "no shell has seen it"
    assert told["notice"] == json.loads(msgspec.json.encode(NOTICE))


async def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys; sys.exit('nobody is at home')")
    with pytest.raises(NoticeNotSent, match="ended with 1: nobody is at home"):
        await Command([program]).notify(NOTICE)


async def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(sys.argv[0] + '.pid').write_text(str(child.pid))\n"
        "time.sleep(600)\n",
    )
    with pytest.raises(NoticeNotSent, match=r"was killed after 1\.5 s"):
        await Command([program], timeout=timedelta(seconds=1.5)).notify(NOTICE)
    child = int((tmp_path / "told.pid").read_text())
    assert await_gone(child)


def await_gone(pid: int) -> bool:
    """Whether a process is gone, or dead and merely not buried yet, within a few seconds."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        os.sched_yield()
    return False


async def test_a_command_that_does_not_read_is_no_failure() -> None:
    big = msgspec.structs.replace(NOTICE, evidence="x" * 1_000_000)
    await Command(["true"]).notify(big)


def test_a_program_that_is_not_executable_is_not_said_to_be_absent(tmp_path: Path) -> None:
    program = tmp_path / "tell"
    program.write_text("echo told")
    with pytest.raises(ch.UsageError, match=f"{program} cannot notify: it is not executable"):
        Command([str(program)])


def test_a_program_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(ch.UsageError, match="no program 'no-such-program' to notify with"):
        Command(["no-such-program"])
    with pytest.raises(ch.UsageError, match="a list of words"):
        Command("true")


# The log, and words


async def test_the_log_gets_one_line_whatever_the_text(caplog: pytest.LogCaptureFixture) -> None:
    await Log().notify(NOTICE)
    (record,) = caplog.records
    line = record.getMessage()
    assert record.levelno == logging.WARNING
    assert "\n" not in line
    assert "question=r1:t:1" in line
    assert "chargehand answer r1:t:1 TEXT" in line


@pytest.mark.parametrize(
    ("words", "opened"),
    [
        ("log", "log"),
        ("webhook:https://example.org/hook?x=1", "webhook example.org"),
        ("command:true 'two words' three", "command true"),
    ],
)
def test_words_become_notifiers(words: str, opened: str) -> None:
    assert repr(open_notifier(words)) == opened


@pytest.mark.parametrize(
    "words", ["", "mail:me@example.org", "webhook:", "command:", "log:x", "command:a 'b"]
)
def test_words_that_are_no_notifier_are_refused(words: str) -> None:
    with pytest.raises(ch.UsageError, match=r"not a way to notify|cannot be told apart"):
        open_notifier(words)


def test_who_subscribes_to_nothing_hears_of_questions() -> None:
    heard = Heard()
    several = open_notifiers(["log", heard, Subscription(heard, ALL)])
    assert [of for _, of in several] == [{"question"}, {"question"}, set(ALL)]
    assert open_notifiers(heard) == [(heard, frozenset([NoticeKind.QUESTION]))]
    with pytest.raises(ch.UsageError, match="notices are sent for question, finished"):
        open_notifiers([Subscription("log", ("everything",))])  # type: ignore[arg-type]  # the fault
    with pytest.raises(ch.UsageError, match="7 cannot notify"):
        open_notifiers([7])  # type: ignore[list-item]  # the fault


async def test_words_sign_with_the_secret_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHARGEHAND_WEBHOOK_SECRET", SECRET)
    async with serving(Server()) as server:
        await open_notifier(f"webhook:{server.url}").notify(NOTICE)
    headers, body = server.requests[0]
    assert is_genuine(body, headers["X-Chargehand-Signature"], SECRET)


# From a run


async def test_a_question_is_told_with_all_that_is_needed_to_answer_it(tmp_path: Path) -> None:
    @ch.worker("painter", "Paints a wall")
    async def paint(brief: ch.Brief) -> str:
        hour = timedelta(hours=1)
        return await brief.ask("Which?", choices=["red", "blue"], default="red", patience=hour)

    heard, journal = Heard(), tmp_path / "my runs.db"
    async with ch.Supervisor([paint], journal=journal, notify=heard) as boss:
        run = await boss.submit(make_plan(make_task("wall", "painter"), goal="A wall"))
        await heard.came.wait()
        (notice,) = heard.notices
        (question,) = (await boss.look(run.id)).questions
        await boss.answer(notice.question, "blue")
        await run.wait()
    assert (notice.kind, notice.id, notice.run) == ("question", question.id, run.id)
    assert (notice.text, notice.task, notice.request) == ("Which?", "wall", "A wall")
    assert (notice.choices, notice.default) == (("red", "blue"), "red")
    assert notice.deadline_at == notice.at + timedelta(hours=1)
    assert notice.answer == f"chargehand answer {question.id} TEXT --journal '{journal}'"
    assert notice.show == f"chargehand show {run.id} --journal '{journal}'"
    assert len(heard.notices) == 1, "its end was not asked for"


async def test_of_a_journal_in_memory_no_command_is_told() -> None:
    heard = Heard()
    async with ch.Supervisor([asker], notify=[heard]) as boss:
        run = await boss.submit(ASKS)
        await heard.came.wait()
        await run.cancel()
    assert heard.notices[0].answer == heard.notices[0].show == ""


@pytest.mark.parametrize(
    ("plan", "limits", "kind", "status"),
    [
        (DONE, ch.Limits(), "finished", "succeeded"),
        (make_plan(make_task("t", "broken")), ch.Limits(), "failed", "failed"),
        (make_plan(make_task("t", "mind")), ch.Limits(calls=0), "budget", "failed"),
    ],
)
async def test_an_end_is_told_to_who_asked_for_it(
    plan: ch.Plan, limits: ch.Limits, kind: str, status: str
) -> None:
    @ch.worker("broken", "Fails")
    async def broken(brief: ch.Brief) -> None:
        raise PermissionError("no")

    mind = ch.Worker("mind", "Thinks", model=ch.ScriptedModel(["said"]))
    heard, unasked = Heard(), Heard()
    boss = ch.Supervisor(
        [quick, broken, mind], notify=[Subscription(heard, ALL), unasked], limits=limits
    )
    result = await boss.run(plan)
    (notice,) = heard.notices
    assert (notice.kind, notice.status, notice.id) == (kind, status, f"{result.id}:{status}")
    assert unasked.notices == []


async def test_a_finished_run_is_told_before_the_program_can_end() -> None:
    async with serving(Server()) as server:
        told = Subscription(Webhook(server.url), (NoticeKind.FINISHED,))
        await ch.Supervisor([quick], notify=[told]).run(DONE)
        assert len(server.requests) == 1


def test_a_notifier_that_hangs_holds_up_nothing() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        heard = Heard()
        notify = [Subscription(Hangs(), ALL), Subscription(heard, ALL)]
        async with ch.Supervisor([asker, quick], notify=notify, clock=FakeClock()) as boss:
            run = await boss.submit(ASKS)
            await heard.came.wait()
            await boss.answer(heard.notices[0].question, "red")
            await run.wait()
            worked = loop.time()
        return worked, loop.time()

    worked, ended = run_virtual(main())
    assert worked < 0.2
    assert worked + 5 <= ended < worked + 5.1, "what hangs has five seconds at the very end"


async def test_a_notifier_that_cancels_its_task_loses_that_notice_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What waits behind it is sent."""

    class CancelsFirst(Heard):
        is_first = True

        async def notify(self, notice: Notice) -> None:
            if self.is_first:
                self.is_first = False
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
            await super().notify(notice)

    heard = CancelsFirst()
    async with ch.Supervisor([asker], notify=heard) as boss:
        runs = [await boss.submit(ASKS), await boss.submit(ASKS)]
        await heard.came.wait()
        for run in runs:
            (question,) = (await boss.look(run.id)).questions
            await boss.answer(question.id, "red")
            assert (await run.wait()).status == "succeeded"
    assert len([r for r in caplog.records if "notice_not_sent" in r.getMessage()]) == 1


@pytest.mark.parametrize("kind", [RuntimeError, SystemExit, asyncio.CancelledError, BaseException])
async def test_a_notifier_that_fails_changes_nothing_and_is_logged(
    caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    heard = Heard()
    async with ch.Supervisor([asker], notify=[Fails(kind("the line is dead")), heard]) as boss:
        run = await boss.submit(ASKS)
        await heard.came.wait()
        question = heard.notices[0].question
        await boss.answer(question, "red")
        assert (await run.wait()).status == "succeeded"
    (line,) = [r.getMessage() for r in caplog.records if "notice_not_sent" in r.getMessage()]
    assert f"id={question}" in line
    assert "the line is dead" in line


async def test_too_many_notices_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(couriers, "MOST_WAITING", 3)
    courier = couriers.NoticeDelivery(Hangs(), frozenset(ALL))
    for number in range(6):
        courier.take(msgspec.structs.replace(NOTICE, id=str(number), question=str(number)))
    assert [each.id for each in courier._waiting] == ["3", "4", "5"]
    courier.take(msgspec.structs.replace(NOTICE, id="4"))
    courier.withdraw("r1", "4")
    courier.withdraw("another run")
    assert [each.id for each in courier._waiting] == ["3", "5"]
    await courier.settle(timedelta(0))
    assert courier._waiting == type(courier._waiting)()
    assert len([r for r in caplog.records if "notice_dropped" in r.getMessage()]) == 3


def nested(worker: Any, **more: Any) -> ch.Supervisor:
    return ch.Supervisor(
        [worker],
        name="below",
        plan_for=lambda _: make_plan(make_task("inner", worker.name)),
        **more,
    )


async def test_a_question_from_below_reaches_who_is_told_at_the_top(tmp_path: Path) -> None:
    heard, journal = Heard(), tmp_path / "runs.db"
    told = [Subscription(heard, ALL)]
    async with ch.Supervisor([nested(asker)], journal=journal, notify=told) as boss:
        run = await boss.submit(make_plan(make_task("t", "below")))
        await heard.came.wait()
        asked = heard.notices[0]
        assert asked.run != run.id
        assert asked.answer.endswith(f"TEXT --journal {journal}")
        await boss.answer(asked.question, "blue")
        assert (await run.wait()).output == "blue"
    assert [(each.kind, each.run == run.id) for each in heard.notices] == [
        ("question", False),
        ("finished", True),
    ], "only the run at the top is told to have ended"


async def test_a_supervisor_below_may_tell_others() -> None:
    top, own = Heard(), Heard()
    async with ch.Supervisor([nested(asker, notify=own)], notify=top) as boss:
        run = await boss.submit(make_plan(make_task("t", "below")))
        await own.came.wait()
        await run.cancel()
    assert (len(own.notices), len(top.notices)) == (1, 0)


@pytest.mark.parametrize("make", [lambda: asker, lambda: nested(asker)])
async def test_an_open_question_is_told_again_under_the_same_id_when_its_run_is_resumed(
    tmp_path: Path, make: Callable[[], Any]
) -> None:
    journal, worker = tmp_path / "runs.db", make()
    plan = make_plan(make_task("t", worker.name))
    first, second, third = Heard(), Heard(), Heard()
    async with ch.Supervisor([worker], journal=journal, notify=first) as boss:
        run = await boss.submit(plan)
        await first.came.wait()
        await boss.stop(timedelta(0))
    async with ch.Supervisor([worker], journal=journal, notify=second) as boss:
        going_on = asyncio.ensure_future(boss.resume(run.id))
        await second.came.wait()
        await boss.stop(timedelta(0))
        with pytest.raises(ch.RunInterrupted):
            await going_on
        await boss.answer(second.notices[0].question, "red")
    assert [each.id for each in first.notices] == [each.id for each in second.notices]
    async with ch.Supervisor([worker], journal=journal, notify=third) as boss:
        assert (await boss.resume(run.id)).output == "red"
    assert third.notices == [], "what was answered meanwhile is not asked again"


# From a crew file

CREW = """
[crew]
notify = ["log", {{ to = "{to}", of = ["{of}", "failed"] }}]

[[worker]]
name = "counter"
description = "Counts"
function = "work.py:count"
"""


def crew_in(folder: Path, to: str, of: str = "finished") -> ch.Supervisor:
    (folder / "work.py").write_text("def count(brief):\n    return 7\n")
    (folder / "crew.toml").write_text(CREW.format(to=to, of=of))
    choice = Choice(crew=str(folder / "crew.toml"), model="offline", journal=str(folder / "r.db"))
    return supervisor_for(choice, lambda _: None)


async def test_a_crew_file_says_who_is_told(tmp_path: Path) -> None:
    async with serving(Server()) as server, crew_in(tmp_path, f"webhook:{server.url}") as boss:
        result = await boss.run(make_plan(make_task("t", "counter")))
    ((_, body),) = server.requests
    notice = msgspec.json.decode(body, type=Notice)
    assert (notice.kind, notice.run, notice.status) == ("finished", result.id, "succeeded")


@pytest.mark.parametrize(
    ("to", "of", "why"),
    [
        (
            "mail:me",
            "finished",
            "crew.toml has 1 fault:\n  - notify: 'mail' is not a way to notify",
        ),
        ("log", "everything", "everything|question"),
    ],
)
def test_a_crew_file_with_a_fault_in_it_is_refused(
    tmp_path: Path, to: str, of: str, why: str
) -> None:
    with pytest.raises(ch.UsageError, match=why):
        crew_in(tmp_path, to, of)
