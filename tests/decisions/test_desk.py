"""The kernel: several runs over one pool; what is written, taken, refused."""

from msgspec.structs import replace

from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.decisions.kernel import Kernel, RunMessage
from chargehand.facts.events import (
    AttemptFinished,
    CancelRequested,
    Event,
    PlanAdopted,
    QuestionAnswered,
    RunLed,
)
from chargehand.facts.outcome import NOTHING_DONE
from chargehand.facts.plan import Plan
from chargehand.facts.scheduler_commands import StartAttempt
from tests.decisions.virtual_kernel import START, kernel_of, requested, seconds, tasks_of


def opening(run: str, arrows: str, priority: int = 0) -> list[RunMessage]:
    raised = [replace(task, priority=priority) for task in tasks_of(arrows)]
    events: list[Event] = [
        requested(run=run),
        RunLed(node="n", epoch=1, at=START),
        PlanAdopted(plan=Plan(goal="g", tasks=raised), at=START),
    ]
    return [RunMessage(run, event) for event in events]


def desk_with(pool: int, *runs: str) -> Kernel:
    dispatch = Dispatch(pool)
    dispatch.join(Place(worker="ann"))
    kernel = Kernel(dispatch)
    for run in runs:
        kernel.open(run)
    return kernel


def finished(task: str) -> AttemptFinished:
    return AttemptFinished(task=task, attempt=1, outcome=NOTHING_DONE, at=START)


def test_runs_share_the_pool_by_priority() -> None:
    kernel = desk_with(1, "low", "high")
    batch = kernel.decide([*opening("low", "a"), *opening("high", "b", priority=5)], START)
    assert [(act.run, act.task) for act in batch.acts] == [("high", "b")]


def test_everything_that_follows_from_a_message_is_written_with_it() -> None:
    kernel = kernel_of("a -> b", attempts=1)
    kinds = [type(event).__name__ for event in kernel.fail("a")]
    assert kinds == ["AttemptFinished", "TaskFailed", "TaskSkipped", "RunFinished"]


def test_a_start_is_written_before_it_is_acted_upon() -> None:
    kernel = desk_with(1, "r")
    batch = kernel.decide(opening("r", "a"), START)
    assert type(batch.entries["r"][-1]).__name__ == "AttemptStarted"
    assert isinstance(batch.acts[0], StartAttempt)


def test_a_ticket_tells_what_was_written_or_that_nothing_was() -> None:
    kernel = desk_with(1, "r")
    kernel.decide(opening("r", "a"), START)
    messages = [
        RunMessage("r", finished("a"), ticket="first"),
        RunMessage("r", finished("a"), "again"),
    ]
    batch = kernel.decide(messages, START)
    assert [ticket for ticket, _ in batch.tickets] == ["first", "again"]
    assert isinstance(batch.tickets[0][1], AttemptFinished)
    assert batch.tickets[1][1] is None


def test_a_ticket_for_a_run_that_is_not_led_here_is_refused() -> None:
    batch = desk_with(1).decide([RunMessage("nobody's", finished("a"), ticket="t")], START)
    assert batch.tickets == [("t", None)]


def test_refused_mail_is_taken_all_the_same() -> None:
    """Or it would be read again for ever."""
    kernel = desk_with(1, "r")
    kernel.decide(opening("r", "a"), START)
    late = QuestionAnswered(question="q", task="a", text="?", by="me", at=START)
    batch = kernel.decide([RunMessage("r", late, mail=7)], START)
    assert batch.mail == {"r": [7]}
    assert batch.entries == {"r": []}


def test_a_draining_desk_starts_nothing_but_still_listens() -> None:
    kernel = desk_with(1, "r")
    kernel.decide(opening("r", "a -> b"), START)
    kernel.is_draining = True
    kernel.free_place("r", "a", 1)
    batch = kernel.decide([RunMessage("r", finished("a"))], START)
    assert batch.acts == []
    assert len(batch.entries["r"]) == 1


def test_an_ended_run_is_led_no_longer() -> None:
    kernel = desk_with(1, "r")
    kernel.decide(opening("r", "a"), START)
    batch = kernel.decide([RunMessage("r", finished("a"))], START)
    assert list(batch.ended) == ["r"]
    assert kernel.runs == {}
    assert kernel.decide([RunMessage("r", CancelRequested(at=START))], START).entries == {}


def test_a_place_is_held_until_the_attempt_has_really_ended() -> None:
    kernel = desk_with(1, "r", "s")
    kernel.decide([*opening("r", "a"), *opening("s", "b")], START)
    assert kernel.decide([RunMessage("r", finished("a"))], START).acts == []
    kernel.free_place("r", "a", 1)
    assert [act.run for act in kernel.decide([], START).acts] == ["s"]


def test_a_place_is_freed_once_however_often_it_is_said() -> None:
    kernel = desk_with(1, "r")
    kernel.decide(opening("r", "a"), START)
    for _ in range(2):
        kernel.free_place("r", "a", 1)
    kernel.check()
    assert kernel.busy == 0


def test_starts_that_could_not_be_written_leave_their_places() -> None:
    kernel = desk_with(1, "r")
    batch = kernel.decide(opening("r", "a"), START)
    kernel.free_unstarted("r", [act for act in batch.acts if isinstance(act, StartAttempt)])
    kernel.close("r")
    kernel.check()
    assert kernel.busy == 0


def test_the_desk_says_when_it_must_be_asked_again() -> None:
    kernel = kernel_of("a", deadline=seconds(60))
    assert kernel.kernel.next_due() == START + seconds(60)
    kernel.fail("a", retry_after=seconds(20))
    assert kernel.kernel.next_due() == START + seconds(20)


def test_reading_a_history_acts_on_nothing() -> None:
    kernel = kernel_of("a, b -> c")
    kernel.finish("a")
    other = desk_with(5)
    other.open("r", kernel.journal)
    assert other.busy == 0
