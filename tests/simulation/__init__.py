"""The fault trial: kernels, a journal and workers on a virtual clock, and everything that can break.

`run_trial(seed, mode)` plays one schedule of faults, the same one for the same seed, and reports
which invariants broke. `python -m tests.simulation --seeds 0:2000` plays many.
"""

from tests.simulation.faults import FaultKind
from tests.simulation.report import Breach, Mode, Report
from tests.simulation.world import run_trial

__all__ = ["Breach", "FaultKind", "Mode", "Report", "run_trial"]
