"""Serving supervisors, their leaders, their database and the network between: what breaks, heals by itself."""

from pathlib import Path

import pytest

from . import failover, networks, outages
from .share import share

BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


@BOTH
def test_b4_clocks_that_differ_give_no_run_two_leaders(kind: str, tmp_path: Path) -> None:
    """Leases are judged by the clock of the database, or of the machine."""
    share(failover.b4_sqlite if kind == "sqlite" else failover.b4_postgres, tmp_path, 2)


@BOTH
def test_h1_a_standby_goes_on_with_the_run_of_a_killed_leader(kind: str, tmp_path: Path) -> None:
    """With 200 tasks in flight, within lease + 1 s; no finished step is repeated."""
    share(failover.h1_sqlite if kind == "sqlite" else failover.h1_postgres, tmp_path, 3)


@BOTH
def test_h2_a_leader_that_was_frozen_past_its_lease_changes_nothing(
    kind: str, tmp_path: Path
) -> None:
    """None of its appends is accepted, and no effect happens twice."""
    share(failover.h2_sqlite if kind == "sqlite" else failover.h2_postgres, tmp_path, 3)


def test_h3_a_leader_that_is_cut_off_starts_nothing_and_heals_without_help(tmp_path: Path) -> None:
    share(networks.h3_trial, tmp_path, 1)


def test_h6_supervisors_go_on_when_the_database_was_restarted(tmp_path: Path) -> None:
    """No acknowledged event is lost, none is doubled."""
    share(outages.h6_trial, tmp_path, 2)


def test_h7_supervisors_go_on_when_the_database_was_killed(tmp_path: Path) -> None:
    """No acknowledged event is lost, none is doubled."""
    share(outages.h7_trial, tmp_path, 2)


def test_h8_a_leader_keeps_its_lease_while_connections_and_locks_are_held(tmp_path: Path) -> None:
    share(outages.h8_trial, tmp_path, 1)


def test_h9_a_standby_takes_over_behind_a_transaction_pooler(tmp_path: Path) -> None:
    share(failover.h9_trial, tmp_path, 1)


def test_h10_transactions_that_the_server_gives_up_are_tried_again(tmp_path: Path) -> None:
    share(outages.h10_trial, tmp_path, 2)


def test_h11_links_cut_one_by_one_and_healed_in_any_order_lose_nothing(tmp_path: Path) -> None:
    share(networks.h11_trial, tmp_path, 3)


@BOTH
def test_h12_an_older_version_never_takes_events_of_a_newer_one(kind: str, tmp_path: Path) -> None:
    """During a rolling upgrade, a run stays with those that can read it."""
    share(failover.h12_sqlite if kind == "sqlite" else failover.h12_postgres, tmp_path, 1)
