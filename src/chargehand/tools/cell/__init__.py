"""Scripts that run outside of the supervisor's process; they import nothing but the standard library."""
