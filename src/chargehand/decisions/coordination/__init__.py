"""Coordination: what all runs of a journal come to together. Folds that read and never decide for a run."""
