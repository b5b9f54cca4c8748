"""The chaos kit that users get in `chargehand.testing`: each fault is real, and bad use is refused."""

import asyncio
import copy
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import chargehand as ch
from chargehand import testing as kit
from chargehand.errors import JournalBusy, UsageError
from chargehand.facts.events import AttemptLost
from chargehand.journal.sqlite import SqliteJournal
from chargehand.models.base import ModelRequest, ToolCall, user
from chargehand.testing.fault_plan import FaultSchedule

ROOT = Path(__file__).parents[2]


@ch.worker("clerk", "Does two steps")
async def clerk(brief: ch.Brief) -> str:
    one = await brief.step("one", lambda: "a", effect="pure")
    return f"{one}{await brief.step('two', lambda: 'b', effect='pure')}"


@ch.worker("plain", "Works in a thread")
def plain(brief: ch.Brief) -> str:
    return "done"


def plan_for(*workers: str) -> ch.Plan:
    tasks = [ch.Task(id=name, description="Do it", worker=name) for name in workers]
    return ch.Plan(goal="Work", tasks=tasks)


def run(*workers: object, **options: object) -> ch.RunResult:
    async def work() -> ch.RunResult:
        boss = ch.Supervisor(workers, clock=kit.FakeClock(), **options)  # type: ignore[arg-type]  # as given
        return await boss.run(plan_for(*(worker.name for worker in boss.roster)))

    return kit.run_virtual(work())


