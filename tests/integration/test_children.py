"""Workers in real processes: what they return, what they say, how they fail, and what they keep to themselves."""

import asyncio
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chargehand.engines.base import Lost
from chargehand.engines.brief import Fenced
from chargehand.engines.function_import import is_async
from chargehand.errors import JournalFull
from chargehand.facts.events import Effect
from chargehand.facts.outcome import (
    NOTHING_DONE,
    Cancelled,
    Done,
    ErrorClass,
    Failed,
    NeedsInput,
)
from chargehand.facts.value import Value
from tests.integration.children_at_work import (
    MODULE,
    PATIENCE,
    FakeLine,
    ask,
    brief_of,
    cancel_itself,
    chatter,
    children_of,
    decorated,
    describe,
    do_worse,
    double,
    echo_input,
    fail_illegibly,
    fail_without_a_class,
    flood,
    flood_until,
    interrupt,
    interrupted_by_signal,
    leave,
    leave_a_tracer,
    leave_a_tracer_async,
    leave_async,
    leave_in_a_step,
    leave_in_a_task,
    meet,
    not_json,
    nothing,
    of_size,
    outcome_in,
    outcome_of_one,
    pid,
    pid_async,
    pid_in_step,
    read,
    read_missing_file,
    report,
    report_until_fenced,
    result_of,
    return_lost,
    run_out_of_quota,
    say_more_when_over,
    spin_until,
    steps_side_by_side,
    tainted,
    two_steps,
    two_steps_plainly,
    where,
)

# What comes back


async def test_a_function_in_a_child_returns_its_result() -> None:
    assert await result_of(double, brief_of(args={"number": 21})) == 42


async def test_nothing_comes_back_as_nothing() -> None:
    assert await outcome_of_one(nothing) == NOTHING_DONE


async def test_the_brief_is_the_same_as_in_the_parent() -> None:
    values = {"text": Value.of({"a": [1, None]}), "other": Value.of("ä")}
    brief = brief_of(
        attempt=3, values=values, args={"deep": {"x": 1.5}}, missing={"gone": "it failed"}
    )
    assert await result_of(describe, brief) == await describe(brief)


@pytest.mark.parametrize("function", [pid, pid_async, decorated])
async def test_plain_async_and_decorated_functions_all_run_in_the_child(
    function: Callable[..., Any],
) -> None:
    assert await result_of(function) != os.getpid()


def test_a_worker_made_of_an_async_function_is_seen_to_be_async() -> None:
    assert is_async(decorated)
    assert is_async(pid_async)
    assert not is_async(pid)


async def test_a_result_of_a_megabyte_comes_back_whole() -> None:
    assert await result_of(of_size, brief_of(args={"size": 1_000_000})) == "x" * 1_000_000


async def test_an_input_of_a_megabyte_arrives_whole() -> None:
    text = "y" * 1_000_000
    assert await result_of(echo_input, brief_of(values={"text": Value.of(text)})) == text


async def test_the_sources_of_taint_come_back_with_the_result() -> None:
    brief = brief_of(values={"text": Value.of("x", ("a stranger",))})
    outcome = await outcome_of_one(tainted, brief)
    assert isinstance(outcome, Done)
    assert set(outcome.value.taint) == {"the web", "a stranger"}


async def test_a_child_has_the_paths_and_arguments_of_its_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, "", "some/where"])
    monkeypatch.setenv("PYTHONPATH", "its:own")
    expected = {"path": sys.path, "argv": sys.argv, "pythonpath": "its:own"}
    assert await result_of(where) == expected


# Steps, questions, progress


@pytest.mark.parametrize("function", [two_steps, two_steps_plainly])
async def test_steps_are_written_down_by_the_parent(function: Callable[..., Any]) -> None:
    line = FakeLine()
    assert await result_of(function, brief_of(line)) == 13
    assert line.words == [
        ("begin", "add", 1),
        ("end", "add", 1),
        ("begin", "add", 2),
        ("end", "add", 2),
    ]
    assert line.urgent == [False, True]  # pure, once


async def test_finished_steps_are_not_done_again() -> None:
    first, second = FakeLine(), FakeLine()
    process = await result_of(pid_in_step, brief_of(first))
    assert await result_of(pid_in_step, brief_of(second, log=first.log)) == process
    assert second.words == []


