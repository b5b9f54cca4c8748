"""A run says what it came to: composition, caps, selection, skipped tasks and what was streamed."""

import asyncio
import json
import logging
from datetime import timedelta

import pytest
from msgspec.structs import replace

import chargehand as ch
from chargehand.facts.plan import is_vague
from chargehand.models.base import ModelReply, ModelRequest, StopReason, Text
from chargehand.patterns import route
from chargehand.presentation.progress_lines import summary
from chargehand.testing import FakeClock, run_virtual

CUT = ModelReply(parts=(Text("It is open [t1] until"),), stop=StopReason.LENGTH)
NO = ModelReply(parts=(Text("I would rather not"),), stop=StopReason.REFUSAL)
WORDS = "Write the headline of the day"


@ch.worker("clerk", "Looks things up")
async def clerk(brief: ch.Brief) -> str:
    return f"{brief.task.id} says six"


@ch.worker("broken", "Never does it")
async def broken(brief: ch.Brief) -> str:
    raise PermissionError("no")


def task(id_: str, worker: str = "clerk", *needs: str, **more: object) -> ch.Task:
    return ch.Task(id=id_, description=WORDS, worker=worker, needs=needs, **more)  # type: ignore[arg-type] # one keyword of several types


def plan(*tasks: ch.Task, strategy: ch.Strategy = ch.Strategy.MERGE) -> ch.Plan:
    return ch.Plan(goal="Hours", tasks=tasks, instruction="One sentence", strategy=strategy)


@pytest.mark.parametrize(
    "composing",
    [
        [CUT] * 4,
        [NO] * 4,
        [ch.errors.ModelRefused("bad request")] * 4,
        [" "] * 4,
        ["I'm sorry, I cannot help with that."] * 4,
        ["CANNOT: nothing to say"] * 4,
        ["I don't know.\nCONFIDENCE: 0.9"] * 4,
    ],
)
def test_what_cannot_be_composed_is_merged_by_rule_over_all_results(
    composing: list[object],
) -> None:
    model = ch.ScriptedModel(composing)  # type: ignore[arg-type] # replies of several types
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a"), task("b", "clerk", "a")))
    assert result.status == "partial"
    assert result.output == {"a": "a says six", "b": "b says six"}
    assert [gap.task for gap in result.answer.gaps] == ["@answer"]
    is_final = (
        "bad request" in result.answer.gaps[0].why
    )  # what a provider refuses for good is not repeated
    assert is_final or "tried 2 times" in result.answer.gaps[0].why
    assert result.answer.confidence == 0.5


def test_a_model_whose_answer_never_fits_the_schema_is_asked_three_times_in_all() -> None:
    model = ch.ScriptedModel(['{"answer": "many"}'] * 9)
    wanted = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a")), output=wanted)
    assert len(model.requests) == 3
    assert result.status == "partial"
    assert "in 3 tries" in result.answer.gaps[0].why


def test_composition_is_tried_again_and_a_cut_answer_is_asked_for_in_fewer_words() -> None:
    model = ch.ScriptedModel([CUT, "Until six [a].\nCONFIDENCE: 1"])
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a"), task("b")))
    assert (result.status, result.answer.text) == ("succeeded", "Until six.")
    assert "fewer" in model.requests[1].turns[-1].text or "half" in model.requests[1].turns[-1].text
    assert result.answer.confidence == 0.99  # a model's own word is no check
    model = ch.ScriptedModel([NO, "Until six [a]."])
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a"), task("b")))
    assert (result.status, result.answer.confidence) == ("succeeded", 0.8)


@pytest.mark.parametrize(
    "script",
    [
        [CUT] * 4,
        [NO] * 4,
        ["Until six [a]."],
        [CUT, "Until six [a]."],
        [NO, "Until six [a].\nCONFIDENCE: 0.5"],
        ["I'm sorry, I cannot help with that."] * 4,
        ["Unfortunately, I could not find the hours.", "Until six [a]."],
    ],
)
async def test_pieces_since_the_last_beginning_are_the_answer(script: list[object]) -> None:
    boss = ch.Supervisor([clerk], model=ch.ScriptedModel(script))  # type: ignore[arg-type] # replies of several types
    run = said = ""
    async for heard in boss.stream(plan(task("a"), task("b"))):
        if isinstance(heard, ch.AnswerPiece):
            said = heard.text if heard.begins_anew else said + heard.text
        elif isinstance(heard, ch.events.RunRequested):
            run = heard.run
    result = await boss.look(run)
    assert said == result.answer.text != ""


def test_an_apology_in_the_shape_of_an_answer_is_none() -> None:
    told = {"answer": "I cannot answer this.", "claims": [], "contradictions": [], "confidence": 1}
    model = ch.ScriptedModel([json.dumps(told)] * 4)
    result = ch.Supervisor([clerk], model=model).run_sync(plan(task("a")), output=str)
    assert (result.status, [gap.task for gap in result.answer.gaps]) == ("partial", ["@answer"])


