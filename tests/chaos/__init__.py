"""Breaks real processes, real files and real clocks, and checks what is left against what was promised."""
