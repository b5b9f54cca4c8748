"""Supervisors as servers: what other programs drive them by."""
