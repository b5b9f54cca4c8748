"""Coordination: progress, health and conflicts of all runs of a journal. The folds only read events."""
