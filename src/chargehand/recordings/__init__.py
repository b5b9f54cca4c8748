"""Recordings of runs: save a run to a file, replay it without a model, compare two runs, copy runs."""

from chargehand.decisions.replay_check import Difference
from chargehand.recordings.archive_replay import ReplayedRun, ReplayReport, replay
from chargehand.recordings.copy_between_journals import CopiedRun, copy
from chargehand.recordings.recording_file import load, record
from chargehand.recordings.run_archive import RunArchive
from chargehand.recordings.run_comparison import Pair, RunComparison, TaskComparison, compare

__all__ = [
    "CopiedRun",
    "Difference",
    "Pair",
    "ReplayReport",
    "ReplayedRun",
    "RunArchive",
    "RunComparison",
    "TaskComparison",
    "compare",
    "copy",
    "load",
    "record",
    "replay",
]
