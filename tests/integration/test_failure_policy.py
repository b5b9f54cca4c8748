"""What is said to be done about failures is done, by a real supervisor; the same work is done once."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

import chargehand as ch
from chargehand.cli.find_run import FoundRun
from chargehand.cli.run_details import shown, shown_json
from chargehand.facts.events import PersonAsked
from chargehand.presentation.live_frame import line_text
from chargehand.supervisor_factory import Choice, supervisor_for
from chargehand.testing import FakeClock, run_virtual
from tests.guide.conftest import make_plan, make_task

CREW = """
[crew]
name = "press"
model = "offline"
on_failure = ["again", "ask"]

[[worker]]
name = "reader"
description = "Reads pages"
[worker.on_failure]
steps = ["again", "elsewhere:writer", "without"]
kinds = { logic = ["rewritten"] }
patience = "1h"

[[worker]]
name = "writer"
description = "Writes reports"
"""


@ch.worker("breaks", "Always fails")
async def breaks(brief: ch.Brief) -> None:
    raise ch.WorkerError(f"no luck with {brief.task.id}", kind="logic")


@ch.worker("writer", "Writes with what it has")
async def write(brief: ch.Brief) -> str:
    return f"without {', '.join(sorted(brief.missing))}" if brief.missing else "written"


def broken(*steps: str, **more: object) -> ch.Task:
    return make_task("broken", "breaks", on_failure=ch.OnFailure(steps), **more)


def test_a_task_that_fails_is_done_by_the_worker_that_its_policy_names() -> None:
    result = ch.Supervisor([breaks, write]).run_sync(make_plan(broken("again", "elsewhere:writer")))
    assert result.status == "succeeded"
    assert result.tasks["broken"].worker == "writer"
    assert [retry.how for retry in result.trace.retried] == ["afresh", "elsewhere"]


def test_what_needs_a_failed_task_is_told_what_is_missing_and_so_is_the_reader() -> None:
    report = make_task("report", "writer", "broken")
    boss = ch.Supervisor([breaks, write], on_failure=ch.OnFailure(("without",)))
    result = boss.run_sync(make_plan(make_task("broken", "breaks"), report))
    assert result.tasks["report"].output == "without broken"
    assert result.status == "partial"
    assert [gap.task for gap in result.answer.gaps] == ["broken"]
    assert result.trace.failed["broken"].endswith("(the run continues without it)")


def test_a_failed_task_that_everything_hangs_on_ends_the_run_with_what_there_is() -> None:
    async def story() -> ch.RunResult:
        @ch.worker("slow", "Takes an hour")
        async def slow(brief: ch.Brief) -> None:
            await asyncio.sleep(3600)

        boss = ch.Supervisor([breaks, write, slow], clock=FakeClock())
        tasks = [
            make_task("first", "writer"),
            make_task("long", "slow"),
            broken("again", "fail_run"),
        ]
        return await boss.run(make_plan(*tasks))

    result = run_virtual(story())
    assert result.status == "partial"
    assert result.reason == "broken failed"
    assert [halt.task for halt in result.trace.halts] == ["broken"]
    assert result.wall < timedelta(seconds=5)
    assert result.tasks["first"].output == "written"


@pytest.mark.parametrize(
    ("said", "status", "report"),
    [
        ("try again", "succeeded", "written"),
        ("go on without it", "partial", "without broken"),
        ("give up", "partial", None),
    ],
)
def test_a_person_decides_what_becomes_of_a_failed_task_over_a_restart(
    tmp_path: Path, said: str, status: str, report: str | None
) -> None:
    calls = []

    @ch.worker("flaky", "Works the second time")
    async def flaky(brief: ch.Brief) -> int:
        calls.append(brief.attempt)
        if len(calls) == 1:
            raise ch.WorkerError("not today", kind="denied")
        return 1

    def boss() -> ch.Supervisor:
        return ch.Supervisor([flaky, write], journal=tmp_path / "runs.db")

    policy = ch.OnFailure(("again", "ask"))
    plan = make_plan(
        make_task("broken", "flaky", on_failure=policy),
        make_task("report", "writer", "broken"),
        make_task("other", "writer"),
    )

    async def ask() -> str:
        async with boss() as first:
            asked = asyncio.Event()
            first.on(PersonAsked)(lambda *_: asked.set())
            run = await first.submit(plan)
            await asked.wait()
            await first.stop(timedelta(0))
            return run.id

    async def go_on(run: str) -> ch.RunResult:
        async with boss() as second:
            (question,) = (await second.look(run)).questions
            assert "denied: not today" in question.text
            assert question.choices == ("try again", "go on without it", "give up")
            await second.answer(question.id, said, by="me")
            result = await second.resume(run)
            assert [each.answer for each in result.trace.questions] == [said]
            return result

    result = asyncio.run(go_on(asyncio.run(ask())))
    assert result.status == status
    assert result.tasks["report"].output == report


def test_a_policy_that_hands_over_to_nobody_is_refused_before_anything_is_done() -> None:
    with pytest.raises(ch.UsageError, match="elsewhere:bob names no worker; there are breaks"):
        ch.Supervisor([breaks], on_failure=ch.OnFailure(("elsewhere:bob",)))
    with pytest.raises(ch.UsageError, match="on_failure of task 'broken': elsewhere:bob"):
        ch.Supervisor([breaks]).run_sync(make_plan(broken("elsewhere:bob")))


def test_a_crew_file_says_what_is_done_about_failures(tmp_path: Path) -> None:
    (tmp_path / "crew.toml").write_text(CREW)
    choice = Choice(crew=str(tmp_path / "crew.toml"), journal=str(tmp_path / "runs.db"))
    boss = supervisor_for(choice, lambda _: None)
    reader = boss.roster["reader"]
    assert getattr(reader, "on_failure", None) == ch.OnFailure(
        ("again", "elsewhere:writer", "without"), {"logic": ("rewritten",)}, timedelta(hours=1)
    )
    (tmp_path / "crew.toml").write_text(CREW.replace('"again", "ask"', '"sulk"'))
    with pytest.raises(ch.UsageError, match=r"\[crew\]: OnFailure: 'sulk' in steps is none of"):
        supervisor_for(choice, lambda _: None)


def test_show_tells_the_policy_of_what_is_not_done_in_words() -> None:
    result = ch.Supervisor([breaks, write]).run_sync(make_plan(broken("again", "without")))
    standing = FoundRun(result, "failed", [])
    told = "\n".join(map(line_text, shown(standing, "")))
    assert "If it fails: try again, then go on without it." in told
    assert '"on_failure":{"steps":["again","without"]}' in str(
        msgspec.json.encode(shown_json(standing))
    )


# the same work once


class Counter:
    """A worker that counts how often it is really called."""

    def __init__(self, version: str = "1", failures: int = 0) -> None:
        self.calls = 0
        self.failures = failures

        @ch.worker("counter", "Counts its calls", version=version)
        async def count(brief: ch.Brief) -> int:
            self.calls += 1
            call = self.calls
            await asyncio.sleep(10)
            if call <= self.failures:
                raise ch.WorkerError("not today", kind="denied")
            return call

        self.worker = count


def same(*ids: str) -> ch.Plan:
    return make_plan(*(ch.Task(id=id_, description="Count them", worker="counter") for id_ in ids))


def test_the_same_task_twice_at_a_time_is_done_once_and_the_trace_says_so() -> None:
    counter = Counter()
    boss = ch.Supervisor([counter.worker], clock=FakeClock())
    result = run_virtual(boss.run(same("a", "b", "c")))
    assert counter.calls == 1
    assert [task.output for task in result.tasks.values()] == [1, 1, 1]
    assert [span.reused for span in result.trace.attempts] == ["", result.id, result.id]
    assert result.wall == timedelta(seconds=10)


def test_two_runs_of_one_supervisor_share_what_is_the_same() -> None:
    counter = Counter()

    async def story() -> tuple[ch.RunResult, ch.RunResult]:
        boss = ch.Supervisor([counter.worker], clock=FakeClock())
        return await asyncio.gather(boss.run(same("a")), boss.run(same("b")))

    first, second = run_virtual(story())
    assert counter.calls == 1
    assert second.trace.attempts[0].reused == first.id


def test_whoever_waited_for_work_that_failed_does_it_himself() -> None:
    counter = Counter(failures=1)
    boss = ch.Supervisor([counter.worker], clock=FakeClock())
    result = run_virtual(boss.run(same("a", "b", "c")))
    assert counter.calls == 2
    assert [task.output for task in result.tasks.values()] == [None, 2, 2]


def test_whoever_waited_for_work_that_was_cancelled_does_it_himself() -> None:
    counter = Counter()

    async def story() -> ch.RunResult:
        boss = ch.Supervisor([counter.worker], clock=FakeClock())
        async with boss:
            first = await boss.submit(same("a"))
            second = await boss.submit(same("a"))
            await asyncio.sleep(5)
            await first.cancel()
            return await second.wait()

    result = run_virtual(story())
    assert counter.calls == 2
    assert result.tasks["a"].output == 2


def test_a_worker_that_promises_nothing_is_asked_each_time() -> None:
    counter = Counter(version="")
    boss = ch.Supervisor([counter.worker], clock=FakeClock())
    run_virtual(boss.run(same("a", "b", "c")))
    assert counter.calls == 3


def test_the_same_task_of_an_llm_worker_is_done_each_time() -> None:
    """Its version is for `reuse=` only."""
    model = ch.ScriptedModel(["one", "two"], latency=timedelta(seconds=10))
    boss = ch.Supervisor([ch.Worker("counter", "Counts", model=model)], clock=FakeClock())
    result = run_virtual(boss.run(same("a", "b")))
    assert sorted(str(task.output) for task in result.tasks.values()) == ["one", "two"]
    assert [span.reused for span in result.trace.attempts] == ["", ""]


# quorum


def guessing(**guesses: object) -> list[ch.FunctionWorker]:
    """Workers that each say one thing; an exception is raised."""

    def made(name: str, guess: object) -> ch.FunctionWorker:
        @ch.worker(name, f"Says {guess}")
        async def guesser(brief: ch.Brief) -> object:
            if isinstance(guess, Exception):
                raise guess
            return guess

        return guesser

    return [made(name, guess) for name, guess in guesses.items()]


def asked_of(workers: list[ch.FunctionWorker], agree: int) -> ch.RunResult:
    names = [worker.name for worker in workers]
    task = ch.Task(id="capital", description="Name the capital", worker=names[0])
    tasks = ch.quorum(task, agree, len(names), workers=names)
    report = make_task("report", "reporter", "capital")

    @ch.worker("reporter", "Reports")
    async def report_it(brief: ch.Brief) -> str:
        return f"It is {brief.inputs['capital']}"

    return ch.Supervisor([*workers, report_it, ch.vote]).run_sync(make_plan(*tasks, report))


def test_what_enough_workers_agree_on_is_the_result_whoever_else_fails() -> None:
    result = asked_of(guessing(a="Bonn", b="Berlin", c="berlin.", d=PermissionError("no")), 2)
    assert result.status == "succeeded"
    assert result.tasks["report"].output == "It is Berlin"


def test_a_quorum_that_is_not_reached_fails_once_and_keeps_all_answers() -> None:
    result = asked_of(guessing(a="Bonn", b="Berlin", c=PermissionError("no access")), 2)
    capital = result.tasks["capital"]
    assert (capital.state, capital.attempts) == ("failed", 1)
    assert 'capital.1 says "Bonn"; capital.2 says "Berlin"; capital.3 says nothing' in capital.why
    assert [result.tasks[f"capital.{n}"].output for n in (1, 2)] == ["Bonn", "Berlin"]
    assert result.tasks["report"].state == "skipped"


# stragglers


def test_a_straggler_is_overtaken_by_a_second_attempt() -> None:
    calls = []

    @ch.worker("fetcher", "Fetches pages, one of them from a sick server", version="1")
    async def fetch(brief: ch.Brief) -> str:
        calls.append(brief.task.id)
        is_stuck = brief.task.args["page"] == 7 and len(calls) <= 20
        await asyncio.sleep(600 if is_stuck else 2)
        return f"page {brief.task.args['page']}"

    tasks = [
        ch.Task(id=f"p{n}", description="Fetch", worker="fetcher", args={"page": n}, hedge=True)
        for n in range(20)
    ]
    result = run_virtual(ch.Supervisor([fetch], clock=FakeClock()).run(make_plan(*tasks)))
    assert result.status == "succeeded"
    assert result.tasks["p7"].output == "page 7"
    assert result.wall == timedelta(
        seconds=6
    )  # twice the usual two, and two for the second attempt
    assert [task for task in result.tasks if task.startswith("@")] == []
    assert calls.count("@hedge:p7:1") == 1


def test_what_must_not_be_done_twice_cannot_be_hedged() -> None:
    @ch.tool(effect="once")
    async def send(text: str) -> str:
        """Send a text.

        Args:
            text: what to send
        """
        return text

    sender = ch.Worker("sender", "Sends things", tools=[send])
    task = make_task("a", "sender", hedge=True)
    with pytest.raises(ch.UsageError, match="hedge=True is for work that may be done twice"):
        ch.Supervisor([sender], model=ch.ScriptedModel([])).run_sync(make_plan(task))