@pytest.mark.parametrize("said", ["I cannot answer this: a says only six [a].", "N/A"])
def test_an_answer_that_rests_on_results_or_was_asked_for_is_no_apology(said: str) -> None:
    asked = replace(plan(task("a"), task("b")), instruction="One sentence, or N/A")
    result = ch.Supervisor([clerk], model=ch.ScriptedModel([said])).run_sync(asked)
    assert (result.status, result.answer.text) == (
        "succeeded",
        said.removesuffix(" [a].") + "." * ("[" in said),
    )


@pytest.mark.parametrize(
    ("tasks", "status"),
    [
        ([task("a", "broken", optional=True)], "failed"),
        ([task("a", "broken", optional=True), task("b", "broken", "a", optional=True)], "failed"),
        ([task("a", "broken", optional=True), task("b", optional=True)], "succeeded"),
        ([task("a", "broken", optional=True), task("b")], "succeeded"),
    ],
)
def test_a_run_of_optional_tasks_in_which_nothing_is_done_has_failed(
    tasks: list[ch.Task], status: str
) -> None:
    result = ch.Supervisor([clerk, broken]).run_sync(ch.Plan(goal="Hours", tasks=tasks))
    assert result.status == status
    assert "a" in [gap.task for gap in result.answer.gaps]