def test_the_test_file_of_the_docs_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    for name in ("crew.py", "test_crew.py"):
        found = re.search(rf"```python\n# {name}\n(.*?)```", page, re.DOTALL)
        assert found is not None
        (tmp_path / name).write_text(found[1], "utf-8")
    lines = [line for line in (tmp_path / "test_crew.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 40
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "6 passed" in done.stdout, done.stdout


# Model calls


@pytest.mark.parametrize("fault", [fault for fault in kit.FAULTS if fault != "bad json"])
@pytest.mark.parametrize("is_http", [True, False])
def test_a_fault_of_a_call_is_tried_again(fault: str, is_http: bool) -> None:
    if is_http:
        with kit.FakeProvider(["It is 5."], faults={1: fault}, patience=0.2) as provider:
            worker = ch.Worker("w", "Answers", model=provider.model)
            result = ch.Supervisor([worker]).run_sync(plan_for("w"))
            struck, calls = provider.struck, provider.calls
    else:
        model = kit.FaultyModel(ch.ScriptedModel(["It is 5."]), faults={1: fault})
        result = run(ch.Worker("w", "Answers", model=model))
        struck, calls = model.struck, model.calls
    kit.assert_succeeded(result)
    assert result.output == "It is 5."
    assert struck == {1: fault}
    assert calls == 2


@pytest.mark.parametrize("is_http", [True, False])
def test_broken_tool_arguments_go_back_to_the_model(is_http: bool) -> None:
    @ch.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    good = ToolCall("1", "add", '{"a": 2, "b": 3}')
    replies: list[str | ToolCall] = [good, ToolCall("2", "add", '{"a": 2, "b": 3}'), "It is 5."]
    if is_http:
        with kit.FakeProvider(replies, faults={1: "bad json"}) as provider:
            worker = ch.Worker("w", "Adds", tools=[add], model=provider.model)
            result = ch.Supervisor([worker]).run_sync(plan_for("w"))
            assert len(provider.requests) == 3
    else:
        model = kit.FaultyModel(ch.ScriptedModel(replies), faults={1: "bad json"})
        result = run(ch.Worker("w", "Adds", tools=[add], model=model))
    assert result.output == "It is 5."


def test_a_429_asks_for_the_wait_that_was_chosen() -> None:
    model = kit.FaultyModel(ch.ScriptedModel([]), faults={1: "429"}, retry_after=0.25)
    with pytest.raises(ch.errors.ModelBusy) as busy:
        kit.run_virtual(model.ask(ModelRequest(turns=(user("go"),))))
    assert busy.value.retry_after == timedelta(seconds=0.25)


def test_a_stream_that_is_cut_gives_pieces_and_no_end() -> None:
    model = kit.FaultyModel(ch.ScriptedModel(["one two", "three"]), faults={1: "cut stream"})

    async def look() -> list[object]:
        request = ModelRequest(turns=(user("go"),))
        cut = model.stream(request)
        pieces: list[object] = [await anext(cut), await anext(cut)]
        with pytest.raises(ch.errors.ModelGarbled, match="broke off"):
            await anext(cut)
        return [*pieces, *[piece async for piece in model.stream(request)]]

    pieces = kit.run_virtual(look())
    assert pieces[:3] == ["one ", "two", "three"]
    assert len(pieces) == 4


def test_a_provider_says_when_its_replies_are_used_up() -> None:
    with kit.FakeProvider([]) as provider:
        worker = ch.Worker("w", "Answers", model=provider.model)
        result = ch.Supervisor([worker]).run_sync(plan_for("w"))
    assert result.tasks["w"].error is not None
    assert "no reply left" in result.tasks["w"].error.message


def test_replies_may_be_made_from_the_request() -> None:
    def reply(body: dict[str, object]) -> str:
        return f"model {body['model']}"

    with kit.FakeProvider(reply) as provider:
        worker = ch.Worker("w", "Answers", model=provider.model)
        assert ch.Supervisor([worker]).run_sync(plan_for("w")).output == "model test"
        assert provider.environment["OPENAI_BASE_URL"] == provider.url


def test_faults_at_random_are_the_same_for_the_same_seed() -> None:
    def struck(seed: int) -> dict[int, str]:
        schedule = FaultSchedule(kit.at_random("429", "500", rate=0.5, seed=seed))
        for _ in range(100):
            schedule.next_fault()
        return schedule.struck

    assert struck(1) == struck(1) != struck(2)
    assert 30 < len(struck(1)) < 70
    assert set(struck(1).values()) == {"429", "500"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kit.FakeProvider([], faults={1: "418"}), "is not a fault"),
        (lambda: kit.FakeProvider([], faults={1: "cut"}), "did you mean 'cut stream'"),
        (lambda: kit.FakeProvider([], faults={0: "429"}), "number of a call"),
        (lambda: kit.FakeProvider([], faults=cast("Any", ["429"])), "not a plan of faults"),
        (lambda: kit.FakeProvider("hello"), "replies are a list"),
        (lambda: kit.FakeProvider([]).model, "not running"),
        (lambda: kit.first(0, "429"), "calls"),
        (lambda: kit.first(3), "names no fault"),
        (lambda: kit.at_random(rate=2), "rate"),
        (lambda: kit.dies(clerk, at_step=0), "at_step"),
        (lambda: kit.slow(clerk, 0), "seconds"),
        (lambda: kit.fails(clerk, cast("Any", "oh no")), "not an exception"),
        (lambda: kit.fails(cast("Any", "clerk")), "not a worker"),
        (lambda: kit.hangs(ch.worker("p", "P", process=True)(print)), "process of its own"),
        (lambda: kit.kill_and_resume(at_steps=[1]), "runs nothing"),
        (lambda: kit.kill_and_resume("crew.py"), "say when"),
        (lambda: kit.kill_and_resume("crew.py", at_steps=[0]), "at least 1|1"),
        (lambda: kit.kill_and_resume("nowhere.py", at_steps=[1]), "there is no script"),
        (lambda: kit.LosingJournal(at_write=0), "at_write"),
    ],
)
def test_bad_use_is_refused_by_name(make: object, words: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=words):
        make()


def test_a_broken_worker_can_be_copied_and_shown_even_if_it_is_refused() -> None:
    broken = kit.slow(clerk, 1)
    assert repr(copy.copy(broken)) == repr(broken)
    with pytest.raises(UsageError) as refused:
        kit.hangs(ch.worker("p", "P", process=True)(print))
    assert repr(refused.traceback[-1].locals["self"]).startswith("<broken ")


# Workers


def test_a_worker_that_dies_goes_on_after_the_step_that_it_had_done() -> None:
    journal = ch.open_journal(None)
    result = run(kit.dies(clerk, at_step=1), journal=journal)
    assert result.output == "ab"

    async def events() -> list[object]:
        return [entry.event async for entry in journal.read(result.id)]

    told = asyncio.run(events())
    assert [event for event in told if isinstance(event, AttemptLost)]
    started = [event for event in told if type(event).__name__ == "StepStarted"]
    assert len(started) == 2  # the first step was not repeated


def test_a_worker_dies_so_many_times() -> None:
    result = run(kit.dies(clerk, at_step=1, times=2))
    kit.assert_succeeded(result)
    assert result.tasks["clerk"].attempts == 3


