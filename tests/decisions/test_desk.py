"""The desk: several runs over one pool; what is written, taken, refused."""

from msgspec.structs import replace

from chargehand.decisions.desk import Desk, Message
from chargehand.decisions.dispatch import Dispatch, Place
from chargehand.facts.commands import StartAttempt
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
from tests.decisions.office import START, desk_of, requested, seconds, tasks_of


def opening(run: str, arrows: str, priority: int = 0) -> list[Message]:
    raised = [replace(task, priority=priority) for task in tasks_of(arrows)]
    events: list[Event] = [
        requested(run=run),
        RunLed(node="n", epoch=1, at=START),
        PlanAdopted(plan=Plan(goal="g", tasks=raised), at=START),
    ]
    return [Message(run, event) for event in events]


def desk_with(pool: int, *runs: str) -> Desk:
    dispatch = Dispatch(pool)
    dispatch.join(Place(worker="ann"))
    desk = Desk(dispatch)
    for run in runs:
        desk.open(run)
    return desk


def finished(task: str) -> AttemptFinished:
    return AttemptFinished(task=task, attempt=1, outcome=NOTHING_DONE, at=START)


def test_runs_share_the_pool_by_priority() -> None:
    desk = desk_with(1, "low", "high")
    round_ = desk.decide([*opening("low", "a"), *opening("high", "b", priority=5)], START)
    assert [(act.run, act.task) for act in round_.acts] == [("high", "b")]


def test_everything_that_follows_from_a_message_is_written_with_it() -> None:
    desk = desk_of("a -> b", attempts=1)
    kinds = [type(event).__name__ for event in desk.fail("a")]
    assert kinds == ["AttemptFinished", "TaskFailed", "TaskSkipped", "RunFinished"]


def test_a_start_is_written_before_it_is_acted_upon() -> None:
    desk = desk_with(1, "r")
    round_ = desk.decide(opening("r", "a"), START)
    assert type(round_.entries["r"][-1]).__name__ == "AttemptStarted"
    assert isinstance(round_.acts[0], StartAttempt)


def test_a_ticket_tells_what_was_written_or_that_nothing_was() -> None:
    desk = desk_with(1, "r")
    desk.decide(opening("r", "a"), START)
    messages = [Message("r", finished("a"), ticket="first"), Message("r", finished("a"), "again")]
    round_ = desk.decide(messages, START)
    assert [ticket for ticket, _ in round_.tickets] == ["first", "again"]
    assert isinstance(round_.tickets[0][1], AttemptFinished)
    assert round_.tickets[1][1] is None


def test_a_ticket_for_a_run_that_is_not_led_here_is_refused() -> None:
    round_ = desk_with(1).decide([Message("nobody's", finished("a"), ticket="t")], START)
    assert round_.tickets == [("t", None)]


def test_refused_mail_is_taken_all_the_same() -> None:
    """Or it would be read again for ever."""
    desk = desk_with(1, "r")
    desk.decide(opening("r", "a"), START)
    late = QuestionAnswered(question="q", task="a", text="?", by="me", at=START)
    round_ = desk.decide([Message("r", late, mail=7)], START)
    assert round_.mail == {"r": [7]}
    assert round_.entries == {"r": []}


def test_a_draining_desk_starts_nothing_but_still_listens() -> None:
    desk = desk_with(1, "r")
    desk.decide(opening("r", "a -> b"), START)
    desk.is_draining = True
    desk.free_place("r", "a", 1)
    round_ = desk.decide([Message("r", finished("a"))], START)
    assert round_.acts == []
    assert len(round_.entries["r"]) == 1


def test_an_ended_run_is_led_no_longer() -> None:
    desk = desk_with(1, "r")
    desk.decide(opening("r", "a"), START)
    round_ = desk.decide([Message("r", finished("a"))], START)
    assert list(round_.ended) == ["r"]
    assert desk.runs == {}
    assert desk.decide([Message("r", CancelRequested(at=START))], START).entries == {}


def test_a_place_is_held_until_the_attempt_has_really_ended() -> None:
    desk = desk_with(1, "r", "s")
    desk.decide([*opening("r", "a"), *opening("s", "b")], START)
    assert desk.decide([Message("r", finished("a"))], START).acts == []
    desk.free_place("r", "a", 1)
    assert [act.run for act in desk.decide([], START).acts] == ["s"]


def test_a_place_is_freed_once_however_often_it_is_said() -> None:
    desk = desk_with(1, "r")
    desk.decide(opening("r", "a"), START)
    for _ in range(2):
        desk.free_place("r", "a", 1)
    desk.check()
    assert desk.busy == 0


def test_starts_that_could_not_be_written_leave_their_places() -> None:
    desk = desk_with(1, "r")
    round_ = desk.decide(opening("r", "a"), START)
    desk.free_unstarted("r", [act for act in round_.acts if isinstance(act, StartAttempt)])
    desk.close("r")
    desk.check()
    assert desk.busy == 0


def test_the_desk_says_when_it_must_be_asked_again() -> None:
    desk = desk_of("a", deadline=seconds(60))
    assert desk.desk.next_due() == START + seconds(60)
    desk.fail("a", retry_after=seconds(20))
    assert desk.desk.next_due() == START + seconds(20)


def test_reading_a_history_acts_on_nothing() -> None:
    desk = desk_of("a, b -> c")
    desk.finish("a")
    other = desk_with(5)
    other.open("r", desk.journal)
    assert other.busy == 0
