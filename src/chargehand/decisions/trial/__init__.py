"""The fault trial: desks, a journal and workers on a virtual clock, and everything that can break.

`run_trial(seed, mode)` plays one schedule of faults, the same one for the same seed, and reports
which invariants broke. `python -m chargehand.decisions.trial --seeds 0:2000` plays many.
"""

from chargehand.decisions.trial.faults import FaultKind
from chargehand.decisions.trial.report import Breach, Mode, Report
from chargehand.decisions.trial.world import run_trial

__all__ = ["Breach", "FaultKind", "Mode", "Report", "run_trial"]
