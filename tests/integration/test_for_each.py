"""For each, end to end: lists known at run time, failures, kills, files, models, processes, budgets."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import chargehand as ch
from chargehand.cli import main
from chargehand.cli.find_run import FoundRun
from chargehand.cli.run_details import shown
from chargehand.decisions.plan_forecast import Outlook, Range, forecast, places_for
from chargehand.decisions.plan_simulation import simulate
from chargehand.errors import PlanRefused
from chargehand.facts.events import AttemptFinished, AttemptStarted, ItemsListed
from chargehand.facts.outcome import Done
from chargehand.facts.value import Value
from chargehand.models.scripted import ScriptedModel
from chargehand.presentation.live_frame import line_text
from chargehand.presentation.progress_lines import ProgressLines
from chargehand.testing import FakeClock, run_virtual
from chargehand.tools.files import files

WORDS = ["north", "south", "west"]


@ch.worker("lister", "Returns what it is told to")
async def lister(brief: ch.Brief) -> Any:
    return brief.args["give"]


@ch.worker("doer", "Does one item")
async def doer(brief: ch.Brief) -> Any:
    if brief.item == "bad":
        raise ch.WorkerError("it is bad", kind="denied")
    return {"index": brief.index, "item": brief.item}


@ch.worker("last", "Says what it was handed")
async def last(brief: ch.Brief) -> Any:
    return {"inputs": brief.inputs, "missing": dict(brief.missing)}


def each_of(give: Any, **more: Any) -> ch.Plan:
    return ch.Plan(
        goal="Do them all",
        tasks=[
            ch.Task(id="list", description="List them", worker="lister", args={"give": give}),
            ch.Task(
                id="each",
                description="Do one of them",
                **{"worker": "doer", "for_each": "list", **more},
            ),
            ch.Task(id="last", description="Sum it up", worker="last", needs=["each"]),
        ],
    )


def run(plan: ch.Plan, *workers: Any, **options: Any) -> ch.RunResult:
    # Virtual time does not know the threads of a journal on disk, and would jump over their work.
    is_virtual = "journal" not in options

    async def main() -> ch.RunResult:
        crew = [lister, doer, last, *workers]
        clock = FakeClock() if is_virtual else None
        async with ch.Supervisor(crew, clock=clock, **options) as boss:
            return await boss.run(plan)

    return run_virtual(main()) if is_virtual else asyncio.run(main())


def test_a_task_is_done_for_each_entry_of_a_list_that_is_known_only_at_run_time() -> None:
    result = run(each_of(WORDS))
    assert result.status == "succeeded"
    each = result.tasks["each"]
    assert each.output == [{"index": n, "item": word} for n, word in enumerate(WORDS)]
    assert [item.item for item in each.items] == WORDS
    assert list(result.tasks) == ["list", "each", "last"]
    assert result.tasks["each[1]"].output == {"index": 1, "item": "south"}
    assert result.tasks["last"].output["inputs"] == {"each": each.output}


def test_failed_items_are_null_named_as_gaps_and_told_to_those_who_need_them() -> None:
    result = run(each_of(["a", "bad", "c"]))
    assert result.status == "partial"
    assert result.tasks["each"].output[1] is None
    (failed,) = result.tasks["each"].failed_items
    assert (failed.index, failed.item, failed.error) == (1, "bad", "denied: it is bad")
    assert result.tasks["last"].output["missing"] == {"each[1]": "denied: it is bad"}
    (gap,) = result.answer.gaps
    assert (gap.task, gap.why) == ("each", 'item 1 ("bad"): denied: it is bad')
    assert result.answer.confidence == pytest.approx((1 + 2 / 3 + 1) / 3)


def test_with_at_least_failed_items_are_no_gaps() -> None:
    result = run(each_of(["a", "bad", "c"], at_least=2))
    assert result.status == "succeeded"
    assert result.tasks["each"].failed_items[0].item == "bad"
    assert not result.answer.gaps


@ch.worker("halver", "Does half of one item")
async def halver(brief: ch.Brief) -> Done:
    gaps = ("pay was not approved",) if brief.item == "odd" else ()
    return Done(Value.of(brief.item), gaps=gaps)


@pytest.mark.parametrize(
    ("at_least", "status", "confidence"),
    [(None, "partial", (1 + 2.5 / 3 + 1) / 3), (2, "succeeded", 1.0), (3, "partial", None)],
)
def test_what_is_missing_from_an_item_is_missing_from_the_run(
    at_least: int | None, status: str, confidence: float | None
) -> None:
    """A call that a person rejected for one item, for example."""
    result = run(each_of(["a", "odd", "c"], worker="halver", at_least=at_least), halver)
    assert result.status == status
    gaps = [(gap.task, gap.why) for gap in result.answer.gaps]
    assert gaps == ([("each", 'item 1 ("odd"): pay was not approved')] * (status == "partial"))
    if confidence is not None:
        assert result.answer.confidence == pytest.approx(confidence)


def test_many_failures_are_not_listed_one_by_one_as_gaps() -> None:
    result = run(each_of(["bad"] * 50 + ["good"]))
    gaps = [gap.why for gap in result.answer.gaps]
    assert len(gaps) == 21
    assert gaps[-1] == "and 30 more items"
    assert len(result.tasks["each"].failed_items) == 50


@pytest.mark.parametrize("give", [7, "north", {"items": WORDS}, None, True])
def test_what_is_no_list_fails_as_logic_and_says_what_it_is(give: Any) -> None:
    result = run(each_of(give))
    error = result.tasks["each"].error
    assert error is not None
    assert error.kind == "logic"
    assert "needs a list, and the output of list is none" in error.message
    assert result.tasks["last"].state == "skipped"


def test_a_text_that_is_a_json_list_is_a_list() -> None:
    assert run(each_of('Here it is:\n```json\n["a", "b"]\n```')).status == "succeeded"


def test_a_part_of_an_output_can_be_the_list() -> None:
    needs = [ch.Need("list", output="found.rows", name="rows")]
    result = run(each_of({"found": {"rows": ["a"]}}, for_each="rows", needs=needs))
    assert result.tasks["each"].output == [{"index": 0, "item": "a"}]


def test_an_empty_list_is_done_at_once() -> None:
    result = run(each_of([]))
    assert result.status == "succeeded"
    assert result.tasks["each"].output == []
    assert not result.tasks["each"].items


def test_more_items_than_the_limit_fail_with_the_figure_before_any_starts() -> None:
    result = run(each_of(list(range(11))), limits=ch.Limits(items=10))
    assert "11 items are more than Limits(items=10) allows" in str(result.tasks["each"].error)
    assert not result.tasks["each"].items


def test_items_may_be_more_than_the_tasks_of_a_plan() -> None:
    result = run(each_of(list(range(500))), limits=ch.Limits(tasks=3))
    assert result.status == "succeeded"
    assert len(result.tasks["each"].output) == 500


def test_large_items_and_large_results_lie_in_blobs(tmp_path: Path) -> None:
    long = ["x" * 70_000, "y" * 70_000, "z"]
    listed: list[int] = []

    async def main() -> ch.RunResult:
        async with ch.Supervisor([lister, doer, last], journal=tmp_path / "runs.db") as boss:
            boss.on(ItemsListed)(lambda _, event: listed.append(len(event.items)))
            return await boss.run(each_of(long))

    result = asyncio.run(main())
    assert listed == [3]  # an event holds only the digest of each
    assert [entry["item"] for entry in result.tasks["each"].output] == long
    assert [item.item for item in result.tasks["each"].items] == long


def test_each_item_is_held_to_the_schema_of_the_task_and_the_list_is_not() -> None:
    result = run(each_of(["a", "b"], output={"type": "object", "required": ["index"]}))
    assert result.status == "succeeded"
    refused = run(each_of(["a"], output={"type": "string"}))
    assert refused.tasks["each"].state == "failed"


def test_files_that_fit_a_pattern_are_items_and_what_comes_of_them_is_tainted(
    tmp_path: Path,
) -> None:
    for name in ("b.txt", "a.txt", "c.md"):
        (tmp_path / name).write_text(name)
    model = ScriptedModel([])
    clerk = ch.Worker("clerk", "Reads", model=model, tools=files(tmp_path))
    result = run(each_of([], for_each={"files": "*.txt"}), clerk)
    assert [entry["item"] for entry in result.tasks["each"].output] == ["a.txt", "b.txt"]
    assert result.tasks["each[0]"].taint
    assert result.tasks["last"].taint


def test_a_pattern_that_no_file_fits_is_a_gap_unless_none_is_fine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text("one")
    finder = ch.Worker("finder", "Finds files", model="offline", tools=files(tmp_path))
    plan = each_of([], for_each={"files": "*.txtt"})
    result = run(plan, finder)
    assert (result.status, result.tasks["each"].output) == ("partial", [])
    assert "no file fits for_each={'files': '*.txtt'}" in result.answer.gaps[0].why
    assert result.answer.confidence < 1
    # The worker of the task has no tools: those of the crew list the files.
    assert "plan_warning task 'each': no file fits" in caplog.text
    assert "there are: a.txt" in caplog.text
    fine = run(each_of([], for_each={"files": "*.txtt"}, at_least=0), finder)
    assert (fine.status, fine.answer.gaps) == ("succeeded", ())


def test_files_that_no_worker_can_list_are_refused_with_the_way_out() -> None:
    plan = each_of([], for_each={"files": "*.txt"})
    with pytest.raises(
        PlanRefused, match="no worker of this crew has a tool that reads"
    ) as refused:
        run(plan)
    (fault,) = refused.value.faults
    assert (fault.kind, fault.task) == ("bad_for_each", "each")
    assert "list the files in a function worker" in fault.message


def test_files_are_refused_if_the_workers_of_the_run_leave_out_those_who_list_files(
    tmp_path: Path,
) -> None:
    finder = ch.Worker("finder", "Finds files", model=ScriptedModel([]), tools=files(tmp_path))
    boss = ch.Supervisor([lister, doer, last, finder])
    plan = each_of([], for_each={"files": "*.txt"}, at_least=0)
    assert run_virtual(boss.run(plan)).status == "succeeded"
    with pytest.raises(PlanRefused, match="no worker of this crew has a tool that reads files"):
        run_virtual(boss.run(plan, workers=["lister", "doer", "last"]))


def test_files_that_no_worker_can_list_are_a_fault_of_the_checked_plan_file(tmp_path: Path) -> None:
    (tmp_path / "crew.py").write_text(
        "import chargehand as ch\n"
        "crew = [ch.worker(name, 'Does it')(lambda brief: 1) for name in ('lister', 'doer', 'last')]"
    )
    (tmp_path / "plan.json").write_text(each_of([], for_each={"files": "*.txt"}).to_json())
    command = ["plan", "--check", str(tmp_path / "plan.json")]
    done = CliRunner().invoke(main, [*command, "--crew", f"{tmp_path / 'crew.py'}:crew"])
    assert done.exit_code == 2, done.output
    assert "no worker of this crew has a tool that reads files" in done.output


def test_an_llm_worker_sees_its_item_and_no_other() -> None:
    model = ScriptedModel(["fine"] * 3)
    mind = ch.Worker("mind", "Judges", model=model)
    result = run(each_of(WORDS, worker="mind"), mind)
    assert result.tasks["each"].output == ["fine"] * 3
    prompts = sorted(request.turns[-1].text for request in model.requests)
    for word, prompt in zip(WORDS, prompts, strict=True):
        assert word in prompt
        assert "BEGIN the one item to do this for" in prompt
        assert not any(other in prompt for other in WORDS if other != word)


def test_an_unchanged_item_is_taken_over_from_the_run_before(tmp_path: Path) -> None:
    done: list[str] = []

    @ch.worker("pure", "Does one item", version="1")
    async def pure(brief: ch.Brief) -> str:
        done.append(brief.item)
        return str(brief.item).upper()

    async def main() -> list[ch.RunResult]:
        async with ch.Supervisor([lister, pure, last], journal=tmp_path / "runs.db") as boss:
            first = await boss.run(each_of(["a", "b", "c"], worker="pure"))
            second = await boss.run(each_of(["a", "x", "c"], worker="pure"), reuse=first.id)
            return [first, second]

    first, second = asyncio.run(main())
    assert first.tasks["each"].output == ["A", "B", "C"]
    assert second.tasks["each"].output == ["A", "X", "C"]
    assert done == ["a", "b", "c", "x"]


def test_an_item_may_be_a_run_of_another_supervisor() -> None:
    @ch.worker("inner", "Does what it is told")
    async def inner(brief: ch.Brief) -> str:
        return f"done: {brief.task.description}"

    def plan_for(brief: ch.Brief) -> ch.Plan:
        words = f"Look at {brief.item}"
        return ch.Plan(goal="g", tasks=[ch.Task(id="t1", description=words, worker="inner")])

    below = ch.Supervisor([inner], name="team", plan_for=plan_for)
    tasks = [ch.Task(id="each", description="Do it", worker="team", for_each=["a", "b"])]
    result = run(ch.Plan(goal="g", tasks=tasks), below)
    assert result.tasks["each"].output == ["done: Look at a", "done: Look at b"]


def test_a_budget_that_is_used_up_leaves_the_items_that_are_done() -> None:
    model = ScriptedModel(["fine"] * 12)
    mind = ch.Worker("mind", "Judges", model=model)
    plan = ch.Plan(
        goal="g",
        tasks=[ch.Task(id="each", description="Judge it", worker="mind", for_each=WORDS * 4)],
    )
    result = run(plan, mind, limits=ch.Limits(calls=5, parallel=1))
    assert result.status == "partial"
    output = result.tasks["each"].output
    assert [entry for entry in output if entry is not None] == ["fine"] * (12 - output.count(None))
    assert 0 < output.count(None) < 12
    assert result.usage.calls <= 5


def test_progress_is_one_bar_and_not_a_line_for_each_item() -> None:
    told: list[str] = []
    lines = ProgressLines(told.append)

    async def main() -> None:
        async with ch.Supervisor([lister, doer, last], clock=FakeClock()) as boss:
            async for event in boss.stream(each_of(["bad"] * 4 + list(range(396)))):
                if not isinstance(event, ch.AnswerPiece):
                    lines.hear(event)

    run_virtual(main())
    assert len(told) < 30
    assert any("█████░░░░░ 196 of 400 items done, 4 failed" in line for line in told)
    assert sum("gave up on" in line for line in told) == 3


def told_of(plan: ch.Plan, *workers: Any) -> list[str]:
    """The lines that a terminal shows of a run."""
    told: list[str] = []
    lines = ProgressLines(told.append)

    async def main() -> None:
        async with ch.Supervisor([lister, doer, last, *workers], clock=FakeClock()) as boss:
            async for event in boss.stream(plan):
                if not isinstance(event, ch.AnswerPiece):
                    lines.hear(event)

    run_virtual(main())
    return told


def test_items_that_are_tried_again_are_told_with_the_reason_and_then_counted() -> None:
    @ch.worker("flaky", "Fails at first")
    async def flaky(brief: ch.Brief) -> str:
        if brief.attempt == 1:
            raise ConnectionError("connection refused")
        return "done"

    told = told_of(each_of(list(range(40)), worker="flaky"), flaky)
    first = [line for line in told if "each[0] failed: network: connection refused" in line]
    assert len(first) == 1
    assert "; it is tried again in " in first[0]
    counts = [line.split("  ")[1] for line in told if "are tried again" in line]
    again = "items of each failed and are tried again: network: connection refused"
    assert counts == [f"{count} {again}" for count in (3, 10, 33)]
    assert any(line.endswith("40 of 40 items done") for line in told)


def test_each_kind_of_failure_of_items_is_told() -> None:
    @ch.worker("flaky", "Fails at first")
    async def flaky(brief: ch.Brief) -> str:
        if brief.attempt == 1:
            raise ConnectionError("refused") if brief.item % 2 else MemoryError("too large")
        return "done"

    told = told_of(each_of(list(range(4)), worker="flaky"), flaky)
    assert sum("it is tried again in" in line for line in told) == 2
    for reason in ("network: refused", "resource: too large"):
        assert any(f"failed: {reason}" in line for line in told)


def test_a_task_with_failed_items_is_done_in_part_and_names_them() -> None:
    plan = each_of(["a", *["bad"] * 7])
    result = run(plan)
    assert len(result.tasks["each"].gaps) == 7
    assert result.tasks["each"].gaps[0] == 'item 1 ("bad"): denied: it is bad'
    lines = list(map(line_text, shown(FoundRun(result, "partial"), "runs.db")))
    (head,) = [line for line in lines if "each  done" in line]
    assert head.startswith("◧ each  done in part, doer")
    assert "tasks: 3 done (1 in part)" in lines
    below = lines[lines.index(head) :]
    missing = [line for line in below if line.startswith("      missing: item ")]
    assert missing[0] == '      missing: item 1 ("bad"): denied: it is bad'
    assert len(missing) == 5
    assert "      …; the answer lists all that is missing" in below
    assert any(line.startswith("  ◧ each ") for line in lines)
    done = 'each done in part (missing: item 1 ("bad"): denied: it is bad and 6 more) in '
    assert any(done in line for line in told_of(plan))


def test_failed_items_that_were_not_required_are_named_with_their_task() -> None:
    plan = each_of(["a", "bad", "c", *["bad"] * 6], at_least=2)
    result = run(plan)
    assert (result.status, result.tasks["each"].gaps) == ("succeeded", ())
    assert result.answer.confidence == 1
    lines = list(map(line_text, shown(FoundRun(result, "succeeded"), "runs.db")))
    below = lines[lines.index("      7 of 9 items failed:") :]
    assert below[1] == '        item 1 ("bad"): denied: it is bad'
    assert below[6] == "        and 2 more"
    (done,) = [line for line in told_of(plan) if "  each done in " in line]
    assert done.endswith("; 7 of 9 items failed")


async def test_a_task_whose_items_wait_for_the_budget_has_one_state_everywhere(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(["fine"] * 12)
    mind = ch.Worker("mind", "Judges", model=model)
    each = ch.Task(id="each", description="Judge it", worker="mind", for_each=WORDS)
    async with ch.Supervisor([mind], journal=tmp_path / "runs.db") as boss:
        plan, limits = ch.Plan(goal="g", tasks=[each]), ch.Limits(calls=1)
        result = await boss.run(plan, limits=limits, on_budget="ask", on_question="return")
    assert (result.status, result.tasks["each"].state) == ("waiting", "ready")
    assert [gap.state for gap in result.answer.gaps] == ["ready"]
    assert "a person to say whether more may be spent" in str(result.tasks["each"].waits_for)
    text = "\n".join(map(line_text, shown(FoundRun(result, "waiting"), "runs.db")))
    assert "tasks: 1 ready" in text
    assert "○ each  ready" in text
    assert "  ○ each " in text.partition("timeline:")[2]
    assert "missing: each (ready)" in text
    assert "running" not in text
    assert not set("◐↻") & set(text)


async def test_a_task_whose_items_are_to_be_tried_again_says_so_everywhere_and_why(
    tmp_path: Path,
) -> None:
    @ch.worker("flaky", "Fails")
    async def flaky(brief: ch.Brief) -> str:
        raise ConnectionError("connection refused")

    each = ch.Task(id="each", description="Try it", worker="flaky", for_each=WORDS)
    later = ch.RetryPolicy(first=600, cap=600)
    async with ch.Supervisor([flaky], journal=tmp_path / "runs.db", retry=later) as boss:
        run = await boss.submit(ch.Plan(goal="g", tasks=[each]))
        planned = 0
        async for event in boss.watch(run.id):
            planned += isinstance(event, ch.events.RetryPlanned)
            if planned == len(WORDS):
                break
        result = await boss.look(run.id)
        assert result.tasks["each"].state == "retrying"
        text = "\n".join(map(line_text, shown(FoundRun(result, "running"), "runs.db")))
        await boss.cancel(run.id)
    assert "↻ each  to be tried again" in text
    assert "  ↻ each " in text.partition("timeline:")[2]
    assert "missing: each (to be tried again)" in text
    assert "0 of 3 items done, 3 to be tried again" in text
    assert "3 of its 3 items (each[0] for its next try at " in text
    assert "after network: connection refused)" in text


def test_progress_of_a_resumed_run_counts_no_items_that_it_does_not_know() -> None:
    """The list was made in an earlier life of the process, which another one heard."""
    told: list[str] = []
    lines = ProgressLines(told.append)

    async def main() -> None:
        async with ch.Supervisor([lister, doer, last], clock=FakeClock()) as boss:
            async for event in boss.stream(each_of(list(range(9)))):
                if not isinstance(event, ch.AnswerPiece | ch.events.ItemsListed):
                    lines.hear(event)

    run_virtual(main())
    assert any("for its other items" in line for line in told)
    assert not [line for line in told if "of 0 items" in line or "█" in line]


def test_a_simulation_knows_the_items() -> None:
    plan = each_of([])
    places = places_for(plan)
    simulation = simulate(plan, places, parallel=5, seconds=lambda _: 10, items={"each": 10})
    assert simulation.makespan.total_seconds() == 40
    assert simulation.path[0].task == "list"
    assert len([span for span in simulation.spans if span.task.startswith("each[")]) == 10
    told = forecast(plan, places, parallel=5, outlook=Outlook(given={"doer": Range(1, 1)}), runs=3)
    assert told.guessed_items == ("each",)
    assert "each" in told.critical


def test_a_run_with_items_can_be_retraced_and_read_again() -> None:
    async def main() -> tuple[ch.RunResult, list[Any]]:
        async with ch.Supervisor([lister, doer, last], clock=FakeClock()) as boss:
            seen = [event async for event in boss.stream(each_of(WORDS))]
            return await boss.look(next(e.run for e in seen if hasattr(e, "run"))), seen

    result, seen = run_virtual(main())
    assert result.trace.critical_path[:2] == ["list", "@items:each"]
    assert result.trace.critical_path[-2:] == ["each", "last"]
    assert sum(isinstance(event, ItemsListed) for event in seen) == 1


# planned


PLAN = {
    "goal": "Know what customers say",
    "instruction": "One paragraph",
    "strategy": "reduce",
    "tasks": [
        {"id": "t1", "worker": "finder", "description": "List the 400 reviews", "needs": []},
        {
            "id": "t2",
            "worker": "critic",
            "description": "Summarise the review in one sentence",
            "needs": ["t1"],
            "for_each": "t1",
        },
    ],
}


@pytest.mark.parametrize("approach", ["stream", "whole"])
def test_four_hundred_reviews_are_two_tasks_and_one_answer(approach: Any) -> None:
    @ch.worker("finder", "Finds reviews")
    async def finder(brief: ch.Brief) -> list[str]:
        return [f"review {number}" for number in range(400)]

    @ch.worker("critic", "Summarises a review")
    async def critic(brief: ch.Brief) -> str:
        return f"{brief.item} is fine"

    async def main() -> ch.RunResult:
        mind = ch.ScriptedModel([json.dumps(PLAN), "All 400 are fine. [t2]\nCONFIDENCE: 0.9"])
        crew = [finder, critic]
        async with ch.Supervisor(crew, model=mind, clock=FakeClock()) as boss:
            return await boss.run("Summarise each of these 400 reviews", approach=approach)

    result = run_virtual(main())
    assert result.status == "succeeded", result.answer
    assert list(result.tasks) == ["t1", "t2"]
    assert len(result.tasks["t2"].items) == 400
    assert result.answer.text == "All 400 are fine."
    assert result.usage.calls == 2


def test_a_planner_may_name_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    tasks = [{"id": "t1", "worker": "doer", "description": "Read the file", "for_each": "*.txt"}]

    async def main() -> ch.RunResult:
        mind = ch.ScriptedModel([json.dumps({**PLAN, "tasks": tasks}), "Read. [t1]"])
        clerk = ch.Worker("clerk", "Reads", tools=files(tmp_path))
        async with ch.Supervisor([doer, clerk], model=mind, clock=FakeClock()) as boss:
            return await boss.run("Read all files")

    assert run_virtual(main()).tasks["t1"].output == [{"index": 0, "item": "a.txt"}]


# killed


SCRIPT = """
import asyncio, os, signal, sys
import chargehand as ch