async def test_a_once_step_in_doubt_asks_from_a_child_too() -> None:
    line = FakeLine()
    async with children_of(two_steps) as children:
        await outcome_in(children, brief_of(line))
        for place, record in line.log.lineage.items():
            if record.effect is Effect.ONCE:
                line.log.lineage[place] = replace(record, outcome=None)
        outcome = await outcome_in(children, brief_of(attempt=2, log=line.log))
    assert isinstance(outcome, NeedsInput)
    assert outcome.question.about == "in_doubt"


async def test_steps_may_run_side_by_side() -> None:
    line = FakeLine()
    result = await result_of(steps_side_by_side, brief_of(line))
    assert sorted(result) == [2 * n for n in range(20)]
    assert len(line.words) == 40


async def test_a_question_ends_the_attempt_and_its_answer_goes_on() -> None:
    async with children_of(ask) as children:
        outcome = await outcome_in(children, brief_of())
        assert isinstance(outcome, NeedsInput)
        question = outcome.question
        assert (question.choices, question.patience) == (("red", "green"), timedelta(hours=1))
        answers = {question.id: "green", "r1:another:1": "not for this task"}
        assert read(await outcome_in(children, brief_of(attempt=2, answers=answers))) == "green"


async def test_progress_is_passed_on_in_order() -> None:
    line = FakeLine()
    await result_of(report, brief_of(line))
    assert line.notes == [(f"{done} of 10", done / 10) for done in range(10)]


async def test_a_flood_of_progress_stays_in_the_child_and_the_newest_note_comes() -> None:
    line = FakeLine()
    await result_of(flood, brief_of(line))
    assert line.notes[0] == ("0", None)
    assert line.notes[-1] == ("19999", None)
    assert len(line.notes) < 2_000


async def test_the_newest_note_of_a_flood_comes_while_the_worker_still_works(
    tmp_path: Path,
) -> None:
    line = FakeLine()
    file = tmp_path / "enough"
    async with children_of(flood_until) as children:
        attempt = asyncio.create_task(
            outcome_in(children, brief_of(line, args={"file": str(file)}))
        )
        await line.wait_noted("19999")
        assert not attempt.done()
        file.touch()
        assert read(await attempt) == "seen"


@pytest.mark.parametrize("function", [two_steps, two_steps_plainly, report_until_fenced])
async def test_an_attempt_that_lost_its_task_is_stopped(function: Callable[..., Any]) -> None:
    outcome = await outcome_of_one(function, brief_of(FakeLine(Fenced("taken over"))))
    assert outcome == Cancelled(reason="taken over")


async def test_a_journal_that_refuses_is_met_by_the_worker_as_in_the_parent() -> None:
    outcome = await outcome_of_one(two_steps, brief_of(FakeLine(JournalFull("no room"))))
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.error) == (ErrorClass.RESOURCE, "JournalFull")
    assert outcome.message == "no room"


async def test_what_is_said_after_the_end_is_refused() -> None:
    line = FakeLine()
    async with children_of(say_more_when_over) as children:
        assert read(await outcome_in(children, brief_of(line))) == "first"
        late = read(await outcome_in(children, brief_of(line)))
    assert late == "the attempt has ended"
    assert line.notes == []


# Failures


async def test_a_failure_names_its_class_its_type_and_its_place() -> None:
    outcome = await outcome_of_one(read_missing_file)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.error) == (ErrorClass.LOGIC, "FileNotFoundError")
    assert "there/is/no/such/file" in outcome.message
    assert "in read_missing_file" in outcome.stack


async def test_a_worker_says_itself_how_its_failure_is_treated() -> None:
    outcome = await outcome_of_one(run_out_of_quota)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.message) == (ErrorClass.RESOURCE, "quota")
    assert outcome.retry_after == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (leave, "SystemExit"),
        (leave_async, "SystemExit"),
        (leave_in_a_task, "SystemExit"),
        (leave_in_a_step, "SystemExit"),
        (interrupt, "KeyboardInterrupt"),
        (do_worse, "Worse"),
    ],
)
async def test_even_exits_are_failures_and_the_child_lives_on(
    function: Callable[..., Any], error: str
) -> None:
    async with children_of(function) as children:
        for _ in range(2):
            outcome = await outcome_in(children, brief_of())
            assert isinstance(outcome, Failed), outcome
            assert (outcome.kind, outcome.error) == (ErrorClass.LOGIC, error)
        assert len(children._all) == 1


@pytest.mark.parametrize("function", [leave_a_tracer, leave_a_tracer_async])
async def test_a_tracer_that_a_worker_leaves_behind_fails_its_attempt_at_once(
    function: Callable[..., Any],
) -> None:
    async with children_of(function, most=1) as children, asyncio.timeout(PATIENCE):
        for _ in range(2):  # the process lives on
            failed = await outcome_in(children, brief_of())
            assert isinstance(failed, Failed)
            assert failed.message == "in a tracer"