def test_a_rule_that_nobody_judges_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    judged = ch.Worker("judged", "Is judged", model=ch.ScriptedModel([]))
    boss = ch.Supervisor([clerk, judged])
    with caplog.at_level(logging.WARNING, "chargehand"):
        boss.run_sync(
            ch.Plan(goal="Hours", tasks=[task("a", accept="It names an hour"), task("b")])
        )
    told = [r.getMessage() for r in caplog.records if "accept=" in r.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("plan_warning a: ")


@pytest.mark.parametrize(
    ("slow", "others", "limits", "status"),
    [
        (6, 1, ch.Limits(), "succeeded"),
        (0.9, 1, ch.Limits(), "succeeded"),
        (6, 2, ch.Limits(), "succeeded"),
        (
            6,
            1,
            ch.Limits(calls=9, attempts=1),
            "failed",
        ),  # two calls would be paid for, one is reserved
    ],
)
def test_each_model_of_a_chain_has_its_share_of_the_time(
    slow: float, others: int, limits: ch.Limits, status: str
) -> None:
    late = [
        ch.ScriptedModel(["late"] * 9, name=f"scripted:{n}", latency=slow) for n in range(others)
    ]
    spare = ch.ScriptedModel(["in time"], name="scripted:spare")
    chain = ch.Worker("chain", "Asks several", model=[*late, spare], timeout=2)
    boss = ch.Supervisor([chain], clock=FakeClock())
    result = run_virtual(boss.run(ch.Plan(goal="g", tasks=[task("a", "chain")]), limits=limits))
    said = "late" if slow < 1 else "in time"
    assert (result.status, result.output) == (status, said if status == "succeeded" else None)
    assert len(spare.requests) == (status == "succeeded" and slow > 1)
    paid = 1 if slow < 1 else 1 + others
    assert status == "failed" or result.usage.calls == paid


def test_steps_that_end_at_the_cap_are_partial_and_name_it() -> None:
    count = 0

    def say(request: ModelRequest) -> str:
        nonlocal count
        if "Choose the next step" not in request.turns[-1].text:
            return "All facts [t1].\nCONFIDENCE: 0.9"
        count += 1
        words = f"Find fact number {count} about towers"
        return json.dumps({"next": "clerk", "task": words, "why": "more"})

    boss = ch.Supervisor([clerk], model=ch.ScriptedModel([say] * 40), limits=ch.Limits(tasks=3))
    result = boss.run_sync("Tell me everything", approach="steps")
    assert (result.status, len(result.tasks)) == ("partial", 3)
    assert "Limits(tasks=3)" in str(result.answer.gaps[0])
    assert result.answer.confidence < 0.9


def test_what_was_never_begun_says_why_the_run_stopped() -> None:
    fatal = task("a", "broken", on_failure=ch.OnFailure(("fail_run",)))
    result = ch.Supervisor([clerk, broken]).run_sync(plan(fatal, task("b", "clerk", "a")))
    assert result.tasks["b"].why == "the run was stopped: a failed"


def test_candidates_are_alternatives_and_one_that_failed_takes_nothing_away() -> None:
    model = ch.ScriptedModel(['{"chosen": "b", "why": "it says more"}'])
    tasks = [task("a"), task("b"), task("c", "broken"), task("d", "clerk", "c")]
    chosen = plan(*tasks, strategy=ch.Strategy.SELECT)
    result = ch.Supervisor([clerk, broken], model=model).run_sync(chosen)
    assert (result.status, result.output) == ("succeeded", "b says six")
    assert (result.answer.contradictions, result.answer.gaps) == ((), ())
    by_rule = ch.Supervisor([clerk, broken]).run_sync(chosen)
    assert (by_rule.status, by_rule.output) == ("succeeded", "a says six")
    assert (by_rule.answer.contradictions, by_rule.answer.gaps) == ((), ())


def test_without_any_candidate_nothing_is_selected_and_the_run_has_failed() -> None:
    chosen = plan(task("a", "broken"), task("b", "broken"), strategy=ch.Strategy.SELECT)
    result = ch.Supervisor([broken]).run_sync(chosen)
    assert result.status == "failed"
    assert [gap.task for gap in result.answer.gaps] == ["a", "b"]


@pytest.mark.parametrize(
    ("reply", "who"),
    [
        ('{"worker": "astrology", "task": "Read the stars of June", "why": "x"}', "technical"),
        ('{"worker": "LEGAL", "task": "Explain the liability rule", "why": "x"}', "legal"),
        ("legal", "legal"),
        ("**Legal**.", "legal"),
        ('Certainly: {"worker": "legal", "task": "Explain the rule of June"}', "legal"),
        ("nobody I know", "technical"),
        ("[1, 2]", "technical"),
    ],
)
async def test_a_router_knows_names_by_any_case_and_else_asks_the_default(
    reply: str, who: str
) -> None:
    @ch.worker("legal", "Knows the law")
    async def legal(brief: ch.Brief) -> str:
        return "legal"

    @ch.worker("technical", "Knows machines")
    async def technical(brief: ch.Brief) -> str:
        return "technical"

    model = ch.ScriptedModel([reply] * 3)
    result = await route("When is a good day?", [legal], model=model, default=technical)
    assert (result.status, result.output) == ("succeeded", who)


def chain(levels: int, limits: dict[int, int]) -> tuple[object, str]:
    """Supervisors below each other; `limits` by level from the top are those that say a depth."""
    below, name = clerk, "clerk"
    for level in range(levels, 0, -1):
        own = {"limits": ch.Limits(depth=limits[level])} if level in limits else {}
        below = ch.Supervisor(  # type: ignore[assignment] # a supervisor is a worker too
            [below],
            name=f"level{level}",
            description="Leads",
            plan_for=lambda _, worker=name: plan(task("a", worker)),  # type: ignore[misc] # bound at once
            **own,  # type: ignore[arg-type] # one keyword
        )
        name = f"level{level}"
    return below, name


@pytest.mark.parametrize(
    ("levels", "top", "limits", "status"),
    [
        (4, 5, {}, "succeeded"),
        (4, 10, {}, "succeeded"),
        (4, 4, {}, "failed"),
        (3, None, {}, "failed"),
        (2, None, {}, "succeeded"),
        (4, 10, {1: 2}, "failed"),
        (6, 10, {1: 3}, "failed"),
        (6, 10, {1: 6}, "succeeded"),
        (4, 6, {2: 1}, "failed"),
        (3, 3, {}, "failed"),
    ],
)
def test_the_top_decides_how_deep_supervisors_are_nested(
    levels: int, top: int | None, limits: dict[int, int], status: str
) -> None:
    boss, name = chain(levels, limits)
    own = ch.Limits() if top is None else ch.Limits(depth=top)
    result = ch.Supervisor([boss], limits=own).run_sync(plan(task("x", name)))  # type: ignore[list-item] # as above
    assert result.status == status
    if status == "failed":
        deepest = min([top or 3, *(level + own for level, own in limits.items())])
        said = (
            "the default Limits(depth=3)"
            if top is None
            else "Limits(depth=…) of a supervisor above"
        )
        assert f"{said} allows runs at depths 0 to {deepest - 1};" in str(result.answer.gaps[0])


def test_a_nested_run_that_was_to_fail_fails_the_task_above() -> None:
    fatal = task("b", "broken", "a", on_failure=ch.OnFailure(("fail_run",)))
    below = ch.Supervisor(
        [clerk, broken],
        name="below",
        description="Leads",
        plan_for=lambda _: plan(task("a"), fatal),
    )
    result = ch.Supervisor([below]).run_sync(plan(task("x", "below")))
    assert (result.status, result.tasks["x"].state) == ("failed", "failed")
    assert "b: denied: no" in result.tasks["x"].why


def test_elsewhere_without_a_skill_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    policy = ch.OnFailure(("elsewhere",))
    named = plan(task("a", "clerk", on_failure=policy))
    assert [fault.kind for fault in named.check().warnings] == ["nobody_else"]
    skilled = ch.Task(id="a", description=WORDS, skill="look", on_failure=policy)
    assert plan(skilled).check().warnings == ()
    assert plan(task("a", on_failure=ch.OnFailure(("elsewhere:bob",)))).check().warnings == ()
    with caplog.at_level(logging.WARNING, "chargehand"):
        ch.Supervisor([clerk]).run_sync(named)
    assert "the same worker tries again" in caplog.text


@pytest.mark.parametrize(
    "words",
    [
        *("Analyze the data", "Process the data", "Continue with the above", "Handle the rest"),
        *("Do research on the topic and write it up", "Please investigate", "Work on it."),
        *("Research the topic, then proceed", "analyse the situation"),
    ],
)
def test_words_that_name_no_thing_and_no_result_are_vague(words: str) -> None:
    assert is_vague(words)
    assert plan(task("a")).check().warnings == ()


@pytest.mark.parametrize(
    "words",
    [
        *("Analyze the data in sales.csv", "Write a poem about it", "Research the Rhine bridge"),
        *("Compare the two heights", "Process the refunds of June", "Continue the list up to 20"),
        *("Review it.", "Summarize the results", "Find the towers"),
    ],
)
def test_words_that_name_a_thing_are_not_vague(words: str) -> None:
    assert not is_vague(words)


def test_speedup_counts_service_time_only() -> None:
    """Ten calls that a provider takes one at a time were not done side by side."""
    model = ch.ScriptedModel(["ok"] * 10, latency=timedelta(milliseconds=200))
    board = ch.ModelGateway({"scripted": ch.Rates(concurrency=1)})
    mind = ch.Worker("mind", "Answers", model=model)
    tasks = [ch.Task(id=f"t{n}", description=f"Answer {n}", worker="mind") for n in range(10)]
    for more, expected in (({"gateway": board}, 1.0), ({}, 10.0)):
        model = ch.ScriptedModel(["ok"] * 10, latency=timedelta(milliseconds=200))
        mind = ch.Worker("mind", "Answers", model=model)
        boss = ch.Supervisor([mind], clock=FakeClock(), **more)  # type: ignore[arg-type] # one keyword
        result = run_virtual(boss.run(ch.Plan(goal="g", tasks=tasks)))
        assert result.speedup == pytest.approx(expected, rel=0.05)


def test_speedup_counts_the_work_of_runs_below_and_not_the_time_of_people() -> None:
    @ch.worker("slow", "Takes a second", capacity=10)
    async def slow(brief: ch.Brief) -> str:
        await asyncio.sleep(1)
        return "done"

    @ch.worker("asker", "Asks a person first")
    async def asker(brief: ch.Brief) -> str:
        await brief.ask("May I?", default="yes", patience=timedelta(seconds=1000))
        await asyncio.sleep(1)
        return "done"

    wide = plan(*(task(f"t{n}", "slow") for n in range(10)))
    below = ch.Supervisor([slow], name="below", description="Leads", plan_for=lambda _: wide)
    boss = ch.Supervisor([below], clock=FakeClock())
    result = run_virtual(boss.run(plan(task("x", "below"))))
    assert result.speedup == pytest.approx(10, rel=0.05)
    assert "times as fast" in summary(result, "")[1]
    boss = ch.Supervisor([asker], clock=FakeClock(), on_question="wait")
    result = run_virtual(boss.run(plan(task("x", "asker"))))
    assert result.wall > timedelta(seconds=1000)
    assert result.speedup == pytest.approx(1, rel=0.05)
    assert result.report.idle == pytest.approx(timedelta(seconds=1000), abs=timedelta(seconds=1))
    told = str(result.report).splitlines()[0]
    assert ", of which 16 min 40 s idle; one after another 1.0 s: 1.0 times" in told
    assert summary(result, "")[1].endswith(", of which 16m40s idle"), "one task has no speed-up"


def test_a_failed_run_tells_no_speedup_and_no_confidence() -> None:
    result = ch.Supervisor([broken]).run_sync(plan(task("a", "broken")))
    text = "\n".join(summary(result, "–"))
    assert "times as fast" not in text
    assert "confidence" not in text
    done = ch.Supervisor([clerk]).run_sync(plan(task("a")))
    assert "confidence 1" in "\n".join(summary(done, "–"))


def test_only_what_was_computed_is_certain() -> None:
    assert ch.Supervisor([clerk]).run_sync(plan(task("a"))).answer.confidence == 1
    said = ModelReply(parts=(Text("Six."),), stop=StopReason.END, usage=ch.Usage(calls=1))
    mind = ch.Worker("mind", "Answers", model=ch.ScriptedModel([said]))
    assert ch.Supervisor([mind]).run_sync(plan(task("a", "mind"))).answer.confidence == 0.99
