"""Escrow: what is spent and reserved never passes a cap, however the calls end and wherever they are made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargehand.decisions.budget import Account
from chargehand.facts.events import (
    AttemptFinished,
    AttemptLost,
    Effect,
    PlanAdopted,
    StepFinished,
    StepStarted,
)
from chargehand.facts.limits import Limits, TaskLimits
from chargehand.facts.outcome import NO_USAGE, Done, Usage
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import Value
from tests.decisions.virtual_kernel import START

CALL = Usage(calls=1, tokens_in=60, tokens_out=40, money=0.5)
#: what nobody can have spent
EARNED = Usage(calls=-5, tokens_in=-60, tokens_out=-40, cache_read=-1, cache_written=-1, money=-5)


def begun(number: int, task: str = "a", attempt: int = 1, reserve: Usage = CALL) -> StepStarted:
    return StepStarted(
        task=task,
        attempt=attempt,
        name="model",
        ordinal=number,
        effect=Effect.PURE,
        key=f"{task}{number}",
        digest="",
        reserve=reserve,
        at=START,
    )


def over(
    number: int, task: str = "a", attempt: int = 1, usage: Usage = CALL, name: str = "model"
) -> StepFinished:
    outcome = Done(usage=usage)
    key = f"{task}{number}"
    return StepFinished(
        task=task, attempt=attempt, name=name, ordinal=number, key=key, outcome=outcome, at=START
    )


def lost(task: str = "a", attempt: int = 1) -> AttemptLost:
    return AttemptLost(task=task, attempt=attempt, reason="gone", at=START)


@pytest.mark.parametrize(
    ("limits", "cap"),
    [(Limits(calls=2), "calls"), (Limits(tokens=250), "tokens"), (Limits(money=1.2), "money")],
    ids=["calls", "tokens", "money"],
)
def test_what_would_pass_a_cap_is_refused_by_its_name(limits: Limits, cap: str) -> None:
    account = Account(limits)
    for number in (1, 2):
        assert account.refusal("a", CALL) == ""
        account.apply(begun(number))
    assert f"Limits({cap}=" in account.refusal("a", CALL)


def test_a_cheaper_call_than_feared_leaves_room() -> None:
    account = Account(Limits(tokens=100))
    account.apply(begun(1))
    assert account.refusal("a", CALL) != ""
    account.apply(over(1, usage=Usage(calls=1, tokens_in=5)))
    assert account.spent.tokens_in == 5
    assert account.refusal("a", Usage(tokens_in=95)) == ""


def test_a_call_that_nobody_saw_the_end_of_counts_in_full() -> None:
    account = Account(Limits(calls=1))
    account.apply(begun(1))
    account.apply(lost())
    assert account.spent == CALL
    assert account.reserved == NO_USAGE


def test_a_step_begun_again_is_reserved_once() -> None:
    account = Account(Limits(calls=5))
    account.apply(begun(1))
    account.apply(begun(1))
    assert account.reserved == CALL


def test_a_part_is_kept_back_for_the_answer() -> None:
    account = Account(Limits(calls=2, money=1), keeps_back=True)
    cheap = Usage(calls=1)
    account.apply(begun(1, reserve=cheap))
    assert account.refusal("b", cheap) != ""
    assert account.refusal("@answer", cheap) == ""


def test_what_is_spent_below_counts_above() -> None:
    top = Account(Limits(calls=2))
    below = Account(Limits(), above=top)
    for number in (1, 2):
        assert below.refusal("x", CALL) == ""
        below.apply(begun(number))
    assert "calls" in below.refusal("x", CALL)
    assert "calls" in top.refusal("a", CALL)


def test_a_nested_run_is_counted_once() -> None:
    """As it spends, by its own account; its end brings the sum up again, and that is not added."""
    top = Account(Limits(calls=5))
    below = Account(Limits(), above=top)
    top.link("team", "below")
    below.apply(begun(1))
    below.apply(over(1))
    top.apply(over(1, task="team", usage=CALL, name="run"))
    assert top.spent == CALL


def test_a_nested_run_of_the_past_counts_by_its_sum() -> None:
    top = Account(Limits(calls=5))
    top.apply(over(1, task="team", usage=CALL, name="run"))
    assert top.spent == CALL


def test_nothing_is_earned_by_a_report_or_a_reserve_below_nothing() -> None:
    account = Account(Limits(calls=1))
    account.apply(begun(1, reserve=EARNED))
    assert account.reserved == NO_USAGE
    account.apply(over(1, usage=EARNED))
    finished = AttemptFinished(task="a", attempt=1, outcome=Done(usage=EARNED), at=START)
    account.apply(finished)
    assert account.spent == NO_USAGE
    account.apply(begun(2))
    assert account.refusal("a", CALL) != ""


@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from(["begin", "end", "cheap", "lie", "lose", "finish", "earn"]),
            st.integers(0, 3),
        ),
        max_size=60,
    ),
    calls=st.integers(0, 9),
)
def test_no_story_passes_the_cap_and_nothing_is_left_reserved(
    moves: list[tuple[str, int]], calls: int
) -> None:
    """Nor does one in which workers say that they have earned something, as older journals may have it."""
    account = Account(Limits(calls=calls))
    spent = 0
    attempts = dict.fromkeys("abcd", 1)
    numbers = dict.fromkeys("abcd", 0)
    for move, which in moves:
        task = "abcd"[which]
        attempt, number = attempts[task], numbers[task]
        if move == "begin" and not account.refusal(task, CALL):
            numbers[task] += 1
            account.apply(begun(numbers[task], task, attempt))
        elif move in ("end", "cheap", "lie") and number:
            usage = {"end": CALL, "cheap": NO_USAGE, "lie": EARNED}[move]
            account.apply(over(number, task, attempt, usage))
            numbers[task] -= 1
        elif move == "lose":
            account.apply(lost(task, attempt))
            attempts[task], numbers[task] = attempt + 1, 0
        elif move == "finish":
            account.apply(AttemptFinished(task=task, attempt=attempt, outcome=Done(), at=START))
            attempts[task], numbers[task] = attempt + 1, 0
        elif move == "earn":
            earned = Done(usage=EARNED)
            account.apply(AttemptFinished(task=task, attempt=attempt, outcome=earned, at=START))
            attempts[task], numbers[task] = attempt + 1, 0
        assert account.spent.calls + account.reserved.calls <= calls
        assert account.spent.calls >= spent
        assert min(account.reserved.calls, account.reserved.tokens_in, account.reserved.money) >= 0
        spent = account.spent.calls
    for task, attempt in attempts.items():
        account.apply(lost(task, attempt))
    assert account.reserved == NO_USAGE


@given(
    moves=st.lists(
        st.tuples(st.sampled_from(["begin", "end", "cheap", "lose"]), st.integers(0, 3)),
        max_size=60,
    ),
    caps=st.tuples(*[st.none() | st.integers(0, 6)] * 4),
)
def test_no_tree_of_runs_passes_a_cap_of_any_of_them(
    moves: list[tuple[str, int]], caps: tuple[int | None, ...]
) -> None:
    """One run with two below it, and one below those; what each holds is added up anew each time."""
    above = [None, 0, 0, 1]
    tree: list[Account] = []
    for cap, up in zip(caps, above, strict=True):
        tree.append(Account(Limits(calls=cap), above=None if up is None else tree[up]))
    held = [0, 0, 0, 0]
    steps: list[list[int]] = [[], [], [], []]
    for count, (move, which) in enumerate(moves):
        account, open_steps = tree[which], steps[which]
        if move == "begin" and not account.refusal("a", CALL):
            account.apply(begun(count))
            open_steps.append(count)
            held[which] += 1
        elif move in ("end", "cheap") and open_steps:
            account.apply(over(open_steps.pop(), usage=CALL if move == "end" else NO_USAGE))
            held[which] -= move == "cheap"
        elif move == "lose":
            account.apply(lost())
            open_steps.clear()
        below = [held[0] + held[1] + held[2] + held[3], held[1] + held[3], held[2], held[3]]
        for cap, account, calls in zip(caps, tree, below, strict=True):
            assert account.spent.calls + account.reserved.calls == calls
            assert cap is None or calls <= cap


def reported(usage: Usage, task: str = "a", attempt: int = 1) -> AttemptFinished:
    return AttemptFinished(task=task, attempt=attempt, outcome=Done(Value(), usage), at=START)


def test_reported_usage_beyond_a_cap_is_an_overrun() -> None:
    account = Account(Limits(calls=7, tokens=10, money=1))
    account.apply(reported(Usage(calls=7, money=1.0)))
    assert account.overruns() == account.new_overruns() == ()
    account.apply(reported(Usage(calls=8, money=0.5), attempt=2))
    told = ("$1.5, more than Limits(money=1)", "15 calls, more than Limits(calls=7)")
    assert tuple(map(str, account.overruns())) == told
    assert account.new_overruns() == account.overruns()
    account.apply(reported(Usage(calls=1), attempt=3))
    assert account.new_overruns() == (), "they were told before"


def test_reported_usage_counts_against_the_caps_of_its_task() -> None:
    """So that another attempt at the task cannot spend the same again."""
    capped = Task(id="a", description="Ask", worker="w", limits=TaskLimits(calls=2))
    account = Account(Limits())
    account.apply(PlanAdopted(plan=Plan(goal="g", tasks=[capped]), at=START))
    account.apply(reported(Usage(calls=3), task="b"))
    assert (account.refusal("a", CALL), account.overruns()) == ("", ())
    account.apply(reported(Usage(calls=3)))
    assert "TaskLimits(calls=2) of a" in account.refusal("a", CALL)
    assert [str(each) for each in account.overruns()] == [
        "3 calls, more than TaskLimits(calls=2) of a"
    ]