async def test_a_worker_that_cancels_itself_is_cancelled() -> None:
    assert await outcome_of_one(cancel_itself) == Cancelled(reason="its worker cancelled itself")


async def test_a_message_that_is_no_text_still_comes_through() -> None:
    outcome = await outcome_of_one(fail_illegibly)
    assert isinstance(outcome, Failed)
    assert outcome.message == "no such file: \\udce4.txt"


async def test_an_exception_that_cannot_be_asked_what_it_is_ends_the_attempt_and_not_the_child() -> (
    None
):
    async with children_of(fail_without_a_class) as children:
        for _ in range(2):
            outcome = await outcome_in(children, brief_of())
            assert isinstance(outcome, Failed), outcome
            assert (outcome.kind, outcome.error) == (ErrorClass.LOGIC, "Shy")
        assert len(children._all) == 1


async def test_a_result_that_json_cannot_hold_is_a_failure() -> None:
    outcome = await outcome_of_one(not_json)
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.error) == (ErrorClass.LOGIC, "NotJSON")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no_such_module_at_all:f", "f cannot be imported from no_such_module_at_all"),
        (f"{MODULE}:no_such_function", "no_such_function cannot be imported from"),
        (f"{MODULE}:PATIENCE", "not a function"),
        ("there/is/no/such/script.py:f", "f cannot be imported from"),
    ],
)
async def test_a_function_that_cannot_be_imported_fails_and_says_why(
    target: str, reason: str
) -> None:
    outcome = await outcome_of_one(target)
    assert isinstance(outcome, Failed)
    assert outcome.kind is ErrorClass.LOGIC
    assert reason in outcome.message


async def test_a_module_that_exits_while_it_is_imported_fails_and_is_tried_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "module_that_is_mended.py"
    module.write_text("import sys\nsys.exit('not today')\n")
    async with children_of("module_that_is_mended:work") as children:
        outcome = await outcome_in(children, brief_of())
        assert isinstance(outcome, Failed)
        assert outcome.message.endswith("module_that_is_mended: SystemExit: not today")
        module.write_text("def work(brief): return 'mended, and of another length'\n")
        assert read(await outcome_in(children, brief_of())).startswith("mended")


async def test_a_worker_may_say_itself_that_it_is_lost() -> None:
    assert await outcome_of_one(return_lost) == Lost("I cannot go on")


# Standing apart


async def test_much_computing_does_not_hold_up_the_parent(tmp_path: Path) -> None:
    line = FakeLine()
    file = tmp_path / "enough"
    async with children_of(spin_until) as children:
        attempt = asyncio.create_task(
            outcome_in(children, brief_of(line, args={"file": str(file)}))
        )
        await line.wait_noted()
        for _ in range(10_000):
            await asyncio.sleep(0)
        assert not attempt.done()  # all those turns were taken while the child computed
        file.touch()
        assert read(await attempt) == "seen"


async def test_two_children_run_at_the_same_time(tmp_path: Path) -> None:
    pipes = [str(tmp_path / "one"), str(tmp_path / "two")]
    for name in pipes:
        os.mkfifo(name)
    async with children_of(meet, most=2) as children:
        outcomes = await asyncio.gather(
            *(
                outcome_in(children, brief_of(args={"pipes": pipes, "first": first}))
                for first in (True, False)
            )
        )
    assert [read(outcome) for outcome in outcomes] == ["met", "met"]


async def test_what_a_worker_prints_never_gets_between_the_frames() -> None:
    heard: list[str] = []
    outcome = await outcome_of_one(chatter, heard=heard.append)
    assert read(outcome) == ["", "no input"]
    text = "".join(heard)
    assert all(word in text for word in ("printed", "half a line", "written", "raw", "a program"))


async def test_prints_are_passed_on_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    await outcome_of_one(chatter)
    captured = capsys.readouterr()
    assert "printed\n" in captured.err
    assert captured.out == ""


async def test_what_is_printed_while_python_starts_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os\nos.write(1, b'\\0\\0\\0\\5hello')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert await result_of(double, brief_of(args={"number": 1})) == 2


async def test_modules_in_the_working_folder_do_not_hide_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('not this one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    assert await result_of(double, brief_of(args={"number": 1})) == 2


async def test_an_interrupt_is_no_business_of_a_child() -> None:
    assert await result_of(interrupted_by_signal) == "still here"