@pytest.mark.parametrize("broken", [kit.dies(clerk, at_step=3), kit.dies(plain, at_step=1)])
def test_a_worker_that_should_have_died_and_did_not_fails_the_test(broken: Any) -> None:
    """Otherwise a test would pass without its fault."""
    with pytest.raises(AssertionError, match=r"dies\(at_step=\d\) did not strike"):
        kit.assert_succeeded(run(broken))


def test_attempts_that_fail_are_counted_for_each_task() -> None:
    async def work() -> ch.RunResult:
        tasks = [ch.Task(id=f"t{n}", description=f"Do it {n}", worker="clerk") for n in range(3)]
        boss = ch.Supervisor([kit.fails(clerk, attempts=1)], clock=kit.FakeClock())
        return await boss.run(ch.Plan(goal="Work", tasks=tasks))

    result = kit.run_virtual(work())
    assert [task.attempts for task in result.tasks.values()] == [2, 2, 2]


@pytest.mark.parametrize("worker", [clerk, plain])
def test_a_worker_fails_so_many_times(worker: object) -> None:
    broken = kit.fails(worker, ValueError("odd"), attempts=1)  # type: ignore[arg-type]  # both are workers
    assert run(broken).status == "succeeded"
    gone = run(kit.fails(worker))  # type: ignore[arg-type]  # both are workers
    assert gone.status == "failed"
    with pytest.raises(AssertionError, match="as planned"):
        kit.assert_succeeded(gone)


def test_a_slow_worker_takes_its_time() -> None:
    assert run(kit.slow(clerk, 3600), limits=ch.Limits(active=7200)).wall == timedelta(hours=1)
    assert run(kit.slow(plain, 0.01)).status == "succeeded"


@pytest.mark.parametrize("worker", [clerk, plain])
def test_a_worker_that_hangs_is_ended_by_its_deadline(worker: object) -> None:
    result = run(kit.hangs(worker), limits=ch.Limits(deadline=60))  # type: ignore[arg-type]  # both are workers
    assert result.status == "failed"


def test_a_worker_below_is_named_by_its_path() -> None:
    team = ch.Supervisor([clerk], name="team", description="Clerks")
    boss = ch.Supervisor([team, plain])
    kit.replace_worker(boss, "team/clerk", kit.fails)
    member = team.roster.get("clerk")
    assert "broken" in repr(member)
    with pytest.raises(UsageError, match="there are"):
        kit.replace_worker(boss, "nobody", kit.fails)
    with pytest.raises(UsageError, match="not a supervisor"):
        kit.replace_worker(boss, "plain/clerk", kit.fails)
    with pytest.raises(UsageError, match="must have its name"):
        kit.replace_worker(boss, "plain", lambda _: clerk)


# Killed programs

SCRIPT = """
import sys
import chargehand as ch

@ch.worker("w", "Notes its steps")
async def w(brief: ch.Brief) -> str:
    def note(text: str) -> str:
        with open("log", "a") as log:
            log.write(text + chr(10))
        return text
    for step in ("a", "b", "c"):
        await brief.step(step, note, step, effect="idempotent")
    return "end"

plan = ch.Plan(goal="Steps", tasks=[ch.Task(id="t", description="Do it", worker="w")])
print(ch.Supervisor([w], journal="runs.db").run_sync(plan, key="k").output, *sys.argv[1:])
"""


