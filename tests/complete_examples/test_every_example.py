"""What holds for every complete example: its data, its suite, and how it ends when things go wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import chargehand as ch
from chargehand import testing as kit
from tests.complete_examples.checks import (
    Example,
    assert_data_is_made_by,
    assert_suite_passes,
    assert_survives_kills,
    example_of,
    llm_workers,
)


@dataclass(frozen=True)
class Case:
    """How one example is put to the test."""

    #: it is killed at these steps, one after another
    kills: tuple[int, int]
    #: of calls that the provider refuses with 429
    rate: float
    options: tuple[str, ...] = ()
    ends: str = "succeeded"
    #: what its document still says after the kills, and with half of the budget
    says: str = ""
    says_with_half: str = ""
    #: by file: the lines that are in it after the kills
    files: Mapping[str, int] = field(default_factory=dict)


CASES = {
    "competitive_intelligence": Case(
        kills=(5, 9),
        rate=0.06,
        ends="partial",
        says="Oxbow Help: the sources contradict each other",
    ),
    "contract_review": Case(kills=(4, 9), rate=0.2),
    "curriculum_builder": Case(kills=(4, 9), rate=0.2),
    "patient_summary": Case(
        kills=(6, 30),
        rate=0.1,
        options=("--yes",),
        says_with_half="Not confirmed by a clinician",
    ),
    "portfolio_rebalancing": Case(
        kills=(3, 8),
        rate=0.2,
        options=("--yes",),
        says_with_half="would break L1",
        files={"orders.csv": 13},
    ),
    "product_launch": Case(
        kills=(4, 9), rate=0.06, says="Purchase price: the sources contradict each other"
    ),
}


@pytest.fixture(params=CASES)
def example(request: pytest.FixtureRequest) -> Example:
    return example_of(request.param)


@pytest.fixture
def case(example: Example) -> Case:
    return CASES[example.folder.name]


def test_the_data_is_made_by_its_script(example: Example, folder: Path) -> None:
    assert_data_is_made_by(example, folder)


def test_three_llm_workers_use_tools_of_their_own(example: Example) -> None:
    workers = llm_workers(example.module.boss(example.written(), example.data))
    tools = [set(each.toolbox.names) for each in workers if len(each.toolbox)]
    assert len(tools) >= 3
    assert len(set.union(*tools)) == sum(map(len, tools)), "two workers share a tool"
    called = {turn.call for reply in example.written().replies.reply for turn in reply.turns}
    assert all(each & called for each in tools)


def test_its_suite_passes_and_writes_nothing(example: Example, folder: Path) -> None:
    assert_suite_passes(example)
    assert not list(folder.iterdir())


def test_another_request_says_that_it_needs_a_model(example: Example) -> None:
    boss = example.module.boss(example.written(), example.data)
    result = boss.run_sync("What is the weather?", output=example.module.OUTPUT)
    assert result.status is ch.RunStatus.FAILED
    assert "--model" in str(result.answer)


def test_killed_twice_it_goes_on(example: Example, case: Case, folder: Path) -> None:
    written = assert_survives_kills(example, folder, case.kills, *case.options, ends=case.ends)
    assert case.says in written
    for name, lines in case.files.items():
        assert len((folder / name).read_text().splitlines()) == lines


def test_a_provider_with_429s_is_waited_for(example: Example, case: Case) -> None:
    faults = kit.at_random("429", rate=case.rate, seed=3)
    model = kit.FaultyModel(example.written(), faults=faults, retry_after=0.1)
    result = example.run(model)
    assert isinstance(result.output, example.module.OUTPUT), result.answer.gaps
    if case.ends == "succeeded":
        kit.assert_succeeded(result)
    assert model.struck


def test_half_of_the_budget_gives_the_best_partial_document(example: Example, case: Case) -> None:
    half = example.run(limits=kit.half_budget(example.finished))
    assert half.status is ch.RunStatus.PARTIAL
    assert len(half.answer.gaps) > len(example.finished.answer.gaps)
    page = example.document(half).markdown()
    assert "What is missing" in page
    assert case.says_with_half in page
