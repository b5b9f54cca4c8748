"""For any task that waits: what for, since when, until when. In words."""

from datetime import timedelta

import pytest

from chargehand.decisions.budget import Account
from chargehand.decisions.dispatch import Place
from chargehand.decisions.live_run import LiveRun
from chargehand.decisions.wait_reasons import Cause, Explainer, WaitReason
from chargehand.facts.events import Approach, RunPaused
from chargehand.facts.limits import Limits
from chargehand.facts.outcome import Usage
from chargehand.presentation.progress_lines import ProgressLines
from tests.decisions.virtual_kernel import RUN, VirtualKernel, kernel_of, seconds


def why(kernel: VirtualKernel, task: str, *, is_led: bool = True) -> WaitReason | None:
    if is_led:
        live_run, dispatch = kernel.kernel.runs[RUN], kernel.kernel.dispatch
        return Explainer(RUN, live_run, kernel.now, dispatch).why(task)
    past = LiveRun(RUN)
    past.replay(kernel.journal)
    return Explainer(RUN, past, kernel.now).why(task)


def words(kernel: VirtualKernel, task: str, *, is_led: bool = True) -> str:
    wait = why(kernel, task, is_led=is_led)
    assert wait is not None
    return str(wait)


def test_a_task_waits_for_its_needs_and_says_how_those_stand() -> None:
    kernel = kernel_of("a -> c, b -> c", pool=1)
    kernel.wait(3)
    assert words(kernel, "c") == "c waits for a (running), b (ready), 3 s"
    kernel.finish("a")
    assert words(kernel, "c") == "c waits for b (running), 3 s"


def test_many_needs_are_counted() -> None:
    kernel = kernel_of(", ".join(f"a{number} -> z" for number in range(7)))
    assert words(kernel, "z").endswith("a3 (running) and 3 more, 0 s")


def test_a_task_waits_for_a_place_at_its_worker_since_it_was_ready() -> None:
    places = [Place(worker="ann", capacity=1)]
    kernel = kernel_of("a, b", places=places)
    kernel.wait(3)
    assert words(kernel, "b") == "b waits for a slot of ann, 3 s"


def test_a_task_waits_for_a_place_in_the_pool() -> None:
    kernel = kernel_of("a, b", pool=1)
    assert words(kernel, "b") == "b waits for a slot in the pool (1 of 1 taken), 0 s"


def test_a_task_waits_for_a_place_of_its_run() -> None:
    kernel = kernel_of("a, b", parallel=1)
    assert words(kernel, "b") == "b waits for a slot of its run (1 of 1 taken), 0 s"


def test_where_only_the_journal_is_known_that_is_said() -> None:
    kernel = kernel_of("a, b", pool=1)
    assert words(kernel, "b", is_led=False) == (
        "b waits for its turn with ann; the process that leads its run knows more, 0 s"
    )


def test_without_a_leader_all_that_could_go_on_waits_for_one() -> None:
    """The provider of a run that was interrupted an hour ago holds nothing up, and no worker is busy with it."""
    kernel = kernel_of("a, b, d -> c", pool=2)
    kernel.park("a", 90)
    live_run, now = kernel.kernel.runs[RUN], kernel.now + timedelta(hours=1)
    waits = list(Explainer(RUN, live_run, now, is_led=False).all())
    told = {wait.task: (wait.what, wait.until_at) for wait in waits}
    words = "a process that leads its run; it had to wait for its provider: it is down"
    assert told["a"] == (words, None)
    assert told["c"][0] == "d (interrupted)"
    assert "slot" not in str(waits)


def test_a_task_waits_for_the_breaker_of_its_worker() -> None:
    kernel = kernel_of("a, b, c, d, e, f", pool=1, attempts=1)
    for task in "abcde":
        kernel.fail(task, "network")
    wait = why(kernel, "f")
    assert wait is not None
    assert "the circuit breaker of worker ann, until 2026-01-01T" in wait.what


def test_a_breaker_is_told_alike_by_the_leading_process_and_by_all_others() -> None:
    kernel = kernel_of(
        "a, b, c, d, e, f, g, h, i", attempts=1, places=[Place(worker="ann", capacity=1)]
    )
    for task in "abcde":
        kernel.fail(task, "network")
    told = [words(kernel, "i", is_led=is_led) for is_led in (True, False)]
    kernel.wait(16)
    told += [words(kernel, "i", is_led=is_led) for is_led in (True, False)]
    kernel.fail("f", "logic")  # a probe that says nothing of its worker
    told += [words(kernel, "i", is_led=is_led) for is_led in (True, False)]
    kernel.fail("g", "network")
    told += [words(kernel, "i", is_led=is_led) for is_led in (True, False)]
    assert told[0::2] == told[1::2]
    untils = [each.split(", ")[1] for each in told[0::2]]
    assert untils == [
        "until 2026-01-01T00:00:15+00:00",
        "until its probe has ended",
        "until its probe has ended",
        "until 2026-01-01T00:00:46+00:00",
    ]
    kernel.wait(31)
    kernel.finish("h")
    assert kernel.state("i") == "running"


