"""Support for testing your crews: virtual time, and faults on purpose (docs/testing.md).

def test_retries_wait():
    result = run_virtual(boss.run(plan))   # an hour of backoff takes a moment
"""

# time
# workers
from chargehand.testing.broken_workers import dies, fails, hangs, replace_worker, slow
from chargehand.testing.fake_provider import FakeProvider

# models
from chargehand.testing.fault_plan import FAULTS, at_random, first
from chargehand.testing.faulty_model import FaultyModel

# processes and databases
from chargehand.testing.killed_process import KilledRun, kill_and_resume
from chargehand.testing.losing_journal import LosingJournal

# results
from chargehand.testing.result_checks import assert_partial, assert_succeeded, half_budget
from chargehand.testing.virtual_time import START_AT, FakeClock, VirtualLoop, run_virtual

__all__ = [
    "FAULTS",
    "START_AT",
    "FakeClock",
    "FakeProvider",
    "FaultyModel",
    "KilledRun",
    "LosingJournal",
    "VirtualLoop",
    "assert_partial",
    "assert_succeeded",
    "at_random",
    "dies",
    "fails",
    "first",
    "half_budget",
    "hangs",
    "kill_and_resume",
    "replace_worker",
    "run_virtual",
    "slow",
]
