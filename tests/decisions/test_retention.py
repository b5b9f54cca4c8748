"""Which runs retention deletes, decided without a journal."""

from datetime import UTC, datetime, timedelta

import pytest

from chargehand.decisions.retention import RunAge, expired, finished_runs, next_to_fit
from chargehand.errors import UsageError
from chargehand.facts.events import RunRequested
from chargehand.facts.limits import Limits
from chargehand.facts.retention import Retention
from chargehand.facts.sizes import shown_size, size_of

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def run(name: str, hours: float, *, is_open: bool = False) -> RunAge:
    return RunAge(name, not is_open, NOW - timedelta(hours=hours))


def request(name: str, *, parent: str = "", reuses: str = "") -> RunRequested:
    return RunRequested(
        at=NOW,
        run=name,
        request="",
        limits=Limits(),
        seed=1,
        rules=1,
        crew="",
        parent=parent,
        reuses=reuses,
    )


def gone(ages: list[RunAge], retention: Retention, *requests: RunRequested) -> list[str]:
    runs = finished_runs(ages, {each.run: each for each in requests})
    return [each.run for each in expired(runs, retention, NOW)]


def test_runs_that_ended_too_long_ago_go_the_oldest_first() -> None:
    ages = [run("a", 1), run("b", 30), run("c", 50)]
    assert gone(ages, Retention(older_than=timedelta(days=1))) == ["c", "b"]


def test_only_the_newest_are_kept_however_young_they_are() -> None:
    assert gone([run("a", 1), run("b", 2), run("c", 3)], Retention(keep=1)) == ["c", "b"]
    assert gone([run("a", 1)], Retention(keep=0)) == ["a"]


def test_a_run_that_one_limit_excludes_goes_whatever_the_other_says() -> None:
    ages = [run("a", 1), run("b", 2), run("c", 50)]
    assert gone(ages, Retention(keep=2, older_than=timedelta(hours=1.5))) == ["c", "b"]


def test_open_runs_are_neither_deleted_nor_counted() -> None:
    ages = [run("open", 99, is_open=True), run("a", 1), run("b", 2)]
    assert gone(ages, Retention(keep=1), request("open")) == ["b"]


def test_nested_runs_go_with_the_run_above_them_and_are_not_counted() -> None:
    ages = [run("top", 1), run("n1", 50), run("n2", 60), run("old", 70)]
    below = (request("n1", parent="top"), request("n2", parent="n1"))
    assert gone(ages, Retention(keep=1), *below) == ["old"]
    [top, _] = finished_runs(ages, {each.run: each for each in below})
    assert top.members == ("top", "n1", "n2")


def test_a_nested_run_of_an_open_one_is_kept() -> None:
    ages = [run("top", 1, is_open=True), run("n1", 50)]
    assert gone(ages, Retention(keep=0), request("top"), request("n1", parent="top")) == []


def test_a_nested_run_whose_parent_is_gone_stands_for_itself() -> None:
    assert gone([run("n1", 50)], Retention(keep=0), request("n1", parent="top")) == ["n1"]


def test_runs_that_name_each_other_as_parents_are_not_followed_in_a_circle() -> None:
    both = (request("n1", parent="n2"), request("n2", parent="n1"))
    assert len(gone([run("n1", 1), run("n2", 2)], Retention(keep=0), *both)) <= 2


def test_a_run_that_an_open_one_reuses_is_kept_with_all_of_its_family() -> None:
    ages = [run("open", 0, is_open=True), run("top", 9), run("n1", 9), run("b", 9)]
    requests = (request("open", reuses="n1"), request("n1", parent="top"))
    assert gone(ages, Retention(keep=0), *requests) == ["b"]


def test_a_run_that_a_finished_one_has_reused_may_go() -> None:
    """What was reused is among the events of the run that did."""
    ages = [run("late", 0), run("source", 9)]
    assert gone(ages, Retention(keep=1), request("late", reuses="source")) == ["source"]


def test_a_run_that_is_wanted_from_elsewhere_is_kept() -> None:
    runs = finished_runs([run("a", 1), run("b", 2)], {}, ["b"])
    assert [each.run for each in expired(runs, Retention(keep=0), NOW)] == ["a"]
    assert [each.run for each in next_to_fit(runs, (), Retention(max_size=1))] == ["a"]


def test_to_fit_a_size_the_oldest_go_first() -> None:
    runs = finished_runs([run("a", 1), run("b", 2), run("c", 3)], {})
    fitting = next_to_fit(runs, ["c"], Retention(max_size="2GB"))
    assert [each.run for each in fitting] == ["b", "a"]
    assert fitting[0].why == "the journal is larger than 2.0 GB"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "would keep everything"),
        ({"keep": -1}, "keep"),
        ({"keep": "many"}, "whole number"),
        ({"older_than": "30d"}, "not a duration"),
        ({"max_size": "large"}, "not a size"),
        ({"max_size": "10"}, "not a size with a unit"),
        ({"max_size": 0}, "max_size"),
        ({"newest": 3}, "newest"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Retention(**given)  # type: ignore[arg-type]  # as somebody might write it


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2_000_000_000), ("1.5 MiB", 1_572_864), ("500k", 500_000), ("3 b", 3)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "2XB", "12", "0B", "99999999TB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a size"):
        size_of(text)


def test_sizes_are_shown_in_a_few_characters() -> None:
    assert [shown_size(size) for size in (812, 4_123, 999_990, 2_000_000_000)] == [
        "812 B",
        "4.1 kB",
        "1.0 MB",
        "2.0 GB",
    ]
