"""Serving supervisors whose leader is killed or frozen: another goes on, by itself and once."""

from pathlib import Path

import pytest

from . import failover
from .share import share

BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


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
