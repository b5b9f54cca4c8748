"""Seeded schedules of faults: a share of them in every test run, as many as wanted with CHAOS_SCALE."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from chargehand.decisions.dispatch import Dispatch
from chargehand.decisions.schedule import Schedule
from chargehand.facts.events import Event
from tests.simulation import FaultKind, Mode, Report, run_trial
from tests.simulation.__main__ import main

SCALE = int(os.environ.get("CHAOS_SCALE", "1"))
SHARES = [(Mode.SAFETY, 300 * SCALE), (Mode.LIVENESS, 200 * SCALE)]


def once_broken() -> list[tuple[int, Mode]]:
    lines = (Path(__file__).parent / "once_broken.txt").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [(int(seed), Mode(mode)) for seed, mode, *_ in words]


def broken(reports: list[Report]) -> str:
    return "\n".join(str(report) for report in reports if report.breaches)


def test_what_once_broke_holds() -> None:
    assert broken([run_trial(seed, mode) for seed, mode in once_broken()]) == ""


@pytest.mark.timeout(60 + 60 * SCALE)
def test_every_invariant_holds_under_every_kind_of_fault() -> None:
    faults: Counter[FaultKind] = Counter()
    ended: Counter[str] = Counter()
    system_tasks: Counter[str] = Counter()
    for mode, share in SHARES:
        reports = [run_trial(seed, mode) for seed in range(share)]
        assert broken(reports) == ""
        for report in reports:
            faults += report.faults
            ended += report.ended
            system_tasks += report.system_tasks
    assert [kind for kind in FaultKind if not faults[kind]] == [], "some faults never happened"
    assert {"succeeded", "partial", "failed", "cancelled", "parked"} <= set(ended)
    assert set(system_tasks) == {
        *("plan", "plan again", "refine", "draft", "answer", "budget", "items"),
    }


def test_a_healed_trial_leaves_no_run_in_between() -> None:
    for seed in range(30):
        assert run_trial(seed, Mode.LIVENESS).ended["open"] == 0


def test_the_same_seed_is_the_same_trial_whatever_the_hash_seed() -> None:
    here = digests()
    assert digests() == here
    code = "from tests.simulation.test_simulation import digests; print(*digests())"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == here


def digests() -> list[str]:
    return [run_trial(seed, mode).digest for seed in range(15) for mode in Mode]


def test_different_seeds_are_different_trials() -> None:
    assert len(set(digests())) == 30


def test_a_breach_says_which_rule_broke_and_what_was_journaled_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admit = Schedule.admit

    def believe_everybody(self: Schedule, event: Event) -> Event | None:
        return event if type(event).__name__ == "AttemptFinished" else admit(self, event)

    monkeypatch.setattr(Schedule, "admit", believe_everybody)
    reports = [run_trial(seed) for seed in range(40)]
    breaches = [breach for report in reports for breach in report.breaches]
    assert "i06_an_attempt_ends_once" in {breach.invariant for breach in breaches}
    assert all(breach.last for breach in breaches)


# the command


def test_the_command_tells_what_was_broken_and_how_often(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "0:6", "--mode", "both"]) == 0
    told = capsys.readouterr().out
    assert "seeds 0:6 mode both steps 250" in told
    assert all(kind.value in told for kind in FaultKind)
    assert "0 of 6 trials broke an invariant" in told


def test_the_command_fails_when_an_invariant_breaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Dispatch, "freed", lambda *_: None)
    assert main(["--seeds", "0:20", "--fail-fast"]) == 1
    assert "broken: " in capsys.readouterr().out
