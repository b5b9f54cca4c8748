"""What the coordinator makes of events: against a naive recount, and rule by rule."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from chargehand.decisions.coordination.board_conflicts import BoardWatch
from chargehand.decisions.coordination.conflicts import (
    Conflict,
    ConflictKind,
    Said,
    conflicts_in,
    rule,
)
from chargehand.decisions.coordination.observed_run import RunWatch
from chargehand.decisions.coordination.progress_counts import Load, Progress
from chargehand.decisions.coordination.trouble_search import HealthCheck
from chargehand.decisions.coordination.troubles import Health, Symptom, WorkerPulse
from chargehand.decisions.dispatch import Place
from chargehand.decisions.quorum import quorum
from chargehand.decisions.system_tasks import is_system_task
from chargehand.facts.answer import Answer, Claim, Contradiction
from chargehand.facts.board import (
    BlockGuarded,
    BlockRefused,
    BlockWritten,
    BoardEvent,
    Guard,
    NotePosted,
    board_of_run,
)
from chargehand.facts.events import (
    Approach,
    AttemptFinished,
    AttemptLost,
    AttemptParked,
    AttemptPreempted,
    AttemptStarted,
    Event,
    PersonAsked,
    PlanAdopted,
    ProgressNoted,
    QuestionAnswered,
    RetryPlanned,
    RunFinished,
    RunPaused,
    TaskFailed,
    TaskSkipped,
)
from chargehand.facts.failure_policy import OnFailure
from chargehand.facts.outcome import Done, Failed, NeedsInput
from chargehand.facts.plan import Plan, Task
from chargehand.facts.value import Value
from tests.decisions.virtual_kernel import (
    RUN,
    START,
    VirtualKernel,
    kernel_of,
    requested,
    seconds,
    tasks_of,
)

ANN_AND_BOB = (Place(worker="ann", capacity=4), Place(worker="bob", capacity=4))


def watch_of(events: Sequence[Event], pulse: WorkerPulse | None = None) -> RunWatch:
    watch = RunWatch(RUN, pulse)
    for seq, event in enumerate(events, 1):
        watch.apply(seq, event)
    return watch


def at(second: float) -> datetime:
    return START + seconds(second)


# A naive recount


def recount(events: Sequence[Event]) -> dict[str, int]:
    """Tasks by where they stand, each judged by the last that was said of it."""
    state: dict[str, str] = {}
    for event in events:
        match event:
            case PlanAdopted(plan=plan):
                state |= dict.fromkeys((task.id for task in plan.tasks), "pending")
            case AttemptStarted(task=task):
                state[task] = "running"
            case AttemptFinished(task=task, outcome=Done()):
                state[task] = "completed"
            case AttemptFinished(task=task, outcome=NeedsInput()) | PersonAsked(task=task):
                state[task] = "asking"
            case (
                AttemptFinished(task=task)
                | AttemptLost(task=task)
                | AttemptPreempted(task=task)
                | AttemptParked(task=task)
                | QuestionAnswered(task=task)
                | RetryPlanned(task=task)
            ):
                state[task] = "pending"
            case TaskFailed(task=task):
                state[task] = "failed"
            case TaskSkipped(task=task):
                state[task] = "skipped"
            case RunFinished():
                left = ("pending", "running", "asking")
                state = {id_: "cancelled" if it in left else it for id_, it in state.items()}
            case _:
                pass
    return Counter(it for task, it in state.items() if not is_system_task(task))


def recount_workers(events: Sequence[Event]) -> dict[str, tuple[int, int, int]]:
    """By worker: attempts that run, were completed, came to nothing."""
    who: dict[tuple[str, int], str] = {}
    counts: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, AttemptStarted):
            who[event.task, event.attempt] = event.worker
            counts.setdefault(event.worker, [0, 0, 0])[0] += 1
        elif isinstance(event, AttemptFinished | AttemptLost | AttemptPreempted | AttemptParked):
            outcome = event.outcome if isinstance(event, AttemptFinished) else None
            count = counts[who[event.task, event.attempt]]
            count[0] -= 1
            count[1] += isinstance(outcome, Done)
            count[2] += isinstance(event, AttemptLost) or isinstance(outcome, Failed)
    return {name: (count[0], count[1], count[2]) for name, count in counts.items()}


def random_story(seed: int) -> tuple[list[Event], list[int]]:
    """What happens to a run of a random plan; also how much is written down after each happening."""
    chance = random.Random(seed)
    names = [f"t{place}" for place in range(chance.randint(2, 7))]
    tasks: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(names):
        needs = chance.sample(names[:place], k=min(place, chance.randint(0, 2)))
        policy = OnFailure(["ask"]) if chance.random() < 0.2 else None
        tasks[name] = {
            "needs": needs,
            "worker": chance.choice(["ann", "bob"]),
            "on_failure": policy,
        }
    resources = kernel_of(", ".join(names), places=ANN_AND_BOB, pool=3, tasks=tasks, losses=9)
    sizes = [len(resources.journal)]
    for number in range(chance.randint(5, 40)):
        _happen(resources, chance, number)
        sizes.append(len(resources.journal))
    return resources.journal, sizes


def _happen(resources: VirtualKernel, chance: random.Random, number: int) -> None:
    nodes = resources.schedule.nodes if RUN in resources.kernel.runs else {}
    running = [id_ for id_, node in nodes.items() if node.is_open]
    asking = [node for node in nodes.values() if node.question is not None]
    task = chance.choice(running) if running else ""
    acts: list[Callable[[], object]] = [lambda: resources.wait(chance.choice([0.5, 3, 60]))]
    if running:
        acts += [lambda: resources.finish(task, number)] * 3
        acts += [
            lambda: resources.fail(task, chance.choice(["network", "logic", "denied"])),
            lambda: resources.lose(task),
            lambda: resources.park(task, chance.choice([1, 30])),
            lambda: resources.ask(task, f"q{number}"),
        ]
    if asking:
        asked = asking[0].question
        assert asked is not None
        text = asked.choices[number % 3] if asked.choices else "yes"
        acts += [lambda: resources.answer(asking[0].task.id, text, asked.id)] * 2
    if nodes and chance.random() < 0.1:
        acts = [chance.choice([resources.cancel, resources.crash])]
    chance.choice(acts)()


@pytest.mark.parametrize("seed", range(60))
def test_progress_is_what_a_naive_recount_comes_to_after_all_that_happens(seed: int) -> None:
    events, sizes = random_story(seed)
    watch = RunWatch(RUN)
    for size in sizes:
        for seq, event in enumerate(events[watch.seq : size], watch.seq + 1):
            watch.apply(seq, event)
        far, naive = watch.progress(), recount(events[:size])
        states = ("pending", "running", "asking", "completed", "failed", "skipped", "cancelled")
        told = {name: getattr(far, name) for name in states if getattr(far, name)}
        if far.cancelled and not watch.is_over:
            continue  # of a run that is being stopped the events do not say which tasks are
        assert told == naive
        workers = {
            name: (load.running, load.completed, load.failed) for name, load in far.workers.items()
        }
        assert workers == recount_workers(events[:size])


def test_the_stories_of_the_recount_hold_all_that_can_happen() -> None:
    stories = [random_story(seed)[0] for seed in range(60)]
    kinds = {type(event).__name__ for events in stories for event in events}
    wanted = {
        *("AttemptFinished", "AttemptLost", "AttemptParked", "PersonAsked", "QuestionAnswered"),
        *("RetryPlanned", "TaskFailed", "TaskSkipped", "RunFinished", "CancelRequested"),
    }
    assert wanted <= kinds


@pytest.mark.parametrize("seed", range(10))
def test_progress_of_many_runs_is_the_sum_in_whatever_order(seed: int) -> None:
    parts = [watch_of(random_story(seed * 10 + n)[0]).progress() for n in range(6)]
    forward = sum(parts, Progress())
    assert forward == sum(reversed(parts), Progress())
    assert forward.total == sum(part.total for part in parts)
    assert sum(forward.runs.values()) == 6


def test_a_worker_that_holds_something_is_active_and_its_usual_length_is_told() -> None:
    resources = kernel_of("one, two", places=(Place(worker="ann"),))
    resources.wait(4)
    resources.finish("one")
    far = watch_of(resources.journal).progress()
    assert far.active_workers == ("ann",)
    assert far.workers["ann"] == Load(running=1, completed=1, busy=seconds(4), last_at=at(4))
    assert far.workers["ann"].mean == seconds(4)
    assert str(far) == "1 of 2 done, 1 running"


def test_a_second_attempt_that_wins_is_done_once_and_by_whoever_did_it() -> None:
    places = (Place(worker="ann", skills=("dig",)), Place(worker="bob", skills=("dig",)))
    task = {"worker": "", "skill": "dig", "hedge": True, "expect": seconds(1)}
    resources = kernel_of("one", places=places, tasks={"one": task}, asked={"hedges": True})
    resources.wait(5)
    (hedge,) = [id_ for id_ in resources.schedule.nodes if id_.startswith("@hedge")]
    assert watch_of(resources.journal).progress().active_workers == ("ann", "bob")
    resources.finish(hedge, 7)
    far = watch_of(resources.journal).progress()
    assert (far.total, far.completed) == (1, 1)
    assert (far.workers["ann"].completed, far.workers["bob"].completed) == (0, 1)


# Health


def round_of(watch: RunWatch, now: datetime, *, live_run: bool = True, **more: Any) -> Health:
    usual = more.pop("usual", {})
    patience = more.pop("patience", timedelta(minutes=5))
    watches = {watch.run: watch, **{each.run: each for each in more.pop("below", ())}}
    found = HealthCheck(watches, watches if live_run else (), usual, now, patience, **more)
    return Health(now, tuple(found.troubles()))


def test_an_attempt_that_is_silent_for_longer_than_the_patience_is_stuck() -> None:
    watch = watch_of(kernel_of("one").journal)
    assert round_of(watch, at(299)).is_well
    (trouble,) = round_of(watch, at(301)).of("stuck")
    assert (trouble.name, trouble.run, trouble.task) == ("ann", RUN, "one")
    assert "has reported nothing for 5 min" in trouble.fact


def test_a_sign_of_life_ends_the_silence() -> None:
    resources = kernel_of("one")
    resources.now = at(200)
    resources.tell(ProgressNoted(task="one", attempt=1, text="half", at=resources.now))
    assert round_of(watch_of(resources.journal), at(400)).is_well


def test_a_worker_that_is_known_to_be_quick_is_stuck_sooner() -> None:
    watch = watch_of(kernel_of("one").journal)
    quick = {"ann": (3, seconds(8))}
    assert round_of(watch, at(23), usual=quick).is_well
    assert round_of(watch, at(25), usual=quick).of(Symptom.STUCK)
    assert round_of(watch, at(9), usual={"ann": (3, seconds(1))}).is_well, (
        "a hiccup is not a trouble"
    )
    assert round_of(watch, at(25), usual={"ann": (2, seconds(8))}).is_well, "too little is known"


def test_an_attempt_that_leads_a_run_is_as_alive_as_that_run() -> None:
    above, below = watch_of(kernel_of("one").journal), RunWatch("below")
    above.nested["one"] = "below"
    events: list[Event] = [
        requested(run="below", parent=RUN),
        PlanAdopted(plan=Plan(goal="g", tasks=tasks_of("in")), at=START),
        AttemptStarted(task="in", attempt=1, worker="eve", at=at(250)),
    ]
    for seq, event in enumerate(events, 1):
        below.apply(seq, event)
    assert round_of(above, at(400), below=[below]).is_well
    assert {each.name for each in round_of(above, at(600), below=[below]).troubles} == {
        "ann",
        "eve",
    }


def test_a_question_that_waits_is_told_with_how_to_answer_it() -> None:
    resources = kernel_of("one")
    resources.ask("one", "q1")
    (trouble,) = round_of(watch_of(resources.journal), at(90)).troubles
    assert trouble.kind is Symptom.ASKING
    assert trouble.fact == "one of run r has waited for 90 s for a person: which?"
    assert trouble.advice == 'chargehand answer q1 "…" answers it'


def test_what_the_planner_asks_is_told_as_well() -> None:
    resources = kernel_of("", asked={"approach": Approach.WHOLE})
    resources.ask("@plan", "q2")
    assert [trouble.name for trouble in round_of(watch_of(resources.journal), at(1)).troubles] == [
        "q2"
    ]


def test_a_run_that_nobody_leads_is_told_once_and_not_as_stuck() -> None:
    watch = watch_of(kernel_of("one").journal)
    (trouble,) = round_of(watch, at(999), live_run=False).troubles
    assert trouble.kind is Symptom.UNLED
    assert trouble.advice == "chargehand resume r continues it"


def test_a_run_of_a_pool_needs_no_leader_and_its_failures_are_for_the_supervisor() -> None:
    asked = {"approach": Approach.POOL, "policies": {"": OnFailure(["ask"])}}
    resources = kernel_of("one", asked=asked)
    resources.fail("one")
    (trouble,) = round_of(watch_of(resources.journal), at(999), live_run=False).troubles
    assert trouble.kind is Symptom.ASKING
    assert trouble.advice == "supervisor.reassign_task gives it to another worker"


def test_a_run_in_which_nobody_begins_with_what_is_ready_is_told_after_the_patience() -> None:
    resources = kernel_of("one", places=(Place(worker="bob"),))
    watch = watch_of(resources.journal)
    assert round_of(watch, at(299)).is_well
    (trouble,) = round_of(watch, at(301)).troubles
    assert trouble.kind is Symptom.UNLED
    assert "nothing has happened to it for 5 min: 0 of 1 done, 1 pending" in trouble.fact
    assert trouble.advice.endswith("continues it, if its leader is gone")


def test_a_paused_run_may_be_silent() -> None:
    resources = kernel_of("one", places=(Place(worker="bob"),))
    resources.tell(RunPaused(at=START))
    assert round_of(watch_of(resources.journal), at(9999)).is_well


def test_what_is_silent_in_a_pool_can_be_taken_by_another_worker() -> None:
    watch = watch_of(kernel_of("one", asked={"approach": Approach.POOL}).journal)
    (trouble,) = round_of(watch, at(999)).troubles
    assert trouble.kind is Symptom.STUCK
    assert "get_assigned_tasks(lost=True)" in trouble.advice


def test_a_task_of_a_pool_whose_process_is_gone_is_told_at_once() -> None:
    watch = RunWatch(RUN)
    for seq, event in enumerate(kernel_of("one", asked={"approach": Approach.POOL}).journal, 1):
        watch.apply(seq, event, "n7")
    assert round_of(watch, at(1)).is_well
    (trouble,) = round_of(watch, at(1), gone={"n7"}).troubles
    assert (trouble.kind, trouble.name, trouble.task) == (Symptom.GONE, "ann", "one")


def test_who_fails_in_a_row_is_told_whatever_the_order_in_which_runs_are_read() -> None:
    pulse = WorkerPulse()
    for second in (5, 3, 4):
        pulse.failed("ann", at(second), "r/t", "network: gone")
    assert [trouble.name for trouble in pulse.troubles(at(9))] == ["ann"]
    assert "failed 3 times in a row, last in r/t: network: gone" in pulse.troubles(at(9))[0].fact
    assert pulse.troubles(at(9) + timedelta(hours=1)) == [], "that was long ago"
    pulse.done("ann", at(2))
    assert len(pulse.in_a_row("ann")) == 3
    pulse.done("ann", at(3))
    assert pulse.troubles(at(9)) == []


def test_failures_of_a_run_are_counted_for_the_worker() -> None:
    pulse = WorkerPulse()
    resources = kernel_of("one, two, three")
    for task in ("one", "two", "three"):
        resources.fail(task, "denied")
    watch_of(resources.journal, pulse)
    assert [trouble.name for trouble in pulse.troubles(at(9))] == ["ann"]


# Conflicts of a run


def twins(**changes: Any) -> VirtualKernel:
    same = {"description": "count the apples", **changes}
    tasks = {"one": {**same, "worker": "ann"}, "two": {**same, "worker": "bob"}}
    return kernel_of("one, two", places=ANN_AND_BOB, tasks=tasks)


def found_in(resources: VirtualKernel) -> list[Conflict]:
    return conflicts_in(watch_of(resources.journal))


def test_the_same_work_for_two_workers_is_kept_by_whoever_began_first() -> None:
    (conflict,) = found_in(twins())
    assert conflict.kind is ConflictKind.DOUBLE_ASSIGNMENT
    assert (conflict.run, conflict.task, conflict.tasks) == (RUN, "one", ("one", "two"))
    assert conflict.parties == ("ann", "bob")
    assert (conflict.resolution.keeper, conflict.resolution.task) == ("ann", "one")
    assert "remove two (bob) from the plan" in str(conflict)
    assert not conflict.is_settled


def test_before_anybody_began_it_is_kept_by_whoever_was_given_it_first() -> None:
    events: list[Event] = [
        requested(),
        PlanAdopted(
            plan=Plan(
                goal="g",
                tasks=[
                    Task(id="b", description="count  Apples", worker="bob"),
                    Task(id="a", description="count apples", worker="ann"),
                ],
            ),
            at=START,
        ),
    ]
    (conflict,) = conflicts_in(watch_of(events))
    assert conflict.resolution.keeper == "bob"
    assert "was assigned first" in conflict.resolution.words


@pytest.mark.parametrize(
    "resources",
    [
        kernel_of("one, two", places=ANN_AND_BOB),
        kernel_of("one, two", tasks={"one": {"description": "x"}, "two": {"description": "x"}}),
        kernel_of(
            "one, two",
            places=ANN_AND_BOB,
            tasks={
                "one": {"description": "read", "args": {"page": 1}},
                "two": {"description": "read", "args": {"page": 2}, "worker": "bob"},
            },
        ),
    ],
    ids=["other words", "one worker", "other arguments"],
)
def test_what_is_not_the_same_work_for_two_is_no_conflict(resources: VirtualKernel) -> None:
    assert found_in(resources) == []


def test_what_is_to_be_voted_on_is_meant_to_be_given_out_twice() -> None:
    asked = Task(id="apples", description="count the apples", worker="ann")
    tasks = quorum(asked, 2, 2, workers=["ann", "bob"])
    plan = PlanAdopted(plan=Plan(goal="g", tasks=tasks), at=START)
    assert conflicts_in(watch_of([requested(), plan])) == []


def test_results_that_differ_are_a_contradiction_and_the_first_stands() -> None:
    resources = twins()
    resources.wait(1)
    resources.finish("two", 12)
    resources.wait(1)
    resources.finish("one", 11)
    double, conflict = found_in(resources)
    assert double.is_settled
    assert conflict.kind is ConflictKind.CONTRADICTION
    assert (conflict.resolution.keeper, conflict.resolution.value) == ("bob", 12)
    assert "ann says 11; bob says 12" in conflict.fact
    assert conflict.resolution.words.endswith("it came first, so the later one is rejected")


def test_results_that_agree_but_for_case_and_blanks_are_none() -> None:
    resources = twins()
    resources.finish("one", "Twelve apples.")
    resources.finish("two", "twelve  apples")
    assert [conflict.kind for conflict in found_in(resources)] == [ConflictKind.DOUBLE_ASSIGNMENT]


def said(by: str, value: object, second: float = 0, importance: float = 0) -> Said:
    return Said(by=by, value=value, at=at(second), importance=importance)


@pytest.mark.parametrize(
    ("results", "stands", "why"),
    [
        ([said("a", 1, 0, 9), said("b", 2, 1), said("c", 2, 2)], "b", "2 of 3 say so"),
        ([said("a", 1, 0), said("b", 2, 1, 0.5)], "b", "more important"),
        ([said("a", 1, 3), said("b", 2, 1)], "b", "it came first"),
        ([said("a", 1), said("b", 2), said("c", 2.0), said("d", 1.0, 0, 1)], "d", "more important"),
    ],
)
def test_the_majority_stands_else_the_more_important_else_the_first(
    results: list[Said], stands: str, why: str
) -> None:
    verdict = rule(results)
    assert verdict is not None
    assert verdict.keeper == stands
    assert why in verdict.words


def test_what_the_answer_names_as_a_contradiction_is_ruled_by_how_many_tasks_say_so() -> None:
    resources = kernel_of("one, two, three", asked={"answers": True})
    for number, task in enumerate(("one", "two", "three")):
        resources.wait(1)
        resources.finish(task, f"a long story number {number}")
    pair = Contradiction(Claim("it rose", ("one",)), Claim("it fell", ("two", "three")))
    resources.finish("@answer", Answer(output="unclear", contradictions=(pair,)))
    (conflict,) = found_in(resources)
    assert conflict.tasks == ("one", "two", "three")
    assert conflict.resolution.value == "it fell"
    assert "2 of 3 say so" in conflict.resolution.words


def test_a_late_result_that_was_refused_is_a_double_assignment_that_is_settled() -> None:
    resources = kernel_of("one")
    resources.crash()
    resources.finish("one", "new", attempt=2)
    watch = watch_of(resources.journal)
    assert conflicts_in(watch) == []
    resources = kernel_of("one -> two")
    resources.crash()
    resources.tell(AttemptFinished(task="one", attempt=1, outcome=Done(), at=resources.now))
    (conflict,) = found_in(resources)
    assert conflict.is_settled
    assert "and both reported" in conflict.fact


def test_a_task_held_twice_at_once_is_kept_by_the_first() -> None:
    resources = kernel_of("one")
    again = AttemptStarted(task="one", attempt=2, worker="bob", at=at(1))
    (conflict,) = conflicts_in(watch_of([*resources.journal, again]))
    assert conflict.parties == ("ann", "bob")
    assert conflict.resolution.keeper == "ann"
    assert conflict.fact.endswith("at once")


# Conflicts on a board


def board_of(*events: BoardEvent) -> list[Conflict]:
    watch = BoardWatch(board_of_run(RUN), RUN)
    for seq, event in enumerate(events, 1):
        watch.apply(seq, event)
    return watch.conflicts()


def note(
    author: str, segment: str, second: float, content: object = None, **more: Any
) -> NotePosted:
    return NotePosted(
        author=author, segment=segment, at=at(second), content=Value.of(content), **more
    )


def given(worker: str, second: float, **more: Any) -> NotePosted:
    about = {"task_id": "t1", "request_id": "q", "assigned_to": worker}
    return note("boss", "tasks", second, "do it", metadata=about, **more)


def test_a_task_that_notes_assign_to_two_is_kept_by_the_earliest() -> None:
    (conflict,) = board_of(given("ann", 1), given("bob", 2))
    assert conflict.kind is ConflictKind.DOUBLE_ASSIGNMENT
    assert conflict.parties == ("ann", "bob")
    assert conflict.resolution.keeper == "ann"
    assert conflict.fact == "task t1 of request q is assigned to ann and bob"


def test_a_task_that_notes_assign_to_two_is_kept_by_whoever_began() -> None:
    begun = note("bob", "progress", 3, {"task_id": "t1", "request_id": "q"})
    (conflict,) = board_of(given("ann", 1), given("bob", 2), begun)
    assert conflict.resolution.keeper == "bob"


def test_a_task_that_was_reassigned_or_told_twice_is_no_conflict() -> None:
    assert board_of(given("ann", 1), given("ann", 2)) == []
    assert board_of(given("ann", 1), given("bob", 2, tags=("task", "reassigned"))) == []


def test_notes_with_results_that_differ_are_settled_by_importance() -> None:
    about = {"metadata": {"task": "t1"}}
    (conflict,) = board_of(
        note("ann", "results", 1, {"result": 3, "worker": "ann"}, importance=0.8, **about),
        note("bob", "results", 2, {"result": 4, "worker": "bob"}, importance=0.9, **about),
    )
    assert conflict.kind is ConflictKind.CONTRADICTION
    assert (conflict.resolution.keeper, conflict.resolution.value) == ("bob", 4)


def test_an_author_who_corrects_itself_contradicts_nobody() -> None:
    about = {"metadata": {"question": "how many?"}}
    assert (
        board_of(note("ann", "results", 1, 3, **about), note("ann", "results", 2, 4, **about)) == []
    )


def written(author: str, version: int, value: object) -> BlockWritten:
    return BlockWritten(
        author=author, label="plan", version=version, value=Value.of(value), at=at(version)
    )


FEUD = (
    written("ann", 1, "a"),
    written("bob", 2, "b"),
    written("ann", 3, "a"),
    written("bob", 4, "b"),
)


def test_two_who_undo_each_other_are_told_to_guard_the_block_or_to_update_it() -> None:
    assert board_of(*FEUD[:3]) == [], "taken back once"
    (conflict,) = board_of(*FEUD)
    assert conflict.kind is ConflictKind.TWO_WRITERS
    assert (conflict.block, conflict.parties) == ("plan", ("ann", "bob"))
    assert conflict.resolution.keeper == "ann"
    assert "board.guard('plan', writers=['ann'])" in conflict.resolution.words


def test_two_who_take_turns_are_no_conflict() -> None:
    turns = [written("ann" if n % 2 else "bob", n, list(range(n))) for n in range(1, 9)]
    assert board_of(*turns) == []


def test_a_guard_settles_who_writes() -> None:
    guard = BlockGuarded(author="boss", label="plan", guard=Guard(writers=("ann",)), at=at(5))
    assert board_of(*FEUD, guard) == []


def test_a_refused_writer_is_told_of_and_nothing_is_left_to_do() -> None:
    refused = BlockRefused(
        author="bob", label="plan", role="bob", why="only 'ann' may write it", at=at(2)
    )
    (conflict,) = board_of(FEUD[0], refused, refused)
    assert conflict.is_settled
    assert conflict.parties == ("ann", "bob")
    assert "(2 times): only 'ann' may write it" in conflict.fact
