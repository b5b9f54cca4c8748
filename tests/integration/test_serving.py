"""Serving at the command line: submitted runs are seen at once, and `status` says who leads and who stands by."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import chargehand as ch
from chargehand.clock import SystemClock
from chargehand.errors import RosterMismatch
from chargehand.supervisor.crew_offers import servers_of
from tests.guide.conftest import make_plan, make_task
from tests.integration.test_cli_runs import chargehand, read_until, start, terminal

CREW = """
import asyncio, os
import chargehand as ch

@ch.worker("clerk", "Writes lines")
async def clerk(brief: ch.Brief) -> str:
    return f"did {brief.task.id}"

@ch.worker("slow", "Waits for a file")
async def slow(brief: ch.Brief) -> str:
    while not os.path.exists("go"):
        await brief.step("look", asyncio.sleep, 0.02, effect="pure")
    return f"did {brief.task.id} at last"

@ch.worker("asker", "Asks a person")
async def asker(brief: ch.Brief) -> str:
    return "painted " + await brief.ask("Which colour?", choices=["red", "blue"])

@ch.worker("smith", "Forges")
async def smith(brief: ch.Brief) -> str:
    return "forged"

boss = ch.Supervisor([clerk, slow, asker], parallel=1)
other = ch.Supervisor([smith], parallel=1)
"""
HERE = ("--crew", "crew.py:boss", "--journal", "runs.db")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "crew.py").write_text(CREW)
    for worker in ("clerk", "slow", "asker", "smith"):
        tasks = [{"id": "t0", "description": "Do the first thing", "worker": worker}]
        (tmp_path / f"{worker}.json").write_text(
            json.dumps({"goal": "Get it done", "tasks": tasks})
        )
    return tmp_path


def submitted(place: Path, worker: str, *more: str) -> str:
    crew = "other" if worker == "smith" else "boss"
    told = chargehand(
        place, "submit", "--plan", f"{worker}.json", "--crew", f"crew.py:{crew}", *more,
        "--journal", "runs.db",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


@contextmanager
def serving(place: Path, crew: str = "boss") -> Iterator["subprocess.Popen[str]"]:
    """A process that serves, from when it says so."""
    process = start(place, "serve", "--crew", f"crew.py:{crew}", "--journal", "runs.db")
    try:
        read_until(process, "serving")
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


def told(place: Path, command: str) -> list[dict[str, object]]:
    lines = chargehand(place, command, "--json", "--journal", "runs.db").stdout.splitlines()
    return [json.loads(line) for line in lines]


def servers(place: Path) -> list[dict[str, dict[str, object]]]:
    return [each for each in told(place, "status") if "serves" in each]  # type: ignore[misc]


def until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


def test_a_submitted_run_is_seen_and_cancelled_before_anybody_takes_it_up(place: Path) -> None:
    run = submitted(place, "clerk")
    assert [(each["run"], each["status"]) for each in told(place, "runs")] == [(run, "submitted")]
    (standing,) = told(place, "status")
    assert (standing["run"], standing["status"], standing["leader"]) == (run, "submitted", None)
    words = chargehand(place, "status", "--journal", "runs.db").stdout
    assert f"{run}  submitted" in words
    assert "no process serves this journal; start a server for it: chargehand serve --crew" in words
    shown = chargehand(place, "show", run[:6], "--journal", "runs.db").stdout
    assert f"run {run}: submitted" in shown
    assert "Do the first thing" in shown
    assert "it is waiting for a server to start it" in shown
    assert f"chargehand cancel {run} --journal runs.db" in shown
    cancelled = chargehand(place, "cancel", "last", "--journal", "runs.db")
    assert f"run {run} has ended: cancelled" in cancelled.stderr
    assert [each["status"] for each in told(place, "runs")] == ["cancelled"]
    trace = json.loads(chargehand(place, "trace", run, "--journal", "runs.db").stdout)
    assert trace["attempts"] == []
    with serving(place):
        other = submitted(place, "clerk")
        assert chargehand(place, "watch", other, "--journal", "runs.db").returncode == 0
        assert [each["status"] for each in told(place, "runs")] == ["succeeded", "cancelled"]


def test_watch_says_once_that_no_process_starts_a_submitted_run(place: Path) -> None:
    run = submitted(place, "clerk")
    watcher = start(place, "watch", run, "--journal", "runs.db")
    heard = read_until(watcher, "no process serves this journal")
    watcher.send_signal(signal.SIGINT)
    _, rest = watcher.communicate(timeout=20)
    assert (heard + rest).count("no process serves this journal") == 1
    assert f"follow it again with:  chargehand watch {run}" in rest
    assert "the run continues" not in rest


def test_a_submitted_run_that_nobody_takes_up_can_be_led_here(place: Path) -> None:
    run = submitted(place, "clerk")
    other = chargehand(place, "resume", run, "--crew", "crew.py:other", "--journal", "runs.db")
    assert other.returncode == 2
    assert "it needs clerk" in other.stderr
    led = chargehand(place, "resume", run, "--journal", "runs.db")
    assert (led.returncode, led.stdout) == (0, "did t0\n"), led.stderr


def test_status_says_who_leads_and_who_stands_by_and_since_when(place: Path) -> None:
    with serving(place) as first:
        run = submitted(place, "slow")
        until(lambda: told(place, "runs")[0]["status"] == "running")
        with serving(place) as second:
            standing, *rest = told(place, "status")
            leader = standing["leader"]
            assert isinstance(leader, dict)
            assert (leader["pid"], bool(leader["since"])) == (first.pid, True)
            leads = {each["serves"]["pid"]: each["leads"] for each in rest}  # type: ignore[index]
            assert leads == {first.pid: [run], second.pid: []}
            words = chargehand(place, "status", "--journal", "runs.db").stdout
            assert f"led by process {first.pid} on " in words
            assert f"leads {run}" in words
            assert "stands by" in words
            first.kill()
            first.wait(20)
            until(
                lambda: (told(place, "status")[0]["leader"] or {}).get("pid") == second.pid  # type: ignore[attr-defined]
            )
            assert [each["serves"]["pid"] for each in servers(place)] == [second.pid]
        # The second was killed too, and nobody is left.
        assert told(place, "runs")[0]["status"] == "interrupted"
        shown = chargehand(place, "show", run, "--journal", "runs.db").stdout
        assert "no process leads it; continue it with: chargehand resume" in shown


def test_runs_that_a_server_lacks_the_workers_for_are_named_and_never_taken(place: Path) -> None:
    run = submitted(place, "smith")
    with serving(place) as server:
        read_until(server, f"submission_not_taken run={run} reason=it needs smith")
        words = chargehand(place, "status", "--journal", "runs.db").stdout
        assert f"not started by process {server.pid} on " in words
        assert "it needs smith" in words
        done = submitted(place, "clerk")
        assert chargehand(place, "watch", done, "--journal", "runs.db").returncode == 0
        statuses = {each["run"]: each["status"] for each in told(place, "runs")}
        assert statuses == {run: "submitted", done: "succeeded"}
        with serving(place, "other"):
            assert chargehand(place, "watch", run, "--journal", "runs.db").stdout == "forged\n"


async def test_what_is_told_a_submitted_run_reaches_its_leader_before_it_starts_anything(
    tmp_path: Path,
) -> None:
    entered = asyncio.Event()

    @ch.worker("clerk", "Writes lines")
    async def clerk(brief: ch.Brief) -> str:
        entered.set()
        return "done"

    boss = ch.Supervisor([clerk], journal=str(tmp_path / "runs.db"))
    run = await boss.post(make_plan(make_task("t0", worker="clerk")))
    assert list((await boss.look(run)).tasks) == ["t0"]
    await boss.pause(run, "not yet")
    serving = asyncio.create_task(boss.serve())
    async for event in boss.watch(run):
        if isinstance(event, ch.events.RunPaused):
            break
    assert (await boss.look(run)).status.value == "paused"
    assert not entered.is_set()
    await boss.unpause(run)
    await asyncio.wait_for(entered.wait(), 20)
    await boss.stop()
    await serving
    await boss.close()


async def test_b4_a_run_posted_where_the_clock_is_ahead_does_not_begin_before_it_was_requested(
    tmp_path: Path,
) -> None:
    @ch.worker("clerk", "Writes lines")
    async def clerk(brief: ch.Brief) -> str:
        return "done"

    place, ahead = str(tmp_path / "runs.db"), SystemClock()
    ahead.not_before(ahead.now() + timedelta(hours=1))
    poster = ch.Supervisor([clerk], journal=place, clock=ahead)
    run = await poster.post(make_plan(make_task("t0", worker="clerk")))
    await poster.close()
    boss = ch.Supervisor([clerk], journal=place)
    serving = asyncio.create_task(boss.serve())
    times = [event.at async for event in boss.watch(run)]
    assert len(times) > 3
    assert times == sorted(times)
    await boss.stop()
    await serving
    await boss.close()


def test_a_server_that_says_that_it_serves_is_seen_by_other_processes(place: Path) -> None:
    """So that a run which is started next is handed over to it."""
    with serving(place) as process:
        assert [each["serves"]["pid"] for each in servers(place)] == [process.pid]


async def test_when_ready_is_called_once_the_journal_names_the_crew_that_serves(
    tmp_path: Path,
) -> None:
    @ch.worker("clerk", "Writes lines")
    async def clerk(brief: ch.Brief) -> str:
        return "done"

    boss, ready = ch.Supervisor([clerk], journal=str(tmp_path / "runs.db")), asyncio.Event()
    serving = asyncio.create_task(boss.serve(when_ready=ready.set))
    await asyncio.wait_for(ready.wait(), 20)
    reader = ch.Supervisor([], journal=str(tmp_path / "runs.db"))
    assert [each.offer.names for each in await servers_of(reader.journal)] == [("clerk",)]
    await reader.close()
    await boss.stop()
    await serving
    await boss.close()


async def test_cancelling_serve_ends_it_at_once_and_leaves_its_runs_to_others(
    tmp_path: Path,
) -> None:
    entered, forever = asyncio.Event(), asyncio.Event()

    @ch.worker("clerk", "Writes lines")
    async def clerk(brief: ch.Brief) -> str:
        entered.set()
        await forever.wait()
        return "done"

    async def serve_a_while(boss: ch.Supervisor) -> None:
        entered.clear()
        serving = asyncio.create_task(boss.serve())
        await asyncio.wait_for(entered.wait(), 20)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 10)

    first, second = (ch.Supervisor([clerk], journal=str(tmp_path / "runs.db")) for _ in range(2))
    run = await first.post(make_plan(make_task("t0", worker="clerk")))
    await serve_a_while(first)
    assert not any(each.offer for each in await second.journal.processes.alive())
    await first.close()
    await serve_a_while(second)
    leaders = [
        entry.event.node
        async for entry in second.journal.read(run)
        if isinstance(entry.event, ch.events.RunLed)
    ]
    assert len(set(leaders)) == 2
    await second.close()


async def test_a_run_that_is_led_here_is_not_taken_over_though_our_lease_was_late(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, forever, looks = asyncio.Event(), asyncio.Event(), asyncio.Queue[None]()

    @ch.worker("clerk", "Writes lines")
    async def clerk(brief: ch.Brief) -> str:
        entered.set()
        await forever.wait()
        return "done"

    boss = ch.Supervisor([clerk], journal=str(tmp_path / "runs.db"))
    run = await boss.post(make_plan(make_task("t0", worker="clerk")))

    async def abandoned() -> list[str]:
        looks.put_nowait(None)
        return [run] if entered.is_set() else []

    monkeypatch.setattr(boss.journal.leases, "abandoned", abandoned)
    serving = asyncio.create_task(boss.serve())
    await asyncio.wait_for(entered.wait(), 20)
    for _ in range(4):
        await asyncio.wait_for(looks.get(), 20)
    assert "run_taken_over" not in caplog.text
    forever.set()
    await boss.stop()
    await serving
    await boss.close()


def test_a_server_ends_at_sigterm_and_is_listed_no_longer(place: Path) -> None:
    with serving(place) as server:
        assert len(servers(place)) == 1
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
        assert servers(place) == []


def test_a_restarted_server_says_why_it_takes_a_run_over_and_answer_says_what_came_of_it(
    place: Path,
) -> None:
    with serving(place) as server:
        run = submitted(place, "asker")
        read_until(server, "waits for a person's answer")
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    with serving(place) as server:
        said = read_until(server, "waits for a person's answer")
        assert f"run_taken_over run={run}; the server that led it has stopped" in said
        assert "its question was answered" not in said
        process = f"process {server.pid}"
        answered = chargehand(place, "answer", run, "red", "--journal", "runs.db").stderr
    assert "the run has ended: succeeded" in answered or f"{process} on " in answered
    assert "takes over the run" not in answered  # this process leads it already


def leaders(place: Path, run: str) -> list[str]:
    trace = json.loads(chargehand(place, "trace", run, "--journal", "runs.db").stdout)
    return [each["node"] for each in trace["leaders"]]


def run_in(text: str) -> str:
    """The run that a command has named on its first line of progress."""
    return text.partition("run r")[2].partition(":")[0].join(["r", ""])


def test_run_hands_over_to_a_server_with_the_same_crew_and_says_so(place: Path) -> None:
    with serving(place) as server:
        (node,) = (each["serves"]["node"] for each in servers(place))
        done = chargehand(place, "run", "--plan", "clerk.json", *HERE)
        assert (done.returncode, done.stdout) == (0, "did t0\n"), done.stderr
        assert f"handed over to process {server.pid} on " in done.stderr
        assert "t0 done in" in done.stderr
        assert leaders(place, run_in(done.stderr)) == [node]
        as_json = chargehand(place, "run", "--plan", "clerk.json", "--json", *HERE).stdout
        assert json.loads(as_json.splitlines()[-1])["kind"] == "RunFinished"
        quiet = chargehand(place, "run", "--plan", "clerk.json", "--quiet", *HERE)
        assert (quiet.stdout, quiet.stderr) == ("did t0\n", "")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--here", *HERE), ""),
        (("--parallel", "2", "--crew", "crew.py:team", "--journal", "runs.db"), "--parallel"),
        (("--crew", "crew.py:team", "--journal", "runs.db", "--model", "written:other.toml"), "another model"),
        (("--crew", "crew.py:team", "--journal", "runs.db", "--files", "crew.py"), "other files"),
        (("--crew", "crew.py:wider", "--journal", "runs.db"), "another crew (smith is gone)"),
    ],
    ids=["here", "parallel", "model", "files", "crew"],
)  # fmt: skip
def test_run_leads_here_what_a_server_would_do_otherwise_and_says_why(
    place: Path, flags: tuple[str, ...], why: str
) -> None:
    more = "team = [clerk, slow, asker]\nwider = ch.Supervisor([clerk, slow, asker, smith])\n"
    (place / "crew.py").write_text(CREW + more)
    (place / "other.toml").write_text(
        'note = "by hand"\nrequest = "?"\n[[reply]]\nsay = "nothing"\n'
    )
    with serving(place, "team" if "crew.py:team" in flags else "boss"):
        done = chargehand(place, "run", "--plan", "clerk.json", *flags)
        assert (done.returncode, done.stdout) == (0, "did t0\n"), done.stderr
        assert "; to lead it here, use --here" not in done.stderr
        assert ("led here: " in done.stderr) is bool(why)
        assert why in done.stderr
        assert leaders(place, run_in(done.stderr)) != [
            each["serves"]["node"] for each in servers(place)
        ]


def test_a_question_of_a_run_that_was_handed_over_ends_the_following(place: Path) -> None:
    with serving(place):
        asked = chargehand(place, "run", "--plan", "asker.json", *HERE)
        assert asked.returncode == 4, asked.stderr
        run = run_in(asked.stderr)
        assert f"chargehand watch {run} --journal runs.db" in asked.stderr
        question = asked.stderr.partition("answer it:  chargehand answer ")[2].split()[0]
        chargehand(place, "answer", question, "red", "--journal", "runs.db")
        watched = chargehand(place, "watch", run, "--journal", "runs.db")  # nobody had to resume it
        assert (watched.returncode, watched.stdout) == (0, "painted red\n")


def test_a_question_of_a_run_that_was_handed_over_is_asked_at_the_terminal(place: Path) -> None:
    with serving(place):
        with terminal(place, "run", "--plan", "asker.json", *HERE) as screen:
            screen.read_until("Which colour?")
            screen.type("red\n")
            assert screen.read_all() == 0
        assert "handed over to process" in screen.shown
        assert "painted red" in screen.shown


def test_ctrl_c_ends_the_following_and_not_the_run(place: Path) -> None:
    with serving(place):
        tasks = [
            {"id": "first", "description": "Do the first thing", "worker": "clerk"},
            {"id": "t0", "description": "Do the rest", "worker": "slow", "needs": ["first"]},
        ]
        (place / "both.json").write_text(json.dumps({"goal": "Get it done", "tasks": tasks}))
        follower = start(place, "run", "--plan", "both.json", *HERE)
        heard = read_until(follower, "t0 started")
        follower.send_signal(signal.SIGINT)
        out, rest = follower.communicate(timeout=20)
        assert (follower.returncode, out) == (130, "")  # the answer is still to come
        assert "missing" not in rest
        run = run_in(heard)
        assert f"the run continues; follow it again with:  chargehand watch {run}" in rest
        assert told(place, "runs")[0]["status"] == "running"
        (place / "go").touch()
        assert chargehand(place, "watch", run, "--journal", "runs.db").stdout == "did t0 at last\n"


def test_who_follows_is_told_that_no_process_leads_the_run_any_more(place: Path) -> None:
    with serving(place) as server:
        follower = start(place, "run", "--plan", "slow.json", *HERE)
        heard = read_until(follower, "t0 started")
        server.kill()
        heard += read_until(follower, "is gone")
        assert f"continue it with:  chargehand resume {run_in(heard)} --crew crew.py:boss" in heard
        watcher = start(place, "watch", "last", "--journal", "runs.db")
        read_until(watcher, "t0 started")
        watcher.send_signal(signal.SIGINT)
        _, rest = watcher.communicate(timeout=20)
        assert "is gone; start a server" in rest
        assert "the run continues" not in rest
        assert f"follow it again with:  chargehand watch {run_in(heard)}" in rest
    with serving(place):
        (place / "go").touch()
        out, _ = follower.communicate(timeout=30)
        assert (follower.returncode, out) == (0, "did t0 at last\n")


def test_runs_nested_in_a_run_that_was_handed_over_are_shown_too(place: Path) -> None:
    inner = """