def test_a_program_is_killed_at_each_step_and_repeats_none(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = kit.kill_and_resume("script.py", "more", at_steps=[1, 1, 1], cwd=tmp_path)
    assert done.kills == 3
    assert done.stdout == "end more\n"
    assert (tmp_path / "log").read_text().split() == ["a", "b", "c"]


def test_a_program_is_killed_at_a_write_and_goes_on_otherwise(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "on.py").write_text(SCRIPT.replace('"end"', '"went on"'))
    done = kit.kill_and_resume(
        "script.py", at_writes=[2], resume=["on.py"], cwd=tmp_path, env={"SOME": "thing"}
    )
    assert done.stdout == "went on\n"


def test_the_command_line_killed_twice_pays_for_each_answer_once(tmp_path: Path) -> None:
    (tmp_path / "crew.toml").write_text('[[worker]]\nname = "w"\ndescription = "Writes"\n')
    tasks = [
        ch.Task(id=name, description="Write one sentence", worker="w", needs=needs)
        for name, needs in (("a", []), ("b", ["a"]), ("c", ["b"]))
    ]
    (tmp_path / "plan.json").write_text(ch.Plan(goal="Sentences", tasks=tasks).to_json())
    where = ("--journal", "runs.db")
    chosen = ("--crew", "crew.toml", "--plan", "plan.json", "--model", "openai:test")
    with kit.FakeProvider(["One.", "Two.", "Three."], faults=kit.first(2, "429")) as provider:
        done = kit.kill_and_resume(
            *("-m", "chargehand", "run", *chosen, *where),
            resume=("-m", "chargehand", "resume", "last", *where),
            at_steps=[2, 2],
            cwd=tmp_path,
            env=provider.environment,
        )
        assert provider.calls == 5
    assert done.stdout == "Three.\n"


def test_a_program_that_ends_too_early_or_fails_says_so(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    with pytest.raises(AssertionError, match=r"ended with 0 before its step 99"):
        kit.kill_and_resume("script.py", at_steps=[99], cwd=tmp_path)
    (tmp_path / "fails.py").write_text("raise SystemExit('no way')")
    (tmp_path / "log").unlink()
    for file in tmp_path.glob("runs.db*"):
        file.unlink()
    with pytest.raises(AssertionError, match=r"did not go on to its end[\s\S]*no way"):
        kit.kill_and_resume("script.py", at_steps=[1], resume=["fails.py"], cwd=tmp_path)


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import time; print('here', flush=True); time.sleep(100)")
    with pytest.raises(AssertionError, match=r"not at its end after 10 s[\s\S]*here"):
        kit.kill_and_resume("waits.py", at_steps=[1], cwd=tmp_path, timeout=10)


# Databases


def test_a_database_that_is_back_in_time_was_only_waited_for() -> None:
    journal = kit.LosingJournal(at_write=3, seconds=3)
    kit.assert_succeeded(run(clerk, journal=journal))
    assert (journal.losses, journal.refused) == (1, 0)


async def test_a_lost_database_refuses_everything_until_it_is_back(tmp_path: Path) -> None:
    inner = SqliteJournal(tmp_path / "runs.db")
    journal = kit.LosingJournal(inner, patience=0)
    journal.lose()
    with pytest.raises(JournalBusy, match="as planned"):
        await journal.heads()
    with pytest.raises(JournalBusy):
        await journal.leases.lead("run")
    with pytest.raises(JournalBusy):
        await journal.mail.unread()
    with pytest.raises(JournalBusy):
        [entry async for entry in journal.boards.read("board")]
    assert journal.refused == 4
    journal.recover()
    result = await ch.Supervisor([clerk], journal=journal).run(plan_for("clerk"))
    kit.assert_succeeded(result)
    await journal.close()


# Results


def test_a_result_that_is_not_as_wanted_is_told_in_words() -> None:
    whole = run(clerk)
    kit.assert_succeeded(whole)
    with pytest.raises(AssertionError, match="not partial: succeeded"):
        kit.assert_partial(whole, missing=["clerk"])
    part = run(clerk, kit.fails(plain))
    kit.assert_partial(part, missing=["plain"])
    with pytest.raises(AssertionError, match="names 'plain' as missing, and not 'clerk'"):
        kit.assert_partial(part, missing=["clerk"])
    with pytest.raises(UsageError, match="give a list"):
        kit.assert_partial(part, missing="plain")


def test_half_of_a_budget_is_of_what_was_used() -> None:
    model = ch.ScriptedModel(["a"] * 5)
    workers = [ch.Worker(name, "Answers", model=model) for name in "abcde"]
    result = run(*workers)
    assert kit.half_budget(result) == ch.Limits(calls=2)
    tokens = result.usage.tokens_in + result.usage.tokens_out
    assert kit.half_budget(result, "tokens") == ch.Limits(tokens=tokens // 2)
    with pytest.raises(UsageError, match="no money"):
        kit.half_budget(result, "money")
    with pytest.raises(UsageError, match="none of"):
        kit.half_budget(result, "time")
    with pytest.raises(UsageError, match="no calls"):
        kit.half_budget(run(clerk))


def test_a_single_call_is_not_halved_because_the_limit_would_limit_nothing() -> None:
    one = ch.Worker("one", "Answers", model=ch.ScriptedModel(["a"]))
    result = run(one)
    assert result.usage.calls == 1
    with pytest.raises(UsageError, match=rf"run {result.id} used a single one of its calls"):
        kit.half_budget(result)
    kit.half_budget(result, "tokens")
