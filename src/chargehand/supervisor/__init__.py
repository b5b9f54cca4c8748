"""What users hold: the supervisor, its runs and their options."""

from chargehand.supervisor.supervisor import Run, Supervisor

__all__ = ["Run", "Supervisor"]