inner = ch.Supervisor(
    [clerk],
    name="clerk_office",
    description="Leads clerks",
    plan_for=lambda brief: ch.Plan(
        goal="below", tasks=[ch.Task(id="deep", description="Do the deep thing", worker="clerk")]
    ),
)
outer = ch.Supervisor([inner])
"""
    (place / "crew.py").write_text(CREW + inner)
    tasks = [{"id": "t0", "description": "Do the first thing", "worker": "clerk_office"}]
    (place / "plan.json").write_text(json.dumps({"goal": "Get it done", "tasks": tasks}))
    with serving(place, "outer"):
        flags = ("--crew", "crew.py:outer", "--journal", "runs.db")
        done = chargehand(place, "run", "--plan", "plan.json", *flags)
        assert done.returncode == 0, done.stderr
        assert "handed over to" in done.stderr
        assert "clerk_office › deep started by clerk" in done.stderr


def test_an_urgent_run_from_one_terminal_preempts_that_of_another(place: Path) -> None:
    """The server has one slot: it is given up for the urgent run, and taken again afterwards."""
    with serving(place):
        usual = submitted(place, "slow")
        first = start(place, "watch", usual, "--journal", "runs.db")
        read_until(first, "t0 started by slow")
        urgent = submitted(place, "clerk", "--priority", "9")
        second = chargehand(place, "watch", urgent, "--journal", "runs.db")
        assert (second.returncode, second.stdout) == (0, "did t0\n")
        read_until(first, "t0 stopped for now; it will continue from there later")
        read_until(first, "t0 started by slow, attempt 2")
        (place / "go").touch()
        out, _ = first.communicate(timeout=30)
        assert (first.returncode, out) == (0, "did t0 at last\n")
        ends = {each["run"]: each["status"] for each in told(place, "runs")}
        assert ends == {usual: "succeeded", urgent: "succeeded"}


def test_submit_says_when_nobody_can_take_the_run_up(place: Path) -> None:
    def said(worker: str, crew: str) -> str:
        flags = ("--crew", f"crew.py:{crew}", "--journal", "runs.db")
        done = chargehand(place, "submit", "--plan", f"{worker}.json", *flags)
        assert done.returncode == 0
        return done.stderr

    nobody = said("clerk", "boss")
    assert (
        "no process serves this journal; start a server for it: chargehand serve --crew" in nobody
    )
    with serving(place) as server:
        another = said("smith", "other")
        assert f"not started by process {server.pid} on " in another
        assert "it needs smith" in another
        assert "no other process serves this journal" in another
        fitting = said("clerk", "boss")
        assert "serves this journal" not in fitting
        assert "follow it:  chargehand watch r" in fitting


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("serve", "--crew", "nowhere.py:boss"), "nowhere.py"),
        (("serve", "--crew", "crew.py:nobody"), "nobody"),
        (("submit", "--plan", "clerk.json", "--crew", "crew.toml"), "crew.toml"),
        (("submit", "--plan", "smith.json", "--crew", "crew.py:boss"), "smith"),
        (("submit", "--crew", "crew.py:boss"), "give a REQUEST or --plan FILE"),
        (("watch", "r123"), "there is no journal at runs.db"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name_and_nothing_is_posted(
    place: Path, args: tuple[str, ...], words: str
) -> None:
    refused = chargehand(place, *args, "--journal", "runs.db")
    assert refused.returncode == 2, refused.stderr
    assert words in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (place / "runs.db").exists() or told(place, "runs") == []


@ch.worker("asker", "Asks before it goes on")
async def asker(brief: ch.Brief) -> str:
    return await brief.ask("Which city?", choices=["Bern", "Rome"])


async def _serve(boss: ch.Supervisor) -> "asyncio.Task[None]":
    ready = asyncio.Event()
    serving = asyncio.create_task(boss.serve(when_ready=ready.set))
    await asyncio.wait_for(ready.wait(), 20)
    return serving


@pytest.mark.parametrize("is_nested", [False, True])
async def test_a_run_that_returned_with_a_question_goes_on_at_a_server_once_it_is_answered(
    is_nested: bool, tmp_path: Path
) -> None:
    journal = tmp_path / "runs.db"

    def boss() -> ch.Supervisor:
        asks = make_plan(make_task("t", worker="asker"))
        team = ch.Supervisor([asker], name="team", description="Asks", plan_for=lambda _: asks)
        return ch.Supervisor([team if is_nested else asker], journal=journal)

    plan = make_plan(make_task("t", worker="team" if is_nested else "asker"))
    waiting = await boss().run(plan, on_question="return")
    (question,) = waiting.questions
    server = boss()
    serving = await _serve(server)
    reader = ch.Supervisor([], journal=journal)
    await reader.answer(question.id, "Rome", by="ann")
    result = await asyncio.wait_for(_ended(reader, waiting.id), 20)
    assert (result.status, result.output) == ("succeeded", "Rome")
    for each in (reader, server):
        await each.stop()
    await serving


async def _ended(boss: ch.Supervisor, run: str) -> ch.RunResult:
    while (result := await boss.look(run)).status in ("waiting", "running", "planning"):
        await boss.journal.mail.wait_changed()
    return result


async def test_a_resume_that_was_refused_does_not_keep_servers_from_a_run(tmp_path: Path) -> None:
    """Its process was killed; a changed crew must not lead it, and leaves it to those who may."""
    journal = tmp_path / "runs.db"
    script = KILLED.format(journal=str(journal))
    subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    (head,) = await ch.open_journal(journal).heads()

    @ch.worker("clerk", "Does something else")
    async def changed(brief: ch.Brief) -> str:
        return "changed"

    with pytest.raises(RosterMismatch):
        await ch.Supervisor([changed], journal=journal).resume(head.stream)

    @ch.worker("clerk", "Writes lines")
    async def clerk(brief: ch.Brief) -> str:
        return "done"

    server = ch.Supervisor([clerk], journal=journal)
    serving = await _serve(server)
    result = await asyncio.wait_for(_ended(server, head.stream), 20)
    assert result.output == "done"
    await server.stop()
    await serving


KILLED = """
import os
import chargehand as ch

@ch.worker("clerk", "Writes lines")
async def clerk(brief: ch.Brief) -> str:
    os.kill(os.getpid(), 9)

plan = ch.Plan(goal="Write", tasks=[ch.Task(id="t", description="Write a line", worker="clerk")])
ch.Supervisor([clerk], journal={journal!r}).run_sync(plan)
"""
