"""Evaluation: suites, recordings, figures and the gate."""
