"""What is done about failures where somebody said what: by the plan, by a worker, for all."""

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from chargehand.decisions.dispatch import Place
from chargehand.decisions.schedule import Schedule
from chargehand.errors import UsageError
from chargehand.facts.events import (
    AttemptLost,
    PersonAsked,
    PlanOpened,
    RetryPlanned,
    TaskAdded,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.failure_policy import (
    GIVE_UP,
    GO_ON_WITHOUT,
    TRY_AGAIN,
    FailureStep,
    OnFailure,
    Recourse,
)
from chargehand.facts.outcome import ErrorClass, Failed
from tests.decisions.virtual_kernel import VirtualKernel, kernel_of, seconds, tasks_of

WORKERS = (Place(worker="ann", skills=("read",)), Place(worker="bob", skills=("read",)))


def failing(arrows: str, *steps: str, **more: Any) -> VirtualKernel:
    """A run whose tasks all fail by this policy."""
    policy = OnFailure(steps, **more)
    return kernel_of(arrows, places=WORKERS, asked={"policies": {"": policy}})


def failure(kind: str, *, is_final: bool = False) -> Failed:
    return Failed(kind=ErrorClass(kind), message="it broke", is_final=is_final)


def steps_of(policy: OnFailure, *kinds: str) -> list[str]:
    """What is done about these failures, one after another."""
    before: list[ErrorClass] = []
    done = []
    for kind in kinds:
        done.append(policy.step(failure(kind), before).recourse.value)
        before.append(ErrorClass(kind))
    return done


# the data


def test_each_failure_is_met_by_the_next_step_and_after_a_last_try_it_is_given_up() -> None:
    policy = OnFailure(("again", "elsewhere"))
    assert steps_of(policy, *["network"] * 4) == ["again", "elsewhere", "fail", "fail"]


def test_a_last_step_that_is_no_try_is_taken_as_often_as_it_comes_to_that() -> None:
    assert steps_of(OnFailure(("again", "ask")), *["network"] * 3) == ["again", "ask", "ask"]


def test_a_class_of_errors_with_a_list_of_its_own_is_counted_by_itself() -> None:
    policy = OnFailure(("again", "fail"), kinds={"logic": ("rewritten", "without")})
    told = steps_of(policy, "network", "logic", "timeout", "logic")
    assert told == ["again", "rewritten", "fail", "without"]


def test_what_was_denied_is_tried_again_only_where_that_is_said_of_it() -> None:
    assert steps_of(OnFailure(("again", "without")), "denied") == ["without"]
    assert steps_of(OnFailure(("again",), kinds={"denied": ("elsewhere:bob",)}), "denied") == [
        "elsewhere"
    ]


def test_what_somebody_stopped_is_never_tried_again_and_nobody_is_asked() -> None:
    policy = OnFailure(("again", "ask", "without"), kinds={"cancelled": ("ask", "again")})
    assert policy.step(failure("cancelled")) == FailureStep(Recourse.FAIL)
    assert OnFailure(("ask", "without")).step(failure("cancelled")) == FailureStep(Recourse.WITHOUT)


def test_what_was_tried_below_as_often_as_possible_is_not_tried_again_here() -> None:
    policy = OnFailure(("again", "again", "ask"))
    assert policy.step(failure("network", is_final=True)) == FailureStep(Recourse.ASK)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((), "steps is empty"),
        (("agian",), "'agian' in steps is none of again, elsewhere"),
        (("again:bob",), "only elsewhere takes a name"),
        (("elsewhere:",), "only elsewhere takes a name"),
        (("without", "again"), "nothing can come after 'without'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(steps: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        OnFailure(steps)


def test_a_class_of_errors_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="'weather' is not a class of errors; there are network"):
        OnFailure(kinds={"weather": ("again",)})


def test_a_policy_is_the_same_after_json() -> None:
    policy = OnFailure(["again", "elsewhere:bob"], kinds={"logic": ["ask"]}, patience=seconds(60))
    assert msgspec.json.decode(msgspec.json.encode(policy), type=OnFailure) == policy


def test_a_policy_tells_itself_in_words() -> None:
    policy = OnFailure(("again", "elsewhere:bob"), kinds={"denied": ("ask",)})
    assert policy.words() == (
        "If it fails: try again, then hand it to bob, then give it up. "
        "If the failure is denied: ask a person."
    )


# what becomes of it


def test_more_tries_than_the_limit_are_made_where_a_policy_says_so() -> None:
    kernel = failing("a", "again", "again", "again", "again", "fail")
    for _ in range(5):
        kernel.wait(60)
        kernel.fail("a")
    assert kernel.started() == [f"a#{n}" for n in range(1, 6)]
    assert kernel.status == "failed"


def test_a_failed_task_is_handed_to_the_worker_named_and_then_to_a_person() -> None:
    ann = OnFailure(("elsewhere:bob", "ask"))
    kernel = kernel_of("a", places=WORKERS, asked={"policies": {"ann": ann}})
    kernel.fail("a", "logic")
    assert kernel.schedule.nodes["a"].worker == "bob"
    asked = kernel.fail("a", "logic")[-1]
    assert isinstance(asked, PersonAsked)
    assert "logic: it broke" in asked.question.text


def test_elsewhere_passes_over_who_has_failed_where_a_skill_is_asked_for() -> None:
    changes = {"a": {"worker": "", "skill": "read", "on_failure": OnFailure(("elsewhere",))}}
    kernel = kernel_of("a", places=WORKERS, tasks=changes)
    first = kernel.schedule.nodes["a"].worker
    kernel.fail("a", "logic")
    assert {first, kernel.schedule.nodes["a"].worker} == {"ann", "bob"}


def test_the_plan_is_heard_before_the_worker_and_the_worker_before_all() -> None:
    policies = {"": OnFailure(("fail_run",)), "ann": OnFailure(("without",))}
    changes: dict[str, dict[str, Any]] = {
        "b": {"on_failure": OnFailure(("again",))},
        "c": {"worker": "bob"},
    }
    kernel = kernel_of("a, b, c", places=WORKERS, tasks=changes, asked={"policies": policies})
    told = [kernel.schedule.policy_of(task) for task in "abc"]
    assert [policy.steps for policy in told if policy] == [("without",), ("again",), ("fail_run",)]


def test_without_it_its_dependents_run_and_the_gap_is_named() -> None:
    kernel = failing("a -> b -> c", "without")
    kernel.fail("a")
    assert kernel.states() == {"a": "failed", "b": "running", "c": "waiting"}
    kernel.finish("b")
    kernel.finish("c")
    assert kernel.status == "partial"
    assert getattr(kernel.journal[-1], "missing", None) == ("a",)


def test_a_task_that_is_added_later_goes_on_without_it_too() -> None:
    kernel = failing("", "without")
    a, c = tasks_of("a -> c")
    kernel.tell(PlanOpened(goal="a test", at=kernel.now), TaskAdded(task=a, at=kernel.now))
    kernel.fail("a")
    kernel.tell(TaskAdded(task=c, at=kernel.now))
    assert kernel.state("c") == "running"


def test_failing_the_run_stops_all_the_rest_at_once() -> None:
    kernel = failing("a -> b, c, d -> e", "fail_run")
    kernel.finish("c")
    kernel.fail("a")
    assert kernel.states() == {
        "a": "failed",
        "b": "skipped",
        "c": "done",
        "d": "running",
        "e": "skipped",
    }
    assert kernel.stopped() == ["d#1"]
    kernel.end("d", Failed(kind=ErrorClass.CANCELLED, message="stopped"))
    assert kernel.status == "partial"
    assert kernel.journal[-1].reason == "a failed"  # type: ignore[union-attr]


def test_a_person_may_have_it_tried_again_time_and_again() -> None:
    kernel = failing("a", "ask")
    for attempt in range(1, 8):
        kernel.fail("a", "logic")
        kernel.answer("a", TRY_AGAIN, f"r:a:failed-{attempt}")
    kernel.finish("a")
    assert kernel.status == "succeeded"


def test_a_task_that_is_asked_about_holds_no_place() -> None:
    kernel = kernel_of("a, b", pool=1, asked={"policies": {"": OnFailure(("ask",))}})
    kernel.fail("a")
    assert kernel.states() == {"a": "asking", "b": "running"}


@pytest.mark.parametrize(("said", "dependent"), [(GO_ON_WITHOUT, "running"), (GIVE_UP, "skipped")])
def test_a_person_may_go_on_without_it_or_give_it_up(said: str, dependent: str) -> None:
    kernel = failing("a -> b, c", "ask")
    kernel.fail("a")
    kernel.answer("a", said, "r:a:failed-1")
    assert (kernel.state("a"), kernel.state("b")) == ("failed", dependent)


def test_what_is_none_of_the_choices_decides_nothing() -> None:
    kernel = failing("a", "ask")
    kernel.fail("a")
    assert kernel.answer("a", "whatever", "r:a:failed-1") == []


def test_nobody_answering_in_time_gives_it_up_and_a_restart_does_not_change_that() -> None:
    kernel = failing("a", "ask", patience=timedelta(minutes=5))
    kernel.fail("a")
    kernel.crash()
    kernel.wait(299)
    assert kernel.state("a") == "asking"
    kernel.wait(1)
    assert kernel.status == "failed"


def test_steps_that_led_to_a_wrong_result_are_run_anew_when_a_person_wants_another_try() -> None:
    kernel = failing("a", "ask")
    kernel.fail("a", "logic")
    planned = kernel.answer("a", TRY_AGAIN, "r:a:failed-1")[1]
    assert isinstance(planned, RetryPlanned)
    assert planned.how == "afresh"


def test_without_time_for_another_try_the_ending_of_the_policy_holds() -> None:
    changes = {"a": {"deadline": seconds(0.5), "on_failure": OnFailure(("again", "without"))}}
    kernel = kernel_of("a -> b", tasks=changes)
    failed = kernel.fail("a")[1]
    assert isinstance(failed, TaskFailed)
    assert failed.then == "without"
    assert "no time left" in failed.cause.message
    assert kernel.state("b") == "running"


def test_a_wait_between_tries_holds_no_place() -> None:
    kernel = kernel_of("a, b", pool=1, asked={"policies": {"": OnFailure(("again",))}})
    kernel.fail("a")
    assert kernel.states() == {"a": "retrying", "b": "running"}


def test_a_task_that_kills_its_workers_is_set_aside_and_says_so() -> None:
    kernel = kernel_of("a -> b", losses=2)
    for _ in range(3):
        kernel.lose("a")
        kernel.wait(600)
    failed = next(event for event in kernel.journal if isinstance(event, TaskFailed))
    assert "its worker was lost 3 times without getting on" in failed.cause.message
    assert "it may be killing them" in failed.cause.message
    (last, *_) = [event for event in reversed(kernel.journal) if isinstance(event, AttemptLost)]
    assert last.reason
    assert f"(the last time: {last.reason})" in failed.cause.message
    assert failed.cause.message.endswith("Limits(losses=2) sets how often it may be lost")
    assert kernel.status == "failed"


def test_a_person_may_be_asked_about_a_task_that_kills_its_workers() -> None:
    kernel = kernel_of("a", losses=1, asked={"policies": {"": OnFailure(("again", "ask"))}})
    kernel.lose("a")
    asked = kernel.lose("a")[-1]
    assert isinstance(asked, PersonAsked)
    kernel.answer("a", TRY_AGAIN, asked.question.id)
    kernel.wait(600)
    kernel.finish("a")
    assert kernel.status == "succeeded"


# whatever happens


def test_a_run_that_stops_for_one_task_settles_another_that_was_lost_with_it_once() -> None:
    policies = {"ann": OnFailure(("fail_run",)), "bob": OnFailure(("without",))}
    changes = {"a": {"worker": "bob"}, "b": {"worker": "ann"}}
    arrows = "a -> c, b -> d, e"
    kernel = kernel_of(
        arrows, places=WORKERS, losses=1, tasks=changes, asked={"policies": policies}
    )
    kernel.finish("e")
    kernel.crash()
    kernel.crash()
    assert kernel.status == "partial"
    ended = [event.task for event in kernel.journal if isinstance(event, (TaskFailed, TaskSkipped))]
    assert len(ended) == len(set(ended))


@pytest.mark.parametrize("seed", [*range(40), 1011, 3159])
def test_every_run_ends_and_a_reader_of_its_journal_knows_what_its_leader_knew(seed: int) -> None:
    dice = random.Random(seed)
    policies = {
        name: OnFailure(
            (*dice.choices(["again", "elsewhere", "elsewhere:bob", "ask"], k=2), dice.choice(ENDS)),
            kinds={"logic": ("again", dice.choice(ENDS))} if dice.random() < 0.5 else {},
        )
        for name in dice.sample(["", "ann", "bob"], 2)
    }
    arrows = "a -> b -> c, a ~> d, e -> c, f"
    kernel = kernel_of(arrows, places=WORKERS, pool=2, losses=2, asked={"policies": policies})
    for _ in range(400):
        if not kernel.kernel.runs:
            break
        _happen(kernel, dice)
    assert kernel.status in ("succeeded", "partial", "failed")
    reader = Schedule()
    for event in kernel.journal:
        reader.apply(event)
        if reader.requested is not None:
            reader.check()
    assert reader.status is not None


ENDS = ["ask", "without", "fail", "fail_run"]


def _happen(kernel: VirtualKernel, dice: random.Random) -> None:
    nodes = list(kernel.schedule.nodes.values())
    asking = [node for node in nodes if node.question is not None]
    running = [node.task.id for node in nodes if node.is_open]
    if dice.random() < 0.05:
        kernel.crash()
    elif asking and dice.random() < 0.5:
        node = dice.choice(asking)
        assert node.question is not None
        said = dice.choice([TRY_AGAIN, GO_ON_WITHOUT, GIVE_UP])
        kernel.answer(node.task.id, said, node.question.id)
    elif running and (draw := dice.random()) < 0.9:
        task = dice.choice(running)
        if draw < 0.2:
            kernel.lose(task)
        elif draw < 0.7:
            kernel.fail(task, dice.choice(["network", "logic", "denied", "timeout"]))
        else:
            kernel.finish(task)
    else:
        kernel.wait(120)
