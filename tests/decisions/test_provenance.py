"""Taint is monotone: whatever an attempt leaves behind says which untrusted sources it derives from."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.events_as_notes import RunNotes
from chargehand.decisions.retry import GiveUp, History, judge
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    AttemptStarted,
    Event,
    PlanAdopted,
    PlanAmended,
    ProgressNoted,
    TaskAdded,
    TaskRewritten,
)
from chargehand.facts.outcome import (
    Cancelled,
    Done,
    ErrorClass,
    Failed,
    NeedsInput,
    Outcome,
    Question,
    tainted,
)
from chargehand.facts.plan import Plan, Task
from chargehand.facts.retry_policy import RetryPolicy
from chargehand.facts.value import Value
from tests.decisions.virtual_kernel import START

SOURCES = st.lists(st.sampled_from(["web:a", "web:b", "tool:c", "person"]), unique=True).map(tuple)


def outcomes(taint: tuple[str, ...]) -> list[Outcome]:
    return [
        Done(Value.of("words", taint), gaps=("some",)),
        Failed(kind=ErrorClass.DENIED, message="words", taint=taint, is_final=True),
        Cancelled(reason="words", taint=taint),
        NeedsInput(question=Question(id="q", text="words", taint=taint)),
    ]


def taint_of(outcome: Outcome) -> tuple[str, ...]:
    match outcome:
        case Done(value=value):
            return value.taint
        case Failed(taint=taint) | Cancelled(taint=taint):
            return taint
        case NeedsInput(question=question):
            return question.taint


@given(SOURCES, SOURCES)
def test_an_outcome_keeps_its_sources_and_gets_those_of_its_attempt(
    own: tuple[str, ...], read: tuple[str, ...]
) -> None:
    for outcome in outcomes(own):
        marked = tainted(outcome, read)
        assert set(taint_of(marked)) == {*own, *read}
        assert len(taint_of(marked)) == len(set(taint_of(marked))), "each once"
        assert tainted(marked, read) == marked, "once is enough"
        assert tainted(outcome, ()) is outcome


def test_nothing_but_the_taint_is_changed() -> None:
    done, failed, *_ = outcomes(())
    marked = tainted(failed, ("web:a",))
    assert isinstance(marked, Failed)
    assert (marked.kind, marked.message, marked.is_final) == (ErrorClass.DENIED, "words", True)
    whole = tainted(done, ("web:a",))
    assert isinstance(whole, Done)
    assert (whole.value.read(), whole.gaps) == ("words", ("some",))


TASK = Task(id="t", description="Write the letter to Ann", worker="w")


def notes_after(*events: Event) -> list[tuple[str, ...]]:
    lifecycle = RunNotes("r")
    for seq, event in enumerate(events):
        lifecycle.apply(seq, event)
    return [note.taint for note in lifecycle.notes]


@pytest.mark.parametrize(
    "event",
    [
        PlanAdopted(plan=Plan(goal="g", tasks=[TASK], taint=("web:a",)), at=START),
        PlanAmended(version=2, added=(TASK,), taint=("web:a",), at=START),
        TaskAdded(task=TASK, taint=("web:a",), at=START),
        ProgressNoted(task="t", attempt=1, text="half", taint=("web:a",), at=START),
        AttemptLost(task="t", attempt=1, reason="it said so", taint=("web:a",), at=START),
        AttemptFinished(
            task="t",
            attempt=1,
            outcome=Failed(kind=ErrorClass.LOGIC, message="words", taint=("web:a",)),
            at=START,
        ),
        AttemptFinished(task="t", attempt=1, outcome=Done(Value.of("x", ("web:a",))), at=START),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_the_board_tells_of_a_run_is_as_untrusted_as_what_happened(event: Any) -> None:
    assert notes_after(event)[-1] == ("web:a",)
    later = AttemptStarted(task="t", attempt=2, worker="w", at=START + timedelta(seconds=1))
    assert notes_after(event, later)[-1] == ("web:a",), "nothing is forgotten"


def test_a_rewritten_task_says_so_from_then_on() -> None:
    rewritten = TaskRewritten(task="t", description="Do it", attempt=1, taint=("web:a",), at=START)
    started = AttemptStarted(task="t", attempt=2, worker="w", at=START)
    assert notes_after(rewritten, started) == [("web:a",)]


@pytest.mark.parametrize("tries", [1, 2, 3])
@pytest.mark.parametrize("has_time", [True, False])
def test_a_task_that_is_given_up_fails_in_words_as_untrusted_as_those_of_its_last_try(
    tries: int, has_time: bool
) -> None:
    failure = Failed(kind=ErrorClass.NETWORK, message="words", taint=("web:a",))
    deadline = START + timedelta(seconds=0 if not has_time else 600)
    attempts = tries if has_time else tries + 1
    history = History(
        tries=tries, attempts=attempts, at=START, deadline_at=deadline, has_others=False
    )
    verdict = judge(RetryPolicy(), failure, history, 0.5)
    assert isinstance(verdict, GiveUp)
    assert verdict.cause.taint == ("web:a",)
