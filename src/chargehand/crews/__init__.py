"""Crews: workers with their tools and settings, from TOML files, from Python, or built in."""