def test_a_process_that_takes_a_run_over_begins_with_closed_breakers() -> None:
    kernel = kernel_of("a, b, c, d, e, f, g", pool=1, attempts=1)
    for task in "abcde":
        kernel.fail(task, "network")
    kernel.crash()
    assert "its turn with ann" in words(kernel, "g", is_led=False)


def test_a_run_says_once_that_tasks_wait_for_a_breaker() -> None:
    kernel = kernel_of("a, b, c, d, e, f, g", pool=1, attempts=1)
    for task in "abcde":
        kernel.fail(task, "network")
    kernel.wait(16)
    kernel.fail("f", "network")
    lines: list[str] = []
    progress = ProgressLines(lines.append)
    for event in kernel.journal:
        progress.hear(event)
    (told,) = (number for number, line in enumerate(lines) if "circuit breaker" in line)
    assert "tasks for ann wait for the circuit breaker of worker ann, until " in lines[told]
    assert "gave up on e" in lines[told - 1]


def test_a_failed_task_waits_for_its_next_try_and_says_when_and_why() -> None:
    kernel = kernel_of("a")
    kernel.fail("a")
    wait = why(kernel, "a")
    assert wait is not None
    assert wait.cause is Cause.RETRY
    assert wait.until_at == kernel.schedule.nodes["a"].due_at
    assert "its next try at 2026-01-01T00:00:0" in wait.what
    assert "it broke" in wait.what


def test_a_parked_task_waits_for_its_provider() -> None:
    kernel = kernel_of("a")
    kernel.park("a", 90)
    kernel.wait(70)
    assert (
        words(kernel, "a")
        == "a waits for its provider, until 2026-01-01T00:01:30+00:00: it is down, 1 min"
    )


def test_a_task_waits_for_a_person() -> None:
    kernel = kernel_of("a -> b")
    kernel.ask("a")
    kernel.wait(3 * 3600)
    assert words(kernel, "a") == "a waits for a person's answer: which?, 3 h"
    assert words(kernel, "b") == "b waits for a (waiting for an answer), 3 h"


def test_a_question_that_is_a_statement_ends_without_a_full_stop() -> None:
    kernel = kernel_of("a")
    kernel.ask("a", text="pay asks for\napproval each time.")
    kernel.wait(60)
    assert (
        words(kernel, "a")
        == "a waits for a person's answer: pay asks for approval each time, 1 min"
    )


def test_an_unclear_task_waits_to_be_rewritten() -> None:
    kernel = kernel_of("a", asked={"refines": True})
    kernel.fail("a", "logic")
    wait = why(kernel, "a")
    assert wait is not None
    assert wait.cause is Cause.REWRITING


def test_a_paused_task_waits_since_the_run_was_paused() -> None:
    kernel = kernel_of("a -> c, b", pool=1)
    kernel.wait(5)
    kernel.tell(RunPaused(at=kernel.now))
    kernel.wait(3)
    assert words(kernel, "b") == "b waits for its run, which is paused, 3 s"
    assert words(kernel, "c") == "c waits for a (running), 8 s"


def test_what_the_supervisor_does_itself_is_explained_too() -> None:
    kernel = kernel_of("", asked={"approach": Approach.WHOLE})
    kernel.park("@plan", 30)
    explainer = Explainer(RUN, kernel.kernel.runs[RUN], kernel.now)
    assert [(wait.task, wait.cause) for wait in explainer.all()] == [("@plan", Cause.PROVIDER)]


def test_a_running_task_waits_for_what_others_have_reserved() -> None:
    kernel = kernel_of("a, b", calls=1)
    account = kernel.kernel.runs[RUN].account
    assert isinstance(account, Account)
    account.reserved = Usage(calls=1)
    assert account.when_settled("b", Usage(calls=1), lambda: None)
    wait = why(kernel, "b")
    assert wait is not None
    assert wait.cause is Cause.BUDGET
    assert "calls" in wait.what
    assert why(kernel, "a") is None


@pytest.mark.parametrize("ending", ["running", "done", "failed", "skipped"])
def test_what_runs_or_has_ended_waits_for_nothing(ending: str) -> None:
    kernel = kernel_of("a -> b, c", attempts=1)
    if ending == "done":
        kernel.finish("a")
    elif ending != "running":
        kernel.fail("a", "denied")
    task = "b" if ending == "skipped" else "a"
    assert kernel.state(task) == ending
    assert why(kernel, task) is None


def test_every_task_that_is_neither_running_nor_settled_is_explained() -> None:
    kernel = kernel_of("a -> b, c -> d, e, f, g", pool=4, active=Limits().active)
    kernel.fail("a")
    kernel.ask("c")
    kernel.park("e", 10)
    kernel.wait(seconds(0.1).total_seconds())
    for task, state in kernel.states().items():
        is_explained = why(kernel, task) is not None
        assert is_explained == (state not in ("running", "done")), (task, state)
