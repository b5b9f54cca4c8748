"""Crews: who works together, with which tools, on what terms; from TOML, from Python, or ready-made."""
