"""Plans and runs as SVG pictures."""

import random
import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest

from chargehand.decisions.task_graph import ranks_of
from chargehand.decisions.trace import Trace
from chargehand.decisions.trace_types import AttemptSpan, StepKind, StepSpan
from chargehand.errors import UsageError
from chargehand.facts.plan import Plan, Task
from chargehand.presentation.graph_layout import lay_out, stacks_of
from chargehand.presentation.plan_svg import MOST_BOXES, plan_svg
from chargehand.presentation.timeline_svg import timeline_svg

BEGAN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>&\"'\x1b[31m\u202egnp\ufffe"


def task(id_: str, *needs: str, worker: str = "reader", words: str = "Read it") -> Task:
    return Task(id=id_, description=words, worker=worker, needs=needs)


def plan(*tasks: Task) -> Plan:
    return Plan(goal="Compare three offers", tasks=tasks)


def words_of(picture: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(picture).iter(f"{SVG}text")]


def attempt(task_id: str, since: float, until: float | None, **more: object) -> AttemptSpan:
    began_at = BEGAN + timedelta(seconds=since)
    facts = {
        "attempt": 1, "worker": "reader", "why": "", "ready_at": began_at,
        "ended_at": None if until is None else BEGAN + timedelta(seconds=until),
        "ending": "" if until is None else "done",
    } | more  # fmt: skip
    return AttemptSpan(task=task_id, began_at=began_at, **facts)  # type: ignore[arg-type] # by name


def trace(*attempts: AttemptSpan, until: float = 10) -> Trace:
    return Trace(began_at=BEGAN, ended_at=BEGAN + timedelta(seconds=until), attempts=list(attempts))


def test_a_plan_is_drawn_with_each_task_and_its_state_in_words() -> None:
    picture = plan_svg(
        plan(task("first"), task("second", "first"), task("third", "first")),
        {"first": "done", "second": "asking"},
    )
    assert words_of(picture) == ["first", "done", "reader", "second", "needs you", "reader", "third", "waiting", "reader"]  # fmt: skip


def test_an_unknown_state_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="'finished' is not a state of a task; use one of waiting"):
        plan_svg(plan(task("only")), {"only": "finished"})


def test_nothing_that_a_model_wrote_becomes_markup_or_hides() -> None:
    hostile = Plan(goal=HOSTILE, tasks=[task("only", worker=HOSTILE, words=HOSTILE)])
    pictures = [
        plan_svg(hostile),
        timeline_svg(trace(attempt(HOSTILE, 0, 9, worker=HOSTILE, error=HOSTILE, ending="failed"))),
    ]
    for picture in pictures:
        root = ET.fromstring(picture)
        assert not list(root.iter(f"{SVG}script"))
        assert "\x1b" not in picture
        assert "\u202e" not in picture
        assert "http" not in picture.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_both_colour_schemes_are_in_the_picture() -> None:
    for picture in (plan_svg(plan(task("only"))), timeline_svg(trace(attempt("only", 0, 1)))):
        assert "prefers-color-scheme:dark" in picture


def test_the_critical_path_is_bold_and_nothing_else_is() -> None:
    tasks = plan(task("a"), task("b", "a"), task("c", "a"), task("d", "a", "b", "c"))
    picture = plan_svg(tasks, critical_path=["a", "b", "d"])
    bold = [each for each in ET.fromstring(picture).iter(f"{SVG}path") if "--ink)" in each.get("style", "")]  # fmt: skip
    assert [each.get("d", "").count("M") for each in bold] == [2]
    assert picture.count("stroke:var(--ink);stroke-width:2.25") == 3


def test_the_fan_outs_of_a_large_plan_are_stacks() -> None:
    reads = [task(f"read-{n}") for n in range(60)]
    checks = [task(f"check-{n}", f"read-{n}", worker="checker") for n in range(60)]
    end = task("end", *(each.id for each in checks), worker="writer")
    picture = plan_svg(plan(*reads, *checks, end), {each.id: "done" for each in reads})
    assert words_of(picture)[:6] == ["×60", "read", "60 done", "×60", "check", "60 waiting"]


def test_a_plan_with_too_many_different_tasks_says_what_is_left_out() -> None:
    tasks = [task(f"t{n}", worker=f"w{n}") for n in range(MOST_BOXES + 7)]
    assert words_of(plan_svg(plan(*tasks)))[-1] == "… and 7 tasks more: the dashboard shows all"


def test_tasks_stand_right_of_their_needs_and_do_not_overlap() -> None:
    for seed in range(40):
        random_ = random.Random(seed)
        needs = {n: random_.sample(range(n), min(n, random_.randrange(4))) for n in range(40)}
        layout = lay_out(needs, dict.fromkeys(needs, 44.0))
        for key, wanted in needs.items():
            assert all(layout.boxes[need].rank < layout.boxes[key].rank for need in wanted)
        for one, two in combinations(layout.boxes.values(), 2):
            assert one.rank != two.rank or abs(one.y - two.y) >= 44 + 12


def test_a_circle_is_drawn_and_not_followed_for_ever() -> None:
    assert set(ranks_of({"a": ["b"], "b": ["a"], "c": ["missing"]})) == {"a", "b", "c"}
    assert plan_svg(plan(task("a", "b"), task("b", "a")))


def test_siblings_that_do_different_work_are_not_stacked() -> None:
    tasks = [task(f"t{n}", worker=f"w{n % 50}") for n in range(100)]
    assert all(len(stack) == 1 for stack in stacks_of(tasks))


def test_a_timeline_has_a_lane_per_worker_and_says_how_much_ran_at_once() -> None:
    spans = [
        attempt("@plan", 0, 1, worker="@plan"),
        *(attempt(f"read-{n}", 1, 8) for n in range(3)),
        attempt("write", 8, 10, worker="writer"),
    ]
    words = words_of(timeline_svg(trace(*spans)))
    assert "3 at most" in words
    lanes = [word for word in words if word in ("supervisor", "reader", "writer")]
    assert lanes == ["supervisor", "reader", "writer"]
    assert {"read-0", "read-1", "read-2"} <= set(words)


def test_a_long_idle_stretch_is_collapsed_and_says_how_long_it_was() -> None:
    words = words_of(timeline_svg(trace(attempt("a", 0, 5), attempt("b", 3605, 3610), until=3610)))
    assert "1 h 0 min idle" in words
    assert {"a", "b"} <= set(words)


def test_tool_time_is_a_notch_and_waiting_a_line() -> None:
    tool = StepSpan(
        name="tool:search", ordinal=0, effect="", kind=StepKind.TOOL, began_at=BEGAN + timedelta(seconds=4),
        ended_at=BEGAN + timedelta(seconds=6),
    )  # fmt: skip
    plain = timeline_svg(trace(attempt("a", 2, 10)))
    full = timeline_svg(trace(attempt("a", 2, 10, steps=[tool], waited=2.0, ready_at=BEGAN)))
    assert full.count('height="4"') == plain.count('height="4"') + 1
    assert full.count("stroke:var(--ready)") == plain.count("stroke:var(--ready)") + 1


def test_a_run_that_has_not_begun_says_so() -> None:
    assert words_of(timeline_svg(Trace())) == ["Nothing has been started yet."]


def test_thousands_of_short_attempts_make_no_thousands_of_bars() -> None:
    spans = [attempt(f"t{n}", n * 0.01, n * 0.01 + 0.01) for n in range(5000)]
    assert len(timeline_svg(trace(*spans, until=50))) < 400_000