journal, life = sys.argv[1], int(sys.argv[2])
count = 0

@ch.worker("lister", "Lists")
async def lister(brief):
    return list(range(COUNT))

@ch.worker("doer", "Does one")
async def doer(brief):
    global count
    count += 1
    if life and count == life:
        os.kill(os.getpid(), signal.SIGKILL)
    if brief.item % 100 == 7:
        raise ch.WorkerError("it ends in 07", kind="denied")
    return brief.item * 2

async def main():
    plan = ch.Plan(goal="g", tasks=[
        ch.Task(id="list", description="List them", worker="lister"),
        ch.Task(id="each", description="Double it", worker="doer", for_each="list"),
    ])
    async with ch.Supervisor([lister, doer], journal=journal) as boss:
        result = await boss.run(plan, key="only")
        print(result.id, flush=True)

asyncio.run(main())
"""


def live(folder: Path, life: int, count: int) -> "subprocess.CompletedProcess[str]":
    script = folder / "life.py"
    script.write_text(SCRIPT.replace("COUNT", str(count)))
    return subprocess.run(
        [sys.executable, str(script), str(folder / "runs.db"), str(life)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_five_thousand_items_killed_twice_are_all_there_once_and_in_order(tmp_path: Path) -> None:
    for life in (1_500, 2_000):
        assert live(tmp_path, life, 5_000).returncode == -signal.SIGKILL
    ended = live(tmp_path, 0, 5_000)
    assert ended.returncode == 0, ended.stderr

    async def main() -> tuple[ch.RunResult, list[Any]]:
        async with ch.Supervisor([lister], journal=tmp_path / "runs.db") as boss:
            journal = ch.open_journal(tmp_path / "runs.db")
            events = [entry.event async for entry in journal.read(ended.stdout.strip())]
            await journal.close()
            return await boss.look(ended.stdout.strip()), events

    result, events = asyncio.run(main())
    each = result.tasks["each"]
    wanted = [None if number % 100 == 7 else number * 2 for number in range(5_000)]
    assert each.output == wanted
    assert [failed.index for failed in each.failed_items] == list(range(7, 5_000, 100))
    done = [
        event.task
        for event in events
        if isinstance(event, AttemptFinished) and isinstance(event.outcome, Done)
    ]
    assert len(done) == len(set(done))
    # What was done before a kill is not begun again after it.
    begun = [event for event in events if isinstance(event, AttemptStarted)]
    assert len(begun) < 5_000 + 2 * 100 + 60
    assert json.loads(json.dumps(each.output)) == wanted


async def test_a_fork_does_failed_items_again_and_what_needs_them(tmp_path: Path) -> None:
    broken, done = {"b"}, list[str]()

    @ch.worker("reader", "Reads one")
    async def reader(brief: ch.Brief) -> str:
        done.append(brief.item)
        if brief.item in broken:
            raise ch.WorkerError("it cannot be read", kind="denied")
        return f"read {brief.item}"

    plan = ch.Plan(
        goal="g",
        tasks=[
            ch.Task(id="each", description="Read it", worker="reader", for_each=["a", "b"]),
            ch.Task(id="last", description="Sum it up", worker="last", needs=["each"]),
        ],
    )
    async with ch.Supervisor([reader, last], journal=tmp_path / "runs.db") as boss:
        first = await boss.run(plan)
        assert first.status == "partial"
        broken.clear()
        done.clear()
        outline = await boss.fork_plan(first.id)
        assert outline.redone == {"each": "1 of its items failed", "last": "it needs each"}
        second = await boss.fork(first.id)
    assert second.status == "succeeded"
    assert second.tasks["last"].output["inputs"]["each"] == ["read a", "read b"]
    assert done == ["b"]


def test_tasks_that_list_at_once_share_the_limit_and_none_loses_items_in_silence() -> None:
    tasks = [
        ch.Task(id=id_, description="Do it", worker="doer", for_each=list(range(6)))
        for id_ in ("a", "b")
    ]
    result = run(ch.Plan(goal="g", tasks=tasks), limits=ch.Limits(items=10))
    states = {id_: task.state.value for id_, task in result.tasks.items()}
    assert sorted(states.values()) == ["done", "failed"]
    (failed,) = [task for task in result.tasks.values() if task.state == "failed"]
    assert "more than Limits(items=10) allows" in str(failed.error)


def test_a_deadline_of_the_run_keeps_the_items_that_are_done() -> None:
    @ch.worker("slow", "Takes a second")
    async def slow(brief: ch.Brief) -> int:
        await asyncio.sleep(1)
        return int(brief.item)

    tasks = [ch.Task(id="each", description="Do it", worker="slow", for_each=list(range(50)))]
    limits = ch.Limits(deadline=10, parallel=2)
    result = run(ch.Plan(goal="g", tasks=tasks), slow, limits=limits)
    assert result.status == "partial"
    assert result.tasks["each"].output[:4] == [0, 1, 2, 3]
    assert None in result.tasks["each"].output


async def test_the_offline_model_says_that_it_cannot_do_items() -> None:
    """It goes by rules, and would take the item itself for the answer."""
    task = ch.Task(id="each", description="Say the colour", worker="r", for_each=["red", "green"])
    async with ch.Supervisor([ch.Worker("r", "Reads")], model="offline") as boss:
        result = await boss.run(ch.Plan(goal="colours", tasks=[task]))
    assert result.status == "failed"
    assert "to do a task for each item takes one: --model" in str(result.tasks["each"].error)


def test_files_that_an_earlier_task_wrote_are_items(tmp_path: Path) -> None:
    """A list that is a moment old would leave them out in silence."""
    (tmp_path / "a.txt").write_text("a")

    @ch.worker("fetcher", "Fetches files")
    async def fetcher(brief: ch.Brief) -> str:
        (tmp_path / f"{brief.task.id}.txt").write_text("new")
        (tmp_path / "a.txt").unlink()
        return "fetched"

    clerk = ch.Worker("clerk", "Reads", model=ScriptedModel([]), tools=files(tmp_path))
    tasks = [
        ch.Task(
            id="before", description="Do what is there", worker="doer", for_each={"files": "*.txt"}
        ),
        ch.Task(id="fetch", description="Fetch", worker="fetcher", needs=["before"]),
        ch.Task(
            id="each",
            description="Do each",
            worker="doer",
            for_each={"files": "*.txt"},
            needs=["fetch"],
        ),
    ]
    result = run(ch.Plan(goal="Do them all", tasks=tasks), clerk, fetcher)
    assert [each["item"] for each in result.tasks["before"].output] == ["a.txt"]
    assert [each["item"] for each in result.tasks["each"].output] == ["fetch.txt"]


def test_a_task_whose_items_have_begun_runs_and_cannot_be_edited() -> None:
    """Its items would be done a second time, effects and all."""
    paid: list[str] = []

    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        @ch.worker("payer", "Pays one bill", capacity=1)
        async def payer(brief: ch.Brief) -> str:
            async def pay() -> None:
                paid.append(brief.item)

            await brief.step("pay", pay, effect="once")
            begun.set()
            await go_on.wait()
            return "paid"

        def plan(words: str, last: str) -> ch.Plan:
            bills = ["bill0", "bill1"]
            return ch.Plan(
                goal="Pay",
                tasks=[
                    ch.Task(id="pay", description=words, worker="payer", for_each=bills),
                    ch.Task(id="last", description=last, worker="last", needs=["pay"]),
                ],
            )

        async with ch.Supervisor([payer, last], clock=FakeClock()) as boss:
            handle = await boss.submit(plan("Pay each", "Sum up"))
            await begun.wait()
            seen = await boss.look(handle.id)
            assert seen.tasks["pay"].state == "running"
            assert "pay (running)" in str(seen.tasks["last"].waits_for)
            with pytest.raises(ch.PlanRefused, match="'pay': it was started"):
                await boss.change_plan(handle.id, plan("Pay politely", "Sum up"), version=1)
            await boss.change_plan(handle.id, plan("Pay each", "Sum it up"), version=1)
            go_on.set()
            assert (await handle.wait()).status == "succeeded"

    run_virtual(main())
    assert paid == ["bill0", "bill1"]


def test_a_mapped_task_was_done_by_the_worker_of_its_items() -> None:
    result = run(each_of(WORDS))
    assert {id_: each.worker for id_, each in result.tasks.items()} == {
        "list": "lister",
        "each": "doer",
        "last": "last",
    }


def test_a_question_about_an_item_says_which_item(tmp_path: Path) -> None:
    result = run(
        ch.Plan(
            goal="Sort",
            tasks=[
                ch.Task(id="s", description="Sort", worker="doer", for_each=["ok", "bad", "fine"])
            ],
        ),
        on_failure=["ask"],
        on_question="return",
        journal=tmp_path / "runs.db",
    )
    (question,) = result.questions
    assert 'Task s[1] failed (denied: it is bad): Sort.\nIts item: "bad".\n' in question.text
