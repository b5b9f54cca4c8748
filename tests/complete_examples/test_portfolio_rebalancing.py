"""The rebalancing sees that two securities have one issuer, and writes no order without approval."""

import csv
import json
import shutil
from collections import Counter
from decimal import Decimal
from pathlib import Path

import chargehand as ch
from chargehand import testing as kit
from chargehand.documents import Document
from tests.complete_examples.checks import (
    Example,
    assert_document_holds,
    assert_gaps_are_named,
)

ORDERS = Path("orders.csv")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_it_flags_the_issuer_with_two_securities(result: ch.RunResult, document: Document) -> None:
    kit.assert_succeeded(result)
    assert len(set(result.tasks["t2"].output)) == 3  # one for each exchange
    (avoided,) = result.output.avoided
    assert avoided.rule == "L1"
    assert {each.source for each in avoided.targets} == {"targets.csv:2", "targets.csv:3"}
    assert sum(each.value for each in avoided.targets) > avoided.limit.value
    assert "> **A straightforward rebalancing would break L1.**" in document.markdown()


def test_every_figure_of_the_document_is_in_the_data(example: Example, document: Document) -> None:
    assert_document_holds(document, example.data, figures=55)
    assert "approved by a person" in document.markdown()


def test_the_orders_keep_every_limit(example: Example) -> None:
    """Computed once more, with decimals and from the written file."""
    kit.assert_succeeded(example.run())
    data = example.data
    prices = {
        r["ticker"]: Decimal(r["close_eur"])
        for file in (data / "prices").iterdir()
        for r in rows(file)
        if r["date"] == "2026-01-16"
    }
    shares: Counter[str] = Counter()
    for lot in rows(data / "lots.csv"):
        shares[lot["ticker"]] += int(lot["shares"])
    cash = Decimal(rows(data / "cash.csv")[0]["amount"])
    total = cash + sum(count * prices[ticker] for ticker, count in shares.items())
    for order in rows(ORDERS):
        count = int(order["shares"]) * (1 if order["side"] == "buy" else -1)
        assert abs(count) * prices[order["ticker"]] >= 2500
        shares[order["ticker"]] += count
        cash -= count * prices[order["ticker"]]
    for kind, limit in (("issuer", 10), ("sector", 25)):
        held: dict[str, Decimal] = {}
        for each in rows(data / "securities.csv"):
            value = shares[each["ticker"]] * prices[each["ticker"]]
            held[each[kind]] = held.get(each[kind], Decimal()) + value
        assert max(held.values()) <= total * limit / 100
    assert cash >= total * 3 / 100


def test_exactly_what_was_approved_is_written(example: Example) -> None:
    boss = example.module.boss(example.written(), example.data)
    asked = boss.run_sync(example.request, output=example.module.OUTPUT, on_question="return")
    (question,) = asked.questions
    assert not ORDERS.exists()
    boss.answer_sync(question.id, "approve")
    kit.assert_succeeded(boss.resume_sync(asked.id))
    approved = json.loads(question.evidence.read()["arguments"])["trades"]
    written = {
        r["ticker"]: int(r["shares"]) * (1 if r["side"] == "buy" else -1) for r in rows(ORDERS)
    }
    assert written == {each["ticker"]: each["shares"] for each in approved}


def test_without_approval_nothing_is_written(example: Example) -> None:
    result = example.run(answer="reject")
    assert result.status is ch.RunStatus.PARTIAL
    assert not ORDERS.exists()
    page = example.document(result).markdown()
    assert "> **No orders were placed.**" in page
    assert "> **A straightforward rebalancing would break L1.**" in page


def test_orders_that_break_a_limit_are_refused_even_if_a_person_approves_them(
    example: Example,
) -> None:
    straight = example.module.propose(example.module.read_portfolio(example.data))
    trades = [
        {"ticker": ticker, "shares": count}
        for ticker, count in straight["straightforward"]["trades"].items()
    ]
    result = example.run(answer=f"approve with: {json.dumps({'trades': trades})}")
    assert not ORDERS.exists()
    assert "> **No orders were placed.**" in example.document(result).markdown()


def test_reuse_reads_only_the_prices_that_changed(example: Example, tmp_path: Path) -> None:
    folder = shutil.copytree(example.data, tmp_path / "data")
    journal = str(tmp_path / "runs.db")

    def run(**terms: str) -> ch.RunResult:
        boss = example.module.boss(example.written(), folder, journal)
        result = boss.run_sync(
            example.request, output=example.module.OUTPUT, on_question="return", **terms
        )
        assert isinstance(result, ch.RunResult)
        return result

    first = run()
    zurich = folder / "prices" / "zurich.csv"
    zurich.write_text(zurich.read_text().replace("2025-12-29,BRYN,", "2025-12-29,BRYN,1", 1))
    second = run(reuse=first.id)
    read = {
        attempt.task: attempt.reused
        for attempt in second.trace.attempts
        if attempt.task.startswith("t2[")
    }
    assert read == {"t2[0]": first.id, "t2[1]": first.id, "t2[2]": ""}
    assert len(second.questions) == 1  # the approval of another run is none


def test_a_worker_that_fails_for_good_is_a_gap_of_the_document(example: Example) -> None:
    result = example.run(breaks=["market_reader"])
    assert "t2" in {gap.task.partition("[")[0] for gap in result.answer.gaps}
    page = assert_gaps_are_named(example, result)
    assert "A straightforward rebalancing would break L1." in page
