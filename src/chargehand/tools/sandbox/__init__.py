"""Runs a program in a kernel sandbox, or not at all."""
